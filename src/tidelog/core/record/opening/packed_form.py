"""Whether a packed batch looks as if a client could unpack it, without unpacking it.

Kafka unpacks every batch that is produced, and looks at each record. That costs more than all
the rest of a produce, so here batches stay closed. What is checked instead takes a microsecond:
the magic number and the chain of blocks, which must end where the batch ends. It finds what is
cut off, sent under the wrong codec, or not packed at all. A block that is framed well and full
of nonsense passes; `tidelog.produced.records.check` finds that as well.

The number of records that a batch claims moves the log's end, so it must be plausible. Packed
well, identical records take nearly a byte each; a batch that claims far more is opened.
"""

from struct import Struct

from tidelog.core.record.compression import XERIAL_HEADER_SIZE, XERIAL_MAGIC, Codec
from tidelog.core.record.crc32c import Buffer
from tidelog.core.record.record_batch import HEADER_SIZE, RecordBatch

RECORDS_PER_PACKED_BYTE = 4
"""More are not believed without a look. Ten thousand records without keys and values have 1.1."""
BLOCKS_MAX = 256
"""Of a frame with more, the rest is not followed."""

_GZIP_HEAD = b"\x1f\x8b\x08"
_GZIP_SIZE_MIN = 18
_GZIP_RESERVED = 0xE0
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_HEAD_SIZE = 5
_ZSTD_DICTIONARY_SIZES = (0, 1, 2, 4)
_ZSTD_CONTENT_SIZES = (0, 2, 4, 8)
_ZSTD_RLE, _ZSTD_RESERVED_BLOCK = 1, 3
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_STORED = 1 << 31
_UINT32_LITTLE = Struct("<I")
_INT32_BIG = Struct(">i")
_SNAPPY_LENGTH_SIZE_MAX = 5


def is_doubtful(batch: RecordBatch) -> bool:
    """Whether a packed batch claims so many records that it has to be opened."""
    return batch.count > RECORDS_PER_PACKED_BYTE * (batch.size - HEADER_SIZE)


def packing_fault(batch: RecordBatch) -> str | None:
    """Why no client can unpack the batch, if that can be seen from outside."""
    body = batch.view()[HEADER_SIZE:]
    codec = Codec(batch.codec)
    try:
        sound = _CHECKS[codec](body)
    except (IndexError, ValueError):  # the frame ends too early
        sound = False
    return None if sound else f"the records are not packed as {codec.name.lower()}"


def _gzip(body: Buffer) -> bool:
    return (
        len(body) >= _GZIP_SIZE_MIN
        and bytes(body[:3]) == _GZIP_HEAD
        and not body[3] & _GZIP_RESERVED
    )


def _zstd(body: Buffer) -> bool:
    if bytes(body[:4]) != _ZSTD_MAGIC:
        return False
    described = body[4]
    single, content = described >> 5 & 1, described >> 6
    content_size = _ZSTD_CONTENT_SIZES[content] or single
    at = _ZSTD_HEAD_SIZE + (1 - single) + _ZSTD_DICTIONARY_SIZES[described & 3] + content_size
    for _ in range(BLOCKS_MAX):
        if at + 3 > len(body):
            return False
        head = body[at] | body[at + 1] << 8 | body[at + 2] << 16
        kind = head >> 1 & 3
        if kind == _ZSTD_RESERVED_BLOCK:
            return False
        at += 3 + (1 if kind == _ZSTD_RLE else head >> 3)
        if head & 1:
            at += 4 if described & 4 else 0
            return at == len(body) or bytes(body[at : at + 4]) == _ZSTD_MAGIC
    return at <= len(body)


def _lz4(body: Buffer) -> bool:
    if bytes(body[:4]) != _LZ4_MAGIC or body[4] >> 6 != 1:
        return False
    flags = body[4]
    at = 7 + (8 if flags & 8 else 0) + (4 if flags & 1 else 0)
    checksum = 4 if flags & 16 else 0
    for _ in range(BLOCKS_MAX):
        if at + 4 > len(body):
            return False
        (size,) = _UINT32_LITTLE.unpack_from(body, at)
        at += 4
        if not size:
            at += 4 if flags & 4 else 0
            return at == len(body) or bytes(body[at : at + 4]) == _LZ4_MAGIC
        at += (size & ~_LZ4_STORED) + checksum
    return at <= len(body)


def _snappy(body: Buffer) -> bool:
    if bytes(body[: len(XERIAL_MAGIC)]) == XERIAL_MAGIC:
        at = XERIAL_HEADER_SIZE
        for _ in range(BLOCKS_MAX):
            if at == len(body):
                return True
            if at + 4 > len(body):
                return False
            (size,) = _INT32_BIG.unpack_from(body, at)
            if size <= 0:
                return False
            at += 4 + size
        return at <= len(body)
    for at in range(_SNAPPY_LENGTH_SIZE_MAX):  # the length of what is packed
        if body[at] < 0x80:
            return len(body) > at + 1
    return False


_CHECKS = {Codec.GZIP: _gzip, Codec.SNAPPY: _snappy, Codec.LZ4: _lz4, Codec.ZSTD: _zstd}
