"""Brokers whose wall clock is set: what is deleted and what is kept."""

from functools import partial

import pytest
from node_cluster import ORDERS, Cluster, fetch

from tidelog.core.errors import ErrorCode
from tidelog.core.node import events as on
from tidelog.core.node.messages import (
    DeleteRecords,
    DeleteRecordsPartition,
    Produce,
    ProducePartition,
)
from tidelog.core.record.encoder import Producer, encode_value
from tidelog.core.storage import layout

DAY_MS = 86_400_000
HOLD_MS = 600_000
SEGMENTS = 6
BEGIN_MS = 1000 * DAY_MS
CHECK_MS = 60_000
SETTINGS = {
    "clock_hold_ms": HOLD_MS,
    "log_retention_check_interval_ms": CHECK_MS,
    "producer_id_expiration_check_interval_ms": CHECK_MS,
    "replica_fetch_wait_max_ms": 5000,
}


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(brokers=(1, 2), settings=SETTINGS)
    cluster.now_ms = BEGIN_MS
    cluster.start()
    cluster.create_topic(replicas=(1, 2), segment_bytes="200", retention_ms=str(7 * DAY_MS))
    return cluster


def write(cluster: Cluster, count: int = SEGMENTS, ahead_ms: int = 0) -> None:
    """Write records that each fill a segment, with the producer's timestamps."""
    cluster.run_until(lambda: cluster.leader() is not None)
    leader = cluster.leader()
    assert leader is not None
    for _ in range(count):
        sequence = cluster.replica(leader).log.log_end_offset
        records = encode_value(
            b"x" * 100, timestamp=cluster.now_ms + ahead_ms, producer=Producer(7, 0, sequence)
        )
        answer = cluster.call(leader, Produce(-1, 1000, [ProducePartition(ORDERS, records)]))
        assert answer.partitions[0].error is ErrorCode.NONE


def kept(cluster: Cluster) -> tuple[int, int]:
    log = cluster.replica(1).log
    return log.log_start_offset, log.log_end_offset


@pytest.mark.parametrize("ahead_ms", [8 * DAY_MS, -8 * DAY_MS], ids=["ahead", "behind"])
def test_a_clock_that_was_wrong_for_a_while_deletes_nothing(
    cluster: Cluster, ahead_ms: int
) -> None:
    write(cluster)
    cluster.set_clock(ahead_ms)
    cluster.run(2 * CHECK_MS)
    write(cluster, 1)
    cluster.set_clock(0)
    cluster.run(2 * CHECK_MS)
    write(cluster, 1)
    cluster.run(2 * CHECK_MS)
    assert kept(cluster) == (0, SEGMENTS + 2)
    assert 7 in cluster.replica(1).log.producers.producers


def test_retention_uses_the_confirmed_clock_while_the_wall_clock_is_in_doubt(
    cluster: Cluster,
) -> None:
    write(cluster, ahead_ms=-7 * DAY_MS + CHECK_MS)
    write(cluster, 1)
    cluster.set_clock(8 * DAY_MS)
    cluster.run(3 * CHECK_MS)
    assert kept(cluster) == (SEGMENTS, SEGMENTS + 1)


def test_permanent_jump_is_trusted_after_the_hold(cluster: Cluster) -> None:
    write(cluster)
    cluster.set_clock(8 * DAY_MS)
    run_reading(cluster, HOLD_MS - CHECK_MS)
    assert kept(cluster) == (0, SEGMENTS)
    run_reading(cluster, 3 * CHECK_MS)
    assert kept(cluster) == (SEGMENTS, SEGMENTS)


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "stopped"])
@pytest.mark.parametrize("boot_id", ["first boot", "second boot"])
def test_a_start_with_a_wrong_clock_deletes_nothing(
    cluster: Cluster, kill: bool, boot_id: str
) -> None:
    write(cluster)
    restart(cluster, kill=kill, boot_id=boot_id, ahead_ms=8 * DAY_MS)
    cluster.run(3 * CHECK_MS)
    assert kept(cluster) == (0, SEGMENTS)
    cluster.set_clock(0)
    cluster.run(3 * CHECK_MS)
    assert kept(cluster) == (0, SEGMENTS)


def test_newest_record_gives_the_time_without_the_file(cluster: Cluster) -> None:
    write(cluster)
    for disk in cluster.disks.values():
        disk.delete(layout.CONFIRMED_CLOCK)
    restart(cluster, kill=True, boot_id="first boot", ahead_ms=8 * DAY_MS, without_file=True)
    cluster.run(3 * CHECK_MS)
    assert kept(cluster) == (0, SEGMENTS)


def test_old_records_are_deleted_after_a_long_shutdown_and_the_hold(cluster: Cluster) -> None:
    write(cluster)
    restart(cluster, kill=False, boot_id="second boot", ahead_ms=10 * DAY_MS)
    run_reading(cluster, HOLD_MS + 2 * CHECK_MS)
    assert kept(cluster) == (SEGMENTS, SEGMENTS)
    write(cluster, 1, ahead_ms=10 * DAY_MS)
    cluster.run(2 * CHECK_MS)
    assert kept(cluster) == (SEGMENTS, SEGMENTS + 1)


def test_timers_do_not_follow_the_wall_clock(cluster: Cluster) -> None:
    for ahead_ms in (8 * DAY_MS, -8 * DAY_MS, 0):
        cluster.set_clock(ahead_ms)
        cluster.run(30_000)
        write(cluster, 1)
        assert all(node.acting for node in cluster.nodes.values())
        assert cluster.replica(1).isr == (1, 2)
    assert cluster.call(1, fetch(0)).partitions[0].error is ErrorCode.NONE


def test_deleted_segments_are_logged_with_a_reason(cluster: Cluster) -> None:
    write(cluster, ahead_ms=-8 * DAY_MS)
    cluster.run(CHECK_MS)
    notes, more = cluster.nodes[1].journal.take()
    told = [note for note in notes if note.event == "segment_deleted"]
    assert [note.fields()["start"] for note in told] == list(range(SEGMENTS))
    assert all("retention.ms=604800000" in note.fields()["reason"] for note in told)
    assert told[0].fields()["segment"] == "00000000000000000000.log"
    assert more.get("segment_deleted") is None


def test_segments_deleted_by_a_client_are_logged(cluster: Cluster) -> None:
    write(cluster)
    request = DeleteRecords(30_000, [DeleteRecordsPartition(ORDERS, 2)])
    assert cluster.call(1, request).partitions[0].error is ErrorCode.NONE
    cluster.run(2000)
    for node in cluster.nodes.values():
        notes, _ = node.journal.take()
        told = [note.text() for note in notes if note.event == "segment_deleted"]
        assert told == [
            f"orders-0: deleted segment {at:020d}.log, offsets {at} to {at + 1} (exclusive): the"
            " log starts at 2 now"
            for at in range(2)
        ]


def test_clock_jumps_are_logged_with_advice(cluster: Cluster) -> None:
    journal = cluster.nodes[1].journal
    journal.take()
    cluster.set_clock(8 * DAY_MS)
    cluster.set_clock(0)
    cluster.set_clock(9 * DAY_MS)
    run_reading(cluster, HOLD_MS + CHECK_MS)
    events = [note.event for note in journal.take()[0] if note.event.startswith("clock_")]
    assert events == ["clock_jumped", "clock_trusted", "clock_jumped", "clock_confirmed"]


def test_a_pause_longer_than_the_hold_proves_nothing(cluster: Cluster) -> None:
    write(cluster)
    cluster.set_clock(8 * DAY_MS)
    cluster.now_ms += 2 * HOLD_MS
    cluster.run(2 * CHECK_MS)
    cluster.set_clock(0)
    cluster.run(2 * CHECK_MS)
    assert kept(cluster) == (0, SEGMENTS)


def run_reading(cluster: Cluster, for_ms: int) -> None:
    """Advance the time, and read the clock at intervals."""
    for _ in range(for_ms // CHECK_MS):
        cluster.run(CHECK_MS)
        cluster.read_clock()


def restart(
    cluster: Cluster, *, kill: bool, boot_id: str, ahead_ms: int, without_file: bool = False
) -> None:
    """Stop all brokers, and start them with another clock."""
    if not without_file:
        cluster.run(2000)
    for broker in list(cluster.nodes):
        if kill:
            cluster.crash(broker)
        else:
            cluster.step(broker, on.ShutdownRequested(cluster.now_ms))
            cluster.run_until(partial(cluster.halted.__contains__, broker), 600_000)
    cluster.wall_ahead_ms, cluster.boot_id = ahead_ms, boot_id
    cluster.start()
    cluster.run_until(lambda: all(node.acting for node in cluster.nodes.values()), 60_000)
