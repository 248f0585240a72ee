"""One cleaning of a log, in two passes.

The first pass reads the dirty part of the log and builds the map of the last offset of each key. If
the map is full before the dirty part ends, the cleaning ends there, and the next one continues.
The second pass reads all segments from the log's first on, and writes the kept records to
`.cleaned` files, group by group. Segments of a group are merged into one, so that logs do not
consist of tiny files; a group is not larger than one segment may be. A group is reported when its
files are complete and on disk. Groups are in offset order, and must be swapped in that order.

Invariants: no file of the log itself is changed; a batch is only used if its checksum is right; the
last batch of a group is kept, even if it is empty, so that segments keep their end offsets; besides
the map, a cleaning needs memory for only a few batches.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from tidelog.core.lineage.transaction_index import AbortedTransaction
from tidelog.core.record.record_batch import HEADER_SIZE, CorruptRecord, RecordBatch
from tidelog.core.storage import layout
from tidelog.core.storage.cleaning.batch_filter import (
    BatchFilter,
    TransactionFilter,
    record_spans,
    records_of,
)
from tidelog.core.storage.cleaning.offset_map import SLOT_BYTES, OffsetMap
from tidelog.core.storage.cleaning.plan import (
    CleanedGroup,
    CleaningMessage,
    CleaningPlan,
    CleaningResult,
    SourceSegment,
)
from tidelog.core.storage.disk import Disk, DiskError
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.segment.batch_scan import InvalidBatch, whole_batches
from tidelog.core.storage.segment.segment import RELATIVE_OFFSET_MAX
from tidelog.core.storage.segment_swap import CleanedSegment, remove_leftovers
from tidelog.core.types import Offset

WRITE_BYTES = 1_048_576
_UNUSED_MS = 0
"""The creation time of a cleaned segment is not used: the log keeps the original age."""

Progress: TypeAlias = Callable[[int], None]
"""Called with the number of bytes after each batch read and each buffer written."""


def clean(
    disk: Disk, plan: CleaningPlan, progress: Progress | None = None
) -> Iterator[CleaningMessage]:
    """Yield each group when it is ready, and last the result, or the text of an error: damage, or a
    failed disk operation. After an error the unfinished group's files are removed; finished
    groups may already be in use."""
    cleaning = _Cleaning(disk, plan, progress or _ignore_progress)
    try:
        remove_leftovers(disk, plan.directory)
        yield from cleaning.run()
    except (CorruptRecord, DiskError) as error:
        with suppress(DiskError):
            cleaning.remove_unfinished()
        yield str(error)


def _ignore_progress(_bytes: int) -> None:
    """Do nothing."""


class _Cleaning:
    def __init__(self, disk: Disk, plan: CleaningPlan, progress: Progress) -> None:
        self._disk = disk
        self._plan = plan
        self._progress = progress
        self._bytes_read = 0
        self._bytes_kept = 0
        self._unfinished: Offset | None = None
        """The base offset of the group that is being written."""

    def run(self) -> Iterator[CleaningMessage]:
        plan = self._plan
        offsets, mapped_end = self._map_keys()
        batch_filter = BatchFilter(plan, offsets, mapped_end)
        for group in group_segments(self._disk, plan, mapped_end):
            self._unfinished = group[0].base_offset
            cleaned = self._clean_group(group, batch_filter)
            self._unfinished = None
            if cleaned is not None:
                yield cleaned
        yield CleaningResult(
            mapped_end,
            self._bytes_read,
            self._bytes_kept,
            batch_filter.records_read,
            batch_filter.records_kept,
            offsets.keys,
        )

    def remove_unfinished(self) -> None:
        """Delete the files of a group that was not finished."""
        if self._unfinished is not None:
            plan = self._plan
            CleanedSegment(
                self._disk, plan.directory, self._unfinished, plan.config, _UNUSED_MS
            ).delete()

    # -- the first pass --------------------------------------------------------------------

    def _map_keys(self) -> tuple[OffsetMap, Offset]:
        """Return the last offset of each key in the dirty part, and the end of the mapped part."""
        plan = self._plan
        start = plan.first_dirty_offset
        offsets = OffsetMap(plan.map_bytes, plan.end_offset - start)
        transactions = TransactionFilter(_ending_after(plan.aborted, start))
        mapped_end = start
        for number, segment in enumerate(plan.segments):
            following = plan.segments[number + 1 : number + 2]
            end = following[0].base_offset if following else plan.end_offset
            if end <= start:
                continue
            for batch in self._batches(segment):
                if batch.last_offset < start:
                    continue
                if mapped_end == start and batch.count > offsets.room and not offsets.keys:
                    # A larger map than configured: a cleaning must process at least one batch.
                    offsets = OffsetMap(batch.count * 2 * SLOT_BYTES, batch.count)
                if not _map_batch(batch, offsets, transactions, start):
                    return offsets, mapped_end
                mapped_end = batch.next_offset
            mapped_end = max(mapped_end, end)
        return offsets, mapped_end

    # -- the second pass -------------------------------------------------------------------

    def _clean_group(
        self, group: Sequence[SourceSegment], batch_filter: BatchFilter
    ) -> CleanedGroup | None:
        """Write the kept records of a group; return None if it is one unchanged segment."""
        plan = self._plan
        written = CleanedSegment.create(
            self._disk, plan.directory, group[0].base_offset, plan.config, _UNUSED_MS
        )
        waiting: list[RecordBatch] = []
        waiting_bytes = 0
        changed = len(group) > 1
        for batch, is_last in _marking_last(b for segment in group for b in self._batches(segment)):
            self._bytes_read += batch.size
            kept = batch_filter.retained(batch, keep_empty=is_last)
            changed = changed or kept is not batch
            for transaction in _take(batch_filter.transactions.kept):
                written.add_aborted(transaction)
            if kept is not None:
                waiting.append(kept)
                waiting_bytes += kept.size
                self._bytes_kept += kept.size
            if waiting_bytes >= WRITE_BYTES:
                self._write(written, waiting, waiting_bytes)
                waiting, waiting_bytes = [], 0
        if not changed:
            written.delete()
            return None
        self._write(written, waiting, waiting_bytes)
        written.finish()
        written.sync()
        self._progress(0)
        return CleanedGroup(tuple(segment.base_offset for segment in group), written.size)

    def _write(self, written: CleanedSegment, batches: list[RecordBatch], size: int) -> None:
        if batches:
            written.append(batches, size)
            self._progress(size)

    def _batches(self, segment: SourceSegment) -> Iterator[RecordBatch]:
        path = f"{self._plan.directory}/{layout.file_name(segment.base_offset, layout.LOG)}"
        try:
            for batch in whole_batches(self._disk, path, 0, segment.size, check_crc=True):
                yield batch
                self._progress(batch.size)
        except InvalidBatch as error:
            raise DiskError(f"{error.reason} at byte {error.position}", path) from None


def _map_batch(
    batch: RecordBatch, offsets: OffsetMap, transactions: TransactionFilter, start: Offset
) -> bool:
    """Add the batch's keys from `start` on; return False if the map is full."""
    if transactions.is_removable(batch) or batch.is_control or batch.size == HEADER_SIZE:
        return True
    put, base_offset = offsets.put, batch.base_offset
    for _, _, _, _, _, offset_delta, key, _ in record_spans(records_of(batch), batch.count):
        offset = base_offset + offset_delta
        if key is not None and offset >= start and not put(key, offset):
            return False
    return True


def _ending_after(aborted: Sequence[AbortedTransaction], start: Offset) -> list[AbortedTransaction]:
    """Return the transactions that end after `start`: the markers of others are not read."""
    return [entry for entry in aborted if entry.last_offset >= start]


def _marking_last(batches: Iterator[RecordBatch]) -> Iterator[tuple[RecordBatch, bool]]:
    """Yield each batch, and whether it is the last one."""
    before: RecordBatch | None = None
    for batch in batches:
        if before is not None:
            yield before, False
        before = batch
    if before is not None:
        yield before, True


def _take(entries: list[AbortedTransaction]) -> list[AbortedTransaction]:
    taken = entries.copy()
    entries.clear()
    return taken


def group_segments(disk: Disk, plan: CleaningPlan, upto: Offset) -> list[tuple[SourceSegment, ...]]:
    """Return the segments that start below `upto`, in groups that fit into one segment each: in
    bytes, index entries and the range of offsets. Cleaning only makes them smaller."""
    segments = [segment for segment in plan.segments if segment.base_offset < upto]
    groups: list[tuple[SourceSegment, ...]] = []
    group: list[SourceSegment] = []
    room = _Sizes(0, 0, 0)
    for number, segment in enumerate(segments):
        needed = _sizes_of(disk, plan, segment)
        last = _end_of(plan.segments, number, plan.end_offset) - 1
        if group and not (
            room.plus(needed).fits(plan.config)
            and (segment.size == 0 or last - group[0].base_offset <= RELATIVE_OFFSET_MAX)
        ):
            groups.append(tuple(group))
            group, room = [], _Sizes(0, 0, 0)
        group.append(segment)
        room = room.plus(needed)
    if group:
        groups.append(tuple(group))
    return groups


class _Sizes(NamedTuple):
    """The sizes of a segment's files."""

    log: int
    offset_index: int
    time_index: int

    def plus(self, more: "_Sizes") -> "_Sizes":
        return _Sizes(
            self.log + more.log,
            self.offset_index + more.offset_index,
            self.time_index + more.time_index,
        )

    def fits(self, config: LogConfig) -> bool:
        index_bytes = max(self.offset_index, self.time_index)
        return self.log <= config.segment_bytes and index_bytes <= config.segment_index_bytes


def _sizes_of(disk: Disk, plan: CleaningPlan, segment: SourceSegment) -> _Sizes:
    sizes = []
    for kind in (layout.OFFSET_INDEX, layout.TIME_INDEX):
        path = f"{plan.directory}/{layout.file_name(segment.base_offset, kind)}"
        sizes.append(disk.size(path) if disk.exists(path) else 0)
    return _Sizes(segment.size, *sizes)


def _end_of(segments: Sequence[SourceSegment], number: int, end: Offset) -> Offset:
    """Return the exclusive end of a segment."""
    return segments[number + 1].base_offset if number + 1 < len(segments) else end
