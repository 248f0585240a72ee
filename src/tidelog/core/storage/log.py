"""The log of one replica: append, read, truncate the end, delete the start.

Only this code writes to the partition's directory. The log makes no decisions about replication:
offsets and epochs are set before `append`, and the replication code changes the epoch cache
(`epochs`), which is only loaded and written here. Producer state (`producers`) is updated with
every append, because each roll writes a snapshot of it.

Invariants: log_start_offset <= log_end_offset and recovery_point <= log_end_offset; offsets rise;
a batch is in one segment. After any failed write the log is offline: the content of the file is
then unknown, and appending could leave a gap that looks like data (KAFKA-10778).
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
from tidelog.core.storage.segment.damage import (
    Damage,
    DamagedRecords,
    Expected,
    damage_of,
    verify_next,
)
from tidelog.core.storage.segment.segment import Segment, must_roll, next_base_offset
from tidelog.core.storage.segment.segments import Segments
from tidelog.core.storage.segment_swap import swap_in
from tidelog.core.types import EpochEntry, Offset, TopicId, TopicPartition


class LogOffline(Exception):
    """The log had a disk error and rejects writes until it is opened again."""


class OffsetOutOfRange(Exception):
    """The offset of a read is below the log start or above the log end."""


class Log:
    """The log of one replica, created by `recovery.open_log` or `log_directory`."""

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
        "epochs_deferred",
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
        # It is unknown whether the directory entry is durable; the first flush syncs it.
        self._flush = FlushState(recovery_point, [segments.active.path])
        self._pending_deletions = PendingDeletions(disk)
        self.partition = partition
        self.directory = layout.partition_dir(partition)
        self.topic_id: TopicId | None = None
        self.epochs = epochs
        self.epochs_deferred = False
        """Whether the last epoch has no record yet and is not on disk: `append` writes it first.
        A broker that begins to lead thousands of partitions syncs no file for them."""
        self.producers = producers
        self.producers_incomplete_from: Offset | None = None
        """The offset of a damaged record: producer state does not include it and later records."""
        self.log_start_offset = log_start_offset
        self.log_end_offset = segments.active.next_offset()
        self.offline = False
        self.before_gap: Callable[[], None] | None = None
        """Called once, before the first gap in offsets: other gaps count as damage."""
        self.on_damage: Callable[[Damage], object] = _ignore
        """Called when a read finds damaged records."""

    # -- appending

    def append(self, batches: Sequence[RecordBatch], now_ms: int) -> None:
        """Append batches whose offsets and epochs are set, with one write for each segment."""
        if self.offline:
            raise LogOffline(self.directory)
        if self.epochs_deferred:
            self.write_epochs()
        expected = self.log_end_offset
        for batch in batches:
            if batch.base_offset != expected:
                self._check_gap(batch.base_offset, expected)
            expected = batch.last_offset + 1
        group: list[RecordBatch] = []
        size = 0
        try:
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
        except DiskError:
            self.offline = True
            raise

    def _check_gap(self, offset: Offset, expected: Offset) -> None:
        if offset < expected:
            raise ValueError(
                f"{self.directory}: batch starts at offset {offset}, expected {expected}"
            )
        if self.before_gap is not None:
            self.before_gap()
            self.before_gap = None

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
        """Start a new active segment. An empty active segment is deleted."""
        active = self._segments.active
        if active.size == 0:
            active.delete()
            self._segments.replace_active(self._new_segment(base_offset, now_ms))
            return
        active.finish()
        if self.recovery_point >= base_offset:
            # No flush will cover this segment, and recovery trusts indexes below the recovery
            # point.
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
        """Return the region of whole batches of one segment, from the batch that contains `offset`
        up to `upto` (None: the log end). The first batch is included even if it is larger than
        `max_bytes` (KIP-74). The region is empty if there are no records yet."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"{self.directory}: offset {offset} is out of range"
                f" {self.log_start_offset} to {self.log_end_offset}"
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
        """Return the values that the batches of this segment are compared with."""
        end = self._segments.end_of(segment) or self.log_end_offset
        return Expected(end, self.epochs, NEVER if self.may_have_gaps else self.log_start_offset)

    def require_verification_at(self, offset: Offset) -> None:
        """Verify the segment that contains `offset` again before the next read."""
        next(self._segments.from_offset(offset)).require_verification()

    def position_of(self, upto: Offset) -> int:
        """Return the position in the active segment's file where offsets below `upto` end."""
        active = self._segments.active
        if upto >= self.log_end_offset:
            return active.size
        with self.reading():
            return active.locate(upto)

    def read_bytes(self, region: Region) -> bytes:
        """Return the bytes of a region that `read` returned."""
        return read_region(self._disk, region) if region.length else b""

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Report a failed read as damage and raise DamagedRecords: an unreadable file must not stop
        the broker. DiskFull is raised as it is: it means that a write has failed."""
        try:
            yield
        except DiskFull:
            raise
        except DiskError as error:
            damage = self.damage_of(error)
            self.on_damage(damage)
            raise DamagedRecords(damage) from error

    def damage_of(self, error: DiskError) -> Damage:
        """Return the damage that a failed read shows."""
        for segment in self._segments:
            if error.path.startswith(segment.path.removesuffix(layout.LOG)):
                return damage_of(segment, error)
        return Damage(self.log_start_offset, str(error))

    def verify_from(self, offset: Offset) -> Damage | None:
        """Verify the log from the segment with this offset on; return the first damage."""
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
        """Return what remains of damage at `offset` that was found before the log was opened.
        Epochs that were rebuilt from the log do not show whether the log once started earlier."""
        first = self._segments.first.base_offset
        if offset < first and epochs_rebuilt:
            return Damage(offset, f"offsets {offset} to {first - 1} were missing before this start")
        if offset < self.log_start_offset:
            return None
        if offset < self.log_end_offset:
            return self.verify_from(offset)
        reason = "records after the log end were lost before this start"
        return Damage(self.log_end_offset, reason, inside=False)

    def require_verification(self, path: str) -> None:
        """Verify this segment's file again before it is read."""
        for segment in self._segments:
            if segment.path == path:
                segment.require_verification()

    def offset_for_timestamp(
        self, timestamp: int, budget: WorkBudget | None = None
    ) -> TimestampAndOffset | None:
        """Find the first record with this or a later timestamp; `budget` limits decompression."""
        start, budget = self.log_start_offset, budget or WorkBudget()
        place = (self._disk, self._segments, timestamp, start, budget)
        with self.reading():
            return log_reader.offset_for_timestamp(*place)

    def max_timestamp(self, budget: WorkBudget | None = None) -> TimestampAndOffset | None:
        """Find the first record with the largest timestamp."""
        start, budget = self.log_start_offset, budget or WorkBudget()
        with self.reading():
            return log_reader.offset_of_max_timestamp(self._disk, self._segments, start, budget)

    def aborted_transactions(self, offset: Offset, upper_bound: Offset) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap this range."""
        return log_reader.aborted_between(self._segments, offset, upper_bound)

    def aborted_in(self, region: Region, offset: Offset, upto: Offset) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in a region that `read` returned for
        `offset` and `upto`."""
        end = log_reader.end_of_region(self._segments, offset, region, upto)
        return self.aborted_transactions(offset, end)

    @property
    def size(self) -> int:
        """The size of all batches in bytes."""
        return sum(segment.size for segment in self._segments)

    @property
    def segments(self) -> Segments:
        """The segments, for tools, tests and the cleaner."""
        return self._segments

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        for segment in self._segments:
            segment.config = config

    # -- truncation and deletion

    def truncate_to(self, end: Offset) -> Offset:
        """Truncate the log; return the new log end: `end`, or less if a batch spans it.

        Each step is on disk before the next, and all steps before the next append: old bytes
        that reappear after a power failure would have the offsets and epochs of new records. The
        caller truncates the epoch cache and writes the recovery point checkpoint.
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
                # The file was deleted, so its records are lost.
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
        """Note that producer state lacks records from `damaged` on, and delete later snapshots. It
        is complete up to the snapshot that was loaded, if that is later."""
        incomplete_from = max(damaged, self._snapshots.loaded)
        if incomplete_from < self.log_end_offset:
            self.producers_incomplete_from = incomplete_from
            self._snapshots.delete_above(incomplete_from)

    def recover_producers(self) -> None:
        """Rebuild producer state after the damaged records were repaired or truncated."""
        if self.producers_incomplete_from is not None:
            self._snapshots.delete_above(self.producers_incomplete_from)
            self.producers_incomplete_from = None
            self._rebuild_producers()

    def drop_before(self, start: Offset, now_ms: int) -> list[Segment]:
        """Advance the log start; rename segments below it to `.deleted`, and return them."""
        if start > self.log_end_offset:
            raise ValueError(
                f"{self.directory}: log start {start} is above the log end {self.log_end_offset}"
            )
        if self.epochs_deferred:
            self.write_epochs()
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
                # Deleted files must not reappear after a power failure.
                self._disk.sync_dir(self.directory)
        return dropped

    def restart_at(self, offset: Offset) -> None:
        """Delete all records; the log starts empty at `offset`."""
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
        """Replace these adjacent closed segments with the `.cleaned` files of the first one's base
        offset, which are on disk."""
        due = now_ms + self._config.file_delete_delay_ms
        with self._writing():
            swap_in(self._disk, self._segments, replaced, self._pending_deletions, due)
            self._snapshots.delete_strays(self._segments)

    @property
    def snapshot_paths(self) -> list[str]:
        """The files with snapshots of the producer state."""
        return self._snapshots.paths

    def move_to(self, disk: Disk) -> None:
        """Use the folder of the same name on another disk, which has the same files. They are
        verified before they are read."""
        self._disk = disk
        self._snapshots.move_to(disk)
        self._pending_deletions = PendingDeletions(disk)
        for segment in self._segments:
            segment.move_to(disk)

    @property
    def may_have_gaps(self) -> bool:
        """Whether compaction may have removed offsets, here or on an earlier leader."""
        return self.before_gap is None or self._config.cleanup_compact

    def closed_segment(self, offset: Offset, now_ms: int) -> Segment:
        """Return the segment with this offset; if it is the active one, roll first."""
        segment = next(self._segments.from_offset(offset))
        if segment is self._segments.active:
            with self._writing():
                if not self._disk.exists(segment.path):
                    self._disk.write(segment.path, b"")  # deleted while it was open
                self._roll(self.log_end_offset, now_ms)
        return segment

    def create_missing_segment(self, base_offset: Offset, now_ms: int) -> Segment:
        """Create an empty segment where one is missing; a repair fills it (repair.py)."""
        with self._writing():
            segment = self._new_segment(base_offset, now_ms)
            self._segments.insert(segment)
            self._disk.sync_dir(self.directory)
        return segment

    @property
    def generation(self) -> int:
        """A counter that grows with every truncation."""
        return self._flush.generation

    def write_epochs(self) -> None:
        """Write the epoch cache to `leader-epoch-checkpoint`."""
        with self._writing():
            checkpoint.write_epochs(self._disk, self.epochs_path, self.epochs.entries)
        self.epochs_deferred = False

    def epochs_after_restart(self) -> list[EpochEntry]:
        """Return the epochs except one without records, which recovery removes too."""
        end = self.log_end_offset
        if 0 < self.log_start_offset == end:
            return self.epochs.entries
        return [entry for entry in self.epochs.entries if entry.start_offset < end]

    @property
    def epochs_path(self) -> str:
        return f"{self.directory}/{layout.LEADER_EPOCHS}"

    def delete_due(self, now_ms: int) -> int:
        """Remove `.deleted` files whose delay is over; return their number."""
        with self._writing():
            return self._pending_deletions.remove_due(now_ms)

    def next_delete_due(self) -> int | None:
        return self._pending_deletions.next_due()

    # -- durability

    @property
    def recovery_point(self) -> Offset:
        """The offset below which all records survive a power failure."""
        return self._flush.recovery_point

    def flush_due(self, now_ms: int) -> Offset | None:
        """Return where to flush up to now: the log end by the settings, the active segment's start
        after a roll, or None."""
        config, state = self._config, self._flush
        if self.log_end_offset - state.requested >= config.flush_messages:
            return self.log_end_offset
        oldest = state.oldest_unflushed_ms
        if oldest is not None and now_ms - oldest >= config.flush_ms:
            return self.log_end_offset
        base = self._segments.active.base_offset
        return base if base > state.requested else None

    def start_flush(self, upto: Offset | None = None) -> Flush | None:
        """Return the files to sync so that records below `upto` (None: all) are durable. The active
        segment's indexes are not among them: recovery rebuilds them."""
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
        """Apply a flush whose files are synced."""
        self._flush.completed(flush)

    def flush(self) -> None:
        """Flush all records and wait for it."""
        flush = self.start_flush()
        if flush is not None:
            with self._writing():
                self._disk.sync_many(flush.files, flush.directories)
            self.flush_completed(flush)

    def start_close(self) -> Closing | None:
        """Write the files of a clean stop, and return those to sync; None if nothing has changed
        since the last one. The log must not be used afterwards. The snapshot is not synced: if a
        power failure tears it, its checksum shows that."""
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
        """Stop this log cleanly."""
        closing = self.start_close()
        if closing is not None:
            with self._writing():
                self._disk.sync_many(closing.files, closing.directories)
            self.closed(closing)

    def closed(self, closing: Closing) -> None:
        """Apply a clean stop whose files are synced."""
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
    """Do nothing: tools show the error that is raised."""
