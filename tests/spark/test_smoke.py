"""The one test of Spark in `make test`: write rows, read them in a batch and a stream, audit.

One row of each kind; the other cases are in `make ci`.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from real_cluster import make_topic

import tidelog.spark
from tidelog.apps.audit.run import audit
from tidelog.shell.supervisor.cluster import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.smoke]

ROWS = 2000
PARTITIONS = 2
AS_BYTES = "transform(headers, h -> struct(h.key, cast(h.value AS string) AS value)) headers"
SHOWN = ["cast(key AS string) key", "cast(value AS string) value", "partition", "offset", AS_BYTES]
STREAM_S = 240


def expected() -> set[tuple[Any, ...]]:
    """Return key, value, partition and header of each written row."""
    return {
        (
            None if number % 5 == 0 else f"key-{number}",
            None if number % 7 == 0 else f"value-{number}",
            number % PARTITIONS,
            (("n", str(number)),),
        )
        for number in range(ROWS)
    }


def as_set(rows: list[Any]) -> set[tuple[Any, ...]]:
    """Return the rows as a set; each offset occurs once and none is missing."""
    offsets = sorted((row["partition"], row["offset"]) for row in rows)
    assert offsets == [(p, o) for p in range(PARTITIONS) for o in range(ROWS // PARTITIONS)]
    return {
        (row["key"], row["value"], row["partition"], tuple(map(tuple, row["headers"])))
        for row in rows
    }


def test_rows_are_written_read_streamed_and_audited(
    spark: Any, calm: LocalCluster, name: str, tmp_path: Path
) -> None:
    tidelog.spark.register(spark)
    make_topic(calm.bootstrap, name, PARTITIONS, 3)
    made = spark.range(0, ROWS, 1, 2).selectExpr(
        "if(id % 5 = 0, null, cast(concat('key-', id) AS binary)) key",
        "if(id % 7 = 0, null, cast(concat('value-', id) AS binary)) value",
        f"cast(id % {PARTITIONS} AS int) partition",
        "array(struct('n' AS key, cast(cast(id AS string) AS binary) AS value)) headers",
    )
    where = {"kafka.bootstrap.servers": calm.bootstrap}
    made.write.format("tidelog").options(**where, topic=name).mode("append").save()

    source = {**where, "subscribe": name, "includeHeaders": "true"}
    batch = spark.read.format("tidelog").options(**source).load().selectExpr(*SHOWN)
    assert as_set(batch.collect()) == expected()

    stream = spark.readStream.format("tidelog").options(**source, startingOffsets="earliest").load()
    target = {"path": str(tmp_path / "rows"), "checkpointLocation": str(tmp_path / "checkpoint")}
    writer = stream.selectExpr(*SHOWN).writeStream.format("parquet").options(**target)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(STREAM_S)
    assert as_set(spark.read.parquet(target["path"]).collect()) == expected()
    end = json.loads(query.lastProgress["sources"][0]["endOffset"])
    reached = end["topics"][name]["partitions"]
    assert {at["offset"] for at in reached.values()} == {ROWS // PARTITIONS}

    report = audit(spark, [calm.log_dir(broker) for broker in calm.ids])
    assert report.holds, report.findings
    segments = spark.read.format("tidelog-log").option("level", "record")
    found = segments.load(calm.log_dir(1)).where(f"topic = '{name}'")
    assert found.count() == ROWS
