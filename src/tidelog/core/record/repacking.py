"""The two cases in which a broker opens a produced batch.

A topic whose `compression.type` names another codec than the producer's has its batches
packed anew: the records' bytes, and with them their keys, headers, timestamps and offsets,
stay as they are; only the packing, the sizes and the checksum change. A compacted topic
needs a key in every record, and keys are inside.
"""

from tidelog.core.record.compression import Codec, compress, decompress
from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.decoder import decode
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


def repack(batch: RecordBatch, codec: Codec, level: int | None = None) -> RecordBatch:
    """The same batch under another codec, in a buffer of its own. Raises CorruptRecord."""
    packed = batch.view()
    records = decompress(batch.codec, packed[HEADER_SIZE:])
    anew = bytearray(packed[:HEADER_SIZE])
    anew += compress(codec, records, level)
    patch_packing(anew, len(anew) - PREFIX_SIZE, batch.attributes & ~CODEC_MASK | codec)
    UINT32.pack_into(anew, CRC_AT, crc32c(memoryview(anew)[CRC_FROM:]))
    return parse(anew)


def without_key(batch: RecordBatch) -> list[int]:
    """Which records of the batch have no key, by their place in it. Raises CorruptRecord."""
    return [index for index, record in enumerate(decode(batch)) if record.key is None]
