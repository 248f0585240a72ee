"""No replica with all records is alive: the partition stays offline until an unclean election."""

from collections.abc import Iterator

import pytest
from confluent_kafka import ElectionType, TopicPartition
from real_cluster import (
    LONG_SESSIONS,
    PATIENCE_S,
    Sent,
    admin_client,
    await_isr,
    controller_of,
    eventually,
    leader_of,
    make_topic,
    metadata_of,
    read_values,
    send_all,
    set_topic_config,
    state_of,
)

from tidelog.apps.views.losses import LossView, view_losses
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings=LONG_SESSIONS) as cluster:
        yield cluster


def bereave(cluster: LocalCluster, topic: str) -> tuple[int, int]:
    """Make a partition whose leader wrote a record alone and died; return (leader, follower).

    The follower runs again, without that record.
    """
    make_topic(cluster.bootstrap, topic, replicas=2, configs={"min.insync.replicas": "1"})
    send_all(cluster.bootstrap, topic, [b"both have it"], conf={"acks": "all"})
    leader = leader_of(cluster, topic)
    known = metadata_of(cluster, leader, [topic]).topics[topic][0]
    (follower,) = set(known.replicas) - {leader}
    cluster.kill(follower)
    await_isr(cluster, topic, [leader])
    send_all(cluster.bootstrap, topic, [b"only the leader has it"], conf={"acks": "all"})
    cluster.kill(leader)
    cluster.start_broker(follower)
    return leader, follower


def leader_as_told(cluster: LocalCluster, broker: int, topic: str) -> int:
    return metadata_of(cluster, broker, [topic]).topics[topic][0].leader


def await_offline(cluster: LocalCluster, broker: int, topic: str) -> None:
    eventually(lambda: leader_as_told(cluster, broker, topic) == -1, "no leader")


def test_a_partition_is_offline_until_its_leader_is_back(cluster: LocalCluster, name: str) -> None:
    leader, follower = bereave(cluster, name)
    await_offline(cluster, follower, name)
    sent = Sent(cluster.bootstrap, name, {"acks": "all", "message.timeout.ms": 1000})
    sent.send(b"nobody takes it")
    sent.settle()
    assert len(sent.failed) == 1
    cluster.start_broker(leader)
    await_isr(cluster, name, sorted([leader, follower]))
    assert read_values(cluster.bootstrap, name) == [b"both have it", b"only the leader has it"]


def all_losses(client: Cluster, topic: str) -> list[LossView] | None:
    """Return the losses in the ledgers of all brokers; None if one can't be read."""
    found = view_losses(client, topic)
    return None if found.unread else found.losses


@pytest.mark.parametrize("way", ["setting", "administrator"])
def test_an_unclean_election_is_requested_and_logged(
    cluster: LocalCluster, name: str, way: str
) -> None:
    leader, follower = bereave(cluster, name)
    await_offline(cluster, follower, name)
    if way == "setting":
        set_topic_config(cluster, name, "unclean.leader.election.enable", "true")
    else:
        controller_of(cluster)  # wait until there is one again
        admin = admin_client(cluster.bootstrap)
        partition = TopicPartition(name, 0)
        found = admin.elect_leaders(ElectionType.UNCLEAN, [partition]).result(PATIENCE_S)
        assert found[partition] is None
    eventually(lambda: leader_as_told(cluster, follower, name) == follower, "the follower leads")
    send_all(cluster.bootstrap, name, [b"goes on"], conf={"acks": "1"})
    told = state_of(cluster, follower, name)["unclean_election"]
    assert (told["leader"], [*told["old_isr"], *told["old_elr"]]) == (follower, [leader])

    cluster.start_broker(leader)
    await_isr(cluster, name, sorted([leader, follower]))
    assert read_values(cluster.bootstrap, name) == [b"both have it", b"goes on"]
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        client.refresh([name])
        losses = client.broker(leader).call_private(32000, {"topic": name})["losses"]
        recorded = eventually(lambda: all_losses(client, name), "the losses of all brokers")
    assert [(one["start"], one["end"]) for one in losses["recent"]] == [(1, 2)]
    assert [(one.event, one.cause, one.start) for one in recorded] == [
        ("unclean_election", "unclean_election", 1),
        ("loss", "unclean_election", 1),
    ]
    # It was killed perhaps before it saved its high watermark: then it does not know.
    assert (recorded[1].acked_all or 0) + (recorded[1].acks_unknown or 0) == 1
