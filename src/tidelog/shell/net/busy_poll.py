"""Busy polling: check for the next request for a short time before the loop sleeps.

A sleeping core wakes late: in a virtual machine after 50 to 90 µs, as long as a small request
takes, and waking costs CPU on both sides. A client that sends one small request after another
sends the next one soon. So after such a request the loop polls for a moment.

A poll that finds nothing wastes CPU. So the loop polls only after a turn with a single small
request, and only while that pays: a hit earns one credit, a miss costs several. Without credit it
polls once in a while, in case the client's behaviour has changed.

Invariants: other processes run first (sched_yield), and nothing that is due is delayed.
"""

import os
from collections.abc import Callable
from time import perf_counter_ns
from typing import TypeAlias

Ready: TypeAlias = list[tuple[int, int]]

CREDIT_MAX = 9
LOSS = 3
"""A miss costs about three times what a hit saves."""
RESTS = 32
"""Turns without polling once the credit is used up."""

_give_way = getattr(os, "sched_yield", lambda: None)


class BusyPoll:
    """How long to poll, and whether that paid recently."""

    __slots__ = ("_credit", "_rest", "us")

    def __init__(self) -> None:
        self.us = 0
        """Microseconds; 0 turns busy polling off."""
        self._credit = 0
        self._rest = 0

    def poll(self, poll_once: Callable[[float], Ready], patience_ms: int) -> Ready | None:
        """Poll for a moment; return the events, or None if it did not poll."""
        if not self._credit and self._rest:
            self._rest -= 1
            return None
        if not self.us:
            return None
        until_ns = perf_counter_ns() + min(self.us, patience_ms * 1000) * 1000
        while perf_counter_ns() < until_ns:
            ready = poll_once(0)
            if ready:
                self._credit = min(self._credit + 1, CREDIT_MAX)
                return ready
            _give_way()
        self._credit = max(self._credit - LOSS, 0)
        self._rest = RESTS
        return []
