"""Who holds the store's write lock, and what to do about one who never gives it back.

A process that is stopped inside a write transaction blocks every other writer. SQLite's write
lock is a lock of the kernel on one byte of the `-shm` file, so the kernel knows its holder; on
Linux `/proc/<pid>/fdinfo` shows it. Always true: only a process is killed that the store itself
knows as a client, that started when that client did, that belongs to our user, and that the
kernel names as the holder at that moment. Elsewhere nobody is killed; it is only reported.
"""

import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

_WRITE_LOCK_BYTE = 120
"""Where SQLite's WAL format puts the write lock in the -shm file."""
_STOPPED_SHARE = 3
"""A holder that is known to be stopped has no way on: a third of the time is enough for it."""
_LOOK_EVERY_S = 0.2
_LOOK_MAX_S = 1.5
"""Time between two looks that counts; more of it means that we were stopped ourselves."""


class Process(NamedTuple):
    """A process, told by its start from a later one with the same number."""

    pid: int
    started: str


def this_process() -> Process:
    pid = os.getpid()
    return Process(pid, _stat(pid)[1])


class StuckWriter:
    """Watches one blocked stretch: from the first failed try to write to the next success."""

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
        """Somebody could write again."""
        self._holder: Process | None = None
        self._held_s = self._looked_s = 0.0
        self._version = -1

    def is_due(self, now_s: float) -> bool:
        """Whether it is time for another look; it costs a walk through /proc."""
        return now_s - self._looked_s >= _LOOK_EVERY_S

    def look(self, now_s: float, version: int, clients: Iterable[Process]) -> bool:
        """Another try failed. True when the holder was stuck and has been killed.

        `version` changes with every commit: who commits is slow, not stuck.
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
                    f" {self._held_s:.0f} s by a process that is no known broker; end that process"
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
            # The handle is of one process for ever: what is checked now is what is killed.
            if not holds_write_lock(holder, self._path):
                return False
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        except OSError:
            return False
        finally:
            os.close(handle)
        self._report(
            f"metadata store {self._path}: killed process {holder.pid}, which held the write lock"
            f" for {self._held_s:.1f} s without a sign of life"
        )
        self.over()
        return True


def holds_write_lock(process: Process, path: str) -> bool:
    """Whether the kernel says that this very process, of our user, holds the write lock."""
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
    """A process's state and its start in clock ticks; empty where the system does not say."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return "", ""
    return fields[0], fields[19]
