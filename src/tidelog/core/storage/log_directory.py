"""A whole log directory: every partition's log, and the checkpoints over all of them.

The mark of a clean stop is taken away before anything is loaded, and put back only when
everything is on disk, so that a crash at any moment between counts as unclean.

Offsets in the checkpoints lag behind by design: the recovery point and the log start by up
to a minute, the high watermark by seconds. Each is safe when it is too low.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import NamedTuple, TypeAlias

from tidelog.core.record.crc32c import crc32c
from tidelog.core.storage import checkpoint, layout
from tidelog.core.storage.checkpoint import (
    NO_BROKER_EPOCH,
    CheckpointError,
    DamagedProperties,
    MetaProperties,
)
from tidelog.core.storage.checkpoint_checksums import CheckpointChecksums
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
from tidelog.core.storage.recovery import RecoveryReport, open_log
from tidelog.core.storage.segment.damage import Damage
from tidelog.core.types import Offset, StorePoint, TopicId, TopicPartition

METADATA_TOPIC = "__cluster_metadata"
"""Kafka's own Raft log; it is read by nobody here and left alone."""

DEPARTED_MAX = 256
"""Deleted partitions whose names are kept before the checkpoints are rewritten without them."""


class RecoveryProgress(NamedTuple):
    """Which log is being opened: the `number`th of `total`, counted from 1."""

    partition: TopicPartition
    number: int
    total: int
    clean: bool
    """After a clean stop logs are opened without being read."""
    report: RecoveryReport | None = None
    """What was found and done; None before."""


class NewLog(NamedTuple):
    """A log that is to be made."""

    partition: TopicPartition
    topic_id: TopicId
    config: LogConfig


Progress: TypeAlias = Callable[[RecoveryProgress], None]


def _move_aside(disk: Disk) -> dict[str, str]:
    """Rename entries that have a checkpoint's name but are not files: no file could replace
    them. Return the new names by the old ones."""
    _, others = disk.scan_dir("")
    moved = {name: move_aside(disk, name) for name in others if layout.is_file_name(name)}
    if moved:
        disk.sync_dir("")
    return moved


def _ignore_progress(_progress: RecoveryProgress) -> None:
    """Nobody watches."""


class LogDirectory:
    """Open with `LogDirectory.open`; a crash is to forget the object and open anew."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.logs: dict[TopicPartition, Log] = {}
        self._by_topic: dict[str, dict[TopicPartition, None]] = {}
        """Their names: whoever deletes one topic of thousands looks at its logs only."""
        self.high_watermarks: dict[TopicPartition, Offset] = {}
        """As loaded, brought between log start and log end."""
        self.cleaner_offsets: dict[TopicPartition, Offset] = {}
        """First dirty offsets. Whose log is here may have gaps, by compaction here or where its
        records came from; else gaps are damage."""
        self.reports: dict[TopicPartition, RecoveryReport] = {}
        """Of the logs that were found."""
        self.damaged: dict[TopicPartition, Damage] = {}
        """Logs that lack records which they once held, until they are in the ISR again."""
        self._saved_damage: dict[TopicPartition, Offset] = {}
        """What `damage-checkpoint` holds: the first damaged offset of each log."""
        self.warnings: list[str] = []
        self.clean = False
        self.broker_epoch = NO_BROKER_EPOCH
        """Of the clean stop before, so that the controller can tell it from a crash."""
        self.revision: int | None = None
        """Every log was made that the metadata told of up to this revision: one that is missing
        is lost, one of later than that may be new. None: nothing is known."""
        self.seen: StorePoint | None = None
        """The latest point of the metadata store's history that anything here relies on."""
        self.revision_damaged = False
        """Whether the file that remembers both could not be read."""
        self.properties: MetaProperties | None = None
        self._checksums = CheckpointChecksums(disk)
        self._refused: set[str] = set()
        """Checkpoints that could not be read or whose checksum differs, and entries that had the
        name of a file but were not files."""
        self.unreadable: set[TopicPartition] = set()
        """Logs that could not be opened. Their folders stay until new logs replace them."""
        self._in_the_way: set[TopicPartition] = set()
        """Partitions whose folder's name is taken: by an unreadable folder, a file, a link."""
        self._unreadable_offsets: dict[str, dict[TopicPartition, Offset]] = {}
        """The offsets of unreadable logs, by checkpoint."""
        self._leaving: list[tuple[int, str]] = []
        self._departed: set[TopicPartition] = set()
        """Names of logs that are gone, which the checkpoints may still tell of."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        now_ms: int,
        config_for: Callable[[TopicPartition], LogConfig] | None = None,
        progress: Progress | None = None,
    ) -> "LogDirectory":
        """Load everything in the directory. Without `config_for` the topics' settings are
        unknown, and any may have been compacted. `progress` is called before and
        after each log is opened. Raises CheckpointError for a `meta.properties` of a later release,
        UnsupportedFormat for records of before 0.11, and DiskError where the disk fails. A log
        that can't be opened is left out (`unreadable`)."""
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
        doubt = "whether the metadata store is behind this broker can't be told"
        self.warnings.append(f"{layout.METADATA_REVISION} is damaged and written anew: {doubt}")

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
        # Our cleaner leaves no gaps between segments, Kafka's does.
        by_kafka = any_cleaned and (config_for is None or self.revision is None)
        without_row = 0 if any_cleaned else None
        outdated = set(self._refused)
        partitions = self._find(now_ms)
        for number, partition in enumerate(partitions, start=1):
            told = RecoveryProgress(partition, number, len(partitions), self.clean)
            progress(told)
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
            opened = self._open_or_leave_out(partition, opening)
            if opened is None:
                continue
            log, report = opened
            progress(told._replace(report=report))
            self._add(partition, log)
            self.reports[partition] = report
            damage = report.damage
            if damage is not None and (self.revision or damage.offset >= log.log_start_offset):
                # In another broker's folder the first epoch does not prove where the log began.
                self.damaged[partition] = damage
            self._recheck_damage(partition, log)
            high_watermark = max(high_watermarks.get(partition, 0), log.log_start_offset)
            self.high_watermarks[partition] = min(high_watermark, log.log_end_offset)
            if partition in cleaned or layout.CLEANER_OFFSETS in self._refused:
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
        # The checkpoints that are written below may no longer show which records are missing.
        self.save_damage()
        self._write_again(outdated)
        named = {*recovery_points, *log_starts, *high_watermarks, *cleaned}
        self._departed = named - self.logs.keys()
        if any(recovery_points.get(partition, 0) > 0 for partition in self._departed):
            # Records are missing that were on disk, so this was no clean stop.
            self.broker_epoch = NO_BROKER_EPOCH

    def _write_again(self, outdated: set[str]) -> None:
        """Write checkpoints that could not be read, or name offsets beyond the end of a log.

        Records that are appended from here on must never be found below a former recovery point
        or high watermark, and a log start beyond its log would count as damage at every start.
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
        """Check whether damage that was found before this start is still there."""
        damage, before = self.damaged.get(partition), self._saved_damage.get(partition)
        if damage is None and before is not None:
            rebuilt = log.epochs_path in self.reports[partition].rebuilt
            damage = log.still_damaged(before, epochs_rebuilt=rebuilt)
        if damage is not None:
            self.damaged[partition] = damage
            log.mark_producers_incomplete(damage.offset)

    def _find(self, now_ms: int) -> list[TopicPartition]:
        """Whose logs lie here; what is on its way out is noted."""
        found = []
        for name in self.disk.list_dir(""):
            if layout.parse_mark(name) == "delete":
                self._leaving.append((now_ms, name))
                continue
            partition = layout.parse_dir(name)
            if partition is None or partition.topic == METADATA_TOPIC:
                continue
            if self.disk.is_dir(name):
                found.append(partition)
            else:
                self._in_the_way.add(partition)
                self.warnings.append(f"{name} has a partition's name but is not a folder; ignored")
        return found

    def _open_or_leave_out(
        self, partition: TopicPartition, opening: Callable[[], tuple[Log, RecoveryReport]]
    ) -> tuple[Log, RecoveryReport] | None:
        """Open a log; None if its files can't be used, so that the other logs are served.
        Raises DiskError if permissions or space are missing, or the whole disk fails."""
        try:
            return opening()
        except (DiskFull, NotPermitted):
            raise
        except (DiskError, CheckpointError) as error:
            if not self._is_writable():
                raise
            self.unreadable.add(partition)
            self._in_the_way.add(partition)
            self.warnings.append(
                f"{error}: {partition} can't be opened. If another replica has the records, they"
                " are copied from it, and this folder is renamed and kept. Else the partition stays"
                " offline until you repair the folder and restart this broker"
            )
            return None

    def _is_writable(self) -> bool:
        """Whether a file can be written here. If not, the disk failed, not one log's files."""
        try:
            replace_file(self.disk, layout.DISK_CHECK, b"")
            self.disk.delete(layout.DISK_CHECK)
        except DiskError:
            return False
        return True

    def _make_way(self, partition: TopicPartition) -> None:
        """Rename the entry that has the name of this partition's folder; the caller syncs."""
        name, names = layout.partition_dir(partition), self.disk.list_dir("")
        numbered = (layout.marked_dir(partition, n.to_bytes(16), "stray") for n in count())
        marked = next(one for one in numbered if one not in names)
        self.disk.rename(name, marked)
        self.warnings.append(f"{name} renamed to {marked}, because a new log needs its name")
        self._in_the_way.remove(partition)
        self.unreadable.discard(partition)
        for offsets in self._unreadable_offsets.values():
            offsets.pop(partition, None)

    def _read_offsets(self, name: str) -> dict[TopicPartition, Offset]:
        """The offsets in a checkpoint. A refused checkpoint counts as empty, which loses no record:
        logs start at their first segments and are read completely, high watermarks are low."""
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
        """A new, empty log."""
        self.create_all([NewLog(partition, topic_id, config or LogConfig())], now_ms, revision)
        return self.logs[partition]

    def create_all(
        self, wanted: Sequence[NewLog], now_ms: int, revision: int | None = None
    ) -> None:
        """New, empty logs: all there should be up to that revision of the metadata. Their topic
        ids are on disk before any record can be, and nothing that was said of earlier logs of
        those names is left."""
        assert self.logs.keys().isdisjoint(new.partition for new in wanted), "logs that exist"
        for new in wanted:
            if new.partition in self._in_the_way:
                self._make_way(new.partition)
        if not self._departed.isdisjoint(new.partition for new in wanted):
            self._forget_departed()
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

    def _add(self, partition: TopicPartition, log: Log) -> None:
        self.logs[partition] = log
        self._by_topic.setdefault(partition.topic, {})[partition] = None

    def of_topic(self, topic: str) -> list[TopicPartition]:
        """Which logs are here of topics that have or had this name."""
        return list(self._by_topic.get(topic, ()))

    def write_epochs(self, logs: Sequence[Log], seen: StorePoint | None = None) -> None:
        """Put the leader epochs of these logs on disk, and the point of the store's history
        that they rely on, with as few syncs as for one file."""
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

    def _forget_departed(self) -> None:
        """Let the checkpoints tell only of logs that are there: the log start of a deleted one
        would cut a new one of the same name, its recovery point would spare it the scan."""
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
        self._departed.clear()

    def delete(self, partition: TopicPartition, now_ms: int) -> None:
        """Take a log out; its files vanish after `file.delete.delay.ms`."""
        self.delete_all([partition], now_ms)

    def delete_all(self, partitions: Sequence[TopicPartition], now_ms: int) -> None:
        """The same for many, with the sync of one."""
        for partition in partitions:
            delay_ms = self.logs[partition].config.file_delete_delay_ms
            self._leaving.append((now_ms + delay_ms, self._take_out(partition, "delete")))
        if partitions:
            self.disk.sync_dir("")
        if len(self._departed) > DEPARTED_MAX:
            self._forget_departed()

    def set_aside(self, partitions: Sequence[TopicPartition]) -> None:
        """Take logs out that nobody claims; their files stay, and people are told."""
        for partition in partitions:
            marked = self._take_out(partition, "stray")
            gone = f"{partition} is of a topic that is no more: set aside as {marked}"
            self.warnings.append(gone)
        if partitions:
            self.disk.sync_dir("")

    def _take_out(self, partition: TopicPartition, mark: str) -> str:
        """The caller syncs."""
        log = self.logs.pop(partition)
        beside = self._by_topic[partition.topic]
        del beside[partition]
        if not beside:
            del self._by_topic[partition.topic]
        self._departed.add(partition)
        self.high_watermarks.pop(partition, None)
        self.cleaner_offsets.pop(partition, None)
        self.reports.pop(partition, None)
        self.damaged.pop(partition, None)
        marked = layout.marked_dir(partition, log.topic_id, mark)
        self.disk.delete_dir(marked)
        self.disk.rename(log.directory, marked)
        return marked

    def delete_due(self, now_ms: int, most: int | None = None) -> bool:
        """Remove what has waited long enough: deleted logs, `most` of them at once, and deleted
        segments of logs. Whether deleted logs are left that have waited long enough."""
        due = [entry for entry in self._leaving if entry[0] <= now_ms]
        for _, name in due[:most]:
            self.disk.delete_dir(name)
        if due:
            removed = set(due[:most])
            self._leaving = [entry for entry in self._leaving if entry not in removed]
        for log in self.logs.values():
            when_ms = log.next_delete_due()
            if when_ms is not None and when_ms <= now_ms and not log.offline:
                log.delete_due(now_ms)
        return most is not None and len(due) > most

    def write_recovery_points(self) -> None:
        """Periodically, after a truncation, and at a clean stop."""
        self._write_offsets(layout.RECOVERY_POINTS, self._recovery_points())

    def write_log_starts(self, leaving_out: TopicPartition | None = None) -> None:
        """Periodically and at a clean stop. Only of logs that begin inside a segment; not of
        one that is about to be cut below its start: a crash would begin it anew up there."""
        self._write_offsets(layout.LOG_STARTS, self._log_starts(leaving_out))

    def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, Offset]) -> None:
        """Periodically and at a clean stop."""
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
        """Write which logs are damaged to disk, if that has changed: after a crash before the
        repair they must not count as whole."""
        if not self.damaged and not self._saved_damage:
            return
        offsets = {partition: damage.offset for partition, damage in self.damaged.items()}
        if offsets != self._saved_damage:
            self._write_offsets(layout.DAMAGED_LOGS, offsets)
            self._saved_damage = offsets

    def restore_folder(self, log: Log) -> None:
        """Recreate a folder that was deleted while its log is open. The missing records are
        damage; a repair needs the folder to write them again."""
        if self.disk.is_dir(log.directory):
            return
        self.disk.make_dir(log.directory)
        contents = {log.epochs_path: checkpoint.format_epochs(log.epochs.entries)}
        if log.topic_id is not None:
            path = f"{log.directory}/{layout.PARTITION_METADATA}"
            contents[path] = checkpoint.format_topic_metadata(log.topic_id)
        replace_files(self.disk, contents, beside=[""])

    def expect_gaps(self, partition: TopicPartition) -> None:
        """Before offsets of a log are left out for the first time."""
        if partition not in self.cleaner_offsets:
            self.set_cleaner_offset(partition, self.logs[partition].log_start_offset)

    def set_cleaner_offset(self, partition: TopicPartition, first_dirty: Offset) -> None:
        """A cleaning has come so far."""
        self.cleaner_offsets[partition] = first_dirty
        self._write_cleaner_offsets()

    def cut_cleaner_offset(self, partition: TopicPartition, end: Offset) -> None:
        """Before a truncation: what will stand above its end was never cleaned (KAFKA-3330)."""
        if self.cleaner_offsets.get(partition, end) > end:
            self.set_cleaner_offset(partition, end)

    def _write_cleaner_offsets(self) -> None:
        self._write_offsets(layout.CLEANER_OFFSETS, self.cleaner_offsets)

    def write_revision(self, revision: int) -> None:
        """Record that all logs up to this revision exist, though none was created for it."""
        self.revision = revision
        replace_file(self.disk, layout.METADATA_REVISION, self._metadata_revision())

    def write_seen(self, seen: StorePoint) -> None:
        """Remember how far this broker has followed the metadata store."""
        if seen != self.seen:
            self.seen = seen
            replace_file(self.disk, layout.METADATA_REVISION, self._metadata_revision())

    def _metadata_revision(self) -> bytes:
        return checkpoint.MetadataRevision(self.revision, self.seen).format()

    def write_properties(self, properties: MetaProperties) -> None:
        replace_file(self.disk, layout.META_PROPERTIES, properties.format())
        self.properties = properties

    def close(
        self,
        high_watermarks: Mapping[TopicPartition, Offset],
        broker_epoch: int = NO_BROKER_EPOCH,
    ) -> None:
        """A clean stop: everything on disk, then the mark that says so."""
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
                partition: crc32c(checkpoint.format_epochs(log.epochs.entries))
                for partition, log in self.logs.items()
            },
        }
        self._checksums.replace(
            {name: self._format_offsets(name, offsets[name]) for name in offsets}
        )
        replace_file(self.disk, layout.CHECKPOINT_CHECKSUMS, self._checksums.settled())
        checkpoint.write_clean_shutdown(self.disk, broker_epoch)
