"""Arrow columns to record batches: the same bytes as core's encoder, however rows are divided."""

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_batches import records, text

from tidelog.apps.spark.columns import ARROW_TYPES, HEADERS
from tidelog.apps.spark.encoding.encoder import (
    BatchEncoder,
    EncodedBatch,
    Rows,
    WrongRows,
    partitions_of_keys,
    timestamps_ms,
)
from tidelog.apps.spark.worker import NUMBA, PYTHON
from tidelog.core.record.compression import Codec
from tidelog.core.record.decoder import decode
from tidelog.core.record.encoder import Producer, encode_batch
from tidelog.core.record.record import Header, Record
from tidelog.core.record.record_batch import HEADER_SIZE, MAX_SEQUENCE, parse
from tidelog.shell.client.partitioner import partition_of_key

engines = pytest.mark.parametrize("engine", [NUMBA, PYTHON])


def as_rows(rows: list[Record], *, text_columns: bool = False) -> Rows:
    """Return columns that are slices of longer ones, as Arrow may pass them."""
    padded = [Record(b"before", None), *rows, Record(None, b"after")]
    kind = pa.string() if text_columns else pa.binary()
    keys = pa.array([row.key for row in padded], kind)
    values = pa.array([row.value for row in padded], kind)
    lists = [[(text(h), h.value) for h in row.headers] or None for row in padded]
    headers = pa.array(lists, ARROW_TYPES[HEADERS])
    times = np.array([row.timestamp for row in rows], np.int64)
    length = len(rows)
    return Rows(keys.slice(1, length), values.slice(1, length), headers.slice(1, length), times)


def pieces(rows: list[Record], targets: list[int], cuts: list[int]) -> list[tuple[Rows, Any]]:
    """Split the rows into several pieces."""
    edges = [0, *sorted(cut % (len(rows) + 1) for cut in cuts), len(rows)]
    return [
        (as_rows(rows[start:end]), np.array(targets[start:end], np.int32))
        for start, end in pairwise(edges)
    ]


def encoded(encoder: BatchEncoder, parts: list[tuple[Rows, Any]]) -> dict[int, list[EncodedBatch]]:
    """Return all batches by target."""
    found: dict[int, list[EncodedBatch]] = {}
    for rows, targets in parts:
        for batch in encoder.append(rows, targets):
            found.setdefault(batch.target, []).append(batch)
    for batch in encoder.finish():
        found.setdefault(batch.target, []).append(batch)
    return found


@engines
@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(records, min_size=1, max_size=12),
    draw=st.data(),
    size=st.integers(61, 400),
    count=st.integers(1, 6),
    codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.SNAPPY]),
)
def test_batches_are_those_of_cores_encoder(
    engine: str, rows: list[Record], draw: st.DataObject, size: int, count: int, codec: Codec
) -> None:
    """The bytes are equal, however the rows were split into pieces."""
    targets = draw.draw(st.lists(st.sampled_from([0, 1, 7]), min_size=12, max_size=12))[: len(rows)]
    outcomes = []
    for _ in range(2):
        cuts = draw.draw(st.lists(st.integers(0, 12), max_size=3))
        encoder = BatchEncoder(
            9, 2, {1: 5}, codec=codec, batch_bytes=size, batch_records=count, engine=engine
        )
        outcomes.append(encoded(encoder, pieces(rows, targets, cuts)))
    assert outcomes[0] == outcomes[1]
    for target, batches in outcomes[0].items():
        left = [row for row, at in zip(rows, targets, strict=True) if at == target]
        sequence = 5 if target == 1 else 0
        for batch in batches:
            taken, left = left[: batch.count], left[batch.count :]
            assert batch.base_sequence == sequence
            expected = encode_batch(
                _replaced(taken), attributes=codec, producer=Producer(9, 2, sequence)
            )
            assert batch.data == expected
            assert parse(batch.data).crc_ok()
            plain = encode_batch(_replaced(taken))
            assert batch.count == 1 or (len(plain) <= size and batch.count <= count)
            if left:  # it was closed because the next one had no place
                more = encode_batch(_replaced([*taken, left[0]]))
                assert batch.count == count or len(more) > size
            sequence += batch.count
        assert not left


def _replaced(rows: list[Record]) -> list[Record]:
    """Return headers with their names after conversion to text."""
    return [
        Record(
            row.key,
            row.value,
            row.timestamp,
            tuple(Header(text(header), header.value) for header in row.headers),
        )
        for row in rows
    ]


@engines
def test_many_rows_and_targets(engine: str) -> None:
    rows = [
        Record(b"k%d" % (n % 91), bytes(n % 300), 1_700_000_000_000 - n, (Header("h", b"%d" % n),))
        for n in range(5000)
    ]
    targets = np.array([n * 7 % 13 for n in range(5000)], np.int32)
    encoder = BatchEncoder(1, 0, {}, batch_bytes=20_000, engine=engine)
    found = encoded(encoder, [(as_rows(rows), targets)])
    assert sorted(found) == list(range(13))
    assert encoder.sequences == {target: int((targets == target).sum()) for target in range(13)}
    for target, batches in found.items():
        read = [record for batch in batches for record in decode(parse(batch.data))]
        expected = [row for row, at in zip(rows, targets, strict=True) if at == target]
        assert [(r.key, r.value, r.timestamp, r.headers) for r in read] == [
            (r.key, r.value, r.timestamp, r.headers) for r in expected
        ]


@engines
def test_a_record_larger_than_the_limit_goes_alone(engine: str) -> None:
    rows = [Record(None, bytes(n), 5) for n in (3, 100_000, 3)]
    encoder = BatchEncoder(-1, -1, {}, batch_bytes=1000, engine=engine)
    batches = encoded(encoder, [(as_rows(rows), np.zeros(3, np.int32))])[0]
    assert [batch.count for batch in batches] == [1, 1, 1]
    assert [batch.base_sequence for batch in batches] == [-1, -1, -1]
    assert parse(batches[1].data).base_sequence == -1
    assert len(batches[1].data) > 100_000


@engines
def test_missing_columns_and_other_binary_types(engine: str) -> None:
    times = np.array([1, 2], np.int64)
    for kind in (pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view()):
        rows = Rows(None, pa.array([b"a", None], kind), None, times)
        (batch,) = encoded(BatchEncoder(1, 1, {}, engine=engine), [(rows, np.array([4, 4]))])[4]
        assert [(r.key, r.value) for r in decode(parse(batch.data))] == [(None, b"a"), (None, None)]
    empty = Rows(None, pa.array([], pa.binary()), None, np.empty(0, np.int64))
    assert encoded(BatchEncoder(1, 1, {}, engine=engine), [(empty, np.empty(0))]) == {}
    number = Rows(None, pa.array([1, 2]), None, times)
    with pytest.raises(WrongRows, match="column 'value' is int64; cast it to binary or string"):
        list(BatchEncoder(1, 1, {}, engine=engine).append(number, np.array([4, 4])))


@engines
def test_headers_without_a_name_are_rejected(engine: str) -> None:
    for bad in ([(None, b"x")], [None]):
        rows = Rows(None, None, pa.array([bad], ARROW_TYPES[HEADERS]), np.array([1]))
        with pytest.raises(WrongRows, match="lacks its key"):
            list(BatchEncoder(1, 1, {}, engine=engine).append(rows, np.array([0])))


@engines
def test_sequences_wrap_as_kafkas_do(engine: str) -> None:
    encoder = BatchEncoder(1, 0, {0: MAX_SEQUENCE - 1}, engine=engine)
    rows = as_rows([Record(None, b"v")] * 5)
    (batch,) = encoded(encoder, [(rows, np.zeros(5, np.int32))])[0]
    assert batch.base_sequence == MAX_SEQUENCE - 1
    assert encoder.sequences == {0: 3}
    assert parse(batch.data).last_sequence == 2


def test_times_are_milliseconds_rounded_down() -> None:
    column = pa.array([1_999, -1, None, 5_000], pa.timestamp("us", tz="UTC"))
    assert timestamps_ms(column, 4, 77).tolist() == [1, -1, 77, 5]
    assert timestamps_ms(column.slice(1, 2), 2, 77).tolist() == [-1, 77]
    assert timestamps_ms(None, 2, 77).tolist() == [77, 77]
    assert timestamps_ms(pa.array([3], pa.timestamp("s")), 1, 77).tolist() == [3000]


@engines
@settings(max_examples=60, deadline=None)
@given(keys=st.lists(st.none() | st.binary(max_size=13), max_size=20), count=st.integers(1, 300))
def test_keys_have_the_partition_of_the_java_client(
    engine: str, keys: list[bytes | None], count: int
) -> None:
    column = pa.array([b"before", *keys], pa.binary()).slice(1)
    expected = [-1 if key is None else partition_of_key(key, count) for key in keys]
    found = partitions_of_keys(column, count, engine)
    assert found.dtype == np.int32
    assert found.tolist() == expected


def test_no_empty_batch_is_encoded() -> None:
    encoder = BatchEncoder(1, 0, {})
    assert list(encoder.finish()) == []
    rows = as_rows([Record(None, None)])
    assert list(encoder.append(rows, np.zeros(1, np.int32))) == []
    assert [len(batch.data) > HEADER_SIZE for batch in encoder.finish()] == [True]
    assert list(encoder.finish()) == []
