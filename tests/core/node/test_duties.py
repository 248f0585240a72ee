"""Periodic work of a broker."""

from typing import Any

import pytest
from node_cluster import ORDERS, Cluster, fetch

from tidelog.core.controller.effects import StoreTransaction
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.metadata_store import (
    Delete,
    SessionExpired,
    Snapshot,
    Unavailable,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.node import effects as do
from tidelog.core.node import events as on
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.node import Node
from tidelog.core.record.encoder import Producer, encode_value
from tidelog.core.storage import layout
from tidelog.lab.memory_disk import MemoryDisk


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(brokers=(1,))
    cluster.start()
    cluster.create_topic(replicas=(1,), segment_bytes="200", retention_bytes="200")
    return cluster


@pytest.mark.parametrize(
    ("name", "within_ms"),
    [(layout.HIGH_WATERMARKS, 5000), (layout.RECOVERY_POINTS, 60_000), (layout.LOG_STARTS, 60_000)],
    ids=["high watermarks", "recovery points", "log starts"],
)
def test_checkpoints_are_written(cluster: Cluster, name: str, within_ms: int) -> None:
    cluster.produce(1, b"one")
    files = cluster.disks[1].files
    before = bytes(files.get(name, b""))
    cluster.replica(1).log.drop_before(1, cluster.now_ms)
    cluster.run(within_ms + 100)
    assert bytes(files[name]) != before


def test_retention_drops_old_segments_and_later_their_files(cluster: Cluster) -> None:
    cluster.produce(1, *[b"x" * 100] * 6)
    cluster.run(300_000)
    replica = cluster.replica(1)
    start = replica.partition.log_start_offset
    assert start > 0
    assert replica.log.log_start_offset == start
    assert any(name.endswith(".deleted") for name in cluster.disks[1].files)
    cluster.run(62_000)
    assert not any(name.endswith(".deleted") for name in cluster.disks[1].files)
    gone = cluster.call(1, fetch(0))
    assert gone.partitions[0].error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_silent_producers_and_ended_transactions_are_forgotten(cluster: Cluster) -> None:
    from tidelog.core.node.messages import Produce, ProducePartition

    records = encode_value(b"one", timestamp=0, producer=Producer(7, 0, 0))
    cluster.call(1, Produce(1, 1000, [ProducePartition(ORDERS, records)]))
    producers = cluster.replica(1).log.producers
    assert 7 in producers.producers
    cluster.now_ms += 86_400_000
    cluster.nodes[1].step(on.Ticked(cluster.now_ms))
    assert 7 not in producers.producers


# -- the store ----------------------------------------------------------------------------


def started() -> tuple[Node, list[Any]]:
    node = Node(NodeConfig(1), MemoryDisk(), 1, 0)
    return node, node.step(on.Started(0))


def tick_until(node: Node, wanted: type, limit_ms: int = 5000) -> list[Any]:
    while True:
        at = node.next_deadline_ms()
        assert at is not None
        assert at <= limit_ms, "it never came"
        effects = node.step(on.Ticked(at))
        if any(isinstance(effect, wanted) for effect in effects):
            return effects


def test_an_unavailable_store_is_read_again() -> None:
    node, effects = started()
    assert effects == [do.ReadStore()]
    assert node.step(on.StoreRead(Unavailable(), 1)) == []
    tick_until(node, do.ReadStore)


def test_a_lost_watch_means_a_new_snapshot() -> None:
    node, _ = started()
    assert node.step(on.StoreRead(Snapshot((), 7), 1)) == [do.OpenSession(9000), do.WatchStore(7)]
    assert node.step(on.WatchLost(2)) == [do.ReadStore()]
    assert node.step(on.StoreRead(Snapshot((), 5), 3)) == [do.WatchStore(7)], "never back"


def test_a_session_that_could_not_be_opened_is_tried_again() -> None:
    node, _ = started()
    assert node.step(on.SessionLost(1)) == []
    tick_until(node, do.OpenSession)


def test_a_session_that_ended_before_registering() -> None:
    node, _ = started()
    (register,) = node.step(on.SessionOpened(3, 9000, 1))
    node.step(on.TransactionAnswered(register.tag, SessionExpired(), 2))  # type: ignore[union-attr]
    tick_until(node, do.OpenSession)
    node.step(on.TransactionAnswered(register.tag, SessionExpired(), 3))  # type: ignore[union-attr]
    assert node.step(on.SessionRenewed(20_000, 4)) == []


def test_an_older_incarnations_key_is_waited_for() -> None:
    cluster = Cluster(brokers=(1,))
    cluster.start()
    cluster.run(100)
    cluster.crash(1)
    cluster.start(1)
    cluster.run(5000)
    assert cluster.nodes[1].broker_epoch is None, "the old session lives"
    cluster.run_until(lambda: cluster.nodes[1].acting, 20_000)


def test_a_registration_whose_answer_was_lost_is_recognised() -> None:
    cluster = Cluster(brokers=(1,))
    node = Node(NodeConfig(1), MemoryDisk(), 1, 0)
    cluster.nodes[1] = node
    node.step(on.Started(0))
    session = cluster.store.open_session()
    (register,) = node.step(on.SessionOpened(session, 9000, 0))
    assert isinstance(register, StoreTransaction)
    won = cluster.store.txn(register.guards, register.ops)
    lost = cluster.store.txn(register.guards, register.ops)
    node.step(on.TransactionAnswered(register.tag, lost, 1))
    assert node.broker_epoch == won.rev  # type: ignore[union-attr]


def test_a_deleted_registration_is_written_again(cluster: Cluster) -> None:
    epoch = cluster.nodes[1].broker_epoch
    cluster.store.txn((), (Delete(keys.broker_id(1)),))
    cluster._notify()
    cluster.run_until(lambda: cluster.nodes[1].broker_epoch not in (None, epoch), 5000)
    cluster.run_until(lambda: cluster.leader() == 1, 30_000)
