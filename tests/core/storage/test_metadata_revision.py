"""A log directory stores the metadata revision up to which its logs were created."""

import pytest

from tidelog.core.storage import layout
from tidelog.core.storage.checkpoint import MetadataRevision
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.log_directory import LogDirectory, NewLog
from tidelog.core.types import StorePoint, TopicPartition
from tidelog.lab.memory_disk import MemoryDisk

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = b"t" * 16


def test_revision_is_written_with_the_logs() -> None:
    disk = MemoryDisk()
    directory = LogDirectory.open(disk, 0)
    assert LogDirectory.open(disk, 0).revision is None
    directory.write_revision(7)
    assert LogDirectory.open(disk, 0).revision == 7
    directory.create_all([NewLog(ORDERS, TOPIC_ID, LogConfig())], 0, 12)
    assert directory.revision == 12
    again = LogDirectory.open(disk, 0)
    assert (again.revision, set(again.logs)) == (12, {ORDERS})
    assert disk.read(layout.METADATA_REVISION, 0, 100).startswith(b"1\n12\n-1 0\n")


def test_last_applied_revision_is_stored() -> None:
    disk = MemoryDisk()
    directory = LogDirectory.open(disk, 0)
    directory.write_seen(StorePoint(7, 99))
    again = LogDirectory.open(disk, 0)
    assert (again.revision, again.seen) == (None, StorePoint(7, 99))
    again.write_revision(8)
    assert LogDirectory.open(disk, 0).seen == StorePoint(7, 99)


def test_the_format_of_earlier_releases_is_read() -> None:
    disk = MemoryDisk()
    disk.write(layout.METADATA_REVISION, b"0\n12\n")
    directory = LogDirectory.open(disk, 0)
    assert (directory.revision, directory.seen) == (12, StorePoint(12, 0))


def test_creating_a_log_without_a_revision_writes_none() -> None:
    disk = MemoryDisk()
    LogDirectory.open(disk, 0).create(ORDERS, TOPIC_ID, 0)
    directory = LogDirectory.open(disk, 0)
    assert directory.revision is None
    assert not directory.revision_damaged
    assert not disk.exists(layout.METADATA_REVISION)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"0",
        b"1\n5\n",
        b"0\nfive\n",
        b"0\n5\n6\n",
        b"\xff\xff",
        MetadataRevision(5, StorePoint(6, 7)).format().replace(b"6", b"5", 1),
        MetadataRevision(5, StorePoint(6, 7)).format()[:-2],
    ],
)
def test_unreadable_revision_is_damaged(data: bytes) -> None:
    disk = MemoryDisk()
    disk.write(layout.METADATA_REVISION, data)
    directory = LogDirectory.open(disk, 0)
    assert (directory.revision, directory.seen) == (None, None)
    assert directory.revision_damaged
    assert "metadata-revision is damaged" in directory.warnings[0]
