"""Decoding of a batch into records.

For tools, clients and tests; the broker does not decode records. Every length is checked against
the bytes present, so any input returns records or raises CorruptRecord.

In a decoded batch offsets rise and are between `base_offset` and `last_offset`, with gaps where
compaction removed records. In a batch with LogAppendTime every record has the batch's
`max_timestamp`, whatever its own delta is.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum

from tidelog.core.record.compression import DECOMPRESSED_BYTES_MAX, decompress
from tidelog.core.record.control import ControlRecord, TransactionMarker, read_control
from tidelog.core.record.record import Header, Record
from tidelog.core.record.record_batch import HEADER_SIZE, CorruptRecord, RecordBatch
from tidelog.core.record.varint import INT64_BITS, read_varint
from tidelog.core.slotted import slotted
from tidelog.core.types import LeaderEpoch, Offset


class TimestampType(StrEnum):
    """Whether the producer or the broker set a timestamp, in Kafka's spelling."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


@slotted(kw_only=True)
class LogRecord(Record):
    """A record with its offset and leader epoch."""

    offset: Offset
    leader_epoch: LeaderEpoch
    timestamp_type: TimestampType
    control: ControlRecord | None
    """The decoded control record; None for a record of an application."""


def decode(batch: RecordBatch, limit: int = DECOMPRESSED_BYTES_MAX) -> list[LogRecord]:
    """Return the records of a batch; `limit` is the most bytes they may decompress to."""
    if batch.count < 0:
        raise CorruptRecord(f"invalid record count {batch.count}")
    if batch.count == 0 and batch.size == HEADER_SIZE:
        return []  # compaction removed all records
    data = bytes(decompress(batch.codec, batch.view()[HEADER_SIZE:], limit))
    records = []
    position = 0
    next_offset = batch.base_offset
    for _ in range(batch.count):
        record, position = _decode_record(batch, data, position)
        if not next_offset <= record.offset <= batch.last_offset:
            raise CorruptRecord(f"offset {record.offset} is outside the batch or out of order")
        next_offset = record.offset + 1
        records.append(record)
    if position != len(data):
        raise CorruptRecord(f"{len(data) - position} bytes after the last record")
    return records


def decode_marker(batch: RecordBatch) -> TransactionMarker | None:
    """Return the transaction marker in a control batch; None if it has another kind of record, or
    compaction removed it."""
    for record in decode(batch):
        if isinstance(record.control, TransactionMarker):
            return record.control
    return None


def _decode_record(batch: RecordBatch, data: bytes, position: int) -> tuple[LogRecord, int]:
    length, position = read_varint(data, position)
    end = position + length
    if not position < end <= len(data):
        raise CorruptRecord(
            f"record of {length} bytes, but {len(data) - position} bytes are left in the batch"
        )
    position += 1  # the record's own attributes: none are defined
    timestamp_delta, position = read_varint(data, position, INT64_BITS)
    offset_delta, position = read_varint(data, position)
    key, position = _decode_bytes(data, position, end)
    value, position = _decode_bytes(data, position, end)
    headers, position = _decode_headers(data, position, end)
    if position != end:
        raise CorruptRecord(f"record length and fields differ by {end - position} bytes")
    if batch.is_log_append_time:
        timestamp, timestamp_type = batch.max_timestamp, TimestampType.LOG_APPEND_TIME
    else:
        timestamp = batch.base_timestamp + timestamp_delta
        timestamp_type = TimestampType.CREATE_TIME
    record = LogRecord(
        key,
        value,
        timestamp,
        headers,
        offset=batch.base_offset + offset_delta,
        leader_epoch=batch.leader_epoch,
        timestamp_type=timestamp_type,
        control=read_control(key, value) if batch.is_control else None,
    )
    return record, end


def _decode_headers(data: bytes, position: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, position = read_varint(data, position)
    if count == 0:
        return (), position
    # A header takes at least two bytes; this limits the loop below.
    if not 0 < count <= (end - position) // 2:
        raise CorruptRecord(f"{count} headers in {end - position} bytes")
    headers = []
    for _ in range(count):
        name, position = _decode_bytes(data, position, end)
        if name is None:
            raise CorruptRecord("header without a key")
        value, position = _decode_bytes(data, position, end)
        headers.append(Header.of(name, value))
    return tuple(headers), position


def _decode_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length == -1:
        return None, position
    if not 0 <= length <= end - position:
        raise CorruptRecord(
            f"field of {length} bytes, but {end - position} bytes are left in the record"
        )
    return data[position : position + length], position + length


def read_committed(
    batches: Iterable[RecordBatch], aborted: Iterable[tuple[int, Offset]]
) -> Iterator[RecordBatch]:
    """Yield the committed data batches; `aborted` are pairs of producer id and first offset.

    The broker returns all records below the last stable offset, with the list of aborted
    transactions in that range; the client must remove their records.
    """
    for batch, is_aborted in with_aborted(batches, aborted):
        if not (is_aborted or batch.is_control):
            yield batch


def with_aborted(
    batches: Iterable[RecordBatch], aborted: Iterable[tuple[int, Offset]]
) -> Iterator[tuple[RecordBatch, bool]]:
    """Yield each batch, and whether it contains data of an aborted transaction.

    A producer's transactional batches are aborted from the first offset of its aborted transaction
    to the abort marker that ends it.
    """
    pending = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    aborting: set[int] = set()
    for batch in batches:
        while pending and pending[-1][1] <= batch.last_offset:
            aborting.add(pending.pop()[0])
        if batch.is_control:
            marker = decode_marker(batch)
            if marker is not None and marker.is_abort:
                aborting.discard(batch.producer_id)
            yield batch, False
        else:
            yield batch, batch.is_transactional and batch.producer_id in aborting
