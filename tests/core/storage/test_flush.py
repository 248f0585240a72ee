"""When records are flushed, and what each setting survives (M06)."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_kit import (
    SMALL,
    ForgetfulDisk,
    batch,
    contents,
    fill,
    full_disk,
    new_log,
    reopen,
    truncate,
)

from tidelog.core.record.control import ControlType
from tidelog.core.record.encoder import Producer, encode_marker
from tidelog.core.record.record_batch import TRANSACTIONAL, parse
from tidelog.core.storage.disk import DiskFull
from tidelog.core.storage.log import Log
from tidelog.core.storage.log_config import LogConfig
from tidelog.lab.memory_disk import MemoryDisk

SEGMENT_RECORDS = 7


def test_only_rolled_segments_are_due_by_default() -> None:
    log = new_log(MemoryDisk())
    fill(log, SEGMENT_RECORDS)
    assert log.flush_due(10**15) is None
    fill(log, 1)
    assert log.flush_due(0) == SEGMENT_RECORDS


def test_flush_is_due_after_flush_messages() -> None:
    log = new_log(MemoryDisk(), LogConfig(flush_messages=3))
    fill(log, 2)
    assert log.flush_due(0) is None
    fill(log, 1)
    assert log.flush_due(0) == 3


def test_flush_is_due_after_flush_ms() -> None:
    log = new_log(MemoryDisk(), LogConfig(flush_ms=100))
    assert log.flush_due(10**9) is None
    fill(log, 1, now_ms=1000)
    fill(log, 1, now_ms=1050)
    assert log.flush_due(1099) is None
    assert log.flush_due(1100) == 2
    log.flush()
    assert log.flush_due(10**9) is None


def test_flush_in_progress_is_not_requested_again() -> None:
    log = new_log(MemoryDisk(), LogConfig(flush_messages=1))
    fill(log, 2)
    flush = log.start_flush()
    assert flush is not None
    assert log.flush_due(0) is None
    fill(log, 1)
    assert log.flush_due(0) == 3
    assert log.recovery_point == 0
    log.flush_completed(flush)
    assert log.recovery_point == 2


def test_flushes_complete_in_any_order() -> None:
    log = new_log(MemoryDisk())
    fill(log, 1)
    first = log.start_flush()
    fill(log, 1)
    second = log.start_flush()
    assert first is not None
    assert second is not None
    log.flush_completed(second)
    log.flush_completed(first)
    assert log.recovery_point == 2


def test_files_that_a_flush_syncs() -> None:
    log = new_log(MemoryDisk())
    fill(log, SEGMENT_RECORDS + 1)
    rolled = log.start_flush(SEGMENT_RECORDS)
    assert rolled is not None
    assert rolled.offset == SEGMENT_RECORDS
    kinds = [path.rpartition("/")[2] for path in rolled.files]
    old, new = f"{0:020d}", f"{SEGMENT_RECORDS:020d}"
    assert kinds[:4] == [f"{old}.log", f"{old}.index", f"{old}.timeindex", f"{old}.txnindex"]
    assert set(kinds[4:]) == {f"{new}.snapshot", f"{new}.log"}
    assert rolled.directories == ("orders-0",)
    log.flush_completed(rolled)
    rest = log.start_flush()
    assert rest is not None
    assert rest.files == (f"orders-0/{new}.log",)
    assert rest.directories == ()


def test_nothing_to_flush() -> None:
    log = new_log(MemoryDisk())
    assert log.start_flush() is None
    log.flush()
    fill(log, 3)
    log.flush()
    assert log.start_flush() is None
    assert log.start_flush(2) is None


def test_a_truncation_invalidates_earlier_flushes() -> None:
    """The sync covered bytes that were truncated since."""
    log = new_log(MemoryDisk(), LogConfig(flush_ms=100))
    fill(log, 10)
    flush = log.start_flush()
    assert flush is not None
    log.truncate_to(4)
    fill(log, 6, epoch=1, now_ms=50)
    log.flush_completed(flush)
    assert log.recovery_point == 0
    assert log.flush_due(100) == 10
    log.flush()
    assert log.recovery_point == 10


def test_truncation_lowers_the_recovery_point() -> None:
    log = new_log(MemoryDisk())
    fill(log, 10)
    log.flush()
    log.truncate_to(4)
    assert log.recovery_point == 4
    log.restart_at(2)
    assert log.recovery_point == 2
    assert log.flush_due(10**9) is None


def test_a_file_deleted_during_a_flush_needs_no_sync() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    fill(log, 20)
    flush = log.start_flush()
    assert flush is not None
    log.drop_before(20, now_ms=0)
    disk.sync_many(flush.files, flush.directories)
    log.flush_completed(flush)
    assert log.recovery_point == 20


def test_a_failed_sync_takes_the_log_offline() -> None:
    disk = full_disk(2**31)
    log = new_log(disk)
    fill(log, 1)
    disk.changes = 0
    with pytest.raises(DiskFull):
        log.flush()
    assert log.offline
    assert log.recovery_point == 0


def test_without_flush_a_killed_process_loses_nothing() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    fill(log, 20)
    again, report = reopen(disk)
    assert again.log_end_offset == 20
    assert report.cuts == []


def test_without_flush_a_power_failure_may_lose_all() -> None:
    disk = ForgetfulDisk()
    log = new_log(disk)
    fill(log, 5)
    again, _ = reopen(disk.power_failure())
    assert again.log_end_offset == 0


def test_indexes_below_the_recovery_point_are_on_disk() -> None:
    """Recovery trusts them after a crash, so a roll right after a flush must sync them."""
    disk = ForgetfulDisk()
    log = new_log(disk)
    fill(log, SEGMENT_RECORDS)
    log.flush()
    fill(log, 1)
    log.flush()
    again, _ = reopen(disk.power_failure(), recovery_point=log.recovery_point)
    assert again.segments.first.max_timestamp == 1000 + SEGMENT_RECORDS - 1
    assert again.segments.first.time_index.entries()[-1] == (1006, 6)


def transaction(log: Log, end: ControlType) -> None:
    """Return one record of producer 7, and the marker that ends its transaction."""
    log.append([batch(log.log_end_offset, producer=Producer(7, 0, 0), attributes=TRANSACTIONAL)], 0)
    marker = parse(encode_marker(end, Producer(7, 0), 0, 5))
    marker.assign(log.log_end_offset, 0)
    log.append([marker], 0)


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "roll"])
def test_aborted_transactions_are_on_disk_with_their_markers(clean: bool) -> None:
    """Otherwise read_committed consumers get them after a power failure."""
    disk = ForgetfulDisk()
    log = new_log(disk)
    transaction(log, ControlType.ABORT)
    expected = log.aborted_transactions(0, 2)
    assert len(expected) == 1
    if clean:
        log.close()
    else:
        log.flush()
        log.append([batch(2, size=500)], 0)
        assert len(log.segments) == 2
        log.flush()
    again, _ = reopen(disk.power_failure(), recovery_point=log.recovery_point, clean=clean)
    assert again.aborted_transactions(0, 2) == expected


def test_truncated_aborted_transactions_do_not_reappear() -> None:
    disk = ForgetfulDisk()
    log = new_log(disk)
    transaction(log, ControlType.ABORT)
    log.flush()
    truncate(log, 0)
    transaction(log, ControlType.COMMIT)
    log.close()
    again, _ = reopen(disk.power_failure(), clean=True)
    assert (again.log_end_offset, again.aborted_transactions(0, 2)) == (2, [])


def test_deleted_segments_do_not_reappear_after_a_power_failure() -> None:
    disk = ForgetfulDisk()
    log = new_log(disk)
    fill(log, 20)
    log.flush()
    log.drop_before(14, 0)
    again, _ = reopen(disk.power_failure(), recovery_point=log.recovery_point)
    assert (again.log_start_offset, again.log_end_offset) == (14, 20)


settings_and_sizes = st.lists(st.integers(1, 9), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(settings_and_sizes, st.integers(1, 8))
def test_flush_messages_limits_the_loss_of_a_power_failure(
    sizes: list[int], flush_messages: int
) -> None:
    """With flush.messages = n, fewer than n records are lost; with 1, no acknowledged record."""
    disk = ForgetfulDisk()
    log = new_log(disk, replace(SMALL, flush_messages=flush_messages))
    for count in sizes:
        log.append([batch(log.log_end_offset, count)], 0)
        due = log.flush_due(0)
        if due is not None:
            flush = log.start_flush(due)
            assert flush is not None
            disk.sync_many(flush.files, flush.directories)
            log.flush_completed(flush)
        assert log.log_end_offset - log.recovery_point < flush_messages
        before = contents(log)
        again, _ = reopen(disk.power_failure(), recovery_point=log.recovery_point)
        assert again.log_end_offset >= log.recovery_point
        kept = contents(again)
        assert kept == before[: len(kept)]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(0, 30), st.integers(1, 10), st.booleans())
def test_truncated_records_never_reappear(
    written: int, cut: int, rewritten: int, flushed: bool
) -> None:
    """Old bytes with the offsets and epochs of new records would look like new records."""
    disk = ForgetfulDisk()
    log = new_log(disk)
    fill(log, written)
    log.flush()
    truncate(log, min(cut, written))
    fill(log, rewritten, epoch=1)
    if flushed:
        log.flush()
    after = contents(log)
    again, _ = reopen(disk.power_failure(), recovery_point=log.recovery_point)
    kept = contents(again)
    assert kept == after[: len(kept)]
    assert again.log_end_offset >= log.recovery_point
