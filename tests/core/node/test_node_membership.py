"""Brokers start, stop, hang and return: sessions, fencing, controlled shutdown, recovery."""

import pytest
from node_cluster import ORDERS, TTL_MS, Cluster, fetch, produce

from tidelog.core.controller.events import (
    AlterConfigReceived,
    AlterReassignmentsReceived,
    DeleteTopicReceived,
    HeartbeatReceived,
)
from tidelog.core.controller.metadata.metadata_store import (
    OutcomeUnknown,
    Unavailable,
)
from tidelog.core.controller.metadata.registrations import PartitionKey
from tidelog.core.errors import ErrorCode
from tidelog.core.node import effects as do
from tidelog.core.node import events as on
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.messages import Fetch, FetchPartition
from tidelog.core.node.node import Node
from tidelog.core.storage.disk import DiskError
from tidelog.core.storage.log_config import LogConfig
from tidelog.lab.memory_disk import MemoryDisk


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.start()
    cluster.create_topic()
    return cluster


def leader_of(cluster: Cluster) -> int:
    cluster.run_until(lambda: cluster.leader() is not None)
    leader = cluster.leader()
    assert leader is not None
    return leader


def test_a_leader_cut_off_from_the_store_fences_itself_before_another_can_lead(
    cluster: Cluster,
) -> None:
    leader = leader_of(cluster)
    poll = cluster.ask(leader, fetch(0, max_wait_ms=60_000))
    cluster.cut |= {(other, leader) for other in {1, 2, 3} - {leader}}
    waiting = cluster.ask(leader, produce(b"one", timeout_ms=60_000))
    cluster.storeless.add(leader)
    cluster.run_until(lambda: not cluster.nodes[leader].acting, 2 * TTL_MS)
    assert cluster.leader() is None, "nobody else leads yet"
    lease_ends = cluster._leases[leader].deadline_ms
    assert cluster.now_ms <= lease_ends - 900
    assert cluster.answers[waiting].partitions[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.answers[poll].partitions[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    refused = cluster.produce(leader, b"two", acks=1)
    assert refused[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.replica(leader).partition.log_end_offset == 1


def test_a_late_renewal_unfences_a_self_fenced_leader(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    epoch = cluster.nodes[leader].broker_epoch
    cluster.storeless.add(leader)
    cluster.run_until(lambda: not cluster.nodes[leader].acting, 2 * TTL_MS)
    cluster.storeless.clear()
    deadline = cluster.now_ms + TTL_MS
    cluster._leases[leader].deadline_ms = deadline
    cluster.step(leader, on.SessionRenewed(deadline, cluster.now_ms))
    assert cluster.nodes[leader].acting
    assert cluster.nodes[leader].broker_epoch == epoch
    assert cluster.produce(leader, b"one")[0].error is ErrorCode.NONE


def test_a_lost_session_means_a_new_broker_epoch_and_the_same_records(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    cluster.produce(leader, b"one")
    epoch = cluster.nodes[leader].broker_epoch
    cluster.storeless.add(leader)
    cluster.run_until(lambda: cluster.nodes[leader].broker_epoch is None, 3 * TTL_MS)
    cluster.storeless.clear()
    cluster._notify()
    cluster.run_until(lambda: cluster.nodes[leader].acting)
    assert cluster.nodes[leader].broker_epoch != epoch
    new = leader_of(cluster)
    cluster.run_until(lambda: cluster.replica(new).partition.isr.members == {1, 2, 3}, 90_000)
    assert cluster.consume(new) == [b"one"]


def test_an_unreachable_controller_is_replaced(cluster: Cluster) -> None:
    old = cluster.controller()
    cluster.crash(old)
    cluster.run_until(
        lambda: any(n.controller.is_active for n in cluster.nodes.values()), 2 * TTL_MS
    )
    leader = leader_of(cluster)
    assert cluster.produce(leader, b"one")[0].error is ErrorCode.NONE


def test_only_the_active_controller_answers(cluster: Cluster) -> None:
    other = min({1, 2, 3} - {cluster.controller()})
    answer = cluster.call(other, HeartbeatReceived(0, 1, 1, 0, 0))
    assert answer.error is ErrorCode.NOT_CONTROLLER


def test_shutting_down_hands_over_first_and_leaves_clean_logs(cluster: Cluster) -> None:
    old = leader_of(cluster)
    cluster.produce(old, b"one", b"two")
    epoch = cluster.nodes[old].broker_epoch
    cluster.step(old, on.ShutdownRequested(cluster.now_ms))
    began = cluster.now_ms
    cluster.run_until(lambda: old in cluster.halted)
    assert cluster.now_ms - began < 3000
    assert cluster.halted[old] == do.Halt("shut down", clean=True)
    new = leader_of(cluster)
    assert cluster.consume(new) == [b"one", b"two"]
    assert cluster.replica(new).partition.isr.members == {1, 2, 3} - {old}

    cluster.start(old)
    directory = cluster.nodes[old].directory
    assert directory.clean
    assert directory.broker_epoch == epoch
    assert directory.high_watermarks[ORDERS] == 2
    cluster.run_until(lambda: cluster.replica(new).partition.isr.members == {1, 2, 3})


def test_an_unregistered_broker_stops_at_once() -> None:
    node = Node(NodeConfig(1), MemoryDisk(), 1, 0)
    node.step(on.Started(0))
    effects = node.step(on.ShutdownRequested(1))
    assert effects == [do.CloseSession(), do.Halt("shut down", clean=True)]
    assert node.next_deadline_ms() is None
    assert node.step(on.Ticked(5)) == []


def test_shutting_down_does_not_wait_for_ever(cluster: Cluster) -> None:
    lonely = leader_of(cluster)
    cluster.cut |= {(a, b) for a in (1, 2, 3) for b in (1, 2, 3) if lonely in (a, b)}
    cluster.storeless |= {1, 2, 3} - {lonely}
    node = cluster.nodes[lonely]
    node.config.controlled_shutdown_timeout_ms = 4000
    cluster.step(lonely, on.ShutdownRequested(cluster.now_ms))
    cluster.run_until(lambda: lonely in cluster.halted, 5000)
    assert cluster.halted[lonely].clean


def test_a_crashed_broker_recovers_its_log_and_catches_up(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    victim = min({1, 2, 3} - {leader})
    cluster.produce(leader, b"one")
    cluster.run(100)
    cluster.crash(victim)
    cluster.produce(leader, b"two", timeout_ms=60_000)
    cluster.start(victim)
    assert not cluster.nodes[victim].directory.clean
    cluster.run_until(lambda: cluster.replica(leader).partition.isr.members == {1, 2, 3}, 90_000)
    assert cluster.log(victim) == cluster.log(leader)


def test_a_restarted_sole_replica_does_not_lead_in_its_old_epoch() -> None:
    cluster = Cluster(brokers=(1, 2))
    cluster.start()
    cluster.create_topic(replicas=(1,))
    cluster.produce(1, b"one")
    epoch = cluster.replica(1).partition.leader_epoch
    cluster.crash(1)
    cluster.start(1)
    cluster.run_until(lambda: cluster.leader() == 1, 3 * TTL_MS)
    assert cluster.replica(1).partition.leader_epoch > epoch
    assert cluster.consume(1) == [b"one"]


class BrokenDisk(MemoryDisk):
    """A disk that fails appends once it is switched on."""

    broken = False

    def append(self, path: str, buffers: object) -> int:
        if self.broken:
            raise DiskError("no", path)
        return super().append(path, buffers)  # type: ignore[arg-type]


def test_a_broken_disk_ends_the_broker_and_acknowledges_nothing(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    cluster.crash(leader)
    disk = BrokenDisk()
    disk.__dict__.update(cluster.disks[leader].__dict__)
    cluster.disks[leader] = disk
    cluster.start(leader)
    cluster.run_until(lambda: cluster.nodes[leader].acting, 3 * TTL_MS)
    new = leader_of(cluster)
    cluster.run_until(lambda: cluster.replica(new).partition.isr.members == {1, 2, 3}, 90_000)
    disk.broken = True
    assert cluster.produce(new, b"one", timeout_ms=60_000)[0].error is ErrorCode.NONE
    assert not cluster.halted[leader].clean
    assert "log directory offline" in cluster.halted[leader].reason


def test_waiting_requests_fail_when_the_leaders_disk_fails(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    cluster.cut |= {(other, leader) for other in {1, 2, 3} - {leader}}
    waiting = cluster.ask(leader, produce(b"one"))
    poll = cluster.ask(leader, fetch(0, max_wait_ms=60_000))
    cluster.step(leader, on.FlushCompleted(0, "input/output error", cluster.now_ms))
    assert cluster.answers[waiting].partitions[0].error is ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster.answers[poll].partitions[0].error is ErrorCode.KAFKA_STORAGE_ERROR
    assert leader in cluster.halted


def test_a_recreated_topic_has_an_empty_log(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    cluster.produce(leader, b"old")
    gone = min({1, 2, 3} - {leader})
    cluster.crash(gone)
    poll = cluster.ask(leader, fetch(1, max_wait_ms=60_000))
    answer = cluster.call(cluster.controller(), DeleteTopicReceived(0, "orders"))
    assert answer.error is ErrorCode.NONE
    cluster.run(100)
    assert ORDERS not in cluster.nodes[leader].replicas
    assert cluster.answers[poll].partitions[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    others = tuple({1, 2, 3} - {gone})
    cluster.create_topic(topic_id=b"u" * 16, replicas=(*others, gone)[:2])
    leader = leader_of(cluster)
    assert cluster.produce(leader, b"new")[0].base_offset == 0
    assert cluster.consume(leader) == [b"new"]


def test_a_broker_that_missed_a_recreation_sets_its_old_log_aside(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    cluster.produce(leader, b"old", b"older")
    cluster.run(1000)
    away = min({1, 2, 3} - {leader, cluster.controller()})
    cluster.crash(away, proof=True)
    cluster.run(1000)
    controller = cluster.controller()
    cluster.call(controller, DeleteTopicReceived(0, "orders"))
    cluster.run(100)
    cluster.start(away)
    cluster.run_until(lambda: cluster.nodes[away].acting)
    directory = cluster.nodes[away].directory
    assert ORDERS not in directory.logs
    assert any(name.endswith("-stray") for name in directory.disk.list_dir("")), "kept all the same"
    cluster.create_topic(topic_id=b"u" * 16)
    leader = leader_of(cluster)
    cluster.produce(leader, b"new")
    cluster.run(1000)
    assert cluster.log(away) == cluster.log(leader)
    assert cluster.replica(away).partition.log_end_offset == 1


def test_a_replica_moves_to_another_broker() -> None:
    cluster = Cluster()
    cluster.start()
    cluster.create_topic(replicas=(1, 2))
    leader = leader_of(cluster)
    cluster.produce(leader, b"one")
    key = PartitionKey(b"t" * 16, 0)
    request = AlterReassignmentsReceived(0, {key: (3, 2)})
    answer = cluster.call(cluster.controller(), request)
    assert answer.error is ErrorCode.NONE
    cluster.run_until(lambda: ORDERS not in cluster.nodes[1].replicas, 30_000)
    new = leader_of(cluster)
    assert new in (2, 3)
    assert cluster.consume(new) == [b"one"]
    assert ORDERS not in cluster.nodes[1].directory.logs


@pytest.mark.parametrize(
    "trouble", [Unavailable(), OutcomeUnknown()], ids=["unavailable", "outcome unknown"]
)
def test_registration_is_tried_again(trouble: Unavailable | OutcomeUnknown) -> None:
    node = Node(NodeConfig(1), MemoryDisk(), 1, 0)
    node.step(on.Started(0))
    first = node.step(on.SessionOpened(7, TTL_MS, 1))
    tag = first[0].tag  # type: ignore[union-attr]
    assert node.step(on.TransactionAnswered(tag, trouble, 2)) == []
    at = node.next_deadline_ms()
    assert at is not None
    effects: list[do.Effect] = []
    while not effects and at < 2000:
        effects = node.step(on.Ticked(at))
        at = node.next_deadline_ms() or 2000
    assert effects == first


def test_own_leadership_is_applied_once_the_broker_is_active() -> None:
    cluster = Cluster()
    cluster.start()
    cluster.run(100)
    controller = cluster.controller()
    leader, victim = sorted({1, 2, 3} - {controller})
    cluster.create_topic(replicas=(leader, victim, controller))
    partition = cluster.replica(leader).partition
    cluster.unrenewed.add(leader)
    cluster.run_until(lambda: not cluster.nodes[leader].acting, 2 * TTL_MS)
    epoch = partition.partition_epoch
    cluster.crash(victim, proof=True)
    cluster.run(100)
    known = cluster.nodes[leader].image.partition(*ORDERS)
    assert known is not None
    assert (known.leader, victim in known.isr) == (leader, False)
    assert partition.partition_epoch == epoch, "held back"
    deadline = cluster.now_ms + TTL_MS
    cluster._leases[leader].deadline_ms = deadline
    cluster.step(leader, on.SessionRenewed(deadline, cluster.now_ms))
    assert partition.isr.members == set(known.isr)


def test_a_recreation_between_two_snapshots_is_noticed(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    cluster.produce(leader, b"old")
    cluster.run(1000)
    deaf = min({1, 2, 3} - {leader, cluster.controller()})
    del cluster._watching[deaf]
    cluster.call(cluster.controller(), DeleteTopicReceived(0, "orders"))
    cluster.run(50)
    others = tuple(sorted({1, 2, 3} - {deaf}))
    cluster.create_topic(topic_id=b"u" * 16, replicas=(*others, deaf), wait=False)
    cluster.run(100)
    assert cluster.replica(deaf).topic_id == b"t" * 16
    cluster.step(deaf, on.WatchLost(cluster.now_ms))
    cluster.run(2000)
    assert cluster.replica(deaf).topic_id == b"u" * 16
    assert cluster.replica(deaf).partition.log_end_offset == 0


def test_a_snapshot_with_a_higher_min_isr_and_a_smaller_isr_commits_nothing() -> None:
    # The two that left stay eligible to lead, so what they lack must not be acknowledged.
    cluster = Cluster()
    cluster.start(1)
    controller = cluster.controller()
    cluster.start(2, 3)
    cluster.create_topic(replicas=(2, 1, 3))
    cluster.produce(2, b"zero")
    cluster.cut |= {(1, 2), (3, 2)}
    waiting = cluster.ask(2, produce(b"one", timeout_ms=600_000))
    del cluster._watching[2]
    raised = AlterConfigReceived(0, "orders", {"min.insync.replicas": "2"})
    cluster.call(controller, raised)
    partitions = cluster.nodes[1].image.partitions
    key = PartitionKey(b"t" * 16, 0)
    cluster.run_until(lambda: partitions[key].isr == (2,))
    assert partitions[key].elr == (1, 3)
    cluster.step(2, on.WatchLost(cluster.now_ms))
    cluster.run(20)
    assert cluster.replica(2).partition.isr.members == {2}
    assert cluster.replica(2).partition.high_watermark == 1
    assert waiting not in cluster.answers


def test_a_replica_moved_away_while_its_broker_was_down_is_dropped() -> None:
    cluster = Cluster()
    cluster.start()
    cluster.create_topic(replicas=(1, 2))
    cluster.produce(leader_of(cluster), b"one")
    cluster.crash(1, proof=True)
    cluster.run_until(lambda: cluster.leader() == 2)
    request = AlterReassignmentsReceived(0, {PartitionKey(b"t" * 16, 0): (2, 3)})
    cluster.call(cluster.controller(), request)
    cluster.run(5000)
    cluster.start(1)
    assert ORDERS in cluster.nodes[1].directory.logs
    cluster.run_until(lambda: cluster.nodes[1].acting)
    assert ORDERS not in cluster.nodes[1].directory.logs


def test_a_log_without_a_topic_id_is_adopted() -> None:
    cluster = Cluster(brokers=(1,))
    cluster.start()
    cluster.create_topic(replicas=(1,))
    cluster.produce(1, b"one")
    cluster.crash(1)
    del cluster.disks[1].files["orders-0/partition.metadata"]
    cluster.start(1)
    cluster.run_until(lambda: cluster.leader() == 1, 3 * TTL_MS)
    assert cluster.consume(1) == [b"one"]
    assert "orders-0/partition.metadata" in cluster.disks[1].files


def test_fetch_of_an_earlier_incarnation_is_refused(cluster: Cluster) -> None:
    """KIP-903: also while the broker is fenced, when no leader counts it as eligible."""
    leader = leader_of(cluster)
    other = min({1, 2, 3} - {leader})
    asked = FetchPartition(ORDERS, b"t" * 16, 0, 1000, 0, None, 0)
    for epoch, error in ((1, ErrorCode.NOT_LEADER_OR_FOLLOWER), (10**6, ErrorCode.NONE)):
        request = Fetch(other, epoch, 0, 1, 1000, [asked])
        assert cluster.call(leader, request).partitions[0].error is error


def test_batch_larger_than_a_followers_segments_is_copied(cluster: Cluster) -> None:
    """`segment.bytes` may be lowered below the size of a batch in the leader's log.

    A follower that could not copy the batch would stay in the ISR for a while, be elected, and
    leave the partition without a leader.
    """
    leader = leader_of(cluster)
    other = min({1, 2, 3} - {leader})
    cluster.replica(other).log.config = LogConfig(segment_bytes=100)
    assert cluster.produce(leader, b"x" * 500)[0].error is ErrorCode.NONE
    cluster.crash(leader, proof=True)
    assert cluster.consume(leader_of(cluster)) == [b"x" * 500]


def test_a_partition_of_other_brokers_is_not_served_here() -> None:
    cluster = Cluster()
    cluster.start()
    cluster.create_topic(replicas=(1, 2))
    cluster.run(100)
    assert cluster.produce(3, b"x")[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
