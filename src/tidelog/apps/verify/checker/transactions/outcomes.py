"""Compare the transactions of a history with the final logs.

A committed transaction has each of its records in the logs once, an aborted one has none that is
visible. If the outcome is unknown, all of its records are visible or none.
"""

from collections.abc import Mapping

from tidelog.apps.verify.checker.findings import Findings
from tidelog.apps.verify.checker.transactions.events import Place, describe
from tidelog.apps.verify.checker.transactions.history import Fate, Txn, TxnHistory
from tidelog.apps.verify.checker.transactions.txn_log import Ends, TxnLog
from tidelog.apps.verify.record_value import ABSENT, STRANGER

Logs = Mapping[Place, TxnLog]


class Found(dict[int, list[tuple[Place, int]]]):
    """Where the final logs have each value."""

    def __init__(self, logs: Logs) -> None:
        super().__init__()
        for place, log in logs.items():
            for at, value in enumerate(log.values):
                if value not in (ABSENT, STRANGER):
                    self.setdefault(value, []).append((place, log.start + at))


def record(value: int, place: Place, offset: int | None = None) -> str:
    """Describe a record for reports."""
    at = "" if offset is None else f", offset {offset}"
    return f"record {describe(value)} ({place}{at})"


def check_outcomes(history: TxnHistory, logs: Logs) -> Findings:
    """Check every transaction and every record of the final logs."""
    findings = check_records(history, logs)
    found = Found(logs)
    for txn in history.txns.values():
        _check_txn(history, txn, found, logs, findings)
    return findings


def _check_txn(history: TxnHistory, txn: Txn, found: Found, logs: Logs, findings: Findings) -> None:
    fate = history.fate(txn)
    if history.is_fenced(txn) and txn.outcome == Fate.COMMITTED.value:
        findings.add("zombie committed", f"{txn}: a newer session had fenced its producer")
    missing = []
    shown = []
    for sent in txn.sends:
        places = found.get(sent.value, [])
        where = [(p, o) for p, o in places if logs[p].end_of(o) == Ends.COMMITTED]
        text = record(sent.value, Place(sent.topic, sent.partition))
        if where:
            shown.append(record(sent.value, *where[0]))
        else:
            ends = ", ".join(logs[p].end_of(o).name.lower() for p, o in places)
            missing.append(f"{text} is {ends or 'missing'}")
    if fate is Fate.ABORTED:
        for text in shown:
            findings.add("G1a aborted read", f"{txn} was aborted; {text} is committed")
        return
    if fate is Fate.COMMITTED:
        for text in missing:
            findings.add("lost", f"{txn} was committed; {text}")
    if shown and missing:
        findings.add("torn", f"{txn}: {shown[0]} is visible; {missing[0]}")


def check_records(history: TxnHistory, logs: Logs) -> Findings:
    """Check that each record was sent there, is there once, and in the order of its client."""
    findings = Findings()
    for place, log in logs.items():
        newest: dict[int, int] = {}
        seen: set[int] = set()
        for at, value in enumerate(log.values):
            if value == ABSENT:
                continue
            offset = log.start + at
            sent = history.sent.get(value)
            if sent is None or (sent.topic, sent.partition) != place:
                name = "a record of no transaction" if value == STRANGER else describe(value)
                findings.add("phantom", f"{place}, offset {offset}: {name}")
                continue
            client = value >> 48
            text = record(value, place, offset)
            if value in seen:
                findings.add("duplicated", text)
            elif value < newest.get(client, -1):
                findings.add("reordered", f"{text} follows {describe(newest[client])}")
            seen.add(value)
            newest[client] = max(value, newest.get(client, -1))
            if log.end_of(offset) == Ends.OPEN:
                findings.add("hanging", f"{text}: {history.writer_of(value)} has no marker here")
    return findings
