"""A clock for tests that run the loop themselves."""

from tidelog.shell.clock import Clock

STEP_MAX_MS = 50


class SteadyClock(Clock):
    """A clock on which a moment without CPU does not count.

    Between two readings at most 50 ms pass. Otherwise, a test that the machine holds up would find
    connections closed whose time-outs it had no chance to meet.
    """

    __slots__ = ("_now_ms", "_read_ms")

    def __init__(self) -> None:
        super().__init__()
        self._now_ms = self._read_ms = super().now_ms()

    def now_ms(self) -> int:
        read_ms = super().now_ms()
        self._now_ms += min(read_ms - self._read_ms, STEP_MAX_MS)
        self._read_ms = read_ms
        return self._now_ms
