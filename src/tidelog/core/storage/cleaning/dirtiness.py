"""Which part of a log is dirty, and whether it should be cleaned now.

Records from the first dirty offset on, where the last cleaning ended, are dirty. Only closed
segments below the last stable offset (and so below the high watermark) can be cleaned, without
records newer than `min.compaction.lag.ms`. They must be flushed: else a power failure could lose a
key's new record after its old one was removed. A log is cleaned when the dirty share is large
enough, or when a record is older than `max.compaction.lag.ms`.
"""

from typing import NamedTuple

from tidelog.core.storage.cleaning.plan import CleaningPlan, LastBatch, SourceSegment
from tidelog.core.storage.log import Log
from tidelog.core.storage.segment.segment import Segment
from tidelog.core.types import Offset


class Dirtiness(NamedTuple):
    """The part of a log that can be cleaned."""

    first_dirty_offset: Offset
    end_offset: Offset
    """The base offset of the first segment that can't be cleaned."""
    clean_bytes: int
    dirty_bytes: int
    overdue: bool

    @property
    def ratio(self) -> float:
        """The share of dirty bytes."""
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes)


def dirtiness(
    log: Log, first_dirty: Offset | None, last_stable: Offset, wall_ms: int
) -> Dirtiness | None:
    """Return what to clean; None if the log need not be cleaned. `first_dirty` is from the
    checkpoint; it is ignored if it is outside the log."""
    start = log.log_start_offset
    if first_dirty is None or not start <= first_dirty <= log.log_end_offset:
        first_dirty = start
    limit = min(last_stable, log.recovery_point)
    dirty: list[Segment] = []
    clean_bytes = 0
    end = None
    for segment in log.segments:
        upper = log.segments.end_of(segment)
        if upper is None or upper > limit or _too_young(segment, log, first_dirty, wall_ms):
            break
        end = upper
        if upper <= first_dirty:
            clean_bytes += segment.size
        else:
            dirty.append(segment)
    dirty_bytes = sum(segment.size for segment in dirty)
    if end is None or not dirty_bytes:
        return None
    overdue = any(_waited_too_long(segment, log, wall_ms) for segment in dirty)
    found = Dirtiness(first_dirty, end, clean_bytes, dirty_bytes, overdue)
    return found if overdue or found.ratio > log.config.min_cleanable_dirty_ratio else None


def _too_young(segment: Segment, log: Log, first_dirty: Offset, wall_ms: int) -> bool:
    lag_ms = log.config.min_compaction_lag_ms
    upper = log.segments.end_of(segment)
    if lag_ms <= 0 or (upper is not None and upper <= first_dirty):
        return False
    return segment.max_timestamp > wall_ms - lag_ms


def _waited_too_long(segment: Segment, log: Log, wall_ms: int) -> bool:
    since = segment.first_timestamp
    return since is not None and 0 < since < wall_ms - log.config.max_compaction_lag_ms


def plan_cleaning(
    log: Log,
    found: Dirtiness,
    map_bytes: int,
    earliest_ms: int,
    latest_ms: int,
    *,
    all_in_sync: bool = True,
) -> CleaningPlan:
    """Create the plan of a cleaning from the current state of the log."""
    first, end = log.segments.first.base_offset, found.end_offset
    producers = {}
    for producer_id, entry in log.producers.producers.items():
        last_offset = entry.batches[-1].last_offset if entry.batches else None
        if last_offset is None or last_offset < end:
            producers[producer_id] = LastBatch(entry.epoch, last_offset)
    return CleaningPlan(
        log.partition,
        log.directory,
        log.config,
        tuple(SourceSegment(s.base_offset, s.size) for s in log.segments if s.base_offset < end),
        found.first_dirty_offset,
        end,
        tuple(log.aborted_transactions(first, end)),
        producers,
        earliest_ms,
        latest_ms,
        map_bytes,
        all_in_sync,
    )
