"""Encode rows into records, and hash keys to partitions, in machine code.

`encode` appends the records of some rows to an open batch. It stops at the last row, when the
batch is full, or when memory is too small for the next record. `KernelRecords` passes the addresses
of Arrow columns to `encode`.

Invariant: `encode` writes only within the room in `state`, and reads rows only at the addresses
that Arrow gives.
"""

from typing import Any, TypeAlias

import numpy as np

from tidelog.apps.spark.decoding.jit import compiled, copy, load8, load32, store8
from tidelog.apps.spark.encoding.encoder import (
    Int64s,
    OpenBatch,
    Rows,
    as_binary,
    header_columns,
)

Numbers: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
SmallNumbers: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int32]]

# The results of `encode`.
END = 0
FULL = 1
GROW = 2

# `state`: the fields of an open batch.
USED, COUNT, BASE_TIME, MAX_TIME, NEXT_ROW, ROOM, SIZE_MAX, COUNT_MAX, NEED = range(9)
STATE_FIELDS = 9

# `columns`: addresses; 0 if a column or its validity bitmap is missing. The last five are the
# index of the first row in the buffers of each column.
KEY_ENDS, KEY_DATA, KEY_VALID, VALUE_ENDS, VALUE_DATA, VALUE_VALID = range(6)
LIST_ENDS, LIST_VALID, NAME_ENDS, NAME_DATA, CONTENT_ENDS, CONTENT_DATA, CONTENT_VALID = range(
    6, 13
)
KEY_OFF, VALUE_OFF, LIST_OFF, NAME_OFF, CONTENT_OFF = range(13, 18)
COLUMN_FIELDS = 18


@compiled()
def _size(number: int) -> int:
    """Return the encoded size of a zig-zag number."""
    raw = (number << 1) ^ (number >> 63)
    size = 1
    while raw & ~0x7F:
        raw = (raw >> 7) & 0x01FF_FFFF_FFFF_FFFF
        size += 1
    return size


@compiled()
def _put(at: int, number: int) -> int:
    """Write a zig-zag number; return the address after it."""
    raw = (number << 1) ^ (number >> 63)
    while raw & ~0x7F:
        store8(at, (raw & 0x7F) | 0x80)
        raw = (raw >> 7) & 0x01FF_FFFF_FFFF_FFFF
        at += 1
    store8(at, raw)
    return at + 1


@compiled()
def _find(ends: int, data: int, valid: int, row: int) -> tuple[int, int]:
    """Return the address and length of a row's bytes; length -1 means null."""
    if ends == 0 or (valid != 0 and not (load8(valid + (row >> 3)) >> (row & 7)) & 1):
        return 0, -1
    begin = load32(ends + 4 * row)
    return data + begin, load32(ends + 4 * row + 4) - begin


@compiled()
def _sized(length: int) -> int:
    """Return the encoded size of bytes, including their length field."""
    return _size(length) + max(length, 0)


@compiled()
def _put_bytes(at: int, place: int, length: int) -> int:
    at = _put(at, length)
    if length > 0:
        copy(at, place, length)
        at += length
    return at


@compiled()
def _header_range(columns: Numbers, row: int) -> tuple[int, int]:
    """Return the index of a row's first header, and the number of its headers."""
    ends = columns[LIST_ENDS]
    valid = columns[LIST_VALID]
    row += columns[LIST_OFF]
    if ends == 0 or (valid != 0 and not (load8(valid + (row >> 3)) >> (row & 7)) & 1):
        return 0, 0
    begin = load32(ends + 4 * row)
    return begin, load32(ends + 4 * row + 4) - begin


@compiled()
def _name(columns: Numbers, header: int) -> tuple[int, int]:
    return _find(columns[NAME_ENDS], columns[NAME_DATA], 0, header + columns[NAME_OFF])


@compiled()
def _content(columns: Numbers, header: int) -> tuple[int, int]:
    return _find(
        columns[CONTENT_ENDS],
        columns[CONTENT_DATA],
        columns[CONTENT_VALID],
        header + columns[CONTENT_OFF],
    )


@compiled()
def _headers_size(columns: Numbers, first: int, count: int) -> int:
    size = _size(count)
    for header in range(first, first + count):
        _place, length = _name(columns, header)
        size += _sized(length)
        _place, length = _content(columns, header)
        size += _sized(length)
    return size


@compiled()
def _put_headers(at: int, columns: Numbers, first: int, count: int) -> int:
    at = _put(at, count)
    for header in range(first, first + count):
        place, length = _name(columns, header)
        at = _put_bytes(at, place, length)
        place, length = _content(columns, header)
        at = _put_bytes(at, place, length)
    return at


@compiled()
def _encode_row(columns: Numbers, row: int, time: int, state: Numbers, out: int) -> int:
    """Append one record to the batch; return END, or FULL or GROW if it does not fit."""
    count = state[COUNT]
    used = state[USED]
    delta = time - state[BASE_TIME] if count else 0
    key_at, key = _find(
        columns[KEY_ENDS], columns[KEY_DATA], columns[KEY_VALID], row + columns[KEY_OFF]
    )
    value_at, value = _find(
        columns[VALUE_ENDS], columns[VALUE_DATA], columns[VALUE_VALID], row + columns[VALUE_OFF]
    )
    first, headers = _header_range(columns, row)
    length = 1 + _size(delta) + _size(count) + _sized(key) + _sized(value)
    length += _headers_size(columns, first, headers) if headers else 1
    end = used + _size(length) + length
    if count and (count == state[COUNT_MAX] or end > state[SIZE_MAX]):
        return FULL
    if end > state[ROOM]:
        state[NEED] = end
        return GROW
    at = _put(out + used, length)
    store8(at, 0)
    at = _put(_put(at + 1, delta), count)
    at = _put_bytes(_put_bytes(at, key_at, key), value_at, value)
    _put_headers(at, columns, first, headers)
    if not count:
        state[BASE_TIME] = state[MAX_TIME] = time
    state[MAX_TIME] = max(state[MAX_TIME], time)
    state[COUNT] = count + 1
    state[USED] = end
    return END


@compiled("int64(int64[::1], int64[::1], int64[::1], int64[::1], int64)")
def encode(columns: Numbers, rows: Numbers, times: Numbers, state: Numbers, out: int) -> int:
    """Append `rows` from state[NEXT_ROW] on; return END, FULL or GROW."""
    for number in range(state[NEXT_ROW], len(rows)):
        outcome = _encode_row(columns, rows[number], times[rows[number]], state, out)
        if outcome != END:
            state[NEXT_ROW] = number
            return outcome
    state[NEXT_ROW] = len(rows)
    return END


@compiled()
def _murmur2(at: int, length: int) -> int:
    """Return the murmur2 hash; computed in 64-bit numbers that are masked to 32 bits."""
    mask = 0xFFFF_FFFF
    mix = 0x5BD1_E995
    value = (0x9747_B28C ^ length) & mask
    whole = length & ~3
    for place in range(at, at + whole, 4):
        word = (load32(place) & mask) * mix & mask
        word ^= word >> 24
        value = (value * mix & mask) ^ (word * mix & mask)
    if length & 3:
        rest = 0
        for number in range(length & 3):
            rest |= load8(at + whole + number) << (8 * number)
        value = (value ^ rest) * mix & mask
    value = (value ^ (value >> 13)) * mix & mask
    return value ^ (value >> 15)


@compiled("void(int64[::1], int64, int64, int32[::1])")
def _hash_keys(columns: Numbers, count: int, partitions: int, found: SmallNumbers) -> None:
    """Write the partition of each key to `found`, as Kafka's Java client does; -1 for null."""
    for row in range(count):
        at, length = _find(
            columns[KEY_ENDS], columns[KEY_DATA], columns[KEY_VALID], row + columns[KEY_OFF]
        )
        if length < 0:
            found[row] = -1
        else:
            found[row] = (_murmur2(at, length) & 0x7FFF_FFFF) % partitions


class KernelRecords:
    """Rows, and the addresses of their columns."""

    def __init__(self, rows: Rows) -> None:
        self.columns = np.zeros(COLUMN_FIELDS, np.int64)
        self._times = rows.timestamp_ms
        self._state = np.zeros(STATE_FIELDS, np.int64)
        self._held: list[Any] = []
        if rows.key is not None:
            key = as_binary(rows.key, "key")
            self._place(key, KEY_ENDS, KEY_VALID, KEY_OFF)
        if rows.value is not None:
            value = as_binary(rows.value, "value")
            self._place(value, VALUE_ENDS, VALUE_VALID, VALUE_OFF)
        if rows.headers is not None:
            self._place_headers(rows.headers)

    def _place(self, column: Any, ends: int, valid: int | None, off: int) -> None:
        """Store the addresses of a binary column: its offsets, its bytes, its validity."""
        validity, offsets, data = column.buffers()
        self._held.append(column)
        self.columns[ends] = 0 if offsets is None else offsets.address
        self.columns[ends + 1] = 0 if data is None else data.address
        self.columns[off] = column.offset
        if valid is not None and column.null_count:
            self.columns[valid] = validity.address

    def _place_headers(self, column: Any) -> None:
        lists, names, contents = header_columns(column)
        validity, offsets = lists.buffers()[:2]
        self._held.append(lists)
        self.columns[LIST_ENDS] = 0 if offsets is None else offsets.address
        self.columns[LIST_OFF] = lists.offset
        if lists.null_count:
            self.columns[LIST_VALID] = validity.address
        self._place(names, NAME_ENDS, None, NAME_OFF)
        self._place(contents, CONTENT_ENDS, CONTENT_VALID, CONTENT_OFF)

    def append(self, batch: OpenBatch, rows: Int64s, first: int) -> int:
        """Append rows[first:] until the batch is full; return the index of the next row."""
        state = self._state
        state[USED] = batch.used
        state[COUNT] = batch.count
        state[BASE_TIME] = batch.base_time
        state[MAX_TIME] = batch.max_time
        state[NEXT_ROW] = first
        state[SIZE_MAX] = batch.size_max
        state[COUNT_MAX] = batch.count_max
        while True:
            state[ROOM] = len(batch.memory)
            outcome = encode(self.columns, rows, self._times, state, batch.address)
            batch.used = int(state[USED])
            if outcome != GROW:
                break
            batch.grow(int(state[NEED]))
        batch.count = int(state[COUNT])
        batch.base_time = int(state[BASE_TIME])
        batch.max_time = int(state[MAX_TIME])
        return int(state[NEXT_ROW])


def hash_keys(keys: Any, partitions: int) -> Any:
    """Return the partition of each key; -1 if the key is null."""
    found = np.empty(len(keys), np.int32)
    rows = KernelRecords(Rows(keys, None, None, np.empty(0, np.int64)))
    _hash_keys(rows.columns, len(keys), partitions, found)
    return found
