"""Records to columns with numpy and Arrow alone, for machines without numba.

Where each record begins is found one by one, which is all that must be; everything else is
done for all records of a chunk at once. It gives the rows that the kernel gives, a few times
slower, and refuses what the kernel refuses.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from tidelog.apps.spark import columns
from tidelog.apps.spark.decoding import unpacking
from tidelog.apps.spark.decoding.shared_columns import as_text, constant_columns
from tidelog.apps.spark.decoding.unpacking import Unpacked
from tidelog.core.record.record_batch import CorruptRecord
from tidelog.core.record.varint import read_varint
from tidelog.core.types import Offset

Int64s: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
Bytes: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint8]]

_INT64_MAX = 2**63 - 1
_INT64_MIN = -(2**63)
_MS_MAX = _INT64_MAX // 1000
_BYTES_32 = 5
_BYTES_64 = 10


@dataclass(slots=True)
class _Pieces:
    """Where byte strings lie in `data`, in their order there; a length of -1 is null."""

    data: Bytes
    starts: Int64s
    lengths: Int64s

    def part(self, chosen: Any) -> "_Pieces":
        return _Pieces(self.data, self.starts[chosen], self.lengths[chosen])

    def sizes(self) -> Int64s:
        return np.maximum(self.lengths, 0)

    def column(self) -> Any:
        """A binary column. Every second gap between `edges` is a piece."""
        count = len(self.starts)
        if not count:
            return pa.array([], pa.binary())
        edges = np.empty(2 * count, np.int32)
        edges[0::2] = self.starts
        edges[1::2] = self.starts + self.sizes()
        buffers = [None, pa.py_buffer(edges), pa.py_buffer(self.data)]
        everything = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers, 0)
        nulls = self.lengths < 0
        picked = pa.array(np.arange(0, 2 * count, 2), mask=nulls if nulls.any() else None)
        return everything.take(picked)


@dataclass(slots=True)
class _Records:
    """The records of a chunk, one entry each."""

    batch: Int64s
    delta: Int64s
    time_delta: Int64s
    keys: _Pieces
    values: _Pieces
    header_counts: Int64s
    names: _Pieces
    contents: _Pieces


class Vectorised:
    """Makes RecordBatches of one chunk at a time."""

    def __init__(
        self, schema: Any, topic: str, partition: int, rows: int, data_bytes: int, keep: bool
    ) -> None:
        del keep  # everything is made anew anyway
        self._schema = schema
        self._rows = rows
        self._data_bytes = data_bytes
        self._constants = constant_columns(schema, topic, partition, rows)

    def fill(self, unpacked: Unpacked, start: Offset, end: Offset) -> Iterator[Any]:
        """The rows of these batches. Raises CorruptRecord."""
        found = _find_records(unpacked)
        offsets = unpacked.batches[found.batch, unpacking.BASE_OFFSET] + found.delta
        inside = (offsets >= start) & (offsets < end)
        header_ends = np.concatenate(([0], np.cumsum(found.header_counts)))
        chosen = np.flatnonzero(inside)
        if len(chosen):
            # Offsets rise, so what is inside is one stretch.
            first, last = int(chosen[0]), int(chosen[-1]) + 1
            sizes = self._sizes(found, header_ends)
            for begin, stop in self._cuts(sizes[first:last]):
                part = slice(first + begin, first + stop)
                yield self._batch(unpacked, found, part, header_ends)

    def rest(self) -> Iterator[Any]:
        """Nothing is kept back."""
        yield from ()

    def _sizes(self, found: _Records, header_ends: Int64s) -> Int64s:
        sizes = np.zeros(len(found.batch), np.int64)
        if columns.KEY in self._schema.names:
            sizes += found.keys.sizes()
        if columns.VALUE in self._schema.names:
            sizes += found.values.sizes()
        if columns.HEADERS in self._schema.names:
            both = np.concatenate(([0], np.cumsum(found.names.sizes() + found.contents.sizes())))
            sizes += np.diff(both[header_ends])
        return sizes

    def _cuts(self, sizes: Int64s) -> Iterator[tuple[int, int]]:
        ends = np.cumsum(sizes)
        begin = 0
        while begin < len(sizes):
            before = int(ends[begin] - sizes[begin])
            fits = int(np.searchsorted(ends, before + self._data_bytes, side="right"))
            stop = min(max(fits, begin + 1), begin + self._rows, len(sizes))
            yield begin, stop
            begin = stop

    def _batch(self, unpacked: Unpacked, found: _Records, part: slice, header_ends: Int64s) -> Any:
        rows = part.stop - part.start
        batches = unpacked.batches[found.batch[part]]
        arrays = []
        for field in self._schema:
            if field.name in self._constants:
                column = self._constants[field.name].slice(0, rows)
            elif field.name == columns.KEY:
                column = found.keys.part(part).column()
            elif field.name == columns.VALUE:
                column = found.values.part(part).column()
            elif field.name == columns.HEADERS:
                column = _headers_column(found, part, header_ends)
            elif field.name == columns.OFFSET:
                column = pa.array(batches[:, unpacking.BASE_OFFSET] + found.delta[part])
            elif field.name == columns.TIMESTAMP:
                column = pa.array(_microseconds(batches, found.time_delta[part])).view(field.type)
            elif field.name == columns.TIMESTAMP_TYPE:
                column = pa.array(batches[:, unpacking.IS_APPEND_TIME].astype(np.int32))
            else:
                column = pa.array(batches[:, unpacking.EPOCH].astype(np.int32))
            arrays.append(column)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _headers_column(found: _Records, part: slice, header_ends: Int64s) -> Any:
    first, last = int(header_ends[part.start]), int(header_ends[part.stop])
    names = found.names.part(slice(first, last)).column()
    contents = found.contents.part(slice(first, last)).column()
    ends = (header_ends[part.start : part.stop + 1] - first).astype(np.int32)
    pairs = pa.StructArray.from_arrays(
        [as_text(names, odd=True), contents], fields=list(columns.HEADER_FIELDS)
    )
    return pa.ListArray.from_arrays(
        ends,
        pairs,
        type=columns.ARROW_TYPES[columns.HEADERS],
        mask=pa.array(found.header_counts[part] == 0),
    )


def _microseconds(batches: unpacking.Table, delta: Int64s) -> Int64s:
    base = batches[:, unpacking.BASE_TIME]
    delta = np.where(batches[:, unpacking.IS_APPEND_TIME] != 0, 0, delta)
    with np.errstate(over="ignore"):
        time = base + delta
        over = ((base ^ time) & (delta ^ time)) < 0
        micros = time * 1000
    micros = np.where(time > _MS_MAX, _INT64_MAX, np.where(time < -_MS_MAX, _INT64_MIN, micros))
    return np.where(over, np.where(base > 0, _INT64_MAX, _INT64_MIN), micros)


# -- finding ----------------------------------------------------------------------------------


def _find_records(unpacked: Unpacked) -> _Records:
    data, positions = _as_one(unpacked)
    batch, at, end = _bounds(data, positions, unpacked.batches)
    time_delta, at = _varints(data, at + 1, end, _BYTES_64)
    delta, at = _varints(data, at, end, _BYTES_32)
    _check_deltas(batch, delta, unpacked.batches)
    keys, at = _pieces(data, at, end)
    values, at = _pieces(data, at, end)
    counts, at = _varints(data, at, end, _BYTES_32)
    names, contents = _find_headers(data, at, end, counts)
    return _Records(batch, delta, time_delta, keys, values, counts, names, contents)


def _as_one(unpacked: Unpacked) -> tuple[Bytes, Int64s]:
    """The batches' records in one array, in their order, and where each of them begins."""
    held = [np.frombuffer(each, np.uint8) for each in unpacked.held if len(each)]
    held.sort(key=unpacking.address)
    begins = [unpacking.address(each) for each in held]
    wanted = unpacked.batches[:, unpacking.ADDRESS]
    if len(held) == 1:
        return held[0], wanted - begins[0]
    parts = [np.empty(0, np.uint8)]
    lengths = unpacked.batches[:, unpacking.LENGTH]
    for begin, length in zip(wanted.tolist(), lengths.tolist(), strict=True):
        if length:
            which = bisect_right(begins, begin) - 1
            parts.append(held[which][begin - begins[which] :][:length])
    return np.concatenate(parts), np.cumsum(lengths) - lengths


def _bounds(
    data: Bytes, positions: Int64s, batches: unpacking.Table
) -> tuple[Int64s, Int64s, Int64s]:
    """For each record its batch, and where it begins (behind its length) and ends."""
    view = data.data
    starts: list[int] = []
    ends: list[int] = []
    counts = batches[:, unpacking.COUNT].tolist()
    lengths = batches[:, unpacking.LENGTH].tolist()
    for position, size, count in zip(positions.tolist(), lengths, counts, strict=True):
        at, stop = position, position + size
        for _ in range(count):
            length, at = read_varint(view, at)
            starts.append(at)
            at += length
            if length <= 0 or at > stop:
                raise CorruptRecord(f"record of {length} bytes")
            ends.append(at)
        if at != stop:
            raise CorruptRecord(f"{stop - at} bytes after the last record")
    number = np.repeat(np.arange(len(counts)), counts)
    return number, np.array(starts, np.int64), np.array(ends, np.int64)


def _check_deltas(batch: Int64s, delta: Int64s, batches: unpacking.Table) -> None:
    if (delta < 0).any() or (delta > batches[batch, unpacking.LAST_DELTA]).any():
        raise CorruptRecord("a record out of its batch")
    if ((batch[1:] == batch[:-1]) & (delta[1:] <= delta[:-1])).any():
        raise CorruptRecord("records whose offsets do not rise")


def _varints(data: Bytes, at: Int64s, end: Int64s, bytes_max: int) -> tuple[Int64s, Int64s]:
    """The numbers at `at`, and the places after them."""
    raw = np.zeros(len(at), np.int64)
    at = at.copy()
    last_bits = 0x0F if bytes_max == _BYTES_32 else 0x01
    reading: Any = slice(None)
    for number in range(bytes_max):
        places = at[reading]
        if (places >= end[reading]).any():
            break
        byte = data[places].astype(np.int64)
        raw[reading] |= (byte & 0x7F) << (7 * number)
        at[reading] = places + 1
        if number == bytes_max - 1 and (byte > last_bits).any():
            break
        more = byte >= 0x80
        reading = np.flatnonzero(more) if isinstance(reading, slice) else reading[more]
        if not len(reading):
            return ((raw >> 1) & _INT64_MAX) ^ -(raw & 1), at
    raise CorruptRecord("no number where one must be")


def _pieces(data: Bytes, at: Int64s, end: Int64s) -> tuple[_Pieces, Int64s]:
    lengths, at = _varints(data, at, end, _BYTES_32)
    if (lengths < -1).any() or (lengths > end - at).any():
        raise CorruptRecord("bytes that reach past their record")
    return _Pieces(data, at, lengths), at + np.maximum(lengths, 0)


def _find_headers(data: Bytes, at: Int64s, end: Int64s, counts: Int64s) -> tuple[_Pieces, _Pieces]:
    """All headers, the first of each record, then the second ...; in the end by record."""
    if (counts < 0).any() or (counts > (end - at) // 2).any():
        raise CorruptRecord("more headers than there is room for")
    at = at.copy()
    parts = []
    left = np.flatnonzero(counts)
    number = 0
    while len(left):
        names, after = _pieces(data, at[left], end[left])
        if (names.lengths < 0).any():
            raise CorruptRecord("header without a key")
        contents, after = _pieces(data, after, end[left])
        at[left] = after
        parts.append((left, names, contents))
        number += 1
        left = left[counts[left] > number]
    if (at != end).any():
        raise CorruptRecord("a record that ends off its length")
    none = np.empty(0, np.int64)
    order = np.argsort(np.concatenate([none, *(one[0] for one in parts)]), kind="stable")
    both: tuple[list[_Pieces], ...] = ([one[1] for one in parts], [one[2] for one in parts])
    names, contents = (
        _Pieces(
            data,
            np.concatenate([none, *(one.starts for one in found)])[order],
            np.concatenate([none, *(one.lengths for one in found)])[order],
        )
        for found in both
    )
    return names, contents
