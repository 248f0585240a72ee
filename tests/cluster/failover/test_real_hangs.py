"""One or all brokers hang (SIGSTOP): the cluster continues, or recovers without help."""

import time
from collections.abc import Iterator

import pytest
from real_cluster import (
    QUICK_SESSIONS,
    await_isr,
    await_members,
    eventually,
    leader_of,
    make_topic,
    read_values,
    send_all,
)

from tidelog.shell.client.admin import create_topic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

SESSION_S = 2.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings=QUICK_SESSIONS) as cluster:
        yield cluster


def test_paused_brokers_work_after_their_sessions_ended(cluster: LocalCluster, name: str) -> None:
    """Like a laptop that sleeps: every broker session has ended when it wakes up."""
    make_topic(cluster.bootstrap, name, partitions=3)
    for partition in range(3):
        send_all(cluster.bootstrap, name, [b"before"], partition, {"acks": "all"})
    for broker in cluster.ids:
        cluster.pause(broker)
    time.sleep(SESSION_S + 1)  # must stay: no broker runs that could show that time has passed
    for broker in cluster.ids:
        cluster.resume(broker)
    began = time.monotonic()
    for partition in range(3):
        send_all(cluster.bootstrap, name, [b"after"], partition, {"acks": "all"})
    assert time.monotonic() - began < 10
    for partition in range(3):
        await_isr(cluster, name, cluster.ids, partition)
        assert read_values(cluster.bootstrap, name, partition) == [b"before", b"after"]


def test_the_controller_hangs(cluster: LocalCluster, name: str) -> None:
    """Another broker becomes the controller and creates topics."""
    hanging = cluster.metadata(1).controller_id
    others = [broker for broker in cluster.ids if broker != hanging]
    cluster.pause(hanging)
    began = time.monotonic()
    try:
        bootstrap = ",".join(f"localhost:{cluster.port(b)}" for b in others)
        eventually(
            lambda: all(cluster.metadata(b, []).controller_id in others for b in others),
            "another controller",
        )
        assert time.monotonic() - began < SESSION_S + 3
        with Cluster(bootstrap, timeout_s=10) as client:
            create_topic(client, name, 2, 2)
        send_all(bootstrap, name, [b"x"], conf={"acks": "all"})
    finally:
        cluster.resume(hanging)
    await_members(cluster)
    assert read_values(cluster.bootstrap, name) == [b"x"]
    assert cluster.metadata(hanging).controller_id in others


def test_a_request_to_a_hanging_controller_ends_in_time(cluster: LocalCluster, name: str) -> None:
    """Another broker forwards the request; the next controller responds to it."""
    hanging = cluster.metadata(1).controller_id
    other = next(broker for broker in cluster.ids if broker != hanging)
    with Cluster(f"localhost:{cluster.port(other)}", timeout_s=20) as client:
        connection = client.broker(other)
        cluster.pause(hanging)
        began = time.monotonic()
        try:
            topic = {"name": name, "num_partitions": 1, "replication_factor": 2}
            request = {"topics": [topic], "timeout_ms": 15_000}
            answer = connection.call(19, request, timeout_s=40)["topics"][0]
        finally:
            cluster.resume(hanging)
        took = time.monotonic() - began
    # Success or a retriable error, without half a minute of waiting.
    assert took < SESSION_S + 5
    assert answer["error_code"] in (0, 41, 7)
    await_members(cluster)


def test_a_short_pause_changes_nothing(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name)
    leader = leader_of(cluster, name)
    with Cluster(cluster.bootstrap) as client:
        before = client.refresh([name]).topics[name].partitions[0]
        cluster.pause(leader)
        time.sleep(SESSION_S / 5)  # must stay: the length of the pause is what is tested
        cluster.resume(leader)
        send_all(cluster.bootstrap, name, [b"x"], conf={"acks": "all"})
        assert client.refresh([name]).topics[name].partitions[0] == before
