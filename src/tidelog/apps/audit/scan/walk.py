"""Walk over the bytes of a segment: yield pieces with batches, and pieces without valid batches.

The headers of a piece are one numpy array: 61 bytes for each header, with all its fields. The
length of a batch with a wrong checksum is trusted only if a valid batch begins where it ends.
Otherwise the walk searches for the next valid batch byte by byte.

Invariant: the pieces cover the requested bytes in order, without a gap. Memory is limited to one
batch (`BATCH_BYTES_MAX`), whatever length the file claims. The buffer is reused, so a piece is
valid only until the next one; its headers are a copy.
"""

import os
from collections.abc import Iterator
from struct import Struct
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidelog.apps.spark.decoding.batch_headers import HEADER
from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.record_batch import CRC_FROM, HEADER_SIZE, MAGIC, PREFIX_SIZE

# -- headers --------------------------------------------------------------------------------------


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


# -- the walk -------------------------------------------------------------------------------------


BATCH_BYTES_MAX = 128 * 1024 * 1024
PIECE_BYTES = 4 * 1024 * 1024
_SPAN_MAX = 1 << 31
_MAGIC_AT = 16
_LENGTH_AND_MAGIC = Struct(">8xi4xb")


class Framed(NamedTuple):
    """Batches that follow each other without a gap."""

    data: memoryview
    places: Longs
    """Where each batch begins in `data`."""
    positions: Longs
    """Where each batch begins in the file."""
    sizes: Longs
    headers: Headers
    last: Longs
    sound: Flags
    """Whether each batch matches its checksum."""

    def only(self, which: slice | Flags) -> "Framed":
        """Return only the selected batches."""
        return Framed(
            self.data,
            self.places[which],
            self.positions[which],
            self.sizes[which],
            self.headers[which],
            self.last[which],
            self.sound[which],
        )


class Broken(NamedTuple):
    """Bytes that are not a valid batch."""

    position: int
    end: int
    reason: str
    magic: int
    zeros: bool
    """Whether all bytes are zero."""
    first: bytes
    """The first bytes, at most 1024."""


Stretch: TypeAlias = Framed | Broken


class SegmentWalk:
    """One pass over the batches that begin in `[start, end)` of an open file."""

    def __init__(self, fd: int, start: int, end: int, size: int, base_offset: int) -> None:
        self._fd = fd
        self._end = end
        self._size = size
        """Size of the whole file: no batch may extend past it."""
        self._base_offset = base_offset
        """The search accepts only base offsets within 2^31 of it, the range of an index."""
        self._buffer = bytearray(min(PIECE_BYTES, max(size - start, HEADER_SIZE)))
        self._view = memoryview(self._buffer)
        self._array = np.frombuffer(self._buffer, np.uint8)
        self._at = start
        """Position of the buffer's first byte in the file."""
        self._have = 0
        self.position = start
        """The current position in the file; after the walk, where it ended."""

    def stretches(self) -> Iterator[Stretch]:
        """Yield all pieces in file order."""
        while self.position < self._end:
            self._load(self.position, HEADER_SIZE)
            places, sizes, wanted = self._chain()
            if places:
                yield from self._framed(places, sizes)
                continue
            if wanted <= self._size - self.position and wanted <= BATCH_BYTES_MAX:
                self._load(self.position, wanted)
                if self._have - (self.position - self._at) >= wanted:
                    continue
                self._size = self._at + self._have  # a live file was truncated
                self._end = min(self._end, self._size)
                continue
            yield self._skip_broken(self.position)

    def _load(self, position: int, length: int) -> None:
        """Read at least `length` bytes from `position` into the buffer, or up to the file end."""
        here = position - self._at
        if self._have - here >= length:
            return
        kept = max(self._have - here, 0)
        self._buffer_of(length, here, kept)
        self._at, self._have = position, kept
        while self._have < len(self._buffer) and self._at + self._have < self._size:
            room = self._view[self._have : min(len(self._buffer), self._size - self._at)]
            got = os.preadv(self._fd, [room], self._at + self._have)
            if not got:
                break
            self._have += got

    def _buffer_of(self, length: int, here: int, kept: int) -> None:
        """Move the kept bytes to the front; allocate a larger buffer if needed."""
        if length > len(self._buffer):
            larger = bytearray(length)
            larger[:kept] = self._view[here : here + kept]
            self._buffer, self._view = larger, memoryview(larger)
            self._array = np.frombuffer(larger, np.uint8)
        elif kept:
            self._buffer[:kept] = bytes(self._view[here : here + kept])

    def _chain(self) -> tuple[list[int], list[int], int]:
        """Return places and sizes of complete batches in the buffer, and the size of the next.

        The size of the next one is 2^62 if its header is not valid.
        """
        at, have = self.position - self._at, self._have
        stop = min(have, self._end - self._at)
        places: list[int] = []
        sizes: list[int] = []
        unpack = _LENGTH_AND_MAGIC.unpack_from
        while at < stop and have - at >= HEADER_SIZE:
            length, magic = unpack(self._buffer, at)
            size = length + PREFIX_SIZE
            if magic != MAGIC or size < HEADER_SIZE:
                return places, sizes, 1 << 62
            if at + size > have:
                return places, sizes, size
            places.append(at)
            sizes.append(size)
            at += size
        return places, sizes, HEADER_SIZE

    def _framed(self, places: list[int], sizes: list[int]) -> Iterator[Stretch]:
        at, size = np.asarray(places, np.int64), np.asarray(sizes, np.int64)
        headers = gather(self._array, at)
        sound = checksums_fit(self._view, at, size, headers)
        last = last_offsets(headers)
        cut = len(places)
        broken: Broken | None = None
        for bad in np.flatnonzero(~sound).tolist():
            if bad + 1 < len(at) and sound[bad + 1]:
                continue  # the next batch is valid, so the length is right
            cut = bad
            after = self._at + places[bad]
            broken = self._around(after, after + sizes[bad])
            break
        framed = Framed(self._view, at, at + self._at, size, headers, last, sound)
        if broken is None or broken.end == broken.position:
            # The last batch may have a wrong checksum, but its length is right.
            keep = cut if broken is None else cut + 1
            self.position = self._at + places[keep - 1] + sizes[keep - 1]
            yield framed.only(slice(keep))
            return
        self.position = broken.position
        if cut:
            yield framed.only(slice(cut))
        self.position = broken.end
        yield broken

    def _around(self, position: int, end: int) -> Broken:
        """Return the invalid bytes from a batch with a wrong checksum to the next valid batch.

        Empty if the batch ends at the end of the file, or where a valid batch begins.
        """
        if end >= self._size or self._is_sound(end):
            return Broken(position, position, "", MAGIC, False, b"")
        return self._search(position, "its checksum is wrong and no batch starts where it ends")

    def _is_sound(self, position: int) -> bool:
        with_room = os.pread(self._fd, HEADER_SIZE, position)
        if len(with_room) < HEADER_SIZE:
            return False
        length, magic = _LENGTH_AND_MAGIC.unpack_from(with_room)
        size = length + PREFIX_SIZE
        if magic != MAGIC or not HEADER_SIZE <= size <= min(BATCH_BYTES_MAX, self._size - position):
            return False
        body = os.pread(self._fd, size - CRC_FROM, position + CRC_FROM)
        return crc32c(body) == int.from_bytes(with_room[17:CRC_FROM])

    def _skip_broken(self, position: int) -> Broken:
        have = os.pread(self._fd, HEADER_SIZE, position)
        if len(have) < HEADER_SIZE:
            reason = f"{len(have)} bytes are too few for a batch header"
        else:
            length, magic = _LENGTH_AND_MAGIC.unpack_from(have)
            reason = f"magic {magic}" if magic != MAGIC else f"length {length}"
        broken = self._search(position, reason)
        self.position = broken.end
        return broken

    def _search(self, position: int, reason: str) -> Broken:
        """Return the bytes from `position` to the next valid batch, or to the end."""
        first = os.pread(self._fd, 1024, position)
        magic = first[_MAGIC_AT] if len(first) > _MAGIC_AT else -1
        zeros = True
        at, stop = position, min(self._end, self._size)
        while at < stop:
            piece = os.pread(self._fd, PIECE_BYTES + HEADER_SIZE, at)
            here = np.frombuffer(piece, np.uint8)
            found = next(
                (p for p in self._candidates(here, at, position) if self._is_sound(p)), None
            )
            until = found if found is not None else min(at + PIECE_BYTES, stop)
            zeros = zeros and not here[: until - at].any()
            if found is not None:
                return Broken(position, found, reason, magic, zeros, first)
            if not piece:
                break
            at += PIECE_BYTES
        return Broken(position, stop, reason, magic, zeros, first)

    def _candidates(self, here: NDArray[np.uint8], at: int, after: int) -> list[int]:
        """Return positions where the header fields have plausible values."""
        places = np.flatnonzero(here[_MAGIC_AT:] == MAGIC)
        places = places[(places + HEADER_SIZE <= len(here)) & (places < PIECE_BYTES)]
        places = places[places + at > after]
        if not len(places):
            return []
        headers = gather(here, places)
        base = headers["base_offset"].astype(np.int64)
        fits = (base >= self._base_offset) & (base < self._base_offset + _SPAN_MAX)
        fits &= headers["length"] >= HEADER_SIZE - PREFIX_SIZE
        fits &= headers["last_offset_delta"] >= 0
        return [int(place) + at for place in places[fits]]
