"""What a crash in the middle of compaction leaves, and how it is put right.

The cleaner writes `.cleaned` files, renames them to `.swap` when they are complete and
synced, deletes the segments they replace, and renames them to their final names. So a
`.cleaned` file is rubbish, and a `.swap` is a finished replacement whose swap has to be
completed. When both are there a group of segments was being renamed and not all of it had
become `.swap`: what was renamed from the smallest `.cleaned` on is rubbish too.
"""

from tidelog.core.storage import layout
from tidelog.core.storage.disk import DELETED_SUFFIX, TEMPORARY_SUFFIX, Disk
from tidelog.core.storage.layout import FileName
from tidelog.core.storage.segment.batch_scan import spans
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
    rubbish += _covered(disk, directory, names, swaps)
    for file in rubbish:
        disk.delete(f"{directory}/{file}")
    for name in swaps:
        disk.rename(f"{directory}/{name}", f"{directory}/{name._replace(suffix='')}")
    if not rubbish and not swaps:
        return None
    disk.sync_dir(directory)
    return [f"{directory}/{file}" for file in rubbish]


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
    for span in spans(disk, path, 0, disk.size(path)):
        end = span.last_offset + 1
    return end
