"""Which records of a batch compaction keeps, and the batch that is written with them.

A record is kept if no later record has the same key. A record without a value is a tombstone: it
is kept until `delete.retention.ms` after the first cleaning that read it, so that consumers learn
of the deletion. That time, the delete horizon, is written into the batch in place of its base
timestamp (KIP-534). While a replica is offline, no delete horizon is set, and no tombstone or
marker is removed: that replica would return with the old value, or with a transaction that never
ends, and might become leader.

Records of aborted transactions are removed. A marker may be removed when all records of its
transaction are removed; until then it is kept, and for an aborted transaction also its entry in
the transaction index.

Invariants: a batch keeps its base offset, last offset, epochs and sequence numbers; records keep
their offsets and timestamps; a batch of which all records are kept is copied byte for byte.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from tidelog.core.lineage.transaction_index import AbortedTransaction
from tidelog.core.record.compression import Codec, compress, decompress
from tidelog.core.record.control import TransactionMarker
from tidelog.core.record.crc32c import Buffer, crc32c
from tidelog.core.record.decoder import decode
from tidelog.core.record.record import NO_TIMESTAMP
from tidelog.core.record.record_batch import (
    CODEC_MASK,
    CRC_AT,
    CRC_FROM,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    PREFIX_SIZE,
    UINT32,
    CorruptRecord,
    RecordBatch,
    parse,
)
from tidelog.core.record.varint import INT64_BITS, read_varint, write_varint
from tidelog.core.storage.cleaning.offset_map import OffsetMap
from tidelog.core.storage.cleaning.plan import CleaningPlan
from tidelog.core.types import Offset

Span: TypeAlias = tuple[int, int, int, int, int, int, bytes | None, bool]
"""A record as positions in the bytes of its batch: of its length, its attributes, its offset delta,
and its end; then its timestamp delta, offset delta, key, and whether it has a value."""


class BatchFilter:
    """Filters the batches of a log, in order."""

    def __init__(self, plan: CleaningPlan, offsets: OffsetMap, mapped_end: Offset) -> None:
        self.transactions = TransactionFilter(plan.aborted)
        self.records_read = 0
        self.records_kept = 0
        self._plan = plan
        self._offsets = offsets
        self._mapped_end = mapped_end
        """Keys from this offset on are not in the map: all later records are kept."""

    def retained(self, batch: RecordBatch, *, keep_empty: bool) -> RecordBatch | None:
        """Return the batch with the kept records; the same object if all are kept. With
        `keep_empty` at least the header is kept, as for each producer's last batch. Raises
        CorruptRecord."""
        self.records_read += batch.count
        removable = self.transactions.is_removable(batch)
        if batch.last_offset >= self._mapped_end:
            self.records_kept += batch.count
            return batch
        expired = (
            self._plan.all_in_sync
            and batch.has_delete_horizon
            and batch.base_timestamp <= self._plan.earliest_ms
        )
        keep_empty = keep_empty or self._is_last_of_producer(batch)
        if batch.is_control:
            kept = self._retained_marker(batch, removable, expired)
        else:
            kept = None if removable else self._retained_records(batch, expired)
        if kept is not None:
            self.records_kept += kept.count
        elif keep_empty:
            return batch if batch.size == HEADER_SIZE else _emptied(batch)
        return kept

    def _is_last_of_producer(self, batch: RecordBatch) -> bool:
        last = self._plan.producers.get(batch.producer_id)
        if last is None:
            return False
        if last.last_offset is not None:
            return batch.last_offset == last.last_offset
        return batch.is_control and batch.producer_epoch == last.producer_epoch

    def _retained_marker(
        self, batch: RecordBatch, removable: bool, expired: bool
    ) -> RecordBatch | None:
        """Keep a marker, or remove it after its delete horizon, like a tombstone."""
        if batch.size == HEADER_SIZE or (removable and expired):
            return None
        if not removable or batch.has_delete_horizon or not self._plan.all_in_sync:
            return batch
        data = records_of(batch)
        return self._with_horizon(batch, data, list(record_spans(data, batch.count)))

    def _retained_records(self, batch: RecordBatch, expired: bool) -> RecordBatch | None:
        last_of, base_offset = self._offsets.get, batch.base_offset
        data = records_of(batch)
        kept: list[Span] = []
        tombstones = False
        for span in record_spans(data, batch.count):
            key, has_value = span[6], span[7]
            # Records without a key are from before the topic was compacted; they are removed, as
            # in Kafka.
            if key is None or base_offset + span[5] < last_of(key):
                continue
            if not has_value:
                if expired:
                    continue
                tombstones = self._plan.all_in_sync
            kept.append(span)
        if not kept:
            return None
        if tombstones and not batch.has_delete_horizon:
            return self._with_horizon(batch, data, kept)
        if len(kept) == batch.count:
            return batch
        records = b"".join([data[span[0] : span[3]] for span in kept])
        return _packed(batch, kept, records, batch.attributes, batch.base_timestamp)

    def _with_horizon(self, batch: RecordBatch, data: bytes, kept: list[Span]) -> RecordBatch:
        """Return the batch with a delete horizon; timestamp deltas are relative to it."""
        horizon = self._plan.latest_ms + self._plan.config.delete_retention_ms
        shift = batch.base_timestamp - horizon
        records = bytearray()
        for _, body, offset_at, end, timestamp_delta, _, _, _ in kept:
            record = bytearray(data[body : body + 1])
            write_varint(record, timestamp_delta + shift)
            record += data[offset_at:end]
            write_varint(records, len(record))
            records += record
        return _packed(batch, kept, records, batch.attributes | DELETE_HORIZON, horizon)


def records_of(batch: RecordBatch) -> bytes:
    """Return the decompressed records of a batch. Raises CorruptRecord."""
    if batch.size == HEADER_SIZE:
        return b""  # an earlier cleaning left only the header
    return bytes(decompress(batch.codec, batch.view()[HEADER_SIZE:]))


def _packed(
    batch: RecordBatch, kept: list[Span], records: Buffer, attributes: int, base_timestamp: int
) -> RecordBatch:
    """Return a batch of these records with the offsets and the codec of `batch`."""
    max_timestamp = batch.max_timestamp
    if not batch.is_log_append_time:
        max_timestamp = batch.base_timestamp + max(span[4] for span in kept)
    packed = compress(Codec(batch.codec), records)
    return _made(batch, packed, attributes, base_timestamp, max_timestamp, len(kept))


def _emptied(batch: RecordBatch) -> RecordBatch:
    """Return only the header of a batch, with its offsets, producer and sequence numbers."""
    attributes = batch.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    return _made(batch, b"", attributes, NO_TIMESTAMP, batch.max_timestamp, 0)


def _made(
    batch: RecordBatch,
    packed: Buffer,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
) -> RecordBatch:
    made = bytearray(HEADER_SIZE)
    made += packed
    HEADER.pack_into(
        made,
        0,
        batch.base_offset,
        len(made) - PREFIX_SIZE,
        batch.leader_epoch,
        MAGIC,
        0,
        attributes,
        batch.last_offset - batch.base_offset,
        base_timestamp,
        max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        count,
    )
    UINT32.pack_into(made, CRC_AT, crc32c(memoryview(made)[CRC_FROM:]))
    return parse(made)


class _Aborting:
    """An aborted transaction whose marker was not read yet."""

    __slots__ = ("seen", "transaction")

    def __init__(self, transaction: AbortedTransaction) -> None:
        self.transaction = transaction
        self.seen = False
        """Whether the log still has a batch of it."""


class TransactionFilter:
    """Decides about transactional batches while a log is read from its start."""

    __slots__ = ("_aborting", "_ahead", "_committing", "kept")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._ahead = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._aborting: dict[int, _Aborting] = {}
        self._committing: set[int] = set()
        self.kept: list[AbortedTransaction] = []
        """Aborted transactions whose markers were kept; the caller writes them to the index and
        clears the list."""

    def is_removable(self, batch: RecordBatch) -> bool:
        """Process the next batch. Return whether it belongs to an aborted transaction, or is the
        marker of a transaction without remaining records."""
        if not (batch.is_transactional or batch.is_control):
            return False
        while self._ahead and self._ahead[-1].first_offset <= batch.last_offset:
            entry = self._ahead.pop()
            self._aborting.setdefault(entry.producer_id, _Aborting(entry))
        if batch.is_control:
            return self._marker_is_removable(batch)
        aborting = self._aborting.get(batch.producer_id)
        if aborting is None:
            self._committing.add(batch.producer_id)
            return False
        aborting.seen = True
        return True

    def _marker_is_removable(self, batch: RecordBatch) -> bool:
        controls = [record.control for record in decode(batch)]
        if not controls:
            return True  # an earlier cleaning removed its record
        marker = controls[0]
        if not isinstance(marker, TransactionMarker):
            return False
        if marker.is_abort:
            aborting = self._aborting.pop(batch.producer_id, None)
            if aborting is None or not aborting.seen:
                return True
            self.kept.append(aborting.transaction)
            return False
        if batch.producer_id not in self._committing:
            return True
        self._committing.remove(batch.producer_id)
        return False


def record_spans(data: bytes, count: int) -> Iterator[Span]:  # noqa: PLR0912 - see below
    """Yield the `count` records in these bytes. Raises CorruptRecord.

    Headers and values are skipped, because most records are copied unchanged.
    """
    position, size = 0, len(data)
    try:
        for _ in range(count):
            start = position
            # Most varints have one byte, most lengths at most two: reading them here instead of
            # calling `read_varint` makes cleaning a quarter faster.
            byte = data[start]
            if byte < 0x80:
                length, body = (byte >> 1) ^ -(byte & 1), start + 1
            elif (high := data[start + 1]) < 0x80:
                raw = byte & 0x7F | high << 7
                length, body = (raw >> 1) ^ -(raw & 1), start + 2
            else:
                length, body = read_varint(data, start)
            end = body + length
            if not body < end <= size:
                raise CorruptRecord(
                    f"record of {length} bytes, but {size - body} bytes are left in the batch"
                )
            byte = data[body + 1]
            if byte < 0x80:
                timestamp_delta, offset_at = (byte >> 1) ^ -(byte & 1), body + 2
            else:
                timestamp_delta, offset_at = read_varint(data, body + 1, INT64_BITS)
            byte = data[offset_at]
            if byte < 0x80:
                offset_delta, position = (byte >> 1) ^ -(byte & 1), offset_at + 1
            else:
                offset_delta, position = read_varint(data, offset_at)
            byte = data[position]
            if byte < 0x80:
                length, at = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                length, at = read_varint(data, position)
            position = at + length if length >= 0 else at
            if position >= end:
                raise CorruptRecord(f"key of {length} bytes extends past the end of its record")
            key = data[at:position] if length >= 0 else None
            # A value's length is never below -1, which is written as the byte 1.
            has_value = data[position] != 1
            yield start, body, offset_at, end, timestamp_delta, offset_delta, key, has_value
            position = end
    except IndexError:
        raise CorruptRecord(f"the batch ends before its {count} records") from None
    if position != size:
        raise CorruptRecord(f"{size - position} bytes after the last record")
