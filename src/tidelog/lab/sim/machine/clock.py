"""The clocks of one machine: a monotonic one, and a wall clock that anybody may set.

The monotonic clock is the world's plus a skew that only grows. The wall clock is that plus what
somebody set it to. The host reads the wall clock now and then, as a real one does each second.
"""

from collections.abc import Callable
from random import Random

from tidelog.core.wall_clock import ClockReading
from tidelog.lab.sim.world import World

READ_MS = 1000


class SimClock:
    """Read by one process. `told` takes what the wall clock says, and returns whether it wants
    to know again."""

    def __init__(self, world: World, random: Random, told: Callable[[int], bool]) -> None:
        self.skew_ms = 0
        self.ahead_ms = 0
        """How far the wall clock is ahead of the monotonic one."""
        self.boots = 1
        self._world = world
        self._random = random
        self._told = told

    def now_ms(self) -> int:
        return self._world.now_ms + self.skew_ms

    def reading(self) -> ClockReading:
        """What a process reads when it starts."""
        now = self.now_ms()
        return ClockReading(now + self.ahead_ms, f"boot {self.boots}", now)

    def set(self, ahead_ms: int) -> None:
        """Set the wall clock."""
        self.ahead_ms = ahead_ms
        self.read_soon()

    def read_soon(self) -> None:
        self._world.after(self._random.randint(1, READ_MS), self._read)

    def _read(self) -> None:
        if self._told(self.now_ms() + self.ahead_ms):
            self.read_soon()
