"""Without Spark: Avro to columns, reasons for rejected rows, errors, and parts of a backfill."""

import io
import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tidelog.apps.pipeline.backfill import Agenda, Count, backfill, divide
from tidelog.apps.pipeline.decoding.avro import AvroDecoder, BadAvroSchema, parse_avro_schema
from tidelog.apps.pipeline.decoding.json_values import reason
from tidelog.apps.pipeline.decoding.value_columns import decoded_columns
from tidelog.apps.pipeline.failure import CannotStart, is_missing_records, one_line
from tidelog.apps.pipeline.lake.commit import LakeError
from tidelog.apps.pipeline.lake.durable import file_lock
from tidelog.apps.pipeline.plan import RECORD_COLUMNS, BackfillPlan, BadPlan, Decode
from tidelog.apps.pipeline.streaming import lost_offsets

SCHEMA = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9}},
        {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "before", "type": ["null", "Kind"]},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "sku", "type": "string"}],
                },
            },
        },
    ],
}
ORDER = {
    "id": 7,
    "note": None,
    "amount": Decimal(12),
    "placed": datetime(2026, 1, 2, tzinfo=UTC),
    "day": date(2026, 1, 2),
    "kind": "NEW",
    "before": "OLD",
    "uuid": "5a3a2a10-0000-4000-8000-000000000001",
    "tags": {"a": 1},
    "lines": [{"sku": "x"}, {"sku": "y"}],
}


def written(value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), value)
    return out.getvalue()


def test_avro_types_become_columns() -> None:
    decoder = AvroDecoder(json.dumps(SCHEMA), "plain")
    rows, reasons = decoder.decode(pa.array([written(ORDER), None], pa.binary()))
    assert reasons == [None, None]
    first, second = rows.to_pylist()
    assert second is None, "a tombstone"
    assert first == {**ORDER, "tags": [("a", 1)]}
    assert str(rows.type.field("placed").type) == "timestamp[us, tz=UTC]"


@pytest.mark.parametrize("framing", ["plain", "confluent"])
def test_invalid_avro_is_rejected(framing: str) -> None:
    head = b"\x00\x00\x00\x00\x2a" if framing == "confluent" else b""
    good = head + written(ORDER)
    decoder = AvroDecoder(json.dumps(SCHEMA), framing)
    values = [good, good + b"x", good[:-3], b"", b"\x01" + good]
    rows, reasons = decoder.decode(pa.array(values, pa.binary()))
    assert reasons[0] is None
    assert rows[0].as_py()["id"] == 7
    assert all(reasons[1:])
    assert "1 more bytes follow" in str(reasons[1])
    if framing == "confluent":
        assert "schema id 42" in str(reasons[1])
        assert "no Confluent prefix" in str(reasons[4])


NUMBERS = {
    "type": "record",
    "name": "Numbers",
    "fields": [
        {"name": "small", "type": "int"},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        },
    ],
}


def test_avro_value_out_of_range_rejects_only_its_row() -> None:
    """Bytes of another program that happen to be valid Avro."""
    decoder = AvroDecoder(json.dumps(NUMBERS), "plain")
    good = b"\x02\x04\x04\xd2"  # 1, and 12.34 in two bytes
    wide = b"\xfe\xff\xff\xff\xff\x7f\x04\x04\xd2"  # 42 bits
    long = b"\x02\x12" + b"\x7f" * 9  # a number of 22 digits
    rows, reasons = decoder.decode(pa.array([good, wide, None, long, good], pa.binary()))
    assert [why is None for why in reasons] == [True, False, True, False, True]
    assert "does not fit its column" in str(reasons[1])
    found = {"small": 1, "price": Decimal("12.34")}
    assert rows.to_pylist() == [found, None, None, None, found]


@pytest.mark.parametrize("names", [("Timestamp",), ("KEY",), ("a", "A")])
def test_column_names_that_collide_in_spark_are_refused(names: tuple[str, ...]) -> None:
    fields = [{"name": name, "type": "int"} for name in names]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    with pytest.raises(BadPlan, match=names[0]):
        decoded_columns(Decode("avro", schema), RECORD_COLUMNS)
    if len(names) == 1:
        wanted = [f"v_{names[0]}"]
        assert decoded_columns(Decode("avro", schema, prefix="v_"), RECORD_COLUMNS) == wanted


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("nope", "invalid JSON"),
        ('"string"', "must be a record"),
        (
            {"fields": [{"name": "a", "type": ["int", "string"]}]},
            "field a: a union of several",
        ),
        ({"fields": [{"name": "a", "type": "Missing"}]}, "unknown type 'Missing'"),
        ({"fields": [{"name": "a", "type": ["null", "R"]}]}, "field a: R contains itself"),
    ],
)
def test_schemas_without_columns_are_refused(schema: Any, expected: str) -> None:
    text = (
        schema if isinstance(schema, str) else json.dumps({"type": "record", "name": "R", **schema})
    )
    with pytest.raises(BadAvroSchema, match=expected):
        parse_avro_schema(text)


@pytest.mark.parametrize(
    ("value", "decoded", "expected"),
    [
        (b"{", None, "invalid JSON: expecting property name"),
        (b"\xff", None, "invalid JSON: not UTF-8"),
        (b'{"a": NaN}', None, "invalid JSON: the constant NaN is not allowed"),
        (b"[1]", None, "not a JSON object but [1]"),
        (b'{"a": "x"}', {"a": None}, 'does not fit the schema: a is "x", not int32'),
        (b'{"a": 1} {}', {"a": 1}, "invalid JSON: extra data"),
        (b"[" * 100_000, None, "invalid JSON"),
    ],
)
def test_reason_for_a_rejected_value(
    value: bytes, decoded: dict[str, Any] | None, expected: str
) -> None:
    assert reason(value, decoded, {"a": "int32"}).startswith(expected)


def test_backfill_is_split_by_rows_and_keeps_order() -> None:
    days = frozenset({"2026-11-16"})
    counts = [Count("t", p, n * 10, n * 10 + 9, 10, days) for p in (0, 1) for n in range(10)]
    counts.append(Count("u", 0, 5, 5, 1, days))
    batches = list(divide(reversed(counts), 45))
    assert [s.rows for s in batches] == [60, 60, 60, 20, 1]
    assert batches[0].ranges == {0: (0, 29), 1: (0, 29)}
    assert batches[1].ranges == {0: (30, 59), 1: (30, 59)}
    assert batches[-1].topic == "u"


def test_backfill_split_is_fixed_at_its_start(tmp_path: Path) -> None:
    plan = BackfillPlan("b", "x:1", "lake", str(tmp_path / "cp"), topic="t2")
    assert Agenda.load(plan) is None
    counts = [Count("t", 0, n, n, 1, frozenset({"d"})) for n in range(3)]
    first = Agenda.create(BackfillPlan(**{**plan.__dict__, "rows_per_batch": 1}), counts)
    first.mark_done()
    again = Agenda.load(plan)
    assert again is not None
    assert (again.done, again.id, again.batches) == (1, first.id, first.batches)
    with pytest.raises(LakeError, match="belongs to a backfill of other topics"):
        Agenda.load(BackfillPlan("b", "x:1", "lake", str(tmp_path / "cp"), topic="t3"))


def test_a_backfill_checks_the_lake_before_it_sends(tmp_path: Path) -> None:
    from pyarrow import parquet

    record = {"key": [b"k"], "value": [b"v"], "partition": [0], "offset": [0], "timestamp": [0]}
    for day, columns in (("01", record), ("02", {k: v for k, v in record.items() if k != "value"})):
        folder = tmp_path / "data" / "topic=orders" / f"date=2026-11-{day}"
        folder.mkdir(parents=True)
        parquet.write_table(pa.table(columns), folder / "part-0.parquet")
    plan = BackfillPlan("b", "x:1", str(tmp_path), str(tmp_path / "cp"))
    with pytest.raises(LakeError, match=r"02/part-0\.parquet: it has no column value; land the"):
        backfill(None, plan)
    with pytest.raises(LakeError, match="has no topic ordres; did you mean orders"):
        backfill(None, replace(plan, topics=("orders", "ordres")))
    with pytest.raises(LakeError, match="has no rows of these topics and days"):
        backfill(None, replace(plan, first=date(2027, 1, 1)))
    with (
        file_lock(str(tmp_path / "cp" / "lock")),
        pytest.raises(LakeError, match="another backfill is using the checkpoint"),
    ):
        backfill(None, plan)


def test_lost_offsets_are_those_of_the_batch() -> None:
    before, after = {"lostOffsets": 5}, json.dumps({"lostOffsets": 12})
    assert lost_offsets({"sources": [{"startOffset": before, "endOffset": after}]}) == 7
    assert lost_offsets({"sources": [{"startOffset": None, "endOffset": after}]}) == 12
    assert lost_offsets({"sources": [{"startOffset": before, "endOffset": "null"}]}) == 0


TRACE = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
tidelog.apps.spark.source.data_loss.DataLost: orders-0: offsets 5 to 9 are gone. Set onDataLoss
\tat org.apache.spark.api.python.BasePythonRunner
"""
JAVA = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: Could not parse Master URL: 'lcal'
\tat org.apache.spark.SparkContext$.createTaskScheduler(SparkContext.scala:3409)
"""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError(TRACE), "orders-0: offsets 5 to 9 are gone. Set onDataLoss"),
        (LakeError("no"), "no"),
        (RuntimeError("[A_B] what\n\tat org.x"), "what; run it again to continue where it stopped"),
        (RuntimeError(JAVA), "Could not parse Master URL: 'lcal'; run it again"),
        (CannotStart("cannot start Spark: no"), "cannot start Spark: no"),
        (RuntimeError("x\nKeyError: 'a'\n"), "KeyError: 'a'; run it again"),
        (OSError(28, "No space left on device", "f"), "f: No space left on device; run it again"),
        (ModuleNotFoundError("No", name="pyspark"), "pyspark is not installed: in a clone of"),
    ],
)
def test_a_failure_is_one_line(error: Exception, expected: str) -> None:
    line = one_line(error)
    assert line.startswith(expected)
    assert "\n" not in line


def test_permanent_data_loss_is_recognised() -> None:
    assert is_missing_records(RuntimeError(TRACE))
    assert not is_missing_records(RuntimeError(TRACE.replace("DataLost", "RangeUnreachable")))
