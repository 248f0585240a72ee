"""A produced batch that is decompressed because its topic's settings require it.

A topic whose `compression.type` names another codec than the producer's has its batches
packed again: the records' bytes, and with them their keys, headers, timestamps and offsets,
stay as they are; only the packing, the sizes and the checksum change. A compacted topic
needs a key in every record, and keys are inside.

A batch is decompressed at most once.
"""

from collections.abc import Iterator

from tidelog.core.record.compression import Codec, compress
from tidelog.core.record.crc32c import Buffer, crc32c
from tidelog.core.record.opening.record_scan import ScannedRecord, scan
from tidelog.core.record.opening.work_budget import WorkBudget
from tidelog.core.record.record_batch import (
    CODEC_MASK,
    CRC_AT,
    CRC_FROM,
    HEADER_SIZE,
    PREFIX_SIZE,
    UINT32,
    RecordBatch,
    parse,
    patch_packing,
)


class OpenedBatch:
    """A batch, its records once they are unpacked, and the budget that pays for it.

    All methods raise CorruptRecord.
    """

    __slots__ = ("_batch", "_budget", "_records")

    def __init__(self, batch: RecordBatch, budget: WorkBudget) -> None:
        budget.begin_batch()
        self._batch = batch
        self._budget = budget
        self._records: Buffer | None = None

    def records(self) -> Buffer:
        """The records' bytes."""
        if self._records is None:
            packed = self._batch.view()[HEADER_SIZE:]
            self._records = self._budget.unpack(self._batch.codec, packed)
        return self._records

    def scan(self) -> Iterator[ScannedRecord]:
        """The records, in order."""
        return scan(self._batch, self.records, self._budget)

    def without_key(self) -> list[int]:
        """Which records have no key, by their place."""
        return [index for index, record in enumerate(self.scan()) if not record.has_key]

    def repack(self, codec: Codec, level: int | None = None) -> RecordBatch:
        """The same batch under another codec, in a buffer of its own."""
        batch, records = self._batch, self.records()
        self._budget.charge_packing(len(records), codec, level)
        packed = bytearray(batch.view()[:HEADER_SIZE])
        packed += compress(codec, records, level)
        patch_packing(packed, len(packed) - PREFIX_SIZE, batch.attributes & ~CODEC_MASK | codec)
        UINT32.pack_into(packed, CRC_AT, crc32c(memoryview(packed)[CRC_FROM:]))
        return parse(packed)
