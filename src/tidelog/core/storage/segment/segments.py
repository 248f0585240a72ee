"""The segments of one log, oldest first.

A log may have thousands. Finding one by offset or by time is a bisection; for times the largest
so far is kept for each segment, from when somebody first asks.

Always true: there is at least one; base offsets rise; the last one is the active segment,
the only one that is written to.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from tidelog.core.storage.segment.segment import Segment
from tidelog.core.types import Offset


class Segments:
    """A list of segments that finds one by offset or by time."""

    __slots__ = ("_bases", "_latest", "_segments", "active")

    def __init__(self, segments: list[Segment]) -> None:
        assert segments, "a log has at least one segment"
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._latest: list[int] = []
        """The largest timestamp up to each closed segment, of the first so many."""
        self.active = segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def first(self) -> Segment:
        return self._segments[0]

    def add(self, segment: Segment) -> None:
        """A new active segment."""
        assert segment.base_offset > self._bases[-1], "base offsets rise"
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def from_offset(self, offset: Offset) -> Iterator[Segment]:
        """The segment that may hold `offset` and all after it."""
        return self._from(self._at(offset))

    def from_timestamp(self, timestamp: int, start: Offset) -> Iterator[Segment]:
        """Those from `start` on, without the first ones whose records are all older."""
        return self._from(max(self._at(start), bisect_left(self._latest_so_far(), timestamp)))

    @property
    def max_timestamp(self) -> int:
        """Of all records; -1 for none."""
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
        """Where the next segment begins; None for the active one."""
        following = bisect_right(self._bases, segment.base_offset)
        return self._bases[following] if following < len(self._bases) else None

    def insert(self, segment: Segment) -> None:
        """Put a segment where one is missing, before the active one."""
        assert segment.base_offset < self._bases[-1], "the active segment stays the last"
        at = bisect_left(self._bases, segment.base_offset)
        self._segments.insert(at, segment)
        self._bases.insert(at, segment.base_offset)
        del self._latest[at:]

    def replace_active(self, segment: Segment) -> None:
        """Put another segment in the place of an active one that holds nothing."""
        self._segments[-1] = self.active = segment
        self._bases[-1] = segment.base_offset

    def replace(self, replaced: Sequence[Segment], segment: Segment) -> None:
        """Put one in the place of several that follow each other, with the first one's base
        offset."""
        at = self._segments.index(replaced[0])
        assert self._segments[at : at + len(replaced)] == list(replaced), "they follow each other"
        self._segments[at : at + len(replaced)] = [segment]
        self._bases[at : at + len(replaced)] = [segment.base_offset]
        del self._latest[at:]

    def remove_above(self, end: Offset) -> list[Segment]:
        """Take out the segments that begin after `end`; the newest comes first."""
        kept = max(1, bisect_right(self._bases, end))
        removed = self._segments[kept:]
        del self._segments[kept:], self._bases[kept:], self._latest[kept - 1 :]
        self.active = self._segments[-1]
        return removed[::-1]

    def remove_below(self, start: Offset) -> list[Segment]:
        """Take out the segments that end at or before `start`, never the active one."""
        removed = max(0, bisect_right(self._bases, start) - 1)
        gone = self._segments[:removed]
        del self._segments[:removed], self._bases[:removed]
        if gone:
            self._latest.clear()
        return gone
