"""Streams that find lost records: each kind of loss is recognised, with its exact range.

Each stream reads to the end; then records of its topic are lost and others are written. The next
run must fail and say why. With another policy it continues at the right offset, and reports or
counts the loss.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from real_cluster import (
    PATIENCE_S,
    admin_client,
    await_isr,
    eventually,
    make_topic,
)
from topic_data import (
    append,
    elect_unclean,
    failed_with,
    last_end,
    numbered,
    numbers_in,
    run_available,
    streaming,
)

from tidelog.shell.client import admin
from tidelog.shell.client.administration.configs import ConfigChange, Resource, alter_configs
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.offsets import EARLIEST, list_offset
from tidelog.shell.supervisor.cluster import LocalCluster
from tidelog.spark import read_report, register

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    settings = {
        # A broker that gets no CPU time for seconds causes no election; a death is detected.
        "broker.session.timeout.ms": "120000",
        "log.retention.check.interval.ms": "300",
    }
    with LocalCluster(settings=settings) as cluster:
        yield cluster


class Stream:
    """A stream of one topic over several runs."""

    def __init__(self, spark: Any, bootstrap: str, topic: str, folder: Path) -> None:
        register(spark)
        self.spark, self.bootstrap, self.topic, self.folder = spark, bootstrap, topic, folder

    def run(self, **options: str) -> list[dict[str, Any]]:
        frame = streaming(
            self.spark,
            self.bootstrap,
            subscribe=self.topic,
            startingOffsets="earliest",
            **options,
        ).load()
        return run_available(frame, self.folder / "state", self.folder / "out")

    def report(self) -> list[dict[str, Any]]:
        path = str(self.folder / "lost")
        self.run(onDataLoss="report", dataLossPath=path)
        return read_report(path)

    def values(self) -> list[int]:
        return numbers_in(self.spark, self.folder / "out")

    def skip_elsewhere(self) -> dict[str, Any]:
        """Continue from a copy of the checkpoint with policy `skip`; return the offset reached."""
        copy = self.folder / "copy"
        shutil.copytree(self.folder / "state", copy / "state")
        other = Stream(self.spark, self.bootstrap, self.topic, copy)
        other.run(onDataLoss="skip")
        return last_end(copy / "state")


def summary(lines: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((e["kind"], e["partition"], e["start"], e["end"], e["resume"]) for e in lines)


def test_retention_deletes_unread_records(
    spark: Any, cluster: LocalCluster, name: str, tmp_path: Path
) -> None:
    configs = {"segment.bytes": "20000", "file.delete.delay.ms": "100"}
    make_topic(cluster.bootstrap, name, configs=configs)
    append(cluster.bootstrap, name, numbered(0, 500))
    stream = Stream(spark, cluster.bootstrap, name, tmp_path)
    stream.run()
    append(cluster.bootstrap, name, numbered(500, 5000), batch=100)
    set_retention(cluster, name, "30000")
    eventually(lambda: log_start(cluster, name) > 500, "retention deletes what was not read")
    set_retention(cluster, name, "-1")
    low = log_start(cluster, name)
    told = failed_with(stream.run)
    assert f"data loss: {name}-0: offsets 500 to {low - 1} were deleted (retention)" in told
    assert "set onDataLoss to report or skip" in told
    offset = stream.skip_elsewhere()
    assert offset["lostOffsets"] == low - 500
    assert summary(stream.report()) == [("retention", 0, 500, low, low)]
    assert stream.values() == [*range(500), *range(low, 5000)]
    stream.run()
    assert stream.values() == [*range(500), *range(low, 5000)]


def set_retention(cluster: LocalCluster, name: str, size: str) -> None:
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        whose = Resource(admin.TOPIC_RESOURCE, name)
        change = ConfigChange(0, "retention.bytes", size)
        assert not alter_configs(client, whose, [change]).error


def log_start(cluster: LocalCluster, name: str) -> int:
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        return list_offset(client, name, 0, EARLIEST).offset


def test_delete_records_deletes_unread_records(
    spark: Any, cluster: LocalCluster, name: str, tmp_path: Path
) -> None:
    make_topic(cluster.bootstrap, name, partitions=2)
    append(cluster.bootstrap, name, numbered(0, 100))
    stream = Stream(spark, cluster.bootstrap, name, tmp_path)
    stream.run()
    append(cluster.bootstrap, name, numbered(100, 300))
    append(cluster.bootstrap, name, numbered(300, 400), partition=1)
    wanted = [TopicPartition(name, 0, 250), TopicPartition(name, 1, 10)]
    librdkafka = admin_client(cluster.bootstrap)
    for done in librdkafka.delete_records(wanted).values():
        done.result(PATIENCE_S)
    told = failed_with(stream.run)
    assert f"{name}-0: offsets 100 to 249 were deleted" in told
    assert "(and 1 more ranges)" in told
    assert summary(stream.report()) == [
        ("retention", 0, 100, 250, 250),
        ("retention", 1, 0, 10, 10),
    ]
    assert stream.values() == [*range(100), *range(250, 300), *range(310, 400)]


def test_a_recreated_topic_is_read_from_its_start(
    spark: Any, cluster: LocalCluster, name: str, tmp_path: Path
) -> None:
    make_topic(cluster.bootstrap, name, partitions=2)
    append(cluster.bootstrap, name, numbered(0, 100))
    append(cluster.bootstrap, name, numbered(100, 150), partition=1)
    stream = Stream(spark, cluster.bootstrap, name, tmp_path)
    stream.run()
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        admin.delete_topic(client, name)
    make_topic(cluster.bootstrap, name, partitions=1)
    append(cluster.bootstrap, name, numbered(1000, 1300))  # more than there was
    told = failed_with(stream.run)
    assert (
        f"{name}-0: offsets from 100 on were deleted with their topic, which was recreated (id "
        in told
    )
    assert summary(stream.report()) == [
        ("recreated", 0, 100, None, 0),
        ("recreated", 1, 50, None, None),
    ]
    assert stream.values() == [*range(150), *range(1000, 1300)]
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        admin.delete_topic(client, name)
    assert f"{name}-0: offsets from 300 on were deleted with their topic" in (
        failed_with(stream.run)
    )


def test_an_unclean_election_truncates_read_records(
    spark: Any, cluster: LocalCluster, name: str, tmp_path: Path
) -> None:
    make_topic(cluster.bootstrap, name, replicas=2, configs={"min.insync.replicas": "1"})
    append(cluster.bootstrap, name, numbered(0, 80))
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        known = client.refresh([name]).topics[name].partitions[0]
    (follower,) = set(known.replicas) - {known.leader}
    cluster.kill(follower)
    await_isr(cluster, name, [known.leader])
    append(cluster.bootstrap, name, numbered(80, 100))
    stream = Stream(spark, cluster.bootstrap, name, tmp_path)
    stream.run()  # to the end, of which only one replica has the last 20
    cluster.kill(known.leader)
    cluster.start_broker(follower, timeout_s=PATIENCE_S)
    elect_unclean(cluster.bootstrap, name, known.leader)
    append(cluster.bootstrap, name, numbered(1000, 1060))
    told = failed_with(stream.run)
    assert (
        f"data loss: {name}-0: offsets 80 to 99 of leader epoch {known.leader_epoch} or before"
        " were truncated (unclean leader election); reading continues at offset 80"
    ) in told
    offset = stream.skip_elsewhere()
    assert (offset["lostOffsets"], offset["topics"][name]["partitions"]["0"]["from"]) == (20, 80)
    assert summary(stream.report()) == [("truncated", 0, 80, 100, 80)]
    assert stream.values() == [*range(100), *range(1000, 1060)]
    cluster.start_broker(known.leader, timeout_s=PATIENCE_S)
    append(cluster.bootstrap, name, numbered(1060, 1070))
    stream.run()
    assert stream.values() == [*range(100), *range(1000, 1070)]
