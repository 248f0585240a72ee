"""The partition of a record, chosen as Kafka's Java client does.

With a key: by the key's murmur2 hash, so that all such clients put the same key into the same
partition. Without a key: one partition until its batch is full, then another.

Invariant: the partition of a key depends only on the key and the partition count.
"""

import random
from collections.abc import Sequence
from struct import Struct

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_WORD = Struct("<I")


def murmur2(data: bytes) -> int:
    """Return the unsigned 32-bit murmur2 hash with Kafka's seed."""
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
    """Return the partition of a key among `count` partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % count


class StickyPartition:
    """A partition for records without a key; `move` when its batch is full."""

    def __init__(self, partitions: Sequence[int]) -> None:
        self._partitions = list(partitions)
        self.now = random.choice(self._partitions)

    def move(self) -> None:
        """Choose another partition, if there is another."""
        others = [each for each in self._partitions if each != self.now]
        self.now = random.choice(others or self._partitions)
