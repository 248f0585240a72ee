"""A disk in memory for stories and tests, without faults.

Syncs do nothing. The simulator has its own disk, which fails (sim/machine/disk.py).
"""

from collections.abc import Sequence

from tidelog.core.record.crc32c import Buffer
from tidelog.core.storage.disk import DiskError, MissingFile, parent, sync_each


class MemoryDisk:
    """Files by path. Tests damage them through `files`."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.directories: set[str] = {""}

    def append(self, path: str, buffers: Sequence[Buffer]) -> int:
        file = self._created(path)
        position = len(file)
        for buffer in buffers:
            file += buffer
        return position

    def read(self, path: str, position: int, length: int) -> bytes:
        return bytes(memoryview(self._file(path))[position : position + length])

    def write(self, path: str, data: Buffer) -> None:
        self._created(path)[:] = data

    def size(self, path: str) -> int:
        return len(self._file(path))

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.directories

    def is_dir(self, path: str) -> bool:
        return path not in self.files and (path in self.directories or bool(self.list_dir(path)))

    def list_dir(self, path: str) -> list[str]:
        prefix = path + "/" if path else ""
        inside = (name for name in (*self.files, *self.directories) if name.startswith(prefix))
        return sorted({name[len(prefix) :].partition("/")[0] for name in inside} - {""})

    def scan_dir(self, path: str) -> tuple[list[str], list[str]]:
        names, inside = self.list_dir(path), path + "/" if path else ""
        files = [name for name in names if inside + name in self.files]
        return files, [name for name in names if inside + name not in self.files]

    def make_dir(self, path: str) -> None:
        self.directories.add(path)

    def truncate(self, path: str, size: int) -> None:
        del self._file(path)[size:]

    def preallocate(self, path: str, size: int) -> None:
        """Do nothing: memory needs no reservation."""

    def rename(self, old: str, new: str) -> None:
        if old in self.files:
            self.files[new] = self.files.pop(old)
        elif old in self.directories:
            self._rename_dir(old, new)
        else:
            raise MissingFile("rename of a missing file", old)

    def _rename_dir(self, old: str, new: str) -> None:
        if self.list_dir(new):
            raise DiskError("rename over a directory that is not empty", new)
        for name in [name for name in self.files if name.startswith(old + "/")]:
            self.files[new + name[len(old) :]] = self.files.pop(name)
        self.directories.remove(old)
        self.directories.add(new)

    def delete(self, path: str) -> None:
        self.files.pop(path, None)

    def delete_dir(self, path: str) -> None:
        for name in [name for name in self.files if name.startswith(path + "/")]:
            del self.files[name]
        self.directories.discard(path)

    def sync(self, path: str) -> None:
        self._file(path)

    def sync_dir(self, path: str) -> None:
        if path not in self.directories:
            raise MissingFile("sync of a missing directory", path)

    def sync_many(self, files: Sequence[str], directories: Sequence[str]) -> None:
        sync_each(self, files, directories)

    def _file(self, path: str) -> bytearray:
        try:
            return self.files[path]
        except KeyError:
            raise MissingFile("no such file", path) from None

    def _created(self, path: str) -> bytearray:
        file = self.files.get(path)
        if file is None:
            if parent(path) not in self.directories:
                raise MissingFile("no such directory", path)
            file = self.files[path] = bytearray()
        return file
