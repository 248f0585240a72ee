"""Flush before acknowledgement, and flush policies."""

import pytest
from node_cluster import ORDERS, Cluster, produce

from tidelog.core.controller.events import AlterConfigReceived
from tidelog.core.errors import ErrorCode
from tidelog.core.node import effects as do
from tidelog.core.node import events as on


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.start()
    cluster.create_topic(flush_messages="1")
    cluster.run(100)
    return cluster


def test_an_acknowledgement_waits_for_the_disks_of_all_replicas(cluster: Cluster) -> None:
    leader = cluster.leader()
    assert leader is not None
    cluster.flush_held = True
    number = cluster.ask(leader, produce(b"one"))
    cluster.run(2000)
    assert number not in cluster.answers
    assert all(cluster.replica(b).partition.log_end_offset == 1 for b in (1, 2, 3))
    assert all(cluster.replica(b).partition.high_watermark == 0 for b in (1, 2, 3))
    cluster.flush_held = False
    cluster.release_flushes()
    cluster.run_until(lambda: number in cluster.answers, 2000)
    assert cluster.answers[number].partitions[0].error is ErrorCode.NONE
    assert all(cluster.replica(b).log.recovery_point == 1 for b in (1, 2, 3))


def test_a_fetch_of_other_partitions_does_not_delay_what_was_flushed(cluster: Cluster) -> None:
    """A follower has one fetch in flight at a leader. It leaves out a partition that waits for its
    flush, and must name it again soon after the flush, not after the longest wait of a fetch."""
    for number in range(3):
        cluster.create_topic(f"idle-{number}", topic_id=bytes([number + 1]) * 16)
    cluster.run(2000)
    leader = cluster.leader()
    assert leader is not None
    cluster.flush_held = True
    number = cluster.ask(leader, produce(b"one"))
    cluster.run(20)
    cluster.flush_held = False
    cluster.release_flushes()
    before = cluster.now_ms
    cluster.run_until(lambda: number in cluster.answers, 2000)
    assert cluster.now_ms - before < 100


def test_acks_one_waits_for_the_leaders_disk_alone(cluster: Cluster) -> None:
    leader = cluster.leader()
    assert leader is not None
    cluster.flush_held = True
    number = cluster.ask(leader, produce(b"one", acks=1))
    lost = cluster.ask(leader, produce(b"two", acks=1))
    cluster.run(5)
    assert number not in cluster.answers
    for broker in (1, 2, 3):
        if broker != leader:
            cluster.crash(broker)
    cluster.release_flushes()
    assert cluster.answers[number].partitions[0].error is ErrorCode.NONE
    cluster.run(60_000)
    assert cluster.answers[lost].partitions[0].error is not ErrorCode.NONE


def test_one_flush_covers_all_records_that_arrived_meanwhile(cluster: Cluster) -> None:
    leader = cluster.leader()
    assert leader is not None
    cluster.flush_held = True
    numbers = [cluster.ask(leader, produce(b"x")) for _ in range(5)]
    assert len(cluster._flushes) == 1, "the first"
    cluster.release_flushes()
    assert len([f for b, _, f in cluster._flushes if b == leader]) == 1, "all others together"
    cluster.flush_held = False
    cluster.release_flushes()
    cluster.run_until(lambda: all(n in cluster.answers for n in numbers), 5000)


def test_a_self_fenced_leader_counts_its_flushes_once_it_acts_again(cluster: Cluster) -> None:
    leader = cluster.leader()
    assert leader is not None
    cluster.flush_held = True
    cluster.ask(leader, produce(b"one"))
    cluster.run(5)
    node = cluster.nodes[leader]
    cluster.lose_session(leader)
    assert not node.acting
    cluster.flush_held = False
    cluster.release_flushes()
    cluster.run_until(lambda: cluster.leader() is not None, 30_000)
    new = cluster.leader()
    assert new is not None
    cluster.run_until(lambda: cluster.replica(new).partition.high_watermark == 1, 30_000)


def test_flushing_turned_on_counts_only_what_is_flushed() -> None:
    cluster = Cluster()
    cluster.start()
    cluster.create_topic(replicas=(1, 2))
    leader = cluster.leader()
    assert leader is not None
    cluster.produce(leader, b"one")
    follower = 3 - leader
    cluster.crash(follower, proof=True)
    cluster.start(follower)
    cluster.run_until(lambda: follower in cluster.replica(leader).partition.isr.members)
    cluster.flush_held = True
    change = AlterConfigReceived(0, "orders", {"flush.messages": "1"})
    cluster.call(cluster.controller(), change)
    cluster.run(10)
    replica = cluster.replica(follower)
    assert (replica.log.recovery_point, replica.partition.durable_end_offset) == (0, 0)
    cluster.flush_held = False
    cluster.release_flushes()
    assert (replica.log.recovery_point, replica.partition.durable_end_offset) == (1, 1)


def test_flush_ms_flushes_by_the_clock() -> None:
    cluster = Cluster(brokers=(1,))
    cluster.start()
    cluster.create_topic(replicas=(1,), flush_ms="3000")
    cluster.produce(1, b"one")
    cluster.run(1000)
    assert cluster.replica(1).log.recovery_point == 0
    cluster.run(5000)
    assert cluster.replica(1).log.recovery_point == 1


def test_a_rolled_segment_is_flushed() -> None:
    cluster = Cluster(brokers=(1,))
    cluster.start()
    cluster.create_topic(replicas=(1,), segment_bytes="100")
    cluster.produce(1, b"one", b"two", b"three")
    cluster.run(100)
    assert cluster.replica(1).log.recovery_point == 2


def test_flush_of_a_deleted_replica_is_ignored(cluster: Cluster) -> None:
    leader = cluster.leader()
    assert leader is not None
    node = cluster.nodes[leader]
    cluster.flush_held = True
    cluster.ask(leader, produce(b"one"))
    node.replicas.pop(ORDERS)
    cluster.release_flushes()
    assert leader not in cluster.halted
    assert node.step(on.FlushCompleted(99, None, cluster.now_ms)) == []


def test_a_failed_flush_ends_the_broker(cluster: Cluster) -> None:
    leader = cluster.leader()
    assert leader is not None
    effects = cluster.nodes[leader].step(on.FlushCompleted(0, "gone", cluster.now_ms))
    assert [type(e) for e in effects[-2:]] == [do.CloseSession, do.Halt]
