"""The scrubber finds damage in a replica that is in sync, while nobody writes."""

import pytest
from node_cluster import ORDERS, Cluster

from tidelog.core.node import events as on
from tidelog.core.storage.segment.verification import DamagedRecords

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


def log_end(cluster: Cluster) -> int:
    hosted = cluster.nodes[3].replicas.get(ORDERS)
    return 3 if hosted is None else hosted.partition.log_end_offset


def test_a_damaged_follower_gets_its_records_again(cluster: Cluster) -> None:
    cluster.run_until(lambda: log_end(cluster) == 2)
    cluster.run_until(lambda: 3 in isr(cluster, 2) and log_end(cluster) == 3)
    assert cluster.log(3) == cluster.log(2)


def test_fetches_from_before_the_truncation_do_not_count(cluster: Cluster) -> None:
    """The leader knows the follower as caught up, until it fetches under a new leader epoch."""
    cluster.run_until(lambda: ORDERS in cluster.nodes[3].directory.damaged)
    cluster.cut |= {(3, 2)}
    cluster.run_until(lambda: log_end(cluster) == 2)
    for _ in range(50):
        cluster.run(100)
        assert log_end(cluster) == 2
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
