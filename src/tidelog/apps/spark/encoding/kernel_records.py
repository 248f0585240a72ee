"""Encode rows with the kernel: hand it the addresses of the columns."""

from typing import Any

import numpy as np

from tidelog.apps.spark.encoding import record_kernel as kernel
from tidelog.apps.spark.encoding.encoder import OpenBatch
from tidelog.apps.spark.encoding.row_columns import Int64s, Rows, as_binary, header_columns


class KernelRecords:
    """Rows, and the addresses of their columns."""

    def __init__(self, rows: Rows) -> None:
        self.columns = np.zeros(kernel.COLUMN_FIELDS, np.int64)
        self._times = rows.timestamp_ms
        self._state = np.zeros(kernel.STATE_FIELDS, np.int64)
        self._held: list[Any] = []
        if rows.key is not None:
            key = as_binary(rows.key, "key")
            self._place(key, kernel.KEY_ENDS, kernel.KEY_VALID, kernel.KEY_OFF)
        if rows.value is not None:
            value = as_binary(rows.value, "value")
            self._place(value, kernel.VALUE_ENDS, kernel.VALUE_VALID, kernel.VALUE_OFF)
        if rows.headers is not None:
            self._place_headers(rows.headers)

    def _place(self, column: Any, ends: int, valid: int | None, off: int) -> None:
        """Note the addresses of a binary column: its offsets, its bytes, its validity."""
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
        self.columns[kernel.LIST_ENDS] = 0 if offsets is None else offsets.address
        self.columns[kernel.LIST_OFF] = lists.offset
        if lists.null_count:
            self.columns[kernel.LIST_VALID] = validity.address
        self._place(names, kernel.NAME_ENDS, None, kernel.NAME_OFF)
        self._place(contents, kernel.CONTENT_ENDS, kernel.CONTENT_VALID, kernel.CONTENT_OFF)

    def append(self, batch: OpenBatch, rows: Int64s, first: int) -> int:
        """Append rows[first:] until the batch is full; return the index of the next row."""
        state = self._state
        state[kernel.USED] = batch.used
        state[kernel.COUNT] = batch.count
        state[kernel.BASE_TIME] = batch.base_time
        state[kernel.MAX_TIME] = batch.max_time
        state[kernel.NEXT_ROW] = first
        state[kernel.SIZE_MAX] = batch.size_max
        state[kernel.COUNT_MAX] = batch.count_max
        while True:
            state[kernel.ROOM] = len(batch.memory)
            outcome = kernel.encode(self.columns, rows, self._times, state, batch.address)
            batch.used = int(state[kernel.USED])
            if outcome != kernel.GROW:
                break
            batch.grow(int(state[kernel.NEED]))
        batch.count = int(state[kernel.COUNT])
        batch.base_time = int(state[kernel.BASE_TIME])
        batch.max_time = int(state[kernel.MAX_TIME])
        return int(state[kernel.NEXT_ROW])


def hash_keys(keys: Any, partitions: int) -> Any:
    """Return the partition of each key; -1 if the key is null."""
    found = np.empty(len(keys), np.int32)
    rows = KernelRecords(Rows(keys, None, None, np.empty(0, np.int64)))
    kernel.hash_keys(rows.columns, len(keys), partitions, found)
    return found
