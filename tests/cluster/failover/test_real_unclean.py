"""No replica with all records is alive: the partition stays offline until an unclean election."""

from collections.abc import Iterator

import pytest
from confluent_kafka import ElectionType, TopicPartition
from real_cluster import (
    PATIENCE_S,
    QUICK_SESSIONS,
    Sent,
    admin_client,
    await_isr,
    eventually,
    make_topic,
    read_values,
    send_all,
    state_of,
)

from tidelog.apps.views.losses import view_losses
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

INCREMENTAL_ALTER_CONFIGS = 44


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings=QUICK_SESSIONS) as cluster:
        yield cluster


def bereave(cluster: LocalCluster, topic: str) -> tuple[int, int]:
    """Make a partition whose leader wrote a record alone and died; return (leader, follower).

    The follower runs again, without that record.
    """
    make_topic(cluster.bootstrap, topic, replicas=2, configs={"min.insync.replicas": "1"})
    send_all(cluster.bootstrap, topic, [b"both have it"], conf={"acks": "all"})
    with Cluster(cluster.bootstrap) as client:
        known = client.refresh([topic]).topics[topic].partitions[0]
    leader = known.leader
    (follower,) = set(known.replicas) - {leader}
    cluster.kill(follower)
    await_isr(cluster, topic, [leader])
    send_all(cluster.bootstrap, topic, [b"only the leader has it"], conf={"acks": "all"})
    cluster.kill(leader)
    cluster.start_broker(follower)
    return leader, follower


def leader_as_told(cluster: LocalCluster, broker: int, topic: str) -> int:
    return int(cluster.metadata(broker, [topic]).topics[topic][0].leader)


def test_a_partition_is_offline_until_its_leader_is_back(cluster: LocalCluster, name: str) -> None:
    leader, follower = bereave(cluster, name)
    assert leader_as_told(cluster, follower, name) == -1
    sent = Sent(cluster.bootstrap, name, {"acks": "all", "message.timeout.ms": 1000})
    sent.send(b"nobody takes it")
    sent.settle()
    assert len(sent.failed) == 1
    cluster.start_broker(leader)
    await_isr(cluster, name, sorted([leader, follower]))
    assert read_values(cluster.bootstrap, name) == [b"both have it", b"only the leader has it"]


@pytest.mark.parametrize("way", ["setting", "administrator"])
def test_an_unclean_election_is_requested_and_logged(
    cluster: LocalCluster, name: str, way: str
) -> None:
    leader, follower = bereave(cluster, name)
    assert leader_as_told(cluster, follower, name) == -1
    if way == "setting":
        key = "unclean.leader.election.enable"
        change = {"name": key, "config_operation": 0, "value": "true"}
        resource = {"resource_type": 2, "resource_name": name, "configs": [change]}
        with Cluster(cluster.bootstrap) as client:
            request = {"resources": [resource], "validate_only": False}
            answer = client.any_broker().call(INCREMENTAL_ALTER_CONFIGS, request)
        assert [one["error_code"] for one in answer["responses"]] == [0]
    else:
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
    with Cluster(cluster.bootstrap) as client:
        client.refresh([name])
        losses = client.broker(leader).call_private(32000, {"topic": name})["losses"]
        recorded = view_losses(client, name).losses
    assert [(one["start"], one["end"]) for one in losses["recent"]] == [(1, 2)]
    assert [(one.event, one.cause, one.start) for one in recorded] == [
        ("unclean_election", "unclean_election", 1),
        ("loss", "unclean_election", 1),
    ]
    # It was killed perhaps before it saved its high watermark: then it does not know.
    assert (recorded[1].acked_all or 0) + (recorded[1].acks_unknown or 0) == 1
