"""Check one partition of a run: compare what clients saw with the final log.

Sends: a producer sends the records of a partition in the order of their sequence numbers, so these
must rise in the log. A sequence number that appeared before is a duplicate; a lower one that did
not is out of order. A record with an unknown outcome may be in the log, but only once and in order.

Reads: two different reads of an offset can't both match the final log. So comparing each read with
the final log finds every change. Each response is also checked alone: its records must end below
its own high watermark.

The log ends that clients see never decrease. For ListOffsets this holds always (KIP-207); for the
high watermark in fetch responses it holds while the leader stays the same. A new leader may
return a lower high watermark for a moment, as in Kafka: a follower learns it one fetch late.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.apps.verify.checker.final_log import FinalLog
from tidelog.apps.verify.checker.findings import Findings
from tidelog.apps.verify.journals import Kind, Mark, MarkKind, Outcome, ReadBatch, read_rows
from tidelog.apps.verify.record_value import ABSENT, STRANGER, name, split_id, value_id


class History(NamedTuple):
    """The journals of a run: their folder and the clients that wrote them."""

    folder: str
    sent: dict[int, list[int]]
    """By producer: the number of records that it sent to each partition."""
    record_readers: list[str]
    """Consumers that journal records. They read each partition once, from the log start."""
    batch_readers: list[str]
    """Raw readers, which journal batches. Both kinds also journal the offsets in responses."""


def check_partition(log: FinalLog, history: History) -> Findings:
    """Run all checks of a partition, except the comparison of its replicas."""
    folder, partition = history.folder, log.partition
    sent = {producer: counts[partition] for producer, counts in history.sent.items()}
    found = check_epochs(log)
    found.merge(check_strangers(log, sent))
    found.merge(check_order(log, sent))
    for producer in sent:
        acks = read_rows(folder, Kind.ACKS, str(producer), partition)
        found.merge(check_acknowledged(log, producer, acks))
    for reader in history.record_readers:
        reads = read_rows(folder, Kind.READS, reader, partition)
        found.merge(check_reads(log, reader, reads))
    for reader in history.batch_readers:
        batches = read_rows(folder, Kind.BATCHES, reader, partition)
        found.merge(check_read_batches(log, reader, batches))
    for reader in (*history.record_readers, *history.batch_readers):
        found.merge(check_marks(log, reader, read_rows(folder, Kind.MARKS, reader, partition)))
    return found


def check_epochs(log: FinalLog) -> Findings:
    """Check that leader epochs never decrease with rising offsets."""
    found = Findings()
    before = -1
    for number in range(log.batches):
        batch = log.batch(number)
        if batch.leader_epoch < before:
            found.add(
                "epochs backwards",
                f"partition {log.partition}: epoch {batch.leader_epoch} at offset"
                f" {batch.base_offset} after epoch {before}",
            )
        before = max(before, batch.leader_epoch)
    return found


def check_strangers(log: FinalLog, sent: dict[int, int]) -> Findings:
    """Check that every record in the log was sent.

    `sent` has the number of records that each producer sent to this partition.
    """
    found = Findings()
    for at, value in enumerate(log.values):
        if value == ABSENT:
            continue
        producer, sequence = split_id(value)
        if value == STRANGER or sequence >= sent.get(producer, 0):
            found.add(
                "phantom", f"partition {log.partition}, offset {log.start + at}: {name(value)}"
            )
    return found


# -- sends -----------------------------------------------------------------------------------------


def check_acknowledged(log: FinalLog, producer: int, acks: Iterable[tuple[int, ...]]) -> Findings:
    """Check that acknowledged records are at their offsets, and refused ones not in the log.

    `acks` has rows of journals.Ack.
    """
    found = Findings()
    to_find: dict[int, int] = {}
    first = value_id(producer, 0)
    start, values, end = log.start, log.values, log.end
    for sequence, offset, _, _ in acks:
        if offset == Outcome.UNKNOWN:
            continue
        value = first + sequence
        if not start <= offset < end or values[offset - start] != value:
            to_find[value] = offset
    where = _places(log, to_find)
    for value, acked_at in to_find.items():
        place = where.get(value)
        text = f"partition {log.partition}: {name(value)}"
        if acked_at == Outcome.REFUSED:
            if place is not None:
                found.add("refused, yet written", f"{text} is at offset {place}")
        elif place is None:
            if acked_at == Outcome.NO_OFFSET:
                found.add("lost", f"{text}, acknowledged without an offset")
            else:
                there = name(log.value(acked_at))
                found.add("lost", f"{text}, acknowledged at offset {acked_at}, which has {there}")
        elif acked_at != Outcome.NO_OFFSET:
            found.add("wrong offset", f"{text}, acknowledged at offset {acked_at}, is at {place}")
    return found


def _places(log: FinalLog, wanted: dict[int, int]) -> dict[int, int]:
    """Return the first offset of each wanted value in the log."""
    if not wanted:
        return {}
    places: dict[int, int] = {}
    for at, value in enumerate(log.values):
        if value in wanted:
            places.setdefault(value, log.start + at)
    return places


def check_order(log: FinalLog, sent: dict[int, int]) -> Findings:
    """Check that the log has each producer's records in the order sent, each at most once.

    `sent` has the number of records that each producer sent to this partition.
    """
    found = Findings()
    seen = {producer: bytearray(count) for producer, count in sent.items()}
    newest = dict.fromkeys(sent, -1)
    for at, value in enumerate(log.values):
        producer, sequence = split_id(value)
        if value in (ABSENT, STRANGER) or sequence >= sent.get(producer, 0):
            continue  # `check_strangers` reports phantoms
        if sequence > newest[producer]:
            newest[producer] = sequence
        elif seen[producer][sequence]:
            found.add("duplicated", _place(log, at, value))
        else:
            text = f"{_place(log, at, value)}, after record {newest[producer]}"
            found.add("reordered", text)
        seen[producer][sequence] = 1
    return found


def _place(log: FinalLog, at: int, value: int) -> str:
    return f"partition {log.partition}, offset {log.start + at}: {name(value)}"


# -- reads -----------------------------------------------------------------------------------------


def check_reads(log: FinalLog, reader: str, reads: Iterable[tuple[int, ...]]) -> Findings:
    """Check that the final log has each record that was read, and that no record was skipped.

    `reads` has rows of journals.Read, from a consumer that started at the log start and
    never changed its position itself.
    """
    found = Findings()
    start, end, values, epochs = log.start, log.end, log.values, log.leader_epochs
    expected = start
    for offset, value, leader_epoch in reads:
        if offset > expected:
            found.add(
                "skipped",
                f"partition {log.partition}: {reader} read offset {offset} after {expected - 1}",
                offset - expected,
            )
        expected = max(expected, offset + 1)
        if not start <= offset < end:
            found.add("read, then gone", _missing_now(log, reader, offset, name(value)))
            continue
        at = offset - start
        same_epoch = leader_epoch in (-1, epochs[at])
        if values[at] != value or not same_epoch:
            found.add(
                "changed after read",
                f"partition {log.partition}, offset {offset}: {reader} read {name(value)} of"
                f" epoch {leader_epoch}; the final log has {name(values[at])} of epoch"
                f" {epochs[at]}",
            )
    if expected < end:
        found.add(
            "skipped",
            f"partition {log.partition}: {reader} did not receive offsets {expected} to {end - 1}",
            end - expected,
        )
    return found


def check_read_batches(log: FinalLog, reader: str, rows: Iterable[tuple[int, ...]]) -> Findings:
    """Check that the final log has each batch that was read, with the same bytes.

    `rows` has rows of journals.ReadBatch, from a reader that may go back.
    """
    found = Findings()
    for row in rows:
        batch = ReadBatch._make(row)
        now = log.batch_at(batch.base_offset)
        if now == batch:
            continue
        if batch.last_offset >= log.end:
            found.add("read, then gone", _missing_now(log, reader, batch.base_offset, str(batch)))
        else:
            found.add(
                "changed after read",
                f"partition {log.partition}: {reader} read {batch}; the final log has {now}",
            )
    return found


def _missing_now(log: FinalLog, reader: str, offset: int, what: str) -> str:
    return (
        f"partition {log.partition}: {reader} read {what} at offset {offset};"
        f" the final log ends at {log.end}"
    )


def check_marks(log: FinalLog, reader: str, rows: Iterable[tuple[int, ...]]) -> Findings:
    """Check that responses end below their high watermark, and that log ends never decrease.

    `rows` has rows of journals.Mark, from a consumer that reads only committed records.
    """
    found = Findings()
    where = f"partition {log.partition}: {reader}"
    latest = -1
    newest_epoch, high_watermark = -1, -1
    for row in rows:
        mark = Mark._make(row)
        if mark.kind == MarkKind.OUT_OF_RANGE:
            found.add(
                "offsets backwards", f"{where}: a broker rejected its position as out of range"
            )
            continue
        if mark.high_watermark > log.end:
            found.add(
                "offsets backwards",
                f"{where} received log end {mark.high_watermark}; the final log ends at {log.end}",
            )
        if mark.kind == MarkKind.LIST_LATEST:
            if mark.high_watermark < latest:
                found.add(
                    "offsets backwards", f"{where}: log end {mark.high_watermark} after {latest}"
                )
            latest = max(latest, mark.high_watermark)
            continue
        _check_response(found, where, mark)
        if mark.leader_epoch == newest_epoch >= 0 and mark.high_watermark < high_watermark:
            found.add(
                "offsets backwards",
                f"{where}: high watermark {mark.high_watermark} after {high_watermark} in leader"
                f" epoch {newest_epoch}",
            )
        newest_epoch, high_watermark = mark.leader_epoch, mark.high_watermark
    return found


def _check_response(found: Findings, where: str, mark: Mark) -> None:
    """Check one fetch response alone."""
    stable = mark.high_watermark if mark.last_stable < 0 else mark.last_stable
    if mark.last_returned >= min(mark.high_watermark, stable):
        found.add(
            "read above HW",
            f"{where} received offset {mark.last_returned} in a response with high watermark"
            f" {mark.high_watermark} and last stable offset {mark.last_stable}",
        )
    if stable > mark.high_watermark:
        found.add(
            "read above HW",
            f"{where} received last stable offset {mark.last_stable} above high watermark"
            f" {mark.high_watermark}",
        )
