"""Report sequence numbers of producers that are missing or appear twice.

A gap is not an error where a cleaner removed records, or where reported damage lies between the
batches. It is a notice if the producer paused until its state expired
(`producer.id.expiration.ms`).
"""

from collections.abc import Iterable

from tidelog.apps.audit.checks.replica_log import ReplicaLog
from tidelog.apps.audit.report.findings import Finding
from tidelog.apps.audit.scan.summary import SequenceBreak
from tidelog.core.lineage.producer_state import EXPIRATION_MS
from tidelog.core.record.record_batch import MAX_SEQUENCE


def check_sequences(
    logs: list[ReplicaLog], between: Iterable[tuple[ReplicaLog, SequenceBreak]]
) -> None:
    """Add findings about sequence breaks to the logs.

    `between` has the breaks between two stretches. A break on all replicas is reported once.
    """
    cleaning = logs[0].cleaning
    found: dict[tuple[int, int], list[tuple[ReplicaLog, Finding]]] = {}
    seen = [
        (log, each._replace(file=segment.file))
        for log in logs
        for segment in log.segments
        for stretch in segment.stretches
        for each in stretch.breaks
    ]
    breaks = [*seen, *between]
    by_end = {(id(log), each.producer_id, each.last_offset): each for log, each in breaks}
    for log, each in breaks:
        before = by_end.get((id(log), each.producer_id, each.offset_before))
        if before is not None and _continues(before, each):
            continue  # only the batch before this one is wrong, and it is reported
        if cleaning.compacted and (each.offset < cleaning.upto or not cleaning.has_checkpoint):
            continue
        near = sorted((each.offset_before, each.last_offset))
        jumped = any(a <= near[1] and near[0] <= b for a, b in log.jumps)
        if not jumped and not log.has_damage_in(near[0], near[1]):
            key = (each.producer_id, each.offset)
            found.setdefault(key, []).append((log, _finding(log, each)))
    for same in found.values():
        everywhere = len(same) == len(logs) > 1
        for log, finding in same[:1] if everywhere else same:
            also = "; the same on all replicas" if everywhere else ""
            log.add(finding._replace(text=finding.text + also))


def _continues(broken: SequenceBreak, after: SequenceBreak) -> bool:
    """Return whether the numbers after a wrong batch continue as if it had the right ones."""
    records = broken.last_offset - broken.offset + 1
    right = (broken.sequence_before + 1 + records) & MAX_SEQUENCE
    return (after.epoch, after.sequence) == (broken.epoch_before, right)


def _finding(log: ReplicaLog, each: SequenceBreak) -> Finding:
    before = f"epoch {each.epoch_before}, sequence number {each.sequence_before}"
    here = f"epoch {each.epoch}, sequence number {each.sequence}"
    text = f"producer {each.producer_id}: {here} after {before} at offset {each.offset_before}"
    again = each.epoch < each.epoch_before or (
        each.epoch == each.epoch_before and each.sequence <= each.sequence_before
    )
    kind = "sequence-repeat" if again else "sequence-gap"
    if each.waited_ms >= EXPIRATION_MS:
        kind = "sequence-restart"
    offsets = (each.offset, each.last_offset)
    return log.place.finding(kind, each.file, text, position=each.position, offsets=offsets)
