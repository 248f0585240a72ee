"""`min.insync.replicas`: the leader rejects acks=all if too few replicas are in sync."""

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError
from real_cluster import (
    LONG_SESSIONS,
    PATIENCE_S,
    QUICK_SESSIONS,
    Sent,
    await_isr,
    eventually,
    leader_of,
    make_topic,
    read_values,
    send_all,
    set_topic_config,
    state_of,
)

from tidelog.core.errors import ErrorCode
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Record
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.producer import Produced, produce
from tidelog.shell.supervisor.cluster import LocalCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings=LONG_SESSIONS) as cluster:
        yield cluster


def append(cluster: LocalCluster, leader: int, topic: str, value: bytes, acks: int) -> Produced:
    batch = encode_batch([Record(None, value, 1_000, ())])
    with Cluster(f"localhost:{cluster.port(leader)}", timeout_s=PATIENCE_S) as client:
        client.refresh([topic])
        return produce(client.broker(leader), client.topic(topic), 0, batch, acks)


def test_two_of_three_are_down(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name, configs={"retention.ms": "-1"})
    send_all(cluster.bootstrap, name, [b"first"], conf={"acks": "all"})
    leader = leader_of(cluster, name)
    others = [broker for broker in cluster.ids if broker != leader]
    for broker in others:
        cluster.kill(broker)
    await_isr(cluster, name, [leader])
    assert append(cluster, leader, name, b"x", -1).error == ErrorCode.NOT_ENOUGH_REPLICAS
    assert append(cluster, leader, name, b"with acks=1", 1).error == 0
    # Below min ISR the high watermark does not rise: no consumer reads records that could be lost.
    state = state_of(cluster, leader, name)
    assert (state["log_end_offset"], state["min_isr"]) == (2, 2)
    impatient = {"acks": "all", "message.timeout.ms": 1500, "request.timeout.ms": 500}
    sent = Sent(cluster.bootstrap, name, impatient)
    sent.send(b"never written")
    sent.settle()
    (error,) = sent.failed.values()
    assert error.code() in (KafkaError.NOT_ENOUGH_REPLICAS, KafkaError._MSG_TIMED_OUT)

    for broker in others:
        cluster.start_broker(broker, wait=False)
    cluster.wait_ready()
    await_isr(cluster, name, cluster.ids)
    send_all(cluster.bootstrap, name, [b"last"], conf={"acks": "all"})
    assert read_values(cluster.bootstrap, name) == [b"first", b"with acks=1", b"last"]


def test_a_hung_follower_leaves_and_rejoins_the_isr(name: str) -> None:
    """A follower that hangs but is alive also leaves the ISR, and rejoins later."""
    settings = {**QUICK_SESSIONS, "replica.lag.time.max.ms": "1000"}
    with LocalCluster(settings=settings) as cluster:
        make_topic(cluster.bootstrap, name)
        leader = leader_of(cluster, name)
        follower = next(broker for broker in cluster.ids if broker != leader)
        cluster.pause(follower)
        try:
            send_all(cluster.bootstrap, name, [b"%d" % n for n in range(100)], conf={"acks": "all"})
            await_isr(cluster, name, [broker for broker in cluster.ids if broker != follower])
        finally:
            cluster.resume(follower)
        await_isr(cluster, name, cluster.ids)
        eventually(
            lambda: state_of(cluster, follower, name)["high_watermark"] == 100, "it has caught up"
        )


def test_min_isr_can_be_changed(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name, configs={"min.insync.replicas": "3"})
    leader = leader_of(cluster, name)
    follower = next(broker for broker in cluster.ids if broker != leader)
    cluster.kill(follower)
    await_isr(cluster, name, [broker for broker in cluster.ids if broker != follower])
    assert append(cluster, leader, name, b"x", -1).error == ErrorCode.NOT_ENOUGH_REPLICAS
    set_topic_config(cluster, name, "min.insync.replicas", "2")
    eventually(lambda: append(cluster, leader, name, b"y", -1).error == 0, "the change is in force")
    cluster.start_broker(follower)


def test_min_isr_is_never_more_than_there_are_replicas(calm: LocalCluster, name: str) -> None:
    make_topic(calm.bootstrap, name, replicas=2, configs={"min.insync.replicas": "3"})
    assert append(calm, leader_of(calm, name), name, b"x", -1).error == 0
