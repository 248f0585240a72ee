"""Snapshots of producer state, and how the state is rebuilt from them.

`<offset>.snapshot` has the producer state of the log up to that offset. One is written at each roll
and at a clean stop, so that a restart replays at most one segment. A damaged snapshot is deleted
and the one before it is used; without any, the whole log is replayed.

A snapshot has only the last batch of each producer, but duplicates of the last five must be
detected; the others are read from the headers near the log end.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress

from tidelog.core.lineage.producer_state import CorruptSnapshot, ProducerState
from tidelog.core.record.record_batch import CorruptRecord, RecordBatch
from tidelog.core.storage import layout
from tidelog.core.storage.disk import Disk, DiskError, read_file
from tidelog.core.storage.segment.batch_scan import InvalidBatch, whole_batches
from tidelog.core.storage.segment.segment import Segment
from tidelog.core.storage.segment.segments import Segments
from tidelog.core.types import Offset

WINDOW_BYTES = 1_048_576
"""How many bytes before the log end are read for batches that a snapshot does not have."""


class ProducerSnapshots:
    """The snapshots in one partition's directory."""

    __slots__ = ("_directory", "_disk", "_offsets", "loaded")

    def __init__(self, disk: Disk, directory: str, offsets: Iterable[Offset] = ()) -> None:
        self._disk = disk
        self._directory = directory
        self._offsets = sorted(offsets)
        self.loaded: Offset = 0
        """Producer state below this offset is from a snapshot, above it from the log."""

    def _path(self, offset: Offset) -> str:
        return f"{self._directory}/{layout.file_name(offset, layout.SNAPSHOT)}"

    @property
    def paths(self) -> list[str]:
        return [self._path(offset) for offset in self._offsets]

    def move_to(self, disk: Disk) -> None:
        """Use the same files on another disk."""
        self._disk = disk

    @property
    def newest(self) -> Offset | None:
        """The offset of the newest snapshot."""
        return self._offsets[-1] if self._offsets else None

    def write(self, producers: ProducerState, offset: Offset) -> str:
        """Write a snapshot without sync and return its path: its checksum shows a torn write."""
        path = self._path(offset)
        self._disk.write(path, producers.encode_snapshot())
        at = bisect_left(self._offsets, offset)
        if at == len(self._offsets) or self._offsets[at] != offset:
            self._offsets.insert(at, offset)
        return path

    def _delete(self, offsets: list[Offset]) -> None:
        for offset in offsets:
            self._disk.delete(self._path(offset))
            del self._offsets[bisect_left(self._offsets, offset)]

    def delete_below(self, start: Offset) -> None:
        self._delete(self._offsets[: bisect_left(self._offsets, start)])

    def delete_above(self, end: Offset) -> None:
        self._delete(self._offsets[bisect_right(self._offsets, end) :])

    def delete_all(self) -> None:
        self._delete(self._offsets.copy())

    def delete_strays(self, segments: Segments) -> None:
        """Delete all snapshots except the newest and those at the start of a segment."""
        bases = {segment.base_offset for segment in segments}
        self._delete([offset for offset in self._offsets[:-1] if offset not in bases])

    def load(self, producers: ProducerState, start: Offset, end: Offset) -> None:
        """Load the newest valid snapshot from `start` to `end`, or clear the state."""
        producers.restart_at(start)
        self.loaded = start
        for offset in reversed(self._offsets.copy()):
            if start <= offset <= end:
                data = read_file(self._disk, self._path(offset))
                try:
                    producers.load_snapshot(data or b"", offset)
                except CorruptSnapshot:
                    self._delete([offset])
                    continue
                self.loaded = offset
                return

    def rebuild(self, producers: ProducerState, segments: Segments) -> None:
        """Rebuild the state at the log end: load the newest snapshot, then replay later batches."""
        end = segments.active.next_offset()
        self.load(producers, segments.first.base_offset, end)
        self.replay(producers, segments, end)
        producers.end_offset = end
        refill_windows(self._disk, producers, segments)

    def replay(self, producers: ProducerState, segments: Segments, end: Offset) -> None:
        """Apply the batches below `end` that the state does not include. Raises DiskError at a
        damaged batch, whose effect is unknown; the state then includes all batches before it."""
        for batch in batches_from(self._disk, segments, producers.end_offset, end):
            try:
                producers.update(batch)
            except CorruptRecord as error:
                producers.end_offset = batch.base_offset
                raise DiskError(
                    f"transaction marker at offset {batch.base_offset}: {error.reason}",
                    self._directory,
                ) from None


def batches_from(
    disk: Disk, segments: Segments, start: Offset, end: Offset
) -> Iterator[RecordBatch]:
    """Yield the batches from `start` up to `end`, with their bytes."""
    for segment in segments.from_offset(start):
        if segment.base_offset >= end:
            return
        for batch in _sound(disk, segment, segment.locate(start)):
            if start <= batch.base_offset < end:
                yield batch


def _sound(disk: Disk, segment: Segment, position: int) -> Iterator[RecordBatch]:
    try:
        yield from whole_batches(disk, segment.path, position, segment.size, check_crc=False)
    except InvalidBatch as error:
        raise DiskError(f"{error.reason} at byte {error.position}", segment.path) from None


def refill_windows(disk: Disk, producers: ProducerState, segments: Segments) -> None:
    """Add the recent batches of each producer, which snapshots lack, from the end of the log."""
    if not producers.producers:
        return
    seen = ProducerState()
    for segment, position in _last_bytes(segments, WINDOW_BYTES):
        # Ignore damage: readers report it. Without these batches fewer duplicates are found.
        with suppress(InvalidBatch, CorruptRecord):
            for batch in whole_batches(disk, segment.path, position, segment.size, check_crc=False):
                seen.update(batch)
    for producer_id, recent in seen.producers.items():
        entry = producers.producers.get(producer_id)
        if entry is None or entry.epoch != recent.epoch or not (entry.batches and recent.batches):
            continue
        if recent.batches[-1].last_offset == entry.batches[-1].last_offset:
            entry.batches = max(recent.batches, entry.batches, key=len)


def _last_bytes(segments: Segments, length: int) -> list[tuple[Segment, int]]:
    """Return the batch positions where about the last `length` bytes of the log start."""
    parts: list[tuple[Segment, int]] = []
    for segment in reversed(list(segments)):
        if length <= 0:
            break
        start = segment.offset_index.floor_by_position(max(0, segment.size - length))
        parts.append((segment, start))
        length -= segment.size
    return parts[::-1]
