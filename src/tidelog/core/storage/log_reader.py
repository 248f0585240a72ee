"""Searches in a log: by offset, by timestamp, and for aborted transactions.

A search by offset returns a region of whole batches in one segment. A search by timestamp
decompresses batches, usually one: headers have the largest timestamp. Headers come from producers
and may be wrong, so a budget limits the work; beyond it the header alone decides, and the offset
may be too low.
"""

from collections.abc import Callable
from typing import NamedTuple

from tidelog.core.lineage.transaction_index import (
    AbortedTransaction,
    aborted_transactions,
    ended_from,
)
from tidelog.core.record.opened_batch import OpenedBatch
from tidelog.core.record.record_batch import CorruptRecord, RecordBatch, parse
from tidelog.core.record.work_budget import WorkBudget
from tidelog.core.storage.disk import Disk, DiskError, Region
from tidelog.core.storage.segment.damage import (
    Damage,
    DamagedRecords,
    Expected,
    damage_of,
    sound_part,
)
from tidelog.core.storage.segment.segment import Segment
from tidelog.core.storage.segment.segments import Segments
from tidelog.core.types import LeaderEpoch, Offset


class TimestampAndOffset(NamedTuple):
    """The result of ListOffsets for a timestamp."""

    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch


def read_region_at(
    disk: Disk,
    segments: Segments,
    offset: Offset,
    max_bytes: int,
    upto: Offset,
    log_end_offset: Offset,
    expected_of: Callable[[Segment], Expected],
) -> Region:
    """Return the region of batches from the one that contains `offset`, all below `upto`. Raises
    DamagedRecords if the first one is damaged, or missing without compaction."""
    active = segments.active
    for segment in (active,) if offset >= active.base_offset else segments.from_offset(offset):
        if segment.base_offset > offset >= expected_of(segment).gapless_from:
            missing = f"offsets {offset} to {segment.base_offset - 1} are missing before it"
            raise DamagedRecords(Damage(offset, f"{segment.path}: {missing}"))
        try:
            start = segment.locate(offset)
            # Compaction may have removed the rest of a segment: then read the next one.
            if start < segment.size:
                segment_end = segments.end_of(segment) or log_end_offset
                whole = upto >= segment_end
                end = segment.size if whole else segment.locate(upto)
                region = segment.read(start, max(start, end), max_bytes)
                if segment.verified < segment.opened_size:
                    region = sound_part(disk, segment, region, offset, expected_of(segment))
                return region
        except DiskError as error:
            raise DamagedRecords(damage_of(segment, error)) from error
    return Region(active.path, active.size, 0)


def offset_for_timestamp(
    disk: Disk,
    segments: Segments,
    timestamp: int,
    log_start_offset: Offset,
    budget: WorkBudget,
) -> TimestampAndOffset | None:
    """Find the first record from the log start on with this or a later timestamp."""
    for segment in segments.from_timestamp(timestamp, log_start_offset):
        if segment.max_timestamp < timestamp:
            continue
        from_offset = max(segment.time_index.floor(timestamp), log_start_offset)
        for span in segment.spans(segment.locate(from_offset)):
            if span.max_timestamp >= timestamp:
                try:
                    batch = parse(disk.read(segment.path, span.position, span.size))
                except CorruptRecord as error:
                    raise DiskError(
                        f"{error.reason} at byte {span.position}", segment.path
                    ) from None
                found = _first_record(batch, timestamp, log_start_offset, budget)
                if found is not None:
                    return found
    return None


def offset_of_max_timestamp(
    disk: Disk, segments: Segments, log_start_offset: Offset, budget: WorkBudget
) -> TimestampAndOffset | None:
    """Find the first record with the largest timestamp of the log."""
    largest = segments.max_timestamp
    if largest < 0:
        return None
    found = offset_for_timestamp(disk, segments, largest, log_start_offset, budget)
    if found is not None:
        return found
    # Compaction left only the header of that batch; indexes and headers still have its timestamp.
    spans = (span for segment in segments.from_offset(log_start_offset) for span in segment.spans())
    largest = max((span.max_timestamp for span in spans if span.records), default=-1)
    if largest < 0:
        return None
    return offset_for_timestamp(disk, segments, largest, log_start_offset, budget)


def _first_record(
    batch: RecordBatch, timestamp: int, log_start_offset: Offset, budget: WorkBudget
) -> TimestampAndOffset | None:
    try:
        for record in OpenedBatch(batch, budget).scan():
            if record.timestamp >= timestamp and record.offset >= log_start_offset:
                return TimestampAndOffset(record.timestamp, record.offset, batch.leader_epoch)
    except CorruptRecord:
        # Invalid, or over budget: use the header.
        first = max(batch.base_offset, log_start_offset)
        return TimestampAndOffset(batch.max_timestamp, first, batch.leader_epoch)
    return None


def aborted_between(
    segments: Segments, offset: Offset, upper_bound: Offset
) -> list[AbortedTransaction]:
    """Return the aborted transactions that overlap the range from `offset` to `upper_bound`."""
    entries = (
        entry
        for segment in segments.from_offset(offset)
        for entry in ended_from(segment.aborted(), offset)
    )
    return aborted_transactions(entries, offset, upper_bound)


def end_of_region(segments: Segments, offset: Offset, region: Region, upto: Offset) -> Offset:
    """Return an offset that no record of a region is at or above: at most one index entry above
    its last record. The region was read from `offset`, and has no records at or above `upto`."""
    for segment in segments.from_offset(offset):
        if segment.path == region.path:
            end = segment.offset_index.end_above(region.position + region.length)
            if end is None:
                end = segments.end_of(segment)
            return upto if end is None else min(upto, end)
    return upto
