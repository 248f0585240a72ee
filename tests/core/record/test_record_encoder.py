import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.record.compression import Codec
from tidelog.core.record.control import ControlType, TransactionMarker
from tidelog.core.record.decoder import TimestampType, decode
from tidelog.core.record.encoder import (
    NO_PRODUCER,
    Producer,
    encode_batch,
    encode_marker,
    encode_value,
)
from tidelog.core.record.record import Header, Record
from tidelog.core.record.record_batch import TRANSACTIONAL, parse

blobs = st.none() | st.binary(max_size=80)
headers = st.lists(st.builds(Header.of, st.binary(max_size=8), blobs), max_size=3).map(tuple)
timestamps = st.integers(-1, 2**53)
records = st.lists(st.builds(Record, blobs, blobs, timestamps, headers), min_size=1, max_size=8)
producers = st.builds(
    Producer, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)
)


@pytest.mark.parametrize("codec", Codec)
@given(records=records, producer=st.just(NO_PRODUCER) | producers, data=st.data())
def test_round_trip(
    codec: Codec, records: list[Record], producer: Producer, data: st.DataObject
) -> None:
    gaps = st.lists(st.integers(1, 1000), min_size=len(records), max_size=len(records))
    deltas = [0]
    for gap in data.draw(gaps):
        deltas.append(deltas[-1] + gap)
    encoded = encode_batch(
        records,
        attributes=codec | TRANSACTIONAL,
        producer=producer,
        base_offset=700,
        leader_epoch=3,
        offset_deltas=deltas[1:],
    )
    batch = parse(encoded)
    assert batch.crc_ok()
    assert batch.size == len(encoded)
    assert (batch.codec, batch.is_transactional, batch.count) == (codec, True, len(records))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == producer
    assert batch.max_timestamp == max(record.timestamp for record in records)
    decoded = decode(batch)
    assert [
        Record(record.key, record.value, record.timestamp, record.headers) for record in decoded
    ] == records
    assert [record.offset for record in decoded] == [700 + delta for delta in deltas[1:]]
    assert {record.leader_epoch for record in decoded} == {3}
    assert {record.timestamp_type for record in decoded} == {TimestampType.CREATE_TIME}


@given(st.binary(max_size=300), timestamps, st.just(NO_PRODUCER) | producers)
def test_encode_value_equals_encode_batch(value: bytes, timestamp: int, producer: Producer) -> None:
    whole = encode_batch([Record(None, value, timestamp)], producer=producer)
    assert encode_value(value, timestamp, producer) == whole


def test_known_bytes() -> None:
    """A batch that was encoded by hand from the format's specification."""
    encoded = encode_batch([Record(b"k", b"v", 5, (Header("h", None),))])
    assert encoded[61:].hex(" ") == "16 00 00 00 02 6b 02 76 02 02 68 01"
    assert encoded[:17].hex(" ", -4) == "00000000 00000000 0000003d ffffffff 02"


def test_new_batch_has_no_offset_and_no_epoch() -> None:
    batch = parse(encode_value(b"m"))
    assert (batch.base_offset, batch.leader_epoch, batch.max_timestamp) == (0, -1, -1)
    assert not batch.has_producer


def test_a_batch_is_never_empty() -> None:
    with pytest.raises(AssertionError, match="at least one"):
        encode_batch([])


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_markers(kind: ControlType) -> None:
    batch = parse(encode_marker(kind, Producer(5, 1, 99), 4, 1234))
    assert (batch.size, batch.count, batch.base_sequence) == (78, 1, -1)
    assert (batch.producer_id, batch.producer_epoch) == (5, 1)
    assert batch.is_control
    assert batch.is_transactional
    (record,) = decode(batch)
    assert record.control == TransactionMarker(kind, 4)
    assert record.timestamp == 1234
