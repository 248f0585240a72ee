"""A stream continues while leaders die, return and move, and its own processes are killed."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ElectionType, TopicPartition
from real_cluster import (
    PATIENCE_S,
    admin_client,
    await_isr,
    eventually,
    leader_of,
    make_topic,
)
from topic_data import append, numbered, numbers_in, streaming

from tidelog.shell.supervisor.cluster import LocalCluster
from tidelog.spark import register

pytestmark = pytest.mark.spark
SETTLES_S = 120.0
SETTINGS = {"broker.session.timeout.ms": "120000"}
"""Only killed brokers cause elections, and none that gets no CPU time for seconds."""


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings=SETTINGS) as cluster:
        yield cluster


class Running:
    """A query that is restarted after a failure, as an operator would do."""

    def __init__(self, frame: Any, folder: Path) -> None:
        self.frame, self.folder = frame, folder
        self.failures = 0
        self.query = self._start()

    def _start(self) -> Any:
        return (
            self.frame.writeStream.format("parquet")
            .option("checkpointLocation", str(self.folder / "state"))
            .option("path", str(self.folder / "out"))
            .start()
        )

    def settle(self) -> None:
        """Wait until all available records are written."""
        from pyspark.errors import StreamingQueryException

        until = time.monotonic() + SETTLES_S
        while True:
            try:
                self.query.processAllAvailable()
                return
            except StreamingQueryException:
                assert time.monotonic() < until
                self.failures += 1
                self.query = self._start()


def test_results_are_exact_whatever_dies(
    spark: Any, cluster: LocalCluster, name: str, tmp_path: Path
) -> None:
    register(spark)
    make_topic(cluster.bootstrap, name, partitions=2)
    append(cluster.bootstrap, name, numbered(0, 1000), batch=100)
    frame = streaming(spark, cluster.bootstrap, subscribe=name, startingOffsets="earliest").load()
    running = Running(frame, tmp_path)
    try:
        running.settle()
        dead = leader_of(cluster, name)
        cluster.kill(dead)
        append(cluster.bootstrap, name, numbered(1000, 2000), batch=100)
        running.settle()
        cluster.start_broker(dead, timeout_s=PATIENCE_S)
        await_isr(cluster, name, cluster.ids)
        librdkafka = admin_client(cluster.bootstrap)

        def leads_again() -> bool:
            wanted = [TopicPartition(name, 0)]
            librdkafka.elect_leaders(ElectionType.PREFERRED, wanted).result(PATIENCE_S)
            return leader_of(cluster, name) == dead

        eventually(leads_again, "the preferred leader leads again")
        append(cluster.bootstrap, name, numbered(2000, 3000), batch=100)
        running.settle()
        assert running.failures == 0, "brokers that fail are no reason for a query to fail"
        append(cluster.bootstrap, name, numbered(3000, 3500), partition=1, batch=50)
        for victim in python_workers(spark):
            os.kill(victim, signal.SIGKILL)
        append(cluster.bootstrap, name, numbered(3500, 4000), batch=100)
        running.settle()
    finally:
        running.query.stop()
    assert numbers_in(spark, tmp_path / "out") == list(range(4000))


def python_workers(spark: Any) -> list[int]:
    """Return the Python worker processes of this session, which its daemons forked."""
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    daemons = [pid for pid in children(jvm) if b"pyspark.daemon" in command_line(pid)]
    found = [worker for daemon in daemons for worker in children(daemon)]
    assert found
    return found


def children(parent: int) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                stat = (folder / "stat").read_text()
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == parent:
                found.append(int(folder.name))
    return found


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
