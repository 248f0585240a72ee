"""Which partition a key goes to, for a whole column, as Kafka's Java client decides it.

The rule for one key is that of shell/client/partitioner, and its tests hold both together.
"""

from typing import Any

import numpy as np
import pyarrow.compute as pc

from tidelog.apps.spark.decoding.engines import NUMBA, chosen_engine
from tidelog.apps.spark.encoding.row_columns import as_binary

_SEED = 0x9747B28C
_M = np.uint64(0x5BD1E995)
_MASK = np.uint64(0xFFFFFFFF)


def partitions_of_keys(keys: Any, count: int, engine: str | None = None) -> Any:
    """The partition of each key among `count`, as 32-bit numbers; -1 where the key is null."""
    keys = as_binary(keys, "key")
    if chosen_engine(engine) == NUMBA:
        from tidelog.apps.spark.encoding.kernel_records import hash_keys

        return hash_keys(keys, count)
    hashes = _murmur2(pc.fill_null(keys, b""))
    found = ((hashes & np.uint64(0x7FFFFFFF)) % np.uint64(count)).astype(np.int32)
    if keys.null_count:
        found[keys.is_null().to_numpy(zero_copy_only=False)] = -1
    return found


def _murmur2(keys: Any) -> Any:
    """Word by word, for all keys that have so many at once; 64-bit numbers cut to 32 bits."""
    _validity, offsets, data = keys.buffers()
    ends = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    starts, lengths = ends[:-1].astype(np.int64), np.diff(ends).astype(np.int64)
    raw = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    raw = np.concatenate((raw, np.zeros(4, np.uint8)))  # a last word may reach past the end
    value = (np.uint64(_SEED) ^ lengths.astype(np.uint64)) & _MASK
    reading = np.flatnonzero(lengths >= 4)
    place = 0
    while len(reading):
        word = _mixed(_words(raw, starts[reading] + place))
        word ^= word >> np.uint64(24)
        value[reading] = _mixed(value[reading]) ^ _mixed(word)
        place += 4
        reading = reading[lengths[reading] >= place + 4]
    tails = np.flatnonzero(lengths & 3)
    rest = (lengths[tails] & 3).astype(np.uint64)
    word = _words(raw, starts[tails] + (lengths[tails] & ~3))
    word &= (np.uint64(1) << (rest * np.uint64(8))) - np.uint64(1)
    value[tails] = _mixed(value[tails] ^ word)
    value = _mixed(value ^ (value >> np.uint64(13)))
    return value ^ (value >> np.uint64(15))


def _mixed(value: Any) -> Any:
    return value * _M & _MASK


def _words(raw: Any, at: Any) -> Any:
    """Four bytes each, the low one first."""
    word = np.zeros(len(at), np.uint64)
    for number in range(4):
        word |= raw[at + number].astype(np.uint64) << np.uint64(8 * number)
    return word
