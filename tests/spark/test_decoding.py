"""Record batches to Arrow: the same rows and errors as core's decoder."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from log_batches import ALL_NAMES, expected_rows, logs, records, sealed, simple_log

from tidelog.apps.spark import worker
from tidelog.apps.spark.columns import ARROW_TYPES, arrow_schema
from tidelog.apps.spark.decoding import kernel, kernel_decoder
from tidelog.apps.spark.decoding.batch_headers import check_checksums, scan_headers, select
from tidelog.apps.spark.decoding.decoder import new_decoder
from tidelog.apps.spark.worker import NUMBA, PYTHON, best_engine
from tidelog.core.record.compression import Codec, decompress
from tidelog.core.record.control import ControlType
from tidelog.core.record.decoder import read_committed
from tidelog.core.record.encoder import Producer, encode_batch, encode_marker
from tidelog.core.record.record import Header, Record
from tidelog.core.record.record_batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    CorruptRecord,
    batches,
)

ENGINES = (NUMBA, PYTHON)
LAST = 2**63 - 1
engines = pytest.mark.parametrize("engine", ENGINES)


def rows_of(
    data: bytes,
    names: tuple[str, ...] = tuple(ALL_NAMES),
    start: int = 0,
    end: int = LAST,
    *,
    engine: str = NUMBA,
    aborted: tuple[tuple[int, int], ...] = (),
    **limits: int,
) -> list[dict[str, Any]]:
    """Return all decoded rows, validated by Arrow, with times as numbers."""
    schema = pa.schema([(name, ARROW_TYPES[name]) for name in names])
    decoder = new_decoder(schema, "t", 3, keep=True, engine=engine, **limits)
    headers = scan_headers(data)
    check_checksums(data, headers)
    found = list(decoder.decode(select(data, headers, start, end, aborted), start, end))
    found += decoder.flush()
    table = pa.Table.from_batches(found, schema)
    table.validate(full=True)
    if "timestamp" in names:
        at = names.index("timestamp")
        table = table.set_column(at, "timestamp", table["timestamp"].cast(pa.int64()))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


@engines
@settings(max_examples=60, deadline=None)
@given(data=logs(), rows=st.integers(1, 9), size=st.integers(1, 90), draw=st.data())
def test_rows_are_those_of_cores_decoder(
    engine: str, data: bytes, rows: int, size: int, draw: st.DataObject
) -> None:
    """For all columns, ranges and sizes of RecordBatches."""
    names = tuple(draw.draw(st.lists(st.sampled_from(ALL_NAMES), min_size=1, unique=True)))
    offsets = [batch.base_offset for batch in batches(data)] or [0]
    start = draw.draw(st.sampled_from(offsets)) + draw.draw(st.integers(0, 3))
    end = start + draw.draw(st.sampled_from([0, 1, 5, 100, 2**40]))
    found = rows_of(data, names, start, end, engine=engine, rows=rows, data_bytes=size)
    assert found == expected_rows(data, names, start, end)


@engines
@settings(max_examples=250, deadline=None)
@given(
    rows=st.lists(records, min_size=1, max_size=5),
    edits=st.lists(
        st.tuples(
            st.integers(0, 400),
            st.sampled_from([0, 1, 2, 0x0F, 0x10, 0x7F, 0x80, 0xFF]) | st.integers(0, 255),
        ),
        min_size=1,
        max_size=6,
    ),
    cut=st.integers(0, 3) | st.just(0),
)
@example(rows=[Record(None, None)], edits=[(3, 0xFF)] * 1, cut=0)
def test_damaged_records_are_rejected_as_in_core(
    engine: str, rows: list[Record], edits: list[tuple[int, int]], cut: int
) -> None:
    """Bytes of records are changed and the checksum corrected: same rows or CorruptRecord."""
    batch = encode_batch(rows, base_offset=10, leader_epoch=1)
    del batch[len(batch) - min(cut, len(batch) - HEADER_SIZE) :]
    batch[8:12] = (len(batch) - 12).to_bytes(4)
    for position, byte in edits:
        if len(batch) > HEADER_SIZE:
            batch[HEADER_SIZE + position % (len(batch) - HEADER_SIZE)] = byte
    data = sealed(batch)
    try:
        expected = expected_rows(data, ALL_NAMES)
    except CorruptRecord:
        with pytest.raises(CorruptRecord):
            rows_of(data, engine=engine)
    else:
        assert rows_of(data, engine=engine) == expected


@engines
@settings(max_examples=100, deadline=None)
@given(
    data=logs(),
    edits=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4),
    cut=st.integers(0, 80),
)
def test_damage_anywhere_gives_rows_or_corrupt_record(
    engine: str, data: bytes, edits: list[tuple[int, int]], cut: int
) -> None:
    """Headers are damaged too; checksums are not verified, so that all later code is reached."""
    damaged = bytearray(data[: max(len(data) - cut, 0)])
    for position, byte in edits:
        if damaged:
            damaged[position % len(damaged)] = byte
    decoder = new_decoder(arrow_schema(True), "t", 3, keep=True, engine=engine)
    try:
        headers = scan_headers(damaged)
        found = list(decoder.decode(select(damaged, headers, 0, LAST))) + list(decoder.flush())
    except CorruptRecord:
        return
    pa.Table.from_batches(found, arrow_schema(True)).validate(full=False)


@engines
def test_numbers_of_every_length(engine: str) -> None:
    """Deltas and lengths at each limit of their encoding."""
    edges = [0, 1, 63, 64, 8191, 8192, 2**20 - 1, 2**20, 2**27, 2**31 - 1]
    rows = [Record(bytes(n), b"x", 0) for n in (0, 1, 63, 64, 8191, 8192)]
    data = bytes(encode_batch(rows, offset_deltas=[0, 1, 63, 64, 8191, 2**31 - 1]))
    data += encode_batch(
        [Record(None, b"", stamp) for stamp in (0, *edges, *(-e for e in edges), 2**62, -(2**62))],
        base_offset=2**32,
    )
    assert rows_of(data, engine=engine) == expected_rows(data, ALL_NAMES)


@engines
def test_times_further_than_spark_can_hold(engine: str) -> None:
    times = (2**63 - 1, -(2**63), 2**63 // 1000, -(2**63) // 1000, 9_223_372_036_854_775)
    data = b"".join(
        bytes(encode_batch([Record(None, None, at)], base_offset=number))
        for number, at in enumerate(times)
    )
    data += encode_batch([Record(None, None, 2**62), Record(None, None, -(2**62))], base_offset=9)
    assert rows_of(data, engine=engine) == expected_rows(data, ALL_NAMES)


@engines
def test_log_append_time_is_the_batchs(engine: str) -> None:
    rows = [Record(None, b"a", 5), Record(None, b"b", 9)]
    data = bytes(encode_batch(rows, attributes=LOG_APPEND_TIME))
    found = rows_of(data, ("timestamp", "timestampType"), engine=engine)
    assert found == [{"timestamp": 9000, "timestampType": 1}] * 2


@engines
@pytest.mark.parametrize("codec", Codec)
def test_every_codec(engine: str, codec: Codec) -> None:
    data = simple_log(5, 300, codec)
    assert rows_of(data, engine=engine, rows=256) == expected_rows(data, ALL_NAMES)


@engines
def test_batches_are_decompressed_in_groups(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_decoder, "GROUP_BYTES", 1000)
    data = simple_log(7, 100, Codec.ZSTD) + bytes(
        encode_batch([Record(b"plain", None)], base_offset=700)
    )
    headers = scan_headers(data)
    groups = list(kernel_decoder.unpack(select(data, headers, 0, LAST)))
    assert len(groups) > 3
    assert rows_of(data, engine=engine) == expected_rows(data, ALL_NAMES)


def test_a_batch_that_decompresses_to_too_much_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(encode_batch([Record(None, bytes(200_000))], attributes=Codec.ZSTD))
    assert len(data) < 1000
    monkeypatch.setattr(kernel_decoder, "GROUP_BYTES", 1000)
    monkeypatch.setattr(
        kernel_decoder, "decompress", lambda codec, packed: decompress(codec, packed, 9999)
    )
    with pytest.raises(CorruptRecord, match="decompresses to more than"):
        rows_of(data)


@engines
def test_header_names_that_are_not_utf8(engine: str) -> None:
    odd = Header.of(b"\xff\xfe", b"1")
    data = bytes(encode_batch([Record(None, None, 0, (odd, Header("é", None)))]))
    (row,) = rows_of(data, ("headers",), engine=engine)
    assert row["headers"] == [{"key": "��", "value": b"1"}, {"key": "é", "value": None}]


@engines
def test_a_record_larger_than_the_limit_is_decoded_alone(engine: str) -> None:
    rows = [Record(b"k", bytes(n), 0, (Header("h", bytes(n)),)) for n in (10, 700_000, 10)]
    data = bytes(encode_batch(rows))
    decoder = new_decoder(arrow_schema(True), "t", 3, keep=True, engine=engine, data_bytes=100)
    found = [*decoder.decode(select(data, scan_headers(data), 0, LAST)), *decoder.flush()]
    assert [batch.num_rows for batch in found] == [1, 1, 1]
    assert rows_of(data, engine=engine, data_bytes=100) == expected_rows(data, ALL_NAMES)


def test_rows_of_several_chunks_share_a_record_batch() -> None:
    decoder = new_decoder(arrow_schema(), "t", 3, rows=250, engine=NUMBA)
    sizes = []
    for number in range(5):
        batch = encode_batch([Record(None, b"v")] * 100, base_offset=100 * number)
        chosen = select(batch, scan_headers(batch), 0, LAST)
        sizes += [each.num_rows for each in decoder.decode(chosen)]
    assert sizes == [250]
    assert [each.num_rows for each in decoder.flush()] == [250]
    assert not list(decoder.flush())


def test_memory_is_reused_unless_batches_are_kept() -> None:
    data = simple_log(4, 100)
    for keep in (False, True):
        decoder = new_decoder(arrow_schema(), "t", 3, rows=100, keep=keep, engine=NUMBA)
        found = [*decoder.decode(select(data, scan_headers(data), 0, LAST)), *decoder.flush()]
        places = {batch["value"].buffers()[2].address for batch in found}
        assert len(places) == (4 if keep else 1)


@engines
def test_control_and_aborted_batches_are_left_out(engine: str) -> None:
    """The rule is core's rule, applied batch by batch."""
    data, offset = b"", 0
    steps: list[tuple[str | ControlType, int]] = [
        ("data", 1), ("data", 2), ("plain", 1), (ControlType.ABORT, 1), ("data", 1),
        (ControlType.COMMIT, 2), ("data", 3), (ControlType.COMMIT, 1), (ControlType.ABORT, 3),
        ("data", 3), ("data", 4),
    ]  # fmt: skip
    for kind, producer in steps:
        stamp = Producer(producer, 0, offset)
        if not isinstance(kind, ControlType):
            attributes = TRANSACTIONAL if kind == "data" else 0
            rows = [Record(b"%d" % producer, b"%d" % offset), Record(None, None)]
            batch = encode_batch(rows, attributes=attributes, producer=stamp, base_offset=offset)
        else:
            batch = encode_marker(kind, stamp, 0, 0)
            batch[:8] = offset.to_bytes(8)
        data += batch
        offset += 1 if isinstance(kind, ControlType) else 2
    aborted = ((1, 0), (3, 10), (4, offset - 2))
    kept = b"".join(bytes(batch.view()) for batch in read_committed(batches(data), aborted))
    found = rows_of(data, engine=engine, aborted=aborted)
    assert found == expected_rows(kept, ALL_NAMES)
    assert rows_of(data, engine=engine) == expected_rows(data, ALL_NAMES)
    assert 0 < len(found) < len(rows_of(data, engine=engine))


@engines
def test_empty_batches_are_accepted_and_invalid_ones_rejected(engine: str) -> None:
    empty = encode_batch([Record(None, None)], base_offset=3)
    del empty[HEADER_SIZE:]
    empty[8:12] = (HEADER_SIZE - 12).to_bytes(4)
    empty[57:61] = bytes(4)
    assert rows_of(sealed(empty), engine=engine) == []
    false = encode_batch([Record(None, None)])
    false[57:61] = bytes(4)
    with pytest.raises(CorruptRecord):
        rows_of(sealed(false), engine=engine)


def test_headers_of_a_chunk() -> None:
    data = simple_log(3, 10)
    headers = scan_headers(data + data[:70])
    assert headers.tail == 70
    assert headers.base_offset.tolist() == [0, 10, 20]
    assert headers.last_offset.tolist() == [9, 19, 29]
    assert headers.leader_epoch.tolist() == [0, 1, 2]
    assert len(scan_headers(b"")) == 0
    with pytest.raises(CorruptRecord, match="do not increase"):
        scan_headers(data + data)
    flipped = bytearray(data)
    flipped[-1] ^= 1
    with pytest.raises(CorruptRecord, match="batch at offset 20"):
        check_checksums(flipped, scan_headers(flipped))


@pytest.mark.parametrize("magic", [0, 1, 3])
@pytest.mark.parametrize("size", [26, 200])
def test_other_formats_are_named(magic: int, size: int) -> None:
    old = bytearray(size)
    old[8:12] = (size - 12).to_bytes(4)
    old[16] = magic
    expected = f"records of format {magic}" if size == 200 or magic < 2 else "smaller than"
    with pytest.raises(CorruptRecord, match=expected):
        scan_headers(old)


def test_the_state_of_the_kernel_has_room_for_every_field() -> None:
    assert len(np.empty(kernel.STATE_FIELDS)) == kernel.CONTENT_NEED + 1


def test_the_engine_comes_from_the_environment_or_is_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert best_engine() == NUMBA
    monkeypatch.setenv(worker.ENGINE_VARIABLE, "abacus")
    with pytest.raises(ValueError, match="unknown engine 'abacus'"):
        new_decoder(arrow_schema(), "t", 0)
    monkeypatch.delenv(worker.ENGINE_VARIABLE)

    def refuse(name: str) -> None:
        raise ImportError(f"{name} needs another numpy")

    monkeypatch.setattr(worker, "import_module", refuse)
    best_engine.cache_clear()
    assert best_engine() == PYTHON
    best_engine.cache_clear()
