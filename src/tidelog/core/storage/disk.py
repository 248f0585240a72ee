"""The disk interface that all storage code uses.

Paths are strings relative to one log directory. Reads of the log return a `Region` instead of
bytes, so that the host can use sendfile; `append` takes a list of buffers, so that batches are
written from the request's buffer without a copy.

Nothing is durable before `sync` (a file's bytes) and `sync_dir` (its directory entry). Atomic
replacement of a file uses these primitives (`replace_file`), so that a simulated crash can occur
between any two of them.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from tidelog.core.record.crc32c import Buffer

DELETED_SUFFIX = ".deleted"
TEMPORARY_SUFFIX = ".tmp"
DAMAGED_SUFFIX = ".damaged"


class DiskError(Exception):
    """A disk operation failed. The state of the file is unknown."""

    def __init__(self, what: str, path: str) -> None:
        super().__init__(f"{path}: {what}")
        self.what = what
        self.path = path


class DiskFull(DiskError):
    """The disk is full; part of the data may have been written."""


class NotPermitted(DiskError):
    """This process lacks the permission; the file may be valid."""


class MissingFile(DiskError):
    """The file does not exist."""


class Region(NamedTuple):
    """A range of bytes in a file."""

    path: str
    position: int
    length: int


class Disk(Protocol):
    """One log directory. Every method raises DiskError on failure."""

    def append(self, path: str, buffers: Sequence[Buffer]) -> int:
        """Append to a file, or create it; return the position of the first byte."""
        ...

    def read(self, path: str, position: int, length: int) -> bytes:
        """Read bytes; fewer than `length` only at the end of the file."""
        ...

    def write(self, path: str, data: Buffer) -> None:
        """Write a file with exactly this content. Not atomic."""
        ...

    def size(self, path: str) -> int: ...

    def exists(self, path: str) -> bool:
        """Whether a file or directory of that name exists."""
        ...

    def is_dir(self, path: str) -> bool:
        """Whether a directory of that name exists."""
        ...

    def list_dir(self, path: str) -> list[str]:
        """Return the sorted names in a directory; "" is the root; none if it is missing."""
        ...

    def scan_dir(self, path: str) -> tuple[list[str], list[str]]:
        """Return the same names in two lists: files, and all others (directories, broken links,
        pipes)."""
        ...

    def make_dir(self, path: str) -> None:
        """Create a directory unless it exists."""
        ...

    def truncate(self, path: str, size: int) -> None:
        """Truncate the file to `size` bytes; never extend it."""
        ...

    def preallocate(self, path: str, size: int) -> None:
        """Reserve blocks up to `size` bytes without changing the size. Only a hint."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory; an existing file is replaced atomically."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file if it exists."""
        ...

    def delete_dir(self, path: str) -> None:
        """Delete a directory and its content if it exists."""
        ...

    def sync(self, path: str) -> None:
        """Make the file's bytes durable."""
        ...

    def sync_dir(self, path: str) -> None:
        """Make the entries of a directory durable."""
        ...

    def sync_many(self, files: Sequence[str], directories: Sequence[str]) -> None:
        """Call `sync` for these files and then `sync_dir` for these directories, maybe in parallel.
        Missing ones are skipped: a topic may be deleted while it is flushed."""
        ...


def parent(path: str) -> str:
    """Return the directory of a path; "" is the root."""
    return path.rpartition("/")[0]


def replace_file(disk: Disk, path: str, data: Buffer) -> None:
    """Replace a file atomically and durably: a crash leaves the old or the new content."""
    temporary = path + TEMPORARY_SUFFIX
    disk.write(temporary, data)
    disk.sync(temporary)
    disk.rename(temporary, path)
    disk.sync_dir(parent(path))


def replace_files(disk: Disk, contents: Mapping[str, Buffer], beside: Sequence[str] = ()) -> None:
    """Like `replace_file` for many files, with two syncs for all. `beside` are further directories
    to sync."""
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
    """Implement `sync_many` with one call for each file and directory."""
    for path in files:
        with suppress(MissingFile):
            disk.sync(path)
    for path in directories:
        with suppress(MissingFile):
            disk.sync_dir(path)


def read_file(disk: Disk, path: str) -> bytes | None:
    """Return the content of a file; None if it is missing."""
    return disk.read(path, 0, disk.size(path)) if disk.exists(path) else None


class Reader(Protocol):
    """An object that reads parts of files."""

    def read(self, path: str, position: int, length: int) -> bytes: ...


def read_region(disk: Reader, region: Region) -> bytes:
    """Return the bytes of a region, even if its segment was deleted after the read.

    A deleted segment has another name for `file.delete.delay.ms`, so that a fetch that started
    before can be completed. After the delay this raises MissingFile.
    """
    try:
        return disk.read(*region)
    except MissingFile:
        return disk.read(region.path + DELETED_SUFFIX, region.position, region.length)
