"""The files of one replica are damaged while all brokers are down; the other two are sound.

No acknowledged record may be lost, and the cluster mends itself: all replicas are in sync again
and hold the same bytes.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from real_cluster import (
    QUICK_SESSIONS,
    await_isr,
    eventually,
    leader_of,
    make_topic,
    partition_dir,
    read_values,
    segment_bytes,
    send_all,
)

from tidelog.shell.supervisor.cluster import LocalCluster

BROKERS = (1, 2, 3)
ONCE = {"acks": "all", "enable.idempotence": True}
"""A leader changes while records are sent: a plain producer would write some of them twice."""
VALUES = [b"%06d" % number + b"." * 1000 for number in range(4000)]
"""Four segments of a megabyte."""


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings=QUICK_SESSIONS) as cluster:
        yield cluster


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 0x10
    file.write_bytes(data)


def cut(file: Path, by: int) -> None:
    data = file.read_bytes()
    file.write_bytes(data[:-by])


def zeros(file: Path, at: int, size: int) -> None:
    data = bytearray(file.read_bytes())
    data[at : at + size] = bytes(size)
    file.write_bytes(data)


def set_checkpoint(name: str, value: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        topic, _, partition = folder.name.rpartition("-")
        Path(folder.parent, name).write_text(f"0\n1\n{topic} {partition} {value}\n")

    return change


DAMAGE: dict[str, Callable[[Path], None]] = {
    "a flipped byte in the first segment": lambda folder: flip(segments(folder)[0], 5000),
    "a flipped byte in an older segment": lambda folder: flip(segments(folder)[1], 100_000),
    "a flipped byte in the active segment": lambda folder: flip(segments(folder)[-1], 70),
    "the tail of the active segment cut": lambda folder: cut(segments(folder)[-1], 9999),
    "the tail of an older segment cut": lambda folder: cut(segments(folder)[1], 9999),
    "zeros in the active segment": lambda folder: zeros(segments(folder)[-1], 3000, 5000),
    "the first segment deleted": lambda folder: segments(folder)[0].unlink(),
    "an older segment deleted": lambda folder: segments(folder)[1].unlink(),
    "the active segment deleted": lambda folder: segments(folder)[-1].unlink(),
    "a large log start checkpoint": set_checkpoint("log-start-offset-checkpoint", 99_999_999),
    "a large high watermark": set_checkpoint("replication-offset-checkpoint", 99_999_999),
    "a large recovery point": set_checkpoint("recovery-point-offset-checkpoint", 99_999_999),
    "the partition's folder deleted": lambda folder: shutil.rmtree(folder),
    "the broker's folder deleted": lambda folder: shutil.rmtree(folder.parent),
}


@pytest.mark.ci
@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after kill -9"])
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_to_one_replica_loses_nothing(
    cluster: LocalCluster, name: str, damage: Callable[[Path], None], clean: bool
) -> None:
    configs = {"min.insync.replicas": "2", "segment.bytes": str(1 << 20)}
    make_topic(cluster.bootstrap, name, replicas=3, configs=configs)
    send_all(cluster.bootstrap, name, VALUES, conf=ONCE)
    await_isr(cluster, name, BROKERS)
    leader = leader_of(cluster, name)
    for broker in sorted(BROKERS, key=lambda broker: broker == leader):
        (cluster.stop if clean else cluster.kill)(broker)
    damage(partition_dir(cluster, leader, name))
    for broker in BROKERS:
        cluster.start_broker(broker, wait=False)
    send_all(cluster.bootstrap, name, [b"and on"], conf=ONCE)
    await_isr(cluster, name, BROKERS)
    assert read_values(cluster.bootstrap, name) == [*VALUES, b"and on"]

    def alike() -> bool:
        # Space that is reserved behind the last record does not count.
        logs = {segment_bytes(cluster, broker, name).rstrip(b"\0") for broker in BROKERS}
        return len(logs) == 1

    eventually(alike, "all replicas hold the same bytes")
