"""Deadlines of many items, most of which are removed before they are due.

Nearly every produce and fetch is answered long before its time-out, so removing an entry must cost
as little as adding one; a heap alone would keep thirty seconds of dead entries.
Entries of the same millisecond share a bucket, and the heap holds only milliseconds.

Invariant: a bucket's millisecond is in the heap exactly once.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Generic, TypeAlias, TypeVar

Item = TypeVar("Item")

FAR_MS = 1 << 62

NextMs: TypeAlias = Callable[[], int | None]
"""Returns the time of the next scheduled work; None if nothing is scheduled."""


class Deadlines(Generic[Item]):
    """Items by deadline, each at most once."""

    __slots__ = ("_buckets", "_order", "earliest_ms")

    def __init__(self) -> None:
        self.earliest_ms = FAR_MS
        """Nothing is due before this; `next_ms` makes it exact."""
        self._buckets: dict[int, dict[Item, None]] = {}
        self._order: list[int] = []

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def add(self, item: Item, at_ms: int) -> None:
        """Add an item that is due at `at_ms`."""
        bucket = self._buckets.get(at_ms)
        if bucket is None:
            bucket = self._buckets[at_ms] = {}
            heappush(self._order, at_ms)
            if at_ms < self.earliest_ms:
                self.earliest_ms = at_ms
        bucket[item] = None

    def remove(self, item: Item, at_ms: int) -> None:
        """Remove an item added for `at_ms`, if it is not due yet."""
        bucket = self._buckets.get(at_ms)
        if bucket is not None:
            bucket.pop(item, None)

    def due(self, now_ms: int) -> list[Item]:
        """Remove and return all items due by now, the earliest first."""
        found: list[Item] = []
        while self._order and self._order[0] <= now_ms:
            found += self._buckets.pop(heappop(self._order))
        return found

    def next_ms(self) -> int | None:
        """When the next item is due."""
        while self._order:
            first = self._order[0]
            if self._buckets[first]:
                self.earliest_ms = first
                return first
            del self._buckets[heappop(self._order)]
        self.earliest_ms = FAR_MS
        return None


class WakeTime:
    """When a node has something to do: exactly, or a cheap lower bound.

    Frequent events only add to the deadlines in `often`, and may change the result of
    `next_send_ms`. After any other event `forget` must be called.
    """

    __slots__ = ("_clocks", "_known_ms", "_next_send_ms", "_often")

    def __init__(
        self, clocks: tuple[NextMs, ...], often: tuple[Deadlines[Any], ...], next_send_ms: NextMs
    ) -> None:
        self._clocks = (*clocks, next_send_ms)
        self._often = often
        self._next_send_ms = next_send_ms
        self._known_ms = 0

    def forget(self) -> None:
        """Discard the known time: anything may be due now."""
        self._known_ms = 0

    def exact(self) -> int:
        """Return when the next thing is due."""
        soonest = FAR_MS
        for next_ms in self._clocks:
            at = next_ms()
            if at is not None and at < soonest:
                soonest = at
        self._known_ms = soonest
        return soonest

    def bound(self, now_ms: int) -> int:
        """Return a time before which nothing is due."""
        soonest = self._known_ms
        for deadlines in self._often:
            if deadlines.earliest_ms < soonest:
                soonest = deadlines.earliest_ms
        if soonest <= now_ms:
            return self.exact()
        at = self._next_send_ms()
        return soonest if at is None or at > soonest else at
