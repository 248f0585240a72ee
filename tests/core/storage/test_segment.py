"""One segment: append, search, truncate, indexes."""

from bisect import bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_kit import batch

from tidelog.core.lineage.transaction_index import AbortedTransaction
from tidelog.core.record.record_batch import RecordBatch, batches
from tidelog.core.storage import layout
from tidelog.core.storage.disk import DiskError
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.segment.batch_scan import InvalidBatch, spans, walk, whole_batches
from tidelog.core.storage.segment.segment import Segment
from tidelog.core.storage.segment.segments import Segments
from tidelog.lab.memory_disk import MemoryDisk

CONFIG = LogConfig(index_interval_bytes=200)


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_dir("p")
    return disk


def segment_of(disk: MemoryDisk, *made: RecordBatch, base: int = 0) -> Segment:
    segment = Segment.create(disk, "p", base, CONFIG, 0)
    for one in made:
        segment.append([one], one.size)
    return segment


def ten(disk: MemoryDisk) -> Segment:
    """A segment of ten batches of two records, 0-1, 2-3, … with rising timestamps."""
    return segment_of(disk, *(batch(n * 2, 2, timestamp=1000 + n * 10) for n in range(10)))


def read_offsets(disk: MemoryDisk, segment: Segment, start: int, max_bytes: int) -> list[int]:
    region = segment.read(start, segment.size, max_bytes)
    return [b.base_offset for b in batches(disk.read(*region))]


def test_batches_lie_back_to_back(disk: MemoryDisk) -> None:
    segment = ten(disk)
    found = list(segment.spans())
    assert [span.base_offset for span in found] == list(range(0, 20, 2))
    assert [span.position for span in found] == [span.size * n for n, span in enumerate(found)]
    assert found[-1].position + found[-1].size == segment.size == disk.size(segment.path)
    assert segment.next_offset() == 20


def test_one_gather_write_for_many_batches(disk: MemoryDisk) -> None:
    one = segment_of(disk, base=50)
    made = [batch(50 + n) for n in range(5)]
    one.append(made, sum(b.size for b in made))
    assert disk.files[one.path] == b"".join(b.view() for b in made)


@pytest.mark.parametrize("reopened", [False, True], ids=["tail in memory", "by index and scan"])
def test_locate_finds_the_batch_that_holds_an_offset(disk: MemoryDisk, reopened: bool) -> None:
    segment = ten(disk)
    size = segment.span_at(0).size
    if reopened:
        segment.finish()
        segment = Segment.open(disk, "p", 0, CONFIG, 0)
    for offset in range(20):
        assert segment.locate(offset) == offset // 2 * size
    assert segment.locate(20) == segment.size


def test_locate_skips_gaps(disk: MemoryDisk) -> None:
    segment = segment_of(disk, batch(0), batch(7), batch(9))
    positions = [span.position for span in segment.spans()]
    assert [segment.locate(n) for n in (0, 1, 7, 8, 9)] == [positions[n] for n in (0, 1, 1, 2, 2)]


@pytest.mark.parametrize("reopened", [False, True], ids=["tail in memory", "by index and scan"])
@pytest.mark.parametrize("max_batches", [0.5, 1, 2.9, 3, 100])
def test_read_returns_whole_batches_and_at_least_one(
    disk: MemoryDisk, reopened: bool, max_batches: float
) -> None:
    segment = ten(disk)
    size = segment.span_at(0).size
    if reopened:
        segment.finish()
        segment = Segment.open(disk, "p", 0, CONFIG, 0)
    expected = [4, 6, 8, 10, 12, 14, 16, 18][: max(1, int(max_batches))]
    assert read_offsets(disk, segment, 2 * size, int(max_batches * size)) == expected


def test_read_up_to_a_position(disk: MemoryDisk) -> None:
    segment = ten(disk)
    size = segment.span_at(0).size
    assert segment.read(size, 3 * size, 10**6)[1:] == (size, 2 * size)
    assert segment.read(size, size, 10**6).length == 0


def test_index_entries_follow_kafkas_rule(disk: MemoryDisk) -> None:
    """An entry is added if more than the interval was appended since the last one."""
    segment = ten(disk)
    size = segment.span_at(0).size
    assert 2 * size < 200 < 3 * size
    expected = [(7, 3 * size), (13, 6 * size), (19, 9 * size)]
    assert segment.offset_index.entries() == expected
    assert segment.time_index.entries() == [(1031, 7), (1061, 13), (1091, 19)]


def test_finish_stores_the_largest_timestamp(disk: MemoryDisk) -> None:
    segment = segment_of(
        disk, batch(0, timestamp=50), batch(1, timestamp=70), batch(2, timestamp=60)
    )
    assert segment.time_index.entries() == []
    segment.finish()
    assert segment.time_index.entries() == [(70, 1)]
    assert disk.size(segment.file(layout.TIME_INDEX)) == 12
    reopened = Segment.open(disk, "p", 0, CONFIG, 0)
    assert (reopened.max_timestamp, reopened.offset_of_max_timestamp) == (70, 1)
    assert reopened.first_timestamp == 50


def test_an_empty_segment_has_no_timestamps(disk: MemoryDisk) -> None:
    segment = segment_of(disk, base=5)
    assert (segment.max_timestamp, segment.first_timestamp) == (-1, None)
    assert segment.next_offset() == 5


@pytest.mark.parametrize("reopened", [False, True], ids=["tail in memory", "by index and scan"])
@pytest.mark.parametrize(
    ("end", "actual"), [(0, 0), (4, 4), (5, 4), (12, 12), (19, 18), (20, 20), (25, 25)]
)
def test_truncation_never_splits_a_batch(
    disk: MemoryDisk, reopened: bool, end: int, actual: int
) -> None:
    segment = ten(disk)
    size = segment.span_at(0).size
    if reopened:
        segment.finish()
        segment = Segment.open(disk, "p", 0, CONFIG, 0)
    assert segment.truncate_to(end) == actual
    kept = min(10, actual // 2)
    assert segment.size == disk.size(segment.path) == kept * size
    assert segment.next_offset() == kept * 2
    assert segment.max_timestamp == (1000 + (kept - 1) * 10 + 1 if kept else -1)
    assert all(offset < actual for offset, _ in segment.offset_index.entries())
    segment.append([batch(actual, 2, timestamp=5)], size)
    assert segment.locate(actual + 1) == kept * size
    assert segment.first_timestamp == (1001 if kept else 6)


def test_truncation_to_a_gap_keeps_the_offset(disk: MemoryDisk) -> None:
    """Compaction removed records 1 to 6; the log may end at an offset among them."""
    segment = segment_of(disk, batch(0), batch(7))
    assert segment.truncate_to(4) == 4
    assert segment.next_offset() == 1


def test_truncation_cuts_aborted_transactions(disk: MemoryDisk) -> None:
    segment = ten(disk)
    first, second = AbortedTransaction(1, 0, 5, 6), AbortedTransaction(2, 4, 9, 10)
    segment.add_aborted(first)
    segment.add_aborted(second)
    segment.truncate_to(8)
    assert segment.aborted() == [first]
    assert Segment.open(disk, "p", 0, CONFIG, 0).aborted() == [first]
    segment.truncate_to(8)
    segment.clear_aborted()
    assert segment.aborted() == []
    assert not disk.exists(segment.file(layout.TXN_INDEX))


def test_file_that_another_process_extended_is_an_error(disk: MemoryDisk) -> None:
    segment = ten(disk)
    disk.append(segment.path, [b"intruder"])
    with pytest.raises(DiskError, match="instead of"):
        segment.append([batch(20)], batch(20).size)


@pytest.mark.parametrize("kind", [layout.OFFSET_INDEX, layout.TIME_INDEX])
@pytest.mark.parametrize("damage", ["missing", "torn"])
def test_missing_or_invalid_indexes_are_rebuilt(disk: MemoryDisk, kind: str, damage: str) -> None:
    segment = ten(disk)
    segment.finish()
    good = {k: bytes(disk.files[segment.file(k)]) for k in (layout.OFFSET_INDEX, layout.TIME_INDEX)}
    if damage == "missing":
        disk.delete(segment.file(kind))
    else:
        disk.append(segment.file(kind), [b"x"])
    reopened = Segment.open(disk, "p", 0, CONFIG, 0)
    assert not reopened.load()
    assert reopened.load()
    assert {k: disk.files[segment.file(k)] for k in good} == good


def test_an_opened_segment_can_be_appended_to(disk: MemoryDisk) -> None:
    segment = ten(disk)
    segment.finish()
    reopened = Segment.open(disk, "p", 0, CONFIG, 0)
    reopened.append([batch(20, 2), batch(22, 2)], 2 * segment.span_at(0).size)
    assert [span.base_offset for span in reopened.spans()] == list(range(0, 24, 2))
    assert reopened.locate(21) == segment.size
    assert reopened.next_offset() == 24


def test_old_batches_leave_the_tail_and_are_found_by_index(disk: MemoryDisk) -> None:
    made = [batch(n) for n in range(1500)]
    segment = segment_of(disk)
    for one in made:
        segment.append([one], one.size)
    starts = [span.position for span in segment.spans()]
    for offset in (0, 1, 500, 1023, 1024, 1400, 1499):
        assert segment.locate(offset) == starts[offset]


class ReservingDisk(MemoryDisk):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []
        self.truncated: list[int] = []

    def truncate(self, path: str, size: int) -> None:
        super().truncate(path, size)
        self.truncated.append(size)

    def preallocate(self, path: str, size: int) -> None:
        super().preallocate(path, size)
        self.asked.append(size)


def test_space_is_reserved_only_for_segments_that_grow() -> None:
    disk = ReservingDisk()
    disk.make_dir("p")
    asked = disk.asked
    segment = segment_of(disk)
    large = [batch(n, size=30_000) for n in range(20)]
    for one in large[:2]:
        segment.append([one], one.size)
    assert asked == []
    for one in large[2:]:
        segment.append([one], one.size)
    assert asked == sorted(asked)
    assert len(asked) <= 4
    assert segment.size <= asked[-1] <= 2 * segment.size + 30_100
    segment.finish()
    assert disk.size(segment.path) == segment.size


def test_preallocation_reserves_a_segment_and_releases_the_rest() -> None:
    disk = ReservingDisk()
    disk.make_dir("p")
    config = LogConfig(preallocate=True, segment_bytes=1 << 20)
    segment = Segment.create(disk, "p", 0, config, 0)
    one = batch(0, size=100)
    segment.append([one], one.size)
    assert disk.asked == [1 << 20]
    segment.finish()
    assert disk.truncated == [one.size]


@pytest.mark.parametrize("damage", [b"\0" * 61, b"short"], ids=["zeros", "partial header"])
def test_scans_of_invalid_bytes_raise(disk: MemoryDisk, damage: bytes) -> None:
    segment = ten(disk)
    end = segment.size + len(damage)
    disk.append(segment.path, [damage])
    with pytest.raises(DiskError):
        list(spans(disk, segment.path, 0, end))
    with pytest.raises(DiskError):
        list(walk(disk, segment.path, 0, end))
    with pytest.raises(InvalidBatch) as invalid:
        list(whole_batches(disk, segment.path, 0, end, check_crc=True))
    assert invalid.value.position == segment.size


def test_whole_batches_larger_than_a_chunk(disk: MemoryDisk) -> None:
    made = [batch(0), batch(1, size=3_000_000), batch(2), batch(3, size=1_048_400), batch(4)]
    segment = segment_of(disk, *made)
    found = whole_batches(disk, segment.path, 0, segment.size, check_crc=True)
    assert [bytes(b.view()) for b in found] == [bytes(b.view()) for b in made]


def test_segments_are_found_by_offset(disk: MemoryDisk) -> None:
    made = [segment_of(disk, base=base) for base in (10, 20, 30)]
    segments = Segments(made[:1])
    for segment in made[1:]:
        segments.add(segment)
    assert (len(segments), segments.first, segments.active) == (3, made[0], made[2])
    assert list(segments.from_offset(5)) == made
    assert list(segments.from_offset(25)) == made[1:]
    assert list(segments.from_offset(99)) == made[2:]
    assert [segments.end_of(segment) for segment in made] == [20, 30, None]
    assert segments.remove_below(29) == made[:1]
    assert segments.remove_above(20) == made[2:]
    assert segments.remove_above(5) == []
    assert segments.remove_below(10**6) == []
    assert list(segments) == made[1:2]


sizes = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(0, 200)), min_size=1)


@settings(max_examples=60, deadline=None)
@given(sizes, st.integers(0, 400), st.integers(0, 3000), st.booleans())
def test_reads_agree_with_a_naive_scan(
    shapes: list[tuple[int, int, int]], interval: int, max_bytes: int, reopened: bool
) -> None:
    disk = MemoryDisk()
    disk.make_dir("p")
    config = LogConfig(index_interval_bytes=interval)
    segment = Segment.create(disk, "p", 0, config, 0)
    ends, starts, offset = [], [], 0
    for count, gap, size in shapes:
        one = batch(offset, count, size=size)
        starts.append(segment.size)
        segment.append([one], one.size)
        ends.append(one.last_offset)
        offset = one.next_offset + gap
    starts.append(segment.size)
    if reopened:
        segment.finish()
        segment = Segment.open(disk, "p", 0, config, 0)
    for wanted in range(offset + 1):
        at = sum(end < wanted for end in ends)
        assert segment.locate(wanted) == starts[at]
        if at < len(ends):
            stop = starts[bisect_right(starts, starts[at] + max_bytes) - 1]
            region = segment.read(starts[at], segment.size, max_bytes)
            assert region.length == max(stop, starts[at + 1]) - starts[at]
