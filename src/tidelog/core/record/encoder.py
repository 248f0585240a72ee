"""Encoding of records into a batch, as a producer does.

For clients, tools, the lab and tests: a broker writes the batches that it receives. Only
transaction markers, and headers without records in a repair, are encoded by a broker. Unless base
offset and leader epoch are given, a leader sets them later.

`encode_value` is a faster function for a batch of one record without key and headers: the simulator
creates hundreds of thousands of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.core.record.compression import Codec, compress
from tidelog.core.record.control import ControlType, marker_key, marker_value
from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.record import NO_TIMESTAMP, Record
from tidelog.core.record.record_batch import (
    CODEC_MASK,
    CONTROL,
    CRC_AT,
    CRC_FROM,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    PREFIX_SIZE,
    TRANSACTIONAL,
    UINT32,
)
from tidelog.core.record.varint import write_varint
from tidelog.core.types import LeaderEpoch, Offset

NO_LEADER_EPOCH = -1


class Producer(NamedTuple):
    """The producer of a batch, and the sequence number of its first record; -1 means none."""

    id: int = -1
    epoch: int = -1
    sequence: int = -1


NO_PRODUCER = Producer()


def encode_batch(
    records: Sequence[Record],
    *,
    attributes: int = 0,
    producer: Producer = NO_PRODUCER,
    base_offset: Offset = 0,
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
    offset_deltas: Sequence[int] | None = None,
) -> bytearray:
    """Encode one batch. `attributes` are bits of record_batch.py and a codec; `offset_deltas` are
    for a compacted batch, whose offsets have gaps."""
    assert records, "a batch holds at least one record"
    deltas = range(len(records)) if offset_deltas is None else offset_deltas
    base_timestamp = records[0].timestamp
    body = bytearray()
    for record, delta in zip(records, deltas, strict=True):
        encode_record(body, record, record.timestamp - base_timestamp, delta)
    batch = bytearray(HEADER_SIZE)
    batch += compress(Codec(attributes & CODEC_MASK), body)
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - PREFIX_SIZE,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        deltas[-1],
        base_timestamp,
        max(record.timestamp for record in records),
        *producer,
        len(records),
    )
    UINT32.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CRC_FROM:]))
    return batch


def encode_value(
    value: bytes, timestamp: int = NO_TIMESTAMP, producer: Producer = NO_PRODUCER
) -> bytearray:
    """Encode a batch of one record without key and headers, in half the time."""
    body = bytearray(b"\x00\x00\x00\x01")  # attributes, both deltas, no key
    write_varint(body, len(value))
    body += value
    body.append(0)
    batch = bytearray(HEADER_SIZE)
    write_varint(batch, len(body))
    batch += body
    size = len(batch) - PREFIX_SIZE
    epoch = NO_LEADER_EPOCH
    HEADER.pack_into(
        batch, 0, 0, size, epoch, MAGIC, 0, 0, 0, timestamp, timestamp, *producer, 1
    )  # fmt: skip
    UINT32.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CRC_FROM:]))
    return batch


def encode_emptied(offset: Offset, leader_epoch: LeaderEpoch) -> bytearray:
    """Encode a header without records, as compaction leaves at the end of a segment."""
    batch = bytearray(HEADER_SIZE)
    size, times = HEADER_SIZE - PREFIX_SIZE, (NO_TIMESTAMP, NO_TIMESTAMP)
    HEADER.pack_into(batch, 0, offset, size, leader_epoch, MAGIC, 0, 0, 0, *times, *NO_PRODUCER, 0)
    UINT32.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CRC_FROM:]))
    return batch


def encode_marker(
    kind: ControlType, producer: Producer, coordinator_epoch: int, timestamp: int
) -> bytearray:
    """Encode the control batch that ends a transaction. Markers have no sequence number."""
    record = Record(marker_key(kind), marker_value(coordinator_epoch), timestamp)
    writer = producer._replace(sequence=-1)
    return encode_batch([record], attributes=TRANSACTIONAL | CONTROL, producer=writer)


def encode_record(
    output: bytearray, record: Record, timestamp_delta: int, offset_delta: int
) -> None:
    """Append one encoded record to a batch, with its length in front."""
    body = bytearray(1)
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    _encode_bytes(body, record.key)
    _encode_bytes(body, record.value)
    write_varint(body, len(record.headers))
    for header in record.headers:
        _encode_bytes(body, header.key_bytes())
        _encode_bytes(body, header.value)
    write_varint(output, len(body))
    output += body


def _encode_bytes(output: bytearray, value: bytes | None) -> None:
    if value is None:
        write_varint(output, -1)
        return
    write_varint(output, len(value))
    output += value
