"""Partitions that rest in a fetch session: leaders and readers have the same knowledge."""

import pytest
from node_cluster import ORDERS, Cluster, fetch, produce

from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import Fetch
from tidelog.core.replication import leader as leader_rules


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.start()
    cluster.create_topic()
    cluster.run(3000)
    return cluster


def leader_of(cluster: Cluster) -> int:
    leader = cluster.leader()
    assert leader is not None
    return leader


def test_caught_up_followers_rest(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    assert len(cluster.replica(leader).resting) == 2
    assert cluster.replica(leader).polls == {}


def test_a_produce_finds_the_time_of_the_last_fetch_noted(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    cluster.run(20_000)
    fetched = {}

    def note(sender: int, target: int, request: object) -> None:
        if isinstance(request, Fetch) and target == leader:
            fetched[sender] = cluster.now_ms + 1

    cluster.on_send = note
    cluster.run(1000)
    cluster.ask(leader, produce(b"one", acks=1))
    followers = cluster.replica(leader).partition.followers
    assert {b: f.last_caught_up_ms for b, f in followers.items()} == fetched


def test_a_resting_follower_is_woken_by_records_and_rests_again(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    for value in (b"one", b"two"):
        began = cluster.now_ms
        assert cluster.produce(leader, value)[0].error is ErrorCode.NONE
        assert cluster.now_ms - began < 20
        cluster.run(2000)
        assert len(cluster.replica(leader).resting) == 2
    assert all(cluster.replica(b).partition.high_watermark == 2 for b in (1, 2, 3))


def test_a_follower_that_left_the_isr_does_not_rest(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    slow = min({1, 2, 3} - {leader})
    cluster.cut |= {(slow, leader), (leader, slow)}
    cluster.produce(leader, b"one", timeout_ms=60_000)
    assert slow not in cluster.replica(leader).partition.isr.members
    cluster.run(1000)
    assert {s.request.replica for s in cluster.replica(leader).resting.values()} == (
        {1, 2, 3} - {leader, slow}
    )


def test_resting_consumers_are_answered_when_the_leader_is_deposed(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    first = cluster.call(leader, fetch(0, session_epoch=0))
    assert len(cluster.replica(leader).resting) == 3
    poll = Fetch(None, None, 60_000, 1, 1000, [], first.session_id, 1)
    number = cluster.ask(leader, poll)
    assert number not in cluster.answers
    cluster.lose_session(leader)
    (part,) = cluster.answers[number].partitions
    assert part.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_second_fetch_in_a_session_ends_the_first(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    first = cluster.call(leader, fetch(0, session_epoch=0))
    polls = [
        cluster.ask(leader, Fetch(None, None, 60_000, 1, 1000, [], first.session_id, epoch))
        for epoch in (1, 2)
    ]
    assert [number in cluster.answers for number in polls] == [True, False]


def test_closed_session_is_removed_completely(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    first = cluster.call(leader, fetch(0, session_epoch=0))
    assert len(cluster.replica(leader).resting) == 3
    cluster.call(leader, fetch(0, session_id=first.session_id, session_epoch=-1))
    assert len(cluster.replica(leader).resting) == 2


def test_a_removed_partition_rests_at_no_replica(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    first = cluster.call(leader, fetch(0, session_epoch=0))
    forget = Fetch(None, None, 0, 1, 1000, [], first.session_id, 1, [ORDERS])
    cluster.call(leader, forget)
    assert len(cluster.replica(leader).resting) == 2


def test_every_partition_learns_of_a_follower_that_registered_again(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    other = min({1, 2, 3} - {leader})
    cluster.lose_session(other)
    cluster.run_until(lambda: cluster.nodes[other].acting)
    cluster.run_until(lambda: cluster.replica(leader).partition.isr.members == {1, 2, 3}, 90_000)
    epoch = cluster.nodes[other].broker_epoch
    assert cluster.replica(leader).partition.followers[other].broker_epoch == epoch


def test_a_follower_outside_the_isr_does_not_rest_for_ever(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the leader does not notice that the follower may join again."""
    leader = leader_of(cluster)
    slow = min({1, 2, 3} - {leader})
    cluster.cut |= {(slow, leader), (leader, slow)}
    cluster.produce(leader, b"one", timeout_ms=60_000)
    partition = cluster.replica(leader).partition
    assert slow not in partition.isr.members
    with monkeypatch.context() as unnoticed:
        unnoticed.setattr(type(partition), "needs_fetches_of", lambda *_: False)
        unnoticed.setattr(leader_rules, "may_join", lambda *_: False)
        cluster.cut.clear()
        cluster.run_until(
            lambda: any(
                session.request.replica == slow
                for session in cluster.replica(leader).resting.values()
            )
        )
    cluster.run_until(lambda: slow in partition.isr.members, 20_000)
