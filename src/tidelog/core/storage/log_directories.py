"""Several log directories of one broker, usually one for each disk, behind one interface.

Each directory is a `LogDirectory` with its own checkpoints and its own mark of a clean stop.
`LogDirectories` has the interface of one `LogDirectory` and passes each call to the directories
that it concerns. A broker with one directory uses `LogDirectory` itself.

A directory whose disk fails is offline until the broker restarts: its logs take no more writes,
and all others continue (KIP-112). The failure of the last one is raised, which halts the broker.

A log can be moved to another directory (log_copy.py). The move ends with the process: a restart
deletes a copy that is not complete.

Invariants: a partition has its log in one directory. A directory that is offline is not written to.
"""

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from itertools import count
from typing import NamedTuple, TypeAlias, TypeVar

from tidelog.core.storage import checkpoint, layout
from tidelog.core.storage.checkpoint import NO_BROKER_EPOCH, CheckpointError, MetaProperties
from tidelog.core.storage.disk import Disk, DiskError
from tidelog.core.storage.log import Log
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.log_copy import CopyLimits, LogCopy, settle_copies
from tidelog.core.storage.log_directory import LogDirectory, NewLog, Progress
from tidelog.core.storage.recovery import RecoveryReport
from tidelog.core.storage.segment.damage import Damage
from tidelog.core.types import Offset, StorePoint, TopicPartition

_Value = TypeVar("_Value")
ConfigFor: TypeAlias = Callable[[TopicPartition], LogConfig]


class LogDisk(NamedTuple):
    """The disk of one log directory, and the path of the directory for messages."""

    path: str
    disk: Disk | None
    """None if the directory can't be used; `problem` says why."""
    problem: str = ""


class LogMove:
    """The move of one log to another directory."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.copy: LogCopy | None = None
        """None before the first piece is copied."""
        self.syncing = False
        """Whether files of the copy are being synced."""


class DuplicateLog(CheckpointError):
    """Two directories have a folder of the same partition."""


def open_directories(
    disks: Disk | Sequence[LogDisk],
    now_ms: int,
    config_for: ConfigFor | None = None,
    progress: Progress | None = None,
) -> "BrokerLogs":
    """Open the log directory or directories of a broker. Raises what `LogDirectory.open` raises if
    it has one directory or none of several can be opened, and DuplicateLog."""
    if not isinstance(disks, Sequence):
        return LogDirectory.open(disks, now_ms, config_for, progress)
    if len(disks) == 1 and disks[0].disk is not None:
        return LogDirectory.open(disks[0].disk, now_ms, config_for, progress)
    return LogDirectories.open(disks, now_ms, config_for, progress)


class LogDirectories:
    """The log directories of one broker, in the order of `log.dirs`."""

    copy_limits = CopyLimits()
    """The simulator and tests lower them: a copy of a small log must take several turns too."""

    def __init__(self, disks: Sequence[LogDisk], opened: Mapping[int, LogDirectory]) -> None:
        self.paths = [disk.path for disk in disks]
        self.opened = dict(opened)
        """The opened directories by number, including those that failed later."""
        self.offline: dict[int, str] = {
            number: disk.problem for number, disk in enumerate(disks) if number not in opened
        }
        """Directories that can't be used, with the reason."""
        self.newly_failed: dict[int, None] = {}
        """Directories that failed since the broker last looked."""
        self.moves: dict[TopicPartition, LogMove] = {}
        self._owner = {
            partition: number
            for number, directory in opened.items()
            for partition in directory.logs
        }
        self.logs: Mapping[TopicPartition, Log] = self._joined(lambda one: one.logs)
        self.high_watermarks: Mapping[TopicPartition, Offset] = self._joined(
            lambda one: one.high_watermarks
        )
        self.cleaner_offsets: Mapping[TopicPartition, Offset] = self._joined(
            lambda one: one.cleaner_offsets
        )
        self.reports: Mapping[TopicPartition, RecoveryReport] = self._joined(
            lambda one: one.reports
        )
        self.damaged: MutableMapping[TopicPartition, Damage] = self._joined(lambda one: one.damaged)
        self.warnings: list[str] = []
        for number, directory in self.opened.items():
            self.warnings += [f"{self.paths[number]}: {text}" for text in directory.warnings]
            directory.warnings = self.warnings
        for number, problem in self.offline.items():
            self.warnings.append(f"log directory {self.paths[number]} is offline: {problem}")
        every = list(self.opened.values())
        epochs = {directory.broker_epoch for directory in every}
        self.broker_epoch = epochs.pop() if len(epochs) == 1 else NO_BROKER_EPOCH
        """The broker epoch of the last clean stop, if all directories have the mark of that stop:
        else logs on one of the disks may lack records."""
        if self.offline:
            self.broker_epoch = NO_BROKER_EPOCH
        known = [one for one in every if not one.revision_damaged and one.revision is not None]
        self.revision = max((one.revision or 0 for one in known), default=None)
        """The highest revision of all directories: a replaced disk must not make its logs look
        new."""
        seen = [one.seen for one in known if one.seen is not None]
        self.seen: StorePoint | None = max(seen, key=lambda point: point.revision, default=None)
        self.revision_damaged = not known and any(one.revision_damaged for one in every)

    @classmethod
    def open(
        cls,
        disks: Sequence[LogDisk],
        now_ms: int,
        config_for: ConfigFor | None = None,
        progress: Progress | None = None,
    ) -> "LogDirectories":
        """Open all directories. One that fails is offline, unless no other can be opened."""
        disks, opened = list(disks), {}
        failed: DiskError | None = None
        usable: dict[int, Disk] = {}
        for number, (_, disk, _) in enumerate(disks):
            try:
                if disk is not None:
                    disk.list_dir("")
                    usable[number] = disk
            except DiskError as error:
                failed = error
                disks[number] = disks[number]._replace(disk=None, problem=str(error))
        for number, problem in settle_copies(usable, every=len(usable) == len(disks)).items():
            failed = problem
            del usable[number]
            disks[number] = disks[number]._replace(disk=None, problem=str(problem))
        _set_stale_folders_aside(disks, usable)
        for number, disk in usable.items():
            try:
                opened[number] = LogDirectory.open(disk, now_ms, config_for, progress)
            except DiskError as error:
                failed = error
                disks[number] = disks[number]._replace(disk=None, problem=str(error))
        if not opened:
            raise failed or DiskError("no log directory can be used", disks[0].path)
        return cls(disks, opened)

    def _joined(
        self, of: Callable[[LogDirectory], dict[TopicPartition, _Value]]
    ) -> "_Joined[_Value]":
        return _Joined(self.opened, self._owner, of)

    # -- which directory -------------------------------------------------------------------

    @property
    def online(self) -> dict[int, LogDirectory]:
        """The directories that are in use, by number."""
        return {n: one for n, one in self.opened.items() if n not in self.offline}

    @property
    def count(self) -> int:
        """How many directories are in use."""
        return len(self.opened) - sum(number in self.opened for number in self.offline)

    @property
    def disk(self) -> Disk:
        """The disk for files of the whole broker: that of the first directory in use."""
        return next(iter(self.online.values())).disk

    def place_of(self, partition: TopicPartition) -> int:
        """Return the number of the directory that has the partition's log; 0 if none has it."""
        return self._owner.get(partition, 0)

    def disk_of(self, partition: TopicPartition) -> Disk:
        """Return the disk of the partition's log."""
        return self.opened[self._owner[partition]].disk

    def is_offline(self, partition: TopicPartition) -> bool:
        """Whether the partition's log is in a directory that failed."""
        return self._owner.get(partition) in self.offline

    def partitions_in(self, number: int) -> list[TopicPartition]:
        """Return the partitions whose logs are in this directory."""
        directory = self.opened.get(number)
        return [] if directory is None else list(directory.logs)

    # -- failures --------------------------------------------------------------------------

    def fail(self, number: int, error: Exception) -> None:
        """Take a directory out of use. Raises the error if no other one is left."""
        if number in self.offline:
            return
        if len(self.online) == 1:
            raise error
        self.offline[number] = str(error)
        self.newly_failed[number] = None
        for log in self.opened[number].logs.values():
            log.offline = True
        for partition, move in list(self.moves.items()):
            if number in (move.target, self._owner[partition]):
                self.cancel_move(partition)

    def failed(self, error: Exception, partition: TopicPartition | None = None) -> bool:
        """Take the directory of this error out of use; return False if no other one is left.

        It is the directory of the folder in the error's path, or else of the log that was in use,
        or else the first one, which has the files of the whole broker (`disk`).
        """
        path = error.path if isinstance(error, DiskError) else str(error)
        named = layout.parse_dir(path.partition("/")[0])
        online = list(self.online)
        for name in (named, partition):
            if name is not None and name in self._owner:
                number = self._owner[name]
                break
        else:
            number = online[0]
        if online == [number]:
            return False
        self.fail(number, error)
        return True

    def _each(self, action: Callable[[LogDirectory], object]) -> None:
        """Call a function for every directory in use."""
        for number, directory in self.online.items():
            self._in(number, partial(action, directory))

    def _in(self, number: int, action: Callable[[], object]) -> bool:
        """Call a function for one directory, unless it is offline; return whether it succeeded."""
        if number in self.offline:
            return False
        try:
            action()
        except DiskError as error:
            self.fail(number, error)
            return False
        return True

    def _by_place(self, partitions: Sequence[TopicPartition]) -> dict[int, list[TopicPartition]]:
        found: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            found.setdefault(self._owner[partition], []).append(partition)
        return found

    # -- logs ------------------------------------------------------------------------------

    @property
    def unreadable(self) -> set[TopicPartition]:
        """Logs that could not be opened in a directory that is in use."""
        return {name for one in self.online.values() for name in one.unreadable}

    def of_topic(self, topic: str) -> list[TopicPartition]:
        """Return the partitions with logs of topics that have or had this name."""
        return [name for one in self.opened.values() for name in one.of_topic(topic)]

    def create_all(
        self, wanted: Sequence[NewLog], now_ms: int, revision: int | None = None
    ) -> None:
        """Create empty logs, each in the directory with the fewest logs, as Kafka does.

        The revision is written after all of them: it says that they exist.
        """
        left = list(wanted)
        while left:
            placed = self._place(left)
            for number, new in placed.items():
                directory = self.opened[number]
                if self._in(number, partial(directory.create_all, new, now_ms)):
                    self._owner.update((one.partition, number) for one in new)
                    left = [one for one in left if one.partition not in self._owner]
                else:
                    for one in new:
                        directory.forget(one.partition)
        if revision is not None:
            self.write_revision(revision)

    def _place(self, wanted: Sequence[NewLog]) -> dict[int, list[NewLog]]:
        """Choose a directory for each log. A name that is blocked in a directory is used there,
        so that no other directory gets a second folder of this name."""
        online = self.online
        counts = {number: len(directory.logs) for number, directory in online.items()}
        placed: dict[int, list[NewLog]] = {}
        for new in wanted:
            blocked = [n for n, one in online.items() if one.is_name_blocked(new.partition)]
            number = blocked[0] if blocked else min(counts, key=lambda n: (counts[n], n))
            counts[number] += 1
            placed.setdefault(number, []).append(new)
        return placed

    def delete_all(self, partitions: Sequence[TopicPartition], now_ms: int) -> None:
        """Delete several logs. The folders of those on a failed disk stay."""
        for number, names in self._by_place(partitions).items():
            self._in(number, partial(self.opened[number].delete_all, names, now_ms))
            self._forget(number, names)

    def set_aside(self, partitions: Sequence[TopicPartition]) -> None:
        """Rename the folders of logs whose topic no longer exists, and add a warning."""
        for number, names in self._by_place(partitions).items():
            self._in(number, partial(self.opened[number].set_aside, names))
            self._forget(number, names)

    def _forget(self, number: int, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self.cancel_move(partition)
            self._owner.pop(partition, None)
            self.opened[number].forget(partition)

    def delete_due(self, now_ms: int, most: int | None = None) -> bool:
        """Remove deleted logs whose delay is over, at most `most` in each directory, and deleted
        segments. Return whether more deleted logs are due."""
        more: list[bool] = []
        self._each(lambda one: more.append(one.delete_due(now_ms, most)))
        return any(more)

    def restore_folder(self, log: Log) -> None:
        """Recreate the folder of an open log if it was deleted."""
        self.opened[self._owner[log.partition]].restore_folder(log)

    # -- moves -----------------------------------------------------------------------------

    def move(self, partition: TopicPartition, number: int) -> None:
        """Move a log to this directory from the next `copy_some` on; another move of it ends."""
        move = self.moves.get(partition)
        if move is not None and move.target == number:
            return
        self.cancel_move(partition)
        if self._owner[partition] != number:
            self.moves[partition] = LogMove(number)

    def can_move(self, partition: TopicPartition, number: int) -> bool:
        """Whether a log can be moved to this directory. As in Kafka, only if no directory is
        offline: it may have a copy or an older log of the partition."""
        return not self.offline and not self.opened[number].is_name_blocked(partition)

    def copy_some(self, partition: TopicPartition, most: int) -> LogCopy:
        """Copy at most `most` bytes of a log that is moved. Raises DiskError: the caller ends the
        move."""
        move = self.moves[partition]
        if move.copy is None:
            log, disk = self.logs[partition], self.disk_of(partition)
            target = self.opened[move.target].disk
            move.copy = LogCopy(log, disk, target, self.copy_limits)
        move.copy.work(most)
        return move.copy

    def cancel_move(self, partition: TopicPartition) -> None:
        """End the move of a log, if there is one, and delete the copy."""
        move = self.moves.pop(partition, None)
        if move is not None and move.copy is not None:
            # A complete copy that stays would be older than the log.
            self._in(move.target, move.copy.remove)

    def complete_move(
        self,
        partition: TopicPartition,
        high_watermarks: Mapping[TopicPartition, Offset],
        now_ms: int,
    ) -> None:
        """Use the copy of a log in its place; it lacks at most a few records. Raises DiskError if
        it can't be completed; the caller ends the move. If a rename fails, its directory is taken
        out of use."""
        move, place = self.moves[partition], self._owner[partition]
        copy, log = move.copy, self.logs[partition]
        assert copy is not None, "the log is copied"
        source, target = self.opened[place], self.opened[move.target]
        own = self._shares(high_watermarks).get(move.target, {})
        own[partition] = high_watermarks[partition]
        try:
            copy.finish()
            target.adopt(log, own, source.cleaner_offsets.get(partition))
            copy.mark_complete()
        except DiskError:
            target.forget(partition)
            raise
        del self.moves[partition]
        try:
            source.release(partition, now_ms)
        except DiskError as error:
            target.forget(partition)
            self.fail(place, error)
            return
        self._owner[partition] = move.target
        log.move_to(target.disk)
        if log.before_gap is not None:
            log.before_gap = partial(target.expect_gaps, partition)
        self._in(move.target, copy.use)

    # -- the loss ledger -------------------------------------------------------------------

    @property
    def ledger_disks(self) -> list[Disk]:
        """The disks that have a loss ledger (loss_ledger.py) and are in use."""
        return [directory.disk for directory in self.online.values()]

    def record_loss(self, partition: TopicPartition, line: bytes) -> None:
        """Write a line to the loss ledger beside the partition's log, or to the first one, and sync
        it. Raises DiskError."""
        online = self.online
        directory = online.get(self._owner.get(partition, -1)) or next(iter(online.values()))
        directory.record_loss(partition, line)

    def missing_high_watermark(self, partition: TopicPartition) -> Offset | None:
        """Return the saved high watermark of a log that was not there at startup."""
        found = (one.missing_high_watermark(partition) for one in self.opened.values())
        return max((offset for offset in found if offset is not None), default=None)

    # -- checkpoints -----------------------------------------------------------------------

    def write_epochs(self, logs: Sequence[Log], seen: StorePoint | None = None) -> None:
        """Write the leader epochs of these logs, and the point of the store's history that they
        are from, with as few syncs as for one file in each directory."""
        places: dict[int, list[Log]] = {}
        for log in logs:
            places.setdefault(self._owner[log.partition], []).append(log)
        if seen is not None:
            self.seen = seen
        for number, directory in self.online.items():
            own = [log for log in places.get(number, ()) if not log.offline]
            if own or seen is not None:
                self._in(number, partial(directory.write_epochs, own, seen))

    def write_recovery_points(self) -> None:
        """Write the checkpoint of each directory."""
        self._each(LogDirectory.write_recovery_points)

    def write_log_starts(self, leaving_out: TopicPartition | None = None) -> None:
        """Write the checkpoint of each directory."""
        self._each(lambda one: one.write_log_starts(leaving_out))

    def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, Offset]) -> None:
        """Write the checkpoint of each directory, with its own logs."""
        shares = self._shares(high_watermarks)
        for number, directory in self.online.items():
            self._in(number, partial(directory.write_high_watermarks, shares.get(number, {})))

    def _shares(
        self, offsets: Mapping[TopicPartition, Offset]
    ) -> dict[int, dict[TopicPartition, Offset]]:
        found: dict[int, dict[TopicPartition, Offset]] = {}
        for partition, offset in offsets.items():
            if partition in self._owner:
                found.setdefault(self._owner[partition], {})[partition] = offset
        return found

    def save_damage(self) -> None:
        """Write `damage-checkpoint` of each directory if it has changed."""
        self._each(LogDirectory.save_damage)

    def expect_gaps(self, partition: TopicPartition) -> None:
        """Record that a log may have gaps, before its first one."""
        self._in(self._owner[partition], partial(self._of(partition).expect_gaps, partition))

    def set_cleaner_offset(self, partition: TopicPartition, first_dirty: Offset) -> None:
        """Record the offset up to which a log was cleaned."""
        own = self._of(partition)
        self._in(self._owner[partition], partial(own.set_cleaner_offset, partition, first_dirty))

    def cut_cleaner_offset(self, partition: TopicPartition, end: Offset) -> None:
        """Lower the cleaner offset before a truncation."""
        own = self._of(partition)
        self._in(self._owner[partition], partial(own.cut_cleaner_offset, partition, end))

    def _of(self, partition: TopicPartition) -> LogDirectory:
        return self.opened[self._owner[partition]]

    def write_revision(self, revision: int) -> None:
        """Record that all logs up to this revision exist."""
        self.revision = revision
        self._each(self._write_revision)

    def _write_revision(self, directory: LogDirectory) -> None:
        directory.seen = self.seen
        directory.write_revision(self.revision or 0)

    def write_seen(self, seen: StorePoint) -> None:
        """Save how far this broker has followed the metadata store."""
        self.seen = seen
        self._each(lambda one: one.write_seen(seen))

    @property
    def properties(self) -> MetaProperties | None:
        """The identity in the first directory in use."""
        return next(iter(self.online.values())).properties

    def write_properties(self, properties: MetaProperties, number: int) -> None:
        """Write the identity of one directory."""
        if number in self.opened:
            self._in(number, partial(self.opened[number].write_properties, properties))

    # -- the end ---------------------------------------------------------------------------

    @property
    def clean(self) -> bool:
        """Whether the last stop was clean in every directory."""
        return not self.offline and all(one.clean for one in self.opened.values())

    def restore_mark(self) -> None:
        """Write the mark of a clean stop again where it was: nothing was changed since."""
        self._each(LogDirectory.restore_mark)

    def close(
        self,
        high_watermarks: Mapping[TopicPartition, Offset],
        broker_epoch: int = NO_BROKER_EPOCH,
    ) -> None:
        """Stop cleanly in every directory in use. A directory that fails gets no mark, so the stop
        does not count as clean."""
        shares = self._shares(high_watermarks)
        for number, directory in self.online.items():
            self._in(number, partial(directory.close, shares.get(number, {}), broker_epoch))


BrokerLogs: TypeAlias = LogDirectory | LogDirectories
"""The logs of a broker, in one directory or in several."""


class _Joined(MutableMapping[TopicPartition, _Value]):
    """The values of all directories by partition; a change is made in the partition's directory."""

    def __init__(
        self,
        opened: Mapping[int, LogDirectory],
        owner: Mapping[TopicPartition, int],
        of: Callable[[LogDirectory], dict[TopicPartition, _Value]],
    ) -> None:
        self._opened = opened
        self._owner = owner
        self._of = of

    def __getitem__(self, partition: TopicPartition) -> _Value:
        return self._of(self._opened[self._owner[partition]])[partition]

    def __setitem__(self, partition: TopicPartition, value: _Value) -> None:
        self._of(self._opened[self._owner[partition]])[partition] = value

    def __delitem__(self, partition: TopicPartition) -> None:
        del self._of(self._opened[self._owner[partition]])[partition]

    def __iter__(self) -> Iterator[TopicPartition]:
        for directory in self._opened.values():
            yield from self._of(directory)

    def __len__(self) -> int:
        return sum(len(self._of(directory)) for directory in self._opened.values())


# -- folders of the same partition -------------------------------------------------------------


def _set_stale_folders_aside(disks: Sequence[LogDisk], usable: Mapping[int, Disk]) -> None:
    """Look for partitions with folders in two directories, before anything is opened.

    While a disk was offline, a topic may have been recreated, or a replica moved away and back:
    then its log was created in another directory, which has followed the metadata further. The
    older folder is renamed to `-stray` and kept. A folder that never had a record is deleted: the
    disk failed while the log was created. Otherwise raises DuplicateLog: it is unknown which
    folder is the right one.
    """
    folders: dict[str, list[int]] = {}
    for number, disk in usable.items():
        for name in disk.list_dir(""):
            if layout.parse_dir(name) is not None and disk.is_dir(name):
                folders.setdefault(name, []).append(number)
    stale: list[tuple[int, str]] = []
    unused: list[tuple[int, str]] = []
    for name, places in folders.items():
        if len(places) == 1:
            continue
        revisions = {number: _revision(usable[number]) for number in places}
        newest = max(revisions.values())
        older = [number for number in places if 0 < revisions[number] < newest]
        if len(older) == len(places) - 1:
            stale += [(number, name) for number in older]
            continue
        empty = [number for number in places if _never_used(usable[number], name)]
        empty = empty[1:] if len(empty) == len(places) else empty
        if len(empty) < len(places) - 1:
            paths = " and ".join(f"{disks[number].path}/{name}" for number in places)
            raise DuplicateLog(
                name,
                f"the log of this partition is in two log directories, {paths}; remove the"
                " older folder, or move it elsewhere",
            )
        unused += [(number, name) for number in empty]
    for number, name in unused:
        usable[number].delete_dir(name)
        usable[number].sync_dir("")
    for number, name in stale:
        disk, partition = usable[number], layout.parse_dir(name)
        assert partition is not None
        names = disk.list_dir("")
        numbered = (layout.marked_dir(partition, n.to_bytes(16), "stray") for n in count())
        disk.rename(name, next(one for one in numbered if one not in names))
        disk.sync_dir("")


def _never_used(disk: Disk, folder: str) -> bool:
    """Whether a folder has at most the first segment of a log, without a record."""
    files = [layout.parse_file(name) for name in disk.list_dir(folder)]
    logs = [file for file in files if file is not None and file.kind == layout.LOG]
    first = f"{folder}/{layout.file_name(0, layout.LOG)}"
    return not logs or (
        [str(file) for file in logs] == [layout.file_name(0, layout.LOG)] and not disk.size(first)
    )


def _revision(disk: Disk) -> int:
    known = checkpoint.read_revision(disk)
    return 0 if known is None else known.made or 0
