"""What is due when, for many things of which most never come due.

Nearly every produce and fetch is answered long before its time-out, so taking an entry away
must cost as little as adding one; a heap alone would keep thirty seconds of dead entries.
Entries of the same millisecond share a bucket, and the heap holds only milliseconds.

Always true: a bucket's millisecond is in the heap exactly once.
"""

from heapq import heappop, heappush
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Deadlines(Generic[Item]):
    """Items by the time they are due, each in at most one place."""

    __slots__ = ("_buckets", "_order")

    def __init__(self) -> None:
        self._buckets: dict[int, dict[Item, None]] = {}
        self._order: list[int] = []

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def add(self, item: Item, at_ms: int) -> None:
        bucket = self._buckets.get(at_ms)
        if bucket is None:
            bucket = self._buckets[at_ms] = {}
            heappush(self._order, at_ms)
        bucket[item] = None

    def remove(self, item: Item, at_ms: int) -> None:
        """Forget an item added for `at_ms`; one that came due already is fine."""
        bucket = self._buckets.get(at_ms)
        if bucket is not None:
            bucket.pop(item, None)

    def due(self, now_ms: int) -> list[Item]:
        """Take out everything due by now, the earliest first."""
        found: list[Item] = []
        while self._order and self._order[0] <= now_ms:
            found += self._buckets.pop(heappop(self._order))
        return found

    def next_ms(self) -> int | None:
        """When the next item is due."""
        while self._order:
            first = self._order[0]
            if self._buckets[first]:
                return first
            del self._buckets[heappop(self._order)]
        return None
