"""A log moves to another directory of the same broker; a crash at any time loses no record."""

from collections.abc import Callable, Sequence

import pytest
from storage_kit import SMALL, Crash, contents, fill, truncate

from tidelog.core.record.crc32c import Buffer
from tidelog.core.storage import layout
from tidelog.core.storage.disk import DiskError
from tidelog.core.storage.log import Log
from tidelog.core.storage.log_directories import LogDirectories, LogDisk, open_directories
from tidelog.core.storage.log_directory import NewLog
from tidelog.core.types import TopicPartition
from tidelog.lab.disk_pair import DiskPair
from tidelog.lab.memory_disk import MemoryDisk

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = bytes(range(16))
FUTURE = layout.marked_dir(ORDERS, TOPIC_ID, "future")
DELETED = layout.marked_dir(ORDERS, TOPIC_ID, "delete")
MARK = f"{FUTURE}/{layout.MOVE_COMPLETE}"
CHANGES_MAX = 400
PIECE = 200


class Countdown:
    """How many changes to both disks succeed before the next one fails."""

    def __init__(self) -> None:
        self.left = 2**31
        self.error: BaseException = Crash()


class MovingDisk(MemoryDisk):
    """A disk that fails at a change, and knows what survives a power failure."""

    def __init__(self, countdown: Countdown) -> None:
        super().__init__()
        self.countdown = countdown
        self._tokens = {"": object()}
        """The identity of each directory, which a rename keeps."""
        self._synced: dict[int, bytes] = {}
        self._kept: list[bytearray] = []
        self._names: dict[object, dict[str, bytearray]] = {}
        self._folders: dict[str, object] = {}

    def _change(self) -> None:
        self.countdown.left -= 1
        if self.countdown.left < 0:
            raise self.countdown.error

    def append(self, path: str, buffers: Sequence[Buffer]) -> int:
        if self.countdown.left == 0:
            joined = b"".join(buffers)
            super().append(path, [joined[: len(joined) // 2]])
        self._change()
        return super().append(path, buffers)

    def write(self, path: str, data: Buffer) -> None:
        self._change()
        super().write(path, data)

    def make_dir(self, path: str) -> None:
        self._change()
        self._tokens.setdefault(path, object())
        super().make_dir(path)

    def rename(self, old: str, new: str) -> None:
        self._change()
        super().rename(old, new)
        if old in self._tokens:
            self._tokens[new] = self._tokens.pop(old)

    def delete(self, path: str) -> None:
        self._change()
        super().delete(path)

    def delete_dir(self, path: str) -> None:
        inside = sorted(name for name in self.files if name.startswith(path + "/"))
        for name in inside:
            self._change()
            super().delete(name)
        super().delete_dir(path)
        self._tokens.pop(path, None)

    def truncate(self, path: str, size: int) -> None:
        self._change()
        super().truncate(path, size)

    def sync(self, path: str) -> None:
        self._change()
        super().sync(path)
        self._kept.append(self.files[path])
        self._synced[id(self.files[path])] = bytes(self.files[path])

    def sync_dir(self, path: str) -> None:
        self._change()
        super().sync_dir(path)
        self._names[self._tokens[path]] = {
            name.rpartition("/")[2]: data
            for name, data in self.files.items()
            if name.rpartition("/")[0] == path
        }
        if not path:
            self._folders = {name: token for name, token in self._tokens.items() if name}

    def survivor(self, *, power: bool) -> "MovingDisk":
        """The disk after the process was killed, or after a power failure."""
        disk = MovingDisk(Countdown())
        if not power:
            disk.files = {path: bytearray(data) for path, data in self.files.items()}
            disk.directories = set(self.directories)
            disk._tokens = {name: object() for name in self.directories}
            return disk
        folders = {"": self._tokens[""], **self._folders}
        for folder, token in folders.items():
            disk.directories.add(folder)
            disk._tokens.setdefault(folder, object())
            for name, data in self._names.get(token, {}).items():
                kept = bytearray(self._synced.get(id(data), b""))
                disk.files[f"{folder}/{name}" if folder else name] = kept
        return disk


class Machine:
    """Two disks; the log is on the first, with several segments."""

    def __init__(self, disks: list[MovingDisk] | None = None) -> None:
        self.countdown = Countdown()
        self.disks = disks or [MovingDisk(self.countdown), MovingDisk(self.countdown)]
        self.directories = self.open()

    def open(self) -> LogDirectories:
        disks = [LogDisk(path, disk) for path, disk in zip("ab", self.disks, strict=True)]
        opened = open_directories(disks, 0, lambda _: SMALL)
        assert isinstance(opened, LogDirectories)
        return opened

    def create(self) -> "Machine":
        self.directories.create_all([NewLog(ORDERS, TOPIC_ID, SMALL)], 0, revision=7)
        fill(self.log, 20)
        self.log.flush()
        return self

    @property
    def log(self) -> Log:
        return self.directories.logs[ORDERS]

    def copy(self) -> None:
        """Copy until the copy has caught up."""
        while not self.directories.copy_some(ORDERS, PIECE).caught_up:
            pass

    def complete(self) -> None:
        marks = {ORDERS: self.log.log_end_offset}
        self.directories.complete_move(ORDERS, marks, 0)

    def move(self) -> None:
        self.directories.move(ORDERS, 1)
        self.copy()
        self.complete()

    def after(self, *, power: bool = False) -> "Machine":
        """The machine after a kill or a power failure, with all directories open again."""
        return Machine([disk.survivor(power=power) for disk in self.disks])

    def folders(self) -> list[list[str]]:
        return [[name for name in disk.list_dir("") if "orders-0" in name] for disk in self.disks]


def test_a_log_moves_with_its_records_and_continues_there() -> None:
    machine = Machine().create()
    log, before = machine.log, contents(machine.log)
    machine.directories.set_cleaner_offset(ORDERS, 4)
    machine.move()
    assert machine.log is log
    assert machine.directories.place_of(ORDERS) == 1
    assert machine.folders() == [[DELETED], ["orders-0"]]
    assert contents(log) == before
    fill(log, 5, epoch=1)
    after = contents(log)
    assert machine.directories.opened[1].cleaner_offsets[ORDERS] == 4
    machine.directories.close({ORDERS: 25})
    again = machine.after()
    assert contents(again.log) == after
    assert again.directories.high_watermarks[ORDERS] == 25
    assert again.directories.reports[ORDERS].lines() == []
    assert again.log.epochs.entries == log.epochs.entries
    assert again.log.topic_id == TOPIC_ID


def test_the_copy_follows_a_log_that_grows_and_rolls() -> None:
    machine = Machine().create()
    machine.directories.move(ORDERS, 1)
    for _ in range(30):
        machine.directories.copy_some(ORDERS, PIECE)
        fill(machine.log, 1)
    machine.copy()
    fill(machine.log, 3)
    machine.complete()
    assert machine.log.log_end_offset == 53
    assert len(contents(machine.log)) == 53
    assert contents(machine.after().log) == contents(machine.log)


def _cut_end(log: Log) -> None:
    truncate(log, 7)
    fill(log, 20, epoch=3)


def _cut_within_segment(log: Log) -> None:
    truncate(log, 19)
    fill(log, 1, epoch=3)


def _restart(log: Log) -> None:
    log.restart_at(100)
    fill(log, 3, epoch=3)


def _drop_start(log: Log) -> None:
    log.drop_before(11, 0)


def _drop_all(log: Log) -> None:
    log.drop_before(20, 0)


CHANGES: list[Callable[[Log], None]] = [
    _cut_end,
    _cut_within_segment,
    _restart,
    _drop_start,
    _drop_all,
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("pieces", [1, 2, 5, 100])
def test_truncation_and_deletion_apply_to_the_copy(
    change: Callable[[Log], None], pieces: int
) -> None:
    machine = Machine().create()
    machine.directories.move(ORDERS, 1)
    for _ in range(pieces):
        machine.directories.copy_some(ORDERS, PIECE)
    copy = machine.directories.moves[ORDERS].copy
    assert copy is not None
    copied = copy.copied
    change(machine.log)
    before = contents(machine.log)
    machine.copy()
    machine.complete()
    assert copy.copied >= copied, "what a quota counted counts on"
    assert contents(machine.log) == before
    again = machine.after()
    assert contents(again.log) == before
    assert again.log.log_start_offset == machine.log.log_start_offset
    assert again.log.epochs.entries == machine.log.epochs.entries
    files = [name for name in machine.disks[1].list_dir("orders-0") if name.endswith(".log")]
    assert len(files) == len(machine.log.segments)


def test_a_deleted_log_has_no_copy() -> None:
    machine = Machine().create()
    machine.directories.move(ORDERS, 1)
    machine.directories.copy_some(ORDERS, PIECE)
    assert machine.folders()[1] == [FUTURE]
    machine.directories.delete_all([ORDERS], 0)
    assert machine.folders() == [[DELETED], []]
    assert not machine.directories.moves


def test_a_move_to_the_own_directory_ends_another_move() -> None:
    machine = Machine().create()
    machine.directories.move(ORDERS, 1)
    machine.copy()
    machine.directories.move(ORDERS, 0)
    assert machine.folders() == [["orders-0"], []]
    assert not machine.directories.moves


def test_a_log_moves_there_and_back() -> None:
    machine = Machine().create()
    machine.move()
    fill(machine.log, 5)
    machine.directories.move(ORDERS, 0)
    machine.copy()
    machine.complete()
    assert machine.folders() == [["orders-0", DELETED], [DELETED]]
    assert len(contents(machine.log)) == 25
    again = machine.after()
    assert contents(again.log) == contents(machine.log)
    assert again.log.recovery_point == machine.log.recovery_point


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_between_any_two_changes_loses_no_record(power: bool) -> None:
    outcomes = set()
    for changes in range(CHANGES_MAX):
        machine = Machine().create()
        before = contents(machine.log)
        machine.countdown.left = changes
        done = True
        try:
            machine.move()
        except Crash:
            done = False
        again = machine.after(power=power)
        assert contents(again.log) == before, changes
        assert again.log.log_end_offset == 20
        assert again.log.topic_id == TOPIC_ID
        assert ORDERS not in again.directories.damaged
        folders = again.folders()
        assert sum(names.count("orders-0") for names in folders) == 1
        assert not any(FUTURE in names for names in folders)
        fill(again.log, 3)
        third = again.after()
        assert len(contents(third.log)) == 23, "the log is used after the next crash too"
        outcomes.add(again.directories.place_of(ORDERS))
        if done:
            assert again.directories.place_of(ORDERS) == 1
            break
    else:
        pytest.fail("the move did not end")
    assert outcomes == {0, 1}


def test_a_disk_error_at_any_change_loses_no_record() -> None:
    for changes in range(CHANGES_MAX):
        machine = Machine().create()
        before = contents(machine.log)
        machine.countdown.left = changes
        machine.countdown.error = DiskError("input/output error", "orders-0")
        done = True
        try:
            machine.move()
        except DiskError:
            done = False
            machine.countdown.left = 2**31
            machine.directories.cancel_move(ORDERS)
            assert machine.folders() == [["orders-0"], []]
            fill(machine.log, 2)
        again = machine.after()
        assert contents(again.log)[:20] == before, changes
        if machine.directories.offline:
            assert machine.log.offline, "a rename failed"
            continue
        assert contents(again.log) == contents(machine.log)
        if done:
            return
    pytest.fail("the move did not end")


def _crashed_between_renames() -> Machine:
    """The log was renamed in the source directory, the copy not yet in the target."""
    for changes in range(CHANGES_MAX):
        machine = Machine().create()
        machine.countdown.left = changes
        try:
            machine.move()
        except Crash:
            if machine.folders() == [[DELETED], [FUTURE]]:
                return machine
    pytest.fail("no crash between the renames")


def test_a_complete_copy_is_used_only_if_all_directories_can_be_read() -> None:
    machine = _crashed_between_renames()
    disks = [disk.survivor(power=False) for disk in machine.disks]
    opened = open_directories(
        [LogDisk("a", None, "input/output error"), LogDisk("b", disks[1])], 0, lambda _: SMALL
    )
    assert ORDERS not in opened.logs
    assert FUTURE in disks[1].list_dir("")
    assert len(contents(Machine(disks).log)) == 20


def test_a_complete_copy_is_deleted_if_the_log_exists() -> None:
    machine = Machine().create()
    machine.directories.move(ORDERS, 1)
    machine.copy()
    copy = machine.directories.moves[ORDERS].copy
    assert copy is not None
    copy.finish()
    copy.mark_complete()
    fill(machine.log, 5)
    again = machine.after()
    assert again.folders() == [["orders-0"], []]
    assert len(contents(again.log)) == 25


def test_an_incomplete_copy_is_deleted_at_startup() -> None:
    machine = Machine().create()
    machine.directories.move(ORDERS, 1)
    machine.copy()
    assert not machine.disks[1].exists(MARK)
    machine.directories.delete_all([], 0)
    machine.disks[0].delete_dir("orders-0")
    again = machine.after()
    assert again.folders() == [[], []]
    assert ORDERS not in again.directories.logs


def test_a_failed_target_directory_ends_the_move() -> None:
    machine = Machine().create()
    machine.directories.move(ORDERS, 1)
    machine.copy()
    machine.directories.fail(1, DiskError("input/output error", ""))
    assert not machine.directories.moves
    assert not machine.directories.can_move(ORDERS, 1)
    fill(machine.log, 5)
    assert len(contents(machine.log)) == 25


def test_a_failed_source_directory_ends_the_move_and_removes_the_copy() -> None:
    machine = Machine().create()
    machine.directories.move(ORDERS, 1)
    machine.copy()
    machine.directories.fail(0, DiskError("input/output error", ""))
    assert machine.folders()[1] == []
    assert machine.directories.is_offline(ORDERS)


def test_a_copy_that_cannot_be_deleted_takes_its_directory_offline() -> None:
    """Or a complete copy stays, while the log continues in the other directory."""
    pair = DiskPair(MemoryDisk)
    directories = open_directories(pair.log_disks, 0)
    assert isinstance(directories, LogDirectories)
    directories.create_all([NewLog(ORDERS, TOPIC_ID, SMALL)], 0)
    directories.move(ORDERS, 1)
    directories.copy_some(ORDERS, PIECE)
    pair.disks[1].broken = True
    with pytest.raises(DiskError):
        directories.complete_move(ORDERS, {ORDERS: 0}, 0)
    directories.cancel_move(ORDERS)
    pair.disks[1].broken = False
    assert list(directories.offline) == [1]
