"""The files of one replica are damaged while its broker has them open."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from real_cluster import (
    await_isr,
    eventually,
    leader_of,
    make_topic,
    partition_dir,
    read_values,
    send_all,
)

from tidelog.apps.verify.nemesis.segment_damage import OLDER, cut, segments
from tidelog.shell.supervisor.cluster import LocalCluster

BROKERS = (1, 2, 3)
NO_RETURN = {"auto.leader.rebalance.enable": "false"}
"""The damaged leader must not lead again before the test has seen another one."""
ONCE = {"acks": "all", "enable.idempotence": True}
"""Idempotent: the leader changes while records are sent, and retries would add duplicates."""
VALUES = [b"%06d" % number + b"." * 1000 for number in range(4000)]
"""Four segments of a megabyte."""


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings=NO_RETURN) as cluster:
        yield cluster


def delete_folder(folder: Path) -> None:
    shutil.rmtree(folder)


RUNNING: dict[str, Callable[[Path], None]] = {
    "an older segment deleted": lambda folder: segments(folder)[1].unlink(),
    "the active segment deleted": lambda folder: segments(folder)[-1].unlink(),
    "an older segment cut": lambda folder: cut(folder, OLDER),
    "the folder deleted": delete_folder,
}


@pytest.mark.ci
@pytest.mark.parametrize("damage", RUNNING.values(), ids=RUNNING.keys())
def test_files_that_a_running_leader_loses_are_copied_again(
    cluster: LocalCluster, name: str, damage: Callable[[Path], None]
) -> None:
    """The leader wrote the files itself and has them open; another replica takes over."""
    configs = {"min.insync.replicas": "2", "segment.bytes": str(1 << 20)}
    make_topic(cluster.bootstrap, name, replicas=3, configs=configs)
    send_all(cluster.bootstrap, name, VALUES, conf=ONCE)
    await_isr(cluster, name, BROKERS)
    leader = leader_of(cluster, name)
    folder = partition_dir(cluster, leader, name)
    before = {path.name for path in segments(folder)}
    damage(folder)
    eventually(lambda: leader_of(cluster, name) != leader, "another replica leads")
    send_all(cluster.bootstrap, name, [b"and on"], conf=ONCE)
    await_isr(cluster, name, BROKERS)
    assert read_values(cluster.bootstrap, name) == [*VALUES, b"and on"]
    eventually(lambda: before <= {path.name for path in segments(folder)}, "all are copied")
    assert cluster.is_running(leader)
