"""Producer state on disk, and how it is rebuilt.

`<offset>.snapshot` says what was known of producers when the log ended at that offset. One
is taken at each roll and at a clean stop, so that a restart replays one segment at most. A
damaged snapshot is deleted and the one before it tried; with none the whole log is replayed.

A snapshot keeps only the last batch of each producer, but a retry of any of the last five
must be recognised; the missing ones are read back from the headers near the log's end.
"""

from collections.abc import Iterator

from tidelog.core.lineage.producer_state import CorruptSnapshot, ProducerState
from tidelog.core.record.record_batch import RecordBatch
from tidelog.core.storage import layout
from tidelog.core.storage.disk import Disk, DiskError
from tidelog.core.storage.segment.batch_scan import InvalidBatch, whole_batches
from tidelog.core.storage.segment.segment import Segment
from tidelog.core.storage.segment.segments import Segments
from tidelog.core.types import Offset

WINDOW_BYTES = 1_048_576
"""How far back batches are looked for that a snapshot left out."""


def path_of(directory: str, offset: Offset) -> str:
    return f"{directory}/{layout.file_name(offset, layout.SNAPSHOT)}"


def write_snapshot(disk: Disk, directory: str, producers: ProducerState, offset: Offset) -> str:
    """Not synced: a torn one is recognised by its checksum. The path written."""
    path = path_of(directory, offset)
    disk.write(path, producers.encode_snapshot())
    return path


def snapshot_offsets(disk: Disk, directory: str) -> list[Offset]:
    """The offsets of all snapshots, rising."""
    names = map(layout.parse_file, disk.list_dir(directory))
    return sorted(
        name.base_offset
        for name in names
        if name is not None and name.kind == layout.SNAPSHOT and not name.suffix
    )


def delete_snapshots(
    disk: Disk, directory: str, below: Offset | None = None, above: Offset | None = None
) -> None:
    """Those about an end below `below`, and those about one above `above`."""
    for offset in snapshot_offsets(disk, directory):
        if (below is not None and offset < below) or (above is not None and offset > above):
            disk.delete(path_of(directory, offset))


def load_snapshot(
    disk: Disk, directory: str, producers: ProducerState, log_start: Offset, log_end: Offset
) -> None:
    """Become what the newest good snapshot within the log says; else start empty."""
    producers.restart_at(log_start)
    for offset in reversed(snapshot_offsets(disk, directory)):
        if log_start <= offset <= log_end:
            path = path_of(directory, offset)
            try:
                producers.load_snapshot(disk.read(path, 0, disk.size(path)), offset)
            except CorruptSnapshot:
                disk.delete(path)
                continue
            return


def delete_strays(disk: Disk, directory: str, segments: Segments) -> None:
    """Keep those at the start of a segment and the newest: no other is ever loaded."""
    bases = {segment.base_offset for segment in segments}
    for offset in snapshot_offsets(disk, directory)[:-1]:
        if offset not in bases:
            disk.delete(path_of(directory, offset))


def rebuild(disk: Disk, directory: str, producers: ProducerState, segments: Segments) -> None:
    """Make the state that of the log's end: newest snapshot, then what lies above it."""
    start, end = segments.first.base_offset, segments.active.next_offset()
    load_snapshot(disk, directory, producers, start, end)
    for batch in batches_from(disk, segments, producers.end_offset, end):
        producers.update(batch)
    producers.end_offset = end
    refill_windows(disk, producers, segments)


def batches_from(
    disk: Disk, segments: Segments, start: Offset, end: Offset
) -> Iterator[RecordBatch]:
    """Batches from `start` up to `end`, with their bytes."""
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
    """Give each producer back the batches before its last one, as the end of the log shows."""
    if not producers.producers:
        return
    seen = ProducerState()
    for segment, position in _last_bytes(segments, WINDOW_BYTES):
        for batch in _sound(disk, segment, position):
            seen.update(batch)
    for producer_id, recent in seen.producers.items():
        entry = producers.producers.get(producer_id)
        if entry is None or entry.epoch != recent.epoch or not (entry.batches and recent.batches):
            continue
        if recent.batches[-1].last_offset == entry.batches[-1].last_offset:
            entry.batches = max(recent.batches, entry.batches, key=len)


def _last_bytes(segments: Segments, length: int) -> list[tuple[Segment, int]]:
    """Batch positions from which about the last `length` bytes of the log follow."""
    parts: list[tuple[Segment, int]] = []
    for segment in reversed(list(segments)):
        if length <= 0:
            break
        start = segment.offset_index.floor_by_position(max(0, segment.size - length))
        parts.append((segment, start))
        length -= segment.size
    return parts[::-1]
