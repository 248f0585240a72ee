"""Files of a running broker are deleted, truncated or unreadable.

Only that replica is damaged; the broker and its other partitions continue.
"""

from typing import Any

import pytest
from node_cluster import ORDERS, Cluster, fetch

from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import ListOffsets, ListOffsetsPartition
from tidelog.core.node.upkeep.scrubber import PAUSE_MIN_MS, PIECE_BYTES
from tidelog.core.storage import layout
from tidelog.core.storage.disk import DiskError
from tidelog.core.types import TopicPartition
from tidelog.lab.memory_disk import MemoryDisk

OTHER = TopicPartition("bills", 0)
SEGMENT = "orders-0/00000000000000000000.log"


class BadSectors(MemoryDisk):
    """A disk on which reads of some files fail."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: set[str] = set()

    def read(self, path: str, position: int, length: int) -> bytes:
        if path in self.bad:
            raise DiskError("input/output error", path)
        return super().read(path, position, length)


@pytest.fixture
def cluster() -> Cluster:
    """Broker 2 leads `orders` with three replicas, and the only replica of `bills`."""
    cluster = Cluster()
    cluster.disks = {broker: BadSectors() for broker in cluster.brokers}
    cluster.start()
    cluster.create_topic(replicas=(2, 3, 1), message_timestamp_type="LogAppendTime")
    cluster.create_topic("bills", replicas=(2,), topic_id=b"b" * 16)
    for value in (b"a", b"b", b"c"):
        cluster.produce(2, value)
    cluster.run_until(lambda: cluster.log(3) == cluster.log(2))
    return cluster


def isr(cluster: Cluster) -> tuple[int, ...]:
    known = cluster.nodes[1].image.partition(*ORDERS)
    assert known is not None
    return known.isr


def is_mended(cluster: Cluster) -> bool:
    return (
        len(isr(cluster)) == 3
        and not cluster.nodes[2].directory.damaged
        and cluster.replica(2).partition.log_end_offset == 3
    )


def delete_file(disk: MemoryDisk) -> None:
    disk.delete(SEGMENT)


def cut_file(disk: MemoryDisk) -> None:
    disk.truncate(SEGMENT, disk.size(SEGMENT) - 5)


def delete_folder(disk: MemoryDisk) -> None:
    disk.delete_dir("orders-0")


@pytest.mark.parametrize("fault", [delete_file, cut_file, delete_folder])
def test_lost_files_are_noticed_within_seconds_and_copied_again(
    cluster: Cluster, fault: Any
) -> None:
    fault(cluster.disks[2])
    cluster.run_until(lambda: cluster.leader() in (1, 3), within_ms=20_000)
    cluster.run_until(lambda: is_mended(cluster))
    assert cluster.log(2) == cluster.log(3)
    assert cluster.disks[2].exists(SEGMENT)
    assert not cluster.halted
    assert cluster.leader(OTHER) == 2
    leader = cluster.leader()
    assert leader is not None
    assert cluster.consume(leader) == [b"a", b"b", b"c"]


def test_an_empty_file_that_was_deleted_is_recreated(cluster: Cluster) -> None:
    path = "bills-0/00000000000000000000.log"
    cluster.disks[2].delete(path)
    cluster.run_until(lambda: cluster.disks[2].exists(path), within_ms=20_000)
    assert not cluster.nodes[2].directory.damaged


def test_a_file_that_cant_be_read_is_damage_and_does_not_stop_the_broker(cluster: Cluster) -> None:
    cluster.disks[2].bad = {SEGMENT}
    cluster.nodes[2].distrust(SEGMENT)
    [part] = cluster.call(2, fetch(1)).partitions
    assert part.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster.nodes[2].directory.damaged[ORDERS].offset == 0
    cluster.run_until(lambda: cluster.leader() in (1, 3), within_ms=20_000)
    assert not cluster.halted
    assert cluster.leader(OTHER) == 2


def test_only_segments_of_hosted_logs_are_distrusted(cluster: Cluster) -> None:
    for path in ("nothing-7/x.log", "meta.properties", "orders-0/x.log"):
        cluster.nodes[2].distrust(path)
    assert cluster.consume(2) == [b"a", b"b", b"c"]


def test_a_search_by_time_that_cant_read_answers_with_an_error(cluster: Cluster) -> None:
    cluster.disks[2].bad = {SEGMENT}
    asked = ListOffsetsPartition(ORDERS, None, 0)
    [answer] = cluster.call(2, ListOffsets(None, [asked])).partitions
    assert answer.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert ORDERS in cluster.nodes[2].directory.damaged
    assert not cluster.halted


def test_retention_that_cant_read_reports_damage(cluster: Cluster) -> None:
    log = cluster.replica(2).log
    segment = log.segments.active
    segment._loaded = False
    cluster.disks[2].bad = {SEGMENT, segment.file(layout.OFFSET_INDEX)}
    cluster.run_until(lambda: cluster.leader() in (1, 3), within_ms=600_000)
    assert not cluster.halted


def test_damage_that_was_found_outlives_a_crash(cluster: Cluster) -> None:
    """The broker dies before it can report."""
    disk = cluster.disks[3]
    data = disk.read(SEGMENT, 0, disk.size(SEGMENT))
    cluster.cut |= {(3, 1), (3, 2), (1, 3), (2, 3)}
    disk.files[SEGMENT] = bytearray(data[:-1] + b"?")
    cluster.nodes[3].distrust(SEGMENT)
    cluster.run_until(lambda: ORDERS in cluster.nodes[3].directory.damaged, within_ms=20_000)
    cluster.crash(3)
    cluster.cut.clear()
    assert disk.files[layout.DAMAGED_LOGS] == b"0\n1\norders 0 2\n"
    disk.files["recovery-point-offset-checkpoint"] = bytearray(b"0\n1\norders 0 3\n")
    del disk.files[layout.CHECKPOINT_CHECKSUMS]
    cluster.start(3)
    assert cluster.nodes[3].directory.damaged[ORDERS].offset == 2
    cluster.run_until(lambda: not cluster.nodes[3].directory.damaged)
    cluster.run_until(lambda: 3 in isr(cluster) and cluster.log(3) == cluster.log(2))
    assert disk.files[layout.DAMAGED_LOGS] == b"0\n0\n"


@pytest.mark.parametrize("rate_mib", [1, 8, 40, 100])
def test_the_scrubber_reads_as_fast_as_its_setting_says(rate_mib: int) -> None:
    """20 segments of 1 MiB."""
    cluster = Cluster(brokers=(1,))
    cluster.start()
    cluster.create_topic(replicas=(1,), segment_bytes=str(1 << 20))
    for _ in range(20):
        cluster.produce(1, bytes(1_000_000))
    log = cluster.replica(1).log
    for segment in log.segments:
        segment.verified, segment.opened_size = 0, segment.size
    scrubber = cluster.nodes[1].scrubber
    scrubber._bytes_a_second = rate_mib << 20
    scrubber._to_check = scrubber._at = None
    start_ms = scrubber._next_ms = cluster.now_ms
    passes = scrubber.passes
    largest = 0
    cluster.turn_ms = 1
    while scrubber.passes == passes:
        before = scrubber.verified_bytes
        cluster.run(1)
        largest = max(largest, scrubber.verified_bytes - before)
    took_ms = cluster.now_ms - start_ms
    expected_ms = 1000 * log.size / (rate_mib << 20)
    assert expected_ms * 0.8 < took_ms < expected_ms * 1.4 + 100 * PAUSE_MIN_MS
    assert largest <= PIECE_BYTES * 2
