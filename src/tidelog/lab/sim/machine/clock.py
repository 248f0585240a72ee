"""The clocks of one machine: a monotonic clock, and a wall clock that a fault may set.

The monotonic clock is the world's clock plus a skew that only grows. The wall clock is the
monotonic clock plus `ahead_ms`. The host reads the wall clock at random intervals of up to
`READ_MS`; a real host reads it every second.
"""

from collections.abc import Callable
from random import Random

from tidelog.core.wall_clock import ClockReading
from tidelog.lab.sim.world import World

READ_MS = 1000


class SimClock:
    """The clocks of one process.

    `on_reading` is called with each reading of the wall clock. It returns whether to read again.
    """

    def __init__(self, world: World, random: Random, on_reading: Callable[[int], bool]) -> None:
        self.skew_ms = 0
        self.ahead_ms = 0
        """How far the wall clock is ahead of the monotonic one."""
        self.boots = 1
        self._world = world
        self._random = random
        self._on_reading = on_reading

    def now_ms(self) -> int:
        return self._world.now_ms + self.skew_ms

    def reading(self) -> ClockReading:
        """Return the clock reading that a process gets at startup."""
        now = self.now_ms()
        return ClockReading(now + self.ahead_ms, f"boot {self.boots}", now)

    def set(self, ahead_ms: int) -> None:
        """Set the wall clock."""
        self.ahead_ms = ahead_ms
        self.read_soon()

    def read_soon(self) -> None:
        self._world.after(self._random.randint(1, READ_MS), self._read)

    def _read(self) -> None:
        if self._on_reading(self.now_ms() + self.ahead_ms):
            self.read_soon()
