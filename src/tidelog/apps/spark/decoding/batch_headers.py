"""Read the headers of all batches in a chunk of a log as arrays, and select batches for a reader.

Invariants of `BatchHeaders`: each entry is a whole batch of format 2 inside the chunk; offsets
rise from batch to batch and fit into 63 bits. A fetch response may end with an incomplete batch; it
is left out, and `tail` is the number of its bytes.

Readers do not see control batches. Readers of committed data do not see aborted transactions. The
rule is the one of core/record/isolation, applied to a whole chunk at once.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple, TypeAlias

import numpy as np

from tidelog.core.errors import ErrorCode
from tidelog.core.record.crc32c import Buffer, crc32c
from tidelog.core.record.decoder import decode_marker
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
    parse,
)
from tidelog.core.types import Offset

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
"""The 61 bytes of a batch header."""
assert HEADER.itemsize == HEADER_SIZE
_NUMBERS = np.dtype([(name, np.int64) for name in HEADER.names or ()])
_UNCHANGED = (
    *("leader_epoch", "crc", "attributes", "base_timestamp", "max_timestamp"),
    *("producer_id", "producer_epoch", "base_sequence", "count"),
)
_HEADER_BYTES = np.arange(HEADER_SIZE)
OFFSET_MAX = 2**63 - 1
_BASE_OFFSET_MAX = OFFSET_MAX - 2**31


@dataclass(frozen=True, slots=True)
class BatchHeaders:
    """The header fields of batches: arrays with one entry for each batch."""

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
    """Bytes of an incomplete batch at the end."""

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
    """Read the headers of all batches in a chunk. Raises CorruptRecord."""
    positions, end = _positions(records)
    raw = np.frombuffer(records, np.uint8)
    at = np.array(positions, np.int64)
    found = raw[at[:, None] + _HEADER_BYTES].view(HEADER).ravel().astype(_NUMBERS)
    old = found["magic"] != MAGIC
    if old.any():
        raise _wrong_magic(int(found["magic"][old][0]))
    base_offset, last_delta = found["base_offset"], found["last_offset_delta"]
    last_offset = base_offset + last_delta
    if (last_delta < 0).any() or (base_offset < 0).any() or (base_offset > _BASE_OFFSET_MAX).any():
        raise CorruptRecord("batch has invalid offsets")
    if (base_offset[1:] <= last_offset[:-1]).any():
        raise CorruptRecord("offsets of batches do not increase")
    if (found["count"] < 0).any():
        raise CorruptRecord("batch has a negative record count")
    return BatchHeaders(
        position=at,
        size=found["length"] + PREFIX_SIZE,
        base_offset=base_offset,
        last_offset=last_offset,
        tail=len(records) - end,
        **{name: found[name] for name in _UNCHANGED},
    )


def check_checksums(records: Buffer, headers: BatchHeaders) -> None:
    """Raise CorruptRecord if the checksum of a batch is wrong."""
    view = memoryview(records)
    starts = (headers.position + CRC_FROM).tolist()
    stops = (headers.position + headers.size).tolist()
    for number, crc in enumerate(headers.crc.tolist()):
        if crc32c(view[starts[number] : stops[number]]) != crc:
            offset = headers.base_offset[number]
            raise CorruptRecord(f"checksum of the batch at offset {offset} differs")


class Selected(NamedTuple):
    """A chunk, and the batches in it to read rows from."""

    records: Buffer
    headers: BatchHeaders
    chosen: Int64s
    """Their indexes in `headers`, ascending."""


def select(
    records: Buffer,
    headers: BatchHeaders,
    start: Offset,
    end: Offset,
    aborted: Iterable[tuple[int, Offset]] = (),
) -> Selected:
    """Select the data batches with offsets in [start, end).

    `aborted` lists (producer id, first offset), for readers of committed data. Raises
    CorruptRecord.
    """
    seen = (headers.last_offset >= start) & (headers.base_offset < end) & ~headers.is_control
    # Compaction may leave a header without records.
    seen &= (headers.count > 0) | (headers.size > HEADER_SIZE)
    pending = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    if pending:
        _leave_out_aborted(records, headers, pending, seen)
    return Selected(records, headers, np.flatnonzero(seen).astype(np.int64))


def _leave_out_aborted(
    records: Buffer,
    headers: BatchHeaders,
    pending: list[tuple[int, Offset]],
    seen: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> None:
    aborting: set[int] = set()
    is_control = headers.is_control
    for number in np.flatnonzero(headers.is_transactional | is_control).tolist():
        while pending and pending[-1][1] <= headers.last_offset[number]:
            aborting.add(pending.pop()[0])
        producer = int(headers.producer_id[number])
        if is_control[number]:
            marker = decode_marker(parse(records, int(headers.position[number])))
            if marker is not None and marker.is_abort:
                aborting.discard(producer)
        elif producer in aborting:
            seen[number] = False


def _positions(records: Buffer) -> tuple[list[int], int]:
    """Return the positions of whole batches, and the end of the last batch."""
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
    hint = "; only format 2 (Kafka 0.11 and newer) is supported" if magic in (0, 1) else ""
    return CorruptRecord(f"records of format {magic}{hint}", ErrorCode.INVALID_RECORD)
