"""The log of one replica: append at the end, read anywhere, cut the tail, drop the head.

Nobody else writes to the partition's directory. The log stores what it is told and decides
nothing about replication: offsets and epochs are assigned before `append`, and the epoch cache
(`epochs`) belongs to the replication code that shares it; here it is only loaded, and written
when asked. Producer state (`producers`) follows every append, because rolls take snapshots of it.

Always true: log_start_offset <= log_end_offset and recovery_point <= log_end_offset; offsets
rise; a batch lies whole in one segment. After any failed write the log is offline: what the disk
then holds is unknown, and appending to it could leave a gap that looks like data (KAFKA-10778).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.lineage.producer_state import ProducerState
from tidelog.core.lineage.transaction_index import AbortedTransaction
from tidelog.core.record.record_batch import RecordBatch
from tidelog.core.record.work_budget import WorkBudget
from tidelog.core.storage import checkpoint, layout, log_reader
from tidelog.core.storage.disk import Disk, DiskError, DiskFull, Region, read_region
from tidelog.core.storage.flush import Closing, Flush, FlushState
from tidelog.core.storage.log_config import NEVER, LogConfig
from tidelog.core.storage.log_reader import TimestampAndOffset
from tidelog.core.storage.producer_snapshots import ProducerSnapshots
from tidelog.core.storage.retention import PendingDeletions
from tidelog.core.storage.segment.damage import Damage
from tidelog.core.storage.segment.segment import Segment, must_roll, next_base_offset
from tidelog.core.storage.segment.segments import Segments
from tidelog.core.storage.segment.verification import (
    DamagedRecords,
    Expected,
    damage_of,
    verify_next,
)
from tidelog.core.storage.segment_swap import swap_in
from tidelog.core.types import Offset, TopicId, TopicPartition


class LogOffline(Exception):
    """The log met a disk error and takes no more writes until it is opened anew."""


class OffsetOutOfRange(Exception):
    """A read below the log start or above the log end."""


class Log:
    """See the module. Made by `recovery.open_log` or `log_directory`."""

    __slots__ = (
        "_config",
        "_disk",
        "_flush",
        "_pending_deletions",
        "_segments",
        "_snapshots",
        "before_gap",
        "directory",
        "epochs",
        "log_end_offset",
        "log_start_offset",
        "offline",
        "on_damage",
        "partition",
        "producers",
        "producers_incomplete_from",
        "topic_id",
    )

    def __init__(
        self,
        disk: Disk,
        partition: TopicPartition,
        config: LogConfig,
        segments: Segments,
        epochs: LeaderEpochs,
        producers: ProducerState,
        snapshots: ProducerSnapshots,
        log_start_offset: Offset,
        recovery_point: Offset,
    ) -> None:
        self._disk = disk
        self._config = config
        self._segments = segments
        self._snapshots = snapshots
        # Whether the names in the directory are on disk is unknown: the first flush sees to it.
        self._flush = FlushState(recovery_point, [segments.active.path])
        self._pending_deletions = PendingDeletions(disk)
        self.partition = partition
        self.directory = layout.partition_dir(partition)
        self.topic_id: TopicId | None = None
        self.epochs = epochs
        self.producers = producers
        self.producers_incomplete_from: Offset | None = None
        """The offset of a damaged record: producer state lacks what it and later records say."""
        self.log_start_offset = log_start_offset
        self.log_end_offset = segments.active.next_offset()
        self.offline = False
        self.before_gap: Callable[[], None] | None = None
        """To be done, once, before offsets are left out: else gaps pass for damage later."""
        self.on_damage: Callable[[Damage], object] = _ignore
        """Called when a read finds records that are not as they were written."""

    # -- appending

    def append(self, batches: Sequence[RecordBatch], now_ms: int) -> None:
        """Write batches that have their offsets and epochs, with one call for each segment."""
        if self.offline:
            raise LogOffline(self.directory)
        expected = self.log_end_offset
        for batch in batches:
            if batch.base_offset != expected:
                self._check_gap(batch.base_offset, expected)
            expected = batch.last_offset + 1
        try:
            self._append_in_groups(batches, now_ms)
        except DiskError:
            self.offline = True
            raise

    def _check_gap(self, offset: Offset, expected: Offset) -> None:
        if offset < expected:
            raise ValueError(f"{self.directory}: offset {offset} after {expected}")
        if self.before_gap is not None:
            self.before_gap()
            self.before_gap = None

    def _append_in_groups(self, batches: Sequence[RecordBatch], now_ms: int) -> None:
        group: list[RecordBatch] = []
        size = 0
        for batch in batches:
            if must_roll(self._segments.active, self._config, batch, size, now_ms):
                if group:
                    self._append_group(group, size, now_ms)
                    group, size = [], 0
                self._roll(next_base_offset(self._segments.active, batch), now_ms)
            group.append(batch)
            size += batch.size
        if group:
            self._append_group(group, size, now_ms)

    def _append_group(self, group: list[RecordBatch], size: int, now_ms: int) -> None:
        active = self._segments.active
        active.append(group, size)
        for batch in group:
            aborted = self.producers.update(batch)
            if aborted is not None:
                active.add_aborted(aborted)
                self._flush.grew(active.file(layout.TXN_INDEX))
        self.log_end_offset = group[-1].last_offset + 1
        self._flush.appended(now_ms)

    def _roll(self, base_offset: Offset, now_ms: int) -> None:
        """Begin a new active segment; one that is still empty makes room for it."""
        active = self._segments.active
        if active.size == 0:
            active.delete()
            self._segments.replace_active(self._new_segment(base_offset, now_ms))
            return
        active.finish()
        if self.recovery_point >= base_offset:
            # Nothing of it is left for a flush to do, and below the recovery point indexes
            # are believed.
            active.sync_indexes()
        if self.producers_incomplete_from is None:
            self._flush.new_files.append(self._snapshots.write(self.producers, base_offset))
        self._segments.add(self._new_segment(base_offset, now_ms))

    def _new_segment(self, base_offset: Offset, now_ms: int) -> Segment:
        segment = Segment.create(self._disk, self.directory, base_offset, self._config, now_ms)
        self._flush.new_files.append(segment.path)
        return segment

    # -- reading

    def read(self, offset: Offset, max_bytes: int, upto: Offset | None = None) -> Region:
        """Whole batches from the one that holds `offset`, of one segment, below `upto` (the
        log end if None). The first batch comes whole even if it is larger than `max_bytes`
        (KIP-74); an empty region if there is nothing to read yet."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"{self.directory}: {offset} outside {self.log_start_offset}..{self.log_end_offset}"
            )
        if upto is None or upto > self.log_end_offset:
            upto = self.log_end_offset
        if offset >= upto:
            active = self._segments.active
            return Region(active.path, active.size, 0)
        try:
            found = (self._disk, self._segments, offset, max_bytes, upto, self.log_end_offset)
            return log_reader.read_region_at(*found, self.expected_of)
        except DamagedRecords as error:
            self.on_damage(error.damage)
            raise

    def expected_of(self, segment: Segment) -> Expected:
        """What the batches of this segment are compared with."""
        end = self._segments.end_of(segment) or self.log_end_offset
        return Expected(end, self.epochs, NEVER if self.may_have_gaps else self.log_start_offset)

    def require_verification_at(self, offset: Offset) -> None:
        """Check the segment that holds `offset` again before more of it is served."""
        next(self._segments.from_offset(offset)).require_verification()

    def position_of(self, upto: Offset) -> int:
        """Where reads below this offset end in the active segment's file."""
        active = self._segments.active
        if upto >= self.log_end_offset:
            return active.size
        with self.reading():
            return active.locate(upto)

    def read_bytes(self, region: Region) -> bytes:
        """The bytes of a region that `read` gave."""
        return read_region(self._disk, region) if region.length else b""

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Report a failed read as damage, and raise DamagedRecords: one unreadable file does not
        stop the broker. A full disk does: it means that a write has failed."""
        try:
            yield
        except DiskFull:
            raise
        except DiskError as error:
            damage = self.damage_of(error)
            self.on_damage(damage)
            raise DamagedRecords(damage) from error

    def damage_of(self, error: DiskError) -> Damage:
        """From which offset on the log can't be read."""
        for segment in self._segments:
            if error.path.startswith(segment.path.removesuffix(layout.LOG)):
                return damage_of(segment, error)
        return Damage(self.log_start_offset, str(error))

    def verify_from(self, offset: Offset) -> Damage | None:
        """Check the log from the segment with this offset on; return the first damage."""
        for segment in self._segments.from_offset(offset):
            expected = self.expected_of(segment)
            try:
                while segment.verified < segment.opened_size:
                    _, damage = verify_next(self._disk, segment, segment.size, expected)
                    if damage is not None:
                        return damage
            except DiskError as error:
                return damage_of(segment, error)
        return None

    def still_damaged(self, offset: Offset, *, epochs_rebuilt: bool) -> Damage | None:
        """What is left of damage that was found there before the log was opened. Epochs that
        were rebuilt from the log no longer prove that it began earlier."""
        first = self._segments.first.base_offset
        if offset < first and epochs_rebuilt:
            return Damage(offset, f"offsets {offset} to {first - 1} were missing before this start")
        if offset < self.log_start_offset:
            return None
        if offset < self.log_end_offset:
            return self.verify_from(offset)
        reason = "the records behind its end were lost before this start"
        return Damage(self.log_end_offset, reason, inside=False)

    def require_verification(self, path: str) -> None:
        """Check all of this segment's file again before it is read."""
        for segment in self._segments:
            if segment.path == path:
                segment.require_verification()

    def offset_for_timestamp(
        self, timestamp: int, budget: WorkBudget | None = None
    ) -> TimestampAndOffset | None:
        """The first record with that timestamp or a later one; `budget` pays for opened batches."""
        start, budget = self.log_start_offset, budget or WorkBudget()
        place = (self._disk, self._segments, timestamp, start, budget)
        with self.reading():
            return log_reader.offset_for_timestamp(*place)

    def max_timestamp(self, budget: WorkBudget | None = None) -> TimestampAndOffset | None:
        """The first record with the largest timestamp."""
        start, budget = self.log_start_offset, budget or WorkBudget()
        with self.reading():
            return log_reader.offset_of_max_timestamp(self._disk, self._segments, start, budget)

    def aborted_transactions(self, offset: Offset, upper_bound: Offset) -> list[AbortedTransaction]:
        """Those that a read-committed reader of that range has to know."""
        return log_reader.aborted_between(self._segments, offset, upper_bound)

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size for segment in self._segments)

    @property
    def segments(self) -> Segments:
        """For tools, tests and the cleaner."""
        return self._segments

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        for segment in self._segments:
            segment.config = config

    # -- cutting

    def truncate_to(self, end: Offset) -> Offset:
        """Cut the tail; the log end afterwards: `end`, or less if a batch straddles it.

        Each step is on disk before the next, and all of it before anything can be appended:
        old bytes that come back after a power failure, under the epochs of new ones, would
        pass for new ones. The epoch cache is the caller's to trim; the recovery point has to
        be checkpointed by whoever keeps that file.
        """
        if end >= self.log_end_offset:
            return self.log_end_offset
        if end < self._segments.first.base_offset:
            self.restart_at(end)
            return end
        with self._writing():
            for segment in self._segments.remove_above(end):
                segment.delete()
            self._snapshots.delete_above(end)
            self._disk.sync_dir(self.directory)
            active = self._segments.active
            if not self._disk.exists(active.path):
                # Its file was deleted: none of its records can be kept.
                end = active.base_offset
                active = self._new_segment(end, active.created_ms)
                self._segments.replace_active(active)
            end = active.truncate_to(end)
            self._disk.sync(active.path)
            self._flush.truncated(end)
            self.log_end_offset = end
            self.log_start_offset = min(self.log_start_offset, end)
            if self.producers_incomplete_from is not None and end <= self.producers_incomplete_from:
                self.recover_producers()
            elif not self.producers.truncate_to(end):
                self._rebuild_producers()
        return end

    def _rebuild_producers(self) -> None:
        """Rebuild the producer state up to the log end, or up to the first damaged batch."""
        with suppress(DamagedRecords), self.reading():
            self._snapshots.rebuild(self.producers, self._segments)
        self.producers.end_offset = self.log_end_offset

    def mark_producers_incomplete(self, damaged: Offset) -> None:
        """The log is damaged there, as was found when it was opened. Unless a snapshot knew all
        of it, producer state lacks what the damaged records did, and no snapshot may say so."""
        doubted = max(damaged, self._snapshots.loaded)
        if doubted < self.log_end_offset:
            self.producers_incomplete_from = doubted
            self._snapshots.delete_above(doubted)

    def recover_producers(self) -> None:
        """Read producer state again: the damaged records are in place."""
        if self.producers_incomplete_from is not None:
            self._snapshots.delete_above(self.producers_incomplete_from)
            self.producers_incomplete_from = None
            self._rebuild_producers()

    def drop_before(self, start: Offset, now_ms: int) -> list[Segment]:
        """Move the log start up; segments wholly below it become `.deleted` and are returned."""
        if start > self.log_end_offset:
            raise ValueError(f"{self.directory}: log start {start} above the log end")
        with self._writing():
            self.log_start_offset = max(self.log_start_offset, start)
            if start == self.log_end_offset and self._segments.active.size:
                self._roll(start, now_ms)
            due = now_ms + self._config.file_delete_delay_ms
            dropped = self._segments.remove_below(self.log_start_offset)
            for segment in dropped:
                for kind in layout.SEGMENT_KINDS:
                    self._pending_deletions.add(segment.file(kind), due)
            self._snapshots.delete_below(self._segments.first.base_offset)
            if dropped:
                # What was deleted must not come back with the power.
                self._disk.sync_dir(self.directory)
        return dropped

    def restart_at(self, offset: Offset) -> None:
        """Throw everything away and begin, empty, at `offset`."""
        now_ms = self._segments.active.created_ms
        with self._writing():
            for segment in reversed(list(self._segments)):
                segment.delete()
            self._snapshots.delete_all()
            self._segments = Segments([self._new_segment(offset, now_ms)])
            self._disk.sync_dir(self.directory)
        self.producers.restart_at(offset)
        self.producers_incomplete_from = None
        self.log_start_offset = self.log_end_offset = offset
        self._flush.restarted(offset)

    def replace_segments(self, replaced: Sequence[Segment], now_ms: int) -> None:
        """Put the cleaned segment, whose `.cleaned` files are on disk, in the place of these,
        which follow each other and are all closed."""
        due = now_ms + self._config.file_delete_delay_ms
        with self._writing():
            swap_in(self._disk, self._segments, replaced, self._pending_deletions, due)
            self._snapshots.delete_strays(self._segments)

    @property
    def may_have_gaps(self) -> bool:
        """Whether compaction may have left out offsets, here or where the records came from."""
        return self.before_gap is None or self._config.cleanup_compact

    def closed_segment(self, offset: Offset, now_ms: int) -> Segment:
        """The segment with this offset. If it is the active one, it is closed first."""
        segment = next(self._segments.from_offset(offset))
        if segment is self._segments.active:
            with self._writing():
                if not self._disk.exists(segment.path):
                    self._disk.write(segment.path, b"")  # deleted while it was open
                self._roll(self.log_end_offset, now_ms)
        return segment

    def create_missing_segment(self, base_offset: Offset, now_ms: int) -> Segment:
        """Create a segment where one is missing, to be filled by a repair (repair.py)."""
        with self._writing():
            segment = self._new_segment(base_offset, now_ms)
            self._segments.insert(segment)
            self._disk.sync_dir(self.directory)
        return segment

    @property
    def generation(self) -> int:
        """Grows with every truncation."""
        return self._flush.generation

    def write_epochs(self) -> None:
        """Put `leader-epoch-checkpoint` on disk as the cache is now."""
        with self._writing():
            checkpoint.write_epochs(self._disk, self.epochs_path, self.epochs.entries)

    @property
    def epochs_path(self) -> str:
        return f"{self.directory}/{layout.LEADER_EPOCHS}"

    def delete_due(self, now_ms: int) -> int:
        """Remove `.deleted` files whose delay is over; how many."""
        with self._writing():
            return self._pending_deletions.remove_due(now_ms)

    def next_delete_due(self) -> int | None:
        return self._pending_deletions.next_due()

    # -- durability

    @property
    def recovery_point(self) -> Offset:
        """Everything below is on disk, whatever happens."""
        return self._flush.recovery_point

    def flush_due(self, now_ms: int) -> Offset | None:
        """Up to where the settings, or a roll, ask for a flush now."""
        return self._flush.due(
            self._config, self.log_end_offset, self._segments.active.base_offset, now_ms
        )

    def start_flush(self, upto: Offset | None = None) -> Flush | None:
        """What to sync so that everything below `upto` (all, if None) is on disk. Without the
        active segment's indexes: it is scanned after an unclean stop."""
        end = self.log_end_offset if upto is None else min(upto, self.log_end_offset)
        if end <= self.recovery_point:
            return None
        files = []
        with self._writing():
            for segment in self._segments.from_offset(self.recovery_point):
                if segment.base_offset >= end:
                    break
                files.append(segment.path)
                if segment is not self._segments.active:
                    segment.write_indexes()
                    kinds = (layout.OFFSET_INDEX, layout.TIME_INDEX, layout.TXN_INDEX)
                    files += [segment.file(kind) for kind in kinds]
        everything = end == self.log_end_offset
        return self._flush.start(end, files, self.directory, everything)

    def flush_completed(self, flush: Flush) -> None:
        """What `flush` names is synced."""
        self._flush.completed(flush)

    def flush(self) -> None:
        """All of it, here and now."""
        flush = self.start_flush()
        if flush is not None:
            with self._writing():
                self._disk.sync_many(flush.files, flush.directories)
            self.flush_completed(flush)

    def start_close(self) -> Closing | None:
        """Make the files what a clean stop leaves, and say what of it to sync; None if nothing
        has changed since the last one. The log is not to be used afterwards. The snapshot is
        not waited for: one that a power failure tears is recognised."""
        active = self._segments.active
        end = self.log_end_offset
        empty = end == self._segments.first.base_offset
        recorded = empty or self._snapshots.newest == end
        if end <= self.recovery_point and recorded and active.indexes_synced:
            return None
        with self._writing():
            active.finish()
            indexes = active.unsynced_indexes()
            if not empty and self.producers_incomplete_from is None:
                self._snapshots.write(self.producers, end)
        return Closing(indexes, self.start_flush())

    def close(self) -> None:
        """A clean stop of this log alone."""
        closing = self.start_close()
        if closing is not None:
            with self._writing():
                self._disk.sync_many(closing.files, closing.directories)
            self.closed(closing)

    def closed(self, closing: Closing) -> None:
        """What `closing` names is synced."""
        if closing.flush is not None:
            self.flush_completed(closing.flush)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if self.offline:
            raise LogOffline(self.directory)
        try:
            yield
        except DiskError:
            self.offline = True
            raise


def _ignore(_damage: Damage) -> None:
    """For tools, which raise the error to people."""
