"""The headers of all batches in a chunk of a log, as arrays.

Always true: each entry is a whole batch of format 2 that lies inside the chunk, its offsets
rise from batch to batch, and they fit into 63 bits. A batch that is cut off at the end, as
the last one of a fetch answer may be, is left out and counted in `tail`.
"""

from dataclasses import dataclass
from struct import Struct
from typing import TypeAlias

import numpy as np

from tidelog.core.errors import ErrorCode
from tidelog.core.record.crc32c import Buffer, crc32c
from tidelog.core.record.record_batch import (
    CODEC_MASK,
    CONTROL,
    CRC_FROM,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    PREFIX_SIZE,
    TRANSACTIONAL,
    CorruptRecord,
)

Int64s: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
Bools: TypeAlias = np.ndarray[tuple[int], np.dtype[np.bool_]]

_LENGTH = Struct(">8xi")
_MAGIC_AT = 16
HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("count", ">i4"),
    ]
)
"""The 61 bytes as they lie in a log."""
assert HEADER.itemsize == HEADER_SIZE
_NUMBERS = np.dtype([(name, np.int64) for name in HEADER.names or ()])
_AS_IT_IS = (
    *("leader_epoch", "crc", "attributes", "base_timestamp", "max_timestamp"),
    *("producer_id", "producer_epoch", "base_sequence", "count"),
)
_HEADER_BYTES = np.arange(HEADER_SIZE)
_OFFSET_MAX = 2**63 - 1 - 2**31


@dataclass(frozen=True, slots=True)
class BatchHeaders:
    """One entry in each array for each batch."""

    position: Int64s
    size: Int64s
    base_offset: Int64s
    last_offset: Int64s
    leader_epoch: Int64s
    crc: Int64s
    attributes: Int64s
    base_timestamp: Int64s
    max_timestamp: Int64s
    producer_id: Int64s
    producer_epoch: Int64s
    base_sequence: Int64s
    count: Int64s
    tail: int
    """Bytes of a batch that is cut off."""

    def __len__(self) -> int:
        return len(self.position)

    @property
    def codec(self) -> Int64s:
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> Bools:
        return self.attributes & CONTROL != 0

    @property
    def is_transactional(self) -> Bools:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_log_append_time(self) -> Bools:
        return self.attributes & LOG_APPEND_TIME != 0


def scan_headers(records: Buffer) -> BatchHeaders:
    """Raises CorruptRecord."""
    positions, end = _positions(records)
    raw = np.frombuffer(records, np.uint8)
    at = np.array(positions, np.int64)
    found = raw[at[:, None] + _HEADER_BYTES].view(HEADER).ravel().astype(_NUMBERS)
    old = found["magic"] != MAGIC
    if old.any():
        raise _wrong_magic(int(found["magic"][old][0]))
    base_offset, last_delta = found["base_offset"], found["last_offset_delta"]
    last_offset = base_offset + last_delta
    if (last_delta < 0).any() or (base_offset < 0).any() or (base_offset > _OFFSET_MAX).any():
        raise CorruptRecord("a batch whose offsets are none")
    if (base_offset[1:] <= last_offset[:-1]).any():
        raise CorruptRecord("batches whose offsets do not rise")
    if (found["count"] < 0).any():
        raise CorruptRecord("a batch with less than no records")
    return BatchHeaders(
        position=at,
        size=found["length"] + PREFIX_SIZE,
        base_offset=base_offset,
        last_offset=last_offset,
        tail=len(records) - end,
        **{name: found[name] for name in _AS_IT_IS},
    )


def check_checksums(records: Buffer, headers: BatchHeaders) -> None:
    """Raises CorruptRecord if the checksum of any batch is not that of its bytes."""
    view = memoryview(records)
    starts = (headers.position + CRC_FROM).tolist()
    stops = (headers.position + headers.size).tolist()
    for number, crc in enumerate(headers.crc.tolist()):
        if crc32c(view[starts[number] : stops[number]]) != crc:
            offset = headers.base_offset[number]
            raise CorruptRecord(f"checksum of the batch at offset {offset} differs")


def _positions(records: Buffer) -> tuple[list[int], int]:
    """Where whole batches begin, and where the last of them ends."""
    found = []
    position = 0
    end = len(records)
    while end - position >= PREFIX_SIZE:
        size = _LENGTH.unpack_from(records, position)[0] + PREFIX_SIZE
        if size < HEADER_SIZE:
            if end - position > _MAGIC_AT and records[position + _MAGIC_AT] in (0, 1):
                raise _wrong_magic(records[position + _MAGIC_AT])
            raise CorruptRecord(f"batch of {size} bytes is smaller than its header")
        if size > end - position:
            break
        found.append(position)
        position += size
    return found, position


def _wrong_magic(magic: int) -> CorruptRecord:
    hint = "; format 2 is read here, that of Kafka 0.11 and newer" if magic in (0, 1) else ""
    return CorruptRecord(f"records of format {magic}{hint}", ErrorCode.INVALID_RECORD)
