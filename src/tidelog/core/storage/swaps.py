"""What a crash in the middle of compaction leaves, and how it is put right.

The cleaner writes `.cleaned` files, renames them to `.swap` when they are complete and
synced, deletes the segments they replace, and renames them to their final names. So a
`.cleaned` file is rubbish, and a `.swap` is a finished replacement whose swap has to be
completed. When both are there a group of segments was being renamed and not all of it had
become `.swap`: what was renamed from the smallest `.cleaned` on is rubbish too. So is a `.swap`
that does not hold sound batches only, as long as the segment that it replaces is still there.
"""

from tidelog.core.storage import layout
from tidelog.core.storage.disk import DELETED_SUFFIX, TEMPORARY_SUFFIX, Disk, DiskError
from tidelog.core.storage.layout import FileName
from tidelog.core.storage.segment.batch_scan import InvalidBatch, spans, whole_batches
from tidelog.core.types import Offset


def complete_swaps(disk: Disk, directory: str, listed: list[str]) -> list[str] | None:
    """Finish or undo what was under way in a directory with these names. The paths that were
    removed; None if there was nothing to do."""
    names = [name for name in map(layout.parse_file, listed) if name is not None]
    cleaned = [name.base_offset for name in names if name.suffix == layout.CLEANED_SUFFIX]
    rubbish = [name for name in listed if name.endswith(TEMPORARY_SUFFIX)]
    swaps: list[FileName] = []
    for name in names:
        if name.suffix in (DELETED_SUFFIX, layout.CLEANED_SUFFIX):
            rubbish.append(str(name))
        elif name.suffix == layout.SWAP_SUFFIX:
            if cleaned and name.base_offset >= min(cleaned):
                rubbish.append(str(name))
            else:
                swaps.append(name)
    damaged = _damaged(disk, directory, names, swaps)
    rubbish += [str(name) for name in swaps if name.base_offset in damaged]
    swaps = [name for name in swaps if name.base_offset not in damaged]
    rubbish += _covered(disk, directory, names, swaps)
    for file in rubbish:
        disk.delete(f"{directory}/{file}")
    for name in swaps:
        disk.rename(f"{directory}/{name}", f"{directory}/{name._replace(suffix='')}")
    if not rubbish and not swaps:
        return None
    disk.sync_dir(directory)
    return [f"{directory}/{file}" for file in rubbish]


def _damaged(
    disk: Disk, directory: str, names: list[FileName], swaps: list[FileName]
) -> set[Offset]:
    """Replacements that are damaged, and whose original segments still exist."""
    logs = {name.base_offset for name in names if name.kind == layout.LOG and not name.suffix}
    return {
        swap.base_offset
        for swap in swaps
        if swap.base_offset in logs and not _is_sound(disk, f"{directory}/{swap}", swap.kind)
    }


def _is_sound(disk: Disk, path: str, kind: str) -> bool:
    """Indexes are checked when they are opened."""
    if kind != layout.LOG:
        return True
    try:
        for _ in whole_batches(disk, path, 0, disk.size(path), check_crc=True):
            pass
    except (InvalidBatch, DiskError):
        return False
    return True


def _covered(disk: Disk, directory: str, names: list[FileName], swaps: list[FileName]) -> list[str]:
    """Files of the segments whose place a finished replacement takes."""
    ranges = [
        (swap.base_offset, _end_of(disk, f"{directory}/{swap}", swap.base_offset))
        for swap in swaps
        if swap.kind == layout.LOG
    ]
    return [
        str(name)
        for name in names
        if not name.suffix
        and name.kind in layout.SEGMENT_KINDS
        and any(start <= name.base_offset < end for start, end in ranges)
    ]


def _end_of(disk: Disk, path: str, base_offset: Offset) -> Offset:
    end = base_offset + 1
    try:
        for span in spans(disk, path, 0, disk.size(path)):
            end = span.last_offset + 1
    except DiskError:
        pass  # later records were in the segments that it replaced
    return end
