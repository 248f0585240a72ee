"""A log of several segments: append, roll, read, truncate, delete."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_kit import (
    SMALL,
    append,
    batch,
    contents,
    fill,
    full_disk,
    names,
    new_log,
    reopen,
    truncate,
)

from tidelog.core.record import work_budget
from tidelog.core.record.control import ControlType
from tidelog.core.record.encoder import Producer, encode_batch, encode_marker
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import HEADER_SIZE, TRANSACTIONAL, batches, parse
from tidelog.core.storage.disk import DiskFull, MissingFile
from tidelog.core.storage.log import Log, LogOffline, OffsetOutOfRange
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.types import EpochEntry
from tidelog.lab.memory_disk import MemoryDisk


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def log(disk: MemoryDisk) -> Log:
    return new_log(disk)


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def offsets(log: Log, offset: int, max_bytes: int = 10**6, upto: int | None = None) -> list[int]:
    data = log.read_bytes(log.read(offset, max_bytes, upto))
    return [one.base_offset for one in batches(data)]


def test_log_end_offset_is_that_of_the_next_record(log: Log) -> None:
    """M01: fifteen records have offsets 0 to 14; the next gets 15."""
    log.append([batch(0, 15)], 0)
    assert (log.log_start_offset, log.log_end_offset) == (0, 15)


def test_offsets_must_not_go_back(log: Log) -> None:
    log.append([batch(0, 5)], 0)
    for wrong in ([batch(4)], [batch(5), batch(5)]):
        with pytest.raises(ValueError, match="offset"):
            log.append(wrong, 0)
    assert log.log_end_offset == 5
    assert not log.offline


def test_an_append_of_nothing_changes_nothing(log: Log, disk: MemoryDisk) -> None:
    before = dict(disk.files)
    log.append([], 0)
    assert (log.log_end_offset, disk.files) == (0, before)


def test_rolls_when_the_segment_is_full(log: Log) -> None:
    fill(log, 20)
    size = batch(0).size
    per_segment = SMALL.segment_bytes // size
    assert bases(log) == list(range(0, 20, per_segment))
    assert log.size == 20 * size
    assert [segment.size for segment in log.segments][:-1] == [per_segment * size] * 2


def test_a_long_list_of_batches_is_spread_over_segments(log: Log) -> None:
    log.append([batch(n) for n in range(20)], 0)
    assert len(log.segments) == 3
    assert len(contents(log)) == 20


def test_a_batch_larger_than_a_segment_has_one_of_its_own(disk: MemoryDisk, log: Log) -> None:
    append(log, [batch(0, size=600)])
    append(log, [batch(1), batch(2, size=600), batch(3, size=600), batch(4)])
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2, 3, 4]
    assert contents(reopen(disk)[0]) == contents(log)
    assert len(contents(log)) == 5


@pytest.mark.parametrize(
    ("timestamp", "rolled"), [(1100, False), (1101, True)], ids=["at segment.ms", "after it"]
)
def test_rolls_by_the_time_between_records(disk: MemoryDisk, timestamp: int, rolled: bool) -> None:
    log = new_log(disk, LogConfig(segment_ms=120, segment_jitter_ms=20))
    log.append([batch(0, timestamp=1000)], 0)
    log.append([batch(1, timestamp=timestamp)], 10**9)
    assert len(log.segments) == 1 + rolled


def test_rolls_by_the_clock_if_records_have_no_timestamps(disk: MemoryDisk) -> None:
    log = new_log(disk, LogConfig(segment_ms=100), now_ms=50)
    for now_ms in (60, 150, 151):
        log.append([batch(log.log_end_offset, timestamp=-1)], now_ms)
    assert bases(log) == [0, 2]


def test_rolls_when_an_index_is_full(disk: MemoryDisk) -> None:
    config = LogConfig(index_interval_bytes=0, segment_index_bytes=36)
    log = new_log(disk, config)
    fill(log, 7)
    assert bases(log) == [0, 3, 6]


def test_rolls_before_an_offset_no_longer_fits(log: Log) -> None:
    log.append([batch(0)], 0)
    log.append([batch(2**31 - 1)], 0)
    assert bases(log) == [0]
    log.append([batch(2**31)], 0)
    assert bases(log) == [0, 2**31]


def test_an_empty_segment_makes_room_for_far_offsets(disk: MemoryDisk, log: Log) -> None:
    log.append([batch(2**32)], 0)
    assert bases(log) == [2**32]
    assert names(disk)[0] == "00000000004294967296.index"


def test_a_new_config_holds_for_the_next_append(log: Log) -> None:
    fill(log, 3)
    log.config = replace(SMALL, segment_bytes=10**6)
    assert log.config.segment_bytes == 10**6
    fill(log, 20)
    assert len(log.segments) == 1


@pytest.mark.parametrize(
    ("offset", "max_bytes", "upto", "expected"),
    [
        (0, 10**6, None, [0, 2, 4, 6, 8]),
        (3, 10**6, None, [2, 4, 6, 8]),
        (0, 1, None, [0]),
        (0, 10**6, 4, [0, 2]),
        (0, 10**6, 5, [0, 2]),
        (0, 10**6, 1, []),
        (4, 10**6, 4, []),
        (10, 10**6, None, []),
        (2, 10**6, 99, [2, 4, 6, 8]),
    ],
    ids=[
        "all",
        "inside a batch",
        "first batch whole",
        "up to a boundary",
        "a batch across the bound stays out",
        "first batch across the bound",
        "at the bound",
        "at the log end",
        "bound above the end",
    ],
)
def test_reads(
    log: Log, offset: int, max_bytes: int, upto: int | None, expected: list[int]
) -> None:
    log.config = LogConfig()
    for n in range(5):
        log.append([batch(n * 2, 2)], 0)
    assert offsets(log, offset, max_bytes, upto) == expected


def test_a_read_ends_with_its_segment(log: Log) -> None:
    fill(log, 20)
    assert offsets(log, 0) == list(range(bases(log)[1]))
    assert offsets(log, 3, upto=5) == [3, 4]
    assert offsets(log, bases(log)[1], upto=bases(log)[1] + 1) == [bases(log)[1]]


def test_a_read_in_a_gap_continues_with_the_next_batch(log: Log) -> None:
    for offset in (0, 5, 30):
        log.append([batch(offset, size=300)], 0)
    assert bases(log) == [0, 1, 6], "each begins where the one before ends"
    assert offsets(log, 1) == [5]
    assert offsets(log, 6) == [30]


def test_a_log_may_end_in_a_gap(log: Log) -> None:
    """Compaction removed records 1 to 6, then the log was truncated among them."""
    log.append([batch(0), batch(7)], 0)
    assert log.truncate_to(4) == 4
    assert log.read(2, 100).length == 0
    log.append([batch(4)], 0)
    assert offsets(log, 2) == [4]


@pytest.mark.parametrize("offset", [-1, 3, 11])
def test_reads_outside_the_log(log: Log, offset: int) -> None:
    log.append([batch(0, 10)], 0)
    log.drop_before(4, 0)
    with pytest.raises(OffsetOutOfRange):
        log.read(offset, 100)


@pytest.mark.parametrize(
    ("timestamp", "offset"), [(0, 0), (1000, 0), (1001, 1), (1019, 19), (1020, None)]
)
def test_offset_for_a_timestamp(log: Log, timestamp: int, offset: int | None) -> None:
    fill(log, 20, epoch=3)
    found = log.offset_for_timestamp(timestamp)
    assert (found and found.offset) == offset
    assert found is None or (found.timestamp, found.leader_epoch) == (max(timestamp, 1000), 3)


def test_offset_for_a_timestamp_inside_a_batch_and_above_the_log_start(log: Log) -> None:
    log.append([batch(0, 5, timestamp=100), batch(5, 2, timestamp=90)], 0)
    found = log.offset_for_timestamp(102)
    assert (found and found.offset) == 2
    log.drop_before(4, 0)
    found = log.offset_for_timestamp(102)
    assert found is not None
    assert found.offset == 4
    log.drop_before(5, 0)
    assert log.offset_for_timestamp(102) is None


def test_offset_for_a_timestamp_in_a_very_large_batch(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is not decompressed for every lookup: its first offset is low enough."""
    monkeypatch.setattr(work_budget, "STEPS_MAX", 28)
    log.append([batch(0, 4, timestamp=100), batch(4, 5, timestamp=200)], 0)
    assert log.offset_for_timestamp(102) == (102, 2, 0)
    assert log.offset_for_timestamp(203) == (204, 4, 0)


def test_offset_for_a_timestamp_in_an_invalid_batch(log: Log) -> None:
    """Brokers do not decompress produced batches, so the search finds the damage here and uses the
    header."""
    packed = bytearray(encode_batch([Record(b"k", b"v", 100 + n, ()) for n in range(5)]))
    packed[HEADER_SIZE:] = b"\xff" * (len(packed) - HEADER_SIZE)
    log.append([parse(packed)], 0)
    for found in (log.offset_for_timestamp(102), log.max_timestamp()):
        assert found is not None
        assert (found.offset, found.timestamp) == (0, 104)
    log.drop_before(3, 0)
    found = log.offset_for_timestamp(102)
    assert found is not None
    assert found.offset == 3


def test_timestamps_out_of_order_are_found(log: Log) -> None:
    log.config = LogConfig(index_interval_bytes=100)
    for n, timestamp in enumerate([50, 40, 30, 60, 20, 70, 10]):
        log.append([batch(n, timestamp=timestamp)], 0)
    found = [log.offset_for_timestamp(timestamp) for timestamp in (10, 51, 61, 71)]
    assert [one and one.offset for one in found] == [0, 3, 5, None]


def test_batch_with_young_records_below_the_log_start_is_skipped(log: Log) -> None:
    falling = [Record(None, b"", timestamp) for timestamp in (90, 80, 70)]
    made = parse(encode_batch(falling))
    made.assign(0, 0)
    log.append([made, batch(3, timestamp=60), batch(4, timestamp=85)], 0)
    log.drop_before(1, 0)
    found = [log.offset_for_timestamp(timestamp) for timestamp in (75, 81, 86)]
    assert [one and one.offset for one in found] == [1, 4, None]


def test_offset_of_the_largest_timestamp(log: Log) -> None:
    assert log.max_timestamp() is None
    log.append([batch(0, timestamp=5), batch(1, timestamp=9), batch(2, timestamp=9)], 0)
    found = log.max_timestamp()
    assert (found and found[:2]) == (9, 1)


@pytest.mark.parametrize("end", range(21))
def test_truncation(log: Log, disk: MemoryDisk, end: int) -> None:
    fill(log, 20)
    kept = contents(log)[:end]
    truncate(log, end)
    assert (log.log_end_offset, log.producers.end_offset) == (end, end)
    assert contents(log) == kept
    fill(log, 3, epoch=1)
    assert contents(log)[:end] == kept
    assert log.log_end_offset == end + 3
    again, report = reopen(disk)
    assert contents(again) == contents(log)
    assert report.cuts == []


def test_truncation_inside_a_batch_removes_the_batch(log: Log) -> None:
    log.append([batch(0, 5), batch(5, 5)], 0)
    assert log.truncate_to(8) == 5
    assert log.log_end_offset == 5


def test_truncation_at_or_above_the_end_does_nothing(log: Log, disk: MemoryDisk) -> None:
    fill(log, 5)
    before = dict(disk.files)
    assert (log.truncate_to(5), log.truncate_to(99)) == (5, 5)
    assert disk.files == before


def test_truncation_below_the_log_start_moves_the_log_start(log: Log) -> None:
    fill(log, 5)
    log.drop_before(4, 0)
    log.truncate_to(2)
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)


def test_truncation_below_the_first_segment_restarts_the_log(log: Log) -> None:
    fill(log, 20)
    log.drop_before(12, 0)
    assert log.truncate_to(3) == 3
    assert (bases(log), log.log_start_offset, log.log_end_offset) == ([3], 3, 3)


def test_truncation_leaves_the_epochs_to_the_caller(log: Log, disk: MemoryDisk) -> None:
    fill(log, 5)
    log.epochs.assign(0, 0)
    log.epochs.assign(1, 4)
    log.truncate_to(2)
    assert log.epochs.latest == 1
    log.epochs.truncate_to(2)
    log.write_epochs()
    assert disk.files["orders-0/leader-epoch-checkpoint"] == b"0\n1\n0 0\n"


def test_producers_are_rebuilt_after_truncation(log: Log) -> None:
    for sequence in range(20):
        log.append([batch(sequence, producer=Producer(7, 0, sequence))], 0)
    log.truncate_to(11)
    known = log.producers.producers[7].batches
    assert [b.last_sequence for b in known] == [6, 7, 8, 9, 10]


def test_aborted_transactions_are_found_over_segments(log: Log) -> None:
    log.append([batch(0, producer=Producer(7, 0, 0), attributes=TRANSACTIONAL)], 0)
    log.append([batch(1, size=400)], 0)
    marker = parse(encode_marker(ControlType.ABORT, Producer(7, 0, -1), 0, 5))
    marker.assign(2, 0)
    log.append([marker], 0)
    assert len(log.segments) == 2
    found = log.aborted_transactions(0, 2)
    assert [(t.producer_id, t.first_offset, t.last_offset) for t in found] == [(7, 0, 2)]
    assert log.aborted_transactions(3, 3) == []
    log.truncate_to(2)
    assert log.aborted_transactions(0, 2) == []
    assert log.producers.open_transactions == {7: 0}


def test_dropping_the_head_inside_a_segment_moves_only_the_start(log: Log) -> None:
    fill(log, 5)
    log.drop_before(3, 0)
    log.drop_before(1, 0)
    assert (log.log_start_offset, bases(log)) == (3, [0])


def test_dropped_segments_are_renamed_and_removed_later(log: Log, disk: MemoryDisk) -> None:
    fill(log, 20)
    second = bases(log)[1]
    log.drop_before(second + 1, now_ms=1000)
    assert bases(log)[0] == second
    renamed = [name for name in names(disk) if name.endswith(".deleted")]
    assert renamed == [f"{0:020d}{kind}.deleted" for kind in (".index", ".log", ".timeindex")]
    assert log.next_delete_due() == 61_000
    assert log.delete_due(60_999) == 0
    assert log.delete_due(61_000) == 3
    assert not any(name.endswith(".deleted") for name in names(disk))
    assert log.next_delete_due() is None


def test_dropping_everything_leaves_one_empty_segment(log: Log) -> None:
    fill(log, 12)
    log.drop_before(12, 0)
    assert (bases(log), log.size, log.log_start_offset) == ([12], 0, 12)
    log.drop_before(12, 0)
    fill(log, 1)
    assert offsets(log, 12) == [12]


def test_the_start_never_passes_the_end(log: Log) -> None:
    fill(log, 3)
    with pytest.raises(ValueError, match="above the log end"):
        log.drop_before(4, 0)


def test_a_fetch_in_progress_outlives_the_deletion(log: Log) -> None:
    """M05: a region returned before the deletion can be sent until the file is removed.

    A new read never returns it.
    """
    fill(log, 20)
    region = log.read(0, 10**6)
    expected = log.read_bytes(region)
    log.drop_before(bases(log)[1], now_ms=0)
    assert log.read_bytes(region) == expected
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 10**6)
    log.delete_due(60_000)
    with pytest.raises(MissingFile):
        log.read_bytes(region)


def test_restart_removes_all_records(log: Log, disk: MemoryDisk) -> None:
    fill(log, 20)
    log.append([batch(20, producer=Producer(7, 0, 0))], 0)
    log.restart_at(1000)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (1000,) * 3
    assert (log.size, log.producers.producers) == (0, {})
    assert [n for n in names(disk) if n[0] == "0"] == [
        f"{1000:020d}{kind}" for kind in (".index", ".log", ".timeindex")
    ]
    fill(log, 2)
    assert offsets(log, 1000) == [1000, 1001]


def test_epochs_are_written_on_request(log: Log, disk: MemoryDisk) -> None:
    log.epochs.assign(4, 0)
    log.write_epochs()
    again, _ = reopen(disk, clean=True)
    assert again.epochs.entries == []  # the epoch starts at the log end: nothing was written in it
    fill(log, 1, epoch=4)
    log.write_epochs()
    again, _ = reopen(disk, clean=True)
    assert again.epochs.entries == [EpochEntry(4, 0)]


def test_log_accepts_no_records_after_a_failed_write() -> None:
    """KAFKA-10778: the next batch could be appended after half a batch."""
    disk = full_disk(changes=2**31)
    log = new_log(disk)
    fill(log, 3)
    disk.changes = 0
    with pytest.raises(DiskFull):
        log.append([batch(3)], 0)
    disk.changes = 2**31
    assert log.offline
    attempts: list[Callable[[], object]] = [
        lambda: log.append([batch(3)], 0),
        lambda: log.truncate_to(1),
        lambda: log.drop_before(1, 0),
        lambda: log.restart_at(0),
        log.write_epochs,
        log.start_flush,
        log.close,
    ]
    for attempt in attempts:
        with pytest.raises(LogOffline):
            attempt()
    assert log.log_end_offset == 3
    recovered, report = reopen(disk)
    assert recovered.log_end_offset == 3
    assert [cut.reason for cut in report.cuts] == ["39 bytes are too few for a batch header"]


@pytest.mark.parametrize("changes", range(6))
def test_a_failed_truncation_takes_the_log_offline(changes: int) -> None:
    disk = full_disk(changes=2**31)
    log = new_log(disk)
    fill(log, 20)
    disk.changes = changes
    with pytest.raises(DiskFull):
        log.truncate_to(2)
    assert log.offline


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 6)),
        st.tuples(st.just("truncate"), st.integers(0, 60)),
        st.tuples(st.just("drop"), st.integers(0, 60)),
        st.tuples(st.just("reopen"), st.booleans()),
    ),
    max_size=25,
)


@settings(max_examples=80, deadline=None)
@given(steps)
def test_log_behaves_like_a_list(history: list[tuple[str, int]]) -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    model: dict[int, bytes] = {}
    start = end = 0
    for epoch, (verb, number) in enumerate(history):
        if verb == "append":
            made = [batch(end + n, epoch=epoch) for n in range(number)]
            append(log, made)
            model |= {one.base_offset: bytes(one.view()) for one in made}
            end += number
        elif verb == "truncate":
            cut = min(number, end)
            # Below the first segment there is nothing: the log begins anew there.
            truncate(log, cut)
            start, end = min(start, cut), cut
            model = {offset: data for offset, data in model.items() if offset < end}
        elif verb == "drop":
            start = max(start, min(number, end))
            log.drop_before(min(number, end), 0)
        else:
            if number:
                log.close()
            log, _ = reopen(disk, log_start_offset=start, clean=bool(number))
        assert (log.log_start_offset, log.log_end_offset) == (start, end)
        for offset in range(start, end):
            assert log.read_bytes(log.read(offset, 1)) == model[offset]
