"""The operating system's disk, behind core's `Disk` interface.

Open files are kept in a bounded list, and the least recently used is closed first, so that
thousands of segments do not need thousands of descriptors. These descriptors belong to the main
thread; `sync` opens its own, so another thread may call it.

A connection that sends a file holds a `lease`: the descriptor stays valid after the file is
renamed, deleted or dropped from the list, and is closed when the last lease is released (M05).

Files and folders are for the broker's own user only, whatever the umask: records and the
cluster's secret are private. An existing folder keeps its mode, which an operator may have
chosen; a broker warns if every user of the machine can open it.
"""

import errno
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Protocol

from tidelog.core.record.crc32c import Buffer
from tidelog.core.storage.disk import (
    DELETED_SUFFIX,
    DiskError,
    DiskFull,
    MissingFile,
    NotPermitted,
    Region,
    parent,
    sync_each,
)

FILE_MODE = 0o600
FOLDER_MODE = 0o700
_OTHERS = 0o007
_OTHERS_ENTER = 0o001
_GATHER_MAX = 1024
"""Buffers in one system call (IOV_MAX on Linux and macOS)."""
_WRITE_MAX = 1024 * 1024
"""Bytes in one system call. From 2 MB on the page cache uses huge pages. In a virtual machine whose
host reclaims free memory, those are the reclaimed ones: writing takes ten times the CPU."""
_FALLOC_KEEP_SIZE = 1
_SYNCFS_REPORTS_ERRORS = (5, 8)
SYNCFS_FROM = 16
"""Fewer files are synced one by one: the file system may have much other unwritten data."""
_SPACE_ERRORS = (errno.ENOSPC, errno.EDQUOT)
_RIGHTS_ERRORS = (errno.EACCES, errno.EPERM)


@cache
def _find_fallocate() -> Callable[[int, int, int, int], int] | None:
    """The C library's fallocate, which reserves space without changing the file's size (Linux
    only; Python does not have it). None on other systems."""
    if sys.platform != "linux":
        return None
    from ctypes import CDLL, c_int, c_int64

    try:
        fallocate = CDLL(None).fallocate64
    except AttributeError:
        return None
    fallocate.argtypes = (c_int, c_int, c_int64, c_int64)
    reserve: Callable[[int, int, int, int], int] = fallocate
    return reserve


@cache
def _find_syncfs() -> Callable[[int], int] | None:
    """The C library's syncfs, one call for a whole file system. None before Linux 5.8, where it
    does not report write errors, and on other systems."""
    if sys.platform != "linux" or _kernel() < _SYNCFS_REPORTS_ERRORS:
        return None
    from ctypes import CDLL, c_int

    try:
        syncfs = CDLL(None, use_errno=True).syncfs
    except AttributeError:
        return None
    syncfs.argtypes = (c_int,)
    sync: Callable[[int], int] = syncfs
    return sync


def _kernel() -> tuple[int, ...]:
    numbers = _kernel_release().replace("-", ".").split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdigit())


def _kernel_release() -> str:
    return os.uname().release


def _sync_data(fd: int) -> None:
    """Flush a file to the storage device; on macOS fsync does not do that."""
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)


class FileSource(Protocol):
    """The files that a connection sends."""

    on_unreadable: Callable[[str], None]

    def lease(self, region: Region) -> "OpenFile":
        """Keep the region's file open until `release`."""
        ...

    def read(self, path: str, position: int, length: int) -> bytes:
        """Read bytes; fewer than `length` only at the end of the file."""
        ...


class OpenFile:
    """A descriptor for reading and appending, and the file's size. Closed when it has left the
    list of open files and its last lease is released."""

    __slots__ = ("_holders", "fd", "size")

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self.size = size
        self._holders = 1

    def hold(self) -> None:
        self._holders += 1

    def release(self) -> None:
        self._holders -= 1
        if not self._holders:
            os.close(self.fd)


class OsDisk:
    """One log directory at `root`, which is created if it is missing."""

    def __init__(self, root: str, max_open_files: int = 4096) -> None:
        self.root = root
        self.max_open_files = max_open_files
        self.lease_descriptor_max = 1 << 30
        """The highest descriptor for leases; the rest is for writing."""
        self.on_unreadable: Callable[[str], None] = _ignore
        """Called with the path of a file that could not be read for a response."""
        self._open_files: OrderedDict[str, OpenFile] = OrderedDict()
        self._open_in: dict[str, set[str]] = {}
        """The same paths by their directories."""
        make_folders(root)

    def close(self) -> None:
        """Close all descriptors; later calls open files again."""
        for path in list(self._open_files):
            self._forget(path)

    # -- files

    def append(self, path: str, buffers: Sequence[Buffer]) -> int:
        file = self._opened(path, create=True)
        position = file.size
        try:
            wanted = sum(map(len, buffers))
            if len(buffers) == 1 and wanted <= _WRITE_MAX:
                written = os.write(file.fd, buffers[0])
                if written < wanted:
                    _write_rest(file.fd, buffers, written)
            else:
                _write_gathered(file.fd, buffers)
        except OSError as error:
            # The size is unknown now: opening the file again finds it.
            self._forget(path)
            raise _disk_error(error, path) from error
        file.size = position + wanted
        return position

    def read(self, path: str, position: int, length: int) -> bytes:
        try:
            return os.pread(self._opened(path).fd, length, position)
        except OSError as error:
            raise _disk_error(error, path) from error

    def write(self, path: str, data: Buffer) -> None:
        self._forget(path)
        with _as_disk_error(path):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            fd = os.open(self._absolute(path), flags, FILE_MODE)
            try:
                _write_rest(fd, [data], 0)
            finally:
                os.close(fd)

    def size(self, path: str) -> int:
        # By name: an open descriptor hides that another process deleted or cut the file.
        with _as_disk_error(path):
            return os.stat(self._absolute(path)).st_size

    def exists(self, path: str) -> bool:
        return os.path.exists(self._absolute(path))

    def truncate(self, path: str, size: int) -> None:
        file = self._opened(path)
        with _as_disk_error(path):
            os.ftruncate(file.fd, min(size, file.size))
            file.size = min(size, file.size)

    def preallocate(self, path: str, size: int) -> None:
        # Reserving is optional: without it writing works as well, so errors are ignored.
        file = self._opened(path, create=True)
        fallocate = _find_fallocate()
        if size > file.size and fallocate is not None:
            fallocate(file.fd, _FALLOC_KEEP_SIZE, file.size, size - file.size)

    def rename(self, old: str, new: str) -> None:
        # Only a directory has files under it, and finding those takes time.
        if self.is_dir(old):
            self._forget_under(old)
        self._forget(old)
        self._forget(new)
        with _as_disk_error(old):
            os.replace(self._absolute(old), self._absolute(new))

    def delete(self, path: str) -> None:
        self._forget(path)
        with _as_disk_error(path), suppress(FileNotFoundError):
            os.unlink(self._absolute(path))

    # -- directories

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(self._absolute(path))

    def list_dir(self, path: str) -> list[str]:
        with _as_disk_error(path):
            try:
                return sorted(os.listdir(self._absolute(path)))
            except FileNotFoundError:
                return []

    def scan_dir(self, path: str) -> tuple[list[str], list[str]]:
        files: list[str] = []
        others: list[str] = []
        directory = self._absolute(path)
        with _as_disk_error(path), suppress(FileNotFoundError), os.scandir(directory) as entries:
            for entry in entries:
                (files if _is_file(entry) else others).append(entry.name)
        return sorted(files), sorted(others)

    def make_dir(self, path: str) -> None:
        with _as_disk_error(path):
            make_folders(self._absolute(path))

    def delete_dir(self, path: str) -> None:
        import shutil  # slow to import: milliseconds of a broker's start

        self._forget_under(path)
        with _as_disk_error(path), suppress(FileNotFoundError):
            shutil.rmtree(self._absolute(path))

    # -- durability

    def sync(self, path: str) -> None:
        with _as_disk_error(path):
            fd = os.open(self._absolute(path), os.O_RDONLY | os.O_CLOEXEC)
            try:
                _sync_data(fd)
            finally:
                os.close(fd)

    def sync_dir(self, path: str) -> None:
        with _as_disk_error(path):
            fd = os.open(self._absolute(path), os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def sync_many(self, files: Sequence[str], directories: Sequence[str]) -> None:
        """Sync many files with one sync of the file system instead of one for each."""
        syncfs = _find_syncfs() if len(files) + len(directories) >= SYNCFS_FROM else None
        if syncfs is None:
            sync_each(self, files, directories)
            return
        with _as_disk_error(""):
            fd = os.open(self.root, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if syncfs(fd) != 0:
                    from ctypes import get_errno

                    raise OSError(get_errno(), os.strerror(get_errno()))
            finally:
                os.close(fd)

    # -- descriptors

    def lease(self, region: Region) -> OpenFile:
        """Keep the region's file open until `release`, even if it is renamed or deleted.

        Also finds a file whose segment was deleted a moment ago (`read_region`).
        """
        try:
            file = self._opened(region.path)
        except MissingFile:
            file = self._opened(region.path + DELETED_SUFFIX)
        if file.fd > self.lease_descriptor_max:
            raise DiskError("too many files are being sent", region.path)
        file.hold()
        return file

    def _opened(self, path: str, create: bool = False) -> OpenFile:
        file = self._open_files.get(path)
        if file is not None:
            self._open_files.move_to_end(path)
            return file
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        with _as_disk_error(path):
            fd = os.open(self._absolute(path), flags, FILE_MODE)
            file = OpenFile(fd, os.fstat(fd).st_size)
        while len(self._open_files) >= self.max_open_files:
            self._forget(next(iter(self._open_files)))
        self._open_files[path] = file
        self._open_in.setdefault(parent(path), set()).add(path)
        return file

    def _forget(self, path: str) -> None:
        file = self._open_files.pop(path, None)
        if file is not None:
            directory = parent(path)
            beside = self._open_in[directory]
            beside.discard(path)
            if not beside:
                del self._open_in[directory]
            file.release()

    def _forget_under(self, path: str) -> None:
        """Close a file, or all files of a directory."""
        self._forget(path)
        for name in list(self._open_in.get(path, ())):
            self._forget(name)

    def _absolute(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root


class OsDisks:
    """The disks of several log directories, to send their files: a path is in the directory that
    has its folder. Each disk has its own list of open files, so no replaced file is sent."""

    def __init__(self, disks: Sequence[OsDisk | None], place_of: Callable[[str], int]) -> None:
        """`place_of` returns the number of the directory that has a folder."""
        self.on_unreadable: Callable[[str], None] = _ignore
        self._disks = disks
        self._place_of = place_of

    def lease(self, region: Region) -> OpenFile:
        return self._of(region.path).lease(region)

    def read(self, path: str, position: int, length: int) -> bytes:
        return self._of(path).read(path, position, length)

    def _of(self, path: str) -> OsDisk:
        disk = self._disks[self._place_of(path.partition("/")[0])]
        if disk is None:
            raise MissingFile("the log directory is offline", path)
        return disk


def _is_file(entry: "os.DirEntry[str]") -> bool:
    """Whether the entry is a file or a link to one. Only links cost a system call."""
    try:
        return entry.is_file()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return False
        raise


def _write_gathered(fd: int, buffers: Sequence[Buffer]) -> None:
    """Write all buffers with as few system calls as possible."""
    gathered: list[Buffer] = []
    size = 0
    for buffer in buffers:
        rest = memoryview(buffer)
        while rest:
            part = rest[: _WRITE_MAX - size]
            rest = rest[len(part) :]
            gathered.append(part)
            size += len(part)
            if size == _WRITE_MAX or len(gathered) == _GATHER_MAX:
                _write_rest(fd, gathered, os.writev(fd, gathered))
                gathered, size = [], 0
    if gathered:
        _write_rest(fd, gathered, os.writev(fd, gathered))


def _write_rest(fd: int, buffers: Sequence[Buffer], written: int) -> None:
    """Write the rest after `written` bytes: a call may write less than it was given."""
    for buffer in buffers:
        rest = memoryview(buffer)[written:]
        written = max(0, written - len(buffer))
        while rest:
            rest = rest[os.write(fd, rest[:_WRITE_MAX]) :]


def _disk_error(error: OSError, path: str) -> DiskError:
    what = error.strerror or str(error)
    if error.errno in _SPACE_ERRORS:
        return DiskFull(what, path)
    if error.errno == errno.ENOENT:
        return MissingFile(what, path)
    if error.errno in _RIGHTS_ERRORS:
        return NotPermitted(what, path)
    return DiskError(what, path)


def _ignore(_path: str) -> None:
    """The default of `on_unreadable`, for tools that send nothing."""


@contextmanager
def _as_disk_error(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _disk_error(error, path) from error


def disk_space(folder: str) -> tuple[int, int]:
    """The size and the free space of the folder's disk in bytes; -1 if unknown."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return -1, -1
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def make_folders(path: str) -> None:
    """Create a folder and its missing parents, all private."""
    try:
        os.mkdir(path, FOLDER_MODE)
    except FileNotFoundError:
        make_folders(os.path.dirname(os.path.abspath(path)))
        os.mkdir(path, FOLDER_MODE)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def warning_if_open(path: str) -> str | None:
    """A warning if every user of the machine can open this path; else None."""
    path = os.path.realpath(path)
    mode = os.stat(path).st_mode & 0o777
    above = os.path.dirname(path)
    while mode & _OTHERS and os.stat(above).st_mode & _OTHERS_ENTER:
        if above == os.path.dirname(above):
            closed = FOLDER_MODE if os.path.isdir(path) else FILE_MODE
            return (
                f"{path} is open to all users of this machine (mode {mode:o});"
                f" run: chmod {closed:o} {path}"
            )
        above = os.path.dirname(above)
    return None
