"""Looking for the next request for a moment before sleeping.

A core that sleeps wakes late: in a virtual machine 50 to 90 µs, as much as a small request takes,
and the waking costs CPU on both sides. A client that sends one small request after another sends
the next one soon. So after such a request the loop looks for a moment whether there is another.

What is looked in vain is lost. So it is only done after a turn in which one small request came,
alone, and while that pays: a find earns a credit, a look in vain costs several; who has none
left looks once in a while, to see whether the client is another by now.

Always true: whoever else wants to run goes first, and nothing that is due waits for it.
"""

import os
from collections.abc import Callable
from time import perf_counter_ns
from typing import TypeAlias

Ready: TypeAlias = list[tuple[int, int]]

CREDIT_MAX = 9
LOSS = 3
"""A look in vain takes about three times what a find saves."""
RESTS = 32
"""Turns, until one without credit looks again."""

_give_way = getattr(os, "sched_yield", lambda: None)


class BusyPoll:
    """How long to look, and whether that was worth it lately."""

    __slots__ = ("_credit", "_rest", "us")

    def __init__(self) -> None:
        self.us = 0
        """Microseconds; 0 is not at all."""
        self._credit = 0
        self._rest = 0

    def look(self, poll: Callable[[float], Ready], patience_ms: int) -> Ready | None:
        """What has come, if that was before the moment was over; None if nobody looked."""
        if not self._credit and self._rest:
            self._rest -= 1
            return None
        if not self.us:
            return None
        until_ns = perf_counter_ns() + min(self.us, patience_ms * 1000) * 1000
        while perf_counter_ns() < until_ns:
            ready = poll(0)
            if ready:
                self._credit = min(self._credit + 1, CREDIT_MAX)
                return ready
            _give_way()
        self._credit = max(self._credit - LOSS, 0)
        self._rest = RESTS
        return []
