"""A batch that is being filled, and how it is closed.

Room for the header is left in front, so that a batch that is not packed is closed where it
lies. Always true: the checksum of a closed batch is right.
"""

from typing import Any, TypeAlias

import numpy as np

from tidelog.core.record.compression import Codec, compress
from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.encoder import NO_LEADER_EPOCH, Producer
from tidelog.core.record.record_batch import (
    CRC_AT,
    CRC_FROM,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    PREFIX_SIZE,
    UINT32,
)

_FIRST_BYTES = 32 * 1024

Memory: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint8]]


class OpenBatch:
    """The records of a batch so far."""

    def __init__(self, size_max: int, count_max: int) -> None:
        self.size_max = size_max
        self.count_max = count_max
        self.memory: Memory = np.empty(0, np.uint8)
        self.address = 0
        self.grow(min(_FIRST_BYTES, size_max))
        self.clear()

    def clear(self) -> None:
        """Begin another one."""
        self.used = HEADER_SIZE
        self.count = 0
        self.base_time = 0
        self.max_time = 0

    def grow(self, need: int) -> None:
        """Make room for `need` bytes; what was written is kept."""
        larger = np.empty(max(need, 2 * len(self.memory), HEADER_SIZE), np.uint8)
        larger[: len(self.memory)] = self.memory
        self.memory = larger
        self.address = int(larger.__array_interface__["data"][0])

    def close(self, attributes: int, codec: Codec, level: int | None, producer: Producer) -> bytes:
        """The whole batch; then it is empty again."""
        view: Any = memoryview(self.memory.data)[: self.used]
        if codec != Codec.NONE:
            packed = compress(codec, view[HEADER_SIZE:], level)
            batch = bytearray(HEADER_SIZE + len(packed))
            batch[HEADER_SIZE:] = packed
            view = memoryview(batch)
        HEADER.pack_into(
            view,
            0,
            0,
            len(view) - PREFIX_SIZE,
            NO_LEADER_EPOCH,
            MAGIC,
            0,
            attributes | codec,
            self.count - 1,
            self.base_time,
            self.max_time,
            *producer,
            self.count,
        )
        UINT32.pack_into(view, CRC_AT, crc32c(view[CRC_FROM:]))
        self.clear()
        return bytes(view)
