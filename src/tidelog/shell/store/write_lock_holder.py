"""Find the holder of the store's write lock, and kill it if it is stuck.

A process that is stopped inside a write transaction blocks all other writers. SQLite's write lock
is a kernel lock on one byte of the `-shm` file, and on Linux `/proc/<pid>/fdinfo` shows its holder.

Invariant: a process is killed only if it is a registered client of the store with the same start
time, belongs to this user, and is the holder according to the kernel at that moment. On other
systems a stuck holder is only reported.
"""

import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

_WRITE_LOCK_BYTE = 120
"""The position of the write lock in the -shm file, by SQLite's WAL format."""
_STOPPED_SHARE = 3
"""A holder in the stopped state can't continue, so it is killed after a third of the time."""
_LOOK_EVERY_S = 0.2
_LOOK_MAX_S = 1.5
"""The longest interval that counts; a longer one means that this process was stopped itself."""


class Process(NamedTuple):
    """A process; the start time distinguishes it from a later one with the same pid."""

    pid: int
    started: str


def this_process() -> Process:
    """The calling process."""
    pid = os.getpid()
    return Process(pid, _stat(pid)[1])


class StuckWriter:
    """Measures how long one process blocks writes, from the first failure to the next success."""

    __slots__ = (
        "_held_s",
        "_holder",
        "_looked_s",
        "_path",
        "_report",
        "_stuck_after_s",
        "_version",
    )

    def __init__(self, path: str, stuck_after_ms: int, report: Callable[[str], None]) -> None:
        self._path = path
        self._stuck_after_s = stuck_after_ms / 1000
        self._report = report
        self.over()

    def over(self) -> None:
        """Reset: a write succeeded."""
        self._holder: Process | None = None
        self._held_s = self._looked_s = 0.0
        self._version = -1

    def is_due(self, now_s: float) -> bool:
        """Whether another check is due; each one reads much of /proc."""
        return now_s - self._looked_s >= _LOOK_EVERY_S

    def look(self, now_s: float, version: int, clients: Iterable[Process]) -> bool:
        """Check after a failed attempt; True if the holder was stuck and has been killed.

        `version` changes with every commit: a process that commits is slow, not stuck.
        """
        holder = next((c for c in clients if holds_write_lock(c, self._path)), None)
        if holder != self._holder or version != self._version or self._looked_s == 0.0:
            self._holder, self._version, self._held_s = holder, version, 0.0
        else:
            before = self._held_s
            self._held_s += min(now_s - self._looked_s, _LOOK_MAX_S)
            if holder is None and before < self._stuck_after_s <= self._held_s:
                self._report(
                    f"metadata store {self._path}: the write lock has been held for"
                    f" {self._held_s:.0f} s by a process that is not a known"
                    " broker; end that process"
                )
        self._looked_s = now_s
        return holder is not None and self._held_s > self._patience_s(holder) and self._kill(holder)

    def _patience_s(self, holder: Process) -> float:
        stopped = _stat(holder.pid)[0] in ("T", "t")
        return self._stuck_after_s / (_STOPPED_SHARE if stopped else 1)

    def _kill(self, holder: Process) -> bool:
        try:
            handle = os.pidfd_open(holder.pid)
        except (AttributeError, OSError):
            return False
        try:
            # A pidfd always means the same process, so the checked process is the killed one.
            if not holds_write_lock(holder, self._path):
                return False
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        except OSError:
            return False
        finally:
            os.close(handle)
        self._report(
            f"metadata store {self._path}: killed process {holder.pid}, which held the write lock"
            f" for {self._held_s:.1f} s without a commit"
        )
        self.over()
        return True


def holds_write_lock(process: Process, path: str) -> bool:
    """Whether this process belongs to this user and holds the write lock, by the kernel."""
    folder = f"/proc/{process.pid}"
    try:
        shm = os.stat(f"{path}-shm")
        if process.pid == os.getpid() or os.stat(folder).st_uid != os.geteuid():
            return False
        if not process.started or _stat(process.pid)[1] != process.started:
            return False
        descriptors = os.listdir(f"{folder}/fd")
    except OSError:
        return False
    for fd in descriptors:
        with suppress(OSError):
            stat = os.stat(f"{folder}/fd/{fd}")
            if (stat.st_dev, stat.st_ino) == (shm.st_dev, shm.st_ino):
                with open(f"{folder}/fdinfo/{fd}", encoding="ascii", errors="replace") as file:
                    if any(_is_write_lock(line) for line in file):
                        return True
    return False


def _is_write_lock(line: str) -> bool:
    """`lock: 1: POSIX ADVISORY WRITE <pid> <device>:<inode> <first byte> <last byte>`"""
    words = line.split()
    if words[:1] != ["lock:"] or len(words) < 8 or words[2] != "POSIX" or words[4] != "WRITE":
        return False
    first, last = words[-2:]
    return int(first) <= _WRITE_LOCK_BYTE and (last == "EOF" or int(last) >= _WRITE_LOCK_BYTE)


def _stat(pid: int) -> tuple[str, str]:
    """A process's state and its start in clock ticks; empty if unknown."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return "", ""
    return fields[0], fields[19]
