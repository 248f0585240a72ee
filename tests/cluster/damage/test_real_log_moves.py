"""A replica moves between two log directories under load; kill -9 during the move loses nothing."""

from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from real_cluster import PATIENCE_S, Sent, eventually, make_topic, read_values, said, send_all

from tidelog.core.api_table import ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS
from tidelog.core.errors import ErrorCode
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

BROKER = 1
VALUE_BYTES = 20_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    data, disk = str(tmp_path / "data"), str(tmp_path / "disk")
    settings = {"log.segment.bytes": "4194304"}
    with LocalCluster(1, data, settings, fault_switches=True, disks=[disk]) as running:
        yield running


def log_dirs(cluster: LocalCluster) -> list[str]:
    return [f"{folder}/broker-{BROKER}" for folder in (cluster.data, *cluster.plan.disks)]


def places(cluster: LocalCluster, name: str) -> list[tuple[str, bool]]:
    """The directories with the partition's log, and with its copy (True)."""
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        results = client.broker(BROKER).call(DESCRIBE_LOG_DIRS, {"topics": None})["results"]
    return [
        (each["log_dir"], one["is_future_key"])
        for each in results
        for topic in each["topics"]
        for one in topic["partitions"]
        if topic["name"] == name
    ]


def move(cluster: LocalCluster, name: str, path: str) -> None:
    topics = [{"name": name, "partitions": [0]}]
    asked = {"dirs": [{"path": path, "topics": topics}]}
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        [result] = client.broker(BROKER).call(ALTER_REPLICA_LOG_DIRS, asked)["results"]
    assert result["partitions"][0]["error_code"] == ErrorCode.NONE


def values(count: int, first: int = 0) -> list[bytes]:
    return [b"%d " % number + b"x" * VALUE_BYTES for number in range(first, first + count)]


def test_a_log_moves_under_load(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name, partitions=1, replicas=1)
    before = values(1500)
    send_all(cluster.bootstrap, name, before)
    [(source, _)] = places(cluster, name)
    [target] = [path for path in log_dirs(cluster) if path != source]
    ended = Event()
    sent = Sent(cluster.bootstrap, name, {"acks": "all", "enable.idempotence": True})
    meanwhile: list[bytes] = []

    def load() -> None:
        while not ended.wait(0.001):
            meanwhile.append(b"meanwhile %d" % len(meanwhile))
            sent.send(meanwhile[-1], 0)

    sender = Thread(target=load)
    sender.start()
    try:
        move(cluster, name, target)
        eventually(lambda: places(cluster, name) == [(target, False)] or None, "it has moved")
    finally:
        ended.set()
        sender.join()
    sent.settle()
    assert not sent.failed
    eventually(lambda: f"{name}-0: moved" in said(cluster, BROKER), "it is in the log")
    assert read_values(cluster.bootstrap, name) == before + meanwhile
    eventually(lambda: not Path(source, f"{name}-0").exists(), "the old log is deleted")

    cluster.kill(BROKER)
    cluster.start_broker(BROKER)
    assert places(cluster, name) == [(target, False)]
    assert read_values(cluster.bootstrap, name) == before + meanwhile


def test_kill_during_a_move(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name, partitions=1, replicas=1)
    before = values(3000)
    send_all(cluster.bootstrap, name, before)
    [(source, _)] = places(cluster, name)
    [target] = [path for path in log_dirs(cluster) if path != source]
    move(cluster, name, target)

    def copying() -> bool | None:
        return any(name.endswith("-future") for name in map(str, Path(target).iterdir())) or None

    # The test may get no CPU until the move has ended.
    eventually(
        lambda: copying() or places(cluster, name) == [(target, False)] or None,
        "the copy is started",
    )
    cluster.kill(BROKER)
    cluster.start_broker(BROKER)
    # The move may have ended before the kill.
    eventually(lambda: len(places(cluster, name)) == 1, "one log")
    eventually(lambda: not copying(), "no copy")
    assert read_values(cluster.bootstrap, name) == before
    more = values(100, first=3000)
    send_all(cluster.bootstrap, name, more)
    [(place, _)] = places(cluster, name)
    [other] = [path for path in log_dirs(cluster) if path != place]
    move(cluster, name, other)
    eventually(lambda: places(cluster, name) == [(other, False)] or None, "it has moved")
    assert read_values(cluster.bootstrap, name) == before + more
