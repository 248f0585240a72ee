"""What of a batch stays, and the batch that holds just that.

A record stays if no later one has its key. One without a value is a tombstone: it stays
until `delete.retention.ms` after the first cleaning that met it, so that a reader who has
seen the key learns of its end. That time, the delete horizon, is written into the batch, in
the place of its base timestamp (KIP-534). While a replica is away the time does not begin and
no tombstone goes, nor a marker: that replica would come back with the old value, or with a
transaction that never ends, and might lead one day.

Always true: a batch keeps its base offset, last offset, epochs and sequence numbers,
whatever goes out of it; records keep their offsets and timestamps; a batch of which
everything stays is copied byte for byte.
"""

from tidelog.core.record.compression import Codec, compress, decompress
from tidelog.core.record.crc32c import Buffer, crc32c
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
    RecordBatch,
    parse,
)
from tidelog.core.record.varint import write_varint
from tidelog.core.storage.cleaning.offset_map import OffsetMap
from tidelog.core.storage.cleaning.plan import CleaningPlan
from tidelog.core.storage.cleaning.record_scan import Span, record_spans
from tidelog.core.storage.cleaning.transactions import TransactionsSeen
from tidelog.core.types import Offset


class BatchFilter:
    """Takes the batches of a log in order."""

    def __init__(self, plan: CleaningPlan, offsets: OffsetMap, mapped_end: Offset) -> None:
        self.transactions = TransactionsSeen(plan.aborted)
        self.records_read = 0
        self.records_kept = 0
        self._plan = plan
        self._offsets = offsets
        self._mapped_end = mapped_end
        """Keys at this offset and above are not in the map: everything there stays."""

    def retained(self, batch: RecordBatch, *, keep_empty: bool) -> RecordBatch | None:
        """The batch without what is superseded; the very same if all of it stays. With
        `keep_empty` at least its header stays, as for each producer's last batch. Raises
        CorruptRecord."""
        self.records_read += batch.count
        superfluous = self.transactions.superfluous(batch)
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
            kept = self._retained_marker(batch, superfluous, expired)
        else:
            kept = None if superfluous else self._retained_records(batch, expired)
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
        self, batch: RecordBatch, superfluous: bool, expired: bool
    ) -> RecordBatch | None:
        """A marker that ends nothing any more goes as a tombstone does."""
        if batch.size == HEADER_SIZE or (superfluous and expired):
            return None
        if not superfluous or batch.has_delete_horizon or not self._plan.all_in_sync:
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
            # A record without a key can be superseded by none, nor supersede any: it came
            # before the topic was compacted, and goes, as in Kafka.
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
        """The same records, their timestamps told from the delete horizon on."""
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
    """The records' bytes, unpacked. Raises CorruptRecord."""
    if batch.size == HEADER_SIZE:
        return b""  # an earlier cleaning left only the header
    return bytes(decompress(batch.codec, batch.view()[HEADER_SIZE:]))


def _packed(
    batch: RecordBatch, kept: list[Span], records: Buffer, attributes: int, base_timestamp: int
) -> RecordBatch:
    """A batch of these records in the place of `batch`, packed as it was."""
    max_timestamp = batch.max_timestamp
    if not batch.is_log_append_time:
        max_timestamp = batch.base_timestamp + max(span[4] for span in kept)
    packed = compress(Codec(batch.codec), records)
    return _made(batch, packed, attributes, base_timestamp, max_timestamp, len(kept))


def _emptied(batch: RecordBatch) -> RecordBatch:
    """Only the header: who wrote it and up to which offset and sequence number."""
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
