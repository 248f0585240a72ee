"""A broker with many partitions stops and returns with a number of steps that grows with their
number, not with its square."""

from collections import Counter
from typing import Any

import pytest
from node_cluster import Cluster

from tidelog.core.controller.effects import AlterPartitionAnswer, AlterPartitionResult
from tidelog.core.controller.events import AlterPartitionReceived, CreateTopicReceived
from tidelog.core.controller.metadata.registrations import PartitionKey
from tidelog.core.errors import ErrorCode
from tidelog.core.node import events as on
from tidelog.core.node.calls import Answered, Failed
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.membership.controller_host import ControllerHost
from tidelog.core.replication.events import Event, FollowerFetchReceived
from tidelog.core.types import TopicPartition

COUNT = 400
FETCHES_EACH = 4
"""Fetches of a follower that each partition may see: one full fetch, one after each of its changes
of leader and ISR."""
PER_TRANSACTION = 60
"""Partitions that share a transaction at least."""


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(settings={"partitions_at_once": 4})
    cluster.start()
    cluster.run_until(lambda: all(node.acting for node in cluster.nodes.values()))
    request = CreateTopicReceived(0, "orders", b"t" * 16, COUNT, 3)
    assert cluster.call(cluster.controller(), request).error is ErrorCode.NONE
    cluster.run_until(lambda: all(len(n.replicas) == COUNT for n in cluster.nodes.values()))
    cluster.run(3000)
    return cluster


def in_sync(cluster: Cluster, broker: int) -> int:
    """Return how many partitions have the broker in their ISR."""
    return len(cluster.nodes[cluster.controller()].image.in_isr.get(broker, ()))


def count_fetches(monkeypatch: pytest.MonkeyPatch) -> Counter[TopicPartition]:
    """Count the follower fetches that each partition's leader reads."""
    read: Counter[TopicPartition] = Counter()
    step = Replicas.step

    def counted(replicas: Replicas, replica: HostedReplica, event: Event) -> None:
        if isinstance(event, FollowerFetchReceived):
            read[replica.topic_partition] += 1
        step(replicas, replica, event)

    monkeypatch.setattr(Replicas, "step", counted)
    return read


def test_clean_stop_and_return_read_each_partition_a_few_times(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping = max(set(cluster.nodes) - {cluster.controller()})
    read = count_fetches(monkeypatch)
    before = cluster.store.revision
    cluster.step(stopping, on.ShutdownRequested(cluster.now_ms))
    cluster.run_until(lambda: stopping in cluster.halted)
    assert cluster.halted[stopping].clean
    assert sum(read.values()) <= FETCHES_EACH * COUNT
    assert cluster.store.revision - before <= COUNT // PER_TRANSACTION + 10

    read.clear()
    before = cluster.store.revision
    cluster.start(stopping)
    cluster.run_until(lambda: in_sync(cluster, stopping) == COUNT)
    assert sum(read.values()) <= FETCHES_EACH * COUNT
    assert cluster.store.revision - before <= 2 * (COUNT // PER_TRANSACTION) + 10


def test_a_follower_joins_after_a_refused_proposal(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its partitions rest while the proposal is pending; they must not rest for ever."""
    follower = max(set(cluster.nodes) - {cluster.controller()})
    cluster.crash(follower, proof=True)
    cluster.run_until(lambda: in_sync(cluster, follower) == 0)
    call = ControllerHost.call
    refused: set[PartitionKey] = set()

    def refuse_once(
        host: ControllerHost, request: Any, timeout_ms: int, answered: Answered, failed: Failed
    ) -> bool:
        if not isinstance(request, AlterPartitionReceived) or len(refused) == COUNT:
            return call(host, request, timeout_ms, answered, failed)
        results = {
            proposal.key: AlterPartitionResult(ErrorCode.INELIGIBLE_REPLICA)
            for proposal in request.proposals
        }
        refused.update(results)
        answer = AlterPartitionAnswer(ErrorCode.NONE, results)
        # By then the leader has answered the fetch, and the partitions rest.
        cluster.at(cluster.now_ms + 1000, lambda: answered(answer))
        return True

    monkeypatch.setattr(ControllerHost, "call", refuse_once)
    cluster.start(follower)
    cluster.run_until(lambda: len(refused) == COUNT)
    cluster.run_until(lambda: in_sync(cluster, follower) == COUNT)
