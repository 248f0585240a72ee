"""The two cases in which a broker opens a produced batch.

A topic whose `compression.type` names another codec than the producer's has its batches
packed anew: the records' bytes, and with them their keys, headers, timestamps and offsets,
stay as they are; only the packing, the sizes and the checksum change. A compacted topic
needs a key in every record, and keys are inside.

A kilobyte may hold gigabytes, and a megabyte a million records. One thread serves all, so
what one request may have opened is bounded; a producer that is told so sends less at once.
"""

from tidelog.core.errors import ErrorCode
from tidelog.core.record.compression import Codec, compress, decompress
from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.decoder import OPENED_BYTES_MAX, OPENED_RECORDS_MAX, decode
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


class Opening:
    """What may still be opened for one request."""

    __slots__ = ("_bytes", "_records")

    def __init__(self) -> None:
        self._bytes = OPENED_BYTES_MAX
        self._records = OPENED_RECORDS_MAX

    def repack(self, batch: RecordBatch, codec: Codec, level: int | None = None) -> RecordBatch:
        """The same batch under another codec, in a buffer of its own. Raises CorruptRecord."""
        packed = batch.view()
        records = decompress(batch.codec, packed[HEADER_SIZE:], self._bytes)
        self._bytes -= len(records)
        anew = bytearray(packed[:HEADER_SIZE])
        anew += compress(codec, records, level)
        patch_packing(anew, len(anew) - PREFIX_SIZE, batch.attributes & ~CODEC_MASK | codec)
        UINT32.pack_into(anew, CRC_AT, crc32c(memoryview(anew)[CRC_FROM:]))
        return parse(anew)

    def without_key(self, batch: RecordBatch) -> list[int]:
        """Which records of the batch have no key, by their place. Raises CorruptRecord."""
        if batch.count > self._records:
            reason = f"more than {OPENED_RECORDS_MAX} records in one request; send fewer at once"
            raise CorruptRecord(reason, ErrorCode.MESSAGE_TOO_LARGE)
        self._records -= batch.count
        records = decode(batch, self._bytes)
        return [index for index, record in enumerate(records) if record.key is None]
