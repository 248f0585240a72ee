"""The timers of a shard: sessions, time-outs, clean-ups.

Clients send heartbeats all the time, and few sessions end. So setting a timer again costs one
entry in a dict; the heap is corrected at the old time.

Invariants: a timer is in the heap at or before the time it is due, and at that time if it is
the next one. Timers of the same millisecond fire in the order of their keys. The heap holds at
most about twice as many entries as there are timers.
"""

from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=tuple[Any, ...])
"""The key of a timer: an ordered tuple that says what to do and for what."""

_STALE_MIN = 64
"""This many entries of the heap may be out of date, however few timers there are."""


class Timers(Generic[K]):
    """All timers of a shard, at most one for each key."""

    __slots__ = ("_due", "_heap", "_queued")

    def __init__(self) -> None:
        self._due: dict[K, int] = {}
        self._queued: dict[K, int] = {}
        self._heap: list[tuple[int, K]] = []

    def arm(self, timer: K, at_ms: int) -> None:
        """Set a timer, or move it to another time."""
        self._due[timer] = at_ms
        queued = self._queued.get(timer)
        if queued is None or at_ms < queued:
            self._queued[timer] = at_ms
            heappush(self._heap, (at_ms, timer))
            if len(self._heap) > 2 * len(self._due) + _STALE_MIN:
                self._rebuild()

    def cancel(self, timer: K) -> None:
        """Remove a timer, if it is set."""
        self._due.pop(timer, None)

    def postpone(self, by_ms: int) -> None:
        """Move all timers."""
        self._due = {timer: at_ms + by_ms for timer, at_ms in self._due.items()}
        self._rebuild()

    @property
    def entries(self) -> int:
        """The size of the heap."""
        return len(self._heap)

    def _rebuild(self) -> None:
        self._queued = dict(self._due)
        self._heap = [(at_ms, timer) for timer, at_ms in self._due.items()]
        heapify(self._heap)

    def next_ms(self) -> int | None:
        """Return when the next timer is due."""
        while self._heap:
            at_ms, timer = self._heap[0]
            due = self._due.get(timer)
            if due == at_ms:
                return at_ms
            heappop(self._heap)
            if self._queued.get(timer) == at_ms:
                del self._queued[timer]
                if due is not None:
                    self.arm(timer, due)
        return None

    def pop_due(self, now_ms: int) -> K | None:
        """Remove and return the next timer, if it is due by now."""
        at_ms = self.next_ms()
        if at_ms is None or at_ms > now_ms:
            return None
        _, timer = heappop(self._heap)
        del self._due[timer]
        self._queued.pop(timer, None)
        return timer
