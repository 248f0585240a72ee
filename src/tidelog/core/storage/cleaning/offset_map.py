"""A hash table of keys and their last offsets, with a fixed amount of memory.

Each slot has 24 bytes: sixteen for the key and eight for the offset. Keys of up to fifteen bytes
are stored as they are; longer ones as a cryptographic digest: with a weaker hash a producer could
craft a key that removes another producer's records. Unused slots need no memory: the operating
system allocates pages when they are first written.

Invariant: at most three quarters of the slots are used, so a search ends.
"""

from hashlib import blake2b

from tidelog.core.types import Offset

SLOT_BYTES = 24
_KEY = 16
_PLAIN_MAX = _KEY - 1
_DIGEST_MARK = b"\xff"
_EMPTY = bytes(_KEY)
_PADDED = [bytes(_PLAIN_MAX - length) + bytes([length + 1]) for length in range(_KEY)]
"""The padding of short keys: zeros, and the length plus one, so that no slot is all zeros."""


class OffsetMap:
    """A map from a key to its last offset."""

    __slots__ = ("_keys", "_offsets", "_slots", "keys", "room")

    def __init__(self, map_bytes: int, keys_expected: int) -> None:
        """Create a map of at most `map_bytes`, but not larger than `keys_expected` need."""
        self._slots = max(4, min(map_bytes // SLOT_BYTES, keys_expected * 4 // 3 + 1))
        self._keys = bytearray(self._slots * _KEY)
        self._offsets = memoryview(bytearray(self._slots * 8)).cast("q")
        self.keys = 0
        self.room = self._slots * 3 // 4
        """The most keys that fit."""

    def put(self, key: bytes, offset: Offset) -> bool:
        """Set the offset of a key. Return False, and change nothing, if the map is full."""
        kept = _kept(key)
        slot, found = self._find(kept)
        if found != kept:
            if self.keys >= self.room:
                return False
            self._keys[slot * _KEY : slot * _KEY + _KEY] = kept
            self.keys += 1
        self._offsets[slot] = offset
        return True

    def get(self, key: bytes) -> Offset:
        """Return the last offset of a key; -1 for an unknown key."""
        kept = _kept(key)
        slot, found = self._find(kept)
        return self._offsets[slot] if found == kept else -1

    def _find(self, kept: bytes) -> tuple[int, bytearray]:
        """Return the slot of this key, or a free one, and the slot's content."""
        keys, slots = self._keys, self._slots
        slot = hash(kept) % slots
        while True:
            found = keys[slot * _KEY : slot * _KEY + _KEY]
            if found in (kept, _EMPTY):
                return slot, found
            slot += 1
            if slot == slots:
                slot = 0


def _kept(key: bytes) -> bytes:
    length = len(key)
    if length <= _PLAIN_MAX:
        return key + _PADDED[length]
    return blake2b(key, digest_size=_PLAIN_MAX).digest() + _DIGEST_MARK
