"""A produced batch that is decompressed because its topic's settings require it.

If `compression.type` of the topic names another codec than the producer used, the broker compresses
the records again. Their bytes stay as they are, and so do keys, headers, timestamps and offsets;
only the compressed form, the sizes and the checksum change. In a compacted topic every record
needs a key, and only the decompressed records show whether it has one.

A batch is decompressed at most once. `scan` reads offset, timestamp and presence of a key, and
skips the rest. It checks every length, those of headers included, as `decoder.py` does, but
creates no record objects; that takes a third of the time. Records and headers are charged to the
request's budget (work_budget.py), because a megabyte may hold millions of either.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tidelog.core.record.compression import Codec, compress
from tidelog.core.record.crc32c import Buffer, crc32c
from tidelog.core.record.record_batch import (
    CODEC_MASK,
    CRC_AT,
    CRC_FROM,
    HEADER_SIZE,
    PREFIX_SIZE,
    UINT32,
    CorruptRecord,
    RecordBatch,
    parse,
    patch_packing,
)
from tidelog.core.record.varint import INT64_BITS, read_varint
from tidelog.core.record.work_budget import RECORD_STEPS, WorkBudget
from tidelog.core.types import Offset


class ScannedRecord(NamedTuple):
    """A record's offset and timestamp, and whether it has a key."""

    offset: Offset
    timestamp: int
    has_key: bool


class OpenedBatch:
    """A batch, its decompressed records, and the budget that is charged for them.

    All methods raise CorruptRecord.
    """

    __slots__ = ("_batch", "_budget", "_records")

    def __init__(self, batch: RecordBatch, budget: WorkBudget) -> None:
        budget.begin_batch()
        self._batch = batch
        self._budget = budget
        self._records: Buffer | None = None

    def records(self) -> Buffer:
        """Return the bytes of the records, decompressed."""
        if self._records is None:
            packed = self._batch.view()[HEADER_SIZE:]
            self._records = self._budget.unpack(self._batch.codec, packed)
        return self._records

    def scan(self) -> Iterator[ScannedRecord]:
        """Yield the records in order."""
        return scan(self._batch, self.records, self._budget)

    def without_key(self) -> list[int]:
        """Return the indexes of the records that have no key."""
        return [index for index, record in enumerate(self.scan()) if not record.has_key]

    def repack(self, codec: Codec, level: int | None = None) -> RecordBatch:
        """Return the batch compressed with another codec, in a new buffer."""
        batch, records = self._batch, self.records()
        self._budget.charge_packing(len(records), codec, level)
        packed = bytearray(batch.view()[:HEADER_SIZE])
        packed += compress(codec, records, level)
        patch_packing(packed, len(packed) - PREFIX_SIZE, batch.attributes & ~CODEC_MASK | codec)
        UINT32.pack_into(packed, CRC_AT, crc32c(memoryview(packed)[CRC_FROM:]))
        return parse(packed)


def scan(
    batch: RecordBatch, unpacked: Callable[[], Buffer], budget: WorkBudget
) -> Iterator[ScannedRecord]:
    """Yield the records of a batch in order. Raises CorruptRecord."""
    if batch.count < 0:
        raise CorruptRecord(f"invalid record count {batch.count}")
    if batch.count == 0 and batch.size == HEADER_SIZE:
        return  # compaction removed all records
    budget.charge_steps(RECORD_STEPS * batch.count)
    data = bytes(unpacked())
    is_append_time, base_timestamp = batch.is_log_append_time, batch.base_timestamp
    position, next_offset = 0, batch.base_offset
    for _ in range(batch.count):
        length, position = read_varint(data, position)
        end = position + length
        if not position < end <= len(data):
            raise CorruptRecord(
                f"record of {length} bytes, but {len(data) - position} bytes are left in the batch"
            )
        delta, position = read_varint(data, position + 1, INT64_BITS)
        offset_delta, position = read_varint(data, position)
        offset = batch.base_offset + offset_delta
        if not next_offset <= offset <= batch.last_offset:
            raise CorruptRecord(f"offset {offset} is outside the batch or out of order")
        next_offset = offset + 1
        key_size, position = _skip_bytes(data, position, end)
        _, position = _skip_bytes(data, position, end)
        headers, position = read_varint(data, position)
        if headers:
            position = _skip_headers(data, position, end, headers, budget)
        if position != end:
            raise CorruptRecord(f"record length and fields differ by {end - position} bytes")
        timestamp = batch.max_timestamp if is_append_time else base_timestamp + delta
        yield ScannedRecord(offset, timestamp, key_size >= 0)
    if position != len(data):
        raise CorruptRecord(f"{len(data) - position} bytes after the last record")


def _skip_headers(data: Buffer, position: int, end: int, count: int, budget: WorkBudget) -> int:
    # A header takes at least two bytes.
    if not 0 < count <= (end - position) // 2:
        raise CorruptRecord(f"{count} headers in {end - position} bytes")
    budget.charge_steps(count)
    for _ in range(count):
        size, position = _skip_bytes(data, position, end)
        if size < 0:
            raise CorruptRecord("header without a key")
        _, position = _skip_bytes(data, position, end)
    return position


def _skip_bytes(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """Return the length (-1 for null) and the position after the bytes."""
    size, position = read_varint(data, position)
    if size == -1:
        return size, position
    if not 0 <= size <= end - position:
        raise CorruptRecord(
            f"field of {size} bytes, but {end - position} bytes are left in the record"
        )
    return size, position + size
