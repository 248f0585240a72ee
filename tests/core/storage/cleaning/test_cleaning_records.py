"""Compaction keeps the last record of each key, with its offset and timestamp."""

from dataclasses import replace

import pytest
from cleaning_kit import (
    COMPACT,
    Seen,
    all_batches,
    close_segment,
    compact,
    latest,
    pairs,
    plan_of,
    put,
    seen,
    swap,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_kit import names, new_log, reopen

from tidelog.core.record.compression import Codec
from tidelog.core.record.encoder import Producer
from tidelog.core.record.record_batch import HEADER_SIZE, parse
from tidelog.core.storage.cleaning.cleaner import clean
from tidelog.core.storage.cleaning.plan import CleanedGroup
from tidelog.core.storage.layout import file_name
from tidelog.core.storage.log import Log
from tidelog.lab.memory_disk import MemoryDisk

CODECS = list(Codec)


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def log(disk: MemoryDisk) -> Log:
    return new_log(disk, COMPACT)


@pytest.mark.parametrize("codec", CODECS)
def test_last_value_of_a_key_keeps_its_offset(disk: MemoryDisk, log: Log, codec: Codec) -> None:
    put(log, ("a", "1"), ("b", "1"), ("a", "2"), timestamp=2000, attributes=codec)
    put(log, ("b", "2"), ("c", "1"), timestamp=3000, attributes=codec)
    close_segment(log)
    result = compact(disk, log)
    kept = [one for one in seen(log) if one.key != "filler"]
    assert kept == [Seen(2, "a", "2", 2002), Seen(3, "b", "2", 3000), Seen(4, "c", "1", 3001)]
    assert {one.codec for one in all_batches(log)[:2]} == {codec}
    assert result.end_offset == log.segments.active.base_offset
    assert result.records_kept < result.records_read


def test_batches_keep_offsets_sequences_and_epochs(disk: MemoryDisk, log: Log) -> None:
    put(log, ("a", "1"), ("b", "1"), ("a", "2"), producer=Producer(7, 1, 30), epoch=2)
    put(log, ("a", "3"), ("d", "1"), producer=Producer(7, 1, 33), epoch=2)
    close_segment(log)
    compact(disk, log)
    first, second = all_batches(log)[:2]
    assert (first.base_offset, first.last_offset, first.count) == (0, 2, 1)
    assert (first.producer_id, first.producer_epoch, first.base_sequence) == (7, 1, 30)
    assert (first.last_sequence, first.leader_epoch) == (32, 2)
    assert (second.base_offset, second.last_offset, second.count) == (3, 4, 2)


def test_last_batch_of_a_producer_keeps_its_header(disk: MemoryDisk, log: Log) -> None:
    """Otherwise a retry of the batch would be appended."""
    put(log, ("a", "1"), producer=Producer(7, 0, 0))
    put(log, ("a", "2"), ("a", "3"), producer=Producer(7, 0, 1), timestamp=4000)
    put(log, ("a", "4"), producer=Producer(8, 0, 0))
    put(log, ("a", "5"))
    close_segment(log)
    compact(disk, log)
    empty = [one for one in all_batches(log) if one.count == 0 and one.producer_id >= 0]
    assert [(one.producer_id, one.last_offset, one.last_sequence) for one in empty] == [
        (7, 2, 2),
        (8, 3, 0),
    ]
    assert [(one.size, one.base_timestamp, one.max_timestamp) for one in empty] == [
        (HEADER_SIZE, -1, 4001),
        (HEADER_SIZE, -1, 1000),
    ]
    again, report = reopen(disk, COMPACT)
    assert not report.cuts
    assert again.producers.producers[7].last_sequence == 2
    put(log, ("z", "1"), producer=Producer(7, 0, 3))
    close_segment(log)
    compact(disk, log)
    left = [one.last_offset for one in all_batches(log) if one.count == 0 and one.producer_id >= 0]
    assert left == [3], "producer 7 wrote since: its old header goes"


def test_tombstones_are_removed_after_their_retention_time(disk: MemoryDisk, log: Log) -> None:
    put(log, ("a", "1"), ("b", "1"), timestamp=2000)
    put(log, ("a", None), ("c", "1"), timestamp=3000)
    close_segment(log)
    compact(disk, log, now_ms=5000)
    kept = [one for one in seen(log) if one.key != "filler"]
    assert kept == [Seen(1, "b", "1", 2001), Seen(2, "a", None, 3000), Seen(3, "c", "1", 3001)]
    marked = [one for one in all_batches(log) if one.has_delete_horizon]
    assert [(one.base_offset, one.base_timestamp) for one in marked] == [(2, 6000)]
    close_segment(log)
    compact(disk, log, now_ms=5999)
    assert ("a", None) in pairs(log), "its time is not up"
    marked = [one for one in all_batches(log) if one.has_delete_horizon]
    assert [one.base_timestamp for one in marked] == [6000], "the time counts from the first"
    close_segment(log)
    compact(disk, log, now_ms=6000)
    assert pairs(log) == [("b", "1"), ("c", "1")]
    assert Seen(3, "c", "1", 3001) in seen(log), "what was beside it keeps its time"


def test_a_key_whose_last_record_is_a_tombstone_is_removed(disk: MemoryDisk, log: Log) -> None:
    put(log, ("a", None))
    put(log, ("a", "1"))
    close_segment(log)
    compact(disk, log)
    assert pairs(log) == [("a", "1")]


def test_append_time_of_a_batch_stays(disk: MemoryDisk, log: Log) -> None:
    put(log, ("a", "1"), ("a", None), ("b", "1"), timestamp=2000, attributes=0x08)
    close_segment(log)
    compact(disk, log)
    kept = [one for one in seen(log) if one.key != "filler"]
    assert kept == [Seen(1, "a", None, 2002), Seen(2, "b", "1", 2002)]


def test_records_without_a_key_are_removed(disk: MemoryDisk, log: Log) -> None:
    """Records without a key are from before the topic was compacted."""
    put(log, (None, "1"), ("a", "1"))
    close_segment(log)
    compact(disk, log)
    assert pairs(log) == [("a", "1")]


def test_the_end_of_a_segment_is_not_lost_with_its_last_record(disk: MemoryDisk, log: Log) -> None:
    close_segment(log)
    close_segment(log)
    put(log, ("filler", "new"))
    close_segment(log)
    ends = log.segments.active.base_offset
    compact(disk, log)
    assert [one.next_offset for one in all_batches(log) if one.next_offset <= ends][-1] == ends
    again, _ = reopen(disk, COMPACT)
    assert again.log_end_offset == log.log_end_offset


def test_small_segments_are_merged(disk: MemoryDisk, log: Log) -> None:
    for number in range(6):
        put(log, (f"k{number}", "v"))
        close_segment(log)
    assert len(log.segments) == 7
    compact(disk, log)
    assert len(log.segments) == 7, "as large as one may be: nothing is put together yet"
    put(log, ("k0", "w"))
    close_segment(log)
    compact(disk, log, log.segments.active.base_offset - 7)
    assert len(log.segments) < 5
    assert pairs(log) == [*((f"k{n}", "v") for n in range(1, 6)), ("k0", "w")]
    bases = [name[:20] for name in names(disk) if name.endswith(".log")]
    assert bases == [f"{segment.base_offset:020d}" for segment in log.segments]


def test_unchanged_segment_is_not_replaced(disk: MemoryDisk, log: Log) -> None:
    for number in range(9):
        put(log, (f"key{number}", "v" * 80))
    first = log.segments.first
    compact(disk, log)
    assert log.segments.first is first
    assert not [name for name in names(disk) if name.endswith((".cleaned", ".deleted"))]


def test_a_full_map_ends_the_cleaning_early(disk: MemoryDisk, log: Log) -> None:
    for number in range(60):
        put(log, (f"k{number % 20}", str(number)))
    before = seen(log)
    end, first_dirty, rounds = log.segments.active.base_offset, 0, 0
    while first_dirty < end:
        result = compact(disk, log, first_dirty, map_bytes=24 * 12)
        assert result.end_offset > first_dirty, "it gets somewhere"
        first_dirty = result.end_offset
        rounds += 1
        assert latest(seen(log)) == latest(before)
    assert rounds > 1
    below = [one.key for one in seen(log) if one.offset < end]
    assert len(below) == len(set(below))


def test_batch_larger_than_the_map_is_cleaned(disk: MemoryDisk, log: Log) -> None:
    put(log, *((f"k{number}", "v") for number in range(100)))
    put(log, ("k5", "w"))
    close_segment(log)
    result = compact(disk, log, map_bytes=24)
    assert result.end_offset == 101, "the next key has no room"
    assert ("k5", "v") not in pairs(log)


def test_times_are_found_past_batches_without_records(disk: MemoryDisk, log: Log) -> None:
    put(log, ("a", "1"), timestamp=9000, producer=Producer(7, 0, 0))
    put(log, ("b", "1"), timestamp=3000)
    put(log, ("a", "2"), timestamp=2000)
    close_segment(log)
    assert log.max_timestamp() == (9000, 0, 0)
    compact(disk, log)
    assert all_batches(log)[0].count == 0
    assert log.max_timestamp() == (3000, 1, 0)
    assert log.offset_for_timestamp(2500) == (3000, 1, 0)
    assert log.offset_for_timestamp(5000) is None
    assert reopen(disk, COMPACT)[0].max_timestamp() == (3000, 1, 0)


def test_reads_in_a_gap_continue_with_the_next_batch(disk: MemoryDisk, log: Log) -> None:
    for number in range(30):
        put(log, (f"k{number % 3}", str(number)))
    compact(disk, log)
    left = [batch for batch in all_batches(log) if batch.count]
    for offset in range(log.log_end_offset):
        region = log.read(offset, 1)
        assert region.length
        found = parse(log.read_bytes(region))
        assert found.last_offset >= offset
        following = [batch.base_offset for batch in left if batch.last_offset >= offset]
        assert found.base_offset <= following[0]
        # Not above what may be read: then there is nothing, and that is no error.
        assert log.read(offset, 1 << 20, upto=offset).length == 0


def test_damaged_batches_are_not_copied(disk: MemoryDisk, log: Log) -> None:
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    close_segment(log)
    disk.files["orders-0/00000000000000000000.log"][70] ^= 1
    plan = plan_of(log)
    assert plan is not None
    path = "orders-0/00000000000000000000.log"
    assert list(clean(disk, plan)) == [f"{path}: checksum differs at byte 0"]
    assert not [name for name in names(disk) if name.endswith(".cleaned")]


keys = st.sampled_from(["a", "b", "c", "a key that is longer than fifteen bytes", ""])
values = st.sampled_from(["1", "2", None])
writes = st.lists(st.lists(st.tuples(keys, values), min_size=1, max_size=4), max_size=30)


@settings(max_examples=60, deadline=None)
@given(writes, st.sampled_from(CODECS), st.integers(0, 4), st.integers(24, 1000))
def test_cleaning_keeps_the_last_record_of_each_key(
    history: list[list[tuple[str, str | None]]], codec: Codec, rounds: int, map_bytes: int
) -> None:
    """For any records and any number of cleanings: each key's last record stays at its offset, and
    only tombstones and superseded records are removed."""
    disk = MemoryDisk()
    log = new_log(disk, replace(COMPACT, delete_retention_ms=2**40))
    for batch in history:
        put(log, *batch, attributes=codec)
    before = seen(log)
    first_dirty = 0
    for _ in range(rounds):
        if plan_of(log, first_dirty) is None:
            break
        first_dirty = compact(disk, log, first_dirty, map_bytes=map_bytes).end_offset
    after = seen(log)
    assert set(after) <= set(before)
    assert latest(after) == latest(before)
    again, report = reopen(disk, COMPACT)
    assert not report.cuts
    assert seen(again) == after
    clean_keys = [one.key for one in after if one.offset < first_dirty]
    assert len(clean_keys) == len(set(clean_keys))


def test_a_failed_cleaning_keeps_its_finished_groups(disk: MemoryDisk, log: Log) -> None:
    """The finished groups may be in use: deleting their files could take the log offline.

    It could also leave a segment without its aborted transactions.
    """
    for number in range(30):
        put(log, (f"k{number % 3}", "x" * 100))
    close_segment(log)
    plan = plan_of(log)
    assert plan is not None
    cleaning = clean(disk, plan)
    first = next(cleaning)
    assert isinstance(first, CleanedGroup)
    ready = {name for name in disk.list_dir("orders-0") if name.endswith(".cleaned")}
    damaged = f"orders-0/{file_name(plan.segments[-1].base_offset, '.log')}"
    disk.files[damaged][100] ^= 1
    groups, last = [first], ""
    for told in cleaning:
        if isinstance(told, CleanedGroup):
            groups.append(told)
        else:
            last = str(told)
    assert last.endswith("checksum differs at byte 0")
    left = {name for name in disk.list_dir("orders-0") if name.endswith(".cleaned")}
    assert ready <= left
    assert {name[:20] for name in left} == {f"{group.base_offsets[0]:020d}" for group in groups}
    for group in groups:
        swap(disk, log, group)
