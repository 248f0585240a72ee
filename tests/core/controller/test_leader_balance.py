"""Automatic preferred elections: at intervals, and at the start of a cluster."""

from cluster_driver import Cluster

from tidelog.core.controller.controller import ControllerSettings
from tidelog.core.controller.effects import StoreTransaction
from tidelog.core.controller.metadata.metadata_store import TxnAnswer, TxnResult

INTERVAL_MS = 20_000
NEVER_MS = 10**9


def cluster_with(interval_ms: int | None, replicas: tuple[int, ...] = (1, 2, 3)) -> Cluster:
    settings = ControllerSettings(rebalance_interval_ms=interval_ms)
    cluster = Cluster(1, 2, 3, settings=settings)
    cluster.create(replicas)
    return cluster


def restart_all(cluster: Cluster, first: int, *others: int) -> None:
    """Stop all brokers, `first` as the last one; then start them, `first` again at once."""
    epochs = {broker: host.epoch for broker, host in cluster.hosts.items()}
    for broker in (*others, first):
        cluster.crash(broker)
    for broker in (first, *others):
        cluster.start(broker, epochs[broker])
        cluster.heartbeat(broker)


def test_partition_returns_to_its_preferred_replica_after_a_cluster_start() -> None:
    cluster = cluster_with(NEVER_MS)
    restart_all(cluster, 3, 2, 1)
    assert cluster.partition().leader == 3, "the only one that can be elected"
    assert cluster.partition().isr == (3,)
    cluster.alter(2, 3)
    assert cluster.partition().leader == 3
    cluster.alter(1, 2, 3)
    assert cluster.partition().leader == 1
    assert cluster.partition().isr == (1, 2, 3)


def test_a_start_is_recognised_before_the_end_of_other_brokers_is_noticed() -> None:
    cluster = cluster_with(NEVER_MS, (3, 1, 2))
    sessions = {broker: host.session for broker, host in cluster.hosts.items()}
    for broker in sessions:
        cluster.stop(broker)
    cluster.store.expire(sessions[1])
    cluster.start(1)
    cluster.heartbeat(1)
    assert cluster.leader.image.active == {1, 2, 3}, "two of them are dead"
    assert not cluster.leader.image.imbalanced
    cluster.store.expire(sessions[3])
    cluster.run()
    assert cluster.partition().leader == 2
    cluster.store.expire(sessions[2])
    cluster.run()
    cluster.start(2)
    cluster.heartbeat(2)
    assert cluster.partition().leader == 2, "the last one that led"
    cluster.start(3)
    cluster.heartbeat(3)
    cluster.alter(2, 3)
    assert cluster.partition().leader == 3


def test_a_returned_broker_leads_again_at_the_next_check_only() -> None:
    cluster = cluster_with(INTERVAL_MS)
    cluster.restart(1, clean=True)
    cluster.alter(1, 2, 3)
    leader = cluster.partition().leader
    assert leader != 1
    cluster.tick(INTERVAL_MS // 2)
    assert cluster.partition().leader == leader
    cluster.tick(INTERVAL_MS)
    assert cluster.partition().leader == 1


def test_a_broker_that_returns_after_the_start_waits_for_the_check() -> None:
    cluster = cluster_with(NEVER_MS)
    restart_all(cluster, 3, 2, 1)
    cluster.alter(1, 2, 3)
    assert cluster.partition().leader == 1
    cluster.restart(1, clean=True)
    cluster.alter(1, 2, 3)
    assert cluster.partition().leader != 1


def test_the_check_leaves_a_preferred_replica_alone_that_is_not_in_sync() -> None:
    cluster = cluster_with(INTERVAL_MS)
    cluster.restart(1, clean=True)
    leader = cluster.partition().leader
    cluster.tick(2 * INTERVAL_MS)
    assert cluster.partition().leader == leader
    assert cluster.partition().isr == (2, 3)


def test_nothing_moves_by_itself_when_it_is_disabled() -> None:
    cluster = cluster_with(None)
    restart_all(cluster, 3, 2, 1)
    cluster.alter(1, 2, 3)
    cluster.tick(2 * INTERVAL_MS)
    assert cluster.partition().leader == 3


def test_a_refused_election_is_repeated() -> None:
    cluster = cluster_with(NEVER_MS)
    restart_all(cluster, 3, 2, 1)
    refusals = 0

    def refuse_first_election(when: str, transaction: StoreTransaction) -> TxnAnswer | None:
        nonlocal refusals
        if when == "before" and cluster.partition().isr == (1, 2, 3) and not refusals:
            refusals += 1
            guards = {guard.key for guard in transaction.guards}
            snapshot = cluster.store.range("")
            current = tuple((kv.key, kv) for kv in snapshot.kvs if kv.key in guards)
            return TxnResult(False, snapshot.rev, current)
        return None

    cluster.fault = refuse_first_election
    cluster.alter(1, 2, 3)
    assert refusals == 1
    assert cluster.partition().leader == 1
