"""Virtual time, and the queue of all scheduled events.

A run is a function of its seed. All random generators are derived from the seed, and events of the
same millisecond happen in the order in which they were scheduled. No event is ever removed from
the queue. The component that scheduled an event ignores it if it is obsolete when it happens, for
example the wake-up of a process that died.

Each link, disk and client has its own generator. So a schedule without one fault leaves unrelated
messages unchanged, which lets shrinking remove many faults.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any, TypeAlias

LAST_EVENTS = 30
_MASK = (1 << 64) - 1

Event: TypeAlias = tuple[int, int, Callable[..., None], tuple[Any, ...]]
"""The time, the number in the order of scheduling, the function to call, and its arguments."""


class World:
    """The clock, the event queue, the counts of faults, and the last events."""

    __slots__ = ("_number", "_queue", "events", "faults", "fingerprint", "last", "now_ms", "seed")

    def __init__(self, seed: int, *, keep_events: bool = False) -> None:
        self.seed = seed
        self.now_ms = 0
        self.events = 0
        self.fingerprint = seed
        """A hash of all events: two runs with the same events have the same value."""
        self.faults: dict[str, int] = {}
        self.last: deque[Event] = deque(maxlen=None if keep_events else LAST_EVENTS)
        self._queue: list[Event] = []
        self._number = 0

    def random(self, name: str) -> Random:
        """Return a new random generator, derived from the seed and this name."""
        return Random(f"{self.seed}/{name}")

    def at(self, at_ms: int, action: Callable[..., None], *arguments: Any) -> None:
        """Schedule an event; a time in the past counts as now."""
        self._number += 1
        heappush(self._queue, (max(at_ms, self.now_ms), self._number, action, arguments))

    def after(self, delay_ms: int, action: Callable[..., None], *arguments: Any) -> None:
        self._number += 1
        heappush(self._queue, (self.now_ms + delay_ms, self._number, action, arguments))

    def count(self, fault: str) -> None:
        """Count a fault that was injected, not only planned."""
        self.faults[fault] = self.faults.get(fault, 0) + 1

    def run_until(self, end_ms: int) -> None:
        """Run all events up to and including `end_ms`."""
        queue = self._queue
        fingerprint = self.fingerprint
        while queue and queue[0][0] <= end_ms:
            event = heappop(queue)
            self.now_ms = event[0]
            self.last.append(event)
            self.events += 1
            fingerprint = (fingerprint * 31 + event[0] * 1_000_003 + event[1]) & _MASK
            self.fingerprint = fingerprint
            event[2](*event[3])
        self.now_ms = max(self.now_ms, end_ms)
