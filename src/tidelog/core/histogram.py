"""A histogram of durations, in buckets that grow by a fifth, from a microsecond to minutes.

Adding a duration takes a fifth of a microsecond. Percentiles are those of the last one or two
minutes: `recent` saves the counts at most once a minute, and subtracts earlier counts. If `recent`
is never called, nothing is saved.

Invariant: `counts` and `sum_ns` only grow.
"""

from bisect import bisect_right
from collections.abc import Callable

NS_PER_SECOND = 1_000_000_000
_FIRST_NS = 1_000
_STEPS = 4
"""Buckets from a duration to its double."""
BOUNDS_NS = [round(_FIRST_NS * 2 ** (step / _STEPS)) for step in range(30 * _STEPS + 1)]
"""Upper bounds of the buckets. One more bucket has all durations above the last."""
RECENT_MS = 60_000


class Histogram:
    """Durations of one kind of operation."""

    __slots__ = ("_clock_ns", "_marked_ms", "_newer", "_older", "counts", "sum_ns")

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self.counts = [0] * (len(BOUNDS_NS) + 1)
        self.sum_ns = 0
        self._clock_ns = clock_ns
        self._newer: list[int] | None = None
        self._older: list[int] | None = None
        self._marked_ms = 0

    def since(self, began_ns: int) -> None:
        """Add the duration from `began_ns` until now."""
        took_ns = self._clock_ns() - began_ns
        self.counts[bisect_right(BOUNDS_NS, took_ns)] += 1
        self.sum_ns += took_ns

    def note(self, took_ns: int) -> None:
        """Add a duration."""
        self.counts[bisect_right(BOUNDS_NS, took_ns)] += 1
        self.sum_ns += took_ns

    @property
    def count(self) -> int:
        return sum(self.counts)

    def recent(self, now_ms: int) -> list[int]:
        """Return the counts of the last one or two minutes, or of all time at the first calls."""
        if self._newer is None or now_ms - self._marked_ms >= RECENT_MS:
            self._older, self._newer = self._newer, list(self.counts)
            self._marked_ms = now_ms
        if self._older is None:
            return list(self.counts)
        return [now - then for now, then in zip(self.counts, self._older, strict=True)]

    def upto(self, bound_ns: int) -> int:
        """Return how many durations were at most `bound_ns`, one of the bounds."""
        return sum(self.counts[: bisect_right(BOUNDS_NS, bound_ns - 1) + 1])


def quantiles(counts: list[int], wanted: tuple[float, ...]) -> list[float]:
    """Return the quantiles in nanoseconds; NaN if there are no counts. Durations are assumed to be
    spread evenly within a bucket."""
    total = sum(counts)
    if not total:
        return [float("nan")] * len(wanted)
    found: list[float] = []
    bucket, below = 0, 0
    for share in sorted(wanted):
        rank = share * total
        while below + counts[bucket] < rank:
            below += counts[bucket]
            bucket += 1
        low = BOUNDS_NS[bucket - 1] if bucket else 0
        high = BOUNDS_NS[min(bucket, len(BOUNDS_NS) - 1)]
        inside = (rank - below) / counts[bucket] if counts[bucket] else 0.0
        found.append(low + (high - low) * inside)
    return found
