"""The last offset of each key, in a bounded piece of memory.

A table of slots of 24 bytes: sixteen for the key and eight for the offset. Keys of up to
fifteen bytes are kept as they are; of longer ones a digest is kept, of a hash that nobody
can find two keys for, or one producer could make the records of another disappear. Slots
that are never used cost nothing: the operating system gives memory when it is first touched.

Always true: the table is never fuller than three quarters, so a search ends.
"""

from hashlib import blake2b

from tidelog.core.types import Offset

SLOT_BYTES = 24
_KEY = 16
_PLAIN_MAX = _KEY - 1
_DIGEST_MARK = b"\xff"
_EMPTY = bytes(_KEY)
_PADDED = [bytes(_PLAIN_MAX - length) + bytes([length + 1]) for length in range(_KEY)]
"""What follows a short key: zeros, and its length plus one, so that no key is all zeros."""


class OffsetMap:
    """Key to last offset."""

    __slots__ = ("_keys", "_offsets", "_slots", "keys", "room")

    def __init__(self, map_bytes: int, keys_expected: int) -> None:
        """As large as `map_bytes` allows, but no larger than so many keys need."""
        self._slots = max(4, min(map_bytes // SLOT_BYTES, keys_expected * 4 // 3 + 1))
        self._keys = bytearray(self._slots * _KEY)
        self._offsets = memoryview(bytearray(self._slots * 8)).cast("q")
        self.keys = 0
        self.room = self._slots * 3 // 4
        """How many keys it takes."""

    def put(self, key: bytes, offset: Offset) -> bool:
        """Note that the key comes again there. False, and nothing is noted, if it is a key
        more than there is room for."""
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
        """The last offset; -1 for a key that was not noted."""
        kept = _kept(key)
        slot, found = self._find(kept)
        return self._offsets[slot] if found == kept else -1

    def _find(self, kept: bytes) -> tuple[int, bytearray]:
        """The slot of this key, or the free one that it would get, and what is in it."""
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
