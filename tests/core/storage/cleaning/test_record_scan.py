"""`record_spans` finds the same records as the decoder, or raises an error."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.record.decoder import decode
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Header, Record
from tidelog.core.record.record_batch import HEADER_SIZE, CorruptRecord, parse
from tidelog.core.storage.cleaning.batch_filter import record_spans

optional = st.none() | st.binary(max_size=300)
headers = st.lists(st.builds(Header, st.text(max_size=5), optional), max_size=2).map(tuple)
records = st.builds(Record, optional, optional, st.integers(0, 2**45), headers)


@given(st.lists(records, min_size=1, max_size=200))
def test_scan_finds_the_records_of_the_decoder(made: list[Record]) -> None:
    batch = parse(encode_batch(made))
    data = bytes(batch.view()[HEADER_SIZE:])
    spans = list(record_spans(data, batch.count))
    assert [span[0] for span in spans] == [0, *[span[3] for span in spans[:-1]]]
    for span, record in zip(spans, decode(batch), strict=True):
        assert batch.base_timestamp + span[4] == record.timestamp
        assert span[5] == record.offset
        assert span[6] == record.key
        assert span[7] == (record.value is not None)


@given(st.binary(max_size=200), st.integers(0, 20))
def test_any_bytes_give_records_or_an_error(data: bytes, count: int) -> None:
    with suppress(CorruptRecord):
        assert len(list(record_spans(data, count))) == count


@pytest.mark.parametrize("cut", range(1, 15))
def test_cut_records_are_refused(cut: int) -> None:
    batch = parse(encode_batch([Record(b"key", b"value", 5)]))
    data = bytes(batch.view()[HEADER_SIZE:])
    assert len(data) == 15
    with pytest.raises(CorruptRecord):
        list(record_spans(data[:cut], 1))
    with pytest.raises(CorruptRecord):
        list(record_spans(data + b"x", 1))
