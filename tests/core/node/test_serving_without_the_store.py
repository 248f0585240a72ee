"""Brokers continue to serve during an outage of the metadata store, if followers confirm it."""

import pytest
from node_cluster import ORDERS, TTL_MS, Cluster, produce

from tidelog.core.controller.events import CreateTopicReceived
from tidelog.core.coordinator.lookup import OFFSETS_TOPIC
from tidelog.core.errors import ErrorCode
from tidelog.core.groups.messages import (
    DescribeGroup,
    ListGroups,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
)
from tidelog.core.node import events as on
from tidelog.core.node.messages import Fetch
from tidelog.core.types import TopicPartition

REFUSED = ErrorCode.NOT_LEADER_OR_FOLLOWER
FETCH_OFFSETS = OffsetFetch("g", [TopicPartition("orders", 0)])


def cluster_without_store(
    replicas: tuple[int, ...] = (1, 2, 3), *, unclean: bool = False
) -> Cluster:
    """A cluster whose store does not respond for longer than a session."""
    cluster = Cluster()
    cluster.start()
    allowed = "true" if unclean else "false"
    cluster.create_topic(replicas=replicas, unclean_leader_election_enable=allowed)
    leader = cluster.leader()
    assert leader is not None
    assert cluster.produce(leader, b"before")[0].error is ErrorCode.NONE
    cluster.store_away = True
    cluster.run_until(lambda: not any(n.acting for n in cluster.nodes.values()), 2 * TTL_MS)
    cluster.run(TTL_MS)
    return cluster


def led_by(cluster: Cluster) -> int:
    [leader] = [
        b
        for b in cluster.nodes
        if ORDERS in cluster.nodes[b].replicas and cluster.replica(b).partition.is_leader
    ]
    return leader


def error(cluster: Cluster, acks: int = -1) -> ErrorCode:
    return cluster.produce(led_by(cluster), b"during", acks=acks)[0].error


def test_leader_with_fetching_followers_serves_acks_all_and_reads() -> None:
    cluster = cluster_without_store()
    assert error(cluster) is ErrorCode.NONE
    assert cluster.consume(led_by(cluster)) == [b"before", b"during"]


@pytest.mark.parametrize("acks", [0, 1])
def test_leader_refuses_other_acks(acks: int) -> None:
    cluster = cluster_without_store()
    cluster.ask(led_by(cluster), produce(b"during", acks))
    cluster.run(100)
    assert cluster.replica(led_by(cluster)).partition.log_end_offset == 1


def test_acks_1_gets_an_error_that_clients_retry() -> None:
    assert error(cluster_without_store(), acks=1) is REFUSED


def test_leader_alone_in_its_isr_refuses() -> None:
    cluster = cluster_without_store(replicas=(2,))
    assert error(cluster) is REFUSED


def test_leader_refuses_where_unclean_elections_are_allowed() -> None:
    cluster = cluster_without_store(unclean=True)
    assert error(cluster) is REFUSED


def test_leader_refuses_where_the_recovery_strategy_allows_unclean_elections() -> None:
    """`aggressive` elects a replica outside the ISR, too, if the ISR is not alive."""
    cluster = Cluster()
    cluster.start(unclean_recovery_strategy="aggressive")
    cluster.create_topic()
    cluster.store_away = True
    cluster.run(3 * TTL_MS)
    assert error(cluster) is REFUSED


def test_broker_shuts_down_soon_without_the_store() -> None:
    """No controller can move its leaders: it does not wait for the timeout of five minutes."""
    cluster = cluster_without_store()
    leader = led_by(cluster)
    node = cluster.nodes[leader]
    cluster.step(leader, on.ShutdownRequested(cluster.now_ms))
    cluster.run(1_000)
    assert node.halted is not None
    assert node.halted.clean


def test_waiting_write_fails_once_a_follower_is_silent() -> None:
    cluster = cluster_without_store()
    leader = led_by(cluster)
    silent = min(cluster.nodes.keys() - {leader})
    cluster.cut.add((silent, leader))
    waiting = cluster.ask(leader, produce(b"during", timeout_ms=60_000))
    cluster.run_until(lambda: waiting in cluster.answers, 2 * TTL_MS)
    assert cluster.answers[waiting].partitions[0].error is REFUSED
    assert error(cluster) is REFUSED


@pytest.mark.parametrize("sender", ["client", "other follower"])
def test_fetches_of_others_in_its_session_do_not_stand_for_a_silent_follower(sender: str) -> None:
    """Otherwise a leader would accept writes with a lease that no follower confirmed."""
    cluster = cluster_without_store()
    leader = led_by(cluster)
    silent, other = sorted(cluster.nodes.keys() - {leader})
    fetches: list[Fetch] = []

    def note(origin: int, target: int, request: object) -> None:
        if isinstance(request, Fetch) and (origin, target) == (silent, leader):
            fetches.append(request)

    cluster.on_send = note
    cluster.run_until(lambda: bool(fetches), TTL_MS)
    cluster.cut.add((silent, leader))
    waiting = cluster.ask(leader, produce(b"during", timeout_ms=60_000))
    session, next_epoch = fetches[-1].session_id, fetches[-1].session_epoch
    replica = None if sender == "client" else other
    for epoch in range(next_epoch, next_epoch + 2 * TTL_MS // 100):
        found = cluster.call(leader, Fetch(replica, None, 0, 1, 1000, [], session, epoch))
        assert found.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        cluster.run(100)
    assert waiting in cluster.answers
    assert cluster.answers[waiting].partitions[0].error is REFUSED
    assert error(cluster) is REFUSED


def test_leader_serves_again_when_the_silent_follower_fetches() -> None:
    cluster = cluster_without_store()
    leader = led_by(cluster)
    silent = min(cluster.nodes.keys() - {leader})
    cluster.cut.add((silent, leader))
    cluster.run(2 * TTL_MS)
    assert error(cluster) is REFUSED
    cluster.cut.clear()
    # A follower sends its next fetch when the lost one has timed out.
    cluster.run(60_000)
    assert error(cluster) is ErrorCode.NONE


def test_isr_does_not_change() -> None:
    cluster = cluster_without_store()
    leader = led_by(cluster)
    cluster.cut |= {(other, leader) for other in cluster.nodes.keys() - {leader}}
    cluster.run(90_000)
    assert cluster.replica(leader).partition.isr.members == {1, 2, 3}


def test_no_topic_is_created() -> None:
    cluster = cluster_without_store()
    request = CreateTopicReceived(0, "late", b"l" * 16, 1, 1, {}, ((1,),))
    for broker in cluster.nodes:
        assert cluster.call(broker, request).error is ErrorCode.NOT_CONTROLLER


def test_all_brokers_act_again_when_the_store_returns() -> None:
    cluster = cluster_without_store()
    epochs = {b: n.broker_epoch for b, n in cluster.nodes.items()}
    leader_epoch = cluster.replica(led_by(cluster)).partition.leader_epoch
    cluster.return_store()
    cluster.run_until(lambda: all(n.acting for n in cluster.nodes.values()))
    assert {b: n.broker_epoch for b, n in cluster.nodes.items()} == epochs
    assert error(cluster, acks=1) is ErrorCode.NONE
    assert cluster.replica(led_by(cluster)).partition.leader_epoch == leader_epoch


def test_broker_stops_when_the_store_says_that_its_session_ended() -> None:
    cluster = cluster_without_store()
    leader = led_by(cluster)
    cluster.step(leader, on.SessionLost(cluster.now_ms))
    assert cluster.produce(leader, b"during")[0].error is REFUSED


def test_coordinator_serves_by_the_lease_of_its_partition() -> None:
    cluster = Cluster()
    cluster.start()
    cluster.create_topic(OFFSETS_TOPIC, cleanup_policy="compact")
    leader = cluster.leader(TopicPartition(OFFSETS_TOPIC, 0))
    assert leader is not None
    commit = OffsetCommit("g", -1, "", None, [OffsetToCommit("orders", 0, 5)])
    assert cluster.call(leader, commit).partitions[0].error_code is ErrorCode.NONE
    cluster.store_away = True
    cluster.run(3 * TTL_MS)
    assert cluster.call(leader, commit).partitions[0].error_code is ErrorCode.NONE
    assert cluster.call(leader, ListGroups([], [])).error_code is ErrorCode.NONE
    cluster.cut |= {(other, leader) for other in cluster.nodes.keys() - {leader}}
    cluster.run(3 * TTL_MS)
    error = cluster.call(leader, commit).partitions[0].error_code
    assert error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def cluster_with_committed_offset() -> tuple[Cluster, int]:
    """A cluster whose store does not respond, and the coordinator of group "g"."""
    cluster = Cluster()
    cluster.start()
    cluster.create_topic(OFFSETS_TOPIC, cleanup_policy="compact")
    leader = cluster.leader(TopicPartition(OFFSETS_TOPIC, 0))
    assert leader is not None
    commit = OffsetCommit("g", -1, "", None, [OffsetToCommit("orders", 0, 5)])
    assert cluster.call(leader, commit).partitions[0].error_code is ErrorCode.NONE
    cluster.store_away = True
    cluster.run_until(lambda: not any(n.acting for n in cluster.nodes.values()), 2 * TTL_MS)
    return cluster, leader


def test_committed_offsets_are_returned_once_the_followers_confirm() -> None:
    cluster, leader = cluster_with_committed_offset()
    answer = cluster.call(leader, FETCH_OFFSETS)
    assert answer.error_code is ErrorCode.NONE
    assert answer.partitions[0].committed_offset == 5


def test_committed_offsets_are_refused_during_the_lease_of_a_silent_follower() -> None:
    """Another broker may coordinate the group by now, and have accepted newer commits."""
    cluster, leader = cluster_with_committed_offset()
    silent = min(cluster.nodes.keys() - {leader})
    cluster.cut.add((silent, leader))
    assert cluster.call(leader, DescribeGroup("g")).error_code is ErrorCode.NONE
    answer = cluster.call(leader, FETCH_OFFSETS)
    assert answer.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
