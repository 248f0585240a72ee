"""The lock of a log directory, which a broker holds as long as it lives.

The kernel releases the lock when the process ends, however it ends, so a free lock proves that the
broker is dead. The lock belongs to the open file, not to the process: brokers in one process
exclude each other too. Linux closes the files of a killed process from the highest descriptor
down, so the lock has a higher descriptor than the sockets: when a client notices that its
connection broke, the lock is already free.

Invariants: a check takes the lock shared, for microseconds, and never waits; no child process
holds the lock.
"""

import fcntl
import os
import resource
import time
from contextlib import suppress

from tidelog.shell.store.proof_of_death import LifeSign

LOCK_NAME = ".lock"
_PATIENCE_S = 0.5
"""How long to retry for a lock that another process may only be checking."""
_PAUSE_S = 0.01
_HIGH_FD = 8192
"""The lock's lowest descriptor: above those of sockets, if there are fewer sockets."""
_FDS_ABOVE = 64
"""Descriptors to leave free above the lock: brokers in one process have a lock each."""
_held: set[int] = set()
"""Descriptors of the locks that this process holds."""


class LogDirInUse(Exception):
    """Another broker uses this log directory. Its text is one line."""


class LogDirLock:
    """The lock of one log directory, held until `release` or the process's end."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    @classmethod
    def acquire(cls, directory: str) -> "LogDirLock":
        """Lock a log directory. Raises LogDirInUse, which names the holder."""
        path = os.path.join(os.path.abspath(directory), LOCK_NAME)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        give_up = time.monotonic() + _PATIENCE_S
        while not _try(fd, fcntl.LOCK_EX):
            if time.monotonic() >= give_up:
                holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
                os.close(fd)
                who = f"process {holder}" if holder.isdigit() else "another process"
                raise LogDirInUse(
                    f"log directory {directory} is in use by {who};"
                    " stop that broker or choose another directory"
                )
            time.sleep(_PAUSE_S)
        fd = _moved_up(fd)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        _held.add(fd)
        return cls(path, fd)

    def release(self) -> None:
        """Release the lock. The file stays, so that all processes lock the same file."""
        if self._fd in _held:
            _held.remove(self._fd)
            os.close(self._fd)
        self._fd = -1


class LockProof:
    """A `ProofOfDeath` by lock files: a free lock proves that its broker has ended."""

    __slots__ = ("_path",)

    def __init__(self, path: str = "") -> None:
        """`path`: this broker's own lock file, held already; empty: it has no life sign."""
        self._path = path

    def own(self) -> LifeSign:
        return LifeSign(self._path, identity_of(self._path))

    def is_dead(self, sign: LifeSign) -> bool:
        """Never True for a broker's own sign: another thread may be about to hold the lock."""
        return sign.place not in ("", self._path) and is_abandoned(*sign)


def _moved_up(fd: int) -> int:
    """Move the open file to a high descriptor, if one is free."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    least = _HIGH_FD if soft == resource.RLIM_INFINITY else min(_HIGH_FD, soft - _FDS_ABOVE)
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, max(least, fd))
    except OSError:
        return fd
    os.close(fd)
    return high


def _drop_in_child() -> None:
    """Close the locks in a forked child: it would hold them after its parent's death."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_drop_in_child)


def is_free(path: str) -> bool:
    """Whether the lock file exists and no process holds it. A missing file proves nothing."""
    return _is_free(path, None)


def is_abandoned(path: str, identity: str) -> bool:
    """Whether the lock file with this identity is free: its broker is dead.

    A new file under the old name proves nothing: the old one may still be held.
    """
    return _is_free(path, identity)


def identity_of(path: str) -> str:
    """Distinguishes this lock file from a later one of the same name; empty if it is missing."""
    with suppress(OSError):
        return _identity(os.stat(path))
    return ""


def _identity(stat: os.stat_result) -> str:
    return f"{stat.st_dev}:{stat.st_ino}"


def _is_free(path: str, identity: str | None) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if identity is not None and _identity(os.fstat(fd)) != identity:
            return False
        # Shared, so that two checks at once don't mistake each other for the broker.
        return _try(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def _try(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
