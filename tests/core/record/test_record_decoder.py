import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.record.compression import Codec, compress
from tidelog.core.record.control import ControlRecord, ControlType, TransactionMarker, marker_value
from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.decoder import TimestampType, decode, decode_marker
from tidelog.core.record.encoder import Producer, encode_batch, encode_marker
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import (
    CONTROL,
    HEADER,
    LOG_APPEND_TIME,
    CorruptRecord,
    RecordBatch,
    parse,
)


def batch_of(
    body: bytes, count: int = 1, last_offset_delta: int = 0, attributes: int = 0
) -> RecordBatch:
    """A batch around any bytes; base offset 10, base timestamp 1000, max timestamp 2000."""
    header = HEADER.pack(
        10, 49 + len(body), 3, 2, 0, attributes, last_offset_delta, 1000, 2000, -1, -1, -1, count
    )
    data = bytearray(header + body)
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return parse(data)


MINIMAL = "0c 00 00 00 01 01 00"
"""Length 6, attributes, both deltas 0, null key, null value, no headers."""


def test_minimal_record() -> None:
    (record,) = decode(batch_of(bytes.fromhex(MINIMAL)))
    assert (record.key, record.value, record.headers) == (None, None, ())
    assert (record.offset, record.leader_epoch, record.timestamp) == (10, 3, 1000)
    assert record.timestamp_type is TimestampType.CREATE_TIME
    assert record.control is None


def test_empty_batch_left_by_compaction() -> None:
    assert decode(batch_of(b"", count=0, last_offset_delta=9)) == []
    assert decode(batch_of(b"", count=0, last_offset_delta=9, attributes=Codec.LZ4)) == []


def test_log_append_time_overrules_the_records_own() -> None:
    data = encode_batch([Record(None, b"a", 100), Record(None, b"b", 300)])
    batch = parse(data)
    batch.stamp_log_append_time(5000)
    assert [(r.timestamp, r.timestamp_type) for r in decode(batch)] == [
        (5000, TimestampType.LOG_APPEND_TIME)
    ] * 2


BAD = {
    "length cut off": ("", 1, 0, "varint"),
    "longer than what is there": ("0e 00 00 00 01 01 00", 1, 0, "record of 7 bytes"),
    "no room for attributes": ("00", 1, 0, "record of 0 bytes"),
    "negative length": ("01", 1, 0, "record of -1 bytes"),
    "shorter than its fields": ("0a 00 00 00 01 01 00", 1, 0, "record length and fields differ"),
    "longer than its fields": ("0e 00 00 00 01 01 00 00", 1, 0, "record length and fields differ"),
    "key runs over": ("0c 00 00 00 0c 01 00", 1, 0, "6 bytes, but 2 bytes are left"),
    "key length below null": ("0c 00 00 00 03 01 00", 1, 0, "field of -2 bytes"),
    "value runs over": ("0c 00 00 00 01 06 00", 1, 0, "3 bytes, but 1 bytes are left"),
    "negative header count": ("0c 00 00 00 01 01 01", 1, 0, "-1 headers"),
    "more headers than bytes": ("10 00 00 00 01 01 04 00 00", 1, 0, "2 headers in 2 bytes"),
    "header without a key": ("10 00 00 00 01 01 02 01 01", 1, 0, "header without a key"),
    "header runs over": ("10 00 00 00 01 01 02 00 04", 1, 0, "2 bytes, but 0 bytes are left"),
    "bytes after the last": (MINIMAL + "ff", 1, 0, "1 bytes after the last record"),
    "fewer records than counted": (MINIMAL, 2, 1, "varint"),
    "negative count": ("", -1, 0, "invalid record count -1"),
    "offset above the last": ("0c 00 00 02 01 01 00", 1, 0, "offset 11 is outside"),
    "offset below the base": ("0c 00 00 01 01 01 00", 1, 0, "offset 9 is outside"),
    "offsets that do not rise": (MINIMAL * 2, 2, 1, "offset 10 is outside"),
}


@pytest.mark.parametrize(("body", "count", "delta", "reason"), BAD.values(), ids=BAD)
def test_bad_records(body: str, count: int, delta: int, reason: str) -> None:
    with pytest.raises(CorruptRecord, match=reason):
        decode(batch_of(bytes.fromhex(body), count, delta))


@pytest.mark.parametrize("codec", [*Codec, 5, 6, 7])
@given(body=st.binary(max_size=60), count=st.integers(-2, 4), packed=st.booleans())
def test_arbitrary_bytes_give_records_or_corrupt_record(
    codec: int, body: bytes, count: int, packed: bool
) -> None:
    data = bytes(compress(Codec(codec), body)) if packed and codec <= Codec.ZSTD else body
    batch = batch_of(data, count, 3, codec)
    try:
        records = decode(batch, limit=1000)
    except CorruptRecord:
        return
    assert len(records) == count
    assert all(10 <= record.offset <= 13 for record in records)


@given(at=st.integers(61, 200), byte=st.integers(0, 255), control=st.booleans())
def test_damaged_records_give_records_or_corrupt_record(at: int, byte: int, control: bool) -> None:
    data = encode_batch(
        [Record(b"\x00\x00\x00\x01key", b"\x00\x00value" * 4, i) for i in range(3)],
        attributes=CONTROL if control else 0,
    )
    data[61 + at % (len(data) - 61)] = byte
    try:
        records = decode(parse(data))
    except CorruptRecord:
        return
    assert len(records) == 3


def test_limit_on_unpacked_size() -> None:
    batch = parse(encode_batch([Record(None, bytes(5000))], attributes=Codec.ZSTD))
    with pytest.raises(CorruptRecord, match="more than 4000 bytes"):
        decode(batch, limit=4000)


def test_marker_is_found() -> None:
    batch = parse(encode_marker(ControlType.ABORT, Producer(1, 0, 0), 6, 0))
    assert decode_marker(batch) == TransactionMarker(ControlType.ABORT, 6)


def test_control_batches_without_a_marker() -> None:
    key = struct.pack(">hh", 0, ControlType.LEADER_CHANGE)
    other = parse(encode_batch([Record(key, marker_value(0))], attributes=CONTROL))
    assert [record.control for record in decode(other)] == [
        ControlRecord(ControlType.LEADER_CHANGE)
    ]
    assert decode_marker(other) is None
    compacted_away = batch_of(b"", count=0, attributes=CONTROL | LOG_APPEND_TIME)
    assert decode_marker(compacted_away) is None
