"""Decode records into columns, in machine code.

`fill` reads records in place and writes them to the memory of the Arrow columns. It stops at the
end of the input, when a RecordBatch is full, or when memory is too small. The next call continues
where it stopped. It works on three arrays of numbers, which are described below.

Invariants: `fill` reads only bytes of the current batch, and writes only within the room in
`state`. Each loop iteration consumes a byte, or a record of the batch's record count. So any
input ends with columns or with CORRUPT.
"""

from typing import TypeAlias

import numpy as np

from tidelog.apps.spark.decoding.jit import compiled, copy, load8, store8, store32, store64

Numbers: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
Table: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.int64]]

# The results of `fill`.
END = 0
FULL = 1
GROW = 2
CORRUPT = 3

# The fields of a batch: one row of `batches`.
ADDRESS, LENGTH, BASE_OFFSET, LAST_DELTA, BASE_TIME, IS_APPEND_TIME, COUNT, EPOCH = range(8)
BATCH_FIELDS = 8

# `state`, kept between calls. The position in the input:
BATCH, POSITION, DONE, NEXT_DELTA = range(4)
# The request:
START, STOP, ROWS_MAX, DATA_MAX, WANTED = range(4, 9)
# The filled part of a RecordBatch:
ROWS, KEY_USED, VALUE_USED, HEADERS_USED, NAME_USED, CONTENT_USED = range(9, 15)
KEY_NULLS, VALUE_NULLS, HEADER_NULLS, CONTENT_NULLS, ODD_NAMES = range(15, 20)
# The room for each column, and the room that the next record needs if there is too little:
KEY_ROOM, VALUE_ROOM, HEADERS_ROOM, NAME_ROOM, CONTENT_ROOM = range(20, 25)
KEY_NEED, VALUE_NEED, HEADERS_NEED, NAME_NEED, CONTENT_NEED = range(25, 30)
STATE_FIELDS = 30

# `out`: the addresses of the columns. A header's key is called name here, its value content.
KEY_ENDS, KEY_DATA, KEY_VALID, VALUE_ENDS, VALUE_DATA, VALUE_VALID = range(6)
OFFSETS, TIMES, TIME_TYPES, EPOCHS = range(6, 10)
HEADERS_ENDS, HEADERS_VALID = range(10, 12)
NAME_ENDS, NAME_DATA, CONTENT_ENDS, CONTENT_DATA, CONTENT_VALID = range(12, 17)
OUT_FIELDS = 17

# The bits of WANTED.
WANT_KEY, WANT_VALUE, WANT_OFFSET, WANT_TIME, WANT_TIME_TYPE, WANT_EPOCH, WANT_HEADERS = (
    1, 2, 4, 8, 16, 32, 64
)  # fmt: skip

_INT64_MAX = 2**63 - 1
_INT64_MIN = -(2**63)
_MS_MAX = _INT64_MAX // 1000
_MS_MIN = -_MS_MAX


@compiled()
def _varint(at: int, end: int, bytes_max: int) -> tuple[int, int]:
    """Return a zig-zag number and the next address; the address is 0 if the number is invalid."""
    if at >= end:
        return 0, 0
    byte = load8(at)
    if byte < 0x80:  # most numbers have one byte
        return (byte >> 1) ^ -(byte & 1), at + 1
    raw = byte & 0x7F
    shift = 7
    limit = min(end, at + bytes_max)
    at += 1
    while at < limit:
        byte = load8(at)
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            # The last byte that fits has four bits left of 32, one bit of 64.
            if shift == 7 * (bytes_max - 1) and byte > (0x0F if bytes_max == 5 else 1):
                return 0, 0
            return ((raw >> 1) & _INT64_MAX) ^ -(raw & 1), at
        shift += 7
    return 0, 0


@compiled()
def _bytes(at: int, end: int) -> tuple[int, int, int]:
    """Return address and length of bytes (-1 for null), and the next address (0 if invalid)."""
    length, at = _varint(at, end, 5)
    if at == 0 or length < -1 or length > end - at:
        return 0, 0, 0
    return at, length, at + max(length, 0)


@compiled()
def _headers(at: int, end: int) -> tuple[int, int, int, int]:
    """Return the number of headers, the total bytes of names and of contents, and the next address.

    The address is 0 if the headers are invalid.
    """
    count, at = _varint(at, end, 5)
    if at == 0 or count == 0:
        return 0, 0, 0, at
    if count < 0 or count > (end - at) // 2:
        return 0, 0, 0, 0
    names = 0
    contents = 0
    for _ in range(count):
        _place, length, at = _bytes(at, end)
        if at == 0 or length < 0:  # a header must have a name
            return 0, 0, 0, 0
        names += length
        _place, length, at = _bytes(at, end)
        if at == 0:
            return 0, 0, 0, 0
        contents += max(length, 0)
    return count, names, contents, at


@compiled()
def _clear_bit(bitmap: int, index: int) -> None:
    at = bitmap + (index >> 3)
    store8(at, load8(at) & ~(1 << (index & 7)))


@compiled()
def _put_headers(at: int, end: int, state: Numbers, out: Numbers) -> None:
    """Copy the headers of a record that was checked before."""
    count, at = _varint(at, end, 5)
    used = state[HEADERS_USED]
    names = state[NAME_USED]
    contents = state[CONTENT_USED]
    for _ in range(count):
        place, length, at = _bytes(at, end)
        copy(out[NAME_DATA] + names, place, length)
        for each in range(length):
            if load8(place + each) >= 0x80:
                state[ODD_NAMES] = 1
        names += length
        place, length, at = _bytes(at, end)
        if length < 0:
            _clear_bit(out[CONTENT_VALID], used)
            state[CONTENT_NULLS] += 1
        else:
            copy(out[CONTENT_DATA] + contents, place, length)
            contents += length
        used += 1
        store32(out[NAME_ENDS] + 4 * used, names)
        store32(out[CONTENT_ENDS] + 4 * used, contents)
    state[HEADERS_USED] = used
    state[NAME_USED] = names
    state[CONTENT_USED] = contents


@compiled()
def _microseconds(base: int, delta: int) -> int:
    """Return a time in microseconds; on overflow, the nearest 64-bit number."""
    time = base + delta
    if (base ^ time) & (delta ^ time) < 0:
        time = _INT64_MAX if base > 0 else _INT64_MIN
    if time > _MS_MAX:
        return _INT64_MAX
    if time < _MS_MIN:
        return _INT64_MIN
    return time * 1000


@compiled()
def _parse(at: int, stop: int) -> tuple[int, ...]:
    """Return the address after a record, its deltas, the addresses and lengths of its parts.

    The last three values are the number of headers and the total bytes of their names and contents.
    The address is 0 if the record is invalid.
    """
    none = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    length, at = _varint(at, stop, 5)
    if at == 0 or length <= 0 or length > stop - at:
        return none
    end = at + length
    time_delta, at = _varint(at + 1, end, 10)  # skip the attributes: none are defined
    if at == 0:
        return none
    delta, at = _varint(at, end, 5)
    if at == 0:
        return none
    key_at, key, at = _bytes(at, end)
    if at == 0:
        return none
    value_at, value, headers_at = _bytes(at, end)
    if headers_at == 0:
        return none
    count, names, contents, at = _headers(headers_at, end)
    if at != end:
        return none
    return end, time_delta, delta, key_at, key, value_at, value, headers_at, count, names, contents


@compiled()
def _put_piece(
    out: Numbers, state: Numbers, column: int, row: int, used: int, place: int, length: int
) -> int:
    """Write the key (column 0) or value (column 1) of a row; return the bytes used so far."""
    if length > 0:
        copy(out[KEY_DATA + 3 * column] + used, place, length)
        used += length
    elif length < 0:
        _clear_bit(out[KEY_VALID + 3 * column], row)
        state[KEY_NULLS + column] += 1
    store32(out[KEY_ENDS + 3 * column] + 4 * (row + 1), used)
    return used


@compiled()
def _put_time(batch: Numbers, out: Numbers, row: int, delta: int) -> None:
    if batch[IS_APPEND_TIME]:
        delta = 0
    store64(out[TIMES] + 8 * row, _microseconds(batch[BASE_TIME], delta))


@compiled()
def _put_header_list(out: Numbers, state: Numbers, row: int, at: int, end: int, count: int) -> None:
    """Write the headers of a row; null if it has none, as in Spark's own source."""
    if count:
        _put_headers(at, end, state, out)
    else:
        _clear_bit(out[HEADERS_VALID], row)
        state[HEADER_NULLS] += 1
    store32(out[HEADERS_ENDS] + 4 * (row + 1), state[HEADERS_USED])


@compiled()
def _put_constants(batch: Numbers, state: Numbers, out: Numbers, first: int, rows: int) -> None:
    """Write the columns that have the same value in all rows of a batch."""
    if state[WANTED] & WANT_TIME_TYPE:
        for row in range(first, rows):
            store32(out[TIME_TYPES] + 4 * row, batch[IS_APPEND_TIME])
    if state[WANTED] & WANT_EPOCH:
        for row in range(first, rows):
            store32(out[EPOCHS] + 4 * row, batch[EPOCH])


@compiled()
def _too_many_headers(state: Numbers, count: int, names: int, contents: int) -> bool:
    """Return whether the headers of the next record do not fit; set the room that they need."""
    state[HEADERS_NEED] = state[HEADERS_USED] + count
    state[NAME_NEED] = state[NAME_USED] + names
    state[CONTENT_NEED] = state[CONTENT_USED] + contents
    return bool(
        state[HEADERS_NEED] > state[HEADERS_ROOM]
        or state[NAME_NEED] > state[NAME_ROOM]
        or state[CONTENT_NEED] > state[CONTENT_ROOM]
    )


@compiled()
def _room(state: Numbers, rows: int, key_used: int, value_used: int, headers: int) -> int:
    """Return END if the next record fits, else FULL or GROW; sizes include that record."""
    if rows == state[ROWS_MAX] or (rows > 0 and key_used + value_used + headers > state[DATA_MAX]):
        return FULL
    if key_used > state[KEY_ROOM] or value_used > state[VALUE_ROOM]:
        state[KEY_NEED] = key_used
        state[VALUE_NEED] = value_used
        return GROW
    return END


@compiled()
def _fill_batch(batch: Numbers, state: Numbers, out: Numbers) -> int:
    """Decode the rest of a batch. Fields of `state` that change often are local variables."""
    wanted = state[WANTED]
    at = batch[ADDRESS] + state[POSITION]
    stop = batch[ADDRESS] + batch[LENGTH]
    done, next_delta = state[DONE], state[NEXT_DELTA]
    first = rows = state[ROWS]
    key_used, value_used = state[KEY_USED], state[VALUE_USED]
    outcome = END
    while done < batch[COUNT]:
        (
            end, time_delta, delta, key_at, key, value_at, value,
            headers_at, count, names, contents,
        ) = _parse(at, stop)  # fmt: skip
        if end == 0 or delta < next_delta or delta > batch[LAST_DELTA]:
            outcome = CORRUPT
            break
        offset = batch[BASE_OFFSET] + delta
        if state[START] <= offset < state[STOP]:
            with_key = key_used + (max(key, 0) if wanted & WANT_KEY else 0)
            with_value = value_used + (max(value, 0) if wanted & WANT_VALUE else 0)
            headers = 0
            if wanted & WANT_HEADERS:
                headers = state[NAME_USED] + names + state[CONTENT_USED] + contents
            outcome = _room(state, rows, with_key, with_value, headers)
            if outcome == END and wanted & WANT_HEADERS:
                outcome = GROW if _too_many_headers(state, count, names, contents) else END
            if outcome != END:
                break
            if wanted & WANT_KEY:
                key_used = _put_piece(out, state, 0, rows, key_used, key_at, key)
            if wanted & WANT_VALUE:
                value_used = _put_piece(out, state, 1, rows, value_used, value_at, value)
            if wanted & WANT_HEADERS:
                _put_header_list(out, state, rows, headers_at, end, count)
            if wanted & WANT_OFFSET:
                store64(out[OFFSETS] + 8 * rows, offset)
            if wanted & WANT_TIME:
                _put_time(batch, out, rows, time_delta)
            rows += 1
        at = end
        done += 1
        next_delta = delta + 1
    _put_constants(batch, state, out, first, rows)
    state[ROWS], state[KEY_USED], state[VALUE_USED] = rows, key_used, value_used
    state[DONE], state[NEXT_DELTA], state[POSITION] = done, next_delta, at - batch[ADDRESS]
    return CORRUPT if outcome == END and at != stop else outcome


@compiled("int64(int64[:, ::1], int64[::1], int64[::1])")
def fill(batches: Table, state: Numbers, out: Numbers) -> int:
    """Decode batches from where the last call stopped; return END, FULL, GROW or CORRUPT."""
    while state[BATCH] < batches.shape[0]:
        outcome = _fill_batch(batches[state[BATCH]], state, out)
        if outcome != END:
            return outcome
        state[BATCH] += 1
        state[POSITION] = 0
        state[DONE] = 0
        state[NEXT_DELTA] = 0
    return END
