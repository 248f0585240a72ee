"""Decompress the records of the selected batches and give their addresses to a kernel.

A small batch can decompress to a large one, so batches are decompressed in groups. The memory is
limited by the size of a group and of the largest batch.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tidelog.apps.spark.decoding.batch_headers import Selected
from tidelog.core.record.compression import Codec, decompress, decompress_into
from tidelog.core.record.crc32c import Buffer
from tidelog.core.record.record_batch import HEADER_SIZE

GROUP_BYTES = 2 * 1024 * 1024
_RATIO_GUESS = 4.0

Table: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.int64]]

# The fields of a table row for the kernel, in its order.
FIELDS = 8
ADDRESS, LENGTH, BASE_OFFSET, LAST_DELTA, BASE_TIME, IS_APPEND_TIME, COUNT, EPOCH = range(8)


class Unpacked(NamedTuple):
    """Batches whose records are in memory without compression."""

    batches: Table
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
        """Decompress after the used bytes; return the size, or None if there is no room.

        If the last ratio predicts that the result does not fit, it does not try.
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
    table = np.empty((len(chosen), FIELDS), np.int64)
    append_time = headers.is_log_append_time[chosen]
    table[:, ADDRESS] = address(selected.records) + headers.position[chosen] + HEADER_SIZE
    table[:, LENGTH] = headers.size[chosen] - HEADER_SIZE
    table[:, BASE_OFFSET] = headers.base_offset[chosen]
    table[:, LAST_DELTA] = headers.last_offset[chosen] - headers.base_offset[chosen]
    table[:, BASE_TIME] = np.where(
        append_time, headers.max_timestamp[chosen], headers.base_timestamp[chosen]
    )
    table[:, IS_APPEND_TIME] = append_time
    table[:, COUNT] = headers.count[chosen]
    table[:, EPOCH] = headers.leader_epoch[chosen]
    codecs = headers.codec[chosen]
    if (codecs == Codec.NONE).all():
        yield Unpacked(table, [selected.records])
        return
    yield from _grouped(selected, table, codecs.tolist(), (memory or UnpackMemory()).open())


def _grouped(
    selected: Selected, table: Table, codecs: list[int], memory: UnpackMemory
) -> Iterator[Unpacked]:
    view = memoryview(selected.records)
    positions = selected.headers.position[selected.chosen].tolist()
    lengths = table[:, LENGTH].tolist()
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
            table[number, ADDRESS], table[number, LENGTH] = address(opened), len(opened)
            used = len(memory.room)
        else:
            table[number, ADDRESS], table[number, LENGTH] = memory.address + used, size
            used += size
    if begun < len(codecs):
        yield Unpacked(table[begun:], held)


def address(buffer: Any) -> int:
    """Return the address of a buffer; 0 if it is empty."""
    if not len(buffer):
        return 0
    return int(np.frombuffer(buffer, np.uint8).__array_interface__["data"][0])
