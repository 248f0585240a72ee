"""Progress while a directory is opened, and the check of its owner."""

import pytest
from storage_kit import Crash, StoppingDisk, fill

from tidelog.core.storage import checkpoint
from tidelog.core.storage.checkpoint import MetaProperties
from tidelog.core.storage.log_directory import LogDirectory, RecoveryProgress
from tidelog.core.types import TopicPartition
from tidelog.lab.memory_disk import MemoryDisk

BILLS = TopicPartition("bills", 3)
ORDERS = TopicPartition("orders", 0)
MINE = MetaProperties({"version": "1", "cluster.id": "abc", "node.id": "1", "directory.id": "d"})


def two_logs() -> tuple[MemoryDisk, LogDirectory]:
    disk = MemoryDisk()
    directory = LogDirectory.open(disk, 0)
    fill(directory.create(ORDERS, b"o" * 16, 0), 20)
    fill(directory.create(BILLS, b"b" * 16, 0), 3)
    return disk, directory


def opened(disk: MemoryDisk) -> list[RecoveryProgress]:
    heard: list[RecoveryProgress] = []
    LogDirectory.open(disk, 0, progress=heard.append)
    return heard


def test_progress_is_called_before_and_after_each_log_is_opened() -> None:
    disk, _ = two_logs()
    heard = opened(disk)
    assert [(p.partition, p.number, p.total, p.clean) for p in heard] == [
        (BILLS, 1, 2, False),
        (BILLS, 1, 2, False),
        (ORDERS, 2, 2, False),
        (ORDERS, 2, 2, False),
    ]
    assert heard[0].report is heard[2].report is None
    after = heard[3].report
    assert after is not None
    assert (after.log_end_offset, after.clean) == (20, False)
    assert after.scanned_bytes > 0


def test_after_a_clean_stop_nothing_is_read() -> None:
    disk, directory = two_logs()
    directory.close({})
    heard = opened(disk)
    assert all(p.clean for p in heard)
    assert [p.report.scanned_bytes for p in heard if p.report is not None] == [0, 0]


def test_foreign_folders_are_not_counted() -> None:
    disk, directory = two_logs()
    directory.delete(BILLS, 0)
    disk.make_dir("lost+found")
    disk.write("orders-7", b"")
    assert [(p.number, p.total) for p in opened(disk)] == [(1, 1), (1, 1)]


def test_empty_directory_reports_no_progress() -> None:
    assert opened(MemoryDisk()) == []


def test_properties_are_written_whole_or_not_at_all() -> None:
    """If the process ends at any time, the file has its old or its new content."""
    newer = MetaProperties({**MINE.values, "directory.id": "e"})
    seen = set()
    for changes in range(10):
        disk = StoppingDisk()
        directory = LogDirectory.open(disk, 0)
        directory.write_properties(MINE)
        disk.changes = changes
        try:
            directory.write_properties(newer)
        except Crash:
            pass
        else:
            assert directory.properties == newer
        disk.changes = 100
        found = checkpoint.read_properties(disk)
        assert found in (MINE, newer)
        seen.add(found.values["directory.id"])
    assert seen == {"d", "e"}


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (MINE.values, None),
        ({"version": "0", "broker.id": "1"}, None),
        ({"version": "1"}, None),
        ({**MINE.values, "node.id": "2"}, "it belongs to broker 2, not to 1"),
        ({"version": "0", "broker.id": "3"}, "it belongs to broker 3, not to 1"),
        ({**MINE.values, "cluster.id": "xyz"}, "it belongs to cluster xyz, not to abc"),
    ],
)
def test_mismatch_of_cluster_and_broker_id(values: dict[str, str], problem: str | None) -> None:
    assert MetaProperties(values).mismatch("abc", 1) == problem
