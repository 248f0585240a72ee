"""Identify a process by pid and start time, because a pid is reused.

Invariant: `started` differs for two processes with the same pid, also across reboots.
"""

import os

BOOT_ID = "/proc/sys/kernel/random/boot_id"
START_TIME_FIELD = 19
"""In /proc/PID/stat, counted after the program's name, which may contain spaces."""


def started(pid: int) -> str | None:
    """The boot and time at which this process started; None if it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except FileNotFoundError:
        return _started_by_ps(pid) if not os.path.exists("/proc/self/stat") else None
    except OSError:
        return None
    if fields[0] in (b"Z", b"X"):
        return None  # it has ended and is not reaped yet
    return f"{_boot()}:{fields[START_TIME_FIELD].decode()}"


def is_running(pid: int, since: str) -> bool:
    """Whether the process with this pid and start time still runs."""
    return started(pid) == since


def _boot() -> str:
    try:
        with open(BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _started_by_ps(pid: int) -> str | None:
    """The start time on systems without /proc, such as macOS."""
    import subprocess

    command = ["ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    state, _, since = shown.partition(" ")
    return since.strip() if since and not state.startswith("Z") else None
