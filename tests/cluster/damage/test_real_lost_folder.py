"""Partition folders are deleted while the brokers are down.

The remaining replica keeps its records. An administrator decides whether it becomes the leader.
"""

import shutil
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from confluent_kafka import ElectionType, KafkaError, TopicPartition
from real_cluster import (
    PATIENCE_S,
    admin_client,
    await_isr,
    await_members,
    eventually,
    leader_of,
    make_topic,
    partition_dir,
    read_values,
    said,
    segment_bytes,
    send_all,
    state_of,
)

from tidelog.apps.cli.main import cli
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

BROKERS = (1, 2, 3)
OLD = [b"old %d" % number for number in range(20)]


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


def leader_as_told(cluster: LocalCluster, broker: int, topic: str) -> int:
    return int(cluster.metadata(broker, [topic]).topics[topic][0].leader)


def assignment(cluster: LocalCluster, topic: str) -> tuple[int, list[int]]:
    """Return the leader and the other replicas."""
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        known = client.refresh([topic]).topics[topic].partitions[0]
    return known.leader, [broker for broker in known.replicas if broker != known.leader]


def stop_all(cluster: LocalCluster, topic: str) -> tuple[int, int, int]:
    """Kill all brokers; return the last leader, the other in-sync replica and the lagging one."""
    make_topic(cluster.bootstrap, topic, replicas=3, configs={"min.insync.replicas": "1"})
    send_all(cluster.bootstrap, topic, OLD, conf={"acks": "all"})
    await_isr(cluster, topic, BROKERS)
    leader, (second, third) = assignment(cluster, topic)
    eventually(
        lambda: segment_bytes(cluster, third, topic) == segment_bytes(cluster, leader, topic),
        "all have all",
    )
    cluster.kill(third)
    await_isr(cluster, topic, [leader, second])
    send_all(cluster.bootstrap, topic, [b"the third lacks it"], conf={"acks": "all"})
    for broker in (second, leader):
        cluster.kill(broker)
    return leader, second, third


def start_again(cluster: LocalCluster) -> None:
    for broker in BROKERS:
        if not cluster.is_running(broker):
            cluster.start_broker(broker, wait=False)
    await_members(cluster)


def await_new_lives(cluster: LocalCluster, topic: str) -> None:
    """Write a record and wait for the full ISR; the ISR from before the restart is not enough."""
    send_all(cluster.bootstrap, topic, [b"a new life"], conf={"acks": "all"})
    await_isr(cluster, topic, BROKERS)


def elect_uncleanly(cluster: LocalCluster, topic: str, way: str) -> None:
    if way == "setting":
        where = ["-b", cluster.bootstrap, "--timeout", str(PATIENCE_S)]
        changed = ["--set", "unclean.leader.election.enable=true", *where]
        told = CliRunner().invoke(cli, ["config", "alter", "topic", topic, *changed])
        assert told.exit_code == 0, told.output
    else:
        partition = TopicPartition(topic, 0)

        def elected() -> bool:
            admin = admin_client(cluster.bootstrap)
            found = admin.elect_leaders(ElectionType.UNCLEAN, [partition]).result(PATIENCE_S)
            error = found[partition]  # not needed: an earlier request did it
            return error is None or error.code() == KafkaError.ELECTION_NOT_NEEDED

        eventually(elected, "the election")


@pytest.mark.parametrize("way", ["setting", "administrator"])
def test_the_records_of_the_sound_replica_survive(
    cluster: LocalCluster, name: str, way: str
) -> None:
    other = f"{name}-other"
    make_topic(cluster.bootstrap, other, replicas=3, configs={"min.insync.replicas": "1"})
    send_all(cluster.bootstrap, other, OLD, conf={"acks": "all"})
    leader, second, third = stop_all(cluster, name)
    for broker in (leader, second):
        shutil.rmtree(partition_dir(cluster, broker, name))
    kept = segment_bytes(cluster, third, name)
    start_again(cluster)
    # Other partitions of the same brokers continue to work.
    await_new_lives(cluster, other)
    assert read_values(cluster.bootstrap, other) == [*OLD, b"a new life"]
    eventually(lambda: leader_as_told(cluster, third, name) == -1, "no leader")
    assert segment_bytes(cluster, third, name) == kept
    told = f"{name}-0: its folder is not in the log directory"
    eventually(lambda: told in said(cluster, leader), "it is in the log")
    eventually(
        lambda: set(state_of(cluster, third, name)["lost"]) == {leader, second}, "two logs lost"
    )
    # Restart again: the brokers must still know of the loss.
    for broker in BROKERS:
        cluster.kill(broker)
    start_again(cluster)
    await_new_lives(cluster, other)
    eventually(lambda: leader_as_told(cluster, third, name) == -1, "no leader")
    assert segment_bytes(cluster, third, name) == kept

    elect_uncleanly(cluster, name, way)
    await_isr(cluster, name, BROKERS)
    # The preferred replica may lead again by now, with the records copied from `third`.
    assert segment_bytes(cluster, third, name) == kept
    assert read_values(cluster.bootstrap, name) == OLD
    for broker in (leader, second):
        eventually(lambda b=broker: segment_bytes(cluster, b, name) == kept, "the same bytes")  # type: ignore[misc]


def test_a_partition_folder_that_is_put_back_is_used(cluster: LocalCluster, name: str) -> None:
    leader, _, third = stop_all(cluster, name)
    folder = partition_dir(cluster, leader, name)
    aside = folder.parent.parent / "aside"
    folder.rename(aside)
    cluster.start_broker(leader, wait=False)
    cluster.start_broker(third, wait=False)
    eventually(
        lambda: (
            leader_as_told(cluster, leader, name) == -1
            and f"{name}-0: its folder" in said(cluster, leader)
        ),
        "the loss is told",
    )
    eventually(
        lambda: len(cluster.metadata(third).brokers) == 2, "both are members, and nobody leads"
    )
    assert not folder.exists()
    cluster.kill(leader)
    aside.rename(folder)
    start_again(cluster)
    await_new_lives(cluster, name)
    wanted = [*OLD, b"the third lacks it", b"a new life"]
    assert read_values(cluster.bootstrap, name) == wanted


def test_a_sole_replica_without_its_folder_starts_empty(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name, replicas=1)
    send_all(cluster.bootstrap, name, OLD)
    leader, _ = assignment(cluster, name)
    cluster.kill(leader)
    shutil.rmtree(partition_dir(cluster, leader, name))
    cluster.start_broker(leader)
    assert send_all(cluster.bootstrap, name, [b"new"]) == [0]
    eventually(lambda: leader_of(cluster, name) == leader, "it leads")
    assert read_values(cluster.bootstrap, name) == [b"new"]
    told = f"elected broker {leader} for {name}-0 uncleanly"
    eventually(lambda: any(told in said(cluster, b) for b in BROKERS), "it is in the log")


def test_an_emptied_broker_catches_up(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name, replicas=3, configs={"min.insync.replicas": "1"})
    send_all(cluster.bootstrap, name, OLD, conf={"acks": "all"})
    leader, (second, _) = assignment(cluster, name)
    cluster.kill(second)
    shutil.rmtree(cluster.log_dir(second))
    cluster.start_broker(second, wait=False)
    await_isr(cluster, name, BROKERS)
    eventually(
        lambda: segment_bytes(cluster, second, name) == segment_bytes(cluster, leader, name),
        "it has everything again",
    )
    assert read_values(cluster.bootstrap, name) == OLD
