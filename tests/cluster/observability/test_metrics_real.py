"""Prometheus metrics and JSON logs of real brokers."""

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import ElectionType, KafkaError, TopicPartition
from prometheus_client.parser import text_string_to_metric_families
from real_cluster import (
    PATIENCE_S,
    admin_client,
    await_isr,
    consumer,
    eventually,
    leader_of,
    make_topic,
    read,
    segment_bytes,
    send_all,
)

from tidelog.core.metrics.exposition import CONTENT_TYPE
from tidelog.core.metrics.families import FAMILIES
from tidelog.core.quotas.entity import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from tidelog.shell.client.administration.quotas import alter_quotas
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

MANAGER = "kafka_server_replicamanager_"
TOPICS = "kafka_server_brokertopicmetrics_"
JSON_LOG = {"tidelog.log.format": "json"}


class NotExposed(OSError):
    """A sample is missing: a broker may not expose it yet. `eventually` looks again."""


class Told:
    """The metrics of one scrape of one broker."""

    def __init__(self, cluster: LocalCluster, broker: int) -> None:
        with urllib.request.urlopen(cluster.metrics_url(broker), timeout=PATIENCE_S) as answer:
            assert answer.headers["Content-Type"] == CONTENT_TYPE
            text = answer.read().decode()
        self.samples = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]

    def __call__(self, name: str, **labels: str) -> float:
        values = [s.value for s in self.samples if s.name == name and s.labels == labels]
        if len(values) != 1:
            raise NotExposed(f"{name}{labels}: {values}")
        return float(values[0])


def total(cluster: LocalCluster, name: str, **labels: str) -> float:
    """Return the sum over all brokers that run."""
    running = [broker for broker in cluster.ids if cluster.is_running(broker)]
    return sum(Told(cluster, broker)(name, **labels) for broker in running)


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings=JSON_LOG) as cluster:
        yield cluster


def events(cluster: LocalCluster, broker: int, name: str) -> list[dict[str, Any]]:
    written, _, _ = Path(cluster.log_path(broker)).read_text().rpartition("\n")
    said = [json.loads(line) for line in written.splitlines()]  # without an incomplete line
    assert all({"ts", "level", "broker", "event", "text"} <= one.keys() for one in said)
    return [one for one in said if one["event"] == name]


def set_quotas(cluster: LocalCluster) -> None:
    """Set quotas that nobody reaches: only clients with a quota are measured."""
    keys = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        parts, large = {CLIENT_ID: None}, dict.fromkeys(keys, 1e12)
        eventually(lambda: alter_quotas(client, parts, large).error == 0, "quotas are set")


def test_every_metric_of_the_table_is_exposed(calm: LocalCluster, name: str) -> None:
    set_quotas(calm)
    make_topic(calm.bootstrap, name)
    send_all(calm.bootstrap, name, [b"x"])
    read(calm.bootstrap, name, 1)
    with consumer(calm.bootstrap, {"group.id": name}) as client:
        wanted_offsets = [TopicPartition(name, 0, 1)]
        eventually(lambda: client.commit(offsets=wanted_offsets, asynchronous=False), "committed")
    wanted = {family.name for family in FAMILIES}

    def missing() -> set[str]:
        told = {s.name for broker in calm.ids for s in Told(calm, broker).samples}
        ends = ("", "_count", "_bucket")
        return {one for one in wanted if not any(f"{one}{end}" in told for end in ends)}

    def all_are_exposed() -> bool:
        if not (names := missing()):
            return True
        another = make_topic(calm.bootstrap, f"{name}-{uuid4()}")
        send_all(calm.bootstrap, another, [b"x"])
        read(calm.bootstrap, another, 1)
        raise NotExposed(", ".join(sorted(names)))

    eventually(all_are_exposed, "all metrics")
    group = {"consumergroup": name, "topic": name, "partition": "0"}

    def lags() -> list[float]:
        return [
            sample.value
            for broker in calm.ids
            for sample in Told(calm, broker).samples
            if sample.name == "kafka_consumergroup_lag" and sample.labels == group
        ]

    eventually(lambda: lags() == [0], "the coordinator exposes the lag")


def test_metrics_count_the_received_records_and_bytes(calm: LocalCluster, name: str) -> None:
    make_topic(calm.bootstrap, name)
    values = [b"%d" % number * 100 for number in range(500)]
    send_all(calm.bootstrap, name, values, conf={"acks": "all"})
    leader = leader_of(calm, name)
    size = len(segment_bytes(calm, leader, name))
    assert size > sum(map(len, values))
    told = Told(calm, leader)
    assert told(f"{TOPICS}messagesin_total", topic=name) == len(values)
    assert told(f"{TOPICS}bytesin_total", topic=name) == size
    assert told("kafka_log_log_size", topic=name, partition="0") == size
    assert told("tidelog_partition_high_watermark", topic=name, partition="0") == len(values)
    assert total(calm, f"{TOPICS}messagesin_total", topic=name) == len(values)
    read(calm.bootstrap, name, len(values))
    eventually(
        lambda: total(calm, f"{TOPICS}bytesout_total", topic=name) >= size, "all bytes are sent"
    )
    eventually(
        lambda: total(calm, f"{TOPICS}replicationbytesin_total", topic=name) == 2 * size,
        "both followers have all",
    )
    took = told("kafka_network_requestmetrics_totaltimems", request="Produce", quantile="0.99")
    assert 0 < took < PATIENCE_S * 1000
    assert told("kafka_network_requestmetrics_totaltimems_count", request="Produce") > 0
    active = "kafka_controller_kafkacontroller_activecontrollercount"
    eventually(lambda: total(calm, active) == 1, "one controller")


@pytest.mark.parametrize("way", ["kill", "pause"])
def test_a_broker_that_is_missing_is_seen_in_the_metrics(
    cluster: LocalCluster, name: str, way: str
) -> None:
    make_topic(cluster.bootstrap, name)
    send_all(cluster.bootstrap, name, [b"x"])
    leader = leader_of(cluster, name)
    gone = next(broker for broker in cluster.ids if broker != leader)
    under = f"{MANAGER}underreplicatedpartitions"
    eventually(lambda: Told(cluster, leader)(under) == 0, "all in sync")
    before = Told(cluster, leader)(f"{MANAGER}isrshrinks_total")
    getattr(cluster, way)(gone)

    where = {"topic": name, "partition": "0"}

    def shrunk() -> bool:
        told = Told(cluster, leader)
        in_sync = told("kafka_cluster_partition_insyncreplicascount", **where)
        return told(f"{MANAGER}isrshrinks_total") > before and told(under) >= 1 and in_sync == 2

    eventually(shrunk, "the ISR shrank")
    if way == "kill":
        cluster.start_broker(gone)
    else:
        cluster.resume(gone)
    eventually(lambda: Told(cluster, leader)(under) == 0, "all in sync")
    eventually(lambda: Told(cluster, leader)(f"{MANAGER}isrexpands_total") >= 1, "it expanded")

    def shrinks() -> list[dict[str, Any]]:
        return [e for e in events(cluster, leader, "isr_shrunk") if e["topic"] == name]

    (shrink, *_) = eventually(shrinks, "it is in the log")
    assert (shrink["partition"], shrink["left"], shrink["level"]) == (0, [gone], "WARN")
    if way == "pause":
        eventually(lambda: Told(cluster, gone)("tidelog_broker_fencings_total") >= 1, "counted")
        eventually(lambda: events(cluster, gone, "not_acting"), "it is in the log")


def test_records_lost_by_an_unclean_election_are_counted(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name, replicas=2, configs={"min.insync.replicas": "1"})
    send_all(cluster.bootstrap, name, [b"both have it"], conf={"acks": "all"})
    leader = leader_of(cluster, name)
    follower = next(
        broker
        for broker in cluster.ids
        if broker != leader and Path(cluster.log_dir(broker), f"{name}-0").exists()
    )
    cluster.kill(follower)
    await_isr(cluster, name, [leader])
    send_all(cluster.bootstrap, name, [b"1", b"2", b"3"], conf={"acks": "all"})
    cluster.kill(leader)
    cluster.start_broker(follower)
    offline = "kafka_controller_kafkacontroller_offlinepartitionscount"
    eventually(lambda: total(cluster, offline) == 1, "one partition is offline")
    partition = TopicPartition(name, 0)

    def elected() -> bool:
        admin = admin_client(cluster.bootstrap)
        found = admin.elect_leaders(ElectionType.UNCLEAN, [partition]).result(PATIENCE_S)
        error = found[partition]  # not needed: an earlier request did it
        return error is None or error.code() == KafkaError.ELECTION_NOT_NEEDED

    eventually(elected, "the election")
    unclean = "kafka_controller_controllerstats_uncleanleaderelections_total"
    eventually(lambda: total(cluster, unclean) == 1, "the election is counted")
    cluster.start_broker(leader)
    await_isr(cluster, name, sorted([leader, follower]))
    where = {"topic": name, "partition": "0"}
    lost_total = "tidelog_records_lost_total"
    eventually(lambda: Told(cluster, leader)(lost_total, **where) == 3, "the loss is counted")
    assert Told(cluster, follower)("tidelog_records_lost_total", **where) == 0
    (lost,) = eventually(lambda: events(cluster, leader, "records_lost"), "it is in the log")
    assert (lost["start"], lost["end"], lost["lost"]) == (1, 4, 3)

    def uncleanly() -> list[tuple[str, int]]:
        told = [e for broker in cluster.ids for e in events(cluster, broker, "unclean_election")]
        return [(e["topic"], e["leader"]) for e in told]

    assert eventually(uncleanly, "the election is in a log") == [(name, follower)]

    def gained() -> list[dict[str, Any]]:
        found = events(cluster, follower, "leadership_gained")
        return [e for e in found if e["topic"] == name and e["isr"] == [follower]]

    eventually(gained, "the new leader logs that it is the only one in sync")


def test_a_closed_client_connection_is_counted_and_logged(cluster: LocalCluster) -> None:
    with socket.create_connection(("localhost", cluster.port(1)), timeout=PATIENCE_S) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert sock.recv(10) == b""
    eventually(lambda: events(cluster, 1, "connection_dropped"), "it is in the log")
    assert events(cluster, 1, "connection_dropped")[0]["reason"] == "too large"
    ended = "tidelog_connections_ended_total"
    eventually(lambda: Told(cluster, 1)(ended, reason="too large") == 1, "it is counted")


def test_health_follows_the_broker(cluster: LocalCluster) -> None:
    address = cluster.metrics_url(1).removesuffix("/metrics")
    with urllib.request.urlopen(f"{address}/healthz", timeout=PATIENCE_S) as answer:
        assert answer.read() == b"ok\n"
    with urllib.request.urlopen(f"{address}/", timeout=PATIENCE_S) as answer:
        assert b"/metrics" in answer.read()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{address}/nothing", timeout=PATIENCE_S)
    refused.value.close()
    assert refused.value.code == 404
