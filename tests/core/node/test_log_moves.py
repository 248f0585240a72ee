"""Replicas move between two log directories of a broker while it serves them (KIP-113)."""

import json

import pytest
from node_cluster import ORDERS, Cluster, produce
from test_log_directory_failure import KEY, OTHER, break_disk, known, offline, running

from tidelog.core.controller.events import (
    AlterConfigReceived,
    AlterReassignmentsReceived,
    DeleteTopicReceived,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.node.hosting.replication_quota import MOVE_RATE
from tidelog.core.node.messages import Produce, ProducePartition
from tidelog.core.record.encoder import encode_value
from tidelog.core.storage.log_copy import CopyLimits
from tidelog.core.storage.log_directories import LogDirectories
from tidelog.core.storage.loss_ledger import read_lines
from tidelog.core.types import BrokerId, TopicPartition

LONG_MS = 60_000


def directories(cluster: Cluster, broker: BrokerId = 1) -> LogDirectories:
    directory = cluster.nodes[broker].directory
    assert isinstance(directory, LogDirectories)
    return directory


def move(cluster: Cluster, number: int, broker: BrokerId = 1) -> ErrorCode:
    return cluster.nodes[broker].move_log(ORDERS, number)


def await_move(cluster: Cluster, broker: BrokerId = 1, number: int = 1) -> None:
    cluster.run_until(lambda: directories(cluster, broker).place_of(ORDERS) == number)
    assert not directories(cluster, broker).moves


def folders(cluster: Cluster, number: int, broker: BrokerId = 1) -> list[str]:
    names = cluster.disks[broker].disks[number].list_dir("")
    return [name for name in names if name.startswith("orders-0")]


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many pieces and syncs for a small log."""
    monkeypatch.setattr(LogDirectories, "copy_limits", CopyLimits(50, 200, 100))


def test_a_leader_moves_and_serves(small_pieces: None) -> None:
    cluster = running()
    for number in range(20):
        cluster.produce(1, b"%d" % number)
    epoch = known(cluster).leader_epoch
    assert move(cluster, 1) is ErrorCode.NONE
    await_move(cluster)
    assert cluster.produce(1, b"c")[0].error is ErrorCode.NONE
    assert cluster.consume(1) == [b"a", b"b", *(b"%d" % number for number in range(20)), b"c"]
    assert (known(cluster).leader_epoch, known(cluster).isr) == (epoch, (1, 2, 3))
    assert cluster.halted == {}
    cluster.run(LONG_MS * 2)
    assert folders(cluster, 0) == [], "the old folder is deleted"
    cluster.crash(1)
    cluster.start(1)
    cluster.run_until(lambda: set(known(cluster).isr) == {1, 2, 3})
    assert directories(cluster).place_of(ORDERS) == 1


def test_a_follower_moves_and_follows(small_pieces: None) -> None:
    cluster = running()
    assert move(cluster, 1, broker=2) is ErrorCode.NONE
    cluster.produce(1, b"c")
    await_move(cluster, broker=2)
    cluster.produce(1, b"d")
    cluster.run(1_000)
    log = cluster.nodes[2].replicas[ORDERS].log
    assert log.log_end_offset == cluster.nodes[1].replicas[ORDERS].log.log_end_offset
    assert set(known(cluster).isr) == {1, 2, 3}


def test_the_switch_waits_for_the_sync_of_the_copy(small_pieces: None) -> None:
    cluster = running()
    for number in range(20):
        cluster.produce(1, b"%d" % number)
    cluster.flush_held = True
    move(cluster, 1)
    cluster.run(5_000)
    assert directories(cluster).place_of(ORDERS) == 0
    assert directories(cluster).moves[ORDERS].syncing
    assert cluster.produce(1, b"c")[0].error is ErrorCode.NONE
    cluster.flush_held = False
    cluster.release_flushes()
    await_move(cluster)
    assert cluster.consume(1)[-1] == b"c"


def test_a_broker_killed_during_a_move_has_the_log_where_it_was(small_pieces: None) -> None:
    cluster = running((1,))
    for number in range(20):
        cluster.produce(1, b"%d" % number)
    cluster.flush_held = True
    move(cluster, 1)
    cluster.run(1_000)
    assert any(name.endswith("-future") for name in folders(cluster, 1))
    cluster.crash(1)
    cluster.flush_held = False
    cluster.start(1)
    cluster.run_until(lambda: cluster.leader() == 1 and cluster.nodes[1].acting)
    assert folders(cluster, 1) == []
    assert directories(cluster).place_of(ORDERS) == 0
    assert len(cluster.consume(1)) == 22


def test_a_moved_log_keeps_what_is_known_of_its_acknowledgements() -> None:
    """A replica that a reassignment removes has its acknowledged records in the loss ledger."""
    cluster = running()
    cluster.cut |= {(2, 1), (3, 1)}
    cluster.ask(1, produce(b"lost", 1))
    assert move(cluster, 1) is ErrorCode.NONE
    await_move(cluster)
    request = AlterReassignmentsReceived(0, {KEY: (2, 3)})
    cluster.call(cluster.controller(), request)
    cluster.run_until(lambda: ORDERS not in cluster.nodes[1].replicas)
    ledgers = directories(cluster).ledger_disks
    [entry] = [json.loads(line) for disk in ledgers for line in read_lines(disk)]
    assert (entry["cause"], entry["start"], entry["acked_1"]) == ("replica_removed", 2, 1)


def test_no_move_while_a_directory_is_offline() -> None:
    cluster = running()
    break_disk(cluster, 1, 1)
    cluster.run_until(lambda: offline(cluster, 1) == [1])
    assert move(cluster, 1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert move(cluster, 0) is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_target_that_fails_ends_the_move(small_pieces: None) -> None:
    cluster = running()
    cluster.flush_held = True
    for number in range(20):
        cluster.produce(1, b"%d" % number)
    move(cluster, 1)
    cluster.run(100)
    assert directories(cluster).moves
    break_disk(cluster, 1, 1)
    cluster.flush_held = False
    cluster.release_flushes()
    cluster.run_until(lambda: offline(cluster, 1) == [1])
    assert not directories(cluster).moves
    assert cluster.produce(1, b"c")[0].error is ErrorCode.NONE
    assert cluster.halted == {}


def test_a_deleted_topic_ends_the_move(small_pieces: None) -> None:
    cluster = running()
    cluster.flush_held = True
    for number in range(20):
        cluster.produce(1, b"%d" % number)
    move(cluster, 1)
    cluster.run(100)
    assert directories(cluster).moves
    cluster.flush_held = False
    cluster.call(cluster.controller(), DeleteTopicReceived(0, "orders", b"t" * 16))
    cluster.run_until(lambda: ORDERS not in directories(cluster).logs)
    assert not directories(cluster).moves
    assert folders(cluster, 1) == []
    cluster.release_flushes()
    cluster.run(1_000)
    assert cluster.halted == {}


def test_another_log_is_not_concerned() -> None:
    cluster = running()
    move(cluster, 1)
    await_move(cluster)
    other = TopicPartition("other", 0)
    assert directories(cluster).place_of(other) == 1
    assert move(cluster, 0) is ErrorCode.NONE
    await_move(cluster, number=0)
    assert cluster.consume(1) == [b"a", b"b"]


# -- the quota: replica.alter.log.dirs.io.max.bytes.per.second ---------------------------------

RATE = 2_000
RECORDS = 20
SIZE = 1_000


def with_records() -> Cluster:
    """Brokers with two disks, and a log of about 20 KB on the first one."""
    cluster = running()
    for _ in range(RECORDS):
        cluster.produce(1, b"v" * SIZE)
    return cluster


def limit_rate(cluster: Cluster, rate: int | None, broker: BrokerId | None = 1) -> None:
    """Change the rate of one broker, as Kafka's reassignment tool does, or the default of all."""
    text = None if rate is None else str(rate)
    change = AlterConfigReceived(0, None, {MOVE_RATE: text}, broker=broker)
    assert cluster.call(cluster.controller(), change).error is ErrorCode.NONE
    cluster.run(100)


def move_ms(cluster: Cluster) -> int:
    began_ms = cluster.now_ms
    await_move(cluster)
    return cluster.now_ms - began_ms


@pytest.mark.parametrize("broker", [1, None])
def test_a_move_copies_at_most_the_rate(broker: BrokerId | None) -> None:
    cluster = with_records()
    limit_rate(cluster, RATE, broker)
    move(cluster, 1)
    expected_ms = RECORDS * SIZE * 1000 // RATE
    # The last piece need not be paid off, and has the bytes of one second at most.
    assert expected_ms - 1_500 < move_ms(cluster) < expected_ms + 2_000
    assert len(cluster.consume(1)) == RECORDS + 2


def test_the_rate_is_changed_during_the_move() -> None:
    cluster = with_records()
    limit_rate(cluster, 0)
    move(cluster, 1)
    cluster.run(LONG_MS)
    assert directories(cluster).place_of(ORDERS) == 0
    limit_rate(cluster, None)
    assert move_ms(cluster) < 1_500


def test_the_rate_of_another_broker_is_not_concerned() -> None:
    cluster = with_records()
    limit_rate(cluster, RATE, broker=2)
    move(cluster, 1)
    assert move_ms(cluster) < 500


def test_moves_share_the_rate() -> None:
    cluster = with_records()
    for _ in range(RECORDS):
        batch = ProducePartition(OTHER, encode_value(b"v" * SIZE))
        cluster.call(1, Produce(-1, 30_000, [batch]))
    limit_rate(cluster, RATE)
    move(cluster, 1)
    cluster.nodes[1].move_log(OTHER, 0)
    began_ms = cluster.now_ms
    cluster.run_until(lambda: not directories(cluster).moves)
    expected_ms = 2 * RECORDS * SIZE * 1000 // RATE
    assert expected_ms - 2_500 < cluster.now_ms - began_ms < expected_ms + 3_000
