import struct

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidelog.core.errors import ErrorCode
from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.encoder import Producer, encode_batch, encode_value
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    CorruptRecord,
    batches,
    parse,
)

THREE = [Record(b"k", b"a", 100), Record(b"k", b"b", 300), Record(None, None, 200)]


def three_records() -> bytearray:
    return encode_batch(THREE, producer=Producer(7, 2, 40), base_offset=1000, leader_epoch=5)


def with_field(format_: str, at: int, value: int) -> bytearray:
    """Return a batch with one header field changed and a correct checksum."""
    data = three_records()
    struct.pack_into(format_, data, at, value)
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return data


def test_header_fields() -> None:
    batch = parse(three_records())
    assert HEADER_SIZE == 61
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (1000, 1002, 1003)
    assert (batch.base_timestamp, batch.max_timestamp) == (100, 300)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 2, 40)
    assert (batch.last_sequence, batch.count, batch.leader_epoch) == (42, 3, 5)
    assert batch.has_producer
    assert batch.crc_ok()


@pytest.mark.parametrize("kind", [bytes, bytearray, lambda data: memoryview(bytearray(data))])
def test_reads_any_buffer_at_any_position(kind: type[bytes]) -> None:
    data = three_records()
    batch = parse(kind(b"junk" + data + b"junk"), 4)
    assert batch.position == 4
    assert batch.view() == data
    assert batch.crc_ok()


FLAGS = {
    "none": (0, (False, False, False, False)),
    "log append time": (LOG_APPEND_TIME, (True, False, False, False)),
    "transactional": (TRANSACTIONAL, (False, True, False, False)),
    "control": (CONTROL, (False, False, True, False)),
    "delete horizon": (DELETE_HORIZON, (False, False, False, True)),
}


@pytest.mark.parametrize(("attributes", "expected"), FLAGS.values(), ids=FLAGS)
def test_attributes(attributes: int, expected: tuple[bool, ...]) -> None:
    batch = parse(with_field(">h", 21, attributes | 3))
    assert batch.codec == 3
    assert (
        batch.is_log_append_time,
        batch.is_transactional,
        batch.is_control,
        batch.has_delete_horizon,
    ) == expected


SEQUENCES = {"none": (-1, -1), "plain": (10, 12), "wraps to zero": (2**31 - 2, 0)}


@pytest.mark.parametrize(("base", "last"), SEQUENCES.values(), ids=SEQUENCES)
def test_last_sequence(base: int, last: int) -> None:
    assert parse(with_field(">i", 53, base)).last_sequence == last


@given(st.integers(0, 2**62), st.integers(0, 2**31 - 1), st.integers(0, 5))
def test_assign_changes_only_offset_and_epoch(offset: int, epoch: int, position: int) -> None:
    data = bytearray(position) + three_records()
    before = bytes(data[position:])
    batch = parse(data, position)
    batch.assign(offset, epoch)
    assert batch == parse(data, position)
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch) == (offset, offset + 2, epoch)
    assert batch.crc_ok()
    after = bytes(data[position:])
    assert after[8:12] + after[16:] == before[8:12] + before[16:]


def test_log_append_time_is_stamped_in_place() -> None:
    data = three_records()
    batch = parse(data)
    old_crc = batch.crc
    batch.stamp_log_append_time(999)
    assert batch == parse(data)
    assert batch.crc_ok()
    assert batch.crc != old_crc
    assert (batch.is_log_append_time, batch.max_timestamp, batch.base_timestamp) == (True, 999, 100)


def test_immutable_bytes_are_not_patched() -> None:
    with pytest.raises(AssertionError, match="immutable"):
        parse(bytes(three_records())).assign(1, 1)


@given(st.integers(21, 200), st.integers(0, 7))
def test_any_flipped_bit_under_the_checksum_is_detected(at: int, bit: int) -> None:
    assume((at, bit) != SIGN_OF_LAST_OFFSET_DELTA)
    data = encode_value(bytes(200))
    data[at] ^= 1 << bit
    assert not parse(data).crc_ok()


SIGN_OF_LAST_OFFSET_DELTA = (23, 7)


def test_flipped_sign_bit_counts_as_damage() -> None:
    data = three_records()
    data[23] ^= 0x80
    with pytest.raises(CorruptRecord) as caught:
        parse(data)
    assert caught.value.error == ErrorCode.CORRUPT_MESSAGE


BAD = {
    "no header": (
        b"\x00" * 60,
        "60 bytes are too few for a batch header",
        ErrorCode.INVALID_RECORD,
    ),
    "old magic": (with_field(">b", 16, 1), "magic 1", ErrorCode.INVALID_RECORD),
    "smaller than its header": (
        with_field(">i", 8, 48),
        "batch of 60 bytes is smaller than its header",
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "negative length": (
        with_field(">i", 8, -13),
        "batch of -1 bytes is smaller than its header",
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "cut off": (three_records()[:-1], "bytes are present", ErrorCode.INVALID_RECORD),
    "counts backwards": (
        with_field(">i", 23, -1),
        "last offset delta -1",
        ErrorCode.INVALID_RECORD,
    ),
}


@pytest.mark.parametrize(("data", "reason", "error"), BAD.values(), ids=BAD)
def test_invalid_batches(data: bytearray, reason: str, error: ErrorCode) -> None:
    with pytest.raises(CorruptRecord, match=reason) as caught:
        parse(data)
    assert caught.value.error == error
    assert reason in caught.value.reason


def test_batches_one_after_the_other() -> None:
    sizes = [len(encode_value(bytes(n))) for n in range(5)]
    data = bytearray().join(encode_value(bytes(n)) for n in range(5))
    found = list(batches(data))
    assert [batch.size for batch in found] == sizes
    assert [batch.position for batch in found] == [sum(sizes[:n]) for n in range(5)]
    assert list(batches(data, sizes[0])) == found[1:]


@given(st.integers(0, 200))
def test_incomplete_last_batch_is_left_out(length: int) -> None:
    one = encode_value(b"first")
    data = (one + encode_value(bytes(100)))[:length]
    whole = 2 if length == len(one) + len(encode_value(bytes(100))) else int(length >= len(one))
    assert len(list(batches(data))) == whole


def test_a_bad_header_in_the_middle_raises() -> None:
    one = encode_value(b"first")
    found = batches(one + bytes(100))
    assert next(found).size == len(one)
    with pytest.raises(CorruptRecord):
        next(found)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_give_batches_or_corrupt_record(data: bytes) -> None:
    position = 0
    try:
        for batch in batches(data):
            assert batch.position == position
            assert batch.last_offset >= batch.base_offset
            position += batch.size
    except CorruptRecord:
        pass
    assert position <= len(data)
