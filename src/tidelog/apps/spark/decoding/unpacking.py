"""The records of chosen batches, unpacked, as addresses for a kernel.

A small batch can unpack to a large one, so packed batches are opened a group at a time:
what lies unpacked in memory is bounded by the size of a group and of the largest batch.
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

# A line of the table that kernels are given, in the order in which they know it.
FIELDS = 8
ADDRESS, LENGTH, BASE_OFFSET, LAST_DELTA, BASE_TIME, IS_APPEND_TIME, COUNT, EPOCH = range(8)


class Unpacked(NamedTuple):
    """Batches whose records lie in memory as they are."""

    batches: Table
    held: list[Buffer]
    """What the addresses in the table point into; to be kept as long as they are used."""


class UnpackMemory:
    """Room for a group of unpacked batches, used again for the next one."""

    def __init__(self) -> None:
        self.room = bytearray()
        self.address = 0
        self._ratio = _RATIO_GUESS

    def open(self) -> "UnpackMemory":
        """Make the room, once there is something to unpack."""
        if not self.room:
            self.room = bytearray(GROUP_BYTES)
            self.address = address(self.room)
        return self

    def unpack(self, codec: int, packed: Buffer, used: int) -> int | None:
        """Unpack behind what is used: how many bytes, None if there is no room. Where it looks
        as if there were none, it is not even tried."""
        left = len(self.room) - used
        if used and left < len(packed) * self._ratio:
            return None
        size = decompress_into(codec, packed, memoryview(self.room)[used:])
        if size is not None and len(packed):
            self._ratio = size / len(packed)
        return size


def unpack(selected: Selected, memory: UnpackMemory | None = None) -> Iterator[Unpacked]:
    """The chosen batches in groups, each good until the next is asked for. Raises
    CorruptRecord."""
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
        if size is None:  # larger than all that room
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
    """Where a buffer begins; 0 if it is empty."""
    if not len(buffer):
        return 0
    return int(np.frombuffer(buffer, np.uint8).__array_interface__["data"][0])
