"""Which old segments go, and when their files do.

Time and size only *propose* a new log start offset (`retention_point`): the leader's
partition decides and tells its followers. What lies wholly below the log start is then
renamed to `.deleted` and removed after `file.delete.delay.ms`, so that a fetch which was
answered with a region of it a moment ago can still be sent (M05); no new read finds it.

Always true: nothing at or above the high watermark goes, and one segment always stays.
"""

from heapq import heappop, heappush

from tidelog.core.storage import layout
from tidelog.core.storage.disk import Disk
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.segment.segment import Segment
from tidelog.core.storage.segment.segments import Segments
from tidelog.core.types import Offset


def retention_point(
    segments: Segments,
    config: LogConfig,
    log_end_offset: Offset,
    high_watermark: Offset,
    now_ms: int,
) -> Offset | None:
    """Where the log should begin by time and size; None if nothing has to go."""
    if not config.cleanup_delete:
        return None
    excess = 0
    if config.retention_bytes >= 0:
        excess = sum(segment.size for segment in segments) - config.retention_bytes
    point = None
    for segment in segments:
        end = segments.end_of(segment)
        upper_bound = log_end_offset if end is None else end
        too_old = config.retention_ms >= 0 and _age(segment, now_ms) > config.retention_ms
        too_much = config.retention_bytes >= 0 and excess >= segment.size
        if upper_bound > high_watermark or not segment.size or not (too_old or too_much):
            break
        excess -= segment.size
        point = upper_bound
    return point


def _age(segment: Segment, now_ms: int) -> int:
    """Since its youngest record; since it was opened if its records tell no time."""
    newest = segment.max_timestamp
    return now_ms - (newest if newest >= 0 else segment.created_ms)


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
