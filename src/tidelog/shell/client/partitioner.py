"""Which partition a record goes to, as Kafka's Java client decides it.

A record with a key: the key's murmur2, so that all clients of that kind put the same key into
the same partition. A record without: one partition until a batch is full, then another.

Always true: the choice for a key depends on the key and the number of partitions alone.
"""

import random
from collections.abc import Sequence
from struct import Struct

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_WORD = Struct("<I")


def murmur2(data: bytes) -> int:
    """The 32-bit hash of Austin Appleby, unsigned, with the seed that Kafka uses."""
    length = len(data)
    value = _SEED ^ length
    whole = length & ~3
    for (word,) in _WORD.iter_unpack(data[:whole]):
        mixed = word * _M & _MASK
        mixed ^= mixed >> 24
        value = (value * _M & _MASK) ^ (mixed * _M & _MASK)
    if length & 3:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    value = (value ^ (value >> 13)) * _M & _MASK
    return value ^ (value >> 15)


def partition_of_key(key: bytes, count: int) -> int:
    """The partition of a key among `count`."""
    return (murmur2(key) & 0x7FFFFFFF) % count


class StickyPartition:
    """A partition for records without a key; `move` when its batch is full."""

    def __init__(self, partitions: Sequence[int]) -> None:
        self._partitions = list(partitions)
        self.now = random.choice(self._partitions)

    def move(self) -> None:
        """Go on with another one, if there is another."""
        others = [each for each in self._partitions if each != self.now]
        self.now = random.choice(others or self._partitions)
