"""What both sparse indexes share: entries in memory, written to the file when asked.

Entries live in two arrays (no object an entry) and go to the file at flush, roll and close,
not at each append. Nothing is lost by that: every segment that was not flushed is scanned
and indexed again after an unclean stop.

Kafka maps its index of the active segment preallocated to its full size; a killed broker
leaves it with a tail of zeros. Such a tail is no entry.
"""

import sys
from abc import ABC, abstractmethod
from array import array
from struct import Struct

from tidelog.core.storage.disk import Disk


class InvalidIndex(Exception):
    """An index file that can't be trusted; the log has all that is needed to rebuild it."""


class SparseIndex(ABC):
    """Entries that only grow, and how many of them the file already holds."""

    __slots__ = ("_disk", "_written", "base_offset", "path", "unsynced")
    entry: Struct

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self._disk = disk
        self._written = 0
        self.unsynced = False
        """Whether the file was changed, here, since someone last synced it."""
        self.path = path
        self.base_offset = base_offset

    @abstractmethod
    def __len__(self) -> int:
        """How many entries there are."""

    @abstractmethod
    def _packed(self, first: int) -> bytes:
        """The entries from number `first` on, as the file has them."""

    def write_out(self) -> None:
        """Append what the file lacks. The file exists afterwards, even if it is empty."""
        if self._written < len(self) or not self._disk.exists(self.path):
            self._disk.append(self.path, [self._packed(self._written)])
            self._written = len(self)
            self.unsynced = True

    def write_anew(self) -> None:
        """Make the file hold these entries and no others. After most crashes it does already,
        but whether that is on disk is not known."""
        if self._disk.exists(self.path):
            size = self._disk.size(self.path)
            wanted = self._packed(0)
            if size != len(wanted) or self._disk.read(self.path, 0, size) != wanted:
                self._disk.delete(self.path)
            else:
                self._written = len(self)
                self.unsynced = True
        self.write_out()

    def _shrink_file(self) -> None:
        if self._written > len(self):
            self._disk.truncate(self.path, len(self) * self.entry.size)
            self._written = len(self)
            self.unsynced = True

    def _read_file(self) -> bytes:
        data = self._disk.read(self.path, 0, self._disk.size(self.path))
        if len(data) % self.entry.size:
            raise InvalidIndex(f"{self.path}: {len(data)} bytes are no whole number of entries")
        return data


def big_endian(code: str, data: bytes) -> "array[int]":
    """Numbers from the file's byte order."""
    numbers = array(code, data)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def rises(numbers: "array[int]") -> bool:
    """Whether each is larger than the one before."""
    return all(map(int.__lt__, numbers, numbers[1:]))
