"""A disk in memory that knows what is in which folder.

The plain one looks through all its files for that, which takes longer than the broker when
a request has made a topic of a thousand partitions.
"""

from tidelog.core.storage.disk import DiskError, parent
from tidelog.lab.memory_disk import MemoryDisk


class IndexedDisk(MemoryDisk):
    """Folders of one level, as a log directory has them."""

    def __init__(self) -> None:
        super().__init__()
        self._inside: dict[str, set[str]] = {"": set()}

    def list_dir(self, path: str) -> list[str]:
        return sorted(self._inside.get(path, ()))

    def make_dir(self, path: str) -> None:
        super().make_dir(path)
        self._inside.setdefault(path, set())
        if path:
            self._inside[parent(path)].add(_name(path))

    def delete(self, path: str) -> None:
        super().delete(path)
        self._inside[parent(path)].discard(_name(path))

    def delete_dir(self, path: str) -> None:
        for name in self._inside.pop(path, ()):
            del self.files[f"{path}/{name}"]
        self.directories.discard(path)
        self._inside[parent(path)].discard(_name(path))

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        if new in self.files:
            self._inside[parent(old)].discard(_name(old))
            self._inside[parent(new)].add(_name(new))

    def _rename_dir(self, old: str, new: str) -> None:
        if self._inside.get(new):
            raise DiskError("rename over a directory that is not empty", new)
        names = self._inside.pop(old)
        for name in names:
            self.files[f"{new}/{name}"] = self.files.pop(f"{old}/{name}")
        self._inside[new] = names
        self.directories.remove(old)
        self.directories.add(new)
        self._inside[parent(old)].discard(_name(old))
        self._inside[parent(new)].add(_name(new))

    def _created(self, path: str) -> bytearray:
        file = super()._created(path)
        self._inside[parent(path)].add(_name(path))
        return file


def _name(path: str) -> str:
    return path.rpartition("/")[2]
