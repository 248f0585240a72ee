"""The four codecs of a batch's records, with a limit on what they may unpack to.

A batch of a kilobyte can unpack to gigabytes. Whoever opens one names the most memory it
may take; past that the batch counts as corrupt.

Snappy comes in two shapes under one codec id: a raw block (librdkafka) and the stream of
snappy-java, which wraps blocks in a frame of its own (the Java client). Both are read; raw
blocks are written, which every client reads.
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Final

import cramjam

from tidelog.core.errors import ErrorCode
from tidelog.core.record.crc32c import Buffer
from tidelog.core.record.record_batch import CorruptRecord

DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024
ZSTD_LEVEL = 3

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER_SIZE = 16
"""The magic, then two int32 versions that readers ignore."""

_BLOCK_SIZE = Struct(">i")
_FIRST_GUESS_BYTES = 64 * 1024
_GROWTH = 4
_OUTPUT_FULL: Final = "failed to write whole buffer"
"""How cramjam says that the output buffer is too small; it has no error type of its own."""


class Codec(IntEnum):
    """What the three lowest attribute bits say."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def decompress(codec: int, data: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """The records behind `codec`. Raises CorruptRecord: unknown codec, bad data, over `limit`."""
    if codec == Codec.NONE:
        return data
    unpack = _UNPACK.get(codec)
    if unpack is None:
        raise CorruptRecord(f"codec {codec}", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    try:
        return unpack(data, limit)
    except cramjam.DecompressionError as error:
        raise CorruptRecord(f"{Codec(codec).name.lower()}: {error}") from error


def compress(codec: Codec, data: Buffer) -> Buffer:
    return _PACK[codec](data)


def _stream(decompress_into: Callable[[Buffer, bytearray], int]) -> Callable[[Buffer, int], Buffer]:
    """A codec that does not say beforehand how long its output is: try larger and larger."""

    def unpack(data: Buffer, limit: int) -> Buffer:
        room = min(limit, max(_FIRST_GUESS_BYTES, len(data) * _GROWTH))
        while True:
            output = bytearray(room)
            try:
                written = decompress_into(data, output)
            except cramjam.DecompressionError as error:
                if str(error) != _OUTPUT_FULL:
                    raise
                if room == limit:
                    raise _too_large(limit) from error
                room = min(limit, room * _GROWTH)
            else:
                return memoryview(output)[:written]

    return unpack


def _too_large(limit: int) -> CorruptRecord:
    return CorruptRecord(f"unpacks to more than {limit} bytes")


def _snappy(data: Buffer, limit: int) -> Buffer:
    if bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _snappy_block(data, limit)
    output = bytearray()
    position = XERIAL_HEADER_SIZE
    while position < len(data):
        start = position + _BLOCK_SIZE.size
        if start > len(data):
            raise CorruptRecord("snappy: a block's size is cut off")
        (size,) = _BLOCK_SIZE.unpack_from(data, position)
        position = start + size
        if not start < position <= len(data):
            raise CorruptRecord(f"snappy: a block of {size} bytes")
        output += _snappy_block(data[start:position], limit - len(output))
    return output


def _snappy_block(data: Buffer, limit: int) -> Buffer:
    if cramjam.snappy.decompress_raw_len(data) > limit:
        raise _too_large(limit)
    return bytes(cramjam.snappy.decompress_raw(data))


_UNPACK: dict[int, Callable[[Buffer, int], Buffer]] = {
    Codec.GZIP: _stream(cramjam.gzip.decompress_into),
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _stream(cramjam.lz4.decompress_into),
    Codec.ZSTD: _stream(cramjam.zstd.decompress_into),
}
_PACK: dict[Codec, Callable[[Buffer], Buffer]] = {
    Codec.NONE: lambda data: data,
    Codec.GZIP: lambda data: bytes(cramjam.gzip.compress(data)),
    Codec.SNAPPY: lambda data: bytes(cramjam.snappy.compress_raw(data)),
    Codec.LZ4: lambda data: bytes(cramjam.lz4.compress(data)),
    Codec.ZSTD: lambda data: bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL)),
}
