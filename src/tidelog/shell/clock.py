"""The two clocks of a broker: one for intervals, one for the age of records.

`now_ms` is monotonic: it never goes back, runs on while the process is stopped or the machine
sleeps, and does not follow changes of the wall clock. Timers, sessions and time-outs
use it. `wall_ms` is the wall clock, which may be wrong; core decides how far to trust it
(wall_clock.py).
"""

import time

_BOOT_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_NS_PER_MS = 1_000_000


class Clock:
    """Milliseconds that only grow. They read as the time of day did when the process started,
    so that zero is long ago whenever the machine was booted."""

    __slots__ = ("_ahead_ms",)

    def __init__(self) -> None:
        self._ahead_ms = self.wall_ms() - time.clock_gettime_ns(_BOOT_CLOCK) // _NS_PER_MS

    def now_ms(self) -> int:
        return time.clock_gettime_ns(_BOOT_CLOCK) // _NS_PER_MS + self._ahead_ms

    def wall_ms(self) -> int:
        """The machine's time of day, right or wrong."""
        return time.time_ns() // _NS_PER_MS


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux counts sleep in CLOCK_BOOTTIME only, macOS in CLOCK_MONOTONIC."""

_BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"


def boot_ms() -> int:
    """Milliseconds since the machine was started."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


def boot_id() -> str:
    """The name of this boot; "unknown" where the system gives none."""
    try:
        with open(_BOOT_ID_FILE, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return _boot_session() or "unknown"


def _boot_session() -> str:
    """macOS has a name for the boot too, but no file that holds it."""
    from subprocess import SubprocessError, run

    ask = ["sysctl", "-n", "kern.bootsessionuuid"]
    try:
        return run(ask, capture_output=True, text=True, check=True, timeout=2).stdout.strip()
    except (OSError, SubprocessError):
        return ""
