"""The leader's checks of a produced batch before it is appended.

They read only the header and the checksum, not the records. So a few checks are weaker than
Kafka's: of the timestamps only the first and the largest one are checked, from the header, and
the offsets of records are not. packed_form.py checks the compressed form, opened_batch.py the keys
on compacted topics.

The order of the checks is Kafka's, so that a batch with two faults gets the same error.
"""

from tidelog.core.errors import ErrorCode
from tidelog.core.record.compression import Codec
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
