"""A log directory knows up to which revision of the metadata its logs were made."""

import pytest

from tidelog.core.storage import layout
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.log_directory import LogDirectory, NewLog
from tidelog.core.types import TopicPartition
from tidelog.lab.memory_disk import MemoryDisk

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = b"t" * 16


def test_it_is_written_with_the_logs() -> None:
    disk = MemoryDisk()
    directory = LogDirectory.open(disk, 0)
    assert LogDirectory.open(disk, 0).revision is None
    directory.write_revision(7)
    assert LogDirectory.open(disk, 0).revision == 7
    directory.create_all([NewLog(ORDERS, TOPIC_ID, LogConfig())], 0, 12)
    assert directory.revision == 12
    again = LogDirectory.open(disk, 0)
    assert (again.revision, set(again.logs)) == (12, {ORDERS})
    assert disk.read(layout.METADATA_REVISION, 0, 100) == b"0\n12\n"


def test_who_does_not_know_it_changes_nothing() -> None:
    disk = MemoryDisk()
    LogDirectory.open(disk, 0).create(ORDERS, TOPIC_ID, 0)
    assert LogDirectory.open(disk, 0).revision is None
    assert not disk.exists(layout.METADATA_REVISION)


@pytest.mark.parametrize("data", [b"", b"0", b"1\n5\n", b"0\nfive\n", b"0\n5\n6\n", b"\xff\xff"])
def test_what_cannot_be_read_tells_nothing(data: bytes) -> None:
    disk = MemoryDisk()
    disk.write(layout.METADATA_REVISION, data)
    assert LogDirectory.open(disk, 0).revision is None
