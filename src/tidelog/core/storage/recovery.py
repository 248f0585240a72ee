"""Recovery of a log at startup: find its end, truncate torn writes, rebuild indexes and state.

After a clean stop the segments are not read. After any other stop, the segment with the recovery
point and all later ones are read, batch by batch. The log ends at the first batch that is
incomplete or has a wrong checksum (M04); later segments are deleted, because a log has no holes.
Indexes, producer state and leader epochs are rebuilt meanwhile. Segments below the recovery point
were synced and are not read.

A crash can't damage synced records. A damaged batch below the recovery point, or after a clean
stop, is skipped and reported as damage: the sound records after it are kept, and a repair replaces
the batch.

Every truncation is in the report, with the file and the reason. Opening a log a second time
changes nothing.
"""

from bisect import bisect_right
from functools import partial
from typing import NamedTuple
from zlib import crc32

from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.lineage.producer_state import ProducerState
from tidelog.core.lineage.transaction_index import AbortedTransaction, CorruptTransactionIndex
from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.record_batch import PREFIX_SIZE, CorruptRecord, RecordBatch
from tidelog.core.slotted import field, slotted
from tidelog.core.storage import checkpoint, layout
from tidelog.core.storage.checkpoint import CheckpointError
from tidelog.core.storage.disk import Disk, DiskError, move_aside, read_file
from tidelog.core.storage.layout import FileName
from tidelog.core.storage.log import Log
from tidelog.core.storage.log_config import NEVER, LogConfig
from tidelog.core.storage.producer_snapshots import ProducerSnapshots, refill_windows
from tidelog.core.storage.segment.batch_order import BatchOrder, epochs_of, file_is_right
from tidelog.core.storage.segment.batch_scan import (
    BatchSpan,
    InvalidBatch,
    batch_behind,
    whole_batches,
)
from tidelog.core.storage.segment.damage import Damage, missing_between, missing_end, missing_start
from tidelog.core.storage.segment.segment import RELATIVE_OFFSET_MAX, Segment
from tidelog.core.storage.segment.segments import Segments
from tidelog.core.storage.segment_swap import complete_swaps
from tidelog.core.types import EpochEntry, Offset, TopicId, TopicPartition

MAGIC_AT = 16
OLD_RECORD_MIN = 26
"""Size of a record of format 0 without key and value."""


class UnsupportedFormat(Exception):
    """The log has valid records of a format before v2; truncating them would lose data."""


class Cut(NamedTuple):
    """A truncation of a file."""

    path: str
    from_size: int
    to_size: int
    reason: str


class _Scanned(NamedTuple):
    """The position and offset up to which batches are sound, and why the scan stopped there."""

    stop: int
    offset: Offset
    reason: str | None
    whole: bool
    """Whether the batch there is complete, so that no write was interrupted."""


@slotted
class RecoveryReport:
    """The findings and changes of the recovery of one log."""

    partition: TopicPartition
    clean: bool
    log_start_offset: Offset = 0
    log_end_offset: Offset = 0
    scanned_bytes: int = 0
    cuts: list[Cut] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    """Paths of deleted segments and temporary files."""
    rebuilt: list[str] = field(default_factory=list)
    """Paths of indexes and checkpoints that were rebuilt from the log."""
    warnings: list[str] = field(default_factory=list)
    damage: Damage | None = None
    """Records that are missing although no crash can have removed them."""

    @property
    def changed(self) -> bool:
        return bool(self.cuts or self.deleted or self.rebuilt)

    def findings(self) -> list[tuple[bool, str]]:
        """Return one line for each finding; True marks a warning. Damage is not included: a
        broker logs it when it reports it (node/membership/log_reporter.py)."""
        return [
            *(
                (True, f"{c.path}: truncated from {c.from_size} to {c.to_size} bytes: {c.reason}")
                for c in self.cuts
            ),
            *((False, f"{path}: deleted") for path in self.deleted),
            *((False, f"{path}: rebuilt from the log") for path in self.rebuilt),
            *((True, warning) for warning in self.warnings),
        ]

    def lines(self) -> list[str]:
        """Return the findings and the damage as text."""
        damage = [self.damage.reason] if self.damage else []
        return [text for _, text in self.findings()] + damage


def open_log(
    disk: Disk,
    partition: TopicPartition,
    config: LogConfig,
    now_ms: int,
    *,
    recovery_point: Offset | None = 0,
    log_start_offset: Offset = 0,
    known_end: Offset = 0,
    clean: bool = False,
    cleaned_upto: Offset | None = NEVER,
    epochs_checksum: int | None = None,
) -> tuple[Log, RecoveryReport]:
    """Open the log in the partition's directory, or create it.

    - `recovery_point`, `log_start_offset`: from the checkpoints. If the recovery point is None, it
      is unknown: the whole log is read, and only the last segment may be truncated.
    - `known_end`: the largest offset of this log in any checkpoint.
    - `clean`: whether the mark of a clean stop was found.
    - `cleaned_upto`: None if these records were never compacted, here or on an earlier leader;
      then a gap between offsets is damage. Else gaps are allowed within segments, and between
      segments below this offset: Kafka's cleaner does not keep a segment's last batch, ours does.
    - `epochs_checksum`: the checksum of the leader epochs at a clean stop. If it matches, they are
      not compared with the log.
    """
    recovery = _Recovery(disk, partition, config, now_ms, clean)
    recovery.gaps_allowed = cleaned_upto is not None or config.cleanup_compact
    recovery.cleaned_upto = cleaned_upto or 0
    recovery.epochs_checksum = epochs_checksum
    return recovery.load(recovery_point, log_start_offset, known_end), recovery.report


class _Recovery:
    """The recovery of one log, in the steps of `load`."""

    def __init__(
        self, disk: Disk, partition: TopicPartition, config: LogConfig, now_ms: int, clean: bool
    ) -> None:
        self.disk = disk
        self.partition = partition
        self.directory = layout.partition_dir(partition)
        self.config = config
        self.now_ms = now_ms
        self.report = RecoveryReport(partition, clean)
        self.epochs = LeaderEpochs()
        self.producers = ProducerState()
        self.snapshots = ProducerSnapshots(disk, self.directory)
        self.gaps_allowed = False
        self.cleaned_upto: Offset = 0
        self.batch_order = BatchOrder(self.epochs, gaps_allowed=True)
        self.segments: list[Segment] = []
        self.epochs_path = f"{self.directory}/{layout.LEADER_EPOCHS}"
        self.written_epochs: list[EpochEntry] | None = None
        self.epochs_checksum: int | None = None
        self.epochs_emptied = False
        """Whether the epoch file is empty, like that of a new log."""
        self.epochs_as_written = False
        """Whether the epoch file has the checksum `epochs_checksum`."""
        self.inside: str | None = None
        """The file and the reason of a truncation that no crash can have caused."""
        self.unindexed: list[Segment] = []
        """Segments without an offset index."""
        self.kept_below: Offset = 0
        """Records below this offset were synced: damaged ones are reported, not truncated."""
        self.open_ends: dict[str, list[tuple[int, int]]] = {}
        """Damaged byte ranges of segments whose last bytes are damaged too, by path."""
        self.kept: Damage | None = None
        """The first damage below `kept_below`."""

    def load(self, recovery_point: Offset | None, log_start: Offset, known_end: Offset) -> Log:
        self.disk.make_dir(self.directory)
        self._open_segments(self._settle_names())
        self._load_epochs()
        self.batch_order = BatchOrder(self.epochs, self.gaps_allowed)
        self.kept_below = self._synced_upto(recovery_point)
        recovery_point = recovery_point or 0
        first = self._first_doubtful(recovery_point)
        for segment in self.segments[:first]:
            if segment in self.unindexed:
                self._scan(segment, replay=False)
        damage = missing_start(self.written_epochs or (), self.segments)
        damage = damage or missing_between(self.segments[: first + 1], self.cleaned_upto)
        self._recover_from(first)
        log_start = self._settle_start(log_start)
        segments = Segments(self.segments)
        log_end = segments.active.next_offset()
        # Keep the first epoch, so that the missing start is found again after a crash.
        first_epoch = log_start if damage is None else min(log_start, damage.offset)
        self._check_epochs(segments, log_start, log_end)
        self._settle_epochs(first_epoch, log_end)
        self._settle_producers(segments, log_end)
        if self.kept is not None and (damage is None or self.kept.offset < damage.offset):
            damage = self.kept
        settled = log_end if self.report.clean else min(recovery_point, log_end)
        log = Log(
            self.disk,
            self.partition,
            self.config,
            segments,
            self.epochs,
            self.producers,
            self.snapshots,
            log_start,
            settled,
        )
        log.topic_id = self._read_topic_id()
        self.report.log_start_offset, self.report.log_end_offset = log_start, log_end
        self.report.damage = damage or missing_end(log_end, known_end) or self._torn_inside(log_end)
        return log

    def _synced_upto(self, recovery_point: Offset | None) -> Offset:
        """Return the offset below which no crash can have damaged a write."""
        if self.report.clean:
            return NEVER
        if recovery_point is not None:
            return recovery_point
        return self.segments[-1].base_offset if self.segments else 0

    def _torn_inside(self, log_end: Offset) -> Damage | None:
        """Return damage if recovery truncated more than one incomplete batch at the end, which is
        all that a crash leaves."""
        if self.inside is None:
            return None
        return Damage(log_end, self.inside, inside=False)

    def _settle_names(self) -> list[FileName]:
        """Return the files of the directory, after interrupted segment swaps are completed."""
        listed, others = self.disk.scan_dir(self.directory)
        if others:
            self._move_aside(others)
        removed = complete_swaps(self.disk, self.directory, listed)
        if removed is not None:
            self.report.deleted += removed
            listed, _ = self.disk.scan_dir(self.directory)
        return [name for name in map(layout.parse_file, listed) if name is not None]

    def _move_aside(self, others: list[str]) -> None:
        """Rename entries that have the name of a file but are not files."""
        for name in filter(layout.is_file_name, others):
            path = f"{self.directory}/{name}"
            aside = move_aside(self.disk, path)
            self.report.warnings.append(f"{path} is not a file: moved to {aside}")
        self.disk.sync_dir(self.directory)

    def _open_segments(self, names: list[FileName]) -> None:
        """Open the segments in order. Index files without a `.log` file are deleted."""
        snapshots = (name.base_offset for name in names if name.kind == layout.SNAPSHOT)
        self.snapshots = ProducerSnapshots(self.disk, self.directory, snapshots)
        bases = sorted(name.base_offset for name in names if name.kind == layout.LOG)
        indexed = {name.base_offset for name in names if name.kind == layout.OFFSET_INDEX}
        for name in names:
            if name.kind in layout.SEGMENT_KINDS and name.base_offset not in bases:
                self._delete(f"{self.directory}/{name}")
        for base in bases:
            segment = Segment.open(self.disk, self.directory, base, self.config, self.now_ms)
            self.segments.append(segment)
            if base not in indexed:
                self.unindexed.append(segment)
                self.report.rebuilt.append(segment.file(layout.OFFSET_INDEX))

    def _first_doubtful(self, recovery_point: Offset) -> int:
        """Return the index of the first segment to read: none after a clean stop, else the one
        with the recovery point, or an earlier one that is visibly damaged.

        A clean stop leaves the recovery point at the log end: an end after it comes from a
        damaged batch header."""
        bases = [segment.base_offset for segment in self.segments]
        trusted = max(0, bisect_right(bases, recovery_point) - 1)
        if self.report.clean:
            trusted = len(bases)
        for number, segment in enumerate(self.segments[:trusted]):
            try:
                segment.aborted()
                if number == len(bases) - 1:
                    self._check_end(segment, recovery_point)
            except (CorruptTransactionIndex, DiskError) as error:
                why = str(error)
                if isinstance(error, CorruptTransactionIndex):
                    why = f"{segment.file(layout.TXN_INDEX)}: {why}"
                self.report.warnings.append(f"{why}; the log is read from here on")
                return number
        return trusted

    def _check_end(self, segment: Segment, recovery_point: Offset) -> None:
        """Raise DiskError if the last segment can't end there after a clean stop."""
        end = segment.next_offset()
        if end < segment.base_offset:
            raise DiskError(f"ends at offset {end}, before its first offset", segment.path)
        if 0 < recovery_point < end:
            raise DiskError(
                f"ends at offset {end}, after its recovery point {recovery_point}", segment.path
            )

    def _recover_from(self, first: int) -> None:
        """Read the segments that may not be synced, and truncate the log at the first damage."""
        if first == len(self.segments):
            return
        self._replay_to(first)
        for number in range(first, len(self.segments)):
            segment = self.segments[number]
            joins = number == first or self._joins(self.segments[number - 1], segment)
            if not joins and segment.base_offset >= self.kept_below:
                self._delete_segments_after(number - 1)
                break
            if not self._scan(segment, replay=True):
                self._delete_segments_after(number)
                break

    def _replay_to(self, first: int) -> None:
        """Restore the producer state of the offset where the scan starts."""
        base = self.segments[first].base_offset
        before = Segments(self.segments[: first + 1])
        start = before.first.base_offset
        self.snapshots.load(self.producers, start, base)
        try:
            self.snapshots.replay(self.producers, before, base)
        except DiskError as error:
            self._keep_damage(self.producers.end_offset, str(error))

    def _joins(self, earlier: Segment, later: Segment) -> bool:
        """Whether the later segment starts where the earlier one ends, or is kept though the
        earlier one is damaged. A power failure can lose the end of a segment but not the next
        one, or restore a deleted one; compaction leaves gaps, too."""
        try:
            end = earlier.next_offset()
        except DiskError:
            return False  # the end of `earlier` is damaged and was kept
        if end == later.base_offset or end < later.base_offset <= self.cleaned_upto:
            return True
        damage = missing_between((earlier, later), self.cleaned_upto)
        if damage is not None and (
            later.base_offset < self.kept_below or _starts_after(earlier, later)
        ):
            self._keep_damage(damage.offset, damage.reason)
            return True
        self.report.warnings.append(
            f"{earlier.path}: ends at offset {end}, the next segment starts at "
            f"{later.base_offset}; the later segments were deleted"
        )
        return False

    def _keep_damage(self, offset: Offset, reason: str) -> None:
        if self.kept is None or offset < self.kept.offset:
            self.kept = Damage(offset, reason)

    def _scan(self, segment: Segment, *, replay: bool) -> bool:
        """Read a segment and rebuild its indexes. At an invalid batch the segment is truncated,
        unless the batch was synced before: then only that batch is skipped. Return False if the
        segment was truncated."""
        position, expected, cut = 0, segment.base_offset, False
        holes: list[tuple[int, int]] = []
        listed = self._begin_replay(segment) if replay else []
        while True:
            scanned = self._scan_from(segment, position, expected, replay)
            self.report.scanned_bytes += scanned.stop - position
            position, expected = scanned.stop, scanned.offset
            if scanned.reason is None:
                break
            following = None
            if expected < self.kept_below:
                following = batch_behind(self.disk, segment.path, position, segment.size, expected)
            if expected >= self.kept_below or (following is None and self._is_last(segment)):
                reason = scanned.reason
                self.report.cuts.append(Cut(segment.path, segment.size, position, reason))
                if scanned.whole or not self._is_last(segment):
                    self.inside = f"{segment.path}: {reason} at byte {position}"
                cut = True
                break
            self._keep_damage(expected, f"{segment.path}: {scanned.reason} at byte {position}")
            skipped = expected
            end, expected = following or (segment.size, NEVER)
            holes.append((position, end))
            position = end
            if replay:
                self.batch_order.skip_to(expected)
                for aborted in listed:
                    if skipped <= aborted.last_offset < expected:
                        segment.add_aborted(aborted)
        if holes and holes[-1][1] == segment.size and not cut:
            self.open_ends[segment.path] = holes
        segment.recover(position, holes)
        segment.verified = holes[0][0] if holes else position
        if cut:
            self.disk.sync(segment.path)
        return not cut

    def _is_last(self, segment: Segment) -> bool:
        return segment is self.segments[-1]

    def _begin_replay(self, segment: Segment) -> list[AbortedTransaction]:
        """Clear the transaction index, which markers fill again; return its entries."""
        try:
            listed = segment.aborted()
        except (CorruptTransactionIndex, DiskError):
            listed = []
        segment.clear_aborted()
        self.batch_order.begin_segment(segment.base_offset)
        return listed

    def _scan_from(
        self, segment: Segment, position: int, expected: Offset, replay: bool
    ) -> _Scanned:
        """Read batches up to the first one that is damaged or out of order."""
        path, size = segment.path, segment.size
        try:
            for batch in whole_batches(self.disk, path, position, size, check_crc=True):
                reason = None
                if replay:
                    after = partial(self._span_from, segment, position + batch.size)
                    reason = self.batch_order.problem(batch, after)
                elif (
                    batch.base_offset < expected
                    or batch.last_offset > segment.base_offset + RELATIVE_OFFSET_MAX
                ):
                    reason = f"offset {batch.base_offset} is out of order"
                if reason is not None:
                    return _Scanned(position, expected, reason, whole=True)
                if replay:
                    self._account(segment, batch)
                position += batch.size
                expected = batch.next_offset
        except InvalidBatch as error:
            _refuse_old_format(segment.path, error)
            return _Scanned(position, expected, error.reason, whole=error.whole)
        except CorruptRecord as error:
            return _Scanned(position, expected, f"transaction marker: {error.reason}", whole=True)
        return _Scanned(position, expected, None, whole=True)

    def _span_from(self, segment: Segment, position: int) -> BatchSpan | None:
        """Return the header of the batch at `position`, or of the first one in later segments."""
        try:
            for later in self.segments[self.segments.index(segment) :]:
                for span in later.spans(position if later is segment else 0):
                    return span
        except DiskError:
            pass
        return None

    def _account(self, segment: Segment, batch: RecordBatch) -> None:
        aborted = self.producers.update(batch)
        if aborted is not None:
            segment.add_aborted(aborted)

    def _delete_segments_after(self, number: int) -> None:
        for segment in reversed(self.segments[number + 1 :]):
            segment.delete()
            self.report.deleted.append(segment.path)
        del self.segments[number + 1 :]
        self._cut_open_end(self.segments[-1])
        self.disk.sync_dir(self.directory)

    def _cut_open_end(self, segment: Segment) -> None:
        """Truncate damaged bytes at the end of the segment that is now the last one: the next
        batch would be appended after them."""
        holes = self.open_ends.get(segment.path)
        if holes is not None:
            *before, (position, size) = holes
            reason = "damaged bytes at the end of the log"
            self.report.cuts.append(Cut(segment.path, size, position, reason))
            segment.recover(position, before)
            self.disk.sync(segment.path)

    def _settle_start(self, log_start: Offset) -> Offset:
        """Return the log start, and delete segments below it."""
        if self.segments:
            log_start = max(log_start, self.segments[0].base_offset)
            log_end = self.segments[-1].next_offset()
            if log_end < log_start:
                # Using the checkpoint would delete every record.
                self.report.warnings.append(
                    f"{self.directory}: ends at offset {log_end}, below log start {log_start}"
                    f" in its checkpoint; it starts at {self.segments[0].base_offset}"
                )
                log_start = self.segments[0].base_offset
        if not self.segments:
            segment = Segment.create(self.disk, self.directory, log_start, self.config, self.now_ms)
            self.segments.append(segment)
        while len(self.segments) > 1 and self.segments[1].base_offset <= log_start:
            segment = self.segments.pop(0)
            segment.delete()
            self.report.deleted.append(segment.path)
        return log_start

    def _load_epochs(self) -> None:
        """Read the epoch file; if it is invalid, the epochs are rebuilt from the log later."""
        try:
            data = read_file(self.disk, self.epochs_path)
            if data is None:
                return
            entries = checkpoint.parse_epochs(self.epochs_path, data)
        except CheckpointError as error:
            self.report.warnings.append(f"{error}; rebuilt from the log")
            return
        self.epochs = LeaderEpochs(entries)
        self.written_epochs = entries
        self.epochs_emptied = not data
        self.epochs_as_written = self.report.clean and crc32c(data) == self.epochs_checksum

    def _check_epochs(self, segments: Segments, log_start: Offset, log_end: Offset) -> None:
        """Rebuild the epochs from the log if the file is missing or does not match the log."""
        wrong = self.batch_order.file_is_wrong
        if self.epochs_emptied and log_start < log_end:
            self.written_epochs = None  # a log with records has an epoch file with a header
        if self.written_epochs is None or wrong:
            self.epochs, _ = epochs_of(segments, LeaderEpochs())
        elif self.epochs_as_written:
            return
        elif not file_is_right(self.epochs, segments, log_start, log_end):
            found, same = epochs_of(segments, self.epochs)
            wrong = not same
            if wrong:
                self.epochs = found
        if wrong:
            self.report.warnings.append(
                f"{self.epochs_path}: does not match this log; rebuilt from the log"
            )
            self.written_epochs = None

    def _settle_epochs(self, first: Offset, log_end: Offset) -> None:
        """Limit the epochs to the range of the log, and write the file if they changed (M21)."""
        # A log whose records are all deleted keeps its last epoch: an election that compares
        # logs would prefer a log that ends earlier.
        emptied = 0 < first == log_end
        self.epochs.truncate_to(log_end + emptied)
        self.epochs.drop_before(first)
        if self.written_epochs is None and self.epochs.entries:
            self.report.rebuilt.append(self.epochs_path)
        if self.written_epochs is None and not self.epochs.entries:
            # An empty file, as in Kafka. There is nothing to sync yet.
            self.disk.write(self.epochs_path, b"")
        elif self.epochs.entries != self.written_epochs:
            checkpoint.write_epochs(self.disk, self.epochs_path, self.epochs.entries)

    def _settle_producers(self, segments: Segments, log_end: Offset) -> None:
        """Load the producer state at the log end. After an unclean stop the scan has built it."""
        self.snapshots.delete_above(log_end)
        try:
            if self.report.clean or self.producers.end_offset != log_end:
                self.snapshots.rebuild(self.producers, segments)
            else:
                refill_windows(self.disk, self.producers, segments)
        except DiskError as error:
            self._keep_damage(self.producers.end_offset, str(error))
            self.producers.end_offset = log_end
        if not self.report.clean and self.producers.producers:
            # Without producers no snapshot is needed: thousands of logs need no file.
            self.snapshots.write(self.producers, log_end)
        self.snapshots.delete_strays(segments)

    def _read_topic_id(self) -> TopicId | None:
        path = f"{self.directory}/{layout.PARTITION_METADATA}"
        data = read_file(self.disk, path)
        try:
            return None if data is None else checkpoint.parse_topic_metadata(path, data)
        except CheckpointError as error:
            self.report.warnings.append(f"{error}; treated as missing")
            return None

    def _delete(self, path: str) -> None:
        self.disk.delete(path)
        self.report.deleted.append(path)


def _starts_after(earlier: Segment, later: Segment) -> bool:
    """Whether the earlier segment has only records from the range of the later one or after it. No
    append leaves such a segment; the later one has all that a compaction would have put there."""
    try:
        first = next(earlier.spans(), None)
    except DiskError:
        return False
    return first is not None and first.base_offset >= later.base_offset


def _refuse_old_format(path: str, error: InvalidBatch) -> None:
    """Raise UnsupportedFormat for sound records of format 0 or 1, which have a correct CRC-32: they
    are from an old release, not an incomplete batch."""
    if len(error.data) <= MAGIC_AT or error.data[MAGIC_AT] not in (0, 1):
        return
    size = int.from_bytes(error.data[8:12]) + PREFIX_SIZE
    if not OLD_RECORD_MIN <= size <= len(error.data):
        return
    if crc32(error.data[MAGIC_AT:size]) == int.from_bytes(error.data[12:MAGIC_AT]):
        raise UnsupportedFormat(
            f"{path}: records of format {error.data[MAGIC_AT]} at byte {error.position}; "
            "only format 2 (Kafka 0.11 and later) is supported"
        )
