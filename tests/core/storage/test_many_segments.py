"""Searches in a log of many segments read few of them, with the same result as reading all."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_kit import append, batch, fill, new_log, retention_point, truncate

from tidelog.core.record.decoder import decode
from tidelog.core.record.record_batch import batches
from tidelog.core.storage.log import Log
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.segment.segment import Segment
from tidelog.core.types import Offset
from tidelog.lab.memory_disk import MemoryDisk

ONE_BATCH = LogConfig(segment_bytes=100, index_interval_bytes=1, retention_ms=-1)
MANY = 300
FEW = 12


class Looks:
    """Counts the calls of each method of a segment."""

    def __init__(self) -> None:
        self.times = 0
        self.places = 0


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    counted = Looks()
    newest, locate = vars(Segment)["max_timestamp"], Segment.locate

    def count_time(segment: Segment) -> int:
        counted.times += 1
        return int(newest.fget(segment))

    def count_place(segment: Segment, offset: Offset) -> int:
        counted.places += 1
        return locate(segment, offset)

    monkeypatch.setattr(Segment, "max_timestamp", property(count_time))
    monkeypatch.setattr(Segment, "locate", count_place)
    return counted


@pytest.fixture
def log() -> Log:
    log = new_log(MemoryDisk(), ONE_BATCH)
    fill(log, MANY)
    assert len(log.segments) == MANY
    return log


@pytest.mark.parametrize("offset", [0, MANY // 2, MANY - 1])
def test_fetch_reads_one_segment(log: Log, looks: Looks, offset: int) -> None:
    assert log.read(offset, 10).length > 0
    assert looks.places <= 2


@pytest.mark.parametrize("offset", [0, MANY // 2, MANY - 1])
def test_lookup_by_time_reads_few_segments(log: Log, looks: Looks, offset: int) -> None:
    assert log.offset_for_timestamp(1000 + offset) == (1000 + offset, offset, 0)
    assert looks.times >= MANY - 1, "the first one has to see them all"
    looks.times = 0
    assert log.offset_for_timestamp(1000 + offset) == (1000 + offset, offset, 0)
    assert log.max_timestamp() == (1000 + MANY - 1, MANY - 1, 0)
    fill(log, 1)
    assert log.offset_for_timestamp(1000 + MANY) == (1000 + MANY, MANY, 0)
    assert looks.times <= FEW


def test_time_retention_stops_at_the_first_segment_that_stays(log: Log, looks: Looks) -> None:
    log.config = LogConfig(segment_bytes=100, retention_ms=50)
    point = retention_point(log, 1000 + 50 + 3, MANY)
    assert point == 3
    assert looks.times <= FEW


steps = st.lists(
    st.tuples(st.sampled_from(["append"] * 4 + ["truncate", "drop"]), st.integers(0, 12)),
    min_size=10,
    max_size=30,
)


@settings(max_examples=100, deadline=None)
@given(steps)
def test_lookups_by_time_agree_with_a_naive_scan(taken: list[tuple[str, int]]) -> None:
    log = new_log(MemoryDisk(), ONE_BATCH)
    for what, number in taken:
        if what == "append":
            append(log, [batch(log.log_end_offset, timestamp=number)])
        elif what == "truncate":
            truncate(log, max(log.log_start_offset, log.log_end_offset - number // 3))
        else:
            log.drop_before(min(log.log_start_offset + number // 3, log.log_end_offset), 0)
        known = records(log)
        for stamp in range(14):
            found = log.offset_for_timestamp(stamp)
            first = next((offset for offset, at in known if at >= stamp), None)
            assert (None if found is None else found.offset) == first
        largest = log.max_timestamp()
        assert (largest and largest.timestamp) == max((at for _, at in known), default=None)


def records(log: Log) -> list[tuple[Offset, int]]:
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        for one in batches(log.read_bytes(log.read(offset, 10_000))):
            found += [(record.offset, record.timestamp) for record in decode(one)]
            offset = one.next_offset
    return found
