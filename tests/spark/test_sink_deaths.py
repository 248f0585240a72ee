"""Drivers, workers and brokers are killed while Spark writes: each row is written once."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import sink_driver
from sink_rows import rows_of, values_of, writing
from topic_data import append

from tidelog.core.record.record import Record
from tidelog.shell.client.admin import create_topic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.offsets import list_offset
from tidelog.shell.supervisor.cluster import LocalCluster

pytestmark = pytest.mark.spark
ROWS = 6000
PATIENCE_S = 240


def drive(calm: LocalCluster, source: str, sink: str, checkpoint: Path, kill: str) -> int:
    """Run the driver; return how it ended. No process of it is left."""
    arguments = [calm.bootstrap, source, sink, str(checkpoint), *kill.split()]
    with checkpoint.with_suffix(".log").open("ab") as log:
        program = subprocess.Popen(
            [sys.executable, sink_driver.__file__, *arguments],
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    try:
        return program.wait(PATIENCE_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()


def test_each_row_is_there_once_after_kills_of_driver_and_worker(
    calm: LocalCluster, name: str, tmp_path: Path
) -> None:
    source = f"{name}-source"
    with Cluster(calm.bootstrap) as client:
        create_topic(client, source, 2)
        create_topic(client, name, 3)
    now = int(time.time() * 1000)
    for partition in (0, 1):
        numbers = range(partition, ROWS, 2)
        records = [Record(b"%d" % (n % 10), b"%05d" % n, now) for n in numbers]
        append(calm.bootstrap, source, records, partition)

    checkpoint = tmp_path / "checkpoint"
    log = checkpoint.with_suffix(".log")
    for kill in ("midway 1", "before 1", "after 1"):
        ended = drive(calm, source, name, checkpoint, kill)
        assert ended == -signal.SIGKILL, log.read_text()[-4000:]
        written = len(values_of(calm.bootstrap, name))
        assert 2000 < written < 4000 if kill == "midway 1" else written == 4000
    assert drive(calm, source, name, checkpoint, "task 2") == 0, log.read_text()[-4000:]
    assert Path(f"{checkpoint}.killed-once").exists()

    assert values_of(calm.bootstrap, name) == [b"%05d" % n for n in range(ROWS)]
    for records_there in rows_of(calm.bootstrap, name).values():
        by_key: dict[bytes | None, list[bytes]] = {}
        for record in records_there:
            by_key.setdefault(record.key, []).append(record.value or b"")
        assert all(values == sorted(values) for values in by_key.values())


def test_a_leader_is_killed_while_rows_are_written(spark: Any, name: str) -> None:
    rows = 400_000
    with LocalCluster() as cluster:
        with Cluster(cluster.bootstrap) as client:
            create_topic(client, name, 3)
            leader = client.partition(name, 0).leader
        frame = spark.range(0, rows, 1, 2).selectExpr(
            "CAST(id % 100 AS STRING) key", "CAST(id AS STRING) value"
        )

        def kill_when_some_are_there() -> None:
            with Cluster(cluster.bootstrap) as client:
                deadline = time.monotonic() + PATIENCE_S
                while time.monotonic() < deadline:
                    client.refresh([name])
                    if any(ends(client, name)):
                        break
                    time.sleep(0.005)
            cluster.kill(leader)

        killer = threading.Thread(target=kill_when_some_are_there)
        killer.start()
        options = {"kafka.batch.size": "4096", "kafka.request.timeout.ms": "10000"}
        writing(frame, cluster.bootstrap, topic=name, **options).save()
        killer.join()
        assert not cluster.is_running(leader)
        found = rows_of(cluster.bootstrap, name)
        numbers = [int(record.value or b"") for each in found.values() for record in each]
        assert sorted(numbers) == list(range(rows))
        for records in found.values():
            by_task: dict[bool, list[int]] = {}
            for record in records:
                number = int(record.value or b"")
                by_task.setdefault(number < rows // 2, []).append(number)
            assert all(each == sorted(each) for each in by_task.values())


def ends(client: Cluster, topic: str) -> list[int]:
    return [
        list_offset(client, topic, partition).offset for partition in client.topic(topic).partitions
    ]
