"""Decode records with the kernel: decompress batches, run the kernel, return RecordBatches.

The kernel writes columns to memory that Python allocates. Allocating memory costs more than filling
it, so the same memory is used for one RecordBatch after another, unless the caller keeps them. A
small batch can decompress to a large one, so batches are decompressed in groups: the memory is
limited by the size of a group and of the largest batch.

Invariant: `state` contains the size of the memory for each column, and `out` its address.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from tidelog.apps.spark import columns
from tidelog.apps.spark.decoding import kernel
from tidelog.apps.spark.decoding.batch_headers import OFFSET_MAX, Selected
from tidelog.core.record.compression import Codec, decompress, decompress_into
from tidelog.core.record.crc32c import Buffer
from tidelog.core.record.record_batch import HEADER_SIZE, CorruptRecord
from tidelog.core.types import Offset

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

GROUP_BYTES = 2 * 1024 * 1024
_RATIO_GUESS = 4.0
_FIRST_BYTES = 256 * 1024
_FIRST_HEADERS = 4096
_ALL_VALID = 0xFF
_WANTED_BITS = {
    columns.KEY: kernel.WANT_KEY,
    columns.VALUE: kernel.WANT_VALUE,
    columns.OFFSET: kernel.WANT_OFFSET,
    columns.TIMESTAMP: kernel.WANT_TIME,
    columns.TIMESTAMP_TYPE: kernel.WANT_TIME_TYPE,
    columns.LEADER_EPOCH: kernel.WANT_EPOCH,
    columns.HEADERS: kernel.WANT_HEADERS,
}
_FIXED_WIDTH = {
    columns.OFFSET: (kernel.OFFSETS, np.int64),
    columns.TIMESTAMP: (kernel.TIMES, np.int64),
    columns.TIMESTAMP_TYPE: (kernel.TIME_TYPES, np.int32),
    columns.LEADER_EPOCH: (kernel.EPOCHS, np.int32),
}


class ColumnBuffers:
    """The memory of one RecordBatch of `rows` rows and about `data_bytes` bytes of data."""

    def __init__(
        self, schema: Any, topic: str, partition: int, rows: int, data_bytes: int, keep: bool
    ) -> None:
        self.state = np.zeros(kernel.STATE_FIELDS, np.int64)
        self.out = np.zeros(kernel.OUT_FIELDS, np.int64)
        self._schema = schema
        self._keep = keep
        self._memory: dict[int, Array] = {}
        self._buffers: dict[int, Any] = {}
        self._constants = columns.constant_columns(schema, topic, partition, rows)
        self.state[kernel.ROWS_MAX] = rows
        self.state[kernel.DATA_MAX] = data_bytes
        self.state[kernel.WANTED] = sum(_WANTED_BITS.get(name, 0) for name in schema.names)
        self._makers: dict[str, Callable[[], Any]] = {
            columns.KEY: lambda: self._bytes_column(0),
            columns.VALUE: lambda: self._bytes_column(1),
            columns.HEADERS: self._headers_column,
        }
        self._make_room(rows, data_bytes)

    def _make_room(self, rows: int, data_bytes: int) -> None:
        wanted = self.state[kernel.WANTED]
        bitmap = (rows + 7) // 8
        for column, bit in enumerate((kernel.WANT_KEY, kernel.WANT_VALUE)):
            if wanted & bit:
                room = max(data_bytes, 1) if column else _FIRST_BYTES
                self._place(kernel.KEY_ENDS + 3 * column, np.zeros(rows + 1, np.int32))
                self._place(kernel.KEY_DATA + 3 * column, np.empty(room, np.uint8))
                self._place(kernel.KEY_VALID + 3 * column, np.full(bitmap, _ALL_VALID, np.uint8))
                self.state[kernel.KEY_ROOM + column] = room
        for name, (index, kind) in _FIXED_WIDTH.items():
            if wanted & _WANTED_BITS[name]:
                self._place(index, np.empty(rows, kind))
        if wanted & kernel.WANT_HEADERS:
            self._place(kernel.HEADERS_ENDS, np.zeros(rows + 1, np.int32))
            self._place(kernel.HEADERS_VALID, np.full(bitmap, _ALL_VALID, np.uint8))
            self._place_headers(_FIRST_HEADERS)
            for index, room in (
                (kernel.NAME_DATA, kernel.NAME_ROOM),
                (kernel.CONTENT_DATA, kernel.CONTENT_ROOM),
            ):
                self._place(index, np.empty(_FIRST_BYTES, np.uint8))
                self.state[room] = _FIRST_BYTES

    def _place(self, index: int, array: Array) -> None:
        """Replace the memory of a buffer and copy its old contents."""
        old = self._memory.get(index)
        if old is not None:
            array[: len(old)] = old
        self._memory[index] = array
        self._buffers[index] = pa.py_buffer(array)
        self.out[index] = array.__array_interface__["data"][0]

    def _place_headers(self, room: int) -> None:
        self._place(kernel.NAME_ENDS, np.zeros(room + 1, np.int32))
        self._place(kernel.CONTENT_ENDS, np.zeros(room + 1, np.int32))
        self._place(kernel.CONTENT_VALID, np.full((room + 7) // 8, _ALL_VALID, np.uint8))
        self.state[kernel.HEADERS_ROOM] = room

    def grow(self) -> None:
        """Enlarge the memory to what the kernel needs."""
        state = self.state
        for index, room, need in (
            (kernel.KEY_DATA, kernel.KEY_ROOM, kernel.KEY_NEED),
            (kernel.VALUE_DATA, kernel.VALUE_ROOM, kernel.VALUE_NEED),
            (kernel.NAME_DATA, kernel.NAME_ROOM, kernel.NAME_NEED),
            (kernel.CONTENT_DATA, kernel.CONTENT_ROOM, kernel.CONTENT_NEED),
        ):
            if state[need] > state[room]:
                larger = max(int(state[need]), 2 * int(state[room]))
                self._place(index, np.empty(larger, np.uint8))
                state[room] = larger
        if state[kernel.HEADERS_NEED] > state[kernel.HEADERS_ROOM]:
            wanted = int(state[kernel.HEADERS_NEED])
            self._place_headers(max(wanted, 2 * int(state[kernel.HEADERS_ROOM])))

    # -- results ------------------------------------------------------------------------------

    def take(self) -> Any:
        """Return the written rows as a RecordBatch, and start an empty one."""
        rows = int(self.state[kernel.ROWS])
        arrays = []
        for field in self._schema:
            constant = self._constants.get(field.name)
            if constant is not None:
                arrays.append(constant.slice(0, rows))
            elif field.name in _FIXED_WIDTH:
                index, kind = _FIXED_WIDTH[field.name]
                numbers = self._buffer(index, rows * np.dtype(kind).itemsize)
                arrays.append(pa.Array.from_buffers(field.type, rows, [None, numbers], 0))
            else:
                arrays.append(self._makers[field.name]())
        self._clear()
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _clear(self) -> None:
        state = self.state
        for nulls, index in (
            (kernel.KEY_NULLS, kernel.KEY_VALID),
            (kernel.VALUE_NULLS, kernel.VALUE_VALID),
            (kernel.HEADER_NULLS, kernel.HEADERS_VALID),
            (kernel.CONTENT_NULLS, kernel.CONTENT_VALID),
        ):
            if state[nulls]:
                self._memory[index].fill(_ALL_VALID)
        state[kernel.ROWS : kernel.ODD_NAMES + 1] = 0

    def _buffer(self, index: int, size: int) -> Any:
        part = self._buffers[index].slice(0, size)
        return pa.py_buffer(part.to_pybytes()) if self._keep else part

    def _valid(self, index: int, rows: int, nulls: int) -> Any:
        """Return a copy of a validity bitmap, which is reset before the caller uses the result."""
        if not nulls:
            return None
        return pa.py_buffer(self._buffers[index].slice(0, (rows + 7) // 8).to_pybytes())

    def _bytes_column(self, column: int) -> Any:
        rows = int(self.state[kernel.ROWS])
        nulls = int(self.state[kernel.KEY_NULLS + column])
        parts = [
            self._valid(kernel.KEY_VALID + 3 * column, rows, nulls),
            self._buffer(kernel.KEY_ENDS + 3 * column, 4 * (rows + 1)),
            self._buffer(kernel.KEY_DATA + 3 * column, int(self.state[kernel.KEY_USED + column])),
        ]
        return pa.Array.from_buffers(pa.binary(), rows, parts, nulls)

    def _headers_column(self) -> Any:
        state = self.state
        rows, count = int(state[kernel.ROWS]), int(state[kernel.HEADERS_USED])
        nulls, empty = int(state[kernel.HEADER_NULLS]), int(state[kernel.CONTENT_NULLS])
        names = [
            None,
            self._buffer(kernel.NAME_ENDS, 4 * (count + 1)),
            self._buffer(kernel.NAME_DATA, int(state[kernel.NAME_USED])),
        ]
        contents = [
            self._valid(kernel.CONTENT_VALID, count, empty),
            self._buffer(kernel.CONTENT_ENDS, 4 * (count + 1)),
            self._buffer(kernel.CONTENT_DATA, int(state[kernel.CONTENT_USED])),
        ]
        name_column = pa.Array.from_buffers(pa.binary(), count, names, 0)
        pairs = pa.StructArray.from_arrays(
            [
                _as_text(name_column, bool(state[kernel.ODD_NAMES])),
                pa.Array.from_buffers(pa.binary(), count, contents, empty),
            ],
            fields=list(columns.HEADER_FIELDS),
        )
        ends = self._buffer(kernel.HEADERS_ENDS, 4 * (rows + 1))
        return pa.Array.from_buffers(
            columns.ARROW_TYPES[columns.HEADERS],
            rows,
            [self._valid(kernel.HEADERS_VALID, rows, nulls), ends],
            nulls,
            children=[pairs],
        )


def _as_text(names: Any, has_invalid: bool) -> Any:
    """Return header names as strings; invalid UTF-8 is replaced, as in Java."""
    if has_invalid:
        return pa.array([name.as_py().decode(errors="replace") for name in names], pa.string())
    return names.view(pa.string())


class Unpacked(NamedTuple):
    """Batches whose records are in memory without compression."""

    batches: kernel.Table
    held: list[Buffer]
    """The buffers that the addresses point into; keep them while the table is in use."""


class UnpackMemory:
    """Memory for a group of decompressed batches, reused for the next group."""

    def __init__(self) -> None:
        self.room = bytearray()
        self.address = 0
        self._ratio = _RATIO_GUESS

    def open(self) -> "UnpackMemory":
        """Allocate the memory at the first use."""
        if not self.room:
            self.room = bytearray(GROUP_BYTES)
            self.address = address(self.room)
        return self

    def unpack(self, codec: int, packed: Buffer, used: int) -> int | None:
        """Decompress after the used bytes; return the size, or None if the room is too small.

        If the last compression ratio predicts that the result does not fit, return None at once.
        """
        left = len(self.room) - used
        if used and left < len(packed) * self._ratio:
            return None
        size = decompress_into(codec, packed, memoryview(self.room)[used:])
        if size is not None and len(packed):
            self._ratio = size / len(packed)
        return size


def unpack(selected: Selected, memory: UnpackMemory | None = None) -> Iterator[Unpacked]:
    """Yield the selected batches in groups; a group is valid until the next one.

    Raises CorruptRecord.
    """
    headers = selected.headers
    chosen = selected.chosen
    if not len(chosen):
        return
    table = np.empty((len(chosen), kernel.BATCH_FIELDS), np.int64)
    append_time = headers.is_log_append_time[chosen]
    table[:, kernel.ADDRESS] = address(selected.records) + headers.position[chosen] + HEADER_SIZE
    table[:, kernel.LENGTH] = headers.size[chosen] - HEADER_SIZE
    table[:, kernel.BASE_OFFSET] = headers.base_offset[chosen]
    table[:, kernel.LAST_DELTA] = headers.last_offset[chosen] - headers.base_offset[chosen]
    table[:, kernel.BASE_TIME] = np.where(
        append_time, headers.max_timestamp[chosen], headers.base_timestamp[chosen]
    )
    table[:, kernel.IS_APPEND_TIME] = append_time
    table[:, kernel.COUNT] = headers.count[chosen]
    table[:, kernel.EPOCH] = headers.leader_epoch[chosen]
    codecs = headers.codec[chosen]
    if (codecs == Codec.NONE).all():
        yield Unpacked(table, [selected.records])
        return
    yield from _grouped(selected, table, codecs.tolist(), (memory or UnpackMemory()).open())


def _grouped(
    selected: Selected, table: kernel.Table, codecs: list[int], memory: UnpackMemory
) -> Iterator[Unpacked]:
    view = memoryview(selected.records)
    positions = selected.headers.position[selected.chosen].tolist()
    lengths = table[:, kernel.LENGTH].tolist()
    held: list[Buffer] = [selected.records, memory.room]
    begun = used = 0
    for number, codec in enumerate(codecs):
        if codec == Codec.NONE:
            continue
        start = positions[number] + HEADER_SIZE
        packed = view[start : start + lengths[number]]
        size = memory.unpack(codec, packed, used)
        if size is None:
            if begun < number:
                yield Unpacked(table[begun:number], held)
                held = held[:2]
                begun, used = number, 0
            size = memory.unpack(codec, packed, 0)
        if size is None:  # larger than the whole memory
            opened = decompress(codec, packed)
            held.append(opened)
            place, size = address(opened), len(opened)
            used = len(memory.room)
        else:
            place = memory.address + used
            used += size
        table[number, kernel.ADDRESS], table[number, kernel.LENGTH] = place, size
    if begun < len(codecs):
        yield Unpacked(table[begun:], held)


def address(buffer: Any) -> int:
    """Return the address of a buffer; 0 if it is empty."""
    if not len(buffer):
        return 0
    return int(np.frombuffer(buffer, np.uint8).__array_interface__["data"][0])


class KernelDecoder:
    """Decodes records with the kernel, into buffers, until a RecordBatch is full."""

    def __init__(
        self, schema: Any, topic: str, partition: int, rows: int, data_bytes: int, keep: bool
    ) -> None:
        self._buffers = ColumnBuffers(schema, topic, partition, rows, data_bytes, keep)
        self._memory = UnpackMemory()

    def decode(
        self, selected: Selected, start: Offset = 0, end: Offset = OFFSET_MAX
    ) -> Iterator[Any]:
        """Yield the RecordBatches that became full. Raises CorruptRecord."""
        state = self._buffers.state
        state[kernel.START], state[kernel.STOP] = start, end
        for batches, _held in unpack(selected, self._memory):
            state[kernel.BATCH : kernel.NEXT_DELTA + 1] = 0
            while True:
                outcome = kernel.fill(batches, state, self._buffers.out)
                if outcome == kernel.END:
                    break
                if outcome == kernel.CORRUPT:
                    offset = batches[state[kernel.BATCH]][kernel.BASE_OFFSET]
                    raise CorruptRecord(
                        f"record {state[kernel.DONE]} of the batch at offset {offset} is invalid"
                    )
                if outcome == kernel.FULL:
                    yield self._buffers.take()
                else:
                    self._buffers.grow()

    def flush(self) -> Iterator[Any]:
        """Yield the rows that are not returned yet."""
        if self._buffers.state[kernel.ROWS]:
            yield self._buffers.take()
