"""The leader's checks of a produced batch before it is appended.

They read the header, the checksum and the framing of a compressed batch, not the records. So a few
checks are weaker than Kafka's: of the timestamps only the first and the largest one are checked,
from the header, and the offsets of records are not. opened_batch.py checks the keys on compacted
topics. The order of the checks is Kafka's, so that a batch with two faults gets the same error.

Kafka decompresses every produced batch and checks each record. That costs more than all the rest
of a produce, so Tidelog does not. `is_plausible` checks the magic number and the chain of blocks,
which must end where the batch ends; this takes a microsecond. It finds truncated data, a wrong
codec, and uncompressed data. A valid frame with invalid content passes;
`tidelog.produced.records.check` finds that too.

The record count in the header advances the log end, so it must be plausible. Identical records that
compress well take nearly one byte each; a batch with a far higher count is decompressed.
"""

from struct import Struct
from struct import error as OutOfBytes

from tidelog.core.errors import ErrorCode
from tidelog.core.record.compression import XERIAL_HEADER_SIZE, XERIAL_MAGIC, Codec
from tidelog.core.record.crc32c import Buffer
from tidelog.core.record.record import NO_TIMESTAMP
from tidelog.core.record.record_batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    CorruptRecord,
    RecordBatch,
    parse,
)
from tidelog.core.slotted import slotted

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


MAX_MESSAGE_BYTES = 1_048_588
TIMESTAMP_AFTER_MAX_MS = 3_600_000
TIMESTAMP_BEFORE_MAX_MS = 2**63 - 1
ZSTD_PRODUCE_VERSION = 7
RECORD_SIZE_MIN = 7
"""One byte each for length, attributes, timestamp, offset, key, value, headers."""
_ZSTD = int(Codec.ZSTD)
_NONE = ErrorCode.NONE
"""A lookup in an enumeration takes as long as a call."""


@slotted
class BatchRules:
    """The settings of a topic that apply to its batches."""

    max_message_bytes: int = MAX_MESSAGE_BYTES
    log_append_time: bool = False
    timestamp_before_max_ms: int = TIMESTAMP_BEFORE_MAX_MS
    timestamp_after_max_ms: int = TIMESTAMP_AFTER_MAX_MS
    codec: Codec | None = None
    """The codec of batches in the log; None keeps the producer's."""
    level: int | None = None
    """The compression level; None is the codec's default."""
    keys_needed: bool = False
    """The topic is compacted."""
    records_checked: bool = False
    """Decompress every batch and check all records, as Kafka does."""


def validate(
    records: Buffer,
    rules: BatchRules,
    earliest_now_ms: int,
    latest_now_ms: int,
    produce_version: int,
    refusal: ErrorCode = _NONE,
) -> RecordBatch | ErrorCode:
    """Return the one batch in `records` (a partition's part of a produce request), or an error.

    The current time is between `earliest_now_ms` and `latest_now_ms`. They differ while the clock
    is not trusted (wall_clock.py); a timestamp that may be valid is accepted.

    `refusal` is why the partition accepts no batch now. It has precedence over errors of the
    batch, but not over errors of the request.
    """
    try:
        batch = parse(records)
    except CorruptRecord as corrupt:
        return corrupt.error
    if batch.size != len(records):
        return ErrorCode.INVALID_RECORD
    if produce_version < ZSTD_PRODUCE_VERSION and batch.codec == _ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if refusal is not _NONE:
        return refusal
    if batch.base_offset != 0:
        return ErrorCode.INVALID_RECORD
    if batch.size > rules.max_message_bytes:
        return ErrorCode.MESSAGE_TOO_LARGE
    if not batch.crc_ok():
        return ErrorCode.CORRUPT_MESSAGE
    return _header_error(batch, rules, earliest_now_ms, latest_now_ms) or batch


def _header_error(
    batch: RecordBatch, rules: BatchRules, earliest_now_ms: int, latest_now_ms: int
) -> ErrorCode | None:
    attributes, latest = batch.attributes, batch.max_timestamp
    if attributes & CODEC_MASK > _ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if batch.count != batch.last_offset + 1 or attributes & CONTROL:
        return ErrorCode.INVALID_RECORD
    if not attributes & CODEC_MASK and batch.count * RECORD_SIZE_MIN > batch.size - HEADER_SIZE:
        return ErrorCode.INVALID_RECORD
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        return ErrorCode.INVALID_RECORD
    if attributes & LOG_APPEND_TIME:
        return ErrorCode.INVALID_TIMESTAMP
    if rules.log_append_time or latest == NO_TIMESTAMP:
        return None
    too_new = latest - latest_now_ms > rules.timestamp_after_max_ms
    earliest = batch.base_timestamp if batch.base_timestamp < latest else latest
    too_old = (
        earliest != NO_TIMESTAMP and earliest_now_ms - earliest > rules.timestamp_before_max_ms
    )
    return ErrorCode.INVALID_TIMESTAMP if too_new or too_old else None
