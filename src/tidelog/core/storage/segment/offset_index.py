"""From an offset to a place in the segment's file near it.

One entry for about every `index.interval.bytes` of log: the *last* offset of a batch, as
distance from the segment's base offset, and the position at which that batch starts. A
look-up finds the last entry at or below the wanted offset and scans on from there; every
batch before that entry's ends below it, so nothing is missed.

File: eight bytes an entry, two big-endian int32. Always true: offsets and positions rise.
"""

from array import array
from bisect import bisect_left, bisect_right
from struct import Struct

from tidelog.core.storage.disk import Disk
from tidelog.core.storage.segment.sparse_index import InvalidIndex, SparseIndex, big_endian, rises
from tidelog.core.types import Offset


class OffsetIndex(SparseIndex):
    """The `.index` file of one segment."""

    __slots__ = ("_positions", "_relative_offsets")
    entry = Struct(">ii")

    def __init__(self, disk: Disk, path: str, base_offset: Offset) -> None:
        super().__init__(disk, path, base_offset)
        self._relative_offsets = array("i")
        self._positions = array("i")

    def __len__(self) -> int:
        return len(self._positions)

    def load(self, log_size: int) -> None:
        """Read the file. Raises InvalidIndex if it can't belong to a log of that size."""
        data = self._read_file()
        numbers = big_endian("i", data)
        self._relative_offsets, self._positions = numbers[0::2], numbers[1::2]
        # The batch at position 0 never gets an entry, so zeros are preallocated space.
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
        """Note that the batch which ends with `offset` starts at `position`."""
        relative = offset - self.base_offset
        assert not self._positions or relative > self._relative_offsets[-1], "offsets must rise"
        self._relative_offsets.append(relative)
        self._positions.append(position)

    def floor_by_offset(self, offset: Offset) -> int:
        """A batch position from which a scan meets the batch that holds `offset`."""
        slot = bisect_right(self._relative_offsets, offset - self.base_offset)
        return self._positions[slot - 1] if slot else 0

    def floor_by_position(self, position: int) -> int:
        """The last known batch position at or before `position`."""
        slot = bisect_right(self._positions, position)
        return self._positions[slot - 1] if slot else 0

    def positions_above(self, position: int) -> list[int]:
        """The known batch positions after `position`."""
        return list(self._positions[bisect_right(self._positions, position) :])

    def truncate_to(self, end: Offset) -> None:
        """Forget batches that end at or after `end`."""
        slot = bisect_left(self._relative_offsets, end - self.base_offset)
        del self._relative_offsets[slot:], self._positions[slot:]
        self._shrink_file()

    def entries(self) -> list[tuple[Offset, int]]:
        """(last offset, position), for people and tests."""
        offsets = (self.base_offset + relative for relative in self._relative_offsets)
        return list(zip(offsets, self._positions, strict=True))

    def _packed(self, first: int) -> bytes:
        pairs = zip(self._relative_offsets[first:], self._positions[first:], strict=True)
        return b"".join(self.entry.pack(relative, position) for relative, position in pairs)
