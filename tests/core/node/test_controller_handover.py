"""How long the cluster is without a working controller, in virtual time."""

from collections.abc import Callable

import pytest
from node_cluster import TTL_MS, Cluster

from tidelog.core.node import events as on
from tidelog.core.types import BrokerId

SECOND_MS = 1000


@pytest.fixture
def cluster() -> Cluster:
    """Three brokers, some seconds after their start."""
    cluster = Cluster()
    cluster.start()
    cluster.create_topic()
    cluster.run(3 * SECOND_MS)
    assert cluster.leader() == cluster.controller() == 1
    return cluster


def isolate(cluster: Cluster, broker: BrokerId) -> None:
    """Cut a broker off from its peers, but not from the store."""
    for other in cluster.brokers:
        if other != broker:
            cluster.cut |= {(broker, other), (other, broker)}


def wait_for_controller(cluster: Cluster, among: tuple[BrokerId, ...] = (2, 3)) -> int:
    """Wait until one of these brokers is the controller. Return how long it took."""
    began_ms = cluster.now_ms
    cluster.run_until(
        lambda: any(b in cluster.nodes and cluster.nodes[b].controller.is_active for b in among)
    )
    return cluster.now_ms - began_ms


def leads(cluster: Cluster, broker: BrokerId) -> bool:
    return cluster.nodes[broker].acting and cluster.replica(broker).partition.is_leader


def fenced(cluster: Cluster, seen_by: BrokerId = 2) -> set[BrokerId]:
    return {broker.id for broker in cluster.nodes[seen_by].image.brokers.values() if broker.fenced}


def test_after_a_proved_death_another_controller_is_active_at_once(cluster: Cluster) -> None:
    cluster.crash(1, proof=True)
    assert wait_for_controller(cluster) < SECOND_MS
    cluster.run(SECOND_MS)
    assert leads(cluster, 2) or leads(cluster, 3)


def test_after_a_clean_stop_another_controller_is_active_at_once(cluster: Cluster) -> None:
    """The old controller serves until it stops; brokers do not wait for their next heartbeats."""
    cluster.step(1, on.ShutdownRequested(cluster.now_ms))
    began_ms = cluster.now_ms
    cluster.run_until(lambda: 1 not in cluster.nodes)
    assert cluster.now_ms - began_ms < SECOND_MS / 2
    assert cluster.halted[1].clean
    assert wait_for_controller(cluster) < SECOND_MS / 2


@pytest.mark.parametrize("stopping", [(2,), (1, 2), (1, 2, 3)])
def test_stopping_brokers_do_not_wait_for_heartbeat_intervals(
    cluster: Cluster, stopping: tuple[BrokerId, ...]
) -> None:
    for broker in stopping:
        cluster.step(broker, on.ShutdownRequested(cluster.now_ms))
    cluster.run(SECOND_MS)
    assert all(broker in cluster.halted for broker in stopping)


def test_after_the_session_timed_out_another_controller_is_active_at_once(
    cluster: Cluster,
) -> None:
    cluster.crash(1)
    took_ms = wait_for_controller(cluster)
    assert took_ms < TTL_MS + SECOND_MS
    began_ms = cluster.now_ms
    cluster.run_until(lambda: leads(cluster, 2) or leads(cluster, 3))
    assert cluster.now_ms - began_ms < SECOND_MS


def without_peers(cluster: Cluster) -> None:
    isolate(cluster, 1)


def without_the_store(cluster: Cluster) -> None:
    cluster.storeless.add(1)


def without_both(cluster: Cluster) -> None:
    isolate(cluster, 1)
    cluster.storeless.add(1)


@pytest.mark.parametrize("cut_off", [without_peers, without_the_store, without_both])
def test_partitions_of_a_controller_that_is_cut_off_get_leaders_within_one_session(
    cluster: Cluster, cut_off: Callable[[Cluster], None]
) -> None:
    """The next controller does not give the old one a whole time-out again: the old one resigned
    after six silent seconds, so that took fifteen seconds."""
    began_ms = cluster.now_ms
    cut_off(cluster)
    wait_for_controller(cluster)
    cluster.run_until(lambda: leads(cluster, 2) or leads(cluster, 3))
    assert cluster.now_ms - began_ms < TTL_MS + SECOND_MS
    assert not cluster.nodes[1].controller.is_active


def test_the_next_controller_fences_no_live_broker(cluster: Cluster) -> None:
    """Brokers that reach the new controller stay active through their first time-out there."""
    cluster.lose_session(1)
    assert wait_for_controller(cluster) < SECOND_MS
    for _ in range(2 * TTL_MS // 100):
        cluster.run(100)
        assert not fenced(cluster) & {2, 3}
    assert fenced(cluster) == set()


def test_a_controller_that_resigned_and_is_reachable_again_stays_active(cluster: Cluster) -> None:
    isolate(cluster, 1)
    wait_for_controller(cluster)
    cluster.cut.clear()
    for _ in range(2 * TTL_MS // 100):
        cluster.run(100)
        assert fenced(cluster) == set()
    assert leads(cluster, 1)
