"""Rows to records with numpy and Arrow alone, for machines without numba.

A record is joined from its parts, for all rows at once. How long the numbers in it are
depends on the batch it falls into, so rows are joined as if all fell into the batch at hand,
and those that do not are joined again for the next one.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.apps.spark.encoding.open_batch import OpenBatch
from tidelog.apps.spark.encoding.row_columns import (
    HeaderColumns,
    Int64s,
    Rows,
    as_binary,
    header_columns,
)

_NUMBER_BYTES_MAX = 10
_WINDOW_ROWS_MIN = 64
_NO_BYTES = pa.scalar(b"", pa.binary())


class JoinedRecords:
    """Rows, with what every batch has alike of them made once."""

    def __init__(self, rows: Rows) -> None:
        self._times = rows.timestamp_ms
        count = len(self._times)
        headers = pa.repeat(pa.scalar(b"\x00", pa.binary()), count)
        if rows.headers is not None:
            headers = _joined_headers(header_columns(rows.headers), count)
        self._rest = pc.binary_join_element_wise(
            *_with_length(rows.key, "key", count),
            *_with_length(rows.value, "value", count),
            headers,
            _NO_BYTES,
        )
        """All of a record behind its deltas."""
        self._sizes = pc.binary_length(self._rest).to_numpy(zero_copy_only=False)

    def append(self, batch: OpenBatch, rows: Int64s, first: int) -> int:
        """Append rows[first:] as far as they go; where to go on, before the end if it is full."""
        while first < len(rows):
            left = max(batch.size_max - batch.used, 0)
            ends = np.cumsum(self._sizes[rows[first : first + batch.count_max]])
            fit = int(np.searchsorted(ends, left, side="right"))
            window = rows[first : first + max(fit, 1)]
            taken = self._append(batch, window)
            first += taken
            if taken < len(window) or (taken == 0):
                return first
        return first

    def _append(self, batch: OpenBatch, rows: Int64s) -> int:
        """How many of the rows found their place."""
        times = self._times[rows]
        base = batch.base_time if batch.count else int(times[0])
        numbers = np.arange(batch.count, batch.count + len(rows))
        bodies = pc.binary_join_element_wise(
            pa.scalar(b"\x00", pa.binary()),
            _numbers(times - base),
            _numbers(numbers),
            self._rest.take(pa.array(rows)),
            _NO_BYTES,
        )
        lengths = pc.binary_length(bodies).to_numpy(zero_copy_only=False)
        records = pc.binary_join_element_wise(_numbers(lengths), bodies, _NO_BYTES)
        ends = batch.used + np.cumsum(pc.binary_length(records).to_numpy(zero_copy_only=False))
        taken = int(np.searchsorted(ends, batch.size_max, side="right"))
        taken = min(max(taken, 0 if batch.count else 1), batch.count_max - batch.count)
        if taken:
            self._put(batch, records, taken, int(ends[taken - 1]))
            batch.base_time = base
            latest = int(times[:taken].max())
            batch.max_time = max(batch.max_time, latest) if batch.count else latest
            batch.count += taken
        return taken

    def _put(self, batch: OpenBatch, records: Any, taken: int, end: int) -> None:
        if end > len(batch.memory):
            batch.grow(end)
        _validity, offsets, data = records.buffers()
        begin = int(np.frombuffer(offsets, np.int32)[records.offset])
        joined = np.frombuffer(data, np.uint8)[begin : begin + end - batch.used]
        batch.memory[batch.used : end] = joined
        batch.used = end
        del taken


def _numbers(values: Any) -> Any:
    """Zig-zag numbers as a binary column."""
    values = np.asarray(values, np.int64)
    raw = ((values << 1) ^ (values >> 63)).view(np.uint64)
    groups = raw[:, None] >> np.arange(0, 7 * _NUMBER_BYTES_MAX, 7, dtype=np.uint64)
    sizes = np.maximum((groups != 0).sum(axis=1), 1)
    digits = (groups & np.uint64(0x7F)).astype(np.uint8)
    place = np.arange(_NUMBER_BYTES_MAX)
    digits |= np.where(place < (sizes - 1)[:, None], 0x80, 0).astype(np.uint8)
    data = digits[place < sizes[:, None]]
    ends = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers, 0)


def _with_length(column: Any, what: str, count: int) -> tuple[Any, Any]:
    """The lengths of a column's values, -1 for null, and the values."""
    if column is None:
        return pa.repeat(pa.scalar(b"\x01", pa.binary()), count), pa.scalar(b"", pa.binary())
    values = as_binary(column, what)
    lengths = pc.fill_null(pc.binary_length(values), -1).to_numpy(zero_copy_only=False)
    return _numbers(lengths), pc.fill_null(values, b"")


def _joined_headers(headers: HeaderColumns, count: int) -> Any:
    """The headers of each row, their number in front."""
    lists, names, contents = headers
    pairs = pc.binary_join_element_wise(
        *_with_length(names, "headers.key", len(names)),
        *_with_length(contents, "headers.value", len(contents)),
        _NO_BYTES,
    )
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    grouped = pa.ListArray.from_arrays(
        np.frombuffer(lists.buffers()[1], np.int32)[lists.offset : lists.offset + count + 1],
        pairs,
    )
    joined = pc.binary_join(grouped, _NO_BYTES)
    joined = pc.if_else(pa.array(counts > 0), joined, _NO_BYTES)
    return pc.binary_join_element_wise(_numbers(counts), joined, _NO_BYTES)
