"""The time that a broker's node is told.

Always true: it never goes back, it runs on while the process is stopped or the machine
sleeps, and it is never behind the wall clock. A wall clock that is set forward takes it
along, which only makes sessions look older than they are; one that is set back does not.
"""

import time

_BOOT_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_NS_PER_MS = 1_000_000


class Clock:
    """Milliseconds since 1970 that only grow."""

    __slots__ = ("_ahead_ms",)

    def __init__(self) -> None:
        self._ahead_ms = 0
        self.follow_wall()

    def now_ms(self) -> int:
        return time.clock_gettime_ns(_BOOT_CLOCK) // _NS_PER_MS + self._ahead_ms

    def follow_wall(self) -> None:
        """Catch up with the wall clock; to be called now and then."""
        wall_ms = time.time_ns() // _NS_PER_MS
        boot_ms = time.clock_gettime_ns(_BOOT_CLOCK) // _NS_PER_MS
        self._ahead_ms = max(self._ahead_ms, wall_ms - boot_ms)
