"""The records of chosen batches, unpacked, as addresses for a kernel.

A small batch can unpack to a large one, so packed batches are opened a group at a time:
what lies unpacked in memory is bounded by the size of a group and of the largest batch.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tidelog.apps.spark.decoding.selection import Selected
from tidelog.core.record.compression import Codec, decompress
from tidelog.core.record.crc32c import Buffer
from tidelog.core.record.record_batch import HEADER_SIZE

GROUP_BYTES = 8 * 1024 * 1024

Table: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.int64]]

# A line of the table that kernels are given, in the order in which they know it.
FIELDS = 8
ADDRESS, LENGTH, BASE_OFFSET, LAST_DELTA, BASE_TIME, IS_APPEND_TIME, COUNT, EPOCH = range(8)


class Unpacked(NamedTuple):
    """Batches whose records lie in memory as they are."""

    batches: Table
    held: list[Buffer]
    """What the addresses in the table point into; to be kept as long as they are used."""


def unpack(selected: Selected) -> Iterator[Unpacked]:
    """The chosen batches in groups. Raises CorruptRecord."""
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
    yield from _grouped(selected, table, codecs.tolist())


def _grouped(selected: Selected, table: Table, codecs: list[int]) -> Iterator[Unpacked]:
    view = memoryview(selected.records)
    positions = selected.headers.position[selected.chosen].tolist()
    held: list[Buffer] = [selected.records]
    begun = size = 0
    for number, codec in enumerate(codecs):
        if codec != Codec.NONE:
            start = positions[number] + HEADER_SIZE
            opened = decompress(codec, view[start : start + int(table[number, LENGTH])])
            table[number, ADDRESS] = address(opened)
            table[number, LENGTH] = len(opened)
            held.append(opened)
            size += len(opened)
        if size >= GROUP_BYTES:
            yield Unpacked(table[begun : number + 1], held)
            held = [selected.records]
            begun, size = number + 1, 0
    if begun < len(codecs):
        yield Unpacked(table[begun:], held)


def address(buffer: Any) -> int:
    """Where a buffer begins; 0 if it is empty."""
    if not len(buffer):
        return 0
    return int(np.frombuffer(buffer, np.uint8).__array_interface__["data"][0])
