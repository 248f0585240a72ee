"""A disk that reads from a folder and keeps all changes in memory.

The broker's own startup and repair run on it, to show what they would do. Invariant: no file of the
folder is opened for writing.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.core.record.crc32c import Buffer
from tidelog.core.storage.disk import Disk, MissingFile, parent


class _File(NamedTuple):
    """The first `kept` bytes of a file of the folder, and the bytes written after them."""

    below: str | None
    kept: int
    written: bytearray

    @property
    def size(self) -> int:
        return self.kept + len(self.written)


class OverlayDisk:
    """Implements `core/storage/disk.py`: Disk."""

    def __init__(self, below: Disk) -> None:
        self._below = below
        self._files: dict[str, _File | None] = {}
        """The changed files by path; None for a deleted file."""
        self._made: set[str] = set()
        self._removed: set[str] = set()

    def append(self, path: str, buffers: Sequence[Buffer]) -> int:
        file = self._find(path) or _File(None, 0, bytearray())
        position = file.size
        for buffer in buffers:
            file.written.extend(buffer)
        self._files[path] = file
        return position

    def read(self, path: str, position: int, length: int) -> bytes:
        file = self._file(path)
        end = min(position + length, file.size)
        head = b""
        if file.below is not None and position < file.kept:
            head = self._below.read(file.below, position, min(end, file.kept) - position)
        at = max(0, position - file.kept)
        return head + bytes(file.written[at : max(at, end - file.kept)])

    def write(self, path: str, data: Buffer) -> None:
        self._files[path] = _File(None, 0, bytearray(data))

    def size(self, path: str) -> int:
        return self._file(path).size

    def exists(self, path: str) -> bool:
        return self._find(path) is not None or self.is_dir(path)

    def is_dir(self, path: str) -> bool:
        return path in self._made or (path not in self._removed and self._below.is_dir(path))

    def list_dir(self, path: str) -> list[str]:
        names = set() if path in self._removed else set(self._below.list_dir(path))
        prefix = f"{path}/" if path else ""
        names |= {name[len(prefix) :] for name in self._made if parent(name) == path and name}
        names -= {name[len(prefix) :] for name in self._removed if parent(name) == path}
        for name, file in self._files.items():
            if parent(name) == path:
                (names.discard if file is None else names.add)(name[len(prefix) :])
        return sorted(names)

    def scan_dir(self, path: str) -> tuple[list[str], list[str]]:
        inside = f"{path}/" if path else ""
        _, others_below = self._below.scan_dir(path)
        files: list[str] = []
        others: list[str] = []
        for name in self.list_dir(path):
            unchanged_other = inside + name not in self._files and name in others_below
            is_file = not unchanged_other and self._find(inside + name) is not None
            (files if is_file else others).append(name)
        return files, others

    def make_dir(self, path: str) -> None:
        self._made.add(path)

    def truncate(self, path: str, size: int) -> None:
        file = self._file(path)
        kept = min(size, file.kept)
        self._files[path] = _File(file.below, kept, file.written[: max(0, size - kept)])

    def preallocate(self, path: str, size: int) -> None:
        """Do nothing: changes are in memory."""

    def rename(self, old: str, new: str) -> None:
        if self.is_dir(old):
            for name in self.list_dir(old):
                self.rename(f"{old}/{name}", f"{new}/{name}")
            self.make_dir(new)
            self.delete_dir(old)
            return
        self._files[new] = self._file(old)
        self._files[old] = None

    def delete(self, path: str) -> None:
        self._files[path] = None

    def delete_dir(self, path: str) -> None:
        for name in self.list_dir(path):
            self.delete(f"{path}/{name}")
        self._made.discard(path)
        self._removed.add(path)

    def sync(self, path: str) -> None:
        self._file(path)

    def sync_dir(self, path: str) -> None:
        """Do nothing: changes are in memory."""

    def sync_many(self, files: Sequence[str], directories: Sequence[str]) -> None:
        """Do nothing: changes are in memory."""

    def _find(self, path: str) -> _File | None:
        if path in self._files:
            return self._files[path]
        if parent(path) in self._removed or self._below.is_dir(path):
            return None
        if not self._below.exists(path):
            return None
        return _File(path, self._below.size(path), bytearray())

    def _file(self, path: str) -> _File:
        file = self._find(path)
        if file is None:
            raise MissingFile("no such file", path)
        return file
