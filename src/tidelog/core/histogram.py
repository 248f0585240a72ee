"""How long things take: counts in buckets that grow by a fifth, from a microsecond to minutes.

Adding one costs a fifth of a microsecond, whatever was added before. Percentiles are of the
last minute or two: whoever asks for them leaves a mark, and what came before the mark is
taken away. So nothing is kept for them while nobody asks.

Always true: `counts` and `sum_ns` only grow.
"""

from bisect import bisect_right
from collections.abc import Callable

NS_PER_SECOND = 1_000_000_000
_FIRST_NS = 1_000
_STEPS = 4
"""To double."""
BOUNDS_NS = [round(_FIRST_NS * 2 ** (step / _STEPS)) for step in range(30 * _STEPS + 1)]
"""Where buckets end. The first is all below; one more holds all above."""
RECENT_MS = 60_000


class Histogram:
    """Times of one kind of thing."""

    __slots__ = ("_clock_ns", "_marked_ms", "_newer", "_older", "counts", "sum_ns")

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self.counts = [0] * (len(BOUNDS_NS) + 1)
        self.sum_ns = 0
        self._clock_ns = clock_ns
        self._newer: list[int] | None = None
        self._older: list[int] | None = None
        self._marked_ms = 0

    def since(self, began_ns: int) -> None:
        """Something that began then has ended now."""
        took_ns = self._clock_ns() - began_ns
        self.counts[bisect_right(BOUNDS_NS, took_ns)] += 1
        self.sum_ns += took_ns

    def note(self, took_ns: int) -> None:
        """Something took so long."""
        self.counts[bisect_right(BOUNDS_NS, took_ns)] += 1
        self.sum_ns += took_ns

    @property
    def count(self) -> int:
        return sum(self.counts)

    def recent(self, now_ms: int) -> list[int]:
        """The counts of the last minute or two, as far as somebody asked before."""
        if self._newer is None or now_ms - self._marked_ms >= RECENT_MS:
            self._older, self._newer = self._newer, list(self.counts)
            self._marked_ms = now_ms
        if self._older is None:
            return list(self.counts)
        return [now - then for now, then in zip(self.counts, self._older, strict=True)]

    def upto(self, bound_ns: int) -> int:
        """How many took no longer than one of the bounds."""
        return sum(self.counts[: bisect_right(BOUNDS_NS, bound_ns - 1) + 1])


def quantiles(counts: list[int], wanted: tuple[float, ...]) -> list[float]:
    """Times in nanoseconds below which these shares of all are; not a number where there is
    nothing. Inside a bucket all are taken to be spread evenly."""
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
