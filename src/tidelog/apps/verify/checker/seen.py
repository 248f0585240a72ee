"""Check what consumers read against the final log, and each response against itself.

Two different reads of an offset can't both match the final log. So comparing each read with the
final log finds every change. Each response is also checked alone: its records must end below its
own high watermark.

The log ends that clients see never decrease. For ListOffsets this holds always (KIP-207); for the
high watermark in fetch responses it holds while the leader stays the same. A new leader may
return a lower high watermark for a moment, as in Kafka: a follower learns it one fetch late.
"""

from collections.abc import Iterable

from tidelog.apps.verify.checker.final_log import FinalLog
from tidelog.apps.verify.checker.findings import Findings
from tidelog.apps.verify.history.rows import Mark, MarkKind, ReadBatch
from tidelog.apps.verify.record_value import name


def check_reads(log: FinalLog, reader: str, reads: Iterable[tuple[int, ...]]) -> Findings:
    """Check that the final log has each record that was read, and that no record was skipped.

    `reads` has rows of history.rows.Read, from a consumer that started at the log start and
    never changed its position itself.
    """
    found = Findings()
    start, end, values, epochs = log.start, log.end, log.values, log.leader_epochs
    expected = start
    for offset, value, leader_epoch in reads:
        if offset > expected:
            found.add(
                "skipped",
                f"partition {log.partition}: {reader} went from {expected - 1} to {offset}",
                offset - expected,
            )
        expected = max(expected, offset + 1)
        if not start <= offset < end:
            found.add("read, then gone", _gone(log, reader, offset, name(value)))
            continue
        at = offset - start
        same_epoch = leader_epoch in (-1, epochs[at])
        if values[at] != value or not same_epoch:
            found.add(
                "changed after read",
                f"partition {log.partition}, offset {offset}: {reader} read {name(value)} of"
                f" epoch {leader_epoch}; now {name(values[at])} of epoch {epochs[at]}",
            )
    if expected < end:
        found.add(
            "skipped",
            f"partition {log.partition}: {reader} got nothing from {expected} to {end - 1}",
            end - expected,
        )
    return found


def check_read_batches(log: FinalLog, reader: str, rows: Iterable[tuple[int, ...]]) -> Findings:
    """Check that the final log has each batch that was read, with the same bytes.

    `rows` has rows of history.rows.ReadBatch, from a reader that may go back.
    """
    found = Findings()
    for row in rows:
        batch = ReadBatch._make(row)
        now = log.batch_at(batch.base_offset)
        if now == batch:
            continue
        if batch.last_offset >= log.end:
            found.add("read, then gone", _gone(log, reader, batch.base_offset, str(batch)))
        else:
            found.add(
                "changed after read",
                f"partition {log.partition}: {reader} read {batch}; now {now}",
            )
    return found


def _gone(log: FinalLog, reader: str, offset: int, what: str) -> str:
    return (
        f"partition {log.partition}: {reader} read {what} at offset {offset};"
        f" the log ends at {log.end}"
    )


def check_marks(log: FinalLog, reader: str, rows: Iterable[tuple[int, ...]]) -> Findings:
    """Check that responses end below their high watermark, and that log ends never decrease.

    `rows` has rows of history.rows.Mark, from a consumer that reads only committed records.
    """
    found = Findings()
    where = f"partition {log.partition}: {reader}"
    latest = -1
    newest_epoch, high_watermark = -1, -1
    for row in rows:
        mark = Mark._make(row)
        if mark.kind == MarkKind.OUT_OF_RANGE:
            found.add("offsets backwards", f"{where} was told that its position is out of range")
            continue
        if mark.high_watermark > log.end:
            found.add(
                "offsets backwards",
                f"{where} saw the end at {mark.high_watermark}; the final log ends at {log.end}",
            )
        if mark.kind == MarkKind.LIST_LATEST:
            if mark.high_watermark < latest:
                found.add("offsets backwards", f"{where}: end {mark.high_watermark} after {latest}")
            latest = max(latest, mark.high_watermark)
            continue
        _check_answer(found, where, mark)
        if mark.leader_epoch == newest_epoch >= 0 and mark.high_watermark < high_watermark:
            found.add(
                "offsets backwards",
                f"{where}: high watermark {mark.high_watermark} after {high_watermark} in leader"
                f" epoch {newest_epoch}",
            )
        newest_epoch, high_watermark = mark.leader_epoch, mark.high_watermark
    return found


def _check_answer(found: Findings, where: str, mark: Mark) -> None:
    """Check one fetch response alone."""
    stable = mark.high_watermark if mark.last_stable < 0 else mark.last_stable
    if mark.last_returned >= min(mark.high_watermark, stable):
        found.add(
            "read above HW",
            f"{where} got offset {mark.last_returned} in an answer with high watermark"
            f" {mark.high_watermark} and last stable offset {mark.last_stable}",
        )
    if stable > mark.high_watermark:
        found.add(
            "read above HW",
            f"{where} saw last stable offset {mark.last_stable} above high watermark"
            f" {mark.high_watermark}",
        )
