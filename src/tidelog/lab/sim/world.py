"""Virtual time and the one queue of everything that is going to happen.

A run is a function of its seed: everything random comes from generators derived from it,
events of the same millisecond happen in the order in which they were planned, and nothing
is ever taken out of the queue. Whoever planned an event that has lost its meaning (a wake-up
of a process that died) recognises it when it comes and does nothing.

Each link, disk and client draws from a generator of its own. Leaving one fault out of a
schedule then leaves the fate of unrelated messages as it was, and shrinking gets far.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any, TypeAlias

LAST_EVENTS = 30
_MASK = (1 << 64) - 1

Event: TypeAlias = tuple[int, int, Callable[..., None], tuple[Any, ...]]
"""When, its number in the order of planning, what to call, and with what."""


class World:
    """The clock, the queue, the count of faults, and what happened last."""

    __slots__ = ("_number", "_queue", "events", "faults", "fingerprint", "last", "now_ms", "seed")

    def __init__(self, seed: int, *, keep_events: bool = False) -> None:
        self.seed = seed
        self.now_ms = 0
        self.events = 0
        self.fingerprint = seed
        """Differs between two runs unless they took the same course."""
        self.faults: dict[str, int] = {}
        self.last: deque[Event] = deque(maxlen=None if keep_events else LAST_EVENTS)
        self._queue: list[Event] = []
        self._number = 0

    def random(self, name: str) -> Random:
        """A generator of its own for whoever has that name."""
        return Random(f"{self.seed}/{name}")

    def at(self, at_ms: int, action: Callable[..., None], *arguments: Any) -> None:
        """Plan an event; one for the past happens now."""
        self._number += 1
        heappush(self._queue, (max(at_ms, self.now_ms), self._number, action, arguments))

    def after(self, delay_ms: int, action: Callable[..., None], *arguments: Any) -> None:
        self._number += 1
        heappush(self._queue, (self.now_ms + delay_ms, self._number, action, arguments))

    def count(self, fault: str) -> None:
        """A fault was really injected, not only planned."""
        self.faults[fault] = self.faults.get(fault, 0) + 1

    def run_until(self, end_ms: int) -> None:
        """Let everything happen that is due by then."""
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
