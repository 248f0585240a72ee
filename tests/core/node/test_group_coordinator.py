"""Groups on brokers: kept in the log, answered when committed, loaded by the next leader."""

import pytest
from node_cluster import Cluster

from tidelog.core.coordinator.lookup import OFFSETS_TOPIC
from tidelog.core.errors import ErrorCode
from tidelog.core.groups.config import GroupConfig
from tidelog.core.groups.messages import (
    DescribeGroup,
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    ListGroups,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    SyncGroup,
)
from tidelog.core.groups.shard import GroupShard
from tidelog.core.node import effects as do
from tidelog.core.node import events as on
from tidelog.core.node.coordinating import coordinator_runtime
from tidelog.core.node.coordinating.coordinator_runtime import HostedShard
from tidelog.core.node.messages import Produce, ProducePartition
from tidelog.core.record.compression import Codec
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Record
from tidelog.core.types import TopicPartition
from tidelog.lab.mutants.mutant import MutatedPackage

OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)
AT_ONCE = GroupConfig(group_initial_rebalance_delay_ms=0)


def cluster_with_groups(replicas: tuple[int, ...] = (1, 2, 3), min_isr: int = 1) -> Cluster:
    cluster = Cluster(settings={"groups": AT_ONCE})
    cluster.start()
    cluster.create_topic(
        OFFSETS_TOPIC, replicas, cleanup_policy="compact", min_insync_replicas=str(min_isr)
    )
    return cluster


def commit(offset: int, group: str = "g", partition: int = 0) -> OffsetCommit:
    return OffsetCommit(group, -1, "", None, [OffsetToCommit("orders", partition, offset)])


def committed(cluster: Cluster, broker: int, group: str = "g") -> int | None:
    answer = cluster.call(broker, OffsetFetch(group, [TopicPartition("orders", 0)]))
    return answer.partitions[0].committed_offset if answer.partitions else None


def error_of(answer: object) -> ErrorCode:
    return answer.partitions[0].error_code  # type: ignore[attr-defined,no-any-return]


def joining(member_id: str = "", fresh: str = "1") -> JoinGroup:
    return JoinGroup(
        "g", 10_000, 20_000, member_id, None, "consumer", [("range", b"m")], "c", "/h", fresh, 3
    )


def join_and_sync(cluster: Cluster, broker: int) -> JoinGroupResponse:
    joined: JoinGroupResponse = cluster.call(broker, joining())
    assert joined.error_code is ErrorCode.NONE
    sync = SyncGroup("g", joined.generation_id, joined.member_id, None, None, None, [])
    assert cluster.call(broker, sync).error_code is ErrorCode.NONE
    return joined


def test_a_commit_is_answered_once_it_is_committed() -> None:
    cluster = cluster_with_groups()
    leader = cluster.leader(OFFSETS)
    assert leader is not None
    for follower in {1, 2, 3} - {leader}:
        cluster.cut.add((follower, leader))
    number = cluster.ask(leader, commit(5))
    cluster.run(500)
    assert number not in cluster.answers
    assert committed(cluster, leader) == -1
    for follower in {1, 2, 3} - {leader}:
        cluster.crash(follower, proof=True)
    cluster.run_until(lambda: number in cluster.answers)
    assert error_of(cluster.answers[number]) is ErrorCode.NONE
    assert committed(cluster, leader) == 5


def test_the_next_leader_knows_what_was_committed() -> None:
    cluster = cluster_with_groups()
    leader = cluster.leader(OFFSETS)
    assert leader is not None
    assert error_of(cluster.call(leader, commit(7))) is ErrorCode.NONE
    cluster.crash(leader, proof=True)
    cluster.run_until(lambda: cluster.leader(OFFSETS) not in (None, leader))
    successor = cluster.leader(OFFSETS)
    assert successor is not None
    cluster.run_until(lambda: committed(cluster, successor) == 7)


def test_uncommitted_offsets_are_not_returned_by_a_new_leader() -> None:
    """A new leader has an offset that is not committed yet: one follower lacks the record."""
    cluster = cluster_with_groups()
    leader = cluster.leader(OFFSETS)
    assert leader is not None
    successor, lagging = [broker for broker in (1, 2, 3) if broker != leader]
    image = cluster.nodes[leader].image.partition(*OFFSETS)
    assert image is not None
    if image.replicas.index(lagging) < image.replicas.index(successor):
        successor, lagging = lagging, successor
    cluster.cut.add((lagging, leader))
    cluster.ask(leader, commit(5))
    log_end = cluster.replica(leader, OFFSETS).log.log_end_offset
    cluster.run_until(lambda: cluster.replica(successor, OFFSETS).log.log_end_offset == log_end)
    cluster.cut.add((lagging, successor))
    cluster.crash(leader, proof=True)
    cluster.run_until(lambda: cluster.leader(OFFSETS) == successor)
    cluster.run(200)
    answer = cluster.call(successor, OffsetFetch("g", [TopicPartition("orders", 0)]))
    assert answer.error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    cluster.cut.clear()
    cluster.run_until(lambda: committed(cluster, successor) == 5)


def test_members_outlive_their_coordinator() -> None:
    cluster = cluster_with_groups()
    leader = cluster.leader(OFFSETS)
    assert leader is not None
    joined = join_and_sync(cluster, leader)
    cluster.crash(leader, proof=True)
    cluster.run_until(lambda: cluster.leader(OFFSETS) not in (None, leader))
    successor = cluster.leader(OFFSETS)
    assert successor is not None
    cluster.run_until(lambda: committed(cluster, successor) == -1)
    beat = Heartbeat("g", joined.generation_id, joined.member_id, None)
    assert cluster.call(successor, beat).error_code is ErrorCode.NONE
    described = cluster.call(successor, DescribeGroup("g"))
    assert (described.group_state, len(described.members)) == ("Stable", 1)
    cluster.run(11_000)
    assert cluster.call(successor, beat).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_broker_that_does_not_lead_the_partition_is_not_the_coordinator() -> None:
    cluster = cluster_with_groups()
    leader = cluster.leader(OFFSETS)
    assert leader is not None
    other = next(iter({1, 2, 3} - {leader}))
    assert error_of(cluster.call(other, commit(1))) is ErrorCode.NOT_COORDINATOR
    assert cluster.call(other, ListGroups([], [])).groups == ()


def test_no_coordinator_without_the_topic() -> None:
    cluster = Cluster((1,))
    cluster.start()
    cluster.run(1000)
    assert error_of(cluster.call(1, commit(1))) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_waiting_requests_fail_when_the_leader_moves() -> None:
    cluster = cluster_with_groups()
    leader = cluster.leader(OFFSETS)
    assert leader is not None
    joined = join_and_sync(cluster, leader)
    waiting = cluster.ask(leader, joining(fresh="2"))  # until the first member joins again
    cluster.run(100)
    assert waiting not in cluster.answers
    cluster.lose_session(leader)
    assert cluster.answers[waiting].error_code is ErrorCode.NOT_COORDINATOR
    beat = Heartbeat("g", joined.generation_id, joined.member_id, None)
    refused = cluster.call(leader, beat).error_code
    assert refused in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def test_a_broker_that_shuts_down_returns_no_offsets() -> None:
    """The broker's leadership moves, and the broker may be the last one to notice."""
    cluster = cluster_with_groups(replicas=(2, 3, 1))
    assert error_of(cluster.call(2, commit(1))) is ErrorCode.NONE
    assert committed(cluster, 2) == 1
    cluster.step(2, on.ShutdownRequested(cluster.now_ms))
    node, question = cluster.nodes[2], OffsetFetch("g", [TopicPartition("orders", 0)])
    assert node.acting
    effects = node.step(on.RequestReceived("client", 1, question, cluster.now_ms))
    (told,) = (effect.response for effect in effects if isinstance(effect, do.Respond))
    assert told.error_code is ErrorCode.NOT_COORDINATOR  # type: ignore[attr-defined]


def test_too_few_replicas_refuse_commits() -> None:
    cluster = cluster_with_groups(min_isr=3)
    leader = cluster.leader(OFFSETS)
    assert leader is not None
    follower = next(iter({1, 2, 3} - {leader}))
    cluster.crash(follower, proof=True)
    cluster.run_until(lambda: len(cluster.replica(leader, OFFSETS).partition.isr.members) == 2)
    assert error_of(cluster.call(leader, commit(1))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert committed(cluster, leader) == -1


def test_a_long_log_is_read_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_runtime, "SLICE_BYTES", 200)
    cluster = cluster_with_groups((1,))
    for offset in range(100):
        cluster.call(1, commit(offset, partition=offset % 3))
    cluster.crash(1)
    cluster.start(1)
    seen = []

    def told() -> bool:
        answer = cluster.call(1, OffsetFetch("g", [TopicPartition("orders", 0)]))
        seen.append(answer.error_code)
        return not answer.error_code

    cluster.run_until(lambda: cluster.leader(OFFSETS) == 1)
    cluster.run_until(told)
    assert committed(cluster, 1) == 99
    assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS in seen


def test_offsets_of_a_deleted_topic_are_deleted() -> None:
    from tidelog.core.controller.events import DeleteTopicReceived

    cluster = cluster_with_groups()
    cluster.create_topic("orders", topic_id=b"o" * 16)
    leader = cluster.leader(OFFSETS)
    assert leader is not None
    cluster.call(leader, commit(3))
    assert committed(cluster, leader) == 3
    cluster.call(leader, DeleteTopicReceived(0, "orders"))
    cluster.run_until(lambda: committed(cluster, leader) == -1)


def test_all_groups_of_a_broker_are_listed() -> None:
    cluster = cluster_with_groups()
    leader = cluster.leader(OFFSETS)
    assert leader is not None
    cluster.call(leader, commit(1, "a"))
    cluster.call(leader, commit(1, "b"))
    listed = cluster.call(leader, ListGroups([], []))
    assert {group.group_id for group in listed.groups} == {"a", "b"}
    assert cluster.call(leader, ListGroups(["Stable"], [])).groups == ()


def test_a_slice_ends_at_many_uncompressed_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Batches of a few hundred bytes may decompress to many megabytes each."""
    monkeypatch.setattr(coordinator_runtime, "SLICE_UNPACKED_BYTES", 100_000)
    cluster = cluster_with_groups((1,))
    bomb = encode_batch([Record(b"\0\7", bytes(60_000), 1)], attributes=Codec.ZSTD)
    for _ in range(4):
        part = ProducePartition(OFFSETS, bytearray(bomb))
        request = Produce(-1, 1000, [part], internal_topics_allowed=True)
        assert cluster.call(1, request).partitions[0].error is ErrorCode.NONE
    replica = cluster.replica(1, OFFSETS)
    hosted = HostedShard(GroupShard(AT_ONCE, 0), replica)
    read = [hosted.read_slice() for _ in range(3)]
    assert [size > 100_000 for size in read] == [True, True, False]
    assert hosted.has_read_all


def test_a_copy_of_the_package_finds_its_own_coordinators() -> None:
    """Mutants are copies under another name: otherwise each would fail at its first commit."""
    with MutatedPackage("copy", ()) as universe:
        coordinators = universe.load("tidelog.core.node.coordinating.coordinators")
        found = {tenant.requests for tenant in coordinators.TENANTS}
        assert found == {
            universe.load("tidelog.core.groups.messages").OffsetCommit.__module__,
            universe.load("tidelog.core.transactions.messages").EndTxn.__module__,
        }


def test_member_stays_while_the_coordinator_can_not_serve_without_the_store() -> None:
    """An outage of the store and of a link, longer than the member's session timeout."""
    cluster = cluster_with_groups()
    leader = cluster.leader(OFFSETS)
    assert leader is not None
    joined = cluster.call(leader, joining())
    sync = SyncGroup("g", joined.generation_id, joined.member_id, None, None, None, [])
    assert cluster.call(leader, sync).error_code is ErrorCode.NONE
    beat = Heartbeat("g", joined.generation_id, joined.member_id, None)

    def beats(seconds: int) -> list[ErrorCode]:
        answers = []
        for _ in range(seconds):
            cluster.run(1_000)
            answers.append(cluster.call(leader, beat).error_code)
        return answers

    cluster.store_away = True
    assert set(beats(30)) == {ErrorCode.NONE}, "the lease of its partition holds"
    cluster.cut |= {(other, leader) for other in cluster.nodes.keys() - {leader}}
    assert beats(40)[10:] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 30
    cluster.cut.clear()
    answers = beats(60)
    assert set(answers) <= {ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert answers[-1] is ErrorCode.NONE
    cluster.return_store()
    assert set(beats(20)) == {ErrorCode.NONE}
