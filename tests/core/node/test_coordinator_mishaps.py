"""A coordinator that is suspended, reads a damaged log, or missed the deletion of a topic."""

import pytest
from node_cluster import Cluster
from test_group_coordinator import (
    OFFSETS,
    cluster_with_groups,
    commit,
    committed,
    error_of,
    join_and_sync,
)

from tidelog.core.controller.events import DeleteTopicReceived
from tidelog.core.errors import ErrorCode
from tidelog.core.groups.messages import Heartbeat, OffsetCommit, OffsetToCommit
from tidelog.core.node import events as on
from tidelog.core.types import TopicPartition


def test_a_suspended_broker_does_not_remove_members() -> None:
    cluster = cluster_with_groups()
    leader = cluster.leader(OFFSETS)
    assert leader is not None
    joined = join_and_sync(cluster, leader)
    beat = Heartbeat("g", joined.generation_id, joined.member_id, None)
    cluster.run(7_000)
    cluster.step(leader, on.SessionRenewed(cluster.now_ms + 9_000, cluster.now_ms))
    cluster.now_ms += 5_000  # its session of ten seconds is over
    cluster.step(leader, on.Ticked(cluster.now_ms))
    assert cluster.call(leader, beat).error_code is ErrorCode.NONE
    cluster.run(11_000)
    assert cluster.call(leader, beat).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_first_heartbeat_after_a_suspension_counts() -> None:
    cluster = cluster_with_groups()
    leader = cluster.leader(OFFSETS)
    assert leader is not None
    joined = join_and_sync(cluster, leader)
    beat = Heartbeat("g", joined.generation_id, joined.member_id, None)
    cluster.run(7_000)
    cluster.step(leader, on.SessionRenewed(cluster.now_ms + 9_000, cluster.now_ms))
    cluster.now_ms += 5_000
    assert cluster.call(leader, beat).error_code is ErrorCode.NONE


def alone_with_commits() -> tuple[Cluster, str]:
    """A broker with committed offsets, and the first file of its log."""
    cluster = Cluster((1,))
    cluster.start()
    cluster.create_topic(OFFSETS.topic, (1,), cleanup_policy="compact", segment_bytes="2000")
    cluster.run_until(lambda: cluster.leader(OFFSETS) == 1)
    cluster.run_until(lambda: committed(cluster, 1) == -1)
    for number in range(40):
        assert error_of(cluster.call(1, commit(number, f"g{number:02}"))) is ErrorCode.NONE
    first, second, *_ = cluster.replica(1, OFFSETS).log.segments
    assert first.base_offset == 0
    assert 10 < second.base_offset < 40
    return cluster, first.path


@pytest.mark.parametrize("bad", [(16, b"\x09"), (8, b"\x7f\xff\xff\xff"), (8, b"\xff\xff\xff\xff")])
def test_damaged_headers_do_not_end_the_broker(bad: tuple[int, bytes]) -> None:
    cluster, path = alone_with_commits()
    disk = cluster.disks[1]
    content = bytearray(disk.read(path, 0, disk.size(path)))
    size = int.from_bytes(content[8:12], "big") + 12
    at = size * 10 + bad[0]
    content[at : at + len(bad[1])] = bad[1]
    disk.truncate(path, 0)
    disk.append(path, [bytes(content)])
    cluster.lose_session(1)
    cluster.run_until(lambda: cluster.leader(OFFSETS) == 1)
    cluster.run_until(lambda: committed(cluster, 1, "g00") == 0)
    assert committed(cluster, 1, "g39") == 39
    assert cluster.nodes[1].coordinators.shards(OFFSETS.topic)[0].damaged == 1


def test_a_commit_that_is_too_large_fails_alone() -> None:
    cluster = Cluster()
    cluster.start()
    cluster.create_topic(OFFSETS.topic, (1,), cleanup_policy="compact", max_message_bytes="600")
    cluster.run_until(lambda: cluster.leader(OFFSETS) == 1)
    cluster.run_until(lambda: committed(cluster, 1) == -1)
    large = OffsetCommit("h", -1, "", None, [OffsetToCommit("orders", 0, 1, None, "m" * 1_000)])
    requests = (commit(1), large, commit(2, "k"))
    for number, request in enumerate(requests):
        event = on.RequestReceived("client", 1_000 + number, request, cluster.now_ms)
        cluster.nodes[1].take(event)
    cluster.step(1, on.Ticked(cluster.now_ms))
    numbers = [1_000 + number for number in range(len(requests))]
    cluster.run_until(lambda: all(one in cluster.answers for one in numbers))
    errors = [error_of(cluster.answers[one]) for one in numbers]
    assert errors == [ErrorCode.NONE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE, ErrorCode.NONE]


def test_a_topic_deleted_without_a_coordinator_leaves_no_offsets() -> None:
    cluster = cluster_with_groups((1,))
    cluster.create_topic("orders", (2, 3), topic_id=b"o" * 16)
    named = OffsetToCommit("orders", 0, 9, topic_id=b"o" * 16)
    cluster.call(1, OffsetCommit("g", -1, "", None, [named, OffsetToCommit("kept", 0, 4)]))
    cluster.crash(1, proof=True)
    cluster.run_until(lambda: cluster.leader(OFFSETS) is None)
    cluster.call(cluster.controller(), DeleteTopicReceived(0, "orders"))
    cluster.run_until(lambda: TopicPartition("orders", 0) not in cluster.nodes[2].replicas)
    cluster.create_topic("orders", (2, 3), topic_id=b"p" * 16)
    cluster.start(1)
    cluster.run_until(lambda: cluster.leader(OFFSETS) == 1)
    cluster.run_until(lambda: committed(cluster, 1) is not None)
    cluster.run(100)
    assert committed(cluster, 1) == -1
    assert [
        one.offsets.get("kept", 0)
        for one in cluster.nodes[1].coordinators.shards(OFFSETS.topic)[0].shard.groups
    ]
    assert TopicPartition("orders", 0) in cluster.nodes[2].replicas
