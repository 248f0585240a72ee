"""The transaction coordinator of a broker, beside the leaders that ask it."""

import pytest
from node_cluster import ORDERS, Cluster
from txn_cluster import ID, VERIFYING, batch, read, request

from tidelog.core.coordinator.lookup import TRANSACTIONS_TOPIC
from tidelog.core.errors import ErrorCode
from tidelog.core.node.coordinating import marker_sender
from tidelog.core.transactions.messages import (
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    InitTransactionalId,
    InitTransactionalIdResponse,
)
from tidelog.core.transactions.transaction import ProducerIdentity
from tidelog.core.types import TopicPartition

OK = ErrorCode.NONE
COORDINATOR = 3
TIMEOUT_MS = 600_000


def cluster_with_coordinator() -> tuple[Cluster, ProducerIdentity]:
    """Broker 3 coordinates; the topic `orders` does not exist yet."""
    cluster = Cluster()
    cluster.start()
    name = TRANSACTIONS_TOPIC
    cluster.create_topic(name, (COORDINATOR,), b"s" * 16, cleanup_policy="compact")
    return cluster, initialised(cluster)


def initialised(cluster: Cluster, name: str = ID) -> ProducerIdentity:
    """Return a producer, once the coordinator serves."""
    found: list[InitTransactionalIdResponse] = []

    def is_done() -> bool:
        found.append(cluster.call(COORDINATOR, InitTransactionalId(name, TIMEOUT_MS)))
        return found[-1].error_code is OK

    cluster.run_until(is_done)
    return ProducerIdentity(found[-1].producer_id, found[-1].producer_epoch)


def test_a_coordinator_adds_no_partition_that_its_metadata_lacks() -> None:
    """It would take the partition for a deleted one, and end the transaction without a marker."""
    cluster, producer = cluster_with_coordinator()
    late = cluster._watching.pop(COORDINATOR)
    cluster.create_topic(replicas=(1, 2))
    leader = cluster.leader()
    assert leader is not None

    def produced() -> ErrorCode:
        sent = request(batch(0, b"v", of=producer.producer_id, epoch=producer.epoch))
        error: ErrorCode = cluster.call(leader, sent).partitions[0].error
        return error

    assert produced() is ErrorCode.NOT_ENOUGH_REPLICAS
    cluster._watching[COORDINATOR] = late
    cluster._notify()
    cluster.run_until(lambda: ORDERS.topic in cluster.nodes[COORDINATOR].image.topics)
    assert produced() is OK
    end = EndTransaction(ID, producer, True, 2)
    assert cluster.call(COORDINATOR, end).error_code is OK
    cluster.run_until(lambda: not cluster.replica(leader).log.producers.open_transactions)
    cluster.run_until(lambda: read(cluster, leader).last_stable_offset == 2)


def test_a_reloaded_shard_leaves_no_markers_of_its_predecessor() -> None:
    """The leader epoch stays the same if the broker only stops to serve for a while. A marker that
    is repeated later would end the next transaction: before version 2 it has the same epoch."""
    cluster = Cluster(settings={"request_timeout_ms": 120_000})
    cluster.start()
    state = TopicPartition(TRANSACTIONS_TOPIC, 0)
    cluster.create_topic(state.topic, (COORDINATOR, 2), b"s" * 16, cleanup_policy="compact")
    cluster.create_topic(replicas=(1, 2))
    producer = initialised(cluster)
    cluster.run_until(lambda: cluster.leader() == 1 and cluster.leader(state) == COORDINATOR)
    log = cluster.replica(1).log

    def write(sequence: int) -> None:
        wanted = AddPartitions(ID, producer, frozenset({ORDERS}))
        assert cluster.call(COORDINATOR, wanted).error_code is OK
        sent = batch(sequence, of=producer.producer_id, epoch=producer.epoch)
        answer = cluster.call(1, request(sent, version=VERIFYING))
        assert answer.partitions[0].error is OK

    write(0)
    cluster.cut.add((COORDINATOR, 1))
    end = EndTransaction(ID, producer, True, 0)
    assert cluster.call(COORDINATOR, end).error_code is OK
    cluster.run(10)
    first = cluster.nodes[COORDINATOR].coordinators.shards(state.topic)[0]
    cluster.store_away = True
    cluster.cut.add((2, COORDINATOR))
    cluster.ask(COORDINATOR, InitTransactionalId("another", TIMEOUT_MS))
    shards = cluster.nodes[COORDINATOR].coordinators.shards(state.topic)
    cluster.run_until(lambda: shards[0] is not first)
    assert shards[0].leader_epoch == first.leader_epoch
    cluster.cut.clear()
    cluster.return_store()
    cluster.run_until(lambda: not log.producers.open_transactions)
    cluster.run_until(lambda: described(cluster) == "CompleteCommit")
    write(1)
    cluster.run(150_000)
    assert log.producers.open_transactions


def described(cluster: Cluster) -> str:
    state: str = cluster.call(COORDINATOR, DescribeTransaction(ID)).state
    return state


def test_markers_do_not_wait_for_a_former_leader_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They wait while the open requests to it have no answer."""
    monkeypatch.setattr(marker_sender, "REQUESTS_AT_ONCE", 1)
    cluster = Cluster(settings={"request_timeout_ms": 300_000})
    cluster.start()
    state = TopicPartition(TRANSACTIONS_TOPIC, 0)
    cluster.create_topic(state.topic, (COORDINATOR,), b"s" * 16, cleanup_policy="compact")
    cluster.create_topic(replicas=(1, 2))
    producers = [initialised(cluster, name) for name in ("first", "second")]
    cluster.run_until(lambda: cluster.leader() == 1)
    for producer, name in zip(producers, ("first", "second"), strict=True):
        sent = batch(0, of=producer.producer_id, epoch=producer.epoch)
        answer = cluster.call(1, request(sent, transactional_id=name))
        assert answer.partitions[0].error is OK
    cluster.cut |= {(COORDINATOR, 1), (1, COORDINATOR)}
    for producer, name in zip(producers, ("first", "second"), strict=True):
        end = EndTransaction(name, producer, True, 2)
        assert cluster.call(COORDINATOR, end).error_code is OK
        cluster.run(10)
    cluster.lose_session(1)
    cluster.run_until(lambda: cluster.leader() == 2)
    second = producers[1].producer_id
    opened = cluster.replica(2).log.producers.open_transactions
    cluster.run_until(lambda: second not in opened)
