"""Readers of committed data: the last stable offset and the aborted transactions of a partition."""

import pytest
from node_cluster import ORDERS, Cluster
from txn_cluster import PID, Coordinator, batch, end, marker, read, started, write

from tidelog.core.errors import ErrorCode
from tidelog.core.lineage.transaction_index import AbortedTransaction
from tidelog.core.node.messages import (
    LATEST,
    Fetch,
    FetchPartition,
    ListOffsets,
    ListOffsetsPartition,
    WriteTxnMarkers,
)
from tidelog.core.record.decoder import decode
from tidelog.core.record.record_batch import batches

OK = ErrorCode.NONE


@pytest.fixture
def cluster() -> Cluster:
    return started()[0]


@pytest.fixture
def leader(cluster: Cluster) -> int:
    found = cluster.leader()
    assert found is not None
    Coordinator(cluster, found)
    return found


def values(records: object) -> list[bytes]:
    """The values of a response's records, markers included as an empty value."""
    if records is None:
        return []
    assert isinstance(records, bytes)
    return [
        b"" if batch.is_control else record.value or b""
        for batch in batches(records)
        for record in decode(batch)
    ]


def latest(
    cluster: Cluster, broker: int, *, committed: bool = True, timestamp: int = LATEST
) -> int:
    asked = ListOffsets(None, [ListOffsetsPartition(ORDERS, None, timestamp)], committed)
    found = cluster.call(broker, asked).partitions[0]
    assert found.error is OK
    return -1 if found.offset is None else found.offset


def test_an_open_transaction_holds_back_readers_of_committed_data(
    cluster: Cluster, leader: int
) -> None:
    cluster.produce(leader, b"plain")
    write(cluster, leader, batch(0, b"in a transaction"))
    cluster.produce(leader, b"later")
    answer = read(cluster, leader)
    assert values(answer.records) == [b"plain"]
    assert (answer.high_watermark, answer.last_stable_offset) == (3, 1)
    assert values(read(cluster, leader, committed=False).records) == [
        b"plain",
        b"in a transaction",
        b"later",
    ]
    assert (latest(cluster, leader), latest(cluster, leader, committed=False)) == (1, 3)
    assert end(cluster, leader) is OK
    answer = read(cluster, leader)
    assert values(answer.records) == [b"plain", b"in a transaction", b"later", b""]
    assert (answer.last_stable_offset, answer.aborted) == (4, [])
    assert latest(cluster, leader) == 4


def test_aborted_transactions_are_named(cluster: Cluster, leader: int) -> None:
    write(cluster, leader, batch(0))
    write(cluster, leader, batch(0, of=8))
    assert end(cluster, leader, committed=False) is OK
    answer = read(cluster, leader)
    assert (answer.last_stable_offset, answer.records) == (1, answer.records)
    assert answer.aborted == [AbortedTransaction(PID, 0, 2, 1)]
    assert end(cluster, leader, of=8, committed=False) is OK
    answer = read(cluster, leader)
    assert answer.aborted == [AbortedTransaction(PID, 0, 2, 1), AbortedTransaction(8, 1, 3, 4)]
    assert read(cluster, leader, committed=False).aborted is None


def test_a_waiting_fetch_is_answered_when_the_transaction_ends(
    cluster: Cluster, leader: int
) -> None:
    write(cluster, leader, batch(0, b"held back"))
    asked = FetchPartition(ORDERS, None, 0, 1 << 20)
    number = cluster.ask(
        leader, Fetch(None, None, 60_000, 1, 1 << 20, [asked], read_committed=True)
    )
    cluster.run(3000)
    assert number not in cluster.answers
    before = cluster.now_ms
    assert end(cluster, leader) is OK
    cluster.run_until(lambda: number in cluster.answers)
    assert cluster.now_ms - before < 100
    assert values(cluster.answers[number].partitions[0].records) == [b"held back", b""]


def test_a_marker_counts_once_it_is_committed(cluster: Cluster, leader: int) -> None:
    write(cluster, leader, batch(0, b"v"))
    followers = [broker for broker in cluster.nodes if broker != leader]
    cluster.cut |= {(broker, leader) for broker in followers}
    assert cluster.replica(leader).log.producers.open_transactions == {PID: 0}
    number = cluster.ask(leader, WriteTxnMarkers((marker(),)))
    cluster.run(1000)
    assert number not in cluster.answers
    assert not cluster.replica(leader).log.producers.open_transactions
    assert read(cluster, leader).last_stable_offset == 0
    cluster.cut.clear()
    cluster.run_until(lambda: cluster.replica(leader).partition.high_watermark == 2)
    assert read(cluster, leader).last_stable_offset == 2
    assert not cluster.replica(leader).log.producers.ended


def test_followers_replicate_open_transactions_and_bound_their_readers(
    cluster: Cluster, leader: int
) -> None:
    follower = leader % 3 + 1
    cluster.produce(leader, b"plain")
    write(cluster, leader, batch(0, b"open"))
    cluster.run_until(lambda: cluster.replica(follower).partition.high_watermark == 2)
    assert cluster.replica(follower).log.producers.open_transactions == {PID: 1}
    answer = read(cluster, follower)
    assert values(answer.records) == [b"plain"]
    assert end(cluster, leader, committed=False) is OK
    cluster.run_until(lambda: cluster.replica(follower).partition.high_watermark == 3)
    answer = read(cluster, follower)
    assert answer.aborted == [AbortedTransaction(PID, 1, 2, 3)]
    assert answer.last_stable_offset == 3


@pytest.mark.parametrize(
    ("marker_epoch", "coordinator_epoch", "version", "expected"),
    [
        (1, 5, 0, OK),
        (0, 5, 0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, 4, 0, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (1, 5, 2, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 5, 2, OK),
    ],
)
def test_markers_with_old_epochs_are_refused(
    cluster: Cluster,
    leader: int,
    marker_epoch: int,
    coordinator_epoch: int,
    version: int,
    expected: ErrorCode,
) -> None:
    assert end(cluster, leader, coordinator_epoch=5) is OK
    write(cluster, leader, batch(0, epoch=1))
    epochs = {"epoch": marker_epoch, "coordinator_epoch": coordinator_epoch}
    assert end(cluster, leader, version=version, **epochs) is expected
    assert (PID in cluster.replica(leader).log.producers.open_transactions) == (expected is not OK)


def test_a_repeated_marker_of_version_2_is_appended_again(cluster: Cluster, leader: int) -> None:
    write(cluster, leader, batch(0))
    assert end(cluster, leader, epoch=1, version=2) is OK
    assert end(cluster, leader, epoch=1, version=2) is OK
    assert cluster.replica(leader).partition.log_end_offset == 3


def test_a_marker_needs_enough_in_sync_replicas() -> None:
    cluster, leader = started(min_insync_replicas=3, replica_lag_time_max_ms=1000)
    Coordinator(cluster, leader)
    write(cluster, leader, batch(0))
    cluster.crash(leader % 3 + 1)
    replica = cluster.replica(leader)
    cluster.run_until(lambda: len(replica.partition.isr.members) == 2)
    assert end(cluster, leader) is ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_marker_times_out_without_its_followers() -> None:
    cluster, leader = started(request_timeout_ms=500, replica_lag_time_max_ms=60_000)
    Coordinator(cluster, leader)
    write(cluster, leader, batch(0))
    cluster.cut |= {(broker, leader) for broker in cluster.nodes if broker != leader}
    assert end(cluster, leader) is ErrorCode.REQUEST_TIMED_OUT


def test_a_failover_keeps_open_transactions(cluster: Cluster, leader: int) -> None:
    write(cluster, leader, batch(0, b"before"))
    cluster.crash(leader, proof=True)
    cluster.run_until(lambda: cluster.leader() is not None)
    second = cluster.leader()
    assert second not in (None, leader)
    assert second is not None
    assert cluster.replica(second).log.producers.open_transactions == {PID: 0}
    number_of_records = len(values(read(cluster, second, committed=False).records))
    assert number_of_records == 1
    assert values(read(cluster, second).records) == []
    assert end(cluster, second, committed=True) is OK
    assert values(read(cluster, second).records) == [b"before", b""]


def test_a_restart_recovers_open_transactions_from_the_log(cluster: Cluster, leader: int) -> None:
    write(cluster, leader, batch(0, b"open"))
    for broker in list(cluster.nodes):
        cluster.crash(broker)
    cluster.run(20_000)
    cluster.start()
    cluster.run_until(lambda: cluster.leader() is not None)
    again = cluster.leader()
    assert again is not None
    cluster.run_until(lambda: cluster.replica(again).partition.high_watermark == 1)
    assert read(cluster, again).last_stable_offset == 0
    assert end(cluster, again, committed=False) is OK
    assert read(cluster, again).aborted == [AbortedTransaction(PID, 0, 1, 2)]
