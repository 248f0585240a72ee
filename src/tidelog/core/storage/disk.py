"""What the log asks of a disk, and nothing more.

Paths are strings relative to one log directory. Reads of the log hand out a `Region`
instead of bytes, so that the host can let the kernel move them (sendfile); writes are
gather lists, so that batches go from the request's buffer to the file without a copy.

Nothing is durable before `sync` (a file's bytes) and `sync_dir` (that its name exists);
atomic replacement of a file is spelled out in these primitives (`replace_file`), so that a
simulated crash can strike between any two of them.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from tidelog.core.record.crc32c import Buffer

DELETED_SUFFIX = ".deleted"
TEMPORARY_SUFFIX = ".tmp"
DAMAGED_SUFFIX = ".damaged"


class DiskError(Exception):
    """The disk did not do what was asked. What is on it now is unknown."""

    def __init__(self, what: str, path: str) -> None:
        super().__init__(f"{path}: {what}")
        self.what = what
        self.path = path


class DiskFull(DiskError):
    """No space was left; part of the data may have been written."""


class NotPermitted(DiskError):
    """This process lacks the permission; the file may be sound."""


class MissingFile(DiskError):
    """There is no such file."""


class Region(NamedTuple):
    """A run of bytes in a file."""

    path: str
    position: int
    length: int


class Disk(Protocol):
    """One log directory. Every method raises DiskError when it can't do its work."""

    def append(self, path: str, buffers: Sequence[Buffer]) -> int:
        """Write at the end (creating the file); the position of the first byte."""
        ...

    def read(self, path: str, position: int, length: int) -> bytes:
        """Fewer bytes than asked only at the end of the file."""
        ...

    def write(self, path: str, data: Buffer) -> None:
        """Make the file hold exactly `data`. Not atomic."""
        ...

    def size(self, path: str) -> int: ...

    def exists(self, path: str) -> bool:
        """Whether a file or directory of that name is there."""
        ...

    def is_dir(self, path: str) -> bool:
        """Whether that name is a directory's."""
        ...

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory, sorted; "" is the root; none for a missing directory."""
        ...

    def scan_dir(self, path: str) -> tuple[list[str], list[str]]:
        """The same names in two lists: files, and everything else (directories, broken links,
        pipes)."""
        ...

    def make_dir(self, path: str) -> None:
        """An existing directory is fine."""
        ...

    def truncate(self, path: str, size: int) -> None:
        """Cut the file to `size` bytes; never lengthens it."""
        ...

    def preallocate(self, path: str, size: int) -> None:
        """Reserve blocks up to `size` bytes without changing the size. Only a hint."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Of a file or a directory; replaces an existing file atomically."""
        ...

    def delete(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        ...

    def delete_dir(self, path: str) -> None:
        """Remove a directory and all in it; a missing one is fine."""
        ...

    def sync(self, path: str) -> None:
        """Make the file's bytes survive a power failure."""
        ...

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory survive a power failure."""
        ...

    def sync_many(self, files: Sequence[str], directories: Sequence[str]) -> None:
        """As `sync` for these files and then `sync_dir` for these directories, perhaps all at
        once. What is gone needs no sync: a topic may be deleted while it is flushed."""
        ...


def parent(path: str) -> str:
    """The directory a path lies in; "" is the root."""
    return path.rpartition("/")[0]


def replace_file(disk: Disk, path: str, data: Buffer) -> None:
    """Put `data` in place of the file so that a crash leaves the old or the new, whole."""
    temporary = path + TEMPORARY_SUFFIX
    disk.write(temporary, data)
    disk.sync(temporary)
    disk.rename(temporary, path)
    disk.sync_dir(parent(path))


def replace_files(disk: Disk, contents: Mapping[str, Buffer], beside: Sequence[str] = ()) -> None:
    """As `replace_file` for many, with two syncs for all of them. `beside` are directories
    whose names are to be on disk with them."""
    for path, data in contents.items():
        disk.write(path + TEMPORARY_SUFFIX, data)
    disk.sync_many([path + TEMPORARY_SUFFIX for path in contents], ())
    for path in contents:
        disk.rename(path + TEMPORARY_SUFFIX, path)
    disk.sync_many((), [*dict.fromkeys(map(parent, contents)), *beside])


def move_aside(disk: Disk, path: str) -> str:
    """Rename an entry that has a file's name but is not a file; return its new path.

    Nothing is deleted or replaced. The caller syncs the directory.
    """
    names = disk.list_dir(parent(path))
    new = path + DAMAGED_SUFFIX
    number = 1
    while new.rpartition("/")[2] in names:
        number += 1
        new = f"{path}{DAMAGED_SUFFIX}-{number}"
    disk.rename(path, new)
    return new


def sync_each(disk: Disk, files: Sequence[str], directories: Sequence[str]) -> None:
    """`sync_many` of a disk that knows no better way."""
    for path in files:
        with suppress(MissingFile):
            disk.sync(path)
    for path in directories:
        with suppress(MissingFile):
            disk.sync_dir(path)


def read_file(disk: Disk, path: str) -> bytes | None:
    """The whole file; None if it is missing."""
    return disk.read(path, 0, disk.size(path)) if disk.exists(path) else None


def read_region(disk: Disk, region: Region) -> bytes:
    """The bytes of a region, also when its segment was deleted after it was handed out.

    A deleted segment keeps its bytes under another name for `file.delete.delay.ms`; a fetch
    that began before still gets what it was promised. After the delay: MissingFile.
    """
    try:
        return disk.read(*region)
    except MissingFile:
        return disk.read(region.path + DELETED_SUFFIX, region.position, region.length)
