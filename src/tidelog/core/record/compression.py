"""The four compression codecs, with a limit on the decompressed size.

A batch of a kilobyte can decompress to gigabytes. The caller sets the largest
allowed size; a larger batch counts as corrupt.

LZ4 is written as frames of independent blocks; all kinds of frames are read.

Snappy has two formats under one codec id: a raw block (librdkafka) and the stream of snappy-java,
which frames several blocks (the Java client). Both are read; raw blocks are written, because every
client reads them.

The codec library is imported when the first batch is compressed or decompressed: many brokers
never do that.
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Final

from tidelog.core.errors import ErrorCode
from tidelog.core.record.crc32c import Buffer
from tidelog.core.record.record_batch import CorruptRecord

DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024
ZSTD_LEVEL = 3

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER_SIZE = 16
"""The magic, then two int32 versions that readers ignore."""

LZ4_HARD_LEVEL_MIN = 3
"""Lower levels all mean the fast mode."""
_LZ4_HEADS: Final = (
    (bytes.fromhex("04224d18604082"), 64 * 1024),
    (bytes.fromhex("04224d186050fb"), 256 * 1024),
    (bytes.fromhex("04224d18606051"), 1024 * 1024),
    (bytes.fromhex("04224d18607073"), 4 * 1024 * 1024),
)
"""Frame headers: magic, flags (version 1, independent blocks), block size and a checksum; and the
block size in bytes. A reader allocates that much for a block, so the smallest that fits is used."""
_LZ4_HEAD_SIZE = 7
_LZ4_BLOCK_SIZE = Struct("<I")
_LZ4_UNCOMPRESSED = 1 << 31
_BLOCK_SIZE = Struct(">i")
_FIRST_GUESS_BYTES = 64 * 1024
_GROWTH = 4
_OUTPUT_FULL: Final = "failed to write whole buffer"
"""cramjam's message for a too small output buffer; it has no error type for that."""


class Codec(IntEnum):
    """The codec in the three lowest attribute bits."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def decompress(codec: int, data: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """Decompress `data`. Raises CorruptRecord: unknown codec, invalid data, more than `limit`."""
    if codec == Codec.NONE:
        return data
    if codec > Codec.ZSTD:
        raise CorruptRecord(f"unknown codec {codec}", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    import cramjam

    if codec == Codec.SNAPPY:
        return _snappy(data, limit)
    streams = {Codec.GZIP: cramjam.gzip, Codec.LZ4: cramjam.lz4, Codec.ZSTD: cramjam.zstd}
    return _stream(Codec(codec), streams[Codec(codec)].decompress_into, data, limit)


def decompress_into(codec: int, data: Buffer, output: memoryview) -> int | None:
    """Decompress into `output`; return the number of bytes, or None if `output` is too small.
    Raises CorruptRecord as `decompress` does."""
    if codec not in (Codec.GZIP, Codec.LZ4, Codec.ZSTD):
        opened = decompress(codec, data)
        if len(opened) > len(output):
            return None
        output[: len(opened)] = opened
        return len(opened)
    import cramjam

    if codec == Codec.LZ4:
        size = _lz4_blocks_into(memoryview(data), output)
        if size is not None:
            return size
    streams = {Codec.GZIP: cramjam.gzip, Codec.LZ4: cramjam.lz4, Codec.ZSTD: cramjam.zstd}
    try:
        return int(streams[Codec(codec)].decompress_into(data, output))
    except cramjam.DecompressionError as error:
        if str(error) == _OUTPUT_FULL:
            return None
        raise _undecodable(codec, error) from error


def _undecodable(codec: int, error: Exception, unpacked_bytes: int = 0) -> CorruptRecord:
    reason = f"{Codec(codec).name.lower()}: {error}"
    return CorruptRecord(reason, unpacked_bytes=unpacked_bytes)


def _lz4_blocks_into(frame: memoryview, output: memoryview) -> int | None:
    """Decompress a frame as Kafka's clients write it, block by block, in two thirds of the time of
    the general function. None if the frame is of another kind, invalid or too large: then the
    general function decides."""
    import cramjam

    block_bytes = dict(_LZ4_HEADS).get(bytes(frame[:_LZ4_HEAD_SIZE]))
    if block_bytes is None:
        return None
    at, used = _LZ4_HEAD_SIZE, 0
    while at + _LZ4_BLOCK_SIZE.size <= len(frame):
        (size,) = _LZ4_BLOCK_SIZE.unpack_from(frame, at)
        at += _LZ4_BLOCK_SIZE.size
        if not size:
            return used if at == len(frame) else None
        block = frame[at : at + (size & ~_LZ4_UNCOMPRESSED)]
        at += len(block)
        room = output[used : used + block_bytes]
        if size & _LZ4_UNCOMPRESSED:
            if len(block) > len(room):
                return None
            room[: len(block)] = block
            used += len(block)
            continue
        try:
            used += cramjam.lz4.decompress_block_into(block, room, output_len=len(room))
        except cramjam.DecompressionError:
            return None
    return None


def compress(codec: Codec, data: Buffer, level: int | None = None) -> Buffer:
    """Compress `data`; a `level` of None is the codec's default."""
    if codec == Codec.NONE:
        return data
    import cramjam

    if codec == Codec.SNAPPY:
        return bytes(cramjam.snappy.compress_raw(data))
    if codec == Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, level=level))
    if codec == Codec.LZ4:
        return _lz4_frame(data, level)
    return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL if level is None else level))


def _lz4_frame(data: Buffer, level: int | None) -> Buffer:
    """Return a frame of independent blocks: Java's client rejects linked blocks."""
    import cramjam

    head, block_bytes = next(
        ((head, size) for head, size in _LZ4_HEADS if len(data) <= size), _LZ4_HEADS[-1]
    )
    hard = level is not None and level >= LZ4_HARD_LEVEL_MIN
    how = {"mode": "high_compression", "compression": level} if hard else {"mode": "default"}
    frame = bytearray(head)
    view = memoryview(data)
    for start in range(0, len(view), block_bytes):
        block = view[start : start + block_bytes]
        packed = cramjam.lz4.compress_block(block, store_size=False, **how)
        if len(packed) < len(block):
            frame += _LZ4_BLOCK_SIZE.pack(len(packed))
            frame += memoryview(packed)
        else:
            frame += _LZ4_BLOCK_SIZE.pack(len(block) | _LZ4_UNCOMPRESSED)
            frame += block
    return frame + _LZ4_BLOCK_SIZE.pack(0)


def _stream(
    codec: Codec, decompress_into: Callable[[Buffer, bytearray], int], data: Buffer, limit: int
) -> Buffer:
    """Decompress with larger and larger buffers: the format does not contain the output size."""
    import cramjam

    room = min(limit, max(_FIRST_GUESS_BYTES, len(data) * _GROWTH))
    while True:
        output = bytearray(room)
        try:
            written = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if str(error) != _OUTPUT_FULL:
                raise _undecodable(codec, error, room) from error
            if room == limit:
                raise _too_large(limit, room) from error
            room = min(limit, room * _GROWTH)
        else:
            return memoryview(output)[:written]


def _too_large(limit: int, unpacked_bytes: int) -> CorruptRecord:
    reason = f"decompresses to more than {limit} bytes"
    return CorruptRecord(reason, ErrorCode.MESSAGE_TOO_LARGE, unpacked_bytes)


def _snappy(data: Buffer, limit: int) -> Buffer:
    if bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _snappy_block(data, limit, 0)
    output = bytearray()
    position = XERIAL_HEADER_SIZE
    while position < len(data):
        start = position + _BLOCK_SIZE.size
        if start > len(data):
            raise CorruptRecord(
                "snappy: the size of a block is incomplete", unpacked_bytes=len(output)
            )
        (size,) = _BLOCK_SIZE.unpack_from(data, position)
        position = start + size
        if not start < position <= len(data):
            reason = f"snappy: invalid block size {size}"
            raise CorruptRecord(reason, unpacked_bytes=len(output))
        output += _snappy_block(data[start:position], limit, len(output))
    return output


def _snappy_block(data: Buffer, limit: int, before: int) -> Buffer:
    """`before` is the decompressed size of the blocks before this one."""
    import cramjam

    size = 0
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if before + size > limit:
            raise _too_large(limit, before)
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise _undecodable(Codec.SNAPPY, error, before + size) from error
