"""Batch headers as one numpy array: 61 bytes for each header, with all its fields.

Invariant: the array is a copy, so it stays valid when the buffer is reused.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidelog.apps.spark.decoding.batch_headers import HEADER
from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.record_batch import CRC_FROM, HEADER_SIZE

Headers: TypeAlias = NDArray[Any]
"""An array of dtype HEADER."""
Longs: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

WINDOW = 4096
"""Number of offsets in a window. Replicas are compared by one digest per window."""

OFFSET_MAX = np.iinfo(np.int64).max

_IN_HEADER = np.arange(HEADER_SIZE)
_PRIMES = [np.uint64(p) for p in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)]
_SHIFT = np.uint64(31)


def gather(data: NDArray[np.uint8], places: Longs) -> Headers:
    """Return the headers that begin at `places` in `data`."""
    rows = data[places[:, None] + _IN_HEADER]
    return rows.reshape(-1).view(HEADER)


def checksums_fit(view: memoryview, places: Longs, sizes: Longs, headers: Headers) -> Flags:
    """Return, for each batch, whether it matches its checksum."""
    found = [
        crc32c(view[at + CRC_FROM : at + size])
        for at, size in zip(places.tolist(), sizes.tolist(), strict=True)
    ]
    fits: Flags = np.asarray(found, np.uint32) == headers["crc"]
    return fits


def last_offsets(headers: Headers) -> Longs:
    """Return the last offset of each batch; the base offset if the sum overflows."""
    base = headers["base_offset"].astype(np.int64)
    delta = headers["last_offset_delta"].astype(np.int64)
    last: Longs = np.where(base > OFFSET_MAX - np.maximum(delta, 0), base, base + delta)
    return last


def digests(headers: Headers, last: Longs) -> Longs:
    """Return a digest for each batch, from its offsets, leader epoch and checksum.

    The digests of several batches are combined with exclusive or, in any order.
    """
    mixed = headers["base_offset"].astype(np.uint64)
    for part in (last, headers["leader_epoch"], headers["crc"]):
        for prime in _PRIMES[:2]:
            mixed = (mixed ^ (mixed >> _SHIFT)) * prime
        mixed = mixed + part.astype(np.int64).view(np.uint64) * _PRIMES[2]
    mixed = (mixed ^ (mixed >> _SHIFT)) * _PRIMES[0]
    result: Longs = (mixed ^ (mixed >> _SHIFT)).view(np.int64)
    return result
