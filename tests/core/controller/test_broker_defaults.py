"""Defaults of the brokers for settings of neither a topic nor the cluster."""

import pytest
from cluster_driver import KEY, TOPIC, Cluster

from tidelog.core.controller import events as on
from tidelog.core.controller.controller import ControllerSettings
from tidelog.core.controller.effects import TopicAnswer
from tidelog.core.controller.election import UncleanRecovery
from tidelog.core.errors import ErrorCode


def cluster_of(**minimums: int) -> Cluster:
    cluster = Cluster()
    for name, minimum in minimums.items():
        cluster.start(int(name[1:]), min_insync_replicas=minimum)
    for name in minimums:
        cluster.heartbeat(int(name[1:]))
    return cluster


def alter(cluster: Cluster, topic: str | None, **changes: str | None) -> None:
    configs = {name.replace("_", "."): value for name, value in changes.items()}
    answer = cluster.request(on.AlterConfigReceived(cluster.number(), topic, configs))
    assert isinstance(answer, TopicAnswer)
    assert answer.error is ErrorCode.NONE


def test_the_brokers_minimum_keeps_former_members_eligible() -> None:
    cluster = cluster_of(b1=2, b2=2)
    cluster.create((1, 2))
    cluster.alter(1)
    assert cluster.partition().elr == (2,)


def test_the_smallest_minimum_of_the_registered_brokers_counts() -> None:
    """If any leader may commit alone, no other replica may stay eligible."""
    cluster = cluster_of(b1=2, b2=2, b3=1)
    assert cluster.leader.image.min_insync_default == 1
    cluster.create((3, 2))
    cluster.alter(3)
    assert cluster.partition().elr == ()


def test_the_minimum_of_an_offline_broker_does_not_count() -> None:
    cluster = cluster_of(b1=2, b2=2, b3=1)
    cluster.crash(3)
    assert cluster.leader.image.min_insync_default == 2


def test_without_brokers_one_is_enough() -> None:
    cluster = cluster_of(b1=2)
    image = cluster.hosts[1].image
    cluster.expire(1)
    assert image.min_insync_default == 1


@pytest.mark.parametrize("topic", ["t", None])
def test_a_configured_minimum_takes_precedence(topic: str | None) -> None:
    cluster = cluster_of(b1=2, b2=2)
    cluster.create((1, 2))
    alter(cluster, topic, min_insync_replicas="1")
    cluster.alter(1)
    assert cluster.partition().elr == ()


def test_an_unset_minimum_falls_back_to_the_brokers() -> None:
    cluster = cluster_of(b1=2, b2=2)
    cluster.create((1, 2), min_insync_replicas="3")
    cluster.alter(1)
    assert cluster.partition().elr == (2,)
    alter(cluster, "t", min_insync_replicas=None)
    assert cluster.leader.image.min_insync_replicas(TOPIC) == 2
    assert cluster.partition().elr == (2,)


@pytest.mark.parametrize("allowed", [True, False])
def test_unclean_elections_by_default(allowed: bool) -> None:
    settings = ControllerSettings(
        rebalance_interval_ms=10**9,
        unclean_recovery=UncleanRecovery.NONE,
        unclean_leader_election=allowed,
    )
    cluster = Cluster(1, 2, 3, settings=settings)
    cluster.create((2, 3))
    cluster.alter(2)
    cluster.crash(2)
    cluster.tick(1000)
    assert cluster.partition(KEY).leader == (3 if allowed else None)
