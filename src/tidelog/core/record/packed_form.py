"""Check the framing of a compressed batch without decompressing it.

Kafka decompresses every produced batch and checks each record. That costs more than all the rest
of a produce, so Tidelog does not. It checks the magic number and the chain of blocks, which must
end where the batch ends; this takes a microsecond. It finds truncated data, a wrong codec, and
uncompressed data. A valid frame with invalid content passes; `tidelog.produced.records.check`
finds that too.

The record count in the header advances the log end, so it must be plausible. Identical records that
compress well take nearly one byte each; a batch with a far higher count is decompressed.
"""

from struct import Struct
from struct import error as OutOfBytes

from tidelog.core.record.compression import XERIAL_HEADER_SIZE, XERIAL_MAGIC, Codec
from tidelog.core.record.crc32c import Buffer
from tidelog.core.record.record_batch import CODEC_MASK, HEADER_SIZE, RecordBatch

RECORDS_PER_PACKED_BYTE = 4
"""Batches with more are decompressed. Ten thousand records without keys and values have 1.1."""
BLOCKS_MAX = 256
"""Blocks of a frame that are checked; the rest is skipped."""

_GZIP_SIZE_MIN = 18
_GZIP_HEAD = Struct("<HBB")
_GZIP_MAGIC, _GZIP_DEFLATE, _GZIP_RESERVED = 0x8B1F, 8, 0xE0
_FRAME_HEAD = Struct("<IB")
"""For zstd and lz4: the magic number, and flags for the fields that follow."""
_WORD = Struct("<I")
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_FIELDS_SIZES = tuple(
    (1 - (flags >> 5 & 1)) + (0, 1, 2, 4)[flags & 3] + ((0, 2, 4, 8)[flags >> 6] or flags >> 5 & 1)
    for flags in range(256)
)
"""The size of the window, dictionary and content size fields, by flags."""
_ZSTD_CHECKSUM, _ZSTD_RLE, _ZSTD_RESERVED_BLOCK = 4, 1, 3
_LZ4_MAGIC = 0x184D2204
_LZ4_STORED = 1 << 31
_INT32_BIG = Struct(">i")
_SNAPPY_LENGTH_SIZE_MAX = 5


def is_plausible(batch: RecordBatch) -> bool:
    """Whether a compressed batch need not be decompressed: its frame looks valid, and it is large
    enough for its record count."""
    at, size = batch.position, batch.size
    if batch.count > RECORDS_PER_PACKED_BYTE * (size - HEADER_SIZE):
        return False
    try:
        return _CHECKS[batch.attributes & CODEC_MASK](batch.buffer, at + HEADER_SIZE, at + size)
    except (OutOfBytes, IndexError):  # it ends too early
        return False


def packing_fault(batch: RecordBatch) -> str | None:
    """Why no client can decompress the batch, if its framing shows that; else None."""
    at, codec = batch.position, Codec(batch.attributes & CODEC_MASK)
    try:
        sound = _CHECKS[codec](batch.buffer, at + HEADER_SIZE, at + batch.size)
    except (OutOfBytes, IndexError):
        sound = False
    return None if sound else f"the records are not compressed as {codec.name.lower()}"


def _gzip(data: Buffer, at: int, end: int) -> bool:
    magic, method, flags = _GZIP_HEAD.unpack_from(data, at)
    named = magic == _GZIP_MAGIC and method == _GZIP_DEFLATE and not flags & _GZIP_RESERVED
    return named and end - at >= _GZIP_SIZE_MIN


def _zstd(data: Buffer, at: int, end: int) -> bool:
    magic, flags = _FRAME_HEAD.unpack_from(data, at)
    if magic != _ZSTD_MAGIC:
        return False
    at += _FRAME_HEAD.size + _ZSTD_FIELDS_SIZES[flags]
    for _ in range(BLOCKS_MAX):
        # A block header has three bytes; it is read as the upper bytes of a word of four.
        (head,) = _WORD.unpack_from(data, at - 1)
        head >>= 8
        kind = head >> 1 & 3
        if kind == _ZSTD_RESERVED_BLOCK:
            return False
        at += 3 + (1 if kind == _ZSTD_RLE else head >> 3)
        if head & 1:
            at += 4 if flags & _ZSTD_CHECKSUM else 0
            return at == end or (at < end and _WORD.unpack_from(data, at)[0] == _ZSTD_MAGIC)
        if at >= end:
            return False
    return True


def _lz4(data: Buffer, at: int, end: int) -> bool:
    magic, flags = _FRAME_HEAD.unpack_from(data, at)
    if magic != _LZ4_MAGIC or flags >> 6 != 1:
        return False
    at += 7 + (8 if flags & 8 else 0) + (4 if flags & 1 else 0)
    checksum = 4 if flags & 16 else 0
    for _ in range(BLOCKS_MAX):
        (size,) = _WORD.unpack_from(data, at)
        at += 4
        if not size:
            at += 4 if flags & 4 else 0
            return at == end or (at < end and _WORD.unpack_from(data, at)[0] == _LZ4_MAGIC)
        at += (size & ~_LZ4_STORED) + checksum
        if at >= end:
            return False
    return True


def _snappy(data: Buffer, at: int, end: int) -> bool:
    if bytes(data[at : at + len(XERIAL_MAGIC)]) == XERIAL_MAGIC:
        at += XERIAL_HEADER_SIZE
        for _ in range(BLOCKS_MAX):
            if at >= end:
                return at == end
            (size,) = _INT32_BIG.unpack_from(data, at)
            if size <= 0:
                return False
            at += 4 + size
        return at <= end
    for place in range(at, min(at + _SNAPPY_LENGTH_SIZE_MAX, end)):
        if data[place] < 0x80:  # the last byte of the decompressed length
            return end > place + 1
    return False


_CHECKS = (lambda *_: True, _gzip, _snappy, _lz4, _zstd)
"""By codec: a check whether the bytes between two positions have this format."""
