"""A clean stop: the broker first hands over leadership, and its next start recovers nothing."""

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_cluster import (
    LONG_SESSIONS,
    PATIENCE_S,
    SOON_S,
    Sent,
    await_isr,
    await_members,
    controller_of,
    eventually,
    leader_of,
    make_topic,
    metadata_of,
    read_values,
    said,
    segment_bytes,
    send_all,
    state_of,
)

from tidelog.shell.supervisor.cluster import LocalCluster

CLEAN = ".kafka_cleanshutdown"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings=LONG_SESSIONS) as cluster:
        yield cluster


def test_a_rolling_restart_is_not_noticed(cluster: LocalCluster, name: str) -> None:
    """A producer that retries sees no error, and no record waits for the end of a session."""
    make_topic(cluster.bootstrap, name, partitions=3)
    sent = Sent(cluster.bootstrap, name, {"enable.idempotence": True})
    over = threading.Event()
    waits: list[float] = []

    def produce() -> None:
        number = 0
        while not over.is_set():
            number += 1
            began = time.monotonic()
            value = b"%d" % number
            sent.send(value, number % 3)
            while value not in sent.acknowledged and time.monotonic() < began + PATIENCE_S:
                sent.client.poll(0.01)
            waits.append(time.monotonic() - began)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        for broker in cluster.ids:
            assert cluster.stop(broker) == 0
            cluster.start_broker(broker)
            for partition in range(3):
                await_isr(cluster, name, cluster.ids, partition)
    finally:
        over.set()
        thread.join()
    sent.settle()
    assert not sent.failed
    found = [value for p in range(3) for value in read_values(cluster.bootstrap, name, p)]
    assert sorted(found) == sorted(sent.acknowledged)
    assert max(waits) < SOON_S, sorted(waits)[-5:]


def test_leadership_is_handed_over_before_the_end(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name, partitions=6)
    stopped = leader_of(cluster, name)
    assert cluster.stop(stopped) == 0
    # Check at once: a broker stops when all others know that it leads nothing.
    other = next(broker for broker in cluster.ids if broker != stopped)
    view = metadata_of(cluster, other, [name]).topics[name]
    assert all(p.leader not in (stopped, -1) for p in view.values())
    assert all(stopped not in p.isr for p in view.values())
    cluster.start_broker(stopped)
    for partition in range(6):
        await_isr(cluster, name, cluster.ids, partition)


def test_a_clean_stop_leaves_its_mark_and_needs_no_recovery(
    cluster: LocalCluster, name: str
) -> None:
    make_topic(cluster.bootstrap, name)
    send_all(cluster.bootstrap, name, [b"%d" % number for number in range(500)])
    broker = leader_of(cluster, name)
    mark = Path(cluster.log_dir(broker), CLEAN)
    assert not mark.exists()
    assert cluster.stop(broker) == 0
    assert mark.exists()
    before = said(cluster, broker)
    cluster.start_broker(broker)
    assert not mark.exists()
    assert not recovered(said(cluster, broker)[len(before) :], f"{name}-0")

    cluster.kill(broker)
    assert not mark.exists()
    before = said(cluster, broker)
    cluster.start_broker(broker)
    assert recovered(said(cluster, broker)[len(before) :], f"{name}-0")
    await_isr(cluster, name, cluster.ids)
    assert state_of(cluster, broker, name)["log_end_offset"] == 500


def recovered(text: str, partition: str) -> bool:
    """Return whether the log of this start reports a recovery of this partition."""
    return any(partition in line and "recover" in line.lower() for line in text.splitlines())


def test_all_stop_at_once(cluster: LocalCluster, name: str) -> None:
    """No broker is left to take over leadership: all stop soon, and nothing is lost."""
    make_topic(cluster.bootstrap, name, partitions=3)
    wanted = [b"%d" % number for number in range(300)]
    for partition in range(3):
        send_all(cluster.bootstrap, name, wanted, partition, {"acks": "all"})
    began = time.monotonic()
    threads = [threading.Thread(target=cluster.stop, args=(broker,)) for broker in cluster.ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - began < SOON_S
    assert [cluster.exit_code(broker) for broker in cluster.ids] == [0, 0, 0]
    assert all(Path(cluster.log_dir(broker), CLEAN).exists() for broker in cluster.ids)
    for broker in cluster.ids:
        cluster.start_broker(broker, wait=False)
    cluster.wait_ready()
    for partition in range(3):
        await_isr(cluster, name, cluster.ids, partition)
        assert read_values(cluster.bootstrap, name, partition) == wanted


def test_the_last_broker_stops_without_waiting(cluster: LocalCluster, name: str) -> None:
    """The other brokers are dead, so none can take over: the last broker stops without waiting."""
    make_topic(cluster.bootstrap, name)
    send_all(cluster.bootstrap, name, [b"kept"], conf={"acks": "all"})
    last = cluster.ids[0]
    for broker in cluster.ids[1:]:
        cluster.kill(broker)
    began = time.monotonic()
    assert cluster.stop(last) == 0
    assert time.monotonic() - began < SOON_S
    for broker in cluster.ids:
        cluster.start_broker(broker, wait=False)
    cluster.wait_ready()
    await_isr(cluster, name, cluster.ids)
    assert read_values(cluster.bootstrap, name) == [b"kept"]


def test_deleted_folders_are_copied_from_the_last_leader(name: str) -> None:
    """The procedure of docs/how-to/audit-replicas.md for damaged replicas."""
    with LocalCluster(settings=LONG_SESSIONS) as cluster:
        make_topic(cluster.bootstrap, name, configs={"min.insync.replicas": "2"})
        values = [b"%d" % n for n in range(200)]
        send_all(cluster.bootstrap, name, values, conf={"acks": "all"})
        sound, *damaged = cluster.ids
        for broker in damaged:
            assert cluster.stop(broker) == 0
        await_isr(cluster, name, [sound])
        assert leader_of(cluster, name) == sound
        for broker in damaged:
            shutil.rmtree(Path(cluster.log_dir(broker)) / f"{name}-0")
        assert cluster.stop(sound) == 0
        for broker in (*damaged, sound):
            cluster.start_broker(broker, wait=False)
        cluster.wait_ready()
        # The preferred replica may lead again by now, with the records copied from `sound`.
        await_isr(cluster, name, cluster.ids)
        assert read_values(cluster.bootstrap, name) == values
        for broker in damaged:
            assert segment_bytes(cluster, broker, name) == segment_bytes(cluster, sound, name)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_another_broker_is_controller_soon_after_the_controller_ends(
    cluster: LocalCluster, end: str
) -> None:
    """Long before a session could time out."""
    await_members(cluster)
    old = controller_of(cluster)
    others = [broker for broker in cluster.ids if broker != old]
    if end == "stop":
        assert cluster.stop(old) == 0
    else:
        cluster.kill(old)
    try:
        eventually(
            lambda: all(cluster.metadata(b, []).controller_id in others for b in others),
            "another controller",
            SOON_S,
        )
    finally:
        cluster.start_broker(old)
    await_members(cluster)
