"""Retention: which old segments are deleted, and when their files are removed.

`expired_segments` only *proposes* a new log start offset, by time and size: the leader decides, and
followers get the log start from it. Segments below the log start are renamed to `.deleted` and
removed after `file.delete.delay.ms`, so that a fetch response that refers to one can still be sent
(M05); new reads do not find them.

Invariant: nothing at or above the high watermark is deleted, and one segment always stays.
"""

from heapq import heappop, heappush
from typing import NamedTuple

from tidelog.core.storage import layout
from tidelog.core.storage.disk import Disk
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.segment.segment import Segment
from tidelog.core.storage.segment.segments import Segments
from tidelog.core.types import Offset


class ExpiredSegment(NamedTuple):
    """A segment to delete because of its age or the log's size."""

    base_offset: Offset
    end_offset: Offset
    """The offset after the last record of the segment."""
    reason: str


def expired_segments(
    segments: Segments,
    config: LogConfig,
    log_end_offset: Offset,
    high_watermark: Offset,
    wall_ms: int,
    now_ms: int,
) -> list[ExpiredSegment]:
    """Return the segments to delete, oldest first. Timestamps are compared with `wall_ms`; the
    monotonic `now_ms` is for segments whose records have no timestamps."""
    expired: list[ExpiredSegment] = []
    if not config.cleanup_delete:
        return expired
    excess = 0
    if config.retention_bytes >= 0:
        excess = sum(segment.size for segment in segments) - config.retention_bytes
    for segment in segments:
        end = segments.end_of(segment)
        upper_bound = log_end_offset if end is None else end
        if upper_bound > high_watermark or not segment.size:
            break
        reason = _too_old(segment, config, wall_ms, now_ms)
        if reason is None and config.retention_bytes >= 0 and excess >= segment.size:
            reason = f"the log exceeds retention.bytes={config.retention_bytes}"
        if reason is None:
            break
        excess -= segment.size
        expired.append(ExpiredSegment(segment.base_offset, upper_bound, reason))
    return expired


def _too_old(segment: Segment, config: LogConfig, wall_ms: int, now_ms: int) -> str | None:
    """Return the reason if a segment is older than retention.ms. Its age is that of its newest
    record, or the time since it was opened if its records have no timestamps."""
    newest = segment.max_timestamp
    age_ms = wall_ms - newest if newest >= 0 else now_ms - segment.created_ms
    if config.retention_ms < 0 or age_ms <= config.retention_ms:
        return None
    what = f"newest record is {age_ms} ms old" if newest >= 0 else f"opened {age_ms} ms ago"
    return f"{what}, retention.ms={config.retention_ms}"


class PendingDeletions:
    """Files that were renamed to `.deleted`, and when to remove each."""

    __slots__ = ("_disk", "_due")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._due: list[tuple[int, str]] = []

    def add(self, path: str, due_ms: int) -> None:
        """Rename a file to `.deleted`; do nothing if it is missing."""
        if self._disk.exists(path):
            renamed = layout.deleted(path)
            self._disk.rename(path, renamed)
            heappush(self._due, (due_ms, renamed))

    def remove_due(self, now_ms: int) -> int:
        """Remove files whose delay is over; return their number."""
        removed = 0
        while self._due and self._due[0][0] <= now_ms:
            _, path = heappop(self._due)
            self._disk.delete(path)
            removed += 1
        return removed

    def next_due(self) -> int | None:
        """Return when the next file is due; None if there is none."""
        return self._due[0][0] if self._due else None
