"""Replacement of segments by a rewritten copy, in steps that survive a crash.

Compaction and repair write the copy beside the log, as `.cleaned` files (`CleanedSegment`). Then
`swap_in` replaces the original segments with it:

1. `.cleaned` is renamed to `.swap`: from here on the copy is valid;
2. the replaced segments are renamed to `.deleted`;
3. the suffix `.swap` is removed;
4. the directory is synced.

A reader that was given a range of a replaced file has it open, or finds it under `.deleted`.

`complete_swaps` runs at startup, after a crash between any two steps. It deletes `.cleaned` files,
and completes the swap of `.swap` files. If both exist, a group of files was being renamed and only
some have become `.swap`: those from the smallest `.cleaned` offset on are deleted too. So is a
`.swap` with a damaged batch, as long as the segment that it replaces still exists.

Invariant: the `.cleaned` files are complete and synced before `swap_in` starts, and there is no
`.cleaned` file of a lower offset. After a crash such a file would mean that the `.swap` is
incomplete, although the originals are already deleted.
"""

from collections.abc import Sequence

from tidelog.core.storage import layout
from tidelog.core.storage.disk import DELETED_SUFFIX, TEMPORARY_SUFFIX, Disk, DiskError
from tidelog.core.storage.layout import CLEANED_SUFFIX, SEGMENT_KINDS, SWAP_SUFFIX, FileName
from tidelog.core.storage.retention import PendingDeletions
from tidelog.core.storage.segment.batch_scan import InvalidBatch, spans, whole_batches
from tidelog.core.storage.segment.segment import Segment
from tidelog.core.storage.segment.segments import Segments
from tidelog.core.types import Offset


class CleanedSegment(Segment):
    """A copy of a segment that is not part of the log yet. Use `create`."""

    __slots__ = ()

    def file(self, kind: str) -> str:
        return super().file(kind) + CLEANED_SUFFIX

    def sync(self) -> None:
        """Sync the files, then the directory."""
        files = [self.file(kind) for kind in SEGMENT_KINDS]
        self._disk.sync_many([path for path in files if self._disk.exists(path)], [])
        self._disk.sync_dir(self.directory)


def remove_leftovers(disk: Disk, directory: str) -> None:
    """Delete `.cleaned` files of an earlier cleaning that were not used."""
    for name in disk.list_dir(directory):
        if name.endswith(CLEANED_SUFFIX):
            disk.delete(f"{directory}/{name}")


def is_ready(disk: Disk, replaced: Sequence[Segment], size: int) -> bool:
    """Whether the replacement's file exists with this size."""
    path = replaced[0].path + CLEANED_SUFFIX
    return disk.exists(path) and disk.size(path) == size


def swap_in(
    disk: Disk,
    segments: Segments,
    replaced: Sequence[Segment],
    deletions: PendingDeletions,
    due_ms: int,
) -> None:
    """Replace these segments with the `.cleaned` files of the first one's base offset."""
    assert segments.active not in replaced, "the active segment is never cleaned"
    first = replaced[0]
    _remove_lower(disk, first)
    files = [first.file(kind) for kind in SEGMENT_KINDS]
    cleaned = [path for path in files if disk.exists(path + CLEANED_SUFFIX)]
    for path in cleaned:
        disk.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
    for segment in replaced:
        for kind in SEGMENT_KINDS:
            deletions.add(segment.file(kind), due_ms)
    for path in cleaned:
        disk.rename(path + SWAP_SUFFIX, path)
    disk.sync_dir(first.directory)
    cleaned_segment = Segment.open(
        disk, first.directory, first.base_offset, first.config, first.created_ms
    )
    segments.replace(replaced, cleaned_segment)


def _remove_lower(disk: Disk, first: Segment) -> None:
    for listed in disk.list_dir(first.directory):
        name = layout.parse_file(listed)
        if name is None or name.suffix != CLEANED_SUFFIX:
            continue
        if name.base_offset < first.base_offset:
            disk.delete(f"{first.directory}/{listed}")


def complete_swaps(disk: Disk, directory: str, listed: list[str]) -> list[str] | None:
    """Complete or undo interrupted swaps in a directory with these files. Return the deleted paths;
    None if there was nothing to do."""
    names = [name for name in map(layout.parse_file, listed) if name is not None]
    cleaned = [name.base_offset for name in names if name.suffix == CLEANED_SUFFIX]
    obsolete = [name for name in listed if name.endswith(TEMPORARY_SUFFIX)]
    swaps: list[FileName] = []
    for name in names:
        if name.suffix in (DELETED_SUFFIX, CLEANED_SUFFIX):
            obsolete.append(str(name))
        elif name.suffix == SWAP_SUFFIX:
            if cleaned and name.base_offset >= min(cleaned):
                obsolete.append(str(name))
            else:
                swaps.append(name)
    damaged = _damaged(disk, directory, names, swaps)
    obsolete += [str(name) for name in swaps if name.base_offset in damaged]
    swaps = [name for name in swaps if name.base_offset not in damaged]
    obsolete += _covered(disk, directory, names, swaps)
    for file in obsolete:
        disk.delete(f"{directory}/{file}")
    for name in swaps:
        disk.rename(f"{directory}/{name}", f"{directory}/{name._replace(suffix='')}")
    if not obsolete and not swaps:
        return None
    disk.sync_dir(directory)
    return [f"{directory}/{file}" for file in obsolete]


def _damaged(
    disk: Disk, directory: str, names: list[FileName], swaps: list[FileName]
) -> set[Offset]:
    """Return the damaged replacements whose original segments still exist."""
    logs = {name.base_offset for name in names if name.kind == layout.LOG and not name.suffix}
    return {
        swap.base_offset
        for swap in swaps
        if swap.base_offset in logs and not _is_sound(disk, f"{directory}/{swap}", swap.kind)
    }


def _is_sound(disk: Disk, path: str, kind: str) -> bool:
    """Whether a file has only sound batches. Indexes are checked when they are opened."""
    if kind != layout.LOG:
        return True
    try:
        for _ in whole_batches(disk, path, 0, disk.size(path), check_crc=True):
            pass
    except (InvalidBatch, DiskError):
        return False
    return True


def _covered(disk: Disk, directory: str, names: list[FileName], swaps: list[FileName]) -> list[str]:
    """Return the files of segments that a finished replacement covers."""
    ranges = [
        (swap.base_offset, _end_of(disk, f"{directory}/{swap}", swap.base_offset))
        for swap in swaps
        if swap.kind == layout.LOG
    ]
    return [
        str(name)
        for name in names
        if not name.suffix
        and name.kind in SEGMENT_KINDS
        and any(start <= name.base_offset < end for start, end in ranges)
    ]


def _end_of(disk: Disk, path: str, base_offset: Offset) -> Offset:
    end = base_offset + 1
    try:
        for span in spans(disk, path, 0, disk.size(path)):
            end = span.last_offset + 1
    except DiskError:
        pass  # records after the damage were in the segments that it replaced
    return end
