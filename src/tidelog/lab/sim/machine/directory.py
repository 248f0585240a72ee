"""One of two log directories of a simulated broker, which can fail alone.

Both are on one `SimDisk`, so that a power failure, a full disk or a killed process affects both:
the first is its root, the second the folder `SECOND`.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from tidelog.core.record.crc32c import Buffer
from tidelog.core.storage.disk import DiskError, sync_each
from tidelog.lab.sim.machine.disk import SECOND, SimDisk
from tidelog.lab.sim.machine.switch_fault import SwitchFault
from tidelog.lab.sim.world import World

_Result = TypeVar("_Result")


class SimDirectory:
    """A log directory. While `broken` is set, every call fails."""

    def __init__(self, world: World, disk: SimDisk, number: int, fault: SwitchFault) -> None:
        self.broken = False
        self.other = self
        """The broker's other directory."""
        self.prefix = f"{SECOND}/" if number else ""
        self._world = world
        self._disk = disk
        self._fault = fault
        if number:
            disk.mount(SECOND)

    def append(self, path: str, buffers: Sequence[Buffer]) -> int:
        return self._do(path, lambda there: self._disk.append(there, buffers))

    def read(self, path: str, position: int, length: int) -> bytes:
        return self._do(path, lambda there: self._disk.read(there, position, length))

    def write(self, path: str, data: Buffer) -> None:
        self._do(path, lambda there: self._disk.write(there, data))

    def size(self, path: str) -> int:
        return self._do(path, self._disk.size)

    def exists(self, path: str) -> bool:
        return not self.broken and self._disk.exists(self.place(path))

    def is_dir(self, path: str) -> bool:
        return not self.broken and self._disk.is_dir(self.place(path))

    def list_dir(self, path: str) -> list[str]:
        return self._do(path, self._disk.list_dir)

    def scan_dir(self, path: str) -> tuple[list[str], list[str]]:
        return self._do(path, self._disk.scan_dir)

    def make_dir(self, path: str) -> None:
        self._do(path, self._disk.make_dir)

    def truncate(self, path: str, size: int) -> None:
        self._do(path, lambda there: self._disk.truncate(there, size))

    def preallocate(self, path: str, size: int) -> None:
        """Do nothing: the simulation does not model blocks."""

    def rename(self, old: str, new: str) -> None:
        self._do(old, lambda there: self._disk.rename(there, self.place(new)))

    def delete(self, path: str) -> None:
        self._do(path, self._disk.delete)

    def delete_dir(self, path: str) -> None:
        self._do(path, self._disk.delete_dir)

    def sync(self, path: str) -> None:
        self._do(path, self._disk.sync)

    def sync_dir(self, path: str) -> None:
        self._do(path, self._disk.sync_dir)

    def sync_many(self, files: Sequence[str], directories: Sequence[str]) -> None:
        sync_each(self, files, directories)

    def place(self, path: str) -> str:
        """Return the path on the disk."""
        return (self.prefix + path).rstrip("/")

    def _do(self, path: str, action: Callable[[str], _Result]) -> _Result:
        if self._fault.suspended:
            return action(self.place(path))
        self._fault.before_operation(self, self.other, path)
        if self.broken:
            self._world.count("directory error")
            raise DiskError("input/output error", path)
        try:
            return action(self.place(path))
        except DiskError as error:
            raise type(error)(error.what, path) from error
