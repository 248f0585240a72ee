"""Pipelines on a real Spark cluster while a worker is killed: the result is the same."""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lake_rows import places, rows_of
from real_cluster import make_topic, read_values
from spark_cluster import SparkCluster
from topic_data import append

from tidelog.shell.supervisor.cluster import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PATIENCE_S = 280
ROWS = 2400
DECODE = '[decode]\nformat = "json"\nschema = "country string, placed timestamp"\n'


def order(number: int) -> bytes:
    minute, second = divmod(number, 60)
    placed = f"2026-11-16T{10 + minute // 60:02d}:{minute % 60:02d}:{second:02d}Z"
    return json.dumps({"country": "DE" if number % 3 else "FR", "placed": placed}).encode()


def run(
    file: Path, master: str, meanwhile: Callable[[], bool], then: Callable[[], None]
) -> dict[str, Any]:
    """Run a pipeline as a user does; call `then` when `meanwhile` is true."""
    command = [sys.executable, "-m", "tidelog", "pipeline", "run", str(file), "--format", "json"]
    settings = ["spark.driver.memory=1g", "spark.executor.memory=512m"]
    settings += ["spark.sql.shuffle.partitions=2"]
    words = [word for setting in settings for word in ("--conf", setting)]
    with subprocess.Popen(
        [*command, "--master", master, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            until = time.monotonic() + PATIENCE_S
            while not meanwhile():
                assert process.poll() is None, "it ended before anything was done to it"
                assert time.monotonic() < until
                time.sleep(0.1)
            then()
            out, errors = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 0, errors[-3000:]
    told: dict[str, Any] = json.loads(out)
    return told


def test_a_worker_dies_and_the_result_is_the_same(
    calm: LocalCluster, name: str, tmp_path: Path
) -> None:
    make_topic(calm.bootstrap, name, partitions=2)
    results = make_topic(calm.bootstrap, f"{name}-results")
    for partition in (0, 1):
        rows = [order(n) for n in range(partition, ROWS, 2)]
        append(calm.bootstrap, name, rows, partition)
    head = f'name = "p"\nbootstrap = "{calm.bootstrap}"\ntopics = ["{name}"]\n'
    source = "[source]\nmaxOffsetsPerTrigger = 600\n"
    land = tmp_path / "land.toml"
    land.write_text(
        f'[pipeline]\nkind = "land"\n{head}{source}{DECODE}'
        '[lake]\npath = "lake"\ncompact_files = 4\n'
    )
    windows = tmp_path / "windows.toml"
    windows.write_text(
        f'[pipeline]\nkind = "aggregate"\n{head}{source}{DECODE}'
        '[aggregate]\nevent_time = "placed"\nwindow = "5 minutes"\nwatermark = "1 minute"\n'
        'group_by = ["country"]\n[aggregate.columns]\norders = "count(*)"\n'
        f'[output]\ntable = "table"\ntopic = "{results}"\n'
    )
    (tmp_path / "spark").mkdir()
    with SparkCluster(tmp_path / "spark") as cluster:
        first, second = cluster.add_worker(), cluster.add_worker()
        data = tmp_path / "lake" / "data"
        told = run(
            land,
            cluster.master,
            lambda: cluster.executors(first) > 0 and len(rows_of(data)) >= 600,
            lambda: cluster.kill(first),
        )
        assert told["totals"] == {"rows_in": ROWS, "rows_out": ROWS, "rejected": 0}
        assert places(rows_of(data)) == [(name, p, n) for p in (0, 1) for n in range(ROWS // 2)]

        cluster.add_worker()
        table = tmp_path / "table" / "data"
        told = run(
            windows,
            cluster.master,
            lambda: cluster.executors(second) > 1 and len(rows_of(table)) >= 2,
            lambda: cluster.kill(second),
        )
    expected: Counter[tuple[str, str]] = Counter()
    for number in range(ROWS):
        row = json.loads(order(number))
        minute = number // 60 // 5 * 5
        expected[f"{10 + minute // 60:02d}:{minute % 60:02d}", row["country"]] += 1
    last = max(window for window, _ in expected)
    expected = Counter({k: n for k, n in expected.items() if k[0] != last})  # it is still open
    found = [(f"{r['window_start']:%H:%M}", r["country"], r["orders"]) for r in rows_of(table)]
    assert sorted(found) == sorted((*key, count) for key, count in expected.items())
    sent = [json.loads(value) for value in read_values(calm.bootstrap, results)]
    assert sorted((v["window_start"][11:16], v["country"], v["orders"]) for v in sent) == sorted(
        found
    )
    assert told["rows_in"] == ROWS
    assert told["late"] == 0
