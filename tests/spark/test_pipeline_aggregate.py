"""Windows by event time on real Spark and brokers: results once, late rows counted and kept."""

import io
import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.dataset as ds
import pytest
from real_cluster import make_topic, read_values
from topic_data import append

from tidelog.apps.pipeline.aggregate import Windows, aggregate
from tidelog.apps.pipeline.plan import AggregatePlan, Decode, Origin
from tidelog.shell.client import admin
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

pytestmark = pytest.mark.spark


def order(minute: int, country: str = "DE", amount: float = 1.5) -> bytes:
    placed = f"2026-11-16T10:{minute:02d}:{minute % 60:02d}Z"
    return json.dumps({"country": country, "amount": amount, "placed": placed}).encode()


def rows_of(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return list(ds.dataset(path, format="parquet", partitioning="hive").to_table().to_pylist())


def test_windows_are_final_and_late_rows_are_counted(
    spark: Any, calm: LocalCluster, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(calm.bootstrap, name, partitions=2)
    results = make_topic(calm.bootstrap, f"{name}-results")
    plan = AggregatePlan(
        name="per-minute",
        bootstrap=calm.bootstrap,
        origin=Origin((name,), options={"maxOffsetsPerTrigger": "300"}),
        checkpoint=str(tmp_path / "checkpoint"),
        window="1 minute",
        watermark="1 minute",
        columns={"orders": "count(*)", "revenue": "sum(amount)"},
        table=str(tmp_path / "table"),
        topic=results,
        event_time="placed",
        group_by=("country",),
        decode=Decode("json", "country string, amount double, placed timestamp"),
    )
    expected: Counter[tuple[int, str]] = Counter()
    for minute in range(10):
        for country in ("DE", "FR"):
            append(calm.bootstrap, name, [order(minute, country)] * 20, partition=country == "FR")
            expected[minute, country] = 20
    append(calm.bootstrap, name, [b"no order", b'{"country": "DE"}'])  # the second has no time
    first = aggregate(spark, plan)
    assert (first.rows_in, first.rejected, first.late) == (402, 2, 0)
    assert first.rows_out == first.totals["rows_out"] > 0

    # The process dies between the topic's commit and Spark's.
    append(calm.bootstrap, name, [order(2)] * 7 + [order(20)] * 5)
    with monkeypatch.context() as patch:
        send = Windows._send
        patch.setattr(Windows, "_send", lambda *given: [send(*given), 1 / 0])
        with pytest.raises(ZeroDivisionError):
            aggregate(spark, plan)
    expected[20, "DE"] = 5
    plan = replace(plan, name="renamed-meanwhile")
    second = aggregate(spark, plan)
    assert (second.rows_in, second.late) == (0, 0), "the batch was counted when it was committed"
    assert second.totals == {"rows_in": 414, "late": 7, "rejected": 2, "rows_out": 20}

    append(calm.bootstrap, name, [order(40)])
    last = aggregate(spark, plan)
    assert (last.rows_in, last.late, last.rejected) == (1, 0, 0)

    table = rows_of(tmp_path / "table" / "data")
    found = {(row["window_start"].minute, row["country"]): row["orders"] for row in table}
    assert found == expected
    assert len(table) == len(expected), "each window once"
    assert {row["revenue"] / row["orders"] for row in table} == {1.5}
    sent = [json.loads(value) for value in read_values(calm.bootstrap, results)]
    assert len(sent) == len(expected)
    assert {(v["window_start"][14:16], v["country"], v["orders"]) for v in sent} == {
        (f"{minute:02d}", country, orders) for (minute, country), orders in expected.items()
    }
    late = rows_of(tmp_path / "table" / "late" / "data")
    assert [row["placed"].minute for row in late] == [2] * 7
    assert {row["topic"] for row in late} == {name}
    assert len({(row["partition"], row["offset"]) for row in late}) == 7
    assert last.totals["rows_in"] == sum(expected.values()) + 7 + 2 + 1  # one window is open
    continues_without_its_records(spark, calm.bootstrap, plan)


def continues_without_its_records(spark: Any, bootstrap: str, plan: AggregatePlan) -> None:
    """The last batch was not counted, and its records were deleted with their topic."""
    counted = Path(plan.table) / "_tidelog" / "counted.json"
    found = json.loads(counted.read_text())
    counted.write_text(json.dumps({**found, "checked": found["checked"] - 2}))
    [topic] = plan.origin.topics
    with Cluster(bootstrap) as cluster:
        admin.delete_topic(cluster, topic)
    make_topic(bootstrap, topic, partitions=2)
    append(bootstrap, topic, [order(41)])
    skipping = Origin((topic,), options={"onDataLoss": "skip"})
    report = aggregate(spark, replace(plan, origin=skipping))
    assert (report.rows_in, report.late) == (1, 0)
    [note] = report.notes
    assert "rows and late rows of batch" in note
    assert "\n" not in note


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "amount", "type": "int"},
        {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


def test_windows_of_avro(spark: Any, calm: LocalCluster, name: str, tmp_path: Path) -> None:
    make_topic(calm.bootstrap, name)
    values = []
    for minute in (0, 0, 1, 30):
        out = io.BytesIO()
        row = {"amount": 2, "placed": datetime(2026, 11, 16, 10, minute, tzinfo=UTC)}
        fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), row)
        values.append(out.getvalue())
    append(calm.bootstrap, name, [*values, b"none", b"\xfe\xff\xff\xff\xff\x7f\x00"])
    plan = AggregatePlan(
        name="per-minute",
        bootstrap=calm.bootstrap,
        origin=Origin((name,)),
        checkpoint=str(tmp_path / "checkpoint"),
        window="1 minute",
        watermark="1 minute",
        columns={"revenue": "sum(amount)"},
        table=str(tmp_path / "table"),
        event_time="placed",
        decode=Decode("avro", json.dumps(AVRO)),
    )
    report = aggregate(spark, plan)
    assert (report.rows_in, report.rows_out, report.rejected) == (6, 2, 2)
    table = rows_of(tmp_path / "table" / "data")
    assert {row["window_start"].minute: row["revenue"] for row in table} == {0: 4, 1: 2}
