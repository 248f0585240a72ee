"""A topic of many partitions is created, led and deleted a few partitions at a time: other
requests are served in between, and a crash in the middle loses nothing."""

from collections.abc import Callable

import pytest
from node_cluster import ORDERS, TTL_MS, Cluster

from tidelog.core.controller.events import (
    AlterPartitionReceived,
    CreateTopicReceived,
    DeleteTopicReceived,
)
from tidelog.core.controller.metadata.registrations import PartitionKey
from tidelog.core.errors import ErrorCode
from tidelog.core.node import events as on
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.messages import Produce, ProducePartition
from tidelog.core.node.node import Node
from tidelog.core.record.encoder import encode_value
from tidelog.core.replication.events import BrokersChanged, Event, PartitionChanged
from tidelog.core.types import TopicPartition

AT_ONCE = 4
COUNT = 40
NAMES = [TopicPartition("many", n) for n in range(COUNT)]
OLD, NEW = b"m" * 16, b"n" * 16


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(settings={"partitions_at_once": AT_ONCE}, turn_ms=2)
    cluster.start()
    cluster.create_topic()
    return cluster


def ask_for_many(cluster: Cluster, topic_id: bytes = OLD) -> None:
    request = CreateTopicReceived(0, "many", topic_id, COUNT, 3)
    assert cluster.call(cluster.controller(), request).error is ErrorCode.NONE


def delete_many(cluster: Cluster) -> None:
    answer = cluster.call(cluster.controller(), DeleteTopicReceived(0, "many"))
    assert answer.error is ErrorCode.NONE


def all_led(cluster: Cluster) -> bool:
    return all(cluster.leader(name) is not None for name in NAMES)


def logs(node: Node, topic_id: bytes = OLD) -> int:
    return sum(log.topic_id == topic_id for log in node.directory.logs.values())


def made(cluster: Cluster, topic_id: bytes = OLD) -> int:
    """Return the number of the topic's logs on all brokers."""
    return sum(logs(node, topic_id) for node in cluster.nodes.values())


def to_many(name: TopicPartition, value: bytes) -> Produce:
    return Produce(-1, 30_000, [ProducePartition(name, encode_value(value))])


def watch_steps(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, count: Callable[[Node], int]
) -> list[int]:
    """Return the changes of a number, for each step of a broker that changed it."""
    changes: list[int] = []
    step = Node.step

    def watched(node: Node, event: on.Event) -> list[object]:
        before = count(node)
        effects = step(node, event)
        if count(node) != before:
            changes.append(abs(count(node) - before))
        return effects  # type: ignore[return-value]

    monkeypatch.setattr(Node, "step", watched)
    return changes


def test_no_step_creates_more_logs_than_allowed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = watch_steps(cluster, monkeypatch, logs)
    ask_for_many(cluster)
    cluster.run_until(lambda: all_led(cluster))
    assert sum(changes) == 3 * COUNT
    assert max(changes) == AT_ONCE


def test_many_small_topics_share_the_limit(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store's thread may deliver many revisions in one turn of the loop."""
    node = cluster.nodes[1]
    done = node._applier._room
    changes = watch_steps(cluster, monkeypatch, lambda n: len(n.directory.logs))
    for number in range(6):
        request = CreateTopicReceived(0, f"small-{number}", bytes([number]) * 16, 2, 3)
        cluster.ask(cluster.controller(), request)
    cluster.run(2000)
    assert done <= AT_ONCE
    assert sum(changes) == 3 * 12
    assert max(changes) <= AT_ONCE


def test_other_requests_are_served_in_between(cluster: Cluster) -> None:
    ask_for_many(cluster)
    cluster.run_until(lambda: made(cluster) > 0)
    assert cluster.produce(1, b"meanwhile", acks=1)[0].error is ErrorCode.NONE
    assert made(cluster) < 3 * COUNT, "it was answered before the topic was made"
    cluster.run_until(lambda: all_led(cluster))
    assert cluster.consume(1) == [b"meanwhile"]


def test_an_early_request_gets_a_retriable_error(cluster: Cluster) -> None:
    ask_for_many(cluster)
    cluster.run_until(lambda: all(logs(node) > 0 for node in cluster.nodes.values()))
    last = NAMES[-1]
    known = cluster.nodes[1].image.partition(*last)
    leader = None if known is None else known.leader
    assert leader is not None
    answer = cluster.call(leader, to_many(last, b"early")).partitions[0]
    assert answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.run_until(lambda: all_led(cluster))
    answer = cluster.call(leader, to_many(last, b"now")).partitions[0]
    assert answer.error is ErrorCode.NONE


def test_a_change_of_leader_does_not_wait_for_new_logs(cluster: Cluster) -> None:
    ask_for_many(cluster)
    cluster.run_until(lambda: made(cluster) > 0)
    gone = cluster.leader()
    assert gone is not None
    cluster.crash(gone, proof=True)
    cluster.run_until(lambda: cluster.leader() is not None)
    assert made(cluster) < 2 * COUNT
    cluster.run_until(lambda: all_led(cluster))


@pytest.mark.parametrize("slices", range(1, 12))
def test_a_crash_in_the_middle_loses_nothing(cluster: Cluster, slices: int) -> None:
    """Some logs are created and not used yet; logs that do not exist yet do not count as lost."""
    ask_for_many(cluster)
    victim = max(set(cluster.nodes) - {cluster.controller()})
    cluster.run_until(lambda: logs(cluster.nodes[victim]) >= min(slices * AT_ONCE, COUNT))
    found = logs(cluster.nodes[victim])
    served = [name for name in NAMES if name in cluster.nodes[victim].replicas]
    assert not served or found == COUNT, "a replica waits for the last log of its batch"
    cluster.crash(victim, proof=True)
    cluster.run(500)
    cluster.start(victim)
    cluster.run(100)
    notes, _ = cluster.nodes[victim].journal.take()
    assert "log_lost" not in {note.event for note in notes}
    cluster.run_until(lambda: all(name in cluster.nodes[victim].replicas for name in NAMES))
    cluster.run_until(lambda: all_led(cluster))
    in_sync = (cluster.nodes[victim].image.partition(*name) for name in NAMES)
    cluster.run(5000)
    assert all(known is not None and len(known.isr) == 3 for known in in_sync)


def test_missing_log_that_was_in_use_counts_as_lost(cluster: Cluster) -> None:
    ask_for_many(cluster)
    cluster.run_until(lambda: all_led(cluster))
    leader = cluster.leader(NAMES[0])
    assert leader is not None
    assert cluster.call(leader, to_many(NAMES[0], b"kept")).partitions[0].error is ErrorCode.NONE
    cluster.crash(leader, proof=True)
    cluster.disks[leader].delete_dir("many-0")
    cluster.run(500)
    cluster.start(leader)
    cluster.run_until(lambda: bool(cluster.nodes[leader]._reporter.lost))
    cluster.run_until(lambda: NAMES[0] in cluster.nodes[leader].replicas)
    other = cluster.leader(NAMES[0])
    assert other is not None
    assert other != leader
    assert cluster.consume(other, NAMES[0]) == [b"kept"]


def test_no_step_drops_more_logs_than_allowed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_for_many(cluster)
    cluster.run_until(lambda: all_led(cluster))
    changes = watch_steps(cluster, monkeypatch, logs)
    delete_many(cluster)
    cluster.run_until(lambda: made(cluster) == 0)
    assert sum(changes) == 3 * COUNT
    assert max(changes) == AT_ONCE


def test_no_step_removes_more_folders_than_allowed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def folders(node: Node) -> int:
        return sum(name.endswith("-delete") for name in node.directory.disk.list_dir(""))

    ask_for_many(cluster)
    cluster.run_until(lambda: all_led(cluster))
    delete_many(cluster)
    cluster.run_until(lambda: made(cluster) == 0)
    changes = watch_steps(cluster, monkeypatch, folders)
    cluster.run(65_000)
    assert sum(changes) == 3 * COUNT
    assert max(changes) == AT_ONCE


def test_a_recreated_topic_gets_no_records_of_the_old_one(cluster: Cluster) -> None:
    """A request without a topic id means the new topic, even while the old logs are deleted."""
    ask_for_many(cluster)
    cluster.run_until(lambda: all_led(cluster))
    last = NAMES[-1]
    leader = cluster.leader(last)
    assert leader is not None
    assert cluster.call(leader, to_many(last, b"old")).partitions[0].error is ErrorCode.NONE
    delete_many(cluster)
    ask_for_many(cluster, NEW)
    acknowledged = 0
    while any(logs(node, NEW) < COUNT for node in cluster.nodes.values()):
        for broker in cluster.nodes:
            answer = cluster.call(broker, to_many(last, b"new")).partitions[0]
            acknowledged += answer.error is ErrorCode.NONE
        cluster.run(1)
    cluster.run_until(lambda: all_led(cluster))
    leader = cluster.leader(last)
    assert leader is not None
    assert cluster.call(leader, to_many(last, b"new")).partitions[0].error is ErrorCode.NONE
    assert cluster.consume(leader, last) == [b"new"] * (acknowledged + 1)


def test_a_broker_is_active_once_all_changes_are_applied() -> None:
    """Otherwise it might act as the leader that it was in an earlier epoch."""
    cluster = Cluster((1,), {"partitions_at_once": AT_ONCE}, turn_ms=2)
    cluster.start()
    cluster.run_until(lambda: cluster.nodes[1].acting)
    request = CreateTopicReceived(0, "many", OLD, COUNT, 1)
    assert cluster.call(1, request).error is ErrorCode.NONE
    cluster.run_until(lambda: all_led(cluster))
    cluster.lose_session(1)
    node = cluster.nodes[1]
    waited = False
    while not node.acting:
        waited |= not node._applier.settled
        assert cluster._happen(cluster.now_ms + TTL_MS)
    assert waited
    assert all(node.replicas[name].partition.is_leader for name in NAMES)
    known = [node.image.partition(*name) for name in NAMES]
    epochs = [one.leader_epoch for one in known if one is not None]
    assert epochs == [node.replicas[name].partition.leader_epoch for name in NAMES]


def test_broker_that_may_not_act_delays_pending_changes(cluster: Cluster) -> None:
    ask_for_many(cluster)
    cluster.run_until(lambda: all_led(cluster))
    gone, *others = sorted(cluster.nodes)
    cluster.crash(gone, proof=True)
    survivor = others[-1]
    node = cluster.nodes[survivor]

    def led() -> set[TopicPartition]:
        """Whether the broker leads, by the last change that its replica has applied."""
        return {name for name in NAMES if node.replicas[name].partition.is_leader}

    def to_lead() -> set[TopicPartition]:
        known = [(name, node.image.partition(*name)) for name in NAMES]
        return {name for name, one in known if one is not None and one.leader == survivor}

    cluster.run_until(lambda: len(to_lead() - led()) > AT_ONCE)
    cluster.lose_session(survivor)
    before = led()
    for _ in range(COUNT):
        cluster.step(survivor, on.Ticked(cluster.now_ms))
    assert node._applier.settled
    assert not node.acting
    assert led() == before
    cluster.run_until(lambda: all_led(cluster))
    cluster.run_until(lambda: node.acting)


def test_leader_with_a_pending_change_commits_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers, settings or the leader have changed; it commits once the change is applied."""
    leader = cluster.leader()
    assert leader is not None
    node = cluster.nodes[leader]
    replica = node.replicas[ORDERS]
    stepped: list[type] = []
    step = Replicas.step

    def watched(replicas: Replicas, one: HostedReplica, event: Event) -> None:
        if one is replica:
            stepped.append(type(event))
        step(replicas, one, event)

    monkeypatch.setattr(Replicas, "step", watched)
    node._applier._backlog.changes[PartitionKey(replica.topic_id, 0)] = None
    node._applier._raise_high_watermarks([replica])
    assert stepped == []
    cluster.step(leader, on.Ticked(cluster.now_ms))
    assert stepped == [PartitionChanged, BrokersChanged]
    node._applier._raise_high_watermarks([replica])
    assert stepped == [PartitionChanged, BrokersChanged, BrokersChanged]


def test_request_has_at_most_as_many_proposals_as_one_step_decides(cluster: Cluster) -> None:
    """A broker returns, and all its replicas join their ISRs again."""
    at_once = cluster.nodes[1].config.decisions_at_once
    assert at_once < COUNT
    office = cluster.controller()
    gone, leader = sorted(set(cluster.nodes) - {office})
    assignment = ((leader, gone),) * COUNT
    request = CreateTopicReceived(0, "many", OLD, COUNT, 2, {}, assignment)
    assert cluster.call(office, request).error is ErrorCode.NONE
    cluster.run_until(lambda: all_led(cluster))
    cluster.crash(gone, proof=True)
    cluster.run(1000)
    sizes: list[int] = []

    def watched(_sender: int, _target: int, request: object) -> None:
        if isinstance(request, AlterPartitionReceived):
            sizes.append(len(request.proposals))

    def in_sync() -> int:
        known = [cluster.nodes[leader].image.partition(*name) for name in NAMES]
        return sum(one is not None and one.isr == (leader, gone) for one in known)

    assert in_sync() == 0
    cluster.on_send = watched
    cluster.start(gone)
    cluster.run_until(lambda: in_sync() == COUNT)
    assert max(sizes) == at_once
    assert sum(sizes) >= COUNT
