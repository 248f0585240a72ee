"""Check that a consumer group which writes transactions processed each input record exactly once.

The group's offset moves with the transaction that has the output. So below the group's committed
offset each committed input record has one committed output record, and from there on it has none.
"""

from collections.abc import Mapping

from tidelog.apps.verify.checker.findings import Findings
from tidelog.apps.verify.checker.transactions.events import INPUT, OUTPUT
from tidelog.apps.verify.checker.transactions.history import TxnHistory
from tidelog.apps.verify.checker.transactions.outcomes import Logs, record


def check_processing(
    history: TxnHistory, logs: Logs, committed_offsets: Mapping[int, int]
) -> Findings:
    """Check the output; `committed_offsets` has the group's offset by input partition."""
    findings = Findings()
    made = _made_from(history, logs, findings)
    for place, log in logs.items():
        if place.topic != INPUT:
            continue
        committed = committed_offsets.get(place.partition, log.start)
        for offset in log.visible():
            outputs = made.get((place.partition, offset), [])
            text = record(log.value(offset), place, offset)
            if len(outputs) > 1:
                findings.add("processed twice", f"{text}: {' and '.join(outputs)}")
            elif outputs and offset >= committed:
                findings.add(
                    "offset not committed",
                    f"{text}: {outputs[0]} is committed, but the group's offset is {committed}",
                )
            elif not outputs and offset < committed:
                findings.add(
                    "not processed", f"{text} has no output; the group's offset is {committed}"
                )
    return findings


def _made_from(
    history: TxnHistory, logs: Logs, findings: Findings
) -> dict[tuple[int, int], list[str]]:
    """Return the committed output records by input partition and offset; check their order."""
    made: dict[tuple[int, int], list[str]] = {}
    for place, log in logs.items():
        if place.topic != OUTPUT:
            continue
        newest: dict[int, int] = {}
        for offset in log.visible():
            sent = history.sent.get(log.value(offset))
            if sent is None:
                continue
            source, at = sent.source_partition, sent.source_offset
            made.setdefault((source, at), []).append(record(sent.value, place, offset))
            if at < newest.get(source, -1):
                findings.add(
                    "reordered",
                    f"{record(sent.value, place, offset)} was made from input offset {at}, and"
                    f" follows the one made from {newest[source]}",
                )
            newest[source] = max(at, newest.get(source, -1))
    return made
