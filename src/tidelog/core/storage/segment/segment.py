"""One segment: a `.log` file and its indexes.

A segment has whole batches without gaps between them. A batch is addressed by its position in the
file. An offset is mapped to a position with the offset index and a short scan; near the end of the
active segment, where most fetches read, with a list of recent batches in memory (the tail).

`must_roll` decides when the active segment is full. A segment starts where the one before it
ended, also if the next record's offset is higher, as in a copy of a compacted log (except for gaps
of billions). So recovery can distinguish a segment that lost its end in a power failure from a
complete one.

Invariants: `size` is the size of all appended batches that were not truncated; every batch that
ends at or after `_tail_start` is in the tail; index entries refer to batches below `size`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Self

from tidelog.core.lineage.transaction_index import (
    ENTRY_SIZE,
    AbortedTransaction,
    decode_transactions,
    kept_below,
)
from tidelog.core.record.record_batch import RecordBatch
from tidelog.core.storage import layout
from tidelog.core.storage.disk import Disk, DiskError, MissingFile, Region, read_file
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.segment.batch_scan import BatchSpan, spans, walk, walk_epochs
from tidelog.core.storage.segment.indexes import (
    NO_TIMESTAMP,
    InvalidIndex,
    OffsetIndex,
    TimeIndex,
)
from tidelog.core.types import LeaderEpoch, Offset

RELATIVE_OFFSET_MAX = 2**31 - 1
"""An index entry stores the distance from the segment's base offset in 32 bits."""
_TAIL_MAX = 1024
_RESERVE_FROM = 65_536
_RESERVE_STEP_MAX = 16_777_216
_UNKNOWN = 2**63
"""`_tail_start` while the tail is empty."""


class Segment:
    """Batches from `base_offset` up to the base offset of the next segment."""

    __slots__ = (
        "_aborted",
        "_disk",
        "_first_timestamp",
        "_loaded",
        "_max_timestamp",
        "_next_offset",
        "_offset_index",
        "_offset_of_max_timestamp",
        "_reserved",
        "_since_index",
        "_tail_ends",
        "_tail_positions",
        "_tail_start",
        "_time_index",
        "base_offset",
        "config",
        "created_ms",
        "directory",
        "is_full",
        "opened_size",
        "path",
        "size",
        "verified",
    )

    def __init__(
        self, disk: Disk, directory: str, base_offset: Offset, config: LogConfig, now_ms: int
    ) -> None:
        self._disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.config = config
        self.created_ms = now_ms
        """When this process created or opened it."""
        self.path = self.file(layout.LOG)
        self.size = 0
        self.opened_size = 0
        """The size when this process opened the file, or less after a truncation."""
        self.verified = 0
        """The position up to which this process has verified the file (damage.py)."""
        self._reserved = 0
        self._loaded = True
        self._offset_index: OffsetIndex
        self._time_index: TimeIndex
        self._since_index: int
        self._max_timestamp: int
        self._offset_of_max_timestamp: Offset
        self.is_full: bool
        self._forget_indexes()
        self._first_timestamp: int | None = None
        self._next_offset: Offset | None = base_offset
        self._tail_start = base_offset
        self._tail_ends: list[Offset] = []
        self._tail_positions: list[int] = []
        self._aborted: list[AbortedTransaction] | None = []

    @classmethod
    def create(
        cls, disk: Disk, directory: str, base_offset: Offset, config: LogConfig, now_ms: int
    ) -> Self:
        """Create an empty segment; delete files of the same name that a crash left."""
        segment = cls(disk, directory, base_offset, config, now_ms)
        segment.delete()
        disk.write(segment.path, b"")
        segment.write_indexes()
        return segment

    @classmethod
    def open(
        cls, disk: Disk, directory: str, base_offset: Offset, config: LogConfig, now_ms: int
    ) -> Self:
        """Open an existing segment; its indexes are loaded when first needed."""
        segment = cls(disk, directory, base_offset, config, now_ms)
        segment.size = segment.opened_size = disk.size(segment.path)
        segment._tail_start = _UNKNOWN
        segment._next_offset = None
        segment._loaded = False
        segment._aborted = None
        return segment

    def file(self, kind: str) -> str:
        """Return the path of one of the segment's files."""
        return f"{self.directory}/{layout.file_name(self.base_offset, kind)}"

    # -- writing

    def append(self, batches: Sequence[RecordBatch], size: int) -> None:
        """Append batches of `size` bytes in total with one write."""
        if not self._loaded:
            self.load()
        if self.size + size > self._reserved:
            self._reserve(self.size + size)
        position = self._disk.append(self.path, [batch.view() for batch in batches])
        if position != self.size:
            raise DiskError(f"file ends at byte {position} instead of {self.size}", self.path)
        if position == 0:
            self._first_timestamp = batches[0].max_timestamp
        if not self._tail_ends and self._tail_start == _UNKNOWN:
            self._tail_start = batches[0].base_offset
        for batch in batches:
            self._index(batch.last_offset, position, batch.size, batch.max_timestamp)
            self._tail_ends.append(batch.last_offset)
            self._tail_positions.append(position)
            position += batch.size
        self.size = position
        self._next_offset = self._tail_ends[-1] + 1
        if len(self._tail_ends) > _TAIL_MAX:
            self._forget_tail(_TAIL_MAX // 2)

    def _reserve(self, needed: int) -> None:
        """Preallocate space in steps as large as the segment, so that small segments stay small."""
        config, whole = self.config, max(self.config.segment_bytes, needed)
        if not config.preallocate and (needed < _RESERVE_FROM or not config.reserve_steps):
            self._reserved = max(needed, _RESERVE_FROM)
            return
        step = whole if config.preallocate else min(needed, _RESERVE_STEP_MAX)
        self._reserved = min(needed + step, whole)
        self._disk.preallocate(self.path, self._reserved)

    def _forget_tail(self, count: int) -> None:
        self._tail_start = self._tail_ends[count - 1] + 1
        del self._tail_ends[:count], self._tail_positions[:count]

    def _index(self, last_offset: Offset, position: int, size: int, max_timestamp: int) -> None:
        """Add index entries for a batch, by Kafka's rule (KAFKA-806)."""
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._offset_of_max_timestamp = last_offset
        if self._since_index > self.config.index_interval_bytes:
            self._offset_index.append(last_offset, position)
            self._time_index.append(self._max_timestamp, self._offset_of_max_timestamp)
            self._since_index = 0
            self.is_full = self._indexes_full()
        self._since_index += size

    def truncate_to(self, end: Offset) -> Offset:
        """Truncate every batch that ends at or after `end`; return the new end: `end`, or the start
        of the batch that spanned it, because batches are not split."""
        self.load()
        try:
            position = 0 if end == self.base_offset else self.locate(end)
            if position == self.size:
                return end
            if position:
                end = min(end, self.span_at(position).base_offset)
        except DiskError:
            position = self._sound_size()
        self._disk.truncate(self.path, position)
        self.size = self._reserved = position
        self.opened_size = min(self.opened_size, position)
        self._next_offset = None
        self._offset_index.truncate_to(end)
        self._time_index.truncate_to(end)
        self.is_full = self._indexes_full()
        self._truncate_aborted(end)
        kept = bisect_left(self._tail_ends, end)
        del self._tail_ends[kept:], self._tail_positions[kept:]
        if not kept:
            self._tail_start = _UNKNOWN
        if position == 0:
            self._first_timestamp = None
        self._since_index = 0
        self._find_max_timestamp()
        return end

    def _sound_size(self) -> int:
        """Return the position of the first batch with an invalid header."""
        position = 0
        try:
            for start, size, _ in self.walk(0):
                position = start + size
        except DiskError:
            pass
        return position

    def recover(self, valid_size: int, holes: Sequence[tuple[int, int]] = ()) -> None:
        """Truncate the file to its valid bytes and rebuild its indexes. `holes` are the byte ranges
        of damaged batches within them."""
        if valid_size < self.size:
            self._disk.truncate(self.path, valid_size)
        self.size = self.opened_size = valid_size
        self._next_offset = None
        self.rebuild_indexes(holes)

    def finish(self) -> None:
        """Write the final indexes and free reserved space: the segment is rolled or closed."""
        self.load()
        self._time_index.append(self._max_timestamp, self._offset_of_max_timestamp)
        self.write_indexes()
        if self._reserved > max(self.size, _RESERVE_FROM):
            self._disk.truncate(self.path, self.size)
            self._reserved = 0

    @property
    def indexes_synced(self) -> bool:
        return not (self._offset_index.unsynced or self._time_index.unsynced)

    def unsynced_indexes(self) -> list[str]:
        """Return the index files that are not synced; the caller must sync them."""
        found = []
        for index in (self._offset_index, self._time_index):
            if index.unsynced:
                found.append(index.path)
                index.unsynced = False
        return found

    def sync_indexes(self) -> None:
        """Sync the index files that are not synced."""
        for path in self.unsynced_indexes():
            self._disk.sync(path)

    def write_indexes(self) -> None:
        """Write new index entries to the files."""
        self._offset_index.write_out()
        self._time_index.write_out()

    def move_to(self, disk: Disk) -> None:
        """Use the files of the same names on another disk, which have the same content."""
        self._disk = disk
        self._reserved = 0
        self._offset_index.move_to(disk)
        self._time_index.move_to(disk)
        self.require_verification()

    def delete(self) -> None:
        """Delete all files of the segment."""
        for kind in layout.SEGMENT_KINDS:
            self._disk.delete(self.file(kind))

    # -- aborted transactions

    def aborted(self) -> list[AbortedTransaction]:
        """Return the transactions whose abort marker is in this segment. Raises
        CorruptTransactionIndex."""
        if self._aborted is None:
            data = read_file(self._disk, self.file(layout.TXN_INDEX))
            self._aborted = decode_transactions(data or b"")
        return self._aborted

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Append an entry to the transaction index; the first one creates the file, as in Kafka."""
        self.aborted().append(transaction)
        self._disk.append(self.file(layout.TXN_INDEX), [transaction.encode()])

    def clear_aborted(self) -> None:
        """Delete the transaction index; recovery rebuilds it from the markers."""
        self._disk.delete(self.file(layout.TXN_INDEX))
        self._aborted = []

    def _truncate_aborted(self, end: Offset) -> None:
        aborted = self.aborted()
        kept = kept_below(aborted, end)
        if kept < len(aborted):
            path = self.file(layout.TXN_INDEX)
            self._disk.truncate(path, kept * ENTRY_SIZE)
            self._disk.sync(path)
            del aborted[kept:]

    # -- indexes

    def load(self) -> bool:
        """Load the indexes if they are not loaded; return False if they had to be rebuilt."""
        if self._loaded:
            return True
        self._loaded = True
        try:
            self._offset_index.load(self.size)
            self._time_index.load()
        except (InvalidIndex, MissingFile):
            self.rebuild_indexes()
            return False
        self._max_timestamp, self._offset_of_max_timestamp = self._time_index.last()
        self.is_full = self._indexes_full()
        return True

    def rebuild_indexes(self, holes: Sequence[tuple[int, int]] = ()) -> None:
        """Rebuild the indexes from the batch headers. The batch after a hole gets an entry, so that
        no reader has to read the hole to find it."""
        self._forget_indexes()
        self._loaded = True
        position, expected = 0, self.base_offset
        for start, end in (*holes, (self.size, self.size)):
            for span in spans(self._disk, self.path, position, start):
                if not expected <= span.last_offset <= self.base_offset + RELATIVE_OFFSET_MAX:
                    raise DiskError(
                        f"invalid offset {span.last_offset} at byte {span.position}", self.path
                    )
                expected = span.last_offset + 1
                self._index(span.last_offset, span.position, span.size, span.max_timestamp)
            position = end
            if holes:
                self._since_index = self.config.index_interval_bytes + 1
        self._time_index.append(self._max_timestamp, self._offset_of_max_timestamp)
        self._offset_index.rewrite()
        self._time_index.rewrite()

    def _forget_indexes(self) -> None:
        self._offset_index = OffsetIndex(
            self._disk, self.file(layout.OFFSET_INDEX), self.base_offset
        )
        self._time_index = TimeIndex(self._disk, self.file(layout.TIME_INDEX), self.base_offset)
        self._since_index = 0
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = self.base_offset
        self.is_full = False

    def _find_max_timestamp(self) -> None:
        """Set the largest timestamp from the last index entry and the headers of later batches."""
        self._max_timestamp, self._offset_of_max_timestamp = self._time_index.last()
        floor = self._offset_index.floor_by_offset(self._offset_of_max_timestamp)
        with suppress(DiskError):
            for span in self.spans(floor):
                if span.max_timestamp > self._max_timestamp:
                    self._max_timestamp = span.max_timestamp
                    self._offset_of_max_timestamp = span.last_offset

    def _indexes_full(self) -> bool:
        """Whether an index is full; one entry of the time index is reserved for the roll."""
        room = self.config.segment_index_bytes
        return (
            len(self._offset_index) >= room // OffsetIndex.entry.size
            or len(self._time_index) >= room // TimeIndex.entry.size - 1
        )

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of all records; -1 if there is none."""
        self.load()
        return self._max_timestamp

    @property
    def offset_of_max_timestamp(self) -> Offset:
        """The last offset of the first batch with the largest timestamp."""
        self.load()
        return self._offset_of_max_timestamp

    @property
    def first_timestamp(self) -> int | None:
        """The largest timestamp of the first batch, at which `segment.ms` starts. None if the
        segment is empty or that batch is damaged."""
        if self._first_timestamp is None and self.size:
            with suppress(DiskError):
                self._first_timestamp = self.span_at(0).max_timestamp
        return self._first_timestamp

    @property
    def offset_index(self) -> OffsetIndex:
        self.load()
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        self.load()
        return self._time_index

    # -- reading

    def require_verification(self) -> None:
        """Verify the whole segment again before it is read (damage.py)."""
        self.verified, self.opened_size = 0, self.size

    def spans(self, position: int = 0) -> Iterator[BatchSpan]:
        """Yield headers from a batch's position on; only their sizes are checked."""
        return spans(self._disk, self.path, position, self.size)

    def walk(self, position: int) -> Iterator[tuple[int, int, Offset]]:
        return walk(self._disk, self.path, position, self.size)

    def walk_epochs(self, position: int) -> Iterator[tuple[int, Offset, Offset, LeaderEpoch]]:
        return walk_epochs(self._disk, self.path, position, self.size)

    def span_at(self, position: int) -> BatchSpan:
        """Return the header of the batch at `position`, which must exist."""
        return next(self.spans(position))

    def next_offset(self) -> Offset:
        """Return the offset after the last record; the base offset if the segment is empty."""
        if self._next_offset is None:
            batches = self.walk(self.offset_index.floor_by_position(self.size))
            last = max((last for _, _, last in batches), default=self.base_offset - 1)
            self._next_offset = last + 1
        return self._next_offset

    def locate(self, offset: Offset) -> int:
        """Return the position of the first batch that ends at or after `offset`; else `size`."""
        if offset >= self._tail_start:
            slot = bisect_left(self._tail_ends, offset)
            return self._tail_positions[slot] if slot < len(self._tail_ends) else self.size
        for position, _, last_offset in self.walk(self.offset_index.floor_by_offset(offset)):
            if last_offset >= offset:
                return position
        return self.size

    def boundary(self, start: int, limit: int) -> int:
        """Return the last batch boundary from `start`, which is one, up to `limit`."""
        if limit >= self.size:
            return self.size
        if self._tail_positions and limit >= self._tail_positions[0]:
            slot = bisect_right(self._tail_positions, limit)
            return max(start, self._tail_positions[slot - 1])
        known = max(start, self.offset_index.floor_by_position(limit))
        return next(at for at, size, _ in self.walk(known) if at + size > limit)

    def read(self, start: int, end: int, max_bytes: int) -> Region:
        """Return the region of whole batches from position `start`, at most `max_bytes` and not
        beyond `end`. It always includes the first batch, or a large one would block a reader."""
        stop = self.boundary(start, min(end, start + max_bytes))
        if stop == start < end:
            stop = start + self.span_at(start).size
        return Region(self.path, start, stop - start)


def must_roll(
    active: Segment, config: LogConfig, batch: RecordBatch, grouped: int, now_ms: int
) -> bool:
    """Whether the batch needs a new segment; `grouped` bytes will be appended before it."""
    written = active.size + grouped
    if written and written + batch.size > config.segment_bytes:
        # A batch larger than `segment.bytes` gets its own segment: it is in the leader's log
        # from before the setting was lowered.
        return True
    if batch.last_offset - active.base_offset > RELATIVE_OFFSET_MAX:
        return True
    if active.size:
        first = active.first_timestamp
        waited = now_ms - active.created_ms
        if first is not None and first >= 0:
            waited = batch.max_timestamp - first
        age_max_ms = _age_max_ms(config) if config.cleanup_compact else config.segment_ms
        if waited > age_max_ms - config.segment_jitter_ms:
            return True
    return active.is_full


def next_base_offset(active: Segment, batch: RecordBatch) -> Offset:
    """Return the base offset of the segment that starts with `batch`."""
    end = active.next_offset()
    return end if batch.last_offset - end <= RELATIVE_OFFSET_MAX else batch.base_offset


def _age_max_ms(config: LogConfig) -> int:
    """Return the age at which a compacted log rolls: only closed segments are compacted."""
    return min(config.max_compaction_lag_ms, config.segment_ms)
