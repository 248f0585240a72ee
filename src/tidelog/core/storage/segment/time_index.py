"""From a timestamp to an offset from which to look for it.

An entry says: up to this offset, no record of the segment is younger than this timestamp.
It is made together with the entries of the offset index, and once more when the segment
is closed, so that the last entry holds the segment's largest timestamp: retention by time
needs no look at the records.

File: twelve bytes an entry, big-endian int64 timestamp and int32 distance of the offset
(the last of the batch that has the timestamp) from the segment's base. Always true:
timestamps rise; a batch that is not younger than all before it makes no entry.
"""

from array import array
from bisect import bisect_left
from struct import Struct

from tidelog.core.storage.disk import Disk
from tidelog.core.storage.segment.sparse_index import InvalidIndex, SparseIndex, rises
from tidelog.core.types import Offset

NO_TIMESTAMP = -1


class TimeIndex(SparseIndex):
    """The `.timeindex` file of one segment."""

    __slots__ = ("_relative_offsets", "_timestamps")
    entry = Struct(">qi")

    def __init__(self, disk: Disk, path: str, base_offset: Offset) -> None:
        super().__init__(disk, path, base_offset)
        self._timestamps = array("q")
        self._relative_offsets = array("i")

    def __len__(self) -> int:
        return len(self._timestamps)

    def load(self) -> None:
        """Read the file. Raises InvalidIndex if it is none."""
        data = self._read_file()
        pairs = list(self.entry.iter_unpack(data))
        # One entry of zeros can be a record at the epoch of time; a tail of them is space.
        while len(pairs) > 1 and pairs[-1] == (0, 0):
            pairs.pop()
        self._timestamps = array("q", [timestamp for timestamp, _ in pairs])
        self._relative_offsets = array("i", [relative for _, relative in pairs])
        self._written = len(data) // self.entry.size
        self._shrink_file()
        if not rises(self._timestamps) or not rises(self._relative_offsets):
            raise InvalidIndex(f"{self.path}: entries do not rise")

    def append(self, timestamp: int, offset: Offset) -> None:
        """Note the largest timestamp so far; nothing if it is not new."""
        if timestamp > (self._timestamps[-1] if self._timestamps else NO_TIMESTAMP):
            self._timestamps.append(timestamp)
            self._relative_offsets.append(offset - self.base_offset)

    def last(self) -> tuple[int, Offset]:
        """The largest timestamp and its offset; (-1, base offset) for none."""
        if not self._timestamps:
            return NO_TIMESTAMP, self.base_offset
        return self._timestamps[-1], self.base_offset + self._relative_offsets[-1]

    def floor(self, timestamp: int) -> Offset:
        """An offset such that no record before it has `timestamp` or a later one."""
        slot = bisect_left(self._timestamps, timestamp)
        return self.base_offset + (self._relative_offsets[slot - 1] if slot else 0)

    def truncate_to(self, end: Offset) -> None:
        """Forget entries about offsets at or after `end`."""
        slot = bisect_left(self._relative_offsets, end - self.base_offset)
        del self._timestamps[slot:], self._relative_offsets[slot:]
        self._shrink_file()

    def entries(self) -> list[tuple[int, Offset]]:
        """(timestamp, offset), for people and tests."""
        offsets = (self.base_offset + relative for relative in self._relative_offsets)
        return list(zip(self._timestamps, offsets, strict=True))

    def _packed(self, first: int) -> bytes:
        pairs = zip(self._timestamps[first:], self._relative_offsets[first:], strict=True)
        return b"".join(self.entry.pack(timestamp, relative) for timestamp, relative in pairs)
