"""A partition's folder and checkpoints are replaced by an old copy, after a clean stop.

The broker can't detect this. It leads, and its followers keep the committed records that it
lacks.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_cluster import (
    await_isr,
    eventually,
    leader_of,
    make_topic,
    partition_dir,
    read_values,
    said,
    segment_bytes,
    send_all,
)

from tidelog.shell.supervisor.cluster import LocalCluster

BROKERS = (1, 2, 3)
ONCE = {"acks": "all", "enable.idempotence": True}
VALUES = [b"%06d" % number + b"." * 1000 for number in range(4000)]
CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


def put_back(folder: Path, copy: Path) -> None:
    """Replace a partition's folder, and its rows in the checkpoints, by those of a copy."""
    shutil.rmtree(folder)
    shutil.copytree(copy / folder.name, folder)
    topic, _, partition = folder.name.rpartition("-")
    for name in CHECKPOINTS:
        now, then = (Path(each, name).read_text().splitlines() for each in (folder.parent, copy))
        rows = [row for row in now[2:] if not row.startswith(f"{topic} {partition} ")]
        rows += [row for row in then[2:] if row.startswith(f"{topic} {partition} ")]
        text = "\n".join([now[0], str(len(rows)), *rows, ""])
        Path(folder.parent, name).write_text(text)
    Path(folder.parent, "checkpoint-checksums").unlink(missing_ok=True)


def stop_all(cluster: LocalCluster, *, last: int) -> None:
    for broker in sorted(BROKERS, key=lambda broker: broker == last):
        cluster.stop(broker)


@pytest.mark.ci
def test_an_old_copy_of_one_replica_loses_nothing(
    cluster: LocalCluster, name: str, tmp_path: Path
) -> None:
    """The folder and checkpoints are from an earlier clean stop, so the broker can't detect it.

    This broker stops last and starts first.
    """
    make_topic(cluster.bootstrap, name, replicas=3, configs={"min.insync.replicas": "2"})
    send_all(cluster.bootstrap, name, VALUES[:1000], conf=ONCE)
    await_isr(cluster, name, BROKERS)
    leader = leader_of(cluster, name)
    folder = partition_dir(cluster, leader, name)
    stop_all(cluster, last=leader)
    shutil.copytree(folder.parent, tmp_path / "copy")
    for broker in BROKERS:
        cluster.start_broker(broker, wait=False)
    send_all(cluster.bootstrap, name, VALUES[1000:], conf=ONCE)
    await_isr(cluster, name, BROKERS)
    stop_all(cluster, last=leader)
    put_back(folder, tmp_path / "copy")
    cluster.start_broker(leader)
    assert leader_of(cluster, name) == leader, "it leads with a quarter of the records"
    for broker in BROKERS:
        if broker != leader:
            cluster.start_broker(broker, wait=False)
    await_isr(cluster, name, BROKERS)
    send_all(cluster.bootstrap, name, [b"and on"], conf=ONCE)
    assert read_values(cluster.bootstrap, name) == [*VALUES, b"and on"]

    def alike() -> bool:
        # Ignore the space that is preallocated after the last record.
        logs = {segment_bytes(cluster, broker, name).rstrip(b"\0") for broker in BROKERS}
        return len(logs) == 1

    eventually(alike, "all replicas hold the same bytes")

    def events() -> str:
        return "".join(said(cluster, broker) for broker in BROKERS)

    eventually(lambda: "asks the controller for another leader" in events(), "it is in a log")
    assert "may have been committed" not in events()
