"""Pipelines whose driver is killed with -9 or stopped: their output has each row once."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lake_rows import orders, places, rows_of
from real_cluster import consumer, ends, make_topic, take
from topic_data import append

from tidelog.apps.pipeline.backfill import backfill
from tidelog.apps.pipeline.plan import BackfillPlan
from tidelog.shell.supervisor.cluster import LocalCluster

pytestmark = pytest.mark.spark

FOR_EVER = {"retention.ms": "-1"}
"""The records of these tests are of another year."""

DRIVER = Path(__file__).parent / "rig" / "pipeline_driver.py"
PATIENCE_S = 240
SMALL = ["--master", "local[2]", "--conf", "spark.driver.memory=1g"]


def dies(file: Path, place: str, batch: int) -> None:
    """Run a pipeline until it kills itself."""
    command = [sys.executable, str(DRIVER), str(file), place, str(batch)]
    ended = subprocess.run(
        command, timeout=PATIENCE_S, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]


OWN_SPARK = """
import sys
from tidelog.apps.pipeline import runner
with runner.own_spark("own", "local[2]", {"spark.driver.memory": "1g"}, sys.argv[1]) as spark:
    print(spark.conf.get(runner.SHUFFLE_PARTITIONS))
    try:
        spark.sql("select nobody")
    except Exception as error:
        print(type(error).__name__)
"""


def test_own_spark_logs_to_a_file_and_uses_one_shuffle_task_per_core(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    ended = subprocess.run(
        [sys.executable, "-c", OWN_SPARK, str(log)],
        timeout=PATIENCE_S,
        check=False,
        capture_output=True,
        text=True,
    )
    assert (ended.stdout.split(), ended.stderr) == (["2", "AnalysisException"], "")
    assert "SQLQueryContextLogger" in log.read_text()


def test_each_row_is_landed_once_if_the_driver_is_killed_or_stopped(
    calm: LocalCluster, name: str, tmp_path: Path
) -> None:
    make_topic(calm.bootstrap, name, partitions=2, configs=FOR_EVER)
    for partition in (0, 1):
        append(calm.bootstrap, name, orders(0, 500), partition)
    file = tmp_path / "land.toml"
    file.write_text(
        f'[pipeline]\nkind = "land"\nbootstrap = "{calm.bootstrap}"\ntopics = ["{name}"]\n'
        'trigger = "100 milliseconds"\n[source]\nmaxOffsetsPerTrigger = 250\n'
        '[lake]\npath = "lake"\ncompact_files = 3\n'
    )
    data = tmp_path / "lake" / "data"
    dies(file, "before-commit", 1)
    assert len(places(rows_of(data))) == 250
    assert list((tmp_path / "lake" / "_tidelog" / "staging").rglob("*.staged"))
    dies(file, "after-record", 2)
    assert len(places(rows_of(data))) == 500, "the third batch is committed, and not moved yet"

    # As people run it; it goes on for ever, and SIGTERM ends it.
    command = [sys.executable, "-m", "tidelog", "pipeline", "run", str(file), *SMALL]
    with subprocess.Popen(
        [*command, "--format", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            until = time.monotonic() + PATIENCE_S
            while len(rows_of(data)) < 1000 and time.monotonic() < until:
                assert process.poll() is None, process.communicate()[1][-2000:]
                time.sleep(0.3)
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 0
    told = json.loads(out)
    assert told["holds"] is True
    assert told["stopped"] is True
    assert told["totals"]["rows_out"] == 1000
    assert told["rows_in"] == 250, "three batches were committed before"
    assert places(rows_of(data)) == [(name, p, n) for p in (0, 1) for n in range(500)]


def test_a_killed_backfill_continues(
    spark: Any, calm: LocalCluster, name: str, tmp_path: Path
) -> None:
    from tidelog.apps.pipeline.land import land
    from tidelog.apps.pipeline.plan import Decode, LandPlan, Origin

    make_topic(calm.bootstrap, name, partitions=2, configs=FOR_EVER)
    target = make_topic(calm.bootstrap, f"{name}-again", partitions=2, configs=FOR_EVER)
    sent = {0: orders(0, 300, days=2), 1: orders(300, 200)}
    checkpoint, lake = str(tmp_path / "checkpoint"), str(tmp_path / "lake")
    landing = LandPlan("land", calm.bootstrap, Origin((name,)), checkpoint, lake)
    for (partition, records), kind in zip(sent.items(), ("long", "string"), strict=True):
        append(calm.bootstrap, name, records, partition)
        # A column that has another type in other files is none of a backfill's business.
        land(spark, replace(landing, decode=Decode("json", f"id {kind}")))
    file = tmp_path / "again.toml"
    file.write_text(
        f'[pipeline]\nkind = "backfill"\nbootstrap = "{calm.bootstrap}"\n[lake]\npath = "lake"\n'
        f'[backfill]\ntopic = "{target}"\nrows_per_batch = 200\n'
    )
    dies(file, "before-done", 1)
    plan = BackfillPlan(
        "renamed-meanwhile",
        calm.bootstrap,
        lake,
        str(tmp_path / "lake" / "_tidelog" / "backfill-again"),
        topic=target,
        rows_per_batch=200,
    )
    report = backfill(spark, plan)
    assert report.batches == 2
    assert report.totals["rows_out"] == 500
    assert report.rows_out < 500
    assert backfill(spark, plan).rows_out == 0
    with consumer(calm.bootstrap) as client:
        for partition, records in sent.items():
            found = read_all(client, target, partition)
            assert [(m.key(), m.value(), m.timestamp()[1]) for m in found] == [
                (r.key, r.value, r.timestamp) for r in records
            ]
            assert [m.headers() or [] for m in found] == [
                [(h.key, h.value) for h in r.headers] for r in records
            ]


def read_all(client: Any, topic: str, partition: int) -> list[Any]:
    from confluent_kafka import TopicPartition

    low, high = ends(client, topic, partition)
    client.assign([TopicPartition(topic, partition, low)])
    return list(take(client, high - low))
