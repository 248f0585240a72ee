"""Damage in an in-sync replica is found by the scrubber, or by a follower that receives it."""

import pytest
from node_cluster import ORDERS, Cluster

from tidelog.core.node import events as on
from tidelog.core.node.messages import FetchResponse
from tidelog.core.storage.segment.damage import DamagedRecords

SEGMENT = "orders-0/00000000000000000000.log"


@pytest.fixture
def cluster() -> Cluster:
    """Broker 2 leads; the last batch of follower 3 is damaged after a clean stop."""
    cluster = Cluster()
    cluster.start()
    cluster.create_topic(replicas=(2, 3, 1))
    for value in (b"a", b"b", b"c"):
        cluster.produce(2, value)
    cluster.run_until(lambda: cluster.log(3) == cluster.log(2))
    cluster.step(3, on.ShutdownRequested(cluster.now_ms))
    cluster.run_until(lambda: 3 in cluster.halted)
    disk = cluster.disks[3]
    whole = disk.read(SEGMENT, 0, disk.size(SEGMENT))
    disk.write(SEGMENT, whole[:-1] + b"?")
    cluster.start(3)
    return cluster


def isr(cluster: Cluster, broker: int) -> tuple[int, ...]:
    known = cluster.nodes[broker].image.partition(*ORDERS)
    assert known is not None
    return known.isr


def is_damaged(cluster: Cluster) -> bool:
    return ORDERS in cluster.nodes[3].directory.damaged


def await_repair(cluster: Cluster) -> None:
    cluster.run_until(lambda: is_damaged(cluster))
    cluster.run_until(lambda: 3 in isr(cluster, 2) and not is_damaged(cluster))


def test_a_damaged_follower_gets_its_records_again(cluster: Cluster) -> None:
    cluster.run_until(lambda: 3 in isr(cluster, 2))
    cluster.run_until(lambda: 3 not in isr(cluster, 2))
    cluster.run_until(lambda: 3 in isr(cluster, 2))
    assert not is_damaged(cluster)
    assert cluster.log(3) == cluster.log(2)
    assert cluster.nodes[3].losses.count == 0, "its other records were not dropped"


def test_fetches_from_before_the_damage_was_found_do_not_count(cluster: Cluster) -> None:
    """The leader counts the follower as caught up only after a fetch in a new leader epoch."""
    cluster.run_until(lambda: is_damaged(cluster))
    cluster.cut |= {(3, 2)}
    cluster.run_until(lambda: 3 not in isr(cluster, 2))
    for _ in range(50):
        cluster.run(100)
        assert is_damaged(cluster)
        assert 3 not in isr(cluster, 2), "in the ISR without a committed record"
    cluster.cut.clear()
    cluster.run_until(lambda: 3 in isr(cluster, 2))
    assert cluster.log(3) == cluster.log(2)


def test_a_sole_replica_serves_no_damaged_batch_after_the_scrubber_found_it() -> None:
    cluster = Cluster()
    cluster.start()
    cluster.create_topic(replicas=(2,))
    for value in (b"a", b"b", b"c"):
        cluster.produce(2, value)
    cluster.step(2, on.ShutdownRequested(cluster.now_ms))
    cluster.run_until(lambda: 2 in cluster.halted)
    disk = cluster.disks[2]
    whole = disk.read(SEGMENT, 0, disk.size(SEGMENT))
    disk.write(SEGMENT, whole[:-1] + b"?")
    cluster.start(2)
    cluster.run_until(lambda: ORDERS in cluster.nodes[2].directory.damaged)
    cluster.run_until(lambda: cluster.nodes[2].scrubber.passes > 0)
    log = cluster.nodes[2].replicas[ORDERS].log
    assert log.read(0, 1 << 20).length < disk.size(SEGMENT), "the sound batches"
    with pytest.raises(DamagedRecords):
        log.read(2, 1 << 20)


def test_the_scrubber_checks_what_this_process_wrote_to_the_active_segment() -> None:
    cluster = Cluster()
    cluster.start(scrub_interval_ms=1000)
    cluster.create_topic(replicas=(2, 3, 1))
    for value in (b"a", b"b", b"c"):
        cluster.produce(2, value)
    cluster.run_until(lambda: cluster.log(3) == cluster.log(2))
    disk = cluster.disks[3]
    whole = disk.read(SEGMENT, 0, disk.size(SEGMENT))
    disk.write(SEGMENT, whole[:-1] + b"?")
    await_repair(cluster)
    assert cluster.log(3) == cluster.log(2)
    assert disk.read(SEGMENT, 0, disk.size(SEGMENT)) == whole


def test_a_follower_that_gets_a_damaged_batch_makes_its_leader_check(cluster: Cluster) -> None:
    """Without this check, the leader would serve its own damaged batch until the next scrub."""
    await_repair(cluster)
    cluster.tamper = lambda _sender, receiver, answer: (
        None if receiver == 1 and isinstance(answer, FetchResponse) else answer
    )
    cluster.produce(2, b"d")
    cluster.run_until(lambda: cluster.replica(3).partition.log_end_offset == 4)
    disk = cluster.disks[2]
    whole = disk.read(SEGMENT, 0, disk.size(SEGMENT))
    disk.write(SEGMENT, whole[:-1] + b"?")
    cluster.tamper = None
    cluster.run_until(lambda: ORDERS in cluster.nodes[2].directory.damaged)
    cluster.run_until(lambda: 2 not in isr(cluster, 3))
    cluster.run_until(lambda: len(isr(cluster, 3)) == 3)
    assert ORDERS not in cluster.nodes[2].directory.damaged
    assert cluster.log(1) == cluster.log(2) == cluster.log(3)
    assert disk.read(SEGMENT, 0, disk.size(SEGMENT)) == whole


@pytest.mark.parametrize(
    ("field", "wrong"),
    [(slice(3, 4), b"\x01"), (slice(7, 8), b"\x44"), (slice(12, 16), bytes(4))],
    ids=["an offset after the log end", "an offset after a gap", "an older leader epoch"],
)
def test_a_follower_copies_no_wrong_offset_or_leader_epoch(
    cluster: Cluster, field: slice, wrong: bytes
) -> None:
    """No checksum covers them: the follower makes its leader compare them with the log's."""
    await_repair(cluster)
    cluster.produce(2, b"d")
    cluster.run_until(lambda: cluster.log(1) == cluster.log(2))
    cluster.step(1, on.ShutdownRequested(cluster.now_ms))
    cluster.run_until(lambda: 1 in cluster.halted)
    cluster.run(2000)  # its last fetch ends: it must not get the record before the damage
    disk = cluster.disks[2]
    start = disk.size(SEGMENT)
    cluster.produce(2, b"e")
    cluster.run_until(lambda: cluster.replica(3).partition.log_end_offset == 5)
    whole = disk.read(SEGMENT, 0, disk.size(SEGMENT))
    last = bytearray(whole[start:])
    assert last[field] != wrong
    last[field] = wrong
    disk.write(SEGMENT, whole[:start] + last)
    cluster.start(1)
    cluster.run_until(lambda: ORDERS in cluster.nodes[2].directory.damaged)
    cluster.run_until(lambda: 2 not in isr(cluster, 3))
    cluster.run_until(lambda: len(isr(cluster, 3)) == 3)
    assert cluster.log(1) == cluster.log(2) == cluster.log(3)
    assert cluster.replica(1).partition.log_end_offset == 5
