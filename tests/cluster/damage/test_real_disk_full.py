"""A broker whose disk is full logs the reason and stops; the others continue without loss."""

from collections.abc import Iterator

import pytest
from real_cluster import (
    Sent,
    await_isr,
    eventually,
    leader_of,
    make_topic,
    read_values,
    said,
    segment_bytes,
    send_all,
)

from tidelog.shell.supervisor.cluster import LocalCluster
from tidelog.shell.supervisor.metadata_probe import ProbeFailed


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(fault_switches=True) as cluster:
        yield cluster


def fill_up(cluster: LocalCluster, broker: int) -> None:
    try:
        assert cluster.set_faults(broker, {"disk_full": True})["disk_full"] is True
    except ProbeFailed:  # it may end before it responds
        eventually(lambda: not cluster.is_running(broker), "it stops")


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_full_disk(cluster: LocalCluster, name: str, role: str) -> None:
    make_topic(cluster.bootstrap, name)
    sent = Sent(cluster.bootstrap, name, {"enable.idempotence": True, "request.timeout.ms": 5000})
    wanted = [b"%d" % number for number in range(900)]
    for value in wanted[:300]:
        sent.send(value)
    sent.settle()
    leader = leader_of(cluster, name)
    full = leader if role == "leader" else next(b for b in cluster.ids if b != leader)
    fill_up(cluster, full)
    for value in wanted[300:600]:
        sent.send(value)
    sent.settle()
    assert not sent.failed
    eventually(lambda: not cluster.is_running(full), "it stops")
    assert cluster.exit_code(full) == 1
    assert "No space left" in cluster.how_it_ended(full)
    last_words = said(cluster, full).splitlines()[-1]
    assert "No space left" in last_words
    assert "Traceback" not in said(cluster, full)

    cluster.start_broker(full)
    await_isr(cluster, name, cluster.ids)
    for value in wanted[600:]:
        sent.send(value)
    sent.settle()
    assert not sent.failed
    assert read_values(cluster.bootstrap, name) == wanted
    eventually(
        lambda: len({segment_bytes(cluster, b, name) for b in cluster.ids}) == 1, "replicas alike"
    )


def test_a_full_disk_at_the_controller(cluster: LocalCluster, name: str) -> None:
    """The controller can't create the log of a new topic; the topic is created on the others."""
    eventually(lambda: cluster.metadata(1).controller_id > 0, "there is a controller")
    controller = cluster.metadata(1).controller_id
    fill_up(cluster, controller)
    other = next(b for b in cluster.ids if b != controller)
    bootstrap = f"localhost:{cluster.port(other)}"
    assert send_all(bootstrap, name, [b"x"], conf={"acks": "all"}) == [0]
    eventually(lambda: not cluster.is_running(controller), "it stops")
    cluster.start_broker(controller)
    await_isr(cluster, name, cluster.ids)
    assert read_values(cluster.bootstrap, name) == [b"x"]
