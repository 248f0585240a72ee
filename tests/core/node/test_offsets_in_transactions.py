"""Offsets of transactions on brokers: in the log as Kafka writes them, ended by markers, known to
the next coordinator."""

from node_cluster import Cluster
from txn_cluster import Coordinator

from tidelog.core.coordinator.lookup import OFFSETS_TOPIC
from tidelog.core.errors import ErrorCode
from tidelog.core.groups.messages import (
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    TxnOffsetCommit,
)
from tidelog.core.node import events as on
from tidelog.core.node.messages import TxnMarker
from tidelog.core.record.decoder import decode_marker
from tidelog.core.record.record_batch import batches
from tidelog.core.types import TopicPartition

OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)
ORDERS = TopicPartition("orders", 0)
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
PRODUCER = 7


def cluster_with_offsets(
    replicas: tuple[int, ...] = (1, 2, 3), min_isr: int = 1, *, verifies: bool = False
) -> Cluster:
    """Without a transaction coordinator: nothing is verified, unless a test brings one."""
    cluster = Cluster(settings={"transaction_partition_verification_enable": verifies})
    cluster.start()
    cluster.create_topic(
        OFFSETS_TOPIC, replicas, cleanup_policy="compact", min_insync_replicas=str(min_isr)
    )
    cluster.run_until(lambda: leader_of(cluster) is not None)
    return cluster


def leader_of(cluster: Cluster) -> int | None:
    """The broker whose coordinator serves."""
    leader = cluster.leader(OFFSETS)
    hosted = leader and cluster.nodes[leader].coordinators.shards(OFFSETS_TOPIC).get(0)
    return leader if hosted and hosted.loaded else None


def serving(cluster: Cluster, without: int | None = None) -> int:
    cluster.run_until(lambda: leader_of(cluster) not in (None, without))
    leader = leader_of(cluster)
    assert leader is not None
    return leader


def commit(offset: int, epoch: int = 0, producer_id: int = PRODUCER) -> TxnOffsetCommit:
    offsets = [OffsetToCommit(*ORDERS, offset)]
    return TxnOffsetCommit("t", "g", producer_id, epoch, -1, "", None, offsets)


def error_of(answer: object) -> ErrorCode:
    return answer.partitions[0].error_code  # type: ignore[attr-defined,no-any-return]


def fetched(cluster: Cluster, broker: int) -> int | ErrorCode:
    """Return the stable offset, or why there is none."""
    answer = cluster.call(broker, OffsetFetch("g", [ORDERS], require_stable=True))
    [found] = answer.partitions
    return found.error_code or found.committed_offset  # type: ignore[no-any-return]


def end(
    cluster: Cluster,
    broker: int,
    *,
    committed: bool = True,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    partition: TopicPartition = OFFSETS,
    version: int = 0,
) -> list[ErrorCode]:
    """Send a marker to a broker. Its outcome appears in the returned list."""
    outcomes: list[ErrorCode] = []
    marker = TxnMarker(PRODUCER, epoch, committed, coordinator_epoch, (partition,), version)
    coordinators = cluster.nodes[broker].coordinators
    coordinators.complete_transaction(partition, marker, outcomes.append)
    return outcomes


def ended(cluster: Cluster, broker: int, **how: int) -> ErrorCode:
    outcomes = end(cluster, broker, **how)  # type: ignore[arg-type]
    cluster.run_until(lambda: bool(outcomes))
    [error] = outcomes
    return error


def test_log_has_a_transactional_batch_and_a_marker() -> None:
    cluster = cluster_with_offsets()
    leader = serving(cluster)
    assert error_of(cluster.call(leader, commit(5, epoch=3))) is ErrorCode.NONE
    replica = cluster.replica(leader, OFFSETS)
    assert replica.log.producers.open_transactions == {PRODUCER: 0}
    assert ended(cluster, leader, epoch=3, coordinator_epoch=4) is ErrorCode.NONE
    assert replica.log.producers.open_transactions == {}
    log = replica.log
    data, marker = batches(bytearray(log.read_bytes(log.read(0, 10_000, log.log_end_offset))))
    assert (data.is_transactional, data.is_control) == (True, False)
    assert (data.producer_id, data.producer_epoch, data.base_sequence) == (PRODUCER, 3, -1)
    assert (marker.is_transactional, marker.is_control) == (True, True)
    assert (marker.producer_id, marker.producer_epoch) == (PRODUCER, 3)
    found = decode_marker(marker)
    assert found is not None
    assert (found.is_abort, found.coordinator_epoch) == (False, 4)
    assert fetched(cluster, leader) == 5


def test_next_coordinator_ends_the_transactions_of_the_former() -> None:
    cluster = cluster_with_offsets()
    leader = serving(cluster)
    cluster.call(leader, OffsetCommit("g", -1, "", None, [OffsetToCommit(*ORDERS, 1)]))
    cluster.call(leader, commit(5))
    cluster.crash(leader, proof=True)
    successor = serving(cluster, without=leader)
    assert fetched(cluster, successor) is UNSTABLE
    assert ended(cluster, successor) is ErrorCode.NONE
    assert fetched(cluster, successor) == 5


def test_next_coordinator_knows_what_was_ended() -> None:
    cluster = cluster_with_offsets()
    leader = serving(cluster)
    cluster.call(leader, commit(5))
    assert ended(cluster, leader) is ErrorCode.NONE
    cluster.call(leader, commit(9, epoch=1))
    assert ended(cluster, leader, committed=False, epoch=1) is ErrorCode.NONE
    cluster.crash(leader, proof=True)
    assert fetched(cluster, serving(cluster, without=leader)) == 5


def test_marker_is_answered_when_it_is_committed() -> None:
    cluster = cluster_with_offsets()
    leader = serving(cluster)
    cluster.call(leader, commit(5))
    followers = {1, 2, 3} - {leader}
    cluster.cut |= {(follower, leader) for follower in followers}
    outcomes = end(cluster, leader)
    cluster.run(500)
    assert (outcomes, fetched(cluster, leader)) == ([], UNSTABLE)
    for follower in followers:
        cluster.crash(follower, proof=True)
    cluster.run_until(lambda: bool(outcomes))
    assert (outcomes, fetched(cluster, leader)) == ([ErrorCode.NONE], 5)


def test_marker_comes_after_offsets_of_the_same_turn() -> None:
    cluster = cluster_with_offsets()
    leader = serving(cluster)
    node = cluster.nodes[leader]
    node.take(on.RequestReceived("client", 99, commit(5), cluster.now_ms))
    assert node.replicas[OFFSETS].log.log_end_offset == 0, "nothing is written before the pump"
    assert ended(cluster, leader) is ErrorCode.NONE
    assert fetched(cluster, leader) == 5
    assert node.replicas[OFFSETS].log.producers.open_transactions == {}


def test_offsets_of_two_producers_do_not_share_a_batch() -> None:
    cluster = cluster_with_offsets()
    leader = serving(cluster)
    cluster.ask(leader, commit(1, producer_id=PRODUCER))
    cluster.ask(leader, commit(2, producer_id=PRODUCER + 1))
    plain = OffsetCommit("g", -1, "", None, [OffsetToCommit(*ORDERS, 3)])
    assert error_of(cluster.call(leader, plain)) is ErrorCode.NONE
    log = cluster.replica(leader, OFFSETS).log
    written = batches(bytearray(log.read_bytes(log.read(0, 10_000, log.log_end_offset))))
    assert [batch.producer_id for batch in written] == [PRODUCER, PRODUCER + 1, -1]


def test_fenced_producer_commits_nothing() -> None:
    cluster = cluster_with_offsets()
    leader = serving(cluster)
    cluster.call(leader, commit(5, epoch=1))
    assert error_of(cluster.call(leader, commit(6))) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert ended(cluster, leader, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert fetched(cluster, leader) is UNSTABLE
    assert ended(cluster, leader, epoch=1) is ErrorCode.NONE
    assert fetched(cluster, leader) == 5


def test_late_marker_of_version_2_does_not_end_the_next_transaction() -> None:
    """Its epoch is that of the next transaction."""
    cluster = cluster_with_offsets()
    leader = serving(cluster)
    cluster.call(leader, commit(5))
    assert ended(cluster, leader, epoch=1, version=2) is ErrorCode.NONE
    assert ended(cluster, leader, epoch=1, version=2) is ErrorCode.NONE, "a repetition"
    cluster.call(leader, commit(6, epoch=1))
    assert ended(cluster, leader, epoch=1, version=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert fetched(cluster, leader) is UNSTABLE
    assert ended(cluster, leader, epoch=2, version=2) is ErrorCode.NONE
    assert fetched(cluster, leader) == 6


def test_offsets_after_the_marker_of_the_same_turn_are_refused() -> None:
    """They would begin a transaction that no marker ends."""
    cluster = cluster_with_offsets(verifies=True)
    leader = serving(cluster)
    Coordinator(cluster, leader)
    assert error_of(cluster.call(leader, commit(5))) is ErrorCode.NONE
    node = cluster.nodes[leader]
    outcomes = end(cluster, leader)
    late = cluster._correlation = cluster._correlation + 1
    node.take(on.RequestReceived("client", late, commit(6), cluster.now_ms))
    replica = node.replicas[OFFSETS]
    assert replica.log.producers.open_transactions == {PRODUCER: 0}, "before the pump"
    cluster.run_until(lambda: bool(outcomes) and late in cluster.answers)
    assert outcomes == [ErrorCode.NONE]
    assert error_of(cluster.answers[late]) is ErrorCode.INVALID_TXN_STATE
    assert replica.log.producers.open_transactions == {}
    assert fetched(cluster, leader) == 5


def test_fenced_transaction_coordinator_ends_nothing() -> None:
    cluster = cluster_with_offsets()
    leader = serving(cluster)
    cluster.call(leader, commit(5))
    assert ended(cluster, leader, coordinator_epoch=3) is ErrorCode.NONE
    cluster.call(leader, commit(6))
    fenced = ended(cluster, leader, coordinator_epoch=2)
    assert fenced is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert fetched(cluster, leader) is UNSTABLE


def test_marker_to_a_broker_that_does_not_coordinate_is_refused() -> None:
    cluster = cluster_with_offsets()
    leader = serving(cluster)
    other = next(iter({1, 2, 3} - {leader}))
    assert ended(cluster, other) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    wrong = TopicPartition(OFFSETS_TOPIC, 9)
    error = ended(cluster, leader, partition=wrong)  # type: ignore[arg-type]
    assert error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_marker_fails_when_the_leader_moves() -> None:
    cluster = cluster_with_offsets()
    leader = serving(cluster)
    cluster.call(leader, commit(5))
    cluster.cut |= {(follower, leader) for follower in {1, 2, 3} - {leader}}
    outcomes = end(cluster, leader)
    cluster.run(100)
    cluster.lose_session(leader)
    assert outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_too_few_replicas_refuse_markers() -> None:
    cluster = cluster_with_offsets(min_isr=3)
    leader = serving(cluster)
    cluster.call(leader, commit(5))
    follower = next(iter({1, 2, 3} - {leader}))
    cluster.crash(follower, proof=True)
    cluster.run_until(lambda: len(cluster.replica(leader, OFFSETS).partition.isr.members) == 2)
    assert ended(cluster, leader) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert fetched(cluster, leader) is UNSTABLE
