"""Brokers with two log directories each: placement, restart, and the failure of one disk."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_cluster import (
    PATIENCE_S,
    await_isr,
    eventually,
    isr_of,
    leader_of,
    make_topic,
    read_values,
    said,
    send_all,
)

from tidelog.core.api_table import DESCRIBE_LOG_DIRS
from tidelog.core.errors import ErrorCode
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

BROKERS = [1, 2, 3]
SETTINGS: dict[str, str] = {}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    data, disk = str(tmp_path / "data"), str(tmp_path / "disk")
    with LocalCluster(3, data, SETTINGS, fault_switches=True, disks=[disk]) as running:
        yield running


def log_dirs(cluster: LocalCluster, broker: int) -> list[str]:
    return [f"{folder}/broker-{broker}" for folder in (cluster.data, *cluster.plan.disks)]


def described(cluster: LocalCluster, broker: int) -> dict[str, dict[str, object]]:
    """DescribeLogDirs: by path, the error, the partitions and the size of the disk."""
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        results = client.broker(broker).call(DESCRIBE_LOG_DIRS, {"topics": None})["results"]
    return {
        each["log_dir"]: {
            "error": ErrorCode(each["error_code"]),
            "partitions": sorted(
                (topic["name"], one["partition_index"])
                for topic in each["topics"]
                for one in topic["partitions"]
            ),
            "total": each["total_bytes"],
        }
        for each in results
    }


def test_partitions_are_spread_over_directories_and_survive_a_restart(
    cluster: LocalCluster, name: str
) -> None:
    make_topic(cluster.bootstrap, name, partitions=4, replicas=3)
    values = [b"%d" % number for number in range(20)]
    for partition in range(4):
        send_all(cluster.bootstrap, name, values, partition=partition)
    before = {broker: described(cluster, broker) for broker in BROKERS}
    for broker in BROKERS:
        found = before[broker]
        assert list(found) == log_dirs(cluster, broker)
        assert [len(one["partitions"]) for one in found.values()] == [2, 2]  # type: ignore[arg-type]
        assert {one["error"] for one in found.values()} == {ErrorCode.NONE}
        for path in found:
            identity = Path(path, "meta.properties").read_text()
            assert f"node.id={broker}" in identity
            assert "directory.id=" in identity
        assert cluster.stop(broker) == 0
        assert all(Path(path, ".kafka_cleanshutdown").exists() for path in found)
        cluster.start_broker(broker)

    def is_as_before(broker: int) -> bool:
        after = described(cluster, broker)
        return {path: one["partitions"] for path, one in after.items()} == {
            path: one["partitions"] for path, one in before[broker].items()
        }

    eventually(lambda: all(map(is_as_before, BROKERS)), "the same partitions")
    for partition in range(4):
        assert read_values(cluster.bootstrap, name, partition=partition) == values


def offline_replicas(cluster: LocalCluster, name: str, partition: int) -> list[int]:
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        client.refresh()
        return client.partition(name, partition).offline_replicas


def test_a_failed_disk_takes_only_its_replicas_offline(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name, partitions=2, replicas=3)
    values = [b"%d" % number for number in range(20)]
    for partition in range(2):
        send_all(cluster.bootstrap, name, values, partition=partition, conf={"acks": "all"})
    broken = leader_of(cluster, name)
    first, second = log_dirs(cluster, broken)
    here = 0 if (name, 0) in described(cluster, broken)[first]["partitions"] else 1  # type: ignore[operator]
    path, other = (first, second) if here == 0 else (second, first)
    cluster.set_faults(broken, {"broken": [path]})
    more = [b"more %d" % number for number in range(20)]
    send_all(cluster.bootstrap, name, more, conf={"acks": "all"})
    eventually(lambda: offline_replicas(cluster, name, 0) == [broken] or None, "it is offline")
    eventually(lambda: leader_of(cluster, name) != broken, "another leader")
    eventually(lambda: broken not in isr_of(cluster, name), "it is not in sync")
    send_all(cluster.bootstrap, name, more, partition=1, conf={"acks": "all"})
    eventually(lambda: broken in isr_of(cluster, name, 1), "the other directory serves")
    found = described(cluster, broken)
    assert found[path] == {"error": ErrorCode.KAFKA_STORAGE_ERROR, "partitions": [], "total": -1}
    assert found[other]["error"] is ErrorCode.NONE
    eventually(lambda: f"log directory {path} failed" in said(cluster, broken), "it is logged")

    cluster.kill(broken)
    shutil.rmtree(path)
    Path(path).write_bytes(b"")  # a folder that can't be used
    cluster.start_broker(broken)
    await_isr(cluster, name, BROKERS, partition=1)
    eventually(lambda: offline_replicas(cluster, name, 0) == [broken] or None, "it is offline")
    assert found.keys() == described(cluster, broken).keys()

    cluster.kill(broken)
    Path(path).unlink()
    cluster.start_broker(broken, wait=False)
    await_isr(cluster, name, BROKERS)
    eventually(lambda: offline_replicas(cluster, name, 0) == [], "it is online again")
    for partition in range(2):
        assert read_values(cluster.bootstrap, name, partition=partition) == values + more


def test_a_sole_replica_waits_for_its_disk(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name, replicas=1)
    values = [b"%d" % number for number in range(20)]
    send_all(cluster.bootstrap, name, values)
    broker = leader_of(cluster, name)
    paths = log_dirs(cluster, broker)
    (path,) = [one for one in paths if Path(one, f"{name}-0").exists()]
    cluster.set_faults(broker, {"broken": [path]})
    eventually(lambda: offline_replicas(cluster, name, 0) == [broker] or None, "it is offline")
    assert cluster.stop(broker) == 0
    assert [Path(one, ".kafka_cleanshutdown").exists() for one in paths] == [
        one != path for one in paths
    ]
    cluster.start_broker(broker)
    assert read_values(cluster.bootstrap, name) == values


def test_the_same_partition_in_two_directories_is_refused(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name, replicas=3)
    send_all(cluster.bootstrap, name, [b"a"], conf={"acks": "all"})
    assert cluster.stop(1) == 0
    folders = [Path(one, f"{name}-0") for one in log_dirs(cluster, 1)]
    here, copy = folders if folders[0].exists() else folders[::-1]
    shutil.copytree(here, copy)
    cluster.start_broker(1, wait=False)
    eventually(lambda: cluster.exit_code(1), "it stops")
    assert f"{folders[0]} and {folders[1]}" in said(cluster, 1)
    shutil.rmtree(copy)
    cluster.start_broker(1)
