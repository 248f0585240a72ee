"""Repair of one log: damaged records are replaced segment by segment, the others are kept.

A segment is copied into `.cleaned` files, batch by batch. Sound batches come from the segment
itself, the others from a peer: `needed` is the range of offsets to fetch next, and the caller
passes the fetched batches to `supply`. A finished copy replaces the segment (segment_swap.py). A
missing segment is first created empty.

Invariants:
- No byte of the log is changed before its replacement is complete and on disk. A crash leaves
  the damaged segment or its complete replacement; records that are still missing then are found
  again at startup, because a segment ends before the next one starts (segment/damage.py).
- Only batches whose checksum, offsets and leader epoch are right are copied.
"""

from collections.abc import Iterator, Sequence

from tidelog.core.lineage.transaction_index import CorruptTransactionIndex
from tidelog.core.record.encoder import NO_LEADER_EPOCH, encode_emptied
from tidelog.core.record.record_batch import (
    HEADER_SIZE,
    PREFIX_SIZE,
    CorruptRecord,
    RecordBatch,
    parse,
)
from tidelog.core.storage.disk import Disk, DiskError
from tidelog.core.storage.log import Log
from tidelog.core.storage.segment.batch_scan import InvalidBatch, whole_batches
from tidelog.core.storage.segment.damage import all_missing_between
from tidelog.core.storage.segment.segment import Segment, must_roll
from tidelog.core.storage.segment_swap import CleanedSegment
from tidelog.core.types import Offset

SYNC_BYTES = 8_388_608
"""A copy is synced in steps of this size, so that no single sync takes long."""


class CannotRepair(Exception):
    """The damaged records can't be replaced; the log must be truncated to the damage."""


class LogRepair:
    """The repair of the segments of one log that contain these damaged offsets.

    The caller calls `work` until `done`, fetches `needed` when it is set, and passes the batches
    to `supply`. When `ready`, it calls `put_in_place` at a moment when no response refers to the
    segment's file.
    """

    def __init__(self, disk: Disk, log: Log, offsets: Sequence[Offset], now_ms: int) -> None:
        self._disk = disk
        self._log = log
        # Kafka's cleaner leaves gaps between segments, ours does not: there is nothing to fetch.
        further = all_missing_between(log.segments, cleaned_upto=0)
        self.damaged = sorted({*offsets, *(damage.offset for damage in further)})
        """Offsets in segments that are still to be repaired."""
        self.generation = log.generation
        """The generation of the log; a later truncation ends this repair."""
        self.needed: tuple[Offset, Offset] | None = None
        """The next records to fetch: from the first offset up to the second."""
        self.ready = False
        """The copy is complete and on disk."""
        self.done = False
        self.replaced: list[tuple[Offset, Offset]] = []
        """The ranges of fetched offsets."""
        self._now_ms = now_ms
        self._segment: Segment
        self._copy: CleanedSegment | None = None
        self._batches: Iterator[RecordBatch]
        self._position = 0
        """The position of the next local batch in the segment's file."""
        self._offset: Offset = 0
        """The copy is complete up to here."""
        self._end: Offset = 0
        """The end offset of the segment (exclusive)."""
        self._created = False
        """The segment was missing."""
        self._changed = False
        """Some records of the copy are not from the segment itself."""
        self._full = False
        """The copy is full; the rest of the range goes into another segment."""
        self._unsynced = 0

    @property
    def offset(self) -> Offset:
        """The first damaged offset; the log end if there is none."""
        return self.damaged[0] if self.damaged else self._log.log_end_offset

    def add(self, offset: Offset) -> None:
        """Repair the segment with this offset too."""
        self.damaged = sorted({*self.damaged, offset})

    def work(self, most: int) -> None:
        """Copy about `most` bytes of local batches, or less where a range is needed first.

        Raises CannotRepair.
        """
        if self.done or self.ready or self._is_waiting:
            return
        if self._copy is None and not self._begin_segment():
            self._log.recover_producers()
            self.done = not self.damaged  # recover_producers may have found more
            return
        copied = 0
        while copied < most and not (self._is_complete or self._is_waiting):
            batch = self._next_local()
            if batch is not None:
                self._append(batch)
                copied += batch.size
        if self._is_complete:
            self._finish()

    @property
    def _is_waiting(self) -> bool:
        return self.needed is not None

    @property
    def _is_complete(self) -> bool:
        return self._full or self._offset >= self._end

    def supply(self, batches: Sequence[RecordBatch], upto: Offset) -> None:
        """Append the next batches of `needed`; the peer has no others below `upto`.

        Raises CannotRepair if these are not the records that were here.
        """
        assert self.needed is not None, "no records are needed"
        start, end = self.needed
        for batch in batches:
            if batch.base_offset > self._offset and not self._log.may_have_gaps:
                raise CannotRepair(f"offset {self._offset} is missing on the leader too")
            if batch.is_control and self._created:
                raise CannotRepair("the index of aborted transactions is missing")
            if self._has_no_room(batch):
                self._full = True
                break
            self._append(batch)
        else:
            if upto > self._offset and not self._log.may_have_gaps:
                raise CannotRepair(f"offset {self._offset} is missing on the leader too")
            self._offset = max(self._offset, upto)
        self._changed = True
        self._note_replaced(start, self._offset)
        rest = self._offset < end and not self._full
        self.needed = (self._offset, end) if rest else None

    def put_in_place(self, now_ms: int) -> None:
        """Replace the damaged segment with the copy."""
        assert self.ready
        log, start = self._log, self._segment.base_offset
        log.replace_segments([self._segment], now_ms)
        for segment in log.segments.from_offset(start):
            segment.verified = segment.size
            break
        self._copy, self.ready, self._full = None, False, False
        self.damaged = [offset for offset in self.damaged if offset >= self._end]
        if self._offset < self._end:
            self.add(self._offset)

    def discard(self) -> None:
        """Remove the unfinished copy."""
        self._discard_copy()
        self.done = True

    def _discard_copy(self) -> None:
        if self._copy is not None:
            self._copy.delete()
            self._copy = None

    @property
    def is_current(self) -> bool:
        """Whether the log was not truncated, and still has the segment that is copied."""
        if self._log.generation != self.generation:
            return False
        return self._copy is None or self._segment in self._log.segments

    # -- one segment -----------------------------------------------------------------------

    def _begin_segment(self) -> bool:
        """Begin the copy of the next damaged segment; False if there is none."""
        log = self._log
        start, end = log.log_start_offset, log.log_end_offset
        self.damaged = [offset for offset in self.damaged if start <= offset < end]
        if not self.damaged:
            return False
        offset = self.damaged[0]
        if offset < log.segments.first.base_offset:
            self._copy_segment(log.create_missing_segment(offset, self._now_ms), created=True)
        else:
            self._copy_segment(log.closed_segment(offset, self._now_ms), created=False)
        return True

    def _copy_segment(self, segment: Segment, *, created: bool) -> None:
        end = self._log.segments.end_of(segment)
        assert end is not None, "a segment that is repaired is not the active one"
        self._segment, self._end, self._offset = segment, end, segment.base_offset
        self._created, self._changed = created, False
        self._copy = CleanedSegment.create(
            self._disk, segment.directory, segment.base_offset, segment.config, segment.created_ms
        )
        try:
            for aborted in segment.aborted():
                self._copy.add_aborted(aborted)
        except (CorruptTransactionIndex, DiskError) as error:
            raise CannotRepair(str(error)) from None
        self._read_from(0)

    def _read_from(self, position: int) -> None:
        self._position = position
        self._restart_reading(position)

    def _restart_reading(self, position: int) -> None:
        path, size = self._segment.path, self._segment.size
        self._batches = whole_batches(self._disk, path, position, size, check_crc=True)

    def _next_local(self) -> RecordBatch | None:
        """The next sound batch of the segment. Where it has none, set `needed`."""
        if self._position >= self._segment.size:
            self._end_of_file()
            return None
        try:
            batch = next(self._batches, None)
        except InvalidBatch:
            batch = None
        except DiskError:
            # A read covers several batches: maybe only a later one is unreadable.
            batch = self._batch_at(self._position)
            self._restart_reading(self._position + (batch.size if batch else 0))
        if batch is None or not self._belongs(batch, self._position):
            position, offset = self._next_sound()
            self._read_from(position)
            self._need(offset)
            return None
        if batch.base_offset > self._offset and not self._log.may_have_gaps:
            self._read_from(self._position)
            self._need(batch.base_offset)
            return None
        self._position += batch.size
        return batch

    def _end_of_file(self) -> None:
        """Handle offsets that are missing between the last local batch and the next segment."""
        if self._log.may_have_gaps and self._offset not in self.damaged:
            self._offset = self._end  # compaction removed them
            return
        if self._segment.size and not self._changed:
            # This segment is sound; the one after it is missing.
            self._discard_copy()
            self._segment.verified = self._segment.opened_size
            missing = self._log.create_missing_segment(self._offset, self._now_ms)
            self._copy_segment(missing, created=True)
        self._need(self._end)

    def _need(self, upto: Offset) -> None:
        """Set `needed` to the records up to `upto`, except for deleted ones."""
        self._offset = max(self._offset, min(upto, self._log.log_start_offset))
        if self._offset < upto:
            self.needed = self._offset, upto

    def _belongs(self, batch: RecordBatch, position: int) -> bool:
        """Whether a sound batch has the right offsets and leader epoch.

        No checksum covers its first offset. If it does not continue the copy, the next batch must
        confirm it: else one damaged offset would put the records in the place of others.
        """
        if not self._offset <= batch.base_offset <= batch.last_offset < self._end:
            return False
        epoch = self._log.epochs.epoch_for_offset(batch.base_offset)
        if epoch is not None and epoch != batch.leader_epoch:
            return False
        if batch.base_offset == self._offset:
            return True
        after = self._offset_at(position + batch.size)
        if self._log.may_have_gaps:
            return after >= batch.next_offset
        return after == batch.next_offset

    def _offset_at(self, position: int) -> Offset:
        """Return the first offset of the next batch as its header says, or the segment's end."""
        if position >= self._segment.size:
            return self._end
        try:
            header = self._disk.read(self._segment.path, position, PREFIX_SIZE)
        except DiskError:
            return -1
        return int.from_bytes(header[:8], signed=True)

    def _next_sound(self) -> tuple[int, Offset]:
        """Return position and offset of the next sound batch after the damaged one; the end of the
        segment if there is none."""
        for position in self._candidates():
            batch = self._batch_at(position)
            if batch is None or batch.base_offset <= self._offset:
                continue
            if self._belongs(batch, position):
                return position, batch.base_offset
        return self._segment.size, self._end

    def _candidates(self) -> Iterator[int]:
        """Yield positions where a batch may start: after the damaged one if its length is right,
        then those in the offset index."""
        damaged, size = self._position, self._segment.size
        try:
            prefix = self._disk.read(self._segment.path, damaged, PREFIX_SIZE)
        except DiskError:
            prefix = b""
        if len(prefix) == PREFIX_SIZE:
            length = int.from_bytes(prefix[8:], signed=True) + PREFIX_SIZE
            if HEADER_SIZE <= length < size - damaged:
                yield damaged + length
        try:
            positions = self._segment.offset_index.positions_above(damaged)
        except DiskError:
            return  # the index is invalid and can't be rebuilt
        yield from positions

    def _batch_at(self, position: int) -> RecordBatch | None:
        """Return the batch at `position` if it is complete and its checksum is right."""
        path, size = self._segment.path, self._segment.size
        try:
            prefix = self._disk.read(path, position, PREFIX_SIZE)
            length = int.from_bytes(prefix[8:], signed=True) + PREFIX_SIZE
            if not HEADER_SIZE <= length <= size - position:
                return None
            batch = parse(self._disk.read(path, position, length))
        except (DiskError, CorruptRecord):
            return None
        return batch if batch.crc_ok() else None

    # -- the copy --------------------------------------------------------------------------

    def _has_no_room(self, batch: RecordBatch) -> bool:
        """Whether the batch needs another segment. While local batches are left to copy, it does
        not: the batch that it replaces was in this segment."""
        assert self._copy is not None
        if self._position < self._segment.size:
            return False
        return must_roll(self._copy, self._copy.config, batch, 0, self._now_ms)

    def _append(self, batch: RecordBatch) -> None:
        assert self._copy is not None
        self._copy.append([batch], batch.size)
        self._offset = batch.next_offset
        self._unsynced += batch.size
        if self._unsynced >= SYNC_BYTES:
            self._disk.sync(self._copy.path)
            self._unsynced = 0

    def _finish(self) -> None:
        assert self._copy is not None
        if not self._full and self._copy.next_offset() < self._end:
            # Compaction removed the last records. A segment that ends too early is damage.
            last = self._end - 1
            epoch = self._log.epochs.epoch_for_offset(last)
            emptied = encode_emptied(last, NO_LEADER_EPOCH if epoch is None else epoch)
            self._append(parse(emptied))
        self._copy.finish()
        self._copy.sync()
        self._unsynced = 0
        self.ready = True

    def _note_replaced(self, start: Offset, end: Offset) -> None:
        if self.replaced and self.replaced[-1][1] == start:
            start = self.replaced.pop()[0]
        if start < end:
            self.replaced.append((start, end))
