"""Detection of missing and damaged records.

A crash may lose the end of the last write. It never loses records below the recovery point, which
were synced, nor the first segment, nor one in the middle. If those are missing, the disk failed or
an operator removed them. When a log is opened, it is compared with other files:

- the recovery point and the high watermark checkpoint: the log ended there or later;
- each segment: it ends where the next one begins, unless compaction left a gap;
- the first entry of `leader-epoch-checkpoint`: the log began there or earlier. It is written
  before segments are dropped (node/hosting/replicas.py).

Damage removes nothing by itself. The replica reports it before it may lead, and truncates to
`Damage.offset` when it follows a leader, which has the records. Without another replica it
serves the remaining records.

A broker checks a batch when it is appended. Afterwards the bytes on disk may change, and after a
clean stop nothing is read at startup. So an opened segment is verified part by part: each part
before it is served, and by the scrubber in the background (node/upkeep/scrubber.py). Bytes that
this process wrote or verified are not read again until the scrubber's next pass.

Invariant: bytes below `Segment.verified` and from `Segment.opened_size` on are sound as far as
this process knows.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.storage.disk import Disk, DiskError, Region
from tidelog.core.storage.segment.batch_order import contradicts
from tidelog.core.storage.segment.batch_scan import InvalidBatch, whole_batches
from tidelog.core.storage.segment.segment import Segment
from tidelog.core.types import EpochEntry, Offset


class Damage(NamedTuple):
    """The log lacks records from `offset` on that it once had.

    If `inside`, there are records after the missing ones. Else the log ends at `offset`, and only
    later records are missing.
    """

    offset: Offset
    reason: str
    inside: bool = True


def missing_start(epochs: Sequence[EpochEntry], segments: Sequence[Segment]) -> Damage | None:
    """Return damage if the first segments are missing: the log starts after its first epoch."""
    if not epochs or not segments:
        return None
    first, base = epochs[0].start_offset, segments[0].base_offset
    if first >= base:
        return None
    return Damage(first, f"offsets {first} to {base - 1} are missing at the start of the log")


def missing_between(segments: Sequence[Segment], cleaned_upto: Offset) -> Damage | None:
    """Return damage if a segment is missing or ends too early. Gaps below `cleaned_upto` are from
    compaction."""
    return next(all_missing_between(segments, cleaned_upto), None)


def all_missing_between(segments: Iterable[Segment], cleaned_upto: Offset) -> Iterator[Damage]:
    """Like `missing_between`, for every segment that does not end where the next one starts."""
    for earlier, later in pairwise(segments):
        try:
            end = earlier.next_offset()
        except DiskError as error:
            yield Damage(earlier.base_offset, str(error))
            continue
        if end > later.base_offset:
            beyond = f"ends at offset {end}, the next segment starts at {later.base_offset}"
            yield Damage(earlier.base_offset, f"{earlier.path}: {beyond}")
        elif end != later.base_offset and later.base_offset > cleaned_upto:
            missing = f"offsets {end} to {later.base_offset - 1} are missing between segments"
            yield Damage(end, f"{earlier.path}: {missing}")


def is_gapless(segments: Iterable[Segment]) -> bool:
    """Whether the headers show that each batch starts where the one before it ends. False if a
    header is damaged."""
    expected: Offset | None = None
    try:
        for segment in segments:
            if expected is not None and segment.base_offset != expected:
                return False
            expected = segment.base_offset
            for span in segment.spans():
                if span.base_offset != expected:
                    return False
                expected = span.last_offset + 1
    except DiskError:
        return False
    return True


def missing_end(log_end: Offset, known_end: Offset) -> Damage | None:
    """Return damage if the log ends below `known_end`, which it once reached."""
    if log_end >= known_end:
        return None
    reason = f"the log ends at offset {log_end}, its checkpoints say {known_end}"
    return Damage(log_end, reason, inside=False)


class DamagedRecords(Exception):
    """A read found damaged records."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(damage.reason)
        self.damage = damage


class Expected(NamedTuple):
    """Values that a segment's batches are compared with, besides their checksums."""

    end_offset: Offset
    """The end offset of the segment (exclusive)."""
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
