"""The sparse indexes of a segment: offset to position, and timestamp to offset.

Entries are kept in two arrays (no object for each entry) and are written to the file at flush,
roll and close, not at each append. That loses nothing: after an unclean stop every segment that
was not flushed is scanned and indexed again.

Kafka preallocates the index of the active segment to its full size. A killed broker leaves zeros at
the end of the file; they are not entries.
"""

import sys
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from struct import Struct

from tidelog.core.storage.disk import Disk
from tidelog.core.types import Offset

NO_TIMESTAMP = -1


class InvalidIndex(Exception):
    """An index file is invalid; it can be rebuilt from the log."""


class SparseIndex(ABC):
    """The entries of an index in memory, and how many of them the file has."""

    __slots__ = ("_disk", "_written", "base_offset", "path", "unsynced")
    entry: Struct

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self._disk = disk
        self._written = 0
        self.unsynced = False
        """Whether the file was changed since it was last synced."""
        self.path = path
        self.base_offset = base_offset

    @abstractmethod
    def __len__(self) -> int:
        """The number of entries."""

    @abstractmethod
    def _packed(self, first: int) -> bytes:
        """Return the encoded entries from index `first` on."""

    def write_out(self) -> None:
        """Append new entries to the file, and create it if it is missing."""
        if self._written < len(self) or not self._disk.exists(self.path):
            self._disk.append(self.path, [self._packed(self._written)])
            self._written = len(self)
            self.unsynced = True

    def move_to(self, disk: Disk) -> None:
        """Use the same file on another disk."""
        self._disk = disk

    def rewrite(self) -> None:
        """Write a file with exactly these entries. After most crashes the file has them, but it may
        not be synced."""
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
            raise InvalidIndex(f"{self.path}: {len(data)} bytes are not a whole number of entries")
        return data


def big_endian(code: str, data: bytes) -> "array[int]":
    """Decode big-endian numbers."""
    numbers = array(code, data)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def rises(numbers: "array[int]") -> bool:
    """Whether each number is larger than the one before."""
    return all(map(int.__lt__, numbers, numbers[1:]))


class OffsetIndex(SparseIndex):
    """The `.index` file of one segment: from an offset to a position in the `.log` file.

    It has one entry for about every `index.interval.bytes` of log: the *last* offset of a batch, as
    distance from the segment's base offset, and the position at which that batch starts. A lookup
    finds the last entry at or below the wanted offset and scans the file from there. All batches
    before that entry end below the wanted offset, so the scan misses nothing.

    File: eight bytes for each entry, two big-endian int32. Invariant: offsets and positions rise.
    """

    __slots__ = ("_positions", "_relative_offsets")
    entry = Struct(">ii")

    def __init__(self, disk: Disk, path: str, base_offset: Offset) -> None:
        super().__init__(disk, path, base_offset)
        self._relative_offsets = array("i")
        self._positions = array("i")

    def __len__(self) -> int:
        return len(self._positions)

    def load(self, log_size: int) -> None:
        """Read the file. Raises InvalidIndex if it does not fit a log of this size."""
        data = self._read_file()
        numbers = big_endian("i", data)
        self._relative_offsets, self._positions = numbers[0::2], numbers[1::2]
        # The batch at position 0 has no entry, so zeros are preallocated space.
        used = len(self._positions)
        while used and self._positions[used - 1] == 0:
            used -= 1
        del self._relative_offsets[used:], self._positions[used:]
        self._written = len(data) // self.entry.size
        self._shrink_file()
        if not rises(self._relative_offsets) or not rises(self._positions):
            raise InvalidIndex(f"{self.path}: entries do not rise")
        if used and (self._positions[-1] >= log_size or self._relative_offsets[0] < 0):
            raise InvalidIndex(f"{self.path}: entries beyond the segment")

    def append(self, offset: Offset, position: int) -> None:
        """Add an entry: the batch that ends with `offset` starts at `position`."""
        relative = offset - self.base_offset
        assert not self._positions or relative > self._relative_offsets[-1], "offsets must rise"
        self._relative_offsets.append(relative)
        self._positions.append(position)

    def floor_by_offset(self, offset: Offset) -> int:
        """Return a batch position from which a scan finds the batch that contains `offset`."""
        slot = bisect_right(self._relative_offsets, offset - self.base_offset)
        return self._positions[slot - 1] if slot else 0

    def floor_by_position(self, position: int) -> int:
        """Return the last indexed batch position at or before `position`."""
        slot = bisect_right(self._positions, position)
        return self._positions[slot - 1] if slot else 0

    def end_above(self, position: int) -> Offset | None:
        """Return the end of the first indexed batch at or after a position; None without one."""
        slot = bisect_left(self._positions, position)
        if slot == len(self._positions):
            return None
        return self.base_offset + self._relative_offsets[slot] + 1

    def positions_above(self, position: int) -> list[int]:
        """Return the indexed batch positions after `position`."""
        return list(self._positions[bisect_right(self._positions, position) :])

    def truncate_to(self, end: Offset) -> None:
        """Remove entries of batches that end at or after `end`."""
        slot = bisect_left(self._relative_offsets, end - self.base_offset)
        del self._relative_offsets[slot:], self._positions[slot:]
        self._shrink_file()

    def entries(self) -> list[tuple[Offset, int]]:
        """Return pairs of last offset and position, for tools and tests."""
        offsets = (self.base_offset + relative for relative in self._relative_offsets)
        return list(zip(offsets, self._positions, strict=True))

    def _packed(self, first: int) -> bytes:
        pairs = zip(self._relative_offsets[first:], self._positions[first:], strict=True)
        return b"".join(self.entry.pack(relative, position) for relative, position in pairs)


class TimeIndex(SparseIndex):
    """The `.timeindex` file of one segment: from a timestamp to the offset where a search starts.

    An entry means: up to this offset, no record of the segment has a later timestamp. Entries are
    added together with those of the offset index, and when the segment is closed. So the last
    entry has the segment's largest timestamp, and retention by time reads no records.

    File: twelve bytes for each entry, a big-endian int64 timestamp and the int32 distance of the
    offset (the last one of the batch with that timestamp) from the segment's base. Invariant:
    timestamps rise; a batch without a new largest timestamp adds no entry.
    """

    __slots__ = ("_relative_offsets", "_timestamps")
    entry = Struct(">qi")

    def __init__(self, disk: Disk, path: str, base_offset: Offset) -> None:
        super().__init__(disk, path, base_offset)
        self._timestamps = array("q")
        self._relative_offsets = array("i")

    def __len__(self) -> int:
        return len(self._timestamps)

    def load(self) -> None:
        """Read the file. Raises InvalidIndex."""
        data = self._read_file()
        pairs = list(self.entry.iter_unpack(data))
        # One entry of zeros can be a record with timestamp 0; more are preallocated space.
        while len(pairs) > 1 and pairs[-1] == (0, 0):
            pairs.pop()
        self._timestamps = array("q", [timestamp for timestamp, _ in pairs])
        self._relative_offsets = array("i", [relative for _, relative in pairs])
        self._written = len(data) // self.entry.size
        self._shrink_file()
        if not rises(self._timestamps) or not rises(self._relative_offsets):
            raise InvalidIndex(f"{self.path}: entries do not rise")

    def append(self, timestamp: int, offset: Offset) -> None:
        """Add an entry for the largest timestamp so far, unless it is not larger than the last."""
        if timestamp > (self._timestamps[-1] if self._timestamps else NO_TIMESTAMP):
            self._timestamps.append(timestamp)
            self._relative_offsets.append(offset - self.base_offset)

    def last(self) -> tuple[int, Offset]:
        """Return the largest timestamp and its offset; (-1, base offset) if there is none."""
        if not self._timestamps:
            return NO_TIMESTAMP, self.base_offset
        return self._timestamps[-1], self.base_offset + self._relative_offsets[-1]

    def floor(self, timestamp: int) -> Offset:
        """Return an offset before which no record has `timestamp` or a later one."""
        slot = bisect_left(self._timestamps, timestamp)
        return self.base_offset + (self._relative_offsets[slot - 1] if slot else 0)

    def truncate_to(self, end: Offset) -> None:
        """Remove entries of offsets at or after `end`."""
        slot = bisect_left(self._relative_offsets, end - self.base_offset)
        del self._timestamps[slot:], self._relative_offsets[slot:]
        self._shrink_file()

    def entries(self) -> list[tuple[int, Offset]]:
        """Return pairs of timestamp and offset, for tools and tests."""
        offsets = (self.base_offset + relative for relative in self._relative_offsets)
        return list(zip(self._timestamps, offsets, strict=True))

    def _packed(self, first: int) -> bytes:
        pairs = zip(self._timestamps[first:], self._relative_offsets[first:], strict=True)
        return b"".join(self.entry.pack(timestamp, relative) for timestamp, relative in pairs)
