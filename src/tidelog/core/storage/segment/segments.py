"""The segments of one log, oldest first.

A log may have thousands of segments. A search by offset or timestamp is a bisection; for
timestamps, the largest one up to each segment is computed at the first search.

Invariant: there is at least one segment; base offsets rise; the last segment is the active one, and
only it is appended to.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from tidelog.core.storage.segment.segment import Segment
from tidelog.core.types import Offset


class Segments:
    """A list of segments with searches by offset and timestamp."""

    __slots__ = ("_bases", "_latest", "_segments", "active")

    def __init__(self, segments: list[Segment]) -> None:
        assert segments, "a log has at least one segment"
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._latest: list[int] = []
        """The largest timestamp up to each closed segment, for the segments searched so far."""
        self.active = segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def first(self) -> Segment:
        return self._segments[0]

    def add(self, segment: Segment) -> None:
        """Add a new active segment."""
        assert segment.base_offset > self._bases[-1], "base offsets rise"
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def from_offset(self, offset: Offset) -> Iterator[Segment]:
        """Yield the segment that may contain `offset`, and all later ones."""
        return self._from(self._at(offset))

    def from_timestamp(self, timestamp: int, start: Offset) -> Iterator[Segment]:
        """Yield segments from offset `start` on; skip the first ones with only older records."""
        return self._from(max(self._at(start), bisect_left(self._latest_so_far(), timestamp)))

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of all records; -1 if there is none."""
        latest = self._latest_so_far()
        return max(self.active.max_timestamp, latest[-1] if latest else -1)

    def _at(self, offset: Offset) -> int:
        return max(0, bisect_right(self._bases, offset) - 1)

    def _from(self, at: int) -> Iterator[Segment]:
        while at < len(self._segments):
            yield self._segments[at]
            at += 1

    def _latest_so_far(self) -> list[int]:
        latest = self._latest
        for at in range(len(latest), len(self._segments) - 1):
            newest = self._segments[at].max_timestamp
            latest.append(max(newest, latest[-1]) if latest else newest)
        return latest

    def end_of(self, segment: Segment) -> Offset | None:
        """Return where the next segment starts; None for the active segment."""
        following = bisect_right(self._bases, segment.base_offset)
        return self._bases[following] if following < len(self._bases) else None

    def insert(self, segment: Segment) -> None:
        """Insert a segment before the active one, where one is missing."""
        assert segment.base_offset < self._bases[-1], "the active segment stays the last"
        at = bisect_left(self._bases, segment.base_offset)
        self._segments.insert(at, segment)
        self._bases.insert(at, segment.base_offset)
        del self._latest[at:]

    def replace_active(self, segment: Segment) -> None:
        """Replace the active segment, which is empty."""
        self._segments[-1] = self.active = segment
        self._bases[-1] = segment.base_offset

    def replace(self, replaced: Sequence[Segment], segment: Segment) -> None:
        """Replace several adjacent segments with one of the same base offset as the first."""
        at = self._segments.index(replaced[0])
        assert self._segments[at : at + len(replaced)] == list(replaced), (
            "replaced segments are adjacent"
        )
        self._segments[at : at + len(replaced)] = [segment]
        self._bases[at : at + len(replaced)] = [segment.base_offset]
        del self._latest[at:]

    def remove_above(self, end: Offset) -> list[Segment]:
        """Remove the segments that start after `end`, and return them, newest first."""
        kept = max(1, bisect_right(self._bases, end))
        removed = self._segments[kept:]
        del self._segments[kept:], self._bases[kept:], self._latest[kept - 1 :]
        self.active = self._segments[-1]
        return removed[::-1]

    def remove_below(self, start: Offset) -> list[Segment]:
        """Remove the segments that end at or before `start`, except the active one."""
        count = max(0, bisect_right(self._bases, start) - 1)
        removed = self._segments[:count]
        del self._segments[:count], self._bases[:count]
        if removed:
            self._latest.clear()
        return removed
