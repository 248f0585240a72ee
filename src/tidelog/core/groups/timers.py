"""What is due when: sessions, rebalances, clean-ups.

Members say again and again that they live, and few ever fall silent. So to set a timer again
costs one entry in a dict; the heap learns of it when the old time comes.

Always true: a timer is in the heap at or before the time it is due, at that time if it is the
next. Timers of the same millisecond come in the order of their kinds, then of their names. The
heap holds hardly more entries than there are timers.
"""

from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import NamedTuple

_STALE_MIN = 64
"""So many entries may be out of date, however few timers there are."""


class TimerKind(IntEnum):
    """What to do when a timer is due."""

    SESSION = 0
    PENDING = 1
    """Somebody got a member id and did not come back with it."""
    JOIN = 2
    SYNC = 3
    SWEEP = 4
    """Offsets and groups that nobody needs go."""
    FORGET = 5
    """Offsets of topics that are gone go."""


class Timer(NamedTuple):
    """Whose timer it is. There is one of each name."""

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


class Timers:
    """All timers of a shard."""

    __slots__ = ("_due", "_heap", "_queued")

    def __init__(self) -> None:
        self._due: dict[Timer, int] = {}
        self._queued: dict[Timer, int] = {}
        self._heap: list[tuple[int, Timer]] = []

    def arm(self, timer: Timer, at_ms: int) -> None:
        """Set it, or set it to another time."""
        self._due[timer] = at_ms
        queued = self._queued.get(timer)
        if queued is None or at_ms < queued:
            self._queued[timer] = at_ms
            heappush(self._heap, (at_ms, timer))
            if len(self._heap) > 2 * len(self._due) + _STALE_MIN:
                self._queue_anew()

    def cancel(self, timer: Timer) -> None:
        """One that was never set is fine."""
        self._due.pop(timer, None)

    def postpone(self, by_ms: int) -> None:
        """All of them."""
        self._due = {timer: at_ms + by_ms for timer, at_ms in self._due.items()}
        self._queue_anew()

    @property
    def entries(self) -> int:
        """How many the heap holds."""
        return len(self._heap)

    def _queue_anew(self) -> None:
        self._queued = dict(self._due)
        self._heap = [(at_ms, timer) for timer, at_ms in self._due.items()]
        heapify(self._heap)

    def next_ms(self) -> int | None:
        """When the next one is due."""
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

    def pop_due(self, now_ms: int) -> Timer | None:
        """Take out the next one, if it is due by now."""
        at_ms = self.next_ms()
        if at_ms is None or at_ms > now_ms:
            return None
        _, timer = heappop(self._heap)
        del self._due[timer]
        self._queued.pop(timer, None)
        return timer
