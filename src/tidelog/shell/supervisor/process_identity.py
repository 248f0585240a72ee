"""Which process a pid means: a number comes back, a number with its start time does not.

Always true: `started` differs for two processes that had the same pid, across reboots too.
"""

import os

BOOT_ID = "/proc/sys/kernel/random/boot_id"
START_TIME_FIELD = 19
"""Of /proc/PID/stat, counted behind the program's name, which may itself hold blanks."""


def started(pid: int) -> str | None:
    """The boot and the moment at which this process began; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except FileNotFoundError:
        return _started_by_ps(pid) if not os.path.exists("/proc/self/stat") else None
    except OSError:
        return None
    if fields[0] in (b"Z", b"X"):
        return None  # it has ended; only its parent has not looked yet
    return f"{_boot()}:{fields[START_TIME_FIELD].decode()}"


def is_running(pid: int, since: str) -> bool:
    """Whether this very process still runs."""
    return started(pid) == since


def _boot() -> str:
    try:
        with open(BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _started_by_ps(pid: int) -> str | None:
    """Where there is no /proc, as on macOS."""
    import subprocess

    command = ["ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    state, _, since = shown.partition(" ")
    return since.strip() if since and not state.startswith("Z") else None
