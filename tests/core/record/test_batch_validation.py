import struct

import pytest

from tidelog.core.errors import ErrorCode
from tidelog.core.record.compression import Codec
from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.encoder import Producer, encode_batch, encode_value
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, RecordBatch
from tidelog.core.record.validation import BatchRules, validate

NOW = 1_000_000_000
TWO = [Record(b"k", b"a", NOW), Record(b"k", b"b", NOW + 1)]
PLAIN = BatchRules()


def changed(format_: str, at: int, value: int, data: bytearray | None = None) -> bytearray:
    """Return a batch with one header field changed and a correct checksum."""
    data = data or encode_batch(TWO)
    struct.pack_into(format_, data, at, value)
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return data


def at_times(*timestamps: int) -> bytearray:
    return encode_batch([Record(None, b"v", timestamp) for timestamp in timestamps])


ACCEPTED = {
    "plain": (encode_batch(TWO), PLAIN),
    "idempotent": (encode_batch(TWO, producer=Producer(1, 0, 0)), PLAIN),
    "transactional": (
        encode_batch(TWO, attributes=TRANSACTIONAL, producer=Producer(1, 0, 0)),
        PLAIN,
    ),
    "zstd from version 7 on": (encode_batch(TWO, attributes=Codec.ZSTD), PLAIN),
    "sequence without a producer": (encode_batch(TWO, producer=Producer(-1, -1, 0)), PLAIN),
    "as large as allowed": (encode_value(b""), BatchRules(max_message_bytes=68)),
    "without a timestamp": (at_times(-1), BatchRules(timestamp_before_max_ms=0)),
    "a first record without a timestamp": (
        at_times(-1, NOW),
        BatchRules(timestamp_before_max_ms=0),
    ),
    "an hour ahead": (at_times(NOW + 3_600_000), PLAIN),
    "as old as allowed": (at_times(NOW - 5), BatchRules(timestamp_before_max_ms=5)),
    "any time where the broker's counts": (at_times(0, 2**40), BatchRules(log_append_time=True)),
}


@pytest.mark.parametrize(("data", "rules"), ACCEPTED.values(), ids=ACCEPTED)
def test_valid_batches_are_accepted(data: bytearray, rules: BatchRules) -> None:
    batch = validate(data, rules, NOW, NOW, 7)
    assert isinstance(batch, RecordBatch)
    assert batch.size == len(data)


REFUSED = {
    "nothing": (b"", PLAIN, ErrorCode.INVALID_RECORD),
    "cut off": (encode_batch(TWO)[:-1], PLAIN, ErrorCode.INVALID_RECORD),
    "old magic": (changed(">b", 16, 1), PLAIN, ErrorCode.INVALID_RECORD),
    "two batches": (encode_batch(TWO) * 2, PLAIN, ErrorCode.INVALID_RECORD),
    "bytes after the batch": (encode_batch(TWO) + b"\x00", PLAIN, ErrorCode.INVALID_RECORD),
    "base offset not 0": (encode_batch(TWO, base_offset=1), PLAIN, ErrorCode.INVALID_RECORD),
    "too large": (
        encode_value(b"x"),
        BatchRules(max_message_bytes=68),
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
    "too large and damaged": (
        bytearray(encode_value(b"x")[:-1] + b"\xff"),
        BatchRules(max_message_bytes=68),
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
    "damaged": (bytearray(encode_batch(TWO)[:-1] + b"\xff"), PLAIN, ErrorCode.CORRUPT_MESSAGE),
    "size below the header's": (changed(">i", 8, 10), PLAIN, ErrorCode.CORRUPT_MESSAGE),
    "unknown codec": (changed(">h", 21, 5), PLAIN, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "no records": (changed(">i", 57, 0), PLAIN, ErrorCode.INVALID_RECORD),
    "more offsets than records": (changed(">i", 23, 2), PLAIN, ErrorCode.INVALID_RECORD),
    "fewer offsets than records": (changed(">i", 23, 0), PLAIN, ErrorCode.INVALID_RECORD),
    "offsets backwards": (changed(">i", 23, -1), PLAIN, ErrorCode.INVALID_RECORD),
    "control batch": (changed(">h", 21, CONTROL), PLAIN, ErrorCode.INVALID_RECORD),
    "producer without a sequence": (
        encode_batch(TWO, producer=Producer(1, 0, -1)),
        PLAIN,
        ErrorCode.INVALID_RECORD,
    ),
    "log-append bit": (changed(">h", 21, LOG_APPEND_TIME), PLAIN, ErrorCode.INVALID_TIMESTAMP),
    "log-append bit where the broker's time counts": (
        changed(">h", 21, LOG_APPEND_TIME),
        BatchRules(log_append_time=True),
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "more than an hour ahead": (at_times(NOW + 3_600_001), PLAIN, ErrorCode.INVALID_TIMESTAMP),
    "too old": (
        at_times(NOW - 6),
        BatchRules(timestamp_before_max_ms=5),
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "a first record too old": (
        at_times(NOW - 6, NOW),
        BatchRules(timestamp_before_max_ms=5),
        ErrorCode.INVALID_TIMESTAMP,
    ),
}


@pytest.mark.parametrize(("data", "rules", "error"), REFUSED.values(), ids=REFUSED)
def test_invalid_batches_are_refused(data: bytearray, rules: BatchRules, error: ErrorCode) -> None:
    assert validate(data, rules, NOW, NOW, 9) == error


def test_zstd_needs_version_7() -> None:
    data = encode_batch(TWO, attributes=Codec.ZSTD)
    assert validate(data, PLAIN, NOW, NOW, 6) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (encode_batch(TWO), ErrorCode.NOT_ENOUGH_REPLICAS),
        (encode_batch(TWO) * 2, ErrorCode.INVALID_RECORD),
        (REFUSED["damaged"][0], ErrorCode.NOT_ENOUGH_REPLICAS),
        (REFUSED["base offset not 0"][0], ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
    ids=["sound", "two batches", "damaged", "base offset not 0"],
)
def test_error_of_the_partition_comes_before_errors_of_the_batch(
    data: bytearray, error: ErrorCode
) -> None:
    assert validate(data, PLAIN, NOW, NOW, 9, ErrorCode.NOT_ENOUGH_REPLICAS) == error


def test_defaults_are_kafkas() -> None:
    assert BatchRules(1_048_588, False, 2**63 - 1, 3_600_000) == PLAIN
