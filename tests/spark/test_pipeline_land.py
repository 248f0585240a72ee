"""Topics landed in a lake by real Spark from real brokers, faults in between: each row once."""

import io
import json
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest
from lake_rows import as_row, orders, places, record_of, rows_of
from pyspark.errors import StreamingQueryException
from real_cluster import make_topic
from topic_data import append

from tidelog.apps.pipeline import streaming
from tidelog.apps.pipeline.failure import one_line
from tidelog.apps.pipeline.lake.commit import Lake, LakeError
from tidelog.apps.pipeline.land import UTC_DAY, Landing, land
from tidelog.apps.pipeline.plan import BadPlan, Decode, LandPlan, Origin
from tidelog.apps.pipeline.report import Progress
from tidelog.core.record.record import Record
from tidelog.shell.client import admin
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

pytestmark = pytest.mark.spark

FOR_EVER = {"retention.ms": "-1"}
"""The records of these tests are of another year."""

BAD = [b"{nope", b'{"id": "x"}', b'{"id": 1} {"id": 2}', b'{"id": 1, "amount": 0.5, "s": "\xff"}']


def test_every_record_is_landed_once_and_whole(
    spark: Any, calm: LocalCluster, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_topic(calm.bootstrap, f"{name}-2", configs=FOR_EVER)
    make_topic(calm.bootstrap, name, partitions=2, configs=FOR_EVER)
    sent = {
        (name, 0): orders(0, 900, days=3),
        (name, 1): orders(900, 600),
        (other, 0): [Record(b"gone", None, 1_763_000_000_000), *orders(2000, 99)],
    }
    for (topic, partition), records in sent.items():
        append(calm.bootstrap, topic, records, partition, batch=50)
    append(calm.bootstrap, other, [Record(None, value, 1_763_000_000_000) for value in BAD])
    plan = LandPlan(
        "orders",
        calm.bootstrap,
        Origin(pattern=f"{name}.*", options={"maxOffsetsPerTrigger": "200"}),
        str(tmp_path / "checkpoint"),
        str(tmp_path / "lake"),
        decode=Decode("json", "id long, amount double"),
        compact_files=4,
    )
    with pytest.raises(BadPlan, match="offset is a column of the record itself"):
        land(spark, replace(plan, decode=Decode("json", "offset long")))

    # It fails with files written and no record of it, and then with a record and nothing moved.
    for broken in ("commit", "_move_all"):
        with monkeypatch.context() as patch:
            true = getattr(Lake, broken)

            def fails(lake: Lake, *given: Any, true: Any = true) -> None:
                if lake.batch >= 1 or (given and given[1] >= 1):
                    raise ZeroDivisionError
                true(lake, *given)

            patch.setattr(Lake, broken, fails)
            with pytest.raises(ZeroDivisionError):
                land(spark, plan)
        seen = places(rows_of(tmp_path / "lake" / "data"))
        assert len(seen) == len(set(seen))

    reported: list[Progress] = []
    report = land(spark, plan, on_progress=reported.append)
    assert report.merged > 0
    assert not report.notes
    assert report.totals == {"rows_in": 1604, "rows_out": 1600, "rejected": 4}
    assert sum(each.rows_in for each in reported) == report.rows_in
    assert reported[-1].lag == 0
    data, rejected = rows_of(tmp_path / "lake" / "data"), rows_of(tmp_path / "lake" / "rejected")
    wanted = [
        as_row(topic, partition, offset, record)
        for (topic, partition), records in sent.items()
        for offset, record in enumerate(records)
    ]
    order = ("topic", "partition", "offset")
    assert sorted(map(record_of, data), key=lambda r: [r[k] for k in order]) == sorted(
        wanted, key=lambda r: [r[k] for k in order]
    )
    assert all(row["id"] == json.loads(row["value"])["id"] for row in data if row["value"])
    assert [row["amount"] for row in data if not row["value"]] == [None]
    assert {str(row["date"]) for row in data} == {"2025-11-13", "2025-11-14", "2025-11-15"}
    assert [row["value"] for row in sorted(rejected, key=lambda r: r["offset"])] == BAD
    assert [row["offset"] for row in sorted(rejected, key=lambda r: r["offset"])] == [
        *range(100, 104)
    ]
    assert all(row["reason"] for row in rejected)

    # Nothing new: nothing is written. Another checkpoint: refused, not landed twice.
    files = sorted((tmp_path / "lake").rglob("*.parquet"))
    assert land(spark, plan).rows_in == 0
    assert sorted((tmp_path / "lake").rglob("*.parquet")) == files
    with pytest.raises(LakeError, match="written with another checkpoint"):
        land(spark, replace(plan, checkpoint=str(tmp_path / "checkpoint-2")))


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}


def test_avro_becomes_columns_and_a_stop_is_clean(
    spark: Any, calm: LocalCluster, name: str, tmp_path: Path
) -> None:
    make_topic(calm.bootstrap, name, configs=FOR_EVER)
    values = []
    for number in range(50):
        out = io.BytesIO()
        out.write(b"\x00\x00\x00\x00\x07")
        fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), {"id": number, "note": None})
        values.append(out.getvalue())
    append(calm.bootstrap, name, [*values, b"\x00\x00\x00\x00\x07", b"plain"])
    stop = threading.Event()
    plan = LandPlan(
        "avro",
        calm.bootstrap,
        Origin((name,)),
        str(tmp_path / "checkpoint"),
        str(tmp_path / "lake"),
        trigger="100 milliseconds",
        decode=Decode("avro", json.dumps(AVRO), "confluent", prefix="v_", keep_value=False),
    )

    def stop_when_all_is_there(progress: Progress) -> None:
        if progress.rows_in:
            stop.set()

    report = land(spark, plan, stop, stop_when_all_is_there)
    assert report.stopped
    assert (report.rows_in, report.rows_out, report.rejected) == (52, 50, 2)
    data = rows_of(tmp_path / "lake" / "data")
    assert sorted(row["v_id"] for row in data) == list(range(50))
    assert "value" not in data[0]
    reasons = sorted(row["reason"] for row in rows_of(tmp_path / "lake" / "rejected"))
    assert reasons[0].startswith("no Confluent prefix")
    assert reasons[1].startswith("not valid Avro of this schema (schema id 7)")


def test_a_recreated_topic_is_reported_in_one_line(
    spark: Any, calm: LocalCluster, name: str, tmp_path: Path
) -> None:
    make_topic(calm.bootstrap, name)
    append(calm.bootstrap, name, [b"a"] * 10)
    plan = LandPlan(
        "land",
        calm.bootstrap,
        Origin((name,)),
        str(tmp_path / "checkpoint"),
        str(tmp_path / "lake"),
    )
    assert land(spark, plan).rows_out == 10
    with Cluster(calm.bootstrap) as cluster:
        admin.delete_topic(cluster, name)
    make_topic(calm.bootstrap, name)
    append(calm.bootstrap, name, [b"b"] * 5)
    with pytest.raises(StreamingQueryException) as failed:
        land(spark, plan)
    line = one_line(failed.value)
    assert (
        f"{name}-0: offsets from 10 on were deleted with their topic, which was recreated" in line
    )
    assert "\n" not in line
    continued = replace(plan, origin=Origin((name,), options={"onDataLoss": "skip"}))
    with pytest.raises(LakeError, match=r"-0: offset 0 was read again, but .* up to 9"):
        land(spark, continued)
    assert land(spark, replace(continued, overlap="accept")).totals["rows_out"] == 15
    assert Counter(row["value"] for row in rows_of(tmp_path / "lake" / "data")) == {
        b"a": 10,
        b"b": 5,
    }
    with pytest.raises(LakeError, match="needs Delta's jar: run with --conf"):
        land(spark, replace(plan, table_format="delta"))


def test_a_stop_and_the_lag_are_reported(
    spark: Any, calm: LocalCluster, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(calm.bootstrap, name)
    append(calm.bootstrap, name, [b"a"] * 30)
    plan = LandPlan(
        "land",
        calm.bootstrap,
        Origin((name,), options={"maxOffsetsPerTrigger": "10"}),
        str(tmp_path / "checkpoint"),
        str(tmp_path / "lake"),
    )
    stop = threading.Event()
    process = Landing.process

    def then_stop(landing: Landing, *given: Any) -> Progress:
        progress = process(landing, *given)
        stop.set()
        return progress

    with monkeypatch.context() as patch:
        patch.setattr(Landing, "process", then_stop)
        patch.setattr(streaming, "POLL_S", 10.0)  # the next batch is refused before the next poll
        report = land(spark, plan, stop)
    assert (report.stopped, report.rows_in) == (True, 10), "the second batch did not run"

    def stop_then_fail(*_: Any) -> Progress:
        stop.set()
        time.sleep(1)
        raise ZeroDivisionError

    stop.clear()
    with monkeypatch.context() as patch:
        patch.setattr(Landing, "process", stop_then_fail)
        with pytest.raises(ZeroDivisionError):
            land(spark, plan, stop)

    def while_more_comes(landing: Landing, *given: Any) -> Progress:
        append(calm.bootstrap, name, [b"b"] * 7)
        return process(landing, *given)

    reported: list[Progress] = []
    with monkeypatch.context() as patch:
        patch.setattr(Landing, "process", while_more_comes)
        land(spark, replace(plan, origin=Origin((name,))), on_progress=reported.append)
    # The second batch was planned, with its limit, before it failed: so it is run again.
    assert [each.rows_in for each in reported] == [10, 10]
    assert reported[0].lag in (17, 24), "24: the next batch ran before this one was reported"
    assert reported[1].lag == 14


def test_a_day_is_that_of_utc_in_any_session(spark: Any) -> None:
    micros = (-1, 0, 1_763_000_000_000_000)
    rows = spark.createDataFrame([(each,) for each in micros], "micros long")
    days = rows.selectExpr("timestamp_micros(micros) as timestamp").selectExpr(UTC_DAY)
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    try:
        found = [str(day) for (day,) in days.collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert found == ["1969-12-31", "1970-01-01", "2025-11-13"]
