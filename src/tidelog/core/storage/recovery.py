"""Opening a log: tidy up, find its end, cut what a crash tore, rebuild what was lost.

After a clean stop the files are taken as they are. After any other, the segment that holds
the recovery point and all later ones are read whole, batch by batch; at the first batch
that is torn or whose checksum differs the log ends (M04), and later segments go: what
follows a hole is not a log. Indexes, producer state and leader epochs are rebuilt on the
way. Segments below the recovery point were synced and are not read.

Nothing is ever cut in silence: the report says what, where and why. Opening a log twice
changes nothing the second time.
"""

from bisect import bisect_right
from functools import partial
from typing import NamedTuple
from zlib import crc32

from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.lineage.producer_state import ProducerState
from tidelog.core.lineage.transaction_index import CorruptTransactionIndex
from tidelog.core.record.record_batch import PREFIX_SIZE, CorruptRecord, RecordBatch
from tidelog.core.slotted import field, slotted
from tidelog.core.storage import checkpoint, layout
from tidelog.core.storage.checkpoint import CheckpointError
from tidelog.core.storage.damage import Damage, missing_between, missing_end, missing_start
from tidelog.core.storage.disk import Disk, DiskError, read_file
from tidelog.core.storage.layout import FileName
from tidelog.core.storage.log import Log
from tidelog.core.storage.log_config import NEVER, LogConfig
from tidelog.core.storage.producer_snapshots import ProducerSnapshots, refill_windows
from tidelog.core.storage.segment.batch_scan import BatchSpan, InvalidBatch, whole_batches
from tidelog.core.storage.segment.segment import Segment
from tidelog.core.storage.segment.segments import Segments
from tidelog.core.storage.segment.succession import Succession
from tidelog.core.storage.swaps import complete_swaps
from tidelog.core.types import EpochEntry, LeaderEpoch, Offset, TopicId, TopicPartition

MAGIC_AT = 16
OLD_RECORD_MIN = 26
SEGMENT_SPAN = 1 << 31
"""So many offsets an index can tell apart."""
"""Offset, size, CRC, magic, attributes and two empty lengths of format 0."""


class UnsupportedFormat(Exception):
    """Records in a format before v2. They are sound, so cutting them would lose data."""


class Cut(NamedTuple):
    """A file that was shortened."""

    path: str
    from_size: int
    to_size: int
    reason: str


@slotted
class RecoveryReport:
    """What opening one log found and did."""

    partition: TopicPartition
    clean: bool
    log_start_offset: Offset = 0
    log_end_offset: Offset = 0
    scanned_bytes: int = 0
    cuts: list[Cut] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    """Segments and leftovers that were removed."""
    rebuilt: list[str] = field(default_factory=list)
    """Indexes and checkpoints that were made again from the log."""
    warnings: list[str] = field(default_factory=list)
    damage: Damage | None = None
    """What the log lacks although no crash can have taken it."""

    @property
    def changed(self) -> bool:
        return bool(self.cuts or self.deleted or self.rebuilt)

    def lines(self) -> list[str]:
        """For people."""
        return [
            *(
                f"{c.path}: cut from {c.from_size} to {c.to_size} bytes, {c.reason}"
                for c in self.cuts
            ),
            *(f"{path}: removed" for path in self.deleted),
            *(f"{path}: rebuilt from the log" for path in self.rebuilt),
            *self.warnings,
            *([self.damage.reason] if self.damage else []),
        ]


def open_log(
    disk: Disk,
    partition: TopicPartition,
    config: LogConfig,
    now_ms: int,
    *,
    recovery_point: Offset = 0,
    log_start_offset: Offset = 0,
    known_end: Offset = 0,
    clean: bool = False,
    compacted: bool = True,
    cleaned_upto: Offset = NEVER,
) -> tuple[Log, RecoveryReport]:
    """Open the log in the partition's directory, or begin one there.

    `recovery_point` and `log_start_offset` are what the checkpoints say; `known_end` is the
    largest offset that any of them says the log reached; `clean` is whether
    the mark of a clean stop was found; `compacted` is whether a cleaner may have been here,
    or where the records came from, whatever the settings say now: then gaps between offsets
    are no sign of damage. Between two segments they are none below `cleaned_upto`: the cleaner
    of Apache Kafka does not keep a segment's last batch, ours does.
    """
    loading = _Loading(disk, partition, config, now_ms, clean)
    loading.gaps_allowed = compacted or config.cleanup_compact
    loading.cleaned_upto = cleaned_upto if loading.gaps_allowed else 0
    return loading.load(recovery_point, log_start_offset, known_end), loading.report


class _Loading:
    """Loads one log as Kafka does; the module says which steps that takes."""

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
        self.succession = Succession(self.epochs, gaps_allowed=True)
        self.segments: list[Segment] = []
        self.epochs_path = f"{self.directory}/{layout.LEADER_EPOCHS}"
        self.written_epochs: list[EpochEntry] | None = None
        self.inside: str | None = None
        """Where and why records were cut that no crash can have torn."""

    def load(self, recovery_point: Offset, log_start: Offset, known_end: Offset) -> Log:
        self.disk.make_dir(self.directory)
        self._open_segments(self._settle_names())
        self._load_epochs()
        self.succession = Succession(self.epochs, self.gaps_allowed)
        first = self._first_doubtful(recovery_point)
        damage = missing_start(self.written_epochs or (), self.segments)
        damage = damage or missing_between(self.segments[: first + 1], self.cleaned_upto)
        self._recover_from(first)
        log_start = self._settle_start(log_start)
        segments = Segments(self.segments)
        log_end = segments.active.next_offset()
        # A missing start is found again after a crash, as long as the first epoch is kept.
        first_epoch = log_start if damage is None else min(log_start, damage.offset)
        self._settle_epochs(first_epoch, log_end)
        self._settle_producers(segments, log_end)
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

    def _torn_inside(self, log_end: Offset) -> Damage | None:
        """Recovery cut more than the end of the last write: a crash leaves a batch short, and
        nothing behind it."""
        if self.inside is None:
            return None
        return Damage(log_end, self.inside, inside=False)

    def _settle_names(self) -> list[FileName]:
        """The files there are, after what a compaction left has been put right."""
        listed = self.disk.list_dir(self.directory)
        removed = complete_swaps(self.disk, self.directory, listed)
        if removed is not None:
            self.report.deleted += removed
            listed = self.disk.list_dir(self.directory)
        return [name for name in map(layout.parse_file, listed) if name is not None]

    def _open_segments(self, names: list[FileName]) -> None:
        """Segments in order. Index files without a log go; missing ones are made again."""
        snapshots = (name.base_offset for name in names if name.kind == layout.SNAPSHOT)
        self.snapshots = ProducerSnapshots(self.disk, self.directory, snapshots)
        bases = sorted(name.base_offset for name in names if name.kind == layout.LOG)
        for name in names:
            if name.kind in layout.SEGMENT_KINDS and name.base_offset not in bases:
                self._delete(f"{self.directory}/{name}")
        for base in bases:
            segment = Segment.open(self.disk, self.directory, base, self.config, self.now_ms)
            self.segments.append(segment)
        for number, segment in enumerate(self.segments):
            if not self.disk.exists(segment.file(layout.OFFSET_INDEX)):
                self.report.rebuilt.append(segment.file(layout.OFFSET_INDEX))
                if not self._scan(segment, check_crc=False, replay=False):
                    self._delete_segments_after(number)
                    break

    def _first_doubtful(self, recovery_point: Offset) -> int:
        """The number of the segment from which on the log has to be read: none after a clean
        stop, else the one that holds the recovery point; or one that is visibly damaged."""
        bases = [segment.base_offset for segment in self.segments]
        trusted = max(0, bisect_right(bases, recovery_point) - 1)
        if self.report.clean:
            trusted = len(bases)
        for number, segment in enumerate(self.segments[:trusted]):
            try:
                segment.aborted()
                if number == len(bases) - 1:
                    segment.next_offset()
            except (CorruptTransactionIndex, DiskError) as error:
                self.report.warnings.append(f"{segment.path}: {error}; read again from here")
                return number
        return trusted

    def _recover_from(self, first: int) -> None:
        """Read what may not have been on disk, and end the log where it is torn."""
        if first == len(self.segments):
            return
        self._replay_to(first)
        for number in range(first, len(self.segments)):
            segment = self.segments[number]
            if number > first and not self._joins(self.segments[number - 1], segment):
                self._delete_segments_after(number - 1)
                break
            if not self._scan(segment, check_crc=True, replay=True):
                self._delete_segments_after(number)
                break

    def _replay_to(self, first: int) -> None:
        """Producer state as it was where the scan begins."""
        base = self.segments[first].base_offset
        before = Segments(self.segments[: first + 1])
        start = before.first.base_offset
        self.snapshots.load(self.producers, start, base)
        self.snapshots.replay(self.producers, before, base)

    def _joins(self, earlier: Segment, later: Segment) -> bool:
        """Whether one segment goes on where the other ended. A power failure can take the end
        of a segment and spare the next one, or bring one back that had been deleted; but
        compaction leaves gaps too."""
        end = earlier.next_offset()
        if end == later.base_offset or end < later.base_offset <= self.cleaned_upto:
            return True
        self.report.warnings.append(
            f"{earlier.path}: ends at offset {end}, the next segment begins at "
            f"{later.base_offset}; what follows was removed"
        )
        return False

    def _scan(self, segment: Segment, *, check_crc: bool, replay: bool) -> bool:
        """Read a segment, cut it at the first byte that is no batch, rebuild its indexes.
        False if something was cut."""
        valid, reason, expected, torn = 0, None, segment.base_offset, False
        if replay:
            segment.clear_aborted()
            self.succession.begin_segment(segment.base_offset)
        try:
            for batch in whole_batches(
                self.disk, segment.path, 0, segment.size, check_crc=check_crc
            ):
                if replay:
                    after = partial(self._span_from, segment, valid + batch.size)
                    reason = self.succession.problem(batch, after)
                    if reason is not None:
                        break
                    self._account(segment, batch)
                elif (
                    batch.base_offset < expected
                    or batch.next_offset > segment.base_offset + SEGMENT_SPAN
                ):
                    reason = f"offset {batch.base_offset} out of place"
                    break
                valid += batch.size
                expected = batch.next_offset
        except InvalidBatch as error:
            _refuse_old_format(segment.path, error)
            reason = error.reason
            torn = not error.whole and segment is self.segments[-1]
        except CorruptRecord as error:
            reason = f"transaction marker: {error.reason}"
        self.report.scanned_bytes += valid
        if reason:
            self.report.cuts.append(Cut(segment.path, segment.size, valid, reason))
            if not torn:
                self.inside = f"{segment.path}: {reason} at byte {valid}"
        segment.recover(valid)
        if check_crc:
            segment.verified = valid
        if reason:
            self.disk.sync(segment.path)
        return not reason

    def _span_from(self, segment: Segment, position: int) -> BatchSpan | None:
        """The batch there, or else the first one of the segments after it, by its header."""
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
        self.disk.sync_dir(self.directory)

    def _settle_start(self, log_start: Offset) -> Offset:
        """Where the log begins, and no segment wholly below that."""
        if self.segments:
            log_start = max(log_start, self.segments[0].base_offset)
            log_end = self.segments[-1].next_offset()
            if log_end < log_start:
                # Believing the checkpoint would drop every record.
                self.report.warnings.append(
                    f"{self.directory}: ends at {log_end}, below the log start {log_start} in its"
                    f" checkpoint; it starts at {self.segments[0].base_offset}"
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
        """The file if it is sound; else they come from the log, once that is settled."""
        try:
            entries = checkpoint.read_epochs(self.disk, self.epochs_path)
        except CheckpointError as error:
            self.report.warnings.append(f"{error}; rebuilt from the log")
            return
        if entries is not None:
            self.epochs = LeaderEpochs(entries)
            self.written_epochs = entries

    def _settle_epochs(self, first: Offset, log_end: Offset) -> None:
        """Only epochs of this log, and the file says the same (M21)."""
        if self.succession.file_is_wrong:
            self.report.warnings.append(
                f"{self.epochs_path}: not the epochs of this log; rebuilt from the log"
            )
            self.written_epochs = None
        if self.written_epochs is None:
            self.epochs.clear()
            for segment in self.segments:
                for span in segment.spans():
                    self._assign_epoch(span.leader_epoch, span.base_offset)
        self.epochs.truncate_to(log_end)
        self.epochs.drop_before(first)
        if self.written_epochs is None and self.epochs.entries:
            self.report.rebuilt.append(self.epochs_path)
        if self.written_epochs is None and not self.epochs.entries:
            # As Kafka leaves it: there is nothing yet that a sync would have to keep.
            self.disk.write(self.epochs_path, b"")
        elif self.epochs.entries != self.written_epochs:
            checkpoint.write_epochs(self.disk, self.epochs_path, self.epochs.entries)

    def _assign_epoch(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        latest = self.epochs.latest
        if epoch >= 0 and (latest is None or epoch > latest):
            self.epochs.assign(epoch, start_offset)

    def _settle_producers(self, segments: Segments, log_end: Offset) -> None:
        """Producer state of the log's end. After an unclean stop the scan made it."""
        self.snapshots.delete_above(log_end)
        if self.report.clean or self.producers.end_offset != log_end:
            self.snapshots.rebuild(self.producers, segments)
        else:
            refill_windows(self.disk, self.producers, segments)
        if not self.report.clean and self.producers.producers:
            # Where nobody is known the log says so as fast; thousands of logs need no file.
            self.snapshots.write(self.producers, log_end)
        self.snapshots.delete_strays(segments)

    def _read_topic_id(self) -> TopicId | None:
        path = f"{self.directory}/{layout.PARTITION_METADATA}"
        data = read_file(self.disk, path)
        return None if data is None else checkpoint.parse_topic_metadata(path, data)

    def _delete(self, path: str) -> None:
        self.disk.delete(path)
        self.report.deleted.append(path)


def _refuse_old_format(path: str, error: InvalidBatch) -> None:
    """Formats 0 and 1 carry a CRC-32 over all that follows it. If it is right these are
    sound records of an old release, not a torn batch."""
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
