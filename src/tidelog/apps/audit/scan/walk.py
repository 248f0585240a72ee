"""Walks over the bytes of a segment: stretches of framed batches, and stretches that are none.

A batch whose checksum differs still says where the next one begins, if a sound batch begins
there. Else its length can't be believed, and the next sound batch is looked for byte by byte.

Always true: what is yielded covers the asked bytes in order, without a gap. Memory is bounded
by one batch (`BATCH_BYTES_MAX`), whatever the file claims; the buffer is used again for each
piece, so what is yielded is good until the next one is asked for.
"""

import os
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidelog.apps.audit.scan.headers import (
    Flags,
    Headers,
    Longs,
    checksums_fit,
    gather,
    last_offsets,
)
from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.record_batch import CRC_FROM, HEADER_SIZE, MAGIC, PREFIX_SIZE

BATCH_BYTES_MAX = 128 * 1024 * 1024
PIECE_BYTES = 4 * 1024 * 1024
_SPAN_MAX = 1 << 31
_MAGIC_AT = 16
_LENGTH_AND_MAGIC = Struct(">8xi4xb")


class Framed(NamedTuple):
    """Batches that lie back to back."""

    data: memoryview
    places: Longs
    """Where each begins in `data`."""
    positions: Longs
    """Where each begins in the file."""
    sizes: Longs
    headers: Headers
    last: Longs
    sound: Flags
    """Whether its checksum fits."""

    def only(self, which: slice | Flags) -> "Framed":
        """Some of them."""
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
    """Bytes that are no batches."""

    position: int
    end: int
    reason: str
    magic: int
    zeros: bool
    """Nothing but zeros."""
    first: bytes
    """The first bytes of it."""


Stretch: TypeAlias = Framed | Broken


class SegmentWalk:
    """One pass over the batches that begin in `[start, end)` of an open file."""

    def __init__(self, fd: int, start: int, end: int, size: int, base_offset: int) -> None:
        self._fd = fd
        self._end = end
        self._size = size
        """Of the whole file: a batch may not reach beyond."""
        self._base_offset = base_offset
        """A batch that is looked for lies within reach of an index from here on."""
        self._buffer = bytearray(min(PIECE_BYTES, max(size - start, HEADER_SIZE)))
        self._view = memoryview(self._buffer)
        self._array = np.frombuffer(self._buffer, np.uint8)
        self._at = start
        """Position of the buffer's first byte in the file."""
        self._have = 0
        self.position = start
        """Where the walk is; at the end, where it ended."""

    def stretches(self) -> Iterator[Stretch]:
        """All of it, in order."""
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
        """Have `length` bytes from `position` on in the buffer, or all that the file has."""
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
        """Move what is kept to the front, in a larger buffer if need be."""
        if length > len(self._buffer):
            larger = bytearray(length)
            larger[:kept] = self._view[here : here + kept]
            self._buffer, self._view = larger, memoryview(larger)
            self._array = np.frombuffer(larger, np.uint8)
        elif kept:
            self._buffer[:kept] = bytes(self._view[here : here + kept])

    def _chain(self) -> tuple[list[int], list[int], int]:
        """Batches that are whole in the buffer, one behind the other, and how many bytes the
        next would need (more than there can be: it is none)."""
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
            if self._sound_after(bad, at, sound):
                continue
            cut = bad
            after = self._at + places[bad]
            broken = self._around(after, after + sizes[bad])
            break
        framed = Framed(self._view, at, at + self._at, size, headers, last, sound)
        if broken is None or broken.end == broken.position:
            # The last one's checksum may differ: its length is right all the same.
            keep = cut if broken is None else cut + 1
            self.position = self._at + places[keep - 1] + sizes[keep - 1]
            yield from self._some(framed, keep)
            return
        self.position = broken.position
        yield from self._some(framed, cut)
        self.position = broken.end
        yield broken

    def _some(self, framed: Framed, count: int) -> Iterator[Framed]:
        if count:
            yield framed.only(slice(count))

    def _sound_after(self, bad: int, places: Longs, sound: Flags) -> bool:
        """Whether a sound batch, or the file's end, is where this one says it ends."""
        return bool(bad + 1 < len(places) and sound[bad + 1])

    def _around(self, position: int, end: int) -> Broken:
        """A batch with a wrong checksum and nothing known behind it. Empty if what follows
        begins where it says."""
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
        """The stretch from `position` to the next sound batch, or to the end."""
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
        """Positions at which the fields of a header could be right."""
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
