"""One or all brokers hang (SIGSTOP): the cluster continues, or recovers without help."""

import time
from collections.abc import Iterator

import pytest
from real_cluster import (
    CALL_S,
    LONG_SESSIONS,
    PATIENCE_S,
    QUICK_SESSIONS,
    SOON_S,
    await_isr,
    await_members,
    controller_of,
    eventually,
    leader_of,
    make_topic,
    read_values,
    send_all,
)

from tidelog.core.api_table import CREATE_TOPICS
from tidelog.core.errors import ErrorCode
from tidelog.shell.client.admin import create_topic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

SESSION_S = 2.0
SHORT_S = 1.0
"""Two intervals between heartbeats."""


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
    for partition in range(3):
        send_all(cluster.bootstrap, name, [b"after"], partition, {"acks": "all"})
    for partition in range(3):
        await_isr(cluster, name, cluster.ids, partition)
        assert read_values(cluster.bootstrap, name, partition) == [b"before", b"after"]


def test_the_controller_hangs(cluster: LocalCluster, name: str) -> None:
    """Another broker becomes the controller and creates topics."""
    hanging = controller_of(cluster)
    others = [broker for broker in cluster.ids if broker != hanging]
    cluster.pause(hanging)
    try:
        bootstrap = ",".join(f"localhost:{cluster.port(b)}" for b in others)
        # A topic that is created earlier may get a replica on the paused broker.
        eventually(
            lambda: all(goes_on_without(cluster, hanging, b) for b in others), "another controller"
        )

        def create() -> bool:
            with Cluster(bootstrap, timeout_s=CALL_S) as client:
                create_topic(client, name, 2, 2, exist_ok=True)
            return True

        eventually(create, "a topic is created")
        send_all(bootstrap, name, [b"x"], conf={"acks": "all"})
    finally:
        cluster.resume(hanging)
    await_members(cluster)
    assert read_values(cluster.bootstrap, name) == [b"x"]
    # The paused broker follows the new controller, or was elected again by all.
    controller_of(cluster)


def goes_on_without(cluster: LocalCluster, hanging: int, broker: int) -> bool:
    """Return whether a broker knows another controller, and does not list the paused broker."""
    view = cluster.metadata(broker, [])
    return view.controller_id in cluster.ids and hanging not in (*view.brokers, view.controller_id)


def test_a_request_to_a_hanging_controller_ends_in_time(name: str) -> None:
    """Another broker forwards the request; a change of the controller ends it before a time-out."""
    with LocalCluster(settings={**QUICK_SESSIONS, "request.timeout.ms": "240000"}) as cluster:
        hanging = controller_of(cluster)
        other = next(broker for broker in cluster.ids if broker != hanging)
        with Cluster(f"localhost:{cluster.port(other)}", timeout_s=PATIENCE_S) as client:
            connection = client.broker(other)
            cluster.pause(hanging)
            began = time.monotonic()
            try:
                topic = {"name": name, "num_partitions": 1, "replication_factor": 2}
                request = {"topics": [topic], "timeout_ms": 240_000}
                answer = connection.call(CREATE_TOPICS, request, timeout_s=PATIENCE_S)["topics"][0]
                took = time.monotonic() - began
            finally:
                cluster.resume(hanging)
        # Success or a retriable error.
        assert took < SOON_S
        assert answer["error_code"] in (
            ErrorCode.NONE,
            ErrorCode.NOT_CONTROLLER,
            ErrorCode.REQUEST_TIMED_OUT,
        )
        await_members(cluster)


def test_a_short_pause_changes_nothing(name: str) -> None:
    with LocalCluster(settings=LONG_SESSIONS) as cluster:
        make_topic(cluster.bootstrap, name)
        leader = leader_of(cluster, name)
        with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
            before = client.refresh([name]).topics[name].partitions[0]
            cluster.pause(leader)
            time.sleep(SHORT_S)  # must stay: the length of the pause is what is tested
            cluster.resume(leader)
            send_all(cluster.bootstrap, name, [b"x"], conf={"acks": "all"})
            assert client.refresh([name]).topics[name].partitions[0] == before
