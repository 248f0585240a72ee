"""Keyed logs, and a whole cleaning of one, for the compaction tests."""

from collections.abc import Iterable
from typing import NamedTuple

from storage_kit import append

from tidelog.core.record.control import ControlType
from tidelog.core.record.decoder import decode
from tidelog.core.record.encoder import NO_PRODUCER, Producer, encode_batch, encode_marker
from tidelog.core.record.record import Header, Record
from tidelog.core.record.record_batch import RecordBatch, batches, parse
from tidelog.core.storage.cleaning.cleaner import clean
from tidelog.core.storage.cleaning.dirtiness import Dirtiness, dirtiness, plan_cleaning
from tidelog.core.storage.cleaning.plan import CleanedGroup, CleaningPlan, CleaningResult
from tidelog.core.storage.disk import Disk
from tidelog.core.storage.log import Log
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.segment_swap import is_ready

COMPACT = LogConfig(
    segment_bytes=600,
    index_interval_bytes=150,
    cleanup_compact=True,
    cleanup_delete=False,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
    retention_ms=-1,
)
"""Small segments, which are cleaned as soon as anything is dirty."""
MAP_BYTES = 1 << 16
HEADERS = (Header("trace", b"7"),)


class Seen(NamedTuple):
    """A record, as a reader sees it."""

    offset: int
    key: str
    value: str | None
    timestamp: int


def put(
    log: Log,
    *pairs: tuple[str | None, str | None],
    timestamp: int = 1000,
    attributes: int = 0,
    producer: Producer = NO_PRODUCER,
    epoch: int = 0,
) -> None:
    """Return one batch of these keys and values; a value of None is a tombstone."""
    records = [
        Record(
            None if key is None else key.encode(),
            None if value is None else value.encode(),
            timestamp + number,
            HEADERS,
        )
        for number, (key, value) in enumerate(pairs)
    ]
    made = parse(encode_batch(records, attributes=attributes, producer=producer))
    made.assign(log.log_end_offset, epoch)
    append(log, [made])


def put_marker(log: Log, kind: ControlType, producer: Producer, timestamp: int = 1000) -> None:
    made = parse(encode_marker(kind, producer, 0, timestamp))
    made.assign(log.log_end_offset, 0)
    append(log, [made])


def close_segment(log: Log) -> None:
    """Start the next segment: only closed ones are cleaned."""
    base = log.segments.active.base_offset
    while log.segments.active.base_offset == base:
        put(log, ("filler", "x" * 100))


def all_batches(log: Log) -> list[RecordBatch]:
    """Read all batches as a follower does, from the end of each batch."""
    found: list[RecordBatch] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read_bytes(log.read(offset, 400))
        if not data:
            break
        for one in batches(data):
            assert one.crc_ok()
            assert one.last_offset >= offset
            found.append(one)
            offset = one.next_offset
    assert offset == log.log_end_offset, "a reader comes to the end"
    return found


def seen(log: Log) -> list[Seen]:
    """Return all records except control records."""
    found = []
    for one in all_batches(log):
        for record in decode(one):
            if record.control is None:
                assert record.key is not None
                assert record.headers == HEADERS
                value = None if record.value is None else record.value.decode()
                key = record.key.decode()
                found.append(Seen(record.offset, key, value, record.timestamp))
    return found


def pairs(log: Log) -> list[tuple[str, str | None]]:
    """Return keys and values without the filler records."""
    return [(one.key, one.value) for one in seen(log) if one.key != "filler"]


def latest(found: Iterable[Seen]) -> dict[str, Seen]:
    """Return the last value of each key."""
    return {one.key: one for one in found}


def plan_of(
    log: Log,
    first_dirty: int | None = None,
    *,
    last_stable: int | None = None,
    now_ms: int = 5000,
    map_bytes: int = MAP_BYTES,
) -> CleaningPlan | None:
    found = look(log, first_dirty, last_stable=last_stable, now_ms=now_ms)
    return None if found is None else plan_cleaning(log, found, map_bytes, now_ms, now_ms)


def look(
    log: Log, first_dirty: int | None = None, *, last_stable: int | None = None, now_ms: int = 5000
) -> Dirtiness | None:
    log.flush()  # as after a roll
    stable = log.log_end_offset if last_stable is None else last_stable
    return dirtiness(log, first_dirty, stable, now_ms)


def swap(disk: Disk, log: Log, group: CleanedGroup, now_ms: int = 5000) -> None:
    by_base = {segment.base_offset: segment for segment in log.segments}
    replaced = [by_base[base] for base in group.base_offsets]
    assert is_ready(disk, replaced, group.size)
    log.replace_segments(replaced, now_ms)


def compact(
    disk: Disk,
    log: Log,
    first_dirty: int | None = None,
    *,
    last_stable: int | None = None,
    now_ms: int = 5000,
    map_bytes: int = MAP_BYTES,
) -> CleaningResult:
    """Run one cleaning and swap in its groups."""
    plan = plan_of(log, first_dirty, last_stable=last_stable, now_ms=now_ms, map_bytes=map_bytes)
    assert plan is not None, "there is something to clean"
    for told in clean(disk, plan):
        if isinstance(told, CleanedGroup):
            swap(disk, log, told, now_ms)
        else:
            assert isinstance(told, CleaningResult), told
            return told
    raise AssertionError("a cleaning tells its end")
