"""Rack-aware reads (KIP-392): consumers read from the replica in their rack."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from real_cluster import (
    LONG_SESSIONS,
    PATIENCE_S,
    consumer,
    eventually,
    leader_of,
    make_topic,
    metadata_of,
    send_all,
    take,
)

from tidelog.core.errors import ErrorCode
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
RACKS = ("a", "b", "c")
FETCH = 1


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    settings = {**LONG_SESSIONS, "replica.selector.class": SELECTOR}
    with LocalCluster(settings=settings, racks=RACKS) as cluster:
        yield cluster


def fetch_answer(cluster: LocalCluster, topic: str, broker: int, rack: str) -> dict[str, Any]:
    """Send one Fetch as a consumer in `rack`; return the partition's part of the response."""
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        known = client.refresh([topic]).topics[topic]
        place = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        request = {
            "max_wait_ms": 100,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "session_epoch": -1,
            "rack_id": rack,
            "topics": [{"topic": topic, "topic_id": known.id, "partitions": [place]}],
        }
        answer = client.broker(broker).call(FETCH, request)
        found = answer["responses"][0]["partitions"][0]
        assert isinstance(found, dict)
        return found


def serves(cluster: LocalCluster, topic: str, broker: int, rack: str) -> bool:
    answer = fetch_answer(cluster, topic, broker, rack)
    assert answer["error_code"] == ErrorCode.NONE
    return bool(answer["records"])


def test_the_leader_names_the_replica_in_the_rack(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name)
    send_all(cluster.bootstrap, name, [b"one"], conf={"acks": "all"})
    leader = leader_of(cluster, name)
    for broker, rack in zip(cluster.ids, RACKS, strict=True):
        if broker == leader:
            found = fetch_answer(cluster, name, leader, rack)
            assert (found["preferred_read_replica"], bool(found["records"])) == (-1, True)
        else:
            found = fetch_answer(cluster, name, leader, rack)
            assert (found["preferred_read_replica"], bool(found["records"])) == (broker, False)
            # The follower learns the high watermark with its next fetch.
            eventually(lambda at=(broker, rack): serves(cluster, name, *at), "records")  # type: ignore[misc]
    for stranger in ("", "nowhere"):
        found = fetch_answer(cluster, name, leader, stranger)
        assert (found["preferred_read_replica"], bool(found["records"])) == (-1, True)


def test_a_consumer_reads_from_its_rack(cluster: LocalCluster, name: str) -> None:
    """librdkafka's statistics show which broker it fetches from, and how many bytes it got."""
    make_topic(cluster.bootstrap, name)
    wanted = [b"%d" % number for number in range(500)]
    send_all(cluster.bootstrap, name, wanted, conf={"acks": "all"})
    leader = leader_of(cluster, name)
    follower = next(broker for broker in cluster.ids if broker != leader)
    told: list[dict[str, Any]] = []
    conf = {
        "client.rack": RACKS[follower - 1],
        "statistics.interval.ms": 50,
        "stats_cb": lambda text: told.append(json.loads(text)),
    }
    with consumer(cluster.bootstrap, conf) as client:
        client.assign([TopicPartition(name, 0, 0)])
        assert [message.value() for message in take(client, 500)] == wanted
        more = [b"%d" % number * 2000 for number in range(100)]
        send_all(cluster.bootstrap, name, more, conf={"acks": "all"})
        assert [message.value() for message in take(client, 100)] == more

        def asks_the_follower() -> bool:
            client.poll(0.05)
            if not told:
                return False
            partition = told[-1]["topics"][name]["partitions"]["0"]
            return (partition["leader"], partition["broker"]) == (leader, follower)

        eventually(asks_the_follower, "it reads from the follower")
        received = {b["nodeid"]: b["rxbytes"] for b in told[-1]["brokers"].values()}
    assert received[follower] > 100 * 2000
    assert received[leader] < 100 * 2000


def test_a_consumer_goes_back_to_the_leader(cluster: LocalCluster, name: str) -> None:
    """The replica in the consumer's rack dies; the consumer reads each record exactly once."""
    make_topic(cluster.bootstrap, name)
    wanted = [b"%d" % number for number in range(300)]
    send_all(cluster.bootstrap, name, wanted[:200], conf={"acks": "all"})
    leader = leader_of(cluster, name)
    follower = next(broker for broker in cluster.ids if broker != leader)
    with consumer(cluster.bootstrap, {"client.rack": RACKS[follower - 1]}) as client:
        client.assign([TopicPartition(name, 0, 0)])
        found = take(client, 200)
        cluster.kill(follower)
        send_all(cluster.bootstrap, name, wanted[200:], conf={"acks": "all"})
        found += take(client, 100)
        cluster.start_broker(follower)
    assert [message.value() for message in found] == wanted


def test_replicas_are_spread_over_racks(name: str) -> None:
    with LocalCluster(4, racks=("a", "b")) as cluster:
        make_topic(cluster.bootstrap, name, partitions=8, replicas=2)
        placed = metadata_of(cluster, 1, [name]).topics[name].values()
    assert all({one % 2 for one in partition.replicas} == {0, 1} for partition in placed)
