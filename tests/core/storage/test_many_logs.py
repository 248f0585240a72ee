"""Thousands of logs are created, written and closed with few syncs."""

from collections.abc import Sequence

import pytest
from storage_kit import Crash, ForgetfulDisk, StoppingDisk, append, batch, contents

from tidelog.core.storage import checkpoint, layout
from tidelog.core.storage.disk import DiskError, replace_files
from tidelog.core.storage.log import Log
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.log_directory import LogDirectory, NewLog
from tidelog.core.types import EpochEntry, TopicPartition
from tidelog.lab.memory_disk import MemoryDisk

NAMES = [TopicPartition("orders", n) for n in range(5)]


class CountingDisk(MemoryDisk):
    """A disk that counts the requested syncs, however much each one covers."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs = 0
        self.changes: list[str] = []

    def sync_many(self, files: Sequence[str], directories: Sequence[str]) -> None:
        if files or directories:
            self.syncs += 1

    def sync(self, path: str) -> None:
        super().sync(path)
        self.syncs += 1

    def sync_dir(self, path: str) -> None:
        super().sync_dir(path)
        self.syncs += 1

    def write(self, path: str, data: object) -> None:
        super().write(path, data)  # type: ignore[arg-type]
        self.changes.append(path)


def wanted(topic_id: bytes = b"o" * 16) -> list[NewLog]:
    return [NewLog(name, topic_id, LogConfig()) for name in NAMES]


def made(disk: MemoryDisk) -> LogDirectory:
    directory = LogDirectory.open(disk, 0)
    directory.create_all(wanted(), 0)
    return directory


def written(log: Log, count: int = 2) -> None:
    append(log, [batch(log.log_end_offset + n) for n in range(count)])


def test_creating_many_logs_equals_creating_them_one_by_one() -> None:
    many, one = MemoryDisk(), MemoryDisk()
    made(many)
    directory = LogDirectory.open(one, 0)
    for new in wanted():
        directory.create(new.partition, new.topic_id, 0, new.config)
    assert many.files == one.files
    assert many.directories == one.directories


def test_creating_many_logs_takes_as_many_syncs_as_one() -> None:
    disk = CountingDisk()
    directory = LogDirectory.open(disk, 0)
    disk.syncs = 0
    directory.create_all(wanted()[:1], 0)
    once = disk.syncs
    directory.create_all(wanted()[1:], 0)
    assert disk.syncs == 2 * once


def test_no_record_exists_without_its_topic_id() -> None:
    """After any power failure, a log that has records has its topic's id."""
    disk = ForgetfulDisk()
    for log in made(disk).logs.values():
        written(log)
        log.flush()
    after = LogDirectory.open(disk.power_failure(), 0)
    assert {log.topic_id for log in after.logs.values()} == {b"o" * 16}


def test_crash_while_creating_leaves_logs_that_open() -> None:
    done = False
    changes = 0
    while not done:
        disk = StoppingDisk()
        directory = LogDirectory.open(disk, 0)
        disk.changes = changes
        try:
            directory.create_all(wanted(), 0)
        except Crash:
            pass
        else:
            done = True
        for log in LogDirectory.open(disk.survivor(), 0).logs.values():
            assert log.topic_id in (None, b"o" * 16)
            assert log.log_end_offset == 0
        changes += 1
    assert changes > 20


def test_checkpoint_entries_of_earlier_logs_are_removed_for_all_new_logs() -> None:
    disk = MemoryDisk()
    directory = made(disk)
    for log in directory.logs.values():
        written(log)
    directory.close(dict.fromkeys(NAMES, 2))
    directory = LogDirectory.open(disk, 0)
    for name in NAMES:
        directory.delete(name, 0)
    directory.create_all(wanted(b"n" * 16), 0)
    for checkpointed in (layout.RECOVERY_POINTS, layout.HIGH_WATERMARKS):
        assert checkpoint.read_offsets(disk, checkpointed) == ({}, [])


def test_log_is_not_created_twice() -> None:
    directory = made(MemoryDisk())
    with pytest.raises(AssertionError):
        directory.create_all(wanted(), 0)


def test_epochs_of_many_logs_at_once() -> None:
    disk = CountingDisk()
    directory = made(disk)
    logs = list(directory.logs.values())
    for number, log in enumerate(logs):
        log.epochs.assign(number, 0)
    disk.syncs = 0
    directory.write_epochs(logs)
    assert disk.syncs == 2
    for number, log in enumerate(logs):
        assert checkpoint.read_epochs(disk, log.epochs_path) == [EpochEntry(number, 0)]


def test_disk_error_takes_all_new_logs_offline() -> None:
    disk = StoppingDisk(error=DiskError("broken", "orders-0"))
    directory = made(disk)
    logs = list(directory.logs.values())
    disk.changes = 3
    with pytest.raises(DiskError):
        directory.write_epochs(logs[:3])
    assert [log.offline for log in logs] == [True, True, True, False, False]


def test_closing_many_logs_takes_as_many_syncs_as_one() -> None:
    counts = []
    for dirty in (1, 5):
        disk = CountingDisk()
        directory = made(disk)
        for log in list(directory.logs.values())[:dirty]:
            written(log)
        disk.syncs = 0
        directory.close({})
        counts.append(disk.syncs)
    assert counts[0] == counts[1]


def test_everything_is_on_disk_after_a_clean_stop() -> None:
    disk = ForgetfulDisk()
    directory = made(disk)
    for log in directory.logs.values():
        written(log)
    held = {name: contents(log) for name, log in directory.logs.items()}
    directory.close(dict.fromkeys(NAMES, 2))
    after = LogDirectory.open(disk.power_failure(), 0)
    assert after.clean
    assert {name: contents(log) for name, log in after.logs.items()} == held
    assert not any(report.changed for report in after.reports.values())


def test_closing_writes_nothing_for_unchanged_logs() -> None:
    disk = CountingDisk()
    directory = made(disk)
    for log in list(directory.logs.values())[:3]:
        written(log)
    directory.close({})
    again = LogDirectory.open(disk, 0)
    written(again.logs[NAMES[1]])
    disk.changes.clear()
    again.close({})
    touched = {path.partition("/")[0] for path in disk.changes if "/" in path}
    assert touched == {"orders-1"}
    last = LogDirectory.open(disk, 0)
    assert [last.logs[name].log_end_offset for name in NAMES] == [2, 4, 2, 0, 0]


def test_replacing_no_files_writes_and_syncs_nothing() -> None:
    disk = CountingDisk()
    replace_files(disk, {})
    assert (disk.files, disk.changes, disk.syncs) == ({}, [], 0)
    replace_files(disk, {}, beside=["orders-0"])
    assert (disk.files, disk.changes, disk.syncs) == ({}, [], 1)


def test_correct_indexes_are_kept_after_a_crash() -> None:
    disk = CountingDisk()
    directory = LogDirectory.open(disk, 0)
    config = LogConfig(index_interval_bytes=100)
    log = directory.create(NAMES[0], b"o" * 16, 0, config)
    written(log, 20)
    log.flush()
    log.segments.active.write_indexes()
    index = log.segments.active.file(layout.OFFSET_INDEX)
    before = disk.files[index]
    reopened = LogDirectory.open(disk, 0, lambda _: config)
    assert disk.files[index] is before, "not written anew"
    active = reopened.logs[NAMES[0]].segments.active
    assert index in active.unsynced_indexes(), "but nobody knows whether it is on disk"
    disk.files[index][-1] ^= 1
    LogDirectory.open(disk, 0, lambda _: config)
    assert disk.files[index] is not before
    assert disk.files[index][:-1] == before[:-1]


def test_deleting_many_logs_takes_as_many_syncs_as_one() -> None:
    disk = CountingDisk()
    directory = made(disk)
    disk.syncs = 0
    directory.delete(NAMES[0], 0)
    assert disk.syncs == 1
    directory.delete_all(NAMES[1:], 0)
    assert disk.syncs == 2
    directory.delete_all([], 0)
    assert disk.syncs == 2
    assert not directory.logs


def test_a_crash_while_deleting_leaves_each_log_complete_or_deleted() -> None:
    done = False
    changes = 0
    while not done:
        disk = StoppingDisk()
        directory = made(disk)
        for log in directory.logs.values():
            written(log)
            log.flush()
        disk.changes = changes
        try:
            directory.delete_all(NAMES, 0)
        except Crash:
            pass
        else:
            done = True
        after = LogDirectory.open(disk.survivor(), 0)
        assert {log.log_end_offset for log in after.logs.values()} <= {2}
        leaving = [name for name in after.disk.list_dir("") if name.endswith("-delete")]
        assert len(after.logs) + len(leaving) == len(NAMES)
        changes += 1
    assert changes > len(NAMES)


def test_deleted_logs_are_removed_a_few_at_a_time() -> None:
    disk = MemoryDisk()
    directory = made(disk)
    directory.delete_all(NAMES, 0)

    def left() -> int:
        return sum(name.endswith("-delete") for name in disk.list_dir(""))

    assert not directory.delete_due(59_999, 2)
    assert [(directory.delete_due(60_000, 2), left()) for _ in range(4)] == [
        (True, 3),
        (True, 1),
        (False, 0),
        (False, 0),
    ]


def test_logs_of_a_topic() -> None:
    disk = MemoryDisk()
    directory = made(disk)
    other = directory.create(TopicPartition("bills", 3), b"b" * 16, 0)
    assert directory.of_topic("orders") == NAMES
    assert directory.of_topic("bills") == [TopicPartition("bills", 3)]
    directory.delete(NAMES[1], 0)
    directory.set_aside(NAMES[2:])
    assert directory.of_topic("orders") == [NAMES[0]]
    directory.delete(NAMES[0], 0)
    assert directory.of_topic("orders") == []
    assert directory.of_topic("nobody") == []
    assert other.log_end_offset == 0
    assert LogDirectory.open(disk, 0).of_topic("bills") == [TopicPartition("bills", 3)]
