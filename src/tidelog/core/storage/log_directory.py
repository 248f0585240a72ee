"""A log directory: the logs of all its partitions, and their common checkpoints.

The mark of a clean stop is removed before anything is loaded, and written again when everything is
on disk. So a crash at any time in between counts as unclean.

Offsets in the checkpoints are late by design: the recovery point and the log start by up to a
minute, the high watermark by seconds. Each is safe if it is too low.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from tidelog.core.record.crc32c import crc32c
from tidelog.core.storage import checkpoint, layout
from tidelog.core.storage.checkpoint import (
    NO_BROKER_EPOCH,
    CheckpointChecksums,
    CheckpointError,
    DamagedProperties,
    MetaProperties,
)
from tidelog.core.storage.disk import (
    Disk,
    DiskError,
    DiskFull,
    NotPermitted,
    move_aside,
    read_file,
    replace_file,
    replace_files,
)
from tidelog.core.storage.log import Log
from tidelog.core.storage.log_config import NEVER, LogConfig
from tidelog.core.storage.loss_ledger import LossLedger
from tidelog.core.storage.recovery import RecoveryReport, open_log
from tidelog.core.storage.segment.damage import Damage, is_gapless
from tidelog.core.types import Offset, StorePoint, TopicId, TopicPartition

METADATA_TOPIC = "__cluster_metadata"
"""The topic of Kafka's own Raft log, which is not opened."""

DELETED_PARTITIONS_MAX = 256
"""The most deleted partitions that may remain in the checkpoints before they are rewritten."""


class RecoveryProgress(NamedTuple):
    """The log that is being opened: number `number` of `total`, counted from 1."""

    partition: TopicPartition
    number: int
    total: int
    clean: bool
    """Whether the last stop was clean; then logs are not read."""
    report: RecoveryReport | None = None
    """The result; None before the log is opened."""


class NewLog(NamedTuple):
    """A log to create."""

    partition: TopicPartition
    topic_id: TopicId
    config: LogConfig


Progress: TypeAlias = Callable[[RecoveryProgress], None]


def _move_aside(disk: Disk) -> dict[str, str]:
    """Rename entries that have a checkpoint's name but are not files, because no file could replace
    them. Return the new name of each."""
    _, others = disk.scan_dir("")
    moved = {name: move_aside(disk, name) for name in others if layout.is_file_name(name)}
    if moved:
        disk.sync_dir("")
    return moved


def _ignore_progress(_progress: RecoveryProgress) -> None:
    """Do nothing."""


class LogDirectory:
    """All logs of one directory, opened with `LogDirectory.open`. Tests simulate a crash by opening
    the directory again. A broker with several directories has them in `LogDirectories`, whose
    interface is the same."""

    count = 1
    """How many directories are in use."""
    offline: Mapping[int, str] = MappingProxyType({})
    newly_failed: Mapping[int, None] = MappingProxyType({})
    """A failure of the only directory halts the broker (log_directories.py)."""
    moves: Mapping[TopicPartition, object] = MappingProxyType({})
    """Logs move only between several directories."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.logs: dict[TopicPartition, Log] = {}
        self._by_topic: dict[str, dict[TopicPartition, None]] = {}
        """The partitions of each topic, so that deleting a topic does not search all logs."""
        self.high_watermarks: dict[TopicPartition, Offset] = {}
        """The high watermarks as loaded, limited to the range of each log."""
        self.cleaner_offsets: dict[TopicPartition, Offset] = {}
        """First dirty offsets. A log with an entry may have gaps, from compaction here or on an
        earlier leader; in other logs gaps are damage."""
        self.reports: dict[TopicPartition, RecoveryReport] = {}
        """The recovery reports of the logs that were opened at startup."""
        self.damaged: dict[TopicPartition, Damage] = {}
        """Logs that lack records they once had, until they are in the ISR again."""
        self._saved_damage: dict[TopicPartition, Offset] = {}
        """The content of `damage-checkpoint`: the first damaged offset of each log."""
        self.missing_high_watermarks: dict[TopicPartition, Offset] = {}
        """The high watermarks, as saved, of logs that were not there at startup."""
        self._ledger = LossLedger(disk)
        self.warnings: list[str] = []
        self.clean = False
        self.broker_epoch = NO_BROKER_EPOCH
        """The broker epoch of the last clean stop; the controller needs it to recognize one."""
        self.revision: int | None = None
        """All logs of the metadata up to this revision were created: if one is missing, it is
        lost; a log from a later revision may be new. None if unknown."""
        self.seen: StorePoint | None = None
        """The latest point of the metadata store's history that this broker has applied."""
        self.revision_damaged = False
        """Whether the file with these two values could not be read."""
        self.properties: MetaProperties | None = None
        self._checksums = CheckpointChecksums(disk)
        self._refused: set[str] = set()
        """Checkpoints that are unreadable or have a wrong checksum, and entries that had the name
        of a file but were not files."""
        self.unreadable: set[TopicPartition] = set()
        """Logs that could not be opened. Their folders stay until new logs need the names."""
        self._blocked_names: set[TopicPartition] = set()
        """Partitions whose folder name is used by an unreadable folder, a file or a link."""
        self._unreadable_offsets: dict[str, dict[TopicPartition, Offset]] = {}
        """The offsets of unreadable logs, by checkpoint."""
        self._deleted_folders: list[tuple[int, str]] = []
        self._deleted_partitions: set[TopicPartition] = set()
        """Partitions of deleted logs, which may still be in the checkpoints."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        now_ms: int,
        config_for: Callable[[TopicPartition], LogConfig] | None = None,
        progress: Progress | None = None,
    ) -> "LogDirectory":
        """Open all logs in the directory. Without `config_for` the topics' settings are unknown,
        and any log may have been compacted. `progress` is called before and after each log is
        opened. Raises CheckpointError for a `meta.properties` of a later release,
        UnsupportedFormat for records from before Kafka 0.11, and DiskError if the disk fails. A
        log that can't be opened is skipped (`unreadable`)."""
        aside = _move_aside(disk)
        directory = cls(disk)
        directory.warnings += directory._checksums.warnings
        for name, now in aside.items():
            directory.warnings.append(f"{name} is not a file: moved to {now}")
            directory._refused.add(name)
        try:
            directory.properties = checkpoint.read_properties(disk)
        except DamagedProperties as error:
            directory.warnings.append(f"{error}; the file is rewritten")
        directory._read_revision()
        broker_epoch = checkpoint.remove_clean_shutdown(disk)
        if broker_epoch is not None:
            directory.clean = True
            directory.broker_epoch = broker_epoch
        directory._load(now_ms, config_for, progress or _ignore_progress)
        return directory

    def _read_revision(self) -> None:
        known = checkpoint.read_revision(self.disk)
        if known is not None and layout.METADATA_REVISION not in self._refused:
            self.revision, self.seen = known
            return
        self.revision_damaged = True
        effect = "it is unknown whether the metadata store is behind this broker"
        self.warnings.append(f"{layout.METADATA_REVISION} is damaged and rewritten: {effect}")

    def _load(
        self,
        now_ms: int,
        config_for: Callable[[TopicPartition], LogConfig] | None,
        progress: Progress,
    ) -> None:
        recovery_points = self._read_offsets(layout.RECOVERY_POINTS)
        log_starts = self._read_offsets(layout.LOG_STARTS)
        high_watermarks = self._read_offsets(layout.HIGH_WATERMARKS)
        cleaned = self._read_offsets(layout.CLEANER_OFFSETS)
        read = {
            layout.RECOVERY_POINTS: recovery_points,
            layout.LOG_STARTS: log_starts,
            layout.HIGH_WATERMARKS: high_watermarks,
            layout.CLEANER_OFFSETS: cleaned,
        }
        self._saved_damage = self._read_offsets(layout.DAMAGED_LOGS)
        epoch_checksums = self._read_offsets(layout.EPOCH_CHECKSUMS) if self.clean else {}
        self._checksums.adopt()
        point_unknown = layout.RECOVERY_POINTS in self._refused
        any_cleaned = config_for is None or layout.CLEANER_OFFSETS in self._refused
        # Kafka's cleaner leaves gaps between segments, ours does not.
        by_kafka = any_cleaned and (config_for is None or self.revision is None)
        without_row = 0 if any_cleaned else None
        outdated = set(self._refused)
        partitions = self._find(now_ms)
        for number, partition in enumerate(partitions, start=1):
            opening_log = RecoveryProgress(partition, number, len(partitions), self.clean)
            progress(opening_log)
            opening = partial(
                open_log,
                self.disk,
                partition,
                LogConfig() if config_for is None else config_for(partition),
                now_ms,
                recovery_point=None if point_unknown else recovery_points.get(partition, 0),
                log_start_offset=log_starts.get(partition, 0),
                known_end=max(
                    recovery_points.get(partition, 0),
                    high_watermarks.get(partition, 0),
                    log_starts.get(partition, 0),
                ),
                clean=self.clean,
                cleaned_upto=NEVER if by_kafka else cleaned.get(partition, without_row),
                epochs_checksum=epoch_checksums.get(partition),
            )
            opened = self._open_or_skip(partition, opening)
            if opened is None:
                continue
            log, report = opened
            progress(opening_log._replace(report=report))
            self._add(partition, log)
            self.reports[partition] = report
            damage = report.damage
            if damage is not None and (self.revision or damage.offset >= log.log_start_offset):
                # Without a revision this is Kafka's folder: its first epoch proves no log start.
                self.damaged[partition] = damage
            self._recheck_damage(partition, log)
            high_watermark = max(high_watermarks.get(partition, 0), log.log_start_offset)
            self.high_watermarks[partition] = min(high_watermark, log.log_end_offset)
            if partition in cleaned or (
                layout.CLEANER_OFFSETS in self._refused and not is_gapless(log.segments)
            ):
                first_dirty = cleaned.get(partition, log.log_start_offset)
                self.cleaner_offsets[partition] = min(first_dirty, log.log_end_offset)
            else:
                log.before_gap = partial(self.expect_gaps, partition)
            for name, offsets in read.items():
                if offsets.get(partition, 0) > log.log_end_offset:
                    outdated.add(name)
        self._unreadable_offsets = {
            name: {partition: offsets[partition] for partition in self.unreadable & offsets.keys()}
            for name, offsets in read.items()
        }
        # The checkpoints written below may no longer show which records are missing.
        self.save_damage()
        self._write_again(outdated)
        named = {*recovery_points, *log_starts, *high_watermarks, *cleaned}
        self._deleted_partitions = named - self.logs.keys()
        self.missing_high_watermarks = {
            partition: high_watermarks[partition]
            for partition in self._deleted_partitions & high_watermarks.keys()
        }
        if any(recovery_points.get(partition, 0) > 0 for partition in self._deleted_partitions):
            # Synced records are missing, so the last stop does not count as clean.
            self.broker_epoch = NO_BROKER_EPOCH

    def _write_again(self, outdated: set[str]) -> None:
        """Rewrite checkpoints that could not be read, or have offsets beyond the end of a log.

        New records must not be below an old recovery point or high watermark, and a log start
        beyond its log would count as damage at every start.
        """
        if layout.HIGH_WATERMARKS in outdated:
            self.write_high_watermarks(self.high_watermarks)
        if layout.RECOVERY_POINTS in outdated:
            self.write_recovery_points()
        if layout.LOG_STARTS in outdated:
            self.write_log_starts()
        if layout.CLEANER_OFFSETS in outdated:
            self._write_cleaner_offsets()

    def _recheck_damage(self, partition: TopicPartition, log: Log) -> None:
        """Check whether damage from before this start still exists."""
        damage, before = self.damaged.get(partition), self._saved_damage.get(partition)
        if damage is None and before is not None:
            rebuilt = log.epochs_path in self.reports[partition].rebuilt
            damage = log.still_damaged(before, epochs_rebuilt=rebuilt)
        if damage is not None:
            self.damaged[partition] = damage
            log.mark_producers_incomplete(damage.offset)

    def _find(self, now_ms: int) -> list[TopicPartition]:
        """Return the partitions with a folder; record deleted folders for their removal."""
        found = []
        for name in self.disk.list_dir(""):
            if layout.parse_mark(name) == "delete":
                self._deleted_folders.append((now_ms, name))
                continue
            partition = layout.parse_dir(name)
            if partition is None or partition.topic == METADATA_TOPIC:
                continue
            if self.disk.is_dir(name):
                found.append(partition)
            else:
                self._blocked_names.add(partition)
                self.warnings.append(f"{name} has a partition's name but is not a folder; ignored")
        return found

    def _open_or_skip(
        self, partition: TopicPartition, opening: Callable[[], tuple[Log, RecoveryReport]]
    ) -> tuple[Log, RecoveryReport] | None:
        """Open a log; return None if its files can't be used, so that the other logs are served.
        Raises DiskError if permissions or space are missing, or the whole disk fails."""
        try:
            return opening()
        except (DiskFull, NotPermitted):
            raise
        except (DiskError, CheckpointError) as error:
            if not self._is_writable():
                raise
            self.unreadable.add(partition)
            self._blocked_names.add(partition)
            self.warnings.append(
                f"{error}: {partition} can't be opened. If another replica has the records, they"
                " are copied from it, and this folder is renamed and kept. Else the partition stays"
                " offline until you repair the folder and restart this broker"
            )
            return None

    def _is_writable(self) -> bool:
        """Whether a file can be written. If not, the whole disk failed, not one log."""
        try:
            replace_file(self.disk, layout.DISK_CHECK, b"")
            self.disk.delete(layout.DISK_CHECK)
        except DiskError:
            return False
        return True

    def _free_name(self, partition: TopicPartition) -> None:
        """Rename the entry that has the name of this partition's folder; the caller syncs."""
        name, names = layout.partition_dir(partition), self.disk.list_dir("")
        numbered = (layout.marked_dir(partition, n.to_bytes(16), "stray") for n in count())
        marked = next(one for one in numbered if one not in names)
        self.disk.rename(name, marked)
        self.warnings.append(f"{name} renamed to {marked}, because a new log needs its name")
        self._blocked_names.remove(partition)
        self.unreadable.discard(partition)
        for offsets in self._unreadable_offsets.values():
            offsets.pop(partition, None)

    def _read_offsets(self, name: str) -> dict[TopicPartition, Offset]:
        """Read the offsets of a checkpoint. An invalid one counts as empty, which loses no record:
        logs then start at their first segments and are read completely, and high watermarks are
        low."""
        try:
            data = read_file(self.disk, name)
            self._checksums.check(name, data)
            return checkpoint.parse_offsets(name, data or b"")
        except (CheckpointError, DiskError) as error:
            self.warnings.append(f"{error}; treated as empty")
            self._refused.add(name)
            return {}

    def create(
        self,
        partition: TopicPartition,
        topic_id: TopicId,
        now_ms: int,
        config: LogConfig | None = None,
        revision: int | None = None,
    ) -> Log:
        """Create an empty log."""
        self.create_all([NewLog(partition, topic_id, config or LogConfig())], now_ms, revision)
        return self.logs[partition]

    def create_all(
        self, wanted: Sequence[NewLog], now_ms: int, revision: int | None = None
    ) -> None:
        """Create empty logs: all that the metadata has up to this revision. Their topic ids are on
        disk before any record, and checkpoint entries of earlier logs of the same name are
        removed first."""
        assert self.logs.keys().isdisjoint(new.partition for new in wanted), (
            "the logs must not exist"
        )
        for new in wanted:
            if new.partition in self._blocked_names:
                self._free_name(new.partition)
        if not self._deleted_partitions.isdisjoint(new.partition for new in wanted):
            self._drop_deleted_partitions()
        contents = {}
        for new in wanted:
            name = layout.partition_dir(new.partition)
            self.disk.make_dir(name)
            path = f"{name}/{layout.PARTITION_METADATA}"
            contents[path] = checkpoint.format_topic_metadata(new.topic_id)
        if revision is not None:
            self.revision = revision
            contents[layout.METADATA_REVISION] = self._metadata_revision()
        replace_files(self.disk, contents, beside=[""])
        for new in wanted:
            log, _ = open_log(self.disk, new.partition, new.config, now_ms, clean=True)
            log.before_gap = partial(self.expect_gaps, new.partition)
            self._add(new.partition, log)
            self.high_watermarks[new.partition] = 0

    def is_name_blocked(self, partition: TopicPartition) -> bool:
        """Whether another file or folder has the name of the partition's folder."""
        return partition in self._blocked_names

    def disk_of(self, _partition: TopicPartition) -> Disk:
        """Return the disk of the partition's log."""
        return self.disk

    def place_of(self, _partition: TopicPartition) -> int:
        """Return the number of the directory that has the partition's log."""
        return 0

    def is_offline(self, _partition: TopicPartition) -> bool:
        """Whether the partition's log is in a directory that failed."""
        return False

    def partitions_in(self, _number: int) -> list[TopicPartition]:
        """Return the partitions whose logs are in this directory."""
        return list(self.logs)

    def fail(self, _number: int, error: Exception) -> None:
        """Raise the error: there is no other directory."""
        raise error

    def failed(self, _error: Exception, _partition: TopicPartition | None = None) -> bool:
        """Return False: no other directory is left."""
        return False

    def _add(self, partition: TopicPartition, log: Log) -> None:
        self.logs[partition] = log
        self._by_topic.setdefault(partition.topic, {})[partition] = None

    def of_topic(self, topic: str) -> list[TopicPartition]:
        """Return the partitions with logs of topics that have or had this name."""
        return list(self._by_topic.get(topic, ()))

    def write_epochs(self, logs: Sequence[Log], seen: StorePoint | None = None) -> None:
        """Write the leader epochs of these logs, and the point of the store's history that they
        are from, with as few syncs as for one file."""
        contents = {log.epochs_path: checkpoint.format_epochs(log.epochs.entries) for log in logs}
        if seen is not None:
            self.seen = seen
            contents[layout.METADATA_REVISION] = self._metadata_revision()
        try:
            replace_files(self.disk, contents)
        except DiskError:
            for log in logs:
                log.offline = True
            raise
        for log in logs:
            log.epochs_deferred = False

    def _drop_deleted_partitions(self) -> None:
        """Remove deleted logs from the checkpoints: for a new log of the same name, an old log
        start would delete records, and an old recovery point would skip recovery."""
        for name in (
            layout.RECOVERY_POINTS,
            layout.LOG_STARTS,
            layout.HIGH_WATERMARKS,
            layout.CLEANER_OFFSETS,
        ):
            offsets = self._read_offsets(name)
            kept = {
                partition: offsets[partition] for partition in offsets if partition in self.logs
            }
            if len(kept) < len(offsets):
                self._write_offsets(name, kept)
        self._deleted_partitions.clear()

    def delete(self, partition: TopicPartition, now_ms: int) -> None:
        """Delete a log; its files are removed after `file.delete.delay.ms`."""
        self.delete_all([partition], now_ms)

    def delete_all(self, partitions: Sequence[TopicPartition], now_ms: int) -> None:
        """Delete several logs, with one sync."""
        for partition in partitions:
            delay_ms = self.logs[partition].config.file_delete_delay_ms
            self._deleted_folders.append((now_ms + delay_ms, self._remove(partition, "delete")))
        if partitions:
            self.disk.sync_dir("")
        if len(self._deleted_partitions) > DELETED_PARTITIONS_MAX:
            self._drop_deleted_partitions()

    def set_aside(self, partitions: Sequence[TopicPartition]) -> None:
        """Rename the folders of logs whose topic no longer exists, and add a warning."""
        for partition in partitions:
            marked = self._remove(partition, "stray")
            warning = (
                f"the topic of {partition} no longer exists: its folder was renamed to {marked}"
            )
            self.warnings.append(warning)
        if partitions:
            self.disk.sync_dir("")

    def _remove(self, partition: TopicPartition, mark: str) -> str:
        """Remove a log and rename its folder; return the new name. The caller syncs."""
        log = self.logs[partition]
        self.forget(partition)
        marked = layout.marked_dir(partition, log.topic_id, mark)
        self.disk.delete_dir(marked)
        self.disk.rename(log.directory, marked)
        return marked

    def adopt(
        self,
        log: Log,
        high_watermarks: Mapping[TopicPartition, Offset],
        cleaner_offset: Offset | None,
    ) -> None:
        """Add a log that is moved to this directory, and write its offsets to the checkpoints: rows
        of an earlier log of the same name must not apply to it. `high_watermarks` are those of all
        logs here, including this one."""
        partition = log.partition
        self._add(partition, log)
        self._deleted_partitions.discard(partition)
        self.high_watermarks[partition] = high_watermarks[partition]
        if cleaner_offset is not None:
            self.cleaner_offsets[partition] = cleaner_offset
        offsets = {
            layout.RECOVERY_POINTS: self._recovery_points(),
            layout.LOG_STARTS: self._log_starts(),
            layout.HIGH_WATERMARKS: high_watermarks,
            layout.CLEANER_OFFSETS: self.cleaner_offsets,
        }
        self._checksums.replace(
            {name: self._format_offsets(name, offsets[name]) for name in offsets}
        )

    def release(self, partition: TopicPartition, now_ms: int) -> None:
        """Rename the folder of a log that was moved to another directory, and drop the log."""
        log = self.logs[partition]
        marked = layout.marked_dir(partition, log.topic_id, "delete")
        self.disk.delete_dir(marked)
        self.disk.rename(log.directory, marked)
        self.disk.sync_dir("")
        self._deleted_folders.append((now_ms + log.config.file_delete_delay_ms, marked))
        self.forget(partition)

    def forget(self, partition: TopicPartition) -> None:
        """Drop a log, if there is one, without a change on disk."""
        if self.logs.pop(partition, None) is None:
            return
        beside = self._by_topic[partition.topic]
        del beside[partition]
        if not beside:
            del self._by_topic[partition.topic]
        self._deleted_partitions.add(partition)
        self.high_watermarks.pop(partition, None)
        self.cleaner_offsets.pop(partition, None)
        self.reports.pop(partition, None)
        self.damaged.pop(partition, None)

    def delete_due(self, now_ms: int, most: int | None = None) -> bool:
        """Remove deleted logs whose delay is over, at most `most`, and deleted segments. Return
        whether more deleted logs are due."""
        due = [entry for entry in self._deleted_folders if entry[0] <= now_ms]
        for _, name in due[:most]:
            self.disk.delete_dir(name)
        if due:
            removed = set(due[:most])
            self._deleted_folders = [
                entry for entry in self._deleted_folders if entry not in removed
            ]
        for log in self.logs.values():
            when_ms = log.next_delete_due()
            if when_ms is not None and when_ms <= now_ms and not log.offline:
                log.delete_due(now_ms)
        return most is not None and len(due) > most

    def write_recovery_points(self) -> None:
        """Write the checkpoint: periodically, after a truncation, and at a clean stop."""
        self._write_offsets(layout.RECOVERY_POINTS, self._recovery_points())

    def write_log_starts(self, leaving_out: TopicPartition | None = None) -> None:
        """Write the checkpoint: periodically and at a clean stop. It has only logs that start
        inside a segment. `leaving_out` is a log that will be truncated below its start: after a
        crash the old log start would be wrong."""
        self._write_offsets(layout.LOG_STARTS, self._log_starts(leaving_out))

    def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, Offset]) -> None:
        """Write the checkpoint: periodically and at a clean stop."""
        self._write_offsets(layout.HIGH_WATERMARKS, high_watermarks)

    def _recovery_points(self) -> dict[TopicPartition, Offset]:
        return {partition: log.recovery_point for partition, log in self.logs.items()}

    def _log_starts(
        self, leaving_out: TopicPartition | None = None
    ) -> dict[TopicPartition, Offset]:
        return {
            partition: log.log_start_offset
            for partition, log in self.logs.items()
            if log.log_start_offset > log.segments.first.base_offset and partition != leaving_out
        }

    def _write_offsets(self, name: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        self._checksums.replace({name: self._format_offsets(name, offsets)})

    def _format_offsets(self, name: str, offsets: Mapping[TopicPartition, Offset]) -> bytes:
        return checkpoint.format_offsets({**offsets, **self._unreadable_offsets.get(name, {})})

    def save_damage(self) -> None:
        """Write `damage-checkpoint` if it has changed: after a crash before the repair the logs
        must still count as damaged."""
        if not self.damaged and not self._saved_damage:
            return
        offsets = {partition: damage.offset for partition, damage in self.damaged.items()}
        if offsets != self._saved_damage:
            self._write_offsets(layout.DAMAGED_LOGS, offsets)
            self._saved_damage = offsets

    @property
    def ledger_disks(self) -> list[Disk]:
        """The disks that have a loss ledger (loss_ledger.py)."""
        return [self.disk]

    def record_loss(self, _partition: TopicPartition, line: bytes) -> None:
        """Write a line to the loss ledger, and sync it. Raises DiskError."""
        self._ledger.add(line)

    def missing_high_watermark(self, partition: TopicPartition) -> Offset | None:
        """Return the saved high watermark of a log that was not there at startup."""
        return self.missing_high_watermarks.get(partition)

    def restore_folder(self, log: Log) -> None:
        """Recreate the folder of an open log if it was deleted. The missing records are damage; a
        repair writes them to the new folder."""
        if self.disk.is_dir(log.directory):
            return
        self.disk.make_dir(log.directory)
        contents = {log.epochs_path: checkpoint.format_epochs(log.epochs.entries)}
        if log.topic_id is not None:
            path = f"{log.directory}/{layout.PARTITION_METADATA}"
            contents[path] = checkpoint.format_topic_metadata(log.topic_id)
        replace_files(self.disk, contents, beside=[""])

    def expect_gaps(self, partition: TopicPartition) -> None:
        """Record that a log may have gaps, before its first one."""
        if partition not in self.cleaner_offsets:
            self.set_cleaner_offset(partition, self.logs[partition].log_start_offset)

    def set_cleaner_offset(self, partition: TopicPartition, first_dirty: Offset) -> None:
        """Record the offset up to which a log was cleaned."""
        self.cleaner_offsets[partition] = first_dirty
        self._write_cleaner_offsets()

    def cut_cleaner_offset(self, partition: TopicPartition, end: Offset) -> None:
        """Lower the cleaner offset before a truncation: new records above it are not cleaned
        (KAFKA-3330)."""
        if self.cleaner_offsets.get(partition, end) > end:
            self.set_cleaner_offset(partition, end)

    def _write_cleaner_offsets(self) -> None:
        self._write_offsets(layout.CLEANER_OFFSETS, self.cleaner_offsets)

    def write_revision(self, revision: int) -> None:
        """Record that all logs up to this revision exist, though none was created for it."""
        self.revision = revision
        replace_file(self.disk, layout.METADATA_REVISION, self._metadata_revision())

    def write_seen(self, seen: StorePoint) -> None:
        """Save how far this broker has followed the metadata store."""
        if seen != self.seen:
            self.seen = seen
            replace_file(self.disk, layout.METADATA_REVISION, self._metadata_revision())

    def _metadata_revision(self) -> bytes:
        return checkpoint.MetadataRevision(self.revision, self.seen).format()

    def write_properties(self, properties: MetaProperties, _number: int = 0) -> None:
        """Write the identity of this directory."""
        replace_file(self.disk, layout.META_PROPERTIES, properties.format())
        self.properties = properties

    def restore_mark(self) -> None:
        """Write the mark of a clean stop again if it was there: nothing was changed since."""
        if self.clean:
            self.close(self.high_watermarks, self.broker_epoch)

    def close(
        self,
        high_watermarks: Mapping[TopicPartition, Offset],
        broker_epoch: int = NO_BROKER_EPOCH,
    ) -> None:
        """Stop cleanly: sync all logs, write the checkpoints, then the mark of a clean stop."""
        closings = [(log, log.start_close()) for log in self.logs.values()]
        files: list[str] = []
        directories: list[str] = []
        for _, closing in closings:
            if closing is not None:
                files += closing.files
                directories += closing.directories
        self.disk.sync_many(files, directories)
        for log, closing in closings:
            if closing is not None:
                log.closed(closing)
        offsets = {
            layout.RECOVERY_POINTS: self._recovery_points(),
            layout.LOG_STARTS: self._log_starts(),
            layout.HIGH_WATERMARKS: high_watermarks,
            layout.EPOCH_CHECKSUMS: {
                partition: crc32c(checkpoint.format_epochs(log.epochs_after_restart()))
                for partition, log in self.logs.items()
            },
        }
        self._checksums.replace(
            {name: self._format_offsets(name, offsets[name]) for name in offsets}
        )
        replace_file(self.disk, layout.CHECKPOINT_CHECKSUMS, self._checksums.settled())
        checkpoint.write_clean_shutdown(self.disk, broker_epoch)
