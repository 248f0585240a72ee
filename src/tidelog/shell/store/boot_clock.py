"""A clock that all processes of one machine share, and the name of the boot it counts from.

It goes on while the machine sleeps, where the system has such a clock. Readings of another
boot mean nothing: whoever keeps one keeps the boot's name beside it.
"""

import time

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
