"""Several log directories behind one interface: placement, checkpoints, marks, failures."""

from copy import deepcopy

import pytest
from storage_kit import SMALL, fill

from tidelog.core.storage import checkpoint, layout
from tidelog.core.storage.disk import DiskError
from tidelog.core.storage.log import LogOffline
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.log_directories import (
    DuplicateLog,
    LogDirectories,
    LogDisk,
    open_directories,
)
from tidelog.core.storage.log_directory import LogDirectory, NewLog
from tidelog.core.storage.segment.damage import Damage
from tidelog.core.types import StorePoint, TopicPartition
from tidelog.lab.memory_disk import MemoryDisk

TOPIC_ID = bytes(range(16))
NAMES = [TopicPartition("orders", number) for number in range(4)]


class BreakingDisk(MemoryDisk):
    """A disk that fails every write, read and listing while `broken` is set."""

    broken = False

    def _created(self, path: str) -> bytearray:
        self._check(path)
        return super()._created(path)

    def list_dir(self, path: str) -> list[str]:
        self._check(path)
        return super().list_dir(path)

    def read(self, path: str, position: int, length: int) -> bytes:
        self._check(path)
        return super().read(path, position, length)

    def sync(self, path: str) -> None:
        self._check(path)

    def sync_dir(self, path: str) -> None:
        self._check(path)

    def _check(self, path: str) -> None:
        if self.broken:
            raise DiskError("input/output error", path)


class Machine:
    """Two disks, and the directories on them."""

    def __init__(self) -> None:
        self.disks = [BreakingDisk(), BreakingDisk()]

    def open(self) -> LogDirectories:
        disks = [LogDisk(path, disk) for path, disk in zip("ab", self.disks, strict=True)]
        opened = open_directories(disks, 0, _small)
        assert isinstance(opened, LogDirectories)
        return opened

    def create(self) -> LogDirectories:
        """Four logs, two in each directory, with 5 records each."""
        directories = self.open()
        new = [NewLog(name, TOPIC_ID, SMALL) for name in NAMES]
        directories.seen = StorePoint(7, 1)
        directories.create_all(new, 0, revision=7)
        for name in NAMES:
            fill(directories.logs[name], 5)
        return directories


def _small(_: TopicPartition) -> LogConfig:
    return SMALL


def folders(disk: MemoryDisk) -> list[str]:
    return [name for name in disk.list_dir("") if disk.is_dir(name)]


def test_one_directory_is_used_directly() -> None:
    assert isinstance(open_directories(MemoryDisk(), 0), LogDirectory)
    assert isinstance(open_directories([LogDisk("a", MemoryDisk())], 0), LogDirectory)


def test_new_logs_go_to_the_directory_with_the_fewest() -> None:
    machine = Machine()
    directories = machine.create()
    assert [folders(disk) for disk in machine.disks] == [
        ["orders-0", "orders-2"],
        ["orders-1", "orders-3"],
    ]
    assert [directories.place_of(name) for name in NAMES] == [0, 1, 0, 1]
    directories.delete_all([NAMES[1], NAMES[3]], 0)
    for number in (4, 5):
        directories.create_all([NewLog(TopicPartition("orders", number), TOPIC_ID, SMALL)], 0)
    assert len(directories.partitions_in(1)) == 2
    assert machine.open().logs.keys() == directories.logs.keys()


def test_each_directory_has_the_checkpoints_of_its_own_logs() -> None:
    machine = Machine()
    directories = machine.create()
    directories.write_high_watermarks(dict.fromkeys(NAMES, 3))
    directories.write_recovery_points()
    directories.damaged[NAMES[1]] = Damage(2, "a test", True)
    directories.save_damage()
    for place, disk in enumerate(machine.disks):
        own = {name for name in NAMES if directories.place_of(name) == place}
        for name in (layout.HIGH_WATERMARKS, layout.RECOVERY_POINTS):
            data = disk.read(name, 0, disk.size(name))
            assert checkpoint.parse_offsets(name, data).keys() == own
        assert disk.exists(layout.DAMAGED_LOGS) == (place == 1)
    again = machine.open()
    assert {again.high_watermarks[name] for name in NAMES} == {3}
    assert (again.revision, again.seen) == (7, StorePoint(7, 1))


def test_a_stop_is_clean_only_if_every_directory_has_its_mark() -> None:
    machine = Machine()
    machine.create().close(dict.fromkeys(NAMES, 5), broker_epoch=9)
    lost_mark = deepcopy(machine)
    again = machine.open()
    assert (again.clean, again.broker_epoch) == (True, 9)
    lost_mark.disks[1].delete(layout.CLEAN_SHUTDOWN)
    unclean = lost_mark.open()
    assert (unclean.clean, unclean.broker_epoch) == (False, -1)
    assert unclean.opened[0].clean, "the logs of this directory need no recovery"


def test_a_refused_store_leaves_the_marks() -> None:
    machine = Machine()
    machine.create().close(dict.fromkeys(NAMES, 5), broker_epoch=9)
    machine.open().restore_mark()
    assert machine.open().broker_epoch == 9


def test_a_replaced_disk_does_not_make_its_logs_look_new() -> None:
    machine = Machine()
    machine.create()
    machine.disks[1] = BreakingDisk()
    again = machine.open()
    assert again.revision == 7
    assert set(again.logs) == {NAMES[0], NAMES[2]}


def test_the_same_partition_in_two_directories_is_refused() -> None:
    machine = Machine()
    machine.create()
    for path, data in list(machine.disks[0].files.items()):
        if path.startswith("orders-0/"):
            machine.disks[1].make_dir("orders-0")
            machine.disks[1].files[path] = bytearray(data)
    before = [dict(disk.files) for disk in machine.disks]
    with pytest.raises(DuplicateLog, match="a/orders-0 and b/orders-0"):
        machine.open()
    assert [disk.files for disk in machine.disks] == before


def test_an_older_folder_of_a_partition_is_set_aside() -> None:
    """Its disk was offline while the partition's log was created again elsewhere."""
    machine = Machine()
    directories = machine.create()
    machine.disks[1].broken = True
    directories.write_recovery_points()
    directories.delete_all([NAMES[1]], 0)
    directories.create_all([NewLog(NAMES[1], bytes(16), SMALL)], 0, revision=8)
    assert directories.place_of(NAMES[1]) == 0
    machine.disks[1].broken = False
    again = machine.open()
    assert again.place_of(NAMES[1]) == 0
    assert again.logs[NAMES[1]].log_end_offset == 0
    assert any(name.endswith("-stray") for name in folders(machine.disks[1]))


def test_a_failed_directory_takes_only_its_logs_offline() -> None:
    machine = Machine()
    directories = machine.create()
    machine.disks[1].broken = True
    directories.write_recovery_points()
    assert list(directories.newly_failed) == list(directories.offline) == [1]
    with pytest.raises(LogOffline):
        fill(directories.logs[NAMES[1]], 1)
    fill(directories.logs[NAMES[0]], 1)
    assert [directories.is_offline(name) for name in NAMES] == [False, True, False, True]
    directories.create_all([NewLog(TopicPartition("new", 0), TOPIC_ID, SMALL)], 0)
    assert directories.place_of(TopicPartition("new", 0)) == 0


def test_a_directory_that_fails_while_logs_are_created_gets_none() -> None:
    machine = Machine()
    directories = machine.create()
    machine.disks[0].broken = True
    new = [NewLog(TopicPartition("new", number), TOPIC_ID, SMALL) for number in range(2)]
    directories.create_all(new, 0, revision=8)
    assert list(directories.offline) == [0]
    assert {directories.place_of(one.partition) for one in new} == {1}
    machine.disks[0].broken = False
    assert machine.open().revision == 8


class BreakingAt(BreakingDisk):
    """A disk that fails from the first use of a segment of the second log on."""

    start = "orders-2/0000"

    def _check(self, path: str) -> None:
        self.broken |= path.startswith(self.start)
        super()._check(path)


def test_a_directory_that_fails_after_the_first_of_two_logs_has_neither() -> None:
    machine = Machine()
    machine.disks[0] = BreakingAt()
    directories = machine.open()
    directories.create_all([NewLog(name, TOPIC_ID, SMALL) for name in NAMES], 0, revision=7)
    assert list(directories.offline) == [0]
    assert sorted(directories.of_topic("orders")) == NAMES
    directories.delete_all(NAMES, 0)
    assert directories.of_topic("orders") == []
    assert dict(directories.high_watermarks) == {}


def test_the_failure_of_the_last_directory_is_raised() -> None:
    machine = Machine()
    directories = machine.create()
    machine.disks[1].broken = True
    directories.write_recovery_points()
    machine.disks[0].broken = True
    with pytest.raises(DiskError):
        directories.write_recovery_points()


def test_a_directory_that_fails_at_startup_is_offline() -> None:
    machine = Machine()
    machine.create().close({}, broker_epoch=9)
    machine.disks[0].broken = True
    directories = machine.open()
    assert list(directories.offline) == [0]
    assert directories.broker_epoch == -1, "logs on the failed disk may lack records"
    assert set(directories.logs) == {NAMES[1], NAMES[3]}
    assert directories.disk is machine.disks[1]
    machine.disks[1].broken = True
    with pytest.raises(DiskError):
        machine.open()


def test_a_directory_that_failed_gets_no_mark_of_a_clean_stop() -> None:
    machine = Machine()
    directories = machine.create()
    machine.disks[1].broken = True
    directories.close(dict.fromkeys(NAMES, 5), broker_epoch=9)
    machine.disks[1].broken = False
    again = machine.open()
    assert (again.clean, again.broker_epoch) == (False, -1)
    assert again.opened[0].clean
    assert {again.logs[name].log_end_offset for name in NAMES} == {5}


def test_a_folder_whose_creation_failed_is_deleted() -> None:
    machine = Machine()
    machine.create()
    machine.disks[1].make_dir("orders-0")
    machine.disks[1].files["orders-0/partition.metadata.tmp"] = bytearray(b"versi")
    again = machine.open()
    assert again.place_of(NAMES[0]) == 0
    assert again.logs[NAMES[0]].log_end_offset == 5
    assert "orders-0" not in folders(machine.disks[1])
