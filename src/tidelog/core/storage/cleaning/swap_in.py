"""A cleaned segment takes the place of those that it was made from.

Four steps, in an order that a crash may cut anywhere (`swaps.py` puts it right at the next
start): `.cleaned` becomes `.swap`, from where on the replacement counts; the segments that it
replaces become `.deleted`; `.swap` goes from the name; the directory is synced. Readers that
were promised a stretch of a replaced file hold it open, or find it under `.deleted`.

Always true: the `.cleaned` files are complete and synced before this begins, and no other
`.cleaned` lies in front of them: one of a lower offset would say that the `.swap` is only
half made, when the originals are gone already.
"""

from collections.abc import Sequence

from tidelog.core.storage import layout
from tidelog.core.storage.disk import Disk
from tidelog.core.storage.layout import CLEANED_SUFFIX, SEGMENT_KINDS, SWAP_SUFFIX
from tidelog.core.storage.retention import PendingDeletions
from tidelog.core.storage.segment.segment import Segment
from tidelog.core.storage.segment.segments import Segments


def is_ready(disk: Disk, replaced: Sequence[Segment], size: int) -> bool:
    """Whether the replacement's file is there, as large as it was said to be."""
    path = replaced[0].path + CLEANED_SUFFIX
    return disk.exists(path) and disk.size(path) == size


def swap_in(
    disk: Disk,
    segments: Segments,
    replaced: Sequence[Segment],
    deletions: PendingDeletions,
    due_ms: int,
) -> None:
    """Put the `.cleaned` files of the first one's base offset in the place of all these."""
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
