"""Which old segments go, and when their files do.

Time and size only *propose* a new log start offset (`expired_segments`): the leader's
partition decides and tells its followers. What lies wholly below the log start is then
renamed to `.deleted` and removed after `file.delete.delay.ms`, so that a fetch which was
answered with a region of it a moment ago can still be sent (M05); no new read finds it.

Always true: nothing at or above the high watermark goes, and one segment always stays.
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
    """A segment to delete for its age or the log's size, and the reason."""

    base_offset: Offset
    end_offset: Offset
    """Exclusive."""
    reason: str


def expired_segments(
    segments: Segments,
    config: LogConfig,
    log_end_offset: Offset,
    high_watermark: Offset,
    wall_ms: int,
    now_ms: int,
) -> list[ExpiredSegment]:
    """The segments to delete, oldest first. `wall_ms` is the time that timestamps are
    compared with; `now_ms` is monotonic, for segments whose records have no timestamps."""
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
    """Why its age is beyond retention.ms: since its youngest record, or since this process
    opened it if its records have no timestamps."""
    newest = segment.max_timestamp
    age_ms = wall_ms - newest if newest >= 0 else now_ms - segment.created_ms
    if config.retention_ms < 0 or age_ms <= config.retention_ms:
        return None
    what = f"newest record is {age_ms} ms old" if newest >= 0 else f"opened {age_ms} ms ago"
    return f"{what}, retention.ms={config.retention_ms}"


class PendingDeletions:
    """Renamed files, and when each is due to vanish."""

    __slots__ = ("_disk", "_due")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._due: list[tuple[int, str]] = []

    def add(self, path: str, due_ms: int) -> None:
        """Rename a file out of the way; a missing one is fine."""
        if self._disk.exists(path):
            renamed = layout.deleted(path)
            self._disk.rename(path, renamed)
            heappush(self._due, (due_ms, renamed))

    def remove_due(self, now_ms: int) -> int:
        """Delete what has waited long enough; how many files that were."""
        removed = 0
        while self._due and self._due[0][0] <= now_ms:
            _, path = heappop(self._due)
            self._disk.delete(path)
            removed += 1
        return removed

    def next_due(self) -> int | None:
        """When `remove_due` will next have something to do."""
        return self._due[0][0] if self._due else None
