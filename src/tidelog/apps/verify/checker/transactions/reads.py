"""Check what read-committed consumers received."""

from bisect import bisect_left, bisect_right

from tidelog.apps.verify.checker.findings import Findings
from tidelog.apps.verify.checker.transactions.events import Place, Read, describe
from tidelog.apps.verify.checker.transactions.history import Fate, TxnHistory
from tidelog.apps.verify.checker.transactions.outcomes import Logs, record
from tidelog.apps.verify.checker.transactions.txn_log import Ends, TxnLog


def check_reads(history: TxnHistory, logs: Logs) -> Findings:
    """Check each read alone, and the offsets of each consumer in order."""
    findings = Findings()
    visible = {place: log.visible() for place, log in logs.items()}
    for (reader, place), reads in history.reads.items():
        before: int | None = None
        for read in reads:
            for offset, value in zip(read.offsets, read.values, strict=True):
                _check_one(history, logs[place], read, offset, value, findings)
                if before is not None:
                    _check_step(visible[place], reader, place, before, offset, findings)
                before = offset
    return findings


def check_read_all(history: TxnHistory, logs: Logs, reader: str) -> Findings:
    """Check that a consumer that read from the start has received all committed records."""
    findings = Findings()
    for place, log in logs.items():
        reads = history.reads.get((reader, place), [])
        got = [read.offsets for read in reads]
        first = got[0][0] if got else log.end
        last = got[-1][-1] if got else log.end - 1
        missed = [offset for offset in log.visible() if not first <= offset <= last]
        if missed:
            findings.add(
                "skipped",
                f"{place}: {reader} did not receive offsets {missed[0]} to {missed[-1]}",
                len(missed),
            )
    return findings


def _check_one(
    history: TxnHistory, log: TxnLog, read: Read, offset: int, value: int, findings: Findings
) -> None:
    place = Place(read.topic, read.partition)
    text = f"{read.reader} read {record(value, place, offset)}"
    if offset >= log.end:
        findings.add("read, then gone", f"{text}; the final log ends at {log.end}")
    elif log.value(offset) != value:
        now = describe(log.value(offset)) if log.end_of(offset) else "no record"
        findings.add("changed after read", f"{text}; the final log has {now}")
    writer = history.writer_of(value)
    if writer is None:
        return  # `check_records` reports phantoms
    if history.fate(writer) is Fate.ABORTED or log.end_of(offset) == Ends.ABORTED:
        findings.add("G1a aborted read", f"{text} of {writer}, which was aborted")
    elif writer.commit_at is None or read.at < writer.commit_at:
        findings.add("G1b intermediate read", f"{text} before {writer} began to commit")


def _check_step(
    visible: list[int], reader: str, place: Place, before: int, offset: int, findings: Findings
) -> None:
    if offset <= before:
        findings.add("out-of-order read", f"{place}: {reader} read {offset} after {before}")
        return
    between = bisect_left(visible, offset) - bisect_right(visible, before)
    if between:
        findings.add("skipped", f"{place}: {reader} read offset {offset} after {before}", between)
