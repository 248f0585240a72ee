"""A crash between any two changes to the disk leaves a log that can be recovered."""

from collections.abc import Callable

import pytest
from storage_kit import Crash, StoppingDisk, contents, fill, new_log, reopen
from storage_kit import truncate as cut

from tidelog.core.storage.log import Log
from tidelog.lab.memory_disk import MemoryDisk

CHANGES_MAX = 60


def append(log: Log) -> None:
    fill(log, 9, epoch=1)


def truncate(log: Log) -> None:
    cut(log, 3)


def truncate_and_append(log: Log) -> None:
    cut(log, 9)
    fill(log, 4, epoch=1)


def drop(log: Log) -> None:
    log.drop_before(15, now_ms=0)
    log.delete_due(60_000)


def drop_all(log: Log) -> None:
    log.drop_before(20, now_ms=0)


def restart(log: Log) -> None:
    log.restart_at(3)


def close(log: Log) -> None:
    log.close()


def crashed(deed: Callable[[Log], None], changes: int) -> tuple[MemoryDisk, list[bytes], bool]:
    """Return the disk after a crash at that change, the records before, and whether `act` ended.

    `act` ends if it makes fewer changes.
    """
    disk = StoppingDisk()
    log = new_log(disk)
    fill(log, 20)
    before = contents(log)
    disk.changes = changes
    try:
        deed(log)
    except Crash:
        return disk.survivor(), before, False
    return disk.survivor(), before, True


def each_crash(deed: Callable[[Log], None]) -> list[tuple[Log, list[bytes]]]:
    """Yield the log opened after a crash at each change, and after the whole action."""
    opened = []
    for changes in range(CHANGES_MAX):
        disk, before, done = crashed(deed, changes)
        log, _ = reopen(disk)
        again, report = reopen(disk)
        assert not report.cuts
        assert contents(again) == contents(log)
        opened.append((log, before))
        if done:
            return opened
    pytest.fail("the deed never came to its end")


def test_crash_during_append_loses_no_earlier_record() -> None:
    for log, before in each_crash(append):
        after = contents(log)
        assert after[:20] == before
        assert log.log_end_offset == len(after)


@pytest.mark.parametrize("deed", [truncate, close])
def test_records_after_a_crash_are_a_prefix(deed: Callable[[Log], None]) -> None:
    for log, before in each_crash(deed):
        after = contents(log)
        assert after == before[: len(after)]
        assert len(after) >= (3 if deed is truncate else 20)


def test_epochs_are_right_after_a_crash_at_every_step() -> None:
    """No record of the new epoch is assigned to the old one, nor the other way round.

    The log is truncated, then records of a new epoch are appended.
    """
    for log, before in each_crash(truncate_and_append):
        for data in contents(log):
            offset, epoch = int.from_bytes(data[:8]), int.from_bytes(data[12:16])
            assert log.epochs.epoch_for_offset(offset) == epoch
        assert contents(log)[:9] == before[:9]


@pytest.mark.parametrize("deed", [drop, drop_all])
def test_crash_during_deletion_removes_only_whole_segments(deed: Callable[[Log], None]) -> None:
    for log, before in each_crash(deed):
        after = contents(log)
        assert after == before[len(before) - len(after) :]
        assert log.log_end_offset == 20
        assert log.log_start_offset in (0, 7, 14, 20)


def test_crash_during_a_log_restart_leaves_a_prefix_or_the_new_start() -> None:
    for log, before in each_crash(restart):
        after = contents(log)
        assert after == before[: len(after)]
        assert log.log_start_offset in (0, 3)
