"""AlterPartition: one request at a time, sent again until it is answered."""

from typing import Any

import pytest
from node_cluster import ORDERS, Cluster

from tidelog.core.controller.effects import AlterPartitionAnswer, AlterPartitionResult
from tidelog.core.controller.events import AlterConfigReceived, AlterPartitionReceived
from tidelog.core.controller.metadata.registrations import PartitionKey
from tidelog.core.errors import ErrorCode
from tidelog.core.node import events as on
from tidelog.core.replication.isr import Committed, PendingExpand, PendingShrink

KEY = PartitionKey(b"t" * 16, 0)


@pytest.fixture
def cluster() -> Cluster:
    """Leader and controller are different brokers, so that proposals cross the network."""
    cluster = Cluster()
    cluster.start()
    cluster.run(100)
    controller = cluster.controller()
    leader, other = sorted({1, 2, 3} - {controller})
    cluster.create_topic(replicas=(leader, other, controller))
    cluster.run(1000)
    assert cluster.leader() == leader
    return cluster


def drop_a_follower(cluster: Cluster) -> int:
    """Make one follower silent until the leader proposes to remove it."""
    leader = cluster.leader()
    assert leader is not None
    slow = min({1, 2, 3} - {leader, cluster.controller()})
    cluster.cut |= {(slow, leader)}
    cluster.produce(leader, b"one", acks=1)
    cluster.run_until(lambda: bool(proposals(cluster)), 60_000)
    return slow


def proposals(cluster: Cluster) -> list[AlterPartitionReceived]:
    return [r for _, _, r in cluster.sent if isinstance(r, AlterPartitionReceived)]


def answer_with(error: ErrorCode, result: ErrorCode | None) -> Any:
    """Let the controller return this response once."""
    results = {} if result is None else {KEY: AlterPartitionResult(result)}
    said: list[AlterPartitionAnswer] = []

    def tamper(_sender: int, _target: int, response: Any) -> Any:
        if isinstance(response, AlterPartitionAnswer) and not said:
            said.append(response)
            return AlterPartitionAnswer(error, results)
        return response

    return tamper


def test_a_proposal_changes_the_isr_through_the_image(cluster: Cluster) -> None:
    slow = drop_a_follower(cluster)
    leader = cluster.leader()
    assert leader is not None
    partition = cluster.replica(leader).partition
    assert isinstance(partition.isr, PendingShrink)
    cluster.run(10)
    assert cluster.replica(leader).partition.isr == Committed(frozenset({1, 2, 3}) - {slow})


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (ErrorCode.NOT_CONTROLLER, None),
        (ErrorCode.STALE_BROKER_EPOCH, None),
        (ErrorCode.NONE, None),
        (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
    ids=["not the controller", "stale epoch", "left out", "something else"],
)
def test_a_proposal_without_a_verdict_is_sent_again(
    cluster: Cluster, error: ErrorCode, result: ErrorCode | None
) -> None:
    cluster.tamper = answer_with(error, result)
    # The controller applies it, so the second sending finds an older partition epoch.
    drop_a_follower(cluster)
    leader = cluster.leader()
    assert leader is not None
    cluster.storeless.add(leader)
    cluster.run(60)
    assert len(proposals(cluster)) == 2
    cluster.storeless.clear()
    cluster._notify()
    cluster.run(20)
    assert isinstance(cluster.replica(leader).partition.isr, Committed)


def test_a_rejected_proposal_is_rolled_back(cluster: Cluster) -> None:
    cluster.tamper = answer_with(ErrorCode.NONE, ErrorCode.INELIGIBLE_REPLICA)
    drop_a_follower(cluster)
    leader = cluster.leader()
    assert leader is not None
    cluster.storeless.add(leader)
    cluster.run(10)
    assert cluster.replica(leader).partition.isr == Committed(frozenset({1, 2, 3}))


def test_an_unanswered_proposal_is_sent_to_the_next_controller(cluster: Cluster) -> None:
    controller = cluster.controller()
    leader = cluster.leader()
    assert leader is not None
    cluster.cut |= {(controller, leader)}
    drop_a_follower(cluster)
    cluster.crash(controller, proof=True)
    cluster.cut.clear()
    cluster.run_until(lambda: isinstance(cluster.replica(leader).partition.isr, Committed), 20_000)


def test_a_broken_connection_is_tried_again(cluster: Cluster) -> None:
    leader = cluster.leader()
    assert leader is not None
    cluster.tamper = lambda _from, _to, response: (
        None if isinstance(response, AlterPartitionAnswer) else response
    )
    cluster.nodes[leader].config.request_timeout_ms = 200
    drop_a_follower(cluster)
    cluster.storeless.add(leader)
    cluster.run(2000)
    assert len(proposals(cluster)) >= 2


def test_a_proposal_waits_until_there_is_a_controller() -> None:
    cluster = Cluster(brokers=(1, 2), settings={"replica_lag_time_max_ms": 100})
    cluster.start()
    cluster.create_topic(replicas=(1, 2))
    leader = cluster.leader()
    assert leader is not None
    node = cluster.nodes[leader]
    claim = node.image.controller
    node.image.controller = None
    other = 3 - leader
    cluster.cut |= {(other, leader)}
    cluster.produce(leader, b"one", acks=1)
    partition = cluster.replica(leader).partition
    cluster.run_until(lambda: isinstance(partition.isr, PendingShrink), 1000)
    cluster.run(100)
    assert isinstance(partition.isr, PendingShrink)
    node.image.controller = claim
    cluster.run(100)
    assert cluster.replica(leader).partition.isr == Committed(frozenset({leader}))


def test_outdated_proposal_is_not_sent(cluster: Cluster) -> None:
    leader = cluster.leader()
    assert leader is not None
    slow = drop_a_follower(cluster)
    cluster.run(100)
    sent = len(proposals(cluster))
    cluster.cut.clear()
    partition = cluster.replica(leader).partition
    cluster.run_until(
        lambda: isinstance(partition.isr, PendingExpand) or slow in partition.isr.members, 60_000
    )
    cluster.run(1000)
    assert slow in partition.isr.members
    assert len(proposals(cluster)) == sent + 1


def test_settings_change_while_running(cluster: Cluster) -> None:
    leader = cluster.leader()
    assert leader is not None
    replica = cluster.replica(leader)
    change = AlterConfigReceived(0, "orders", {"min.insync.replicas": "2", "preallocate": "false"})
    cluster.call(cluster.controller(), change)
    cluster.run(10)
    assert replica.partition.config.min_insync_replicas == 2
    assert not replica.log.config.preallocate
    changes: dict[str, str | None] = {"log.segment.bytes": "4096", "log.cleanup.policy": "compact"}
    change = AlterConfigReceived(0, None, changes)
    cluster.call(cluster.controller(), change)
    cluster.run(10)
    assert replica.log.config.segment_bytes == 4096
    assert (replica.log.config.cleanup_delete, replica.log.config.cleanup_compact) == (False, True)
    assert ORDERS in cluster.nodes[leader].replicas


def test_requests_of_other_peers_are_not_mixed_up(cluster: Cluster) -> None:
    """A late response to an earlier round does not count for the current one."""
    leader = cluster.leader()
    assert leader is not None
    held: list[Any] = []

    def hold(_sender: int, _target: int, response: Any) -> Any:
        if isinstance(response, AlterPartitionAnswer) and not held:
            held.append(response)
            return None
        return response

    cluster.tamper = hold
    drop_a_follower(cluster)
    cluster.storeless.add(leader)
    cluster.run(100)
    cluster.storeless.clear()
    cluster._notify()
    cluster.run(100)
    before = cluster.replica(leader).partition.freeze()
    cluster.step(leader, on.ResponseReceived(10**6, held[0], cluster.now_ms))
    assert cluster.replica(leader).partition.freeze() == before


def silence_controller(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, answer: Any) -> list[Any]:
    """Let the leader's next proposal not reach the controller; it gets this answer or none."""
    leader = cluster.leader()
    assert leader is not None
    host = cluster.nodes[leader]._controller
    call = host.call
    swallowed: list[Any] = []

    def once(request: Any, timeout_ms: int, answered: Any, failed: Any) -> bool:
        if isinstance(request, AlterPartitionReceived) and not swallowed:
            swallowed.append(request)
            if answer is not None:
                answered(answer)
            return True
        return call(request, timeout_ms, answered, failed)

    monkeypatch.setattr(host, "call", once)
    return swallowed


@pytest.mark.parametrize(
    "result",
    [
        None,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ],
    ids=["no answer", "newer metadata", "invalid", "success"],
)
def test_a_proposal_that_changes_nothing_is_sent_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, result: ErrorCode | None
) -> None:
    """Or the leader would never change this ISR again. A broker that is the controller itself has
    no network that could report a lost answer."""
    answer = None
    if result is not None:
        answer = AlterPartitionAnswer(ErrorCode.NONE, {KEY: AlterPartitionResult(result)})
    swallowed = silence_controller(cluster, monkeypatch, answer)
    leader = cluster.leader()
    assert leader is not None
    slow = min({1, 2, 3} - {leader, cluster.controller()})
    cluster.cut |= {(slow, leader)}
    cluster.produce(leader, b"one", acks=1)
    cluster.run_until(lambda: bool(swallowed), 60_000)
    isr = Committed(frozenset({1, 2, 3}) - {slow})
    cluster.run_until(lambda: cluster.replica(leader).partition.isr == isr, 40_000)
    if answer is not None:
        notes, _ = cluster.nodes[leader].journal.take()
        overdue = [note.values for note in notes if note.event == "isr_change_overdue"]
        assert [values[:2] for values in overdue] == [ORDERS]
