"""Offset index and time index: entries, look-up, files with a preallocated tail."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.storage.segment.indexes import InvalidIndex, OffsetIndex, TimeIndex
from tidelog.lab.memory_disk import MemoryDisk

BASE = 100


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def offset_index(disk: MemoryDisk, *entries: tuple[int, int]) -> OffsetIndex:
    index = OffsetIndex(disk, "f.index", BASE)
    for entry in entries:
        index.append(*entry)
    index.write_out()
    return index


def time_index(disk: MemoryDisk, *entries: tuple[int, int]) -> TimeIndex:
    index = TimeIndex(disk, "f.timeindex", BASE)
    for entry in entries:
        index.append(*entry)
    index.write_out()
    return index


def test_offset_file_holds_distance_and_position(disk: MemoryDisk) -> None:
    offset_index(disk, (104, 500), (130, 900))
    assert disk.files["f.index"] == pack(">iiii", 4, 500, 30, 900)


def test_time_file_holds_timestamp_and_distance(disk: MemoryDisk) -> None:
    time_index(disk, (1_700_000_000_000, 104), (1_700_000_000_500, 130))
    assert disk.files["f.timeindex"] == pack(">qiqi", 1_700_000_000_000, 4, 1_700_000_000_500, 30)


def test_an_index_without_entries_has_an_empty_file(disk: MemoryDisk) -> None:
    offset_index(disk)
    time_index(disk)
    assert disk.files == {"f.index": b"", "f.timeindex": b""}


def test_entries_are_written_once(disk: MemoryDisk) -> None:
    index = offset_index(disk, (104, 500))
    index.append(130, 900)
    assert disk.size("f.index") == 8
    index.write_out()
    index.write_out()
    assert disk.size("f.index") == 16


@pytest.mark.parametrize(
    ("offset", "position"),
    [(100, 0), (103, 0), (104, 500), (129, 500), (130, 900), (10**6, 900)],
)
def test_offset_lookup_finds_the_last_entry_at_or_below(
    disk: MemoryDisk, offset: int, position: int
) -> None:
    assert offset_index(disk, (104, 500), (130, 900)).floor_by_offset(offset) == position


@pytest.mark.parametrize(
    ("limit", "position"), [(0, 0), (499, 0), (500, 500), (899, 500), (900, 900), (5000, 900)]
)
def test_position_lookup(disk: MemoryDisk, limit: int, position: int) -> None:
    assert offset_index(disk, (104, 500), (130, 900)).floor_by_position(limit) == position


@pytest.mark.parametrize(
    ("timestamp", "offset"), [(0, 100), (10, 100), (11, 104), (50, 104), (51, 130)]
)
def test_time_lookup_returns_the_entry_at_or_below(
    disk: MemoryDisk, timestamp: int, offset: int
) -> None:
    assert time_index(disk, (10, 104), (50, 130)).floor(timestamp) == offset


def test_timestamps_must_rise_to_make_an_entry(disk: MemoryDisk) -> None:
    index = time_index(disk, (10, 104), (10, 110), (9, 120), (11, 130), (-1, 140))
    assert index.entries() == [(10, 104), (11, 130)]
    assert index.last() == (11, 130)
    assert time_index(disk, (-1, 104)).last() == (-1, BASE)


@pytest.mark.parametrize(
    ("end", "left"),
    [(100, 0), (104, 0), (105, 1), (130, 1), (131, 2)],
)
def test_truncation_forgets_entries_at_or_above_the_end(
    disk: MemoryDisk, end: int, left: int
) -> None:
    offsets = offset_index(disk, (104, 500), (130, 900))
    times = time_index(disk, (10, 104), (50, 130))
    offsets.truncate_to(end)
    times.truncate_to(end)
    assert (len(offsets), len(times)) == (left, left)
    assert (disk.size("f.index"), disk.size("f.timeindex")) == (8 * left, 12 * left)


def test_truncation_of_entries_that_were_never_written(disk: MemoryDisk) -> None:
    index = offset_index(disk, (104, 500))
    index.append(130, 900)
    index.truncate_to(120)
    index.append(125, 700)
    index.write_out()
    assert disk.files["f.index"] == pack(">iiii", 4, 500, 25, 700)


def test_zeros_behind_the_entries_are_space_that_kafka_preallocated(disk: MemoryDisk) -> None:
    disk.write("f.index", pack(">ii", 4, 500) + bytes(4088))
    index = OffsetIndex(disk, "f.index", BASE)
    index.load(1000)
    assert index.entries() == [(104, 500)]
    assert disk.size("f.index") == 8
    disk.write("f.timeindex", pack(">qi", 10, 4) + bytes(4080))
    times = TimeIndex(disk, "f.timeindex", BASE)
    times.load()
    assert times.entries() == [(10, 104)]
    assert disk.size("f.timeindex") == 12


def test_record_with_timestamp_0_is_an_entry(disk: MemoryDisk) -> None:
    disk.write("f.timeindex", pack(">qi", 0, 0))
    index = TimeIndex(disk, "f.timeindex", BASE)
    index.load()
    assert index.entries() == [(0, BASE)]


@pytest.mark.parametrize(
    "data",
    [
        b"123",
        pack(">iiii", 4, 500, 4, 900),
        pack(">iiii", 4, 500, 5, 500),
        pack(">ii", 4, 1000),
        pack(">ii", -4, 500),
    ],
    ids=["torn", "same offset", "same position", "beyond the log", "below the base"],
)
def test_offset_index_that_cannot_be_right(disk: MemoryDisk, data: bytes) -> None:
    disk.write("f.index", data)
    with pytest.raises(InvalidIndex):
        OffsetIndex(disk, "f.index", BASE).load(1000)


@pytest.mark.parametrize(
    "data",
    [b"123", pack(">qiqi", 10, 4, 10, 5), pack(">qiqi", 10, 4, 11, 4)],
    ids=["torn", "same timestamp", "same offset"],
)
def test_time_index_that_cannot_be_right(disk: MemoryDisk, data: bytes) -> None:
    disk.write("f.timeindex", data)
    with pytest.raises(InvalidIndex):
        TimeIndex(disk, "f.timeindex", BASE).load()


def rising(numbers: st.SearchStrategy[int]) -> st.SearchStrategy[list[int]]:
    return st.sets(numbers, max_size=40).map(sorted)


@given(rising(st.integers(0, 2**31 - 1)), rising(st.integers(1, 2**31 - 1)), st.integers(0, 2**31))
def test_written_entries_are_read_and_found(
    relative: list[int], positions: list[int], wanted: int
) -> None:
    disk = MemoryDisk()
    entries = [(BASE + r, p) for r, p in zip(relative, positions, strict=False)]
    offset_index(disk, *entries)
    index = OffsetIndex(disk, "f.index", BASE)
    index.load(2**31)
    assert index.entries() == entries
    below = [position for offset, position in entries if offset <= BASE + wanted]
    assert index.floor_by_offset(BASE + wanted) == (below[-1] if below else 0)
