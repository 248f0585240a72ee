"""Logs that change between a batch's plan and its read, and brokers without topic ids.

The readers are called as Spark calls them, but in this process, without a JVM.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from real_cluster import (
    PATIENCE_S,
    admin_client,
    await_isr,
    consumer,
    eventually,
    leader_of,
    make_topic,
)
from topic_data import append, elect_unclean, numbered

from tidelog.apps.spark.source import task
from tidelog.apps.spark.source.data_loss import DataLost
from tidelog.apps.spark.source.partition_lookup import PartitionLookup, SubscribedPartitions
from tidelog.core.api_table import (
    FETCH,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    known_versions,
)
from tidelog.core.record.record import Record
from tidelog.shell.client import admin, connection
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.producer import Producer
from tidelog.shell.supervisor.cluster import LocalCluster
from tidelog.spark import read_report

pytestmark = pytest.mark.spark
SETTINGS = {"broker.session.timeout.ms": "120000", "replica.lag.time.max.ms": "120000"}
"""An isolated broker stays in the ISR, also if a test gets no CPU time for seconds. The end of a
broker's process is detected without its session timeout."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings=SETTINGS, fault_switches=True) as cluster:
        yield cluster
    for client in list(task._clusters):
        task._close_client(client)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "QUIET_S", 1.0)
    logging.getLogger("tidelog.spark").setLevel(logging.ERROR)


class Stream:
    """A stream reader and its current offset."""

    def __init__(self, bootstrap: str, **options: str) -> None:
        from tidelog.apps.spark.columns import topic_schema
        from tidelog.apps.spark.source.stream_reader import TidelogStreamReader

        given = {"kafka.bootstrap.servers": bootstrap, "startingoffsets": "earliest"}
        given |= {name.lower(): text for name, text in options.items()}
        self.reader = TidelogStreamReader(given, topic_schema(False))
        self.at: dict[str, Any] = self.reader.initialOffset()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.stop()

    def plan(self) -> list[Any]:
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        end = self.reader.latestOffset(self.at, ReadAllAvailable())
        planned = self.reader.partitions(self.at, end)
        self.at = end
        return planned

    def read(self, planned: list[Any]) -> list[int]:
        return [
            int(row["value"])
            for each in planned
            for batch in self.reader.read(each)
            for row in batch.to_pylist()
        ]


def told(lines: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((e["kind"], e["start"], e["end"], e["resume"]) for e in lines)


def delete_up_to(cluster: LocalCluster, topic: str, offset: int) -> None:
    librdkafka = admin_client(cluster.bootstrap)
    for done in librdkafka.delete_records([TopicPartition(topic, 0, offset)]).values():
        done.result(PATIENCE_S)


def test_retention_deletes_records_before_a_task_reads_them(
    cluster: LocalCluster, name: str, tmp_path: Path
) -> None:
    make_topic(cluster.bootstrap, name)
    append(cluster.bootstrap, name, numbered(0, 100))
    lost = str(tmp_path / "lost")
    options = {"subscribe": name, "onDataLoss": "report", "dataLossPath": lost}
    with Stream(cluster.bootstrap, **options) as stream:
        planned = stream.plan()
        delete_up_to(cluster, name, 50)
        assert stream.read(planned) == list(range(50, 100))
        assert stream.read(planned) == list(range(50, 100)), "a task that is tried again"
        assert told(read_report(lost)) == [("retention", 0, 50, 50)]
        assert stream.plan() == []
        delete_up_to(cluster, name, 100)
        assert stream.read(planned) == []
        assert told(read_report(lost)) == [("retention", 0, 100, 100)]
    with (
        Stream(cluster.bootstrap, subscribe=name) as stream,
        pytest.raises(DataLost, match="offsets 0 to 99 were deleted"),
    ):
        stream.read(planned)


def test_a_batch_read_of_deleted_records(cluster: LocalCluster, name: str, tmp_path: Path) -> None:
    from tidelog.apps.spark.columns import topic_schema
    from tidelog.apps.spark.source.batch_reader import TidelogBatchReader

    make_topic(cluster.bootstrap, name)
    append(cluster.bootstrap, name, numbered(0, 100))
    delete_up_to(cluster, name, 50)

    def read(start: int, end: int, **more: str) -> list[int]:
        options = {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "subscribe": name,
            "startingoffsets": f'{{"{name}": {{"0": {start}}}}}',
            "endingoffsets": f'{{"{name}": {{"0": {end}}}}}',
            **more,
        }
        reader = TidelogBatchReader(options, topic_schema(False))
        return [
            int(row["value"])
            for each in reader.partitions()
            for batch in reader.read(each)
            for row in batch.to_pylist()
        ]

    for start, end, gone in ((10, 30, 30), (40, 60, 50)):
        with pytest.raises(DataLost, match=f"offsets {start} to {gone - 1} were deleted"):
            read(start, end)
        lost = str(tmp_path / f"lost-{start}")
        kept = read(start, end, ondataloss="report", datalosspath=lost)
        assert kept == list(range(50, end))
        assert told(read_report(lost)) == [("retention", start, gone, 50)]


def test_a_topic_is_deleted_before_a_task_reads_it(
    cluster: LocalCluster, name: str, tmp_path: Path
) -> None:
    make_topic(cluster.bootstrap, name)
    append(cluster.bootstrap, name, numbered(0, 100))
    lost = str(tmp_path / "lost")
    options = {"subscribe": name, "onDataLoss": "report", "dataLossPath": lost}
    with Stream(cluster.bootstrap, **options) as stream:
        planned = stream.plan()
        with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
            admin.delete_topic(client, name)
        make_topic(cluster.bootstrap, name)
        append(cluster.bootstrap, name, numbered(1000, 1200))
        assert stream.read(planned) == []
        assert told(read_report(lost)) == [("recreated", 0, 100, None)]
        planned = stream.plan()
        assert stream.read(planned) == list(range(1000, 1200))
        assert told(read_report(lost)) == [
            ("recreated", 0, 100, None),
            ("recreated", 100, None, 0),
        ]


def cut_tail(cluster: LocalCluster, name: str, kept: int, end: int) -> int:
    """Write records up to `end`, of which the next leader will have those below `kept`.

    Return the leader, which is the only broker with all of them.
    """
    make_topic(cluster.bootstrap, name, replicas=2, configs={"min.insync.replicas": "1"})
    append(cluster.bootstrap, name, numbered(0, kept))
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        known = client.refresh([name]).topics[name].partitions[0]
    (follower,) = set(known.replicas) - {known.leader}
    cluster.kill(follower)
    await_isr(cluster, name, [known.leader])
    append(cluster.bootstrap, name, numbered(kept, end))
    return known.leader


def replace_leader(cluster: LocalCluster, name: str, leader: int) -> None:
    """Kill the leader, and let the replica lead that was not in sync."""
    cluster.kill(leader)
    for broker in cluster.ids:
        if broker != leader and not cluster.is_running(broker):
            cluster.start_broker(broker, timeout_s=PATIENCE_S)
    elect_unclean(cluster.bootstrap, name, leader)


@pytest.mark.parametrize("written_again", [40, 0])
def test_the_log_is_truncated_before_a_task_reads_it(
    cluster: LocalCluster, name: str, tmp_path: Path, written_again: int
) -> None:
    leader = cut_tail(cluster, name, 80, 100)
    lost = str(tmp_path / "lost")
    options = {"subscribe": name, "onDataLoss": "report", "dataLossPath": lost}
    with (
        Stream(cluster.bootstrap, **options) as stream,
        Stream(cluster.bootstrap, subscribe=name) as strict,
    ):
        planned = stream.plan()
        replace_leader(cluster, name, leader)
        if written_again:
            append(cluster.bootstrap, name, numbered(1000, 1000 + written_again))
        assert stream.read(planned) == list(range(80))
        with pytest.raises(DataLost, match=r"offsets 80 to 99 of leader epoch \d+ or before"):
            strict.read(planned)
        planned = stream.plan()
        assert told(read_report(lost)) == [("truncated", 80, 100, 80)], "by the driver, once"
        assert stream.read(planned) == list(range(1000, 1000 + written_again))
    cluster.start_broker(leader, timeout_s=PATIENCE_S)
    await_isr(cluster, name, cluster_replicas(cluster, name))


def switch(fault: Callable[[], None]) -> None:
    """Set a fault switch; a broker that gets no CPU time may not respond in time."""

    def responded() -> bool:
        fault()
        return True

    eventually(responded, "the broker responds")


@pytest.mark.parametrize("late", [True, False])
def test_a_leader_returns_with_uncommitted_records(
    cluster: LocalCluster, name: str, tmp_path: Path, late: bool
) -> None:
    """The leader's last records were never committed, and others were written in their place.

    Those were planned or read. Then the first leader leads again, and only the records that both
    logs share are left.
    """
    configs = {"min.insync.replicas": "1"}
    make_topic(cluster.bootstrap, name, replicas=2, configs=configs)
    append(cluster.bootstrap, name, numbered(0, 70))
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        known = client.refresh([name]).topics[name].partitions[0]
        first = known.leader
        (second,) = set(known.replicas) - {first}
        switch(lambda: cluster.isolate(second))
        try:
            careless = Producer(client, acks=1, idempotent=False)
            careless.append(name, 0, [Record(None, value) for value in numbered(500, 510)])
            cluster.kill(first)
        finally:
            switch(lambda: cluster.heal(second))
    eventually(lambda: leader_of(cluster, name) == second, "the other one leads")
    append(cluster.bootstrap, name, numbered(70, 100))
    lost = str(tmp_path / "lost")
    options = {"subscribe": name, "onDataLoss": "report", "dataLossPath": lost}
    with Stream(cluster.bootstrap, **options) as stream:
        planned = stream.plan()
        if not late:
            assert stream.read(planned) == list(range(100))
        replace_leader(cluster, name, second)
        append(cluster.bootstrap, name, numbered(1000, 1005))
        if late:
            assert stream.read(planned) == list(range(70))
        assert stream.read(stream.plan()) == [*range(500, 510), *range(1000, 1005)]
        assert told(read_report(lost)) == [("truncated", 70, 100, 70)]
    cluster.start_broker(second, timeout_s=PATIENCE_S)
    await_isr(cluster, name, cluster_replicas(cluster, name))


def cluster_replicas(cluster: LocalCluster, name: str) -> list[int]:
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        return client.refresh([name]).topics[name].partitions[0].replicas


def test_a_recreated_topic_of_which_nothing_was_read(
    cluster: LocalCluster, name: str, tmp_path: Path
) -> None:
    make_topic(cluster.bootstrap, name, partitions=2)
    dead = leader_of(cluster, name)
    cluster.kill(dead)  # so that the epoch rises
    eventually(lambda: leader_of(cluster, name) not in (dead, -1), "another one leads")
    cluster.start_broker(dead, timeout_s=PATIENCE_S)
    append(cluster.bootstrap, name, numbered(0, 10), partition=1)
    lost = str(tmp_path / "lost")
    options = {"subscribe": name, "onDataLoss": "report", "dataLossPath": lost}
    patience = {"kafka.default.api.timeout.ms": "60000"}
    with Stream(cluster.bootstrap, **options, **patience) as stream:
        assert stream.read(stream.plan()) == list(range(10))
        assert stream.at["topics"][name]["partitions"]["0"]["epoch"] > 0
        with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
            admin.delete_topic(client, name)
        make_topic(cluster.bootstrap, name, partitions=2)
        assert stream.read(stream.plan()) == []
        append(cluster.bootstrap, name, numbered(100, 120))
        assert stream.read(stream.plan()) == list(range(100, 120))
        assert told(read_report(lost)) == [("recreated", 0, None, 0), ("recreated", 10, None, 0)]


def test_a_stream_waits_while_all_brokers_are_down(cluster: LocalCluster, name: str) -> None:
    """For as long as the client's patience lasts, which is longer than one request's."""
    make_topic(cluster.bootstrap, name)
    append(cluster.bootstrap, name, numbered(0, 100))
    timeouts = {"kafka.request.timeout.ms": "1000", "kafka.default.api.timeout.ms": "120000"}
    with Stream(cluster.bootstrap, subscribe=name, **timeouts) as stream:
        planned = stream.plan()
        for broker in cluster.ids:
            cluster.kill(broker)

        def come_back() -> None:
            time.sleep(5)
            for broker in cluster.ids:
                cluster.start_broker(broker, wait=False)

        later = threading.Thread(target=come_back)
        later.start()
        try:
            assert stream.read(planned) == list(range(100))
        finally:
            later.join()
            cluster.wait_ready(PATIENCE_S)


def test_available_now_retries_a_broker_that_knows_no_topic(
    cluster: LocalCluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(cluster.bootstrap, name)
    append(cluster.bootstrap, name, numbered(0, 10))
    look, ignorant = PartitionLookup._find_once, [SubscribedPartitions(frozenset(), {})]
    with Stream(cluster.bootstrap, subscribe=name) as stream:
        monkeypatch.setattr(
            PartitionLookup, "_find_once", lambda self: ignorant.pop() if ignorant else look(self)
        )
        stream.reader.prepareForTriggerAvailableNow()
        assert stream.read(stream.plan()) == list(range(10))


def test_a_failed_commit_to_a_group_does_not_stop_the_stream(
    cluster: LocalCluster, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    make_topic(cluster.bootstrap, name)
    append(cluster.bootstrap, name, numbered(0, 10))
    with consumer(cluster.bootstrap, {"group.id": name}) as member:
        member.subscribe([name])
        eventually(lambda: member.poll(0.1) is not None or member.assignment(), "it has joined")
        with (
            caplog.at_level(logging.WARNING, "tidelog.spark"),
            Stream(cluster.bootstrap, subscribe=name, commitToGroup=name) as stream,
        ):
            assert stream.read(stream.plan()) == list(range(10))
            for _ in range(3):
                assert stream.plan() == []
    refusals = [line for line in caplog.messages if "cannot commit progress to group" in line]
    assert len(refusals) == 1
    assert "has members" in refusals[0]


KAFKA_2_1 = {METADATA: 7, FETCH: 10, LIST_OFFSETS: 4, OFFSET_FOR_LEADER_EPOCH: 2}


def test_brokers_without_topic_ids(
    cluster: LocalCluster, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client uses the versions of Kafka 2.1.

    A recreated topic is detected by epochs or by the end of the log, if they show it.
    """

    def spoken(api_key: int) -> tuple[int, int] | None:
        found = known_versions(api_key)
        return found and (found[0], min(found[1], KAFKA_2_1.get(api_key, found[1])))

    monkeypatch.setattr(connection, "known_versions", spoken)
    make_topic(cluster.bootstrap, name)
    append(cluster.bootstrap, name, numbered(0, 100))
    lost = str(tmp_path / "lost")
    options = {"subscribe": name, "onDataLoss": "report", "dataLossPath": lost}
    with Stream(cluster.bootstrap, **options, **{"kafka.client.id": "of-2.1"}) as stream:
        assert stream.read(stream.plan()) == list(range(100))
        assert "id" not in stream.at["topics"][name]
        with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
            admin.delete_topic(client, name)
        make_topic(cluster.bootstrap, name)
        append(cluster.bootstrap, name, numbered(1000, 1050))
        assert stream.read(stream.plan()) == list(range(1000, 1050))
        assert told(read_report(lost)) == [("recreated", 100, None, 0)]
