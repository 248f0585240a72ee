"""Two disks of one broker, each with a log directory; each can fail.

The pair itself has the methods of a disk that a host uses, and finds the disk of a path by the
folder.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tidelog.core.record.crc32c import Buffer
from tidelog.core.storage.disk import Disk, DiskError, sync_each
from tidelog.core.storage.log_directories import LogDisk


class FailingDisk:
    """A disk that fails every call while `broken` is set. With `reads` unset, open files can still
    be read, so that a story can show the log."""

    def __init__(self, disk: Disk, *, reads: bool = True) -> None:
        self.disk = disk
        self._reads = reads
        self.broken = False

    def append(self, path: str, buffers: Sequence[Buffer]) -> int:
        return self._working(path).append(path, buffers)

    def read(self, path: str, position: int, length: int) -> bytes:
        disk = self._working(path) if self._reads else self.disk
        return disk.read(path, position, length)

    def write(self, path: str, data: Buffer) -> None:
        self._working(path).write(path, data)

    def size(self, path: str) -> int:
        return self._working(path).size(path)

    def exists(self, path: str) -> bool:
        return not self.broken and self.disk.exists(path)

    def is_dir(self, path: str) -> bool:
        return not self.broken and self.disk.is_dir(path)

    def list_dir(self, path: str) -> list[str]:
        return self._working(path).list_dir(path)

    def scan_dir(self, path: str) -> tuple[list[str], list[str]]:
        return self._working(path).scan_dir(path)

    def make_dir(self, path: str) -> None:
        self._working(path).make_dir(path)

    def truncate(self, path: str, size: int) -> None:
        self._working(path).truncate(path, size)

    def preallocate(self, path: str, size: int) -> None:
        if not self.broken:
            self.disk.preallocate(path, size)

    def rename(self, old: str, new: str) -> None:
        self._working(old).rename(old, new)

    def delete(self, path: str) -> None:
        self._working(path).delete(path)

    def delete_dir(self, path: str) -> None:
        self._working(path).delete_dir(path)

    def sync(self, path: str) -> None:
        self._working(path).sync(path)

    def sync_dir(self, path: str) -> None:
        self._working(path).sync_dir(path)

    def sync_many(self, files: Sequence[str], directories: Sequence[str]) -> None:
        sync_each(self, files, directories)

    def _working(self, path: str) -> Disk:
        if self.broken:
            raise DiskError("input/output error", path)
        return self.disk


class DiskPair:
    """The disks of two log directories. `make` creates an empty disk."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make
        self.disks = [FailingDisk(make()), FailingDisk(make())]

    @property
    def log_disks(self) -> list[LogDisk]:
        """The two disks for a node."""
        return [LogDisk(f"disk-{number}", disk) for number, disk in enumerate(self.disks)]

    def replace(self, number: int) -> None:
        """Put an empty disk in the place of one."""
        self.disks[number] = FailingDisk(self.make())

    def exists(self, path: str) -> bool:
        return any(disk.exists(path) for disk in self.disks)

    def read(self, path: str, position: int, length: int) -> bytes:
        return self._of(path).read(path, position, length)

    def sync(self, path: str) -> None:
        self._of(path).sync(path)

    def _of(self, path: str) -> FailingDisk:
        """Return the disk that has the folder of this path, even if it fails."""
        folder = path.partition("/")[0]
        return next((one for one in self.disks if one.disk.exists(folder)), self.disks[0])
