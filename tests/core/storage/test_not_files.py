"""Directories and broken links with the name of a file affect one log or checkpoint; the broker
starts."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from storage_kit import SMALL, contents, fill

from tidelog.core.storage import layout
from tidelog.core.storage.disk import Disk, DiskError, DiskFull, NotPermitted
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.log_directory import LogDirectory
from tidelog.core.types import TopicPartition
from tidelog.lab.memory_disk import MemoryDisk
from tidelog.shell.os_disk import OsDisk

DISKS: list[OsDisk] = []
"""Those of the test that runs."""


@pytest.fixture(autouse=True)
def _close_disks() -> Iterator[None]:
    yield
    while DISKS:
        DISKS.pop().close()


def os_disk(path: Path) -> OsDisk:
    DISKS.append(OsDisk(str(path)))
    return DISKS[-1]


ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 3)
FIRST, SECOND, THIRD = (f"{base:020d}.log" for base in (0, 7, 14))
ROOT_FILES = (
    layout.RECOVERY_POINTS,
    layout.HIGH_WATERMARKS,
    layout.LOG_STARTS,
    layout.CLEANER_OFFSETS,
    layout.CHECKPOINT_CHECKSUMS,
    layout.META_PROPERTIES,
    layout.CLEAN_SHUTDOWN,
    layout.METADATA_REVISION,
    layout.METADATA_COPY,
    layout.CONFIRMED_CLOCK,
    layout.HIGH_WATERMARKS + ".tmp",
)
STRAY = f"orders-0.{0:032x}-stray"


def small(_: TopicPartition) -> LogConfig:
    return SMALL


def opened(disk: Disk) -> LogDirectory:
    return LogDirectory.open(disk, 0, small)


def write_two_logs(disk: Disk, *, cleaned: bool = False) -> None:
    """Twenty records in three segments of `orders-0`, three in `bills-3`; a clean stop."""
    directory = opened(disk)
    for partition, count in ((ORDERS, 20), (BILLS, 3)):
        fill(directory.create(partition, bytes(range(16)), 0, SMALL, revision=5), count)
    directory.set_cleaner_offset(BILLS, 1)
    if cleaned:
        directory.set_cleaner_offset(ORDERS, 4)
    directory.close({ORDERS: 20, BILLS: 3}, broker_epoch=9)


def put(root: Path, name: str, what: str) -> None:
    """Put something that is not a regular file in the place of a file."""
    path = root / name
    path.unlink(missing_ok=True)
    if what == "directory":
        path.mkdir()
        (path / "inside").write_text("kept")
    elif what == "loop":
        path.symlink_to(path)
    elif what == "dangling link":
        path.symlink_to(root / "nothing")
    else:
        os.mkfifo(path)


WHATS = ("directory", "loop", "dangling link", "pipe")


@pytest.mark.parametrize("what", WHATS)
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("name", "damaged_from"),
    [
        (FIRST, 0),
        (SECOND, 7),
        (THIRD, 14),
        (f"{7:020d}.index", None),
        (f"{7:020d}.timeindex", None),
        (f"{14:020d}.snapshot", None),
        (f"{7:020d}.log.swap", None),
        (layout.LEADER_EPOCHS, None),
        (layout.LEADER_EPOCHS + ".tmp", None),
        (layout.PARTITION_METADATA, None),
    ],
)
def test_a_partitions_file_that_is_not_a_file_counts_as_missing(
    tmp_path: Path, name: str, damaged_from: int | None, clean: bool, what: str
) -> None:
    write_two_logs(os_disk(tmp_path))
    if not clean:
        (tmp_path / layout.CLEAN_SHUTDOWN).unlink()
    put(tmp_path / "orders-0", name, what)
    disk = os_disk(tmp_path)
    directory = opened(disk)
    assert directory.logs.keys() == {ORDERS, BILLS}
    moved = f"orders-0/{name} is not a file: moved to orders-0/{name}.damaged"
    assert moved in directory.reports[ORDERS].warnings
    assert os.path.lexists(tmp_path / "orders-0" / f"{name}.damaged")
    damage = directory.damaged.get(ORDERS)
    assert (damage and damage.offset) == damaged_from
    if damaged_from is None:
        log = directory.logs[ORDERS]
        assert len(contents(log)) == 20
        fill(log, 20)
        directory.close({ORDERS: 40, BILLS: 3})
        again = opened(os_disk(tmp_path))
        assert (again.damaged, again.logs[ORDERS].log_end_offset) == ({}, 40)
        assert again.reports[ORDERS].warnings == []


@pytest.mark.parametrize("what", WHATS)
@pytest.mark.parametrize("name", ROOT_FILES)
def test_a_checkpoint_that_is_not_a_file_is_moved_and_rewritten(
    tmp_path: Path, name: str, what: str
) -> None:
    write_two_logs(os_disk(tmp_path))
    put(tmp_path, name, what)
    directory = opened(os_disk(tmp_path))
    assert f"{name} is not a file: moved to {name}.damaged" in directory.warnings
    assert os.path.lexists(tmp_path / f"{name}.damaged")
    assert directory.clean == (name != layout.CLEAN_SHUTDOWN)
    assert directory.revision_damaged == (name == layout.METADATA_REVISION)
    assert not directory.damaged
    assert [log.log_end_offset for log in directory.logs.values()] == [3, 20]
    directory.write_revision(6)
    directory.close({ORDERS: 20, BILLS: 3})
    put(tmp_path, name, what)
    directory = opened(os_disk(tmp_path))
    assert f"{name} is not a file: moved to {name}.damaged-2" in directory.warnings


def test_names_that_brokers_do_not_use_are_left_alone(tmp_path: Path) -> None:
    write_two_logs(os_disk(tmp_path))
    for name in ("lost+found", "orders-0/notes", "orders-0/README"):
        (tmp_path / name).mkdir()
    directory = opened(os_disk(tmp_path))
    assert (directory.warnings, directory.reports[ORDERS].warnings) == ([], [])
    assert (tmp_path / "orders-0/notes").is_dir()


@pytest.mark.parametrize("what", [*WHATS[1:], "file"])
def test_an_entry_with_a_partitions_name_is_renamed_for_its_folder(
    tmp_path: Path, what: str
) -> None:
    write_two_logs(os_disk(tmp_path))
    for number in range(2):
        for path in (tmp_path / "orders-0").glob("*"):
            path.unlink()
        (tmp_path / "orders-0").rmdir()
        if what == "file":
            (tmp_path / "orders-0").write_text("kept")
        else:
            put(tmp_path, "orders-0", what)
        directory = opened(os_disk(tmp_path))
        assert directory.logs.keys() == {BILLS}
        assert directory.warnings == [
            "orders-0 has a partition's name but is not a folder; ignored"
        ]
        fill(directory.create(ORDERS, bytes(16), 0, SMALL), 5)
        marked = f"orders-0.{number:032x}-stray"
        renamed = f"orders-0 renamed to {marked}, because a new log needs its name"
        assert directory.warnings[1:] == [renamed], "nothing is replaced"
        assert os.path.lexists(tmp_path / marked)
        directory.close({})
    assert opened(os_disk(tmp_path)).logs[ORDERS].log_end_offset == 5


class BadFile(MemoryDisk):
    """A disk on which reads of one file fail, and writes if `broken`."""

    def __init__(self) -> None:
        super().__init__()
        self.bad = ""
        self.error: type[DiskError] = DiskError
        self.broken = False

    def read(self, path: str, position: int, length: int) -> bytes:
        if path == self.bad:
            raise self.error("Input/output error", path)
        return super().read(path, position, length)

    def sync(self, path: str) -> None:
        if self.broken:
            raise DiskError("Input/output error", path)
        super().sync(path)


@pytest.fixture
def bad() -> BadFile:
    """A disk on which the topic id of `orders-0` can't be read."""
    disk = BadFile()
    write_two_logs(disk, cleaned=True)
    disk.bad = f"orders-0/{layout.PARTITION_METADATA}"
    return disk


def test_a_log_that_cannot_be_opened_is_left_out_and_the_others_are_served(bad: BadFile) -> None:
    before = {path: bytes(data) for path, data in bad.files.items() if "orders-0/" in path}
    directory = opened(bad)
    assert directory.logs.keys() == {BILLS}
    assert directory.unreadable == {ORDERS}
    [warning] = directory.warnings
    assert warning.startswith(f"{bad.bad}: Input/output error: orders-0 can't be opened")
    assert directory.broker_epoch == -1, "this was no clean stop: records are missing"
    assert {path: bytes(bad.files[path]) for path in before} == before
    assert not any(layout.DISK_CHECK in path for path in bad.files)


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_can_be_opened_again_has_its_checkpoints(bad: BadFile, clean: bool) -> None:
    directory = opened(bad)
    fill(directory.logs[BILLS], 2)
    directory.write_recovery_points()
    directory.write_log_starts()
    directory.write_high_watermarks({BILLS: 4})
    directory.set_cleaner_offset(BILLS, 2)
    if clean:
        directory.close({BILLS: 5})
    bad.bad = ""
    again = opened(bad)
    assert again.high_watermarks == {ORDERS: 20, BILLS: 5 if clean else 4}
    assert again.logs[ORDERS].recovery_point == 20
    assert again.cleaner_offsets == {ORDERS: 4, BILLS: 2}
    assert (again.damaged, again.warnings) == ({}, [])


def test_a_new_log_takes_nothing_from_the_one_that_could_not_be_opened(bad: BadFile) -> None:
    before = {path: bytes(data) for path, data in bad.files.items() if "orders-0/" in path}
    directory = opened(bad)
    bad.bad = ""
    fill(directory.create(ORDERS, bytes(16), 0, SMALL), 2)
    assert directory.unreadable == set()
    assert directory.warnings[1:] == [
        f"orders-0 renamed to {STRAY}, because a new log needs its name"
    ]
    directory.write_recovery_points()
    directory.write_high_watermarks({ORDERS: 1, BILLS: 3})
    kept = {path.replace("orders-0/", f"{STRAY}/"): data for path, data in before.items()}
    assert {path: bytes(bad.files[path]) for path in kept} == kept
    again = opened(bad)
    assert (again.logs[ORDERS].log_end_offset, again.high_watermarks[ORDERS]) == (2, 1)
    assert (again.damaged, again.cleaner_offsets) == ({}, {BILLS: 1})


@pytest.mark.parametrize("error", [DiskFull, NotPermitted])
def test_missing_space_or_permissions_end_the_start(bad: BadFile, error: type[DiskError]) -> None:
    bad.error = error
    with pytest.raises(error):
        opened(bad)
    assert bad.is_dir("orders-0")


def test_a_disk_that_fails_ends_the_start(bad: BadFile) -> None:
    bad.broken = True
    with pytest.raises(DiskError, match=bad.bad):
        opened(bad)
    assert bad.is_dir("orders-0")
