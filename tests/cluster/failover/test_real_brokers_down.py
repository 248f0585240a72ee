"""One of three real brokers is dead: create topics and the first group, unregister the broker."""

from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from confluent_kafka import TopicPartition
from confluent_kafka.cimpl import NewTopic
from real_cluster import (
    LONG_SESSIONS,
    PATIENCE_S,
    admin_client,
    await_isr,
    commit_offsets,
    consumer,
    eventually,
    read_values,
    said,
    send_all,
    take,
)

from tidelog.apps.cli.main import cli
from tidelog.core.errors import ErrorCode
from tidelog.shell.client.admin import registered_brokers, unregister_broker
from tidelog.shell.client.administration.topics import NewTopic as OwnTopic
from tidelog.shell.client.administration.topics import create_topics
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

TOPIC = "orders"


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A cluster without any group so far, whose broker 3 is dead."""
    with LocalCluster(3, settings=LONG_SESSIONS) as cluster:
        cluster.kill(3)
        eventually(lambda: fenced(cluster) == {1: False, 2: False, 3: True}, "broker 3 is fenced")
        yield cluster


def fenced(cluster: LocalCluster) -> dict[int, bool]:
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        return {each.id: each.fenced for each in registered_brokers(client).values()}


def make(cluster: LocalCluster) -> None:
    """Create the topic and wait until both running brokers know its leaders."""
    admin = admin_client(cluster.bootstrap)
    admin.create_topics([NewTopic(TOPIC, 3, 3)])[TOPIC].result(PATIENCE_S)
    for broker in (1, 2):
        eventually(lambda at=broker: has_leaders(cluster, at), "leaders of the new topic")  # type: ignore[misc]


def has_leaders(cluster: LocalCluster, broker: int) -> bool:
    partitions = cluster.metadata(broker, [TOPIC]).topics[TOPIC].values()
    return len(partitions) == 3 and all(each.leader in (1, 2) for each in partitions)


def test_topics_and_groups_are_created_while_a_broker_is_down(cluster: LocalCluster) -> None:
    make(cluster)
    admin = admin_client(cluster.bootstrap)
    eventually(lambda: sorted(admin.list_topics(timeout=5).brokers) == [1, 2], "3 is not listed")
    found = admin.list_topics(TOPIC, timeout=PATIENCE_S)
    for partition in found.topics[TOPIC].partitions.values():
        assert sorted(partition.replicas) == [1, 2, 3]
        assert sorted(partition.isrs) == [1, 2]
        assert partition.leader in (1, 2)
    send_all(cluster.bootstrap, TOPIC, [b"one", b"two"])
    group = {"group.id": "first", "auto.offset.reset": "earliest"}
    with consumer(cluster.bootstrap, group) as client:
        client.subscribe([TOPIC])
        got = take(client, 2)
        assert [message.value() for message in got] == [b"one", b"two"]
        commit_offsets(client, [TopicPartition(TOPIC, 0, 2)])
    cluster.start_broker(3)
    for partition_number in range(3):
        await_isr(cluster, TOPIC, (1, 2, 3), partition_number)
    cluster.kill(1)
    cluster.kill(2)
    assert read_values(cluster.bootstrap, TOPIC) == [b"one", b"two"]


def test_an_unregistered_broker_registers_again(cluster: LocalCluster) -> None:
    make(cluster)
    words = ["cluster", "unregister", "3", "--bootstrap", cluster.bootstrap]
    done = CliRunner().invoke(cli, words)
    assert (done.exit_code, done.stdout) == (0, "✓ broker 3 is no longer registered\n")
    eventually(lambda: fenced(cluster) == {1: False, 2: False}, "all brokers know it")
    again = CliRunner().invoke(cli, words)
    assert again.exit_code == 1
    assert "BROKER_ID_NOT_REGISTERED" in again.stderr
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        [made] = create_topics(client, [OwnTopic("more", 1, 3)])
        assert made.outcome.error == ErrorCode.INVALID_REPLICATION_FACTOR
    cluster.start_broker(3)
    await_isr(cluster, TOPIC, (1, 2, 3))


def test_a_running_broker_leaves_and_is_back_after_a_restart(cluster: LocalCluster) -> None:
    make(cluster)
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        assert unregister_broker(client, 2).holds
    eventually(lambda: "was unregistered by an administrator" in said(cluster, 2), "it says so")
    eventually(lambda: fenced(cluster) == {1: False, 3: True}, "all brokers know it")
    for partition_number in range(3):
        await_isr(cluster, TOPIC, (1,), partition_number)
    assert cluster.stop(2) == 0
    cluster.start_broker(2)
    for partition_number in range(3):
        await_isr(cluster, TOPIC, (1, 2), partition_number)


def test_a_dead_broker_is_still_registered_when_all_others_restart(cluster: LocalCluster) -> None:
    for broker in (1, 2):
        cluster.kill(broker)
    for broker in (1, 2):
        cluster.start_broker(broker)
    eventually(lambda: fenced(cluster) == {1: False, 2: False, 3: True}, "all three are known")
    make(cluster)
    await_isr(cluster, TOPIC, (1, 2))
