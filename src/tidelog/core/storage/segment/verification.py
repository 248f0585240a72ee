"""Checksums of batches that this process did not write: each is checked before it is first read.

A broker checks a batch when it is appended. What lies on disk when the broker starts may have
changed since then, and after a clean stop nothing is read at startup. So a segment that was
opened is checked piece by piece, before a piece is served, and by the scrubber in the
background (node/upkeep/scrubber.py). What this process wrote or checked is not read again until
the scrubber's next pass.

Invariant: bytes below `Segment.verified` and from `Segment.opened_size` on are sound as far as
this process knows.
"""

from tidelog.core.storage.damage import Damage
from tidelog.core.storage.disk import Disk, DiskError, Region
from tidelog.core.storage.segment.batch_scan import InvalidBatch, whole_batches
from tidelog.core.storage.segment.segment import Segment
from tidelog.core.types import Offset


class DamagedRecords(Exception):
    """A read came upon records that are not as they were written."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(damage.reason)
        self.damage = damage


def sound_part(
    disk: Disk, segment: Segment, region: Region, offset: Offset, end_offset: Offset
) -> Region:
    """The region up to the first damaged batch; DamagedRecords if that is its first one.

    `offset` is the first one in the region that the reader asked for; `end_offset` is where the
    segment ends.
    """
    position, end = region.position, region.position + region.length
    stop = min(end, segment.opened_size)
    if position >= stop or stop <= segment.verified:
        return region
    sound, reason, _ = _check(disk, segment, position, stop, offset, end_offset)
    if position <= segment.verified < sound:
        segment.verified = sound
    if reason is None:
        return region
    if sound == position:
        raise DamagedRecords(Damage(offset, f"{segment.path}: {reason} at byte {position}"))
    return Region(region.path, position, sound - position)


def verify_next(
    disk: Disk, segment: Segment, most: int, end_offset: Offset
) -> tuple[int, Damage | None]:
    """Check the next batches that are not verified; how many bytes that were, and what is
    damaged there. `end_offset` is where the segment ends."""
    start = segment.verified
    first = segment.base_offset if start == 0 else segment.span_at(start).base_offset
    stop = min(segment.opened_size, segment.boundary(start, start + most))
    if stop == start < segment.opened_size:
        stop = start + segment.span_at(start).size
    sound, reason, offset = _check(disk, segment, start, stop, first, end_offset)
    segment.verified = sound
    if reason is None:
        return sound - start, None
    return sound - start, Damage(offset, f"{segment.path}: {reason} at byte {sound}")


def _check(
    disk: Disk, segment: Segment, position: int, stop: int, offset: Offset, end_offset: Offset
) -> tuple[int, str | None, Offset]:
    """Up to where the batches are sound, why not further, and the offset there.

    No checksum covers a batch's offset. One that is too high shows by the batch behind it, or by
    the end of the segment.
    """
    last = None
    try:
        for batch in whole_batches(disk, segment.path, position, stop, check_crc=True):
            if last is not None and batch.base_offset < offset:
                return last[0], f"offset {offset - 1} before {batch.base_offset}", last[1]
            if not offset <= batch.last_offset < end_offset:
                return position, f"offset {batch.base_offset} where {offset} should be", offset
            last = position, offset
            position += batch.size
            offset = batch.next_offset
    except InvalidBatch as error:
        return position, error.reason, offset
    return position, None, offset


def damage_of(segment: Segment, error: DiskError) -> Damage:
    """From which offset on a segment can't be read, when its headers make no sense."""
    offset = segment.base_offset
    try:
        for _, _, last in segment.walk(0):
            offset = last + 1
    except DiskError:
        pass
    return Damage(offset, str(error))
