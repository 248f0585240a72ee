"""The clocks of a broker.

- `Clock.now_ms` is monotonic: it never goes back, continues while the process is stopped or the
  machine sleeps, and ignores changes of the wall clock. For timers, sessions and time-outs.
- `Clock.wall_ms` is the wall clock, which may be wrong; core decides how far to trust it
  (wall_clock.py).
- `boot_ms` is the same in all processes of the machine. A reading is only valid with the same
  `boot_id`, so a stored reading is stored together with it.
"""

import time

_BOOT_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux counts sleep in CLOCK_BOOTTIME only, macOS in CLOCK_MONOTONIC."""
_NS_PER_MS = 1_000_000


class Clock:
    """Monotonic milliseconds. They start at the time of day at which the process started, so that
    zero is in the past even right after a boot."""

    __slots__ = ("_ahead_ms",)

    def __init__(self) -> None:
        self._ahead_ms = self.wall_ms() - time.clock_gettime_ns(_BOOT_CLOCK) // _NS_PER_MS

    def now_ms(self) -> int:
        return time.clock_gettime_ns(_BOOT_CLOCK) // _NS_PER_MS + self._ahead_ms

    def wall_ms(self) -> int:
        """The machine's time of day."""
        return time.time_ns() // _NS_PER_MS


_BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"


def boot_ms() -> int:
    """Milliseconds since the machine was booted."""
    return time.clock_gettime_ns(_BOOT_CLOCK) // _NS_PER_MS


def boot_id() -> str:
    """The system's id of this boot, or "unknown"."""
    try:
        with open(_BOOT_ID_FILE, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return _boot_session() or "unknown"


def _boot_session() -> str:
    """The id of this boot on macOS, which has no file for it."""
    from subprocess import SubprocessError, run

    command = ["sysctl", "-n", "kern.bootsessionuuid"]
    try:
        return run(command, capture_output=True, text=True, check=True, timeout=2).stdout.strip()
    except (OSError, SubprocessError):
        return ""
