"""Damaged records of a replica are replaced by its leader's, and the rest of its log stays."""

from collections.abc import Sequence
from typing import Any

import pytest
from node_cluster import ORDERS, Cluster

from tidelog.core.controller.events import ElectionType, ElectLeadersReceived
from tidelog.core.node import events as on
from tidelog.core.node.messages import (
    DeleteRecords,
    DeleteRecordsPartition,
    Fetch,
    FetchResponse,
)
from tidelog.core.record.crc32c import Buffer
from tidelog.core.storage.disk import DiskFull
from tidelog.core.storage.segment.batch_scan import whole_batches
from tidelog.lab.memory_disk import MemoryDisk

RECORDS = 40
FOLDER = "orders-0"


def segment_paths(disk: MemoryDisk) -> list[str]:
    return [f"{FOLDER}/{name}" for name in disk.list_dir(FOLDER) if name.endswith(".log")]


def stopped(
    broker: int, disk: MemoryDisk | None = None, index_interval_bytes: str = "4096"
) -> Cluster:
    """Three replicas with several segments; broker 2 leads; one replica is stopped cleanly."""
    cluster = Cluster()
    if disk is not None:
        cluster.disks[broker] = disk
    cluster.start()
    cluster.create_topic(
        "orders",
        (2, 3, 1),
        segment_bytes="600",
        min_insync_replicas="2",
        index_interval_bytes=index_interval_bytes,
    )
    for number in range(RECORDS):
        cluster.produce(2, b"%03d" % number * 10)
    cluster.run_until(lambda: len({str(cluster.log(b)) for b in cluster.brokers}) == 1)
    cluster.step(broker, on.ShutdownRequested(cluster.now_ms))
    cluster.run_until(lambda: broker in cluster.halted)
    return cluster


def flip(cluster: Cluster, broker: int, segment: int, at: int = 70) -> None:
    """Flip a bit in a batch in the middle of a segment."""
    disk = cluster.disks[broker]
    path = segment_paths(disk)[segment]
    data = bytearray(disk.read(path, 0, disk.size(path)))
    batch = 12 + int.from_bytes(data[8:12])
    data[len(data) // batch // 2 * batch + at] ^= 1
    disk.write(path, bytes(data))


def isr(cluster: Cluster) -> tuple[int, ...]:
    known = next(iter(cluster.nodes.values())).image.partition(*ORDERS)
    assert known is not None
    return known.isr


def damages(cluster: Cluster, broker: int) -> bool:
    node = cluster.nodes.get(broker)
    return node is not None and ORDERS in node.directory.damaged


def await_repair(cluster: Cluster, broker: int) -> None:
    cluster.run_until(lambda: damages(cluster, broker))
    cluster.run_until(lambda: not damages(cluster, broker) and broker in isr(cluster))
    assert cluster.log(broker) == cluster.log(1 if broker == 2 else 2)


@pytest.mark.parametrize("at", [0, 7, 70], ids=["huge offset", "offset", "records"])
@pytest.mark.parametrize("segment", [0, 2], ids=["first", "older"])
def test_only_the_damaged_records_of_a_follower_are_fetched_again(segment: int, at: int) -> None:
    cluster = stopped(3)
    flip(cluster, 3, segment, at)
    cluster.start(3)
    fetched = 0

    def count(sender: int, receiver: int, message: Any) -> Any:
        nonlocal fetched
        if receiver == 3 and isinstance(message, FetchResponse):
            fetched += sum(len(part.records or b"") for part in message.partitions)
        return message

    cluster.tamper = count
    await_repair(cluster, 3)
    node = cluster.nodes[3]
    assert node.losses.count == 0
    assert fetched < 2 * 600, "of six segments"
    assert not [name for name in cluster.disks[3].list_dir(FOLDER) if name.endswith(".cleaned")]


def test_a_follower_in_repair_sends_no_fetch_from_its_log_end() -> None:
    """The leader would assume that the log is complete up to that offset."""
    cluster = stopped(3)
    flip(cluster, 3, 1)
    cluster.start(3)
    cluster.run_until(lambda: damages(cluster, 3))
    early: list[int] = []

    def watch(sender: int, _receiver: int, request: Any) -> None:
        if sender == 3 and isinstance(request, Fetch) and damages(cluster, 3):
            early.extend(part.offset for part in request.partitions)

    cluster.on_send = watch
    cluster.run_until(lambda: not damages(cluster, 3))
    assert early, "the damaged range was fetched"
    assert max(early) < RECORDS // 2


def test_a_damaged_leader_hands_over_and_is_repaired() -> None:
    cluster = stopped(2)
    flip(cluster, 2, 0)
    cluster.start(2)
    await_repair(cluster, 2)
    assert cluster.nodes[2].losses.count == 0


def test_several_damaged_segments_are_repaired() -> None:
    cluster = stopped(3)
    for number in (0, 2, 4):
        flip(cluster, 3, number)
    cluster.start(3)
    cluster.run_until(lambda: cluster.nodes[3].scrubber.passes > 0)
    cluster.run_until(lambda: not damages(cluster, 3) and 3 in isr(cluster))
    for segment in cluster.replica(3).log.segments:
        assert segment.verified == segment.opened_size
    assert cluster.log(3) == cluster.log(2)


@pytest.mark.parametrize("which", [0, 2], ids=["first", "older"])
def test_a_deleted_segment_is_fetched_again(which: int) -> None:
    cluster = stopped(3)
    cluster.disks[3].delete(segment_paths(cluster.disks[3])[which])
    cluster.start(3)
    await_repair(cluster, 3)
    assert cluster.nodes[3].losses.count == 0


def test_a_crash_during_a_repair() -> None:
    cluster = stopped(3)
    flip(cluster, 3, 1)
    cluster.start(3)
    cluster.run_until(lambda: damages(cluster, 3))
    cluster.run_until(
        lambda: any(n.endswith(".cleaned") for n in cluster.disks[3].list_dir(FOLDER))
    )
    cluster.crash(3, proof=True)
    cluster.run(100)
    cluster.start(3)
    await_repair(cluster, 3)


class FullDisk(MemoryDisk):
    """A disk without space for copies of segments."""

    def append(self, path: str, buffers: Sequence[Buffer]) -> int:
        if path.endswith(".cleaned"):
            raise DiskFull("no space left", path)
        return super().append(path, buffers)


def test_a_log_is_truncated_where_the_disk_has_no_room_for_a_copy() -> None:
    cluster = stopped(3, FullDisk())
    flip(cluster, 3, 2)
    cluster.start(3)
    await_repair(cluster, 3)
    assert 3 not in cluster.halted
    assert cluster.nodes[3].losses.count == 1, "the records behind the damage were copied again"


def test_a_repair_waits_for_a_compaction_of_the_same_log() -> None:
    cluster = stopped(3)
    flip(cluster, 3, 1)
    cluster.start(3)
    cluster.run_until(lambda: 3 in cluster.nodes and ORDERS in cluster.nodes[3].replicas)
    cleaning = cluster.nodes[3].cleaning
    running = {ORDERS}
    cleaning.is_running = lambda name: name in running  # type: ignore[method-assign]
    cluster.run_until(lambda: damages(cluster, 3))
    cluster.run(5000)
    assert damages(cluster, 3)
    running.clear()
    await_repair(cluster, 3)


def test_damage_before_the_range_that_is_being_fetched_is_repaired_too() -> None:
    """The missing segment is found at startup, the other damage by the scrubber meanwhile."""
    cluster = stopped(3)
    flip(cluster, 3, 0)
    cluster.disks[3].delete(segment_paths(cluster.disks[3])[4])
    withheld = True

    def withhold(_sender: int, receiver: int, message: Any) -> Any:
        if withheld and receiver == 3 and isinstance(message, FetchResponse):
            for part in message.partitions:
                part.records = b""
        return message

    cluster.tamper = withhold
    cluster.start(3)
    cluster.run_until(lambda: damages(cluster, 3) and ORDERS in cluster.nodes[3].replicas)
    cluster.run_until(lambda: cluster.replica(3).repair is not None)
    damaged = cluster.nodes[3].directory.damaged
    later = damaged[ORDERS].offset
    cluster.run_until(lambda: damaged[ORDERS].offset < later)
    withheld = False
    cluster.run_until(lambda: not damages(cluster, 3) and 3 in isr(cluster))
    assert cluster.replica(3).log.verify_from(0) is None
    assert cluster.log(3) == cluster.log(2)
    assert cluster.nodes[3].losses.count == 0


def test_damage_before_the_log_start_is_repaired_where_its_segment_has_later_records() -> None:
    """Seed 45327: the leader deleted the damaged record before the follower fetched it. Then the
    follower forgot the damage, and found later records only with the index."""
    cluster = stopped(3, index_interval_bytes="0")
    flip(cluster, 3, 1, at=8)
    first, second = list(cluster.replica(2).log.segments)[1:3]
    start = second.base_offset - 2
    withheld = True

    def withhold(_sender: int, receiver: int, message: Any) -> Any:
        if withheld and receiver == 3 and isinstance(message, FetchResponse):
            for part in message.partitions:
                part.records = b""
        return message

    cluster.tamper = withhold
    cluster.start(3)
    cluster.run_until(lambda: damages(cluster, 3) and cluster.replica(3).repair is not None)
    cluster.call(2, DeleteRecords(1000, [DeleteRecordsPartition(ORDERS, start)]))
    withheld = False
    cluster.run_until(lambda: not damages(cluster, 3) and 3 in isr(cluster))
    log = cluster.replica(3).log
    assert log.log_start_offset == start
    assert log.segments.first.base_offset == first.base_offset, "it also has deleted records"
    path, size = log.segments.first.path, log.segments.first.size
    found = whole_batches(cluster.disks[3], path, 0, size, check_crc=True)
    assert [batch.base_offset for batch in found][-2:] == [start, start + 1]
    assert cluster.log(3) == cluster.log(2)
    assert cluster.nodes[3].losses.count == 0


def test_a_damaged_leader_of_an_unclean_election_hands_over_when_another_is_in_sync() -> None:
    """Its damage was stored when the partition had no leader. Broker 3 has the missing records."""
    cluster = Cluster()
    cluster.start()
    cluster.create_topic("orders", (2, 3), segment_bytes="600")
    for number in range(RECORDS):
        cluster.produce(2, b"%03d" % number * 10)
    cluster.run_until(lambda: cluster.log(2) == cluster.log(3))
    for broker in (3, 2):
        cluster.step(broker, on.ShutdownRequested(cluster.now_ms))
        cluster.run_until(lambda broker=broker: broker in cluster.halted)  # type: ignore[misc]
    cluster.disks[2].delete(segment_paths(cluster.disks[2])[1])
    cluster.start(2)
    cluster.run_until(lambda: damages(cluster, 2) and cluster.nodes[2].acting)
    cluster.call(cluster.controller(), ElectLeadersReceived(0, ElectionType.UNCLEAN))
    cluster.run_until(lambda: cluster.leader() == 2)
    cluster.start(3)
    cluster.run_until(lambda: not damages(cluster, 2) and sorted(isr(cluster)) == [2, 3])
    assert len(cluster.log(2)) == RECORDS
    assert cluster.log(2) == cluster.log(3)
