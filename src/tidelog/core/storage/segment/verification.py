"""Verification of batches on disk, before they are read for the first time.

A broker checks a batch when it is appended. Afterwards the bytes on disk may change, and after a
clean stop nothing is read at startup. So an opened segment is verified part by part: each part
before it is served, and by the scrubber in the background (node/upkeep/scrubber.py). Bytes that
this process wrote or verified are not read again until the scrubber's next pass.

Invariant: bytes below `Segment.verified` and from `Segment.opened_size` on are sound as far as
this process knows.
"""

from typing import NamedTuple

from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.storage.disk import Disk, DiskError, Region
from tidelog.core.storage.segment.batch_scan import InvalidBatch, whole_batches
from tidelog.core.storage.segment.damage import Damage
from tidelog.core.storage.segment.epoch_check import contradicts
from tidelog.core.storage.segment.segment import Segment
from tidelog.core.types import Offset


class DamagedRecords(Exception):
    """A read found damaged records."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(damage.reason)
        self.damage = damage


class Expected(NamedTuple):
    """Values that a segment's batches are compared with, besides their checksums."""

    end_offset: Offset
    """Where the segment ends."""
    epochs: LeaderEpochs
    gapless_from: Offset
    """From this offset on, each batch starts where the one before it ends."""


def sound_part(
    disk: Disk, segment: Segment, region: Region, offset: Offset, expected: Expected
) -> Region:
    """Return the region up to the first damaged batch; raise DamagedRecords if that is its first.

    `offset` is the first requested offset in the region.
    """
    position, end = region.position, region.position + region.length
    stop = min(end, segment.opened_size)
    if position >= stop or stop <= segment.verified:
        return region
    sound, reason, _ = _check(disk, segment, position, stop, offset, expected)
    if position <= segment.verified < sound:
        segment.verified = sound
    if reason is None:
        return region
    if sound == position:
        raise DamagedRecords(Damage(offset, f"{segment.path}: {reason} at byte {position}"))
    return Region(region.path, position, sound - position)


def verify_next(
    disk: Disk, segment: Segment, most: int, expected: Expected
) -> tuple[int, Damage | None]:
    """Verify the next batches; return the number of verified bytes, and the damage found."""
    start = segment.verified
    first = segment.base_offset if start == 0 else segment.span_at(start).base_offset
    stop = min(segment.opened_size, segment.boundary(start, start + most))
    if stop == start < segment.opened_size:
        stop = start + segment.span_at(start).size
    sound, reason, offset = _check(disk, segment, start, stop, first, expected)
    segment.verified = sound
    if reason is None:
        return sound - start, None
    return sound - start, Damage(offset, f"{segment.path}: {reason} at byte {sound}")


def _check(
    disk: Disk,
    segment: Segment,
    position: int,
    stop: int,
    offset: Offset,
    expected: Expected,
) -> tuple[int, str | None, Offset]:
    """Return the position up to which batches are sound, the reason of the damage, and its offset.

    No checksum covers a batch's offset and leader epoch. Where compaction leaves gaps, an offset
    that is too high shows by the next batch, or by the end of the segment. The epoch is
    compared with the log's epochs, which recovery has checked.
    """
    last = None
    end_offset, epochs, gapless_from = expected
    try:
        for batch in whole_batches(disk, segment.path, position, stop, check_crc=True):
            if last is not None and batch.base_offset < offset:
                return last[0], f"offset {offset - 1} before {batch.base_offset}", last[1]
            missing = batch.base_offset > max(offset, gapless_from)
            if missing or not offset <= batch.last_offset < end_offset:
                return position, f"offset {batch.base_offset} instead of {offset}", offset
            if contradicts(epochs, batch.base_offset, batch.leader_epoch):
                return position, f"leader epoch {batch.leader_epoch} differs from the log's", offset
            last = position, offset
            position += batch.size
            offset = batch.next_offset
    except InvalidBatch as error:
        return position, error.reason, offset
    return position, None, offset


def damage_of(segment: Segment, error: DiskError) -> Damage:
    """Return the damage of a segment that can't be read or has invalid headers."""
    return Damage(_readable_upto(segment, 0, segment.size), str(error))


def damage_by_size(disk: Disk, segment: Segment) -> Damage | None:
    """Return damage if the segment's file is missing or too short."""
    try:
        size = disk.size(segment.path)
        if size >= segment.size:
            return None
        start = segment.offset_index.floor_by_position(size)
    except DiskError as error:
        return Damage(segment.base_offset, str(error))
    reason = f"{segment.path}: {size} bytes instead of {segment.size}"
    offset = _readable_upto(segment, start, size)
    if start and offset == segment.base_offset:
        offset = _readable_upto(segment, 0, size)
    return Damage(offset, reason)


def _readable_upto(segment: Segment, start: int, size: int) -> Offset:
    """Return the offset after the last batch within `size` bytes, reading headers from byte
    `start` up to the first unreadable one; the base offset if there is none."""
    offset = segment.base_offset
    try:
        for position, length, last in segment.walk(start):
            if position + length > size:
                break
            offset = last + 1
    except DiskError:
        pass
    return offset
