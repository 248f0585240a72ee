"""Three brokers in one process behave as three processes do, with less memory."""

import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from real_cluster import (
    LONG_SESSIONS,
    PATIENCE_S,
    Sent,
    await_isr,
    consumer,
    eventually,
    leader_of,
    make_topic,
    metadata_of,
    read_values,
    resident_mb,
    said,
    segment_bytes,
    send_all,
    take,
)

from tidelog.core.record.record import Record
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.producer import Producer
from tidelog.shell.supervisor.cluster import LocalCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(one_process=True, settings=LONG_SESSIONS) as cluster:
        yield cluster


def test_three_brokers_one_process(cluster: LocalCluster) -> None:
    assert len({cluster.pid(broker) for broker in cluster.ids}) == 1
    assert len({cluster.port(broker) for broker in cluster.ids}) == 3
    assert sorted(metadata_of(cluster, 2).brokers) == cluster.ids
    assert resident_mb(cluster.pid(1)) < 120


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_produce_and_consume(cluster: LocalCluster, name: str, codec: str) -> None:
    make_topic(cluster.bootstrap, name, partitions=3)
    conf = {"enable.idempotence": True, "compression.type": codec}
    for partition in range(3):
        wanted = [b"%d/%d" % (partition, number) for number in range(3000)]
        send_all(cluster.bootstrap, name, wanted, partition, conf)
        assert read_values(cluster.bootstrap, name, partition) == wanted
        first, *others = [segment_bytes(cluster, b, name, partition) for b in cluster.ids]
        assert all(first[: len(other)] == other[: len(first)] for other in others)


def test_large_messages_pass_between_its_brokers(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name)
    wanted = [bytes([number]) * 900_000 for number in range(6)]
    send_all(cluster.bootstrap, name, wanted, conf={"acks": "all"})
    assert read_values(cluster.bootstrap, name) == wanted


def test_all_brokers_of_one_process_are_killed_and_restarted(
    cluster: LocalCluster, name: str
) -> None:
    make_topic(cluster.bootstrap, name)
    sent = Sent(cluster.bootstrap, name, {"enable.idempotence": True})
    over = threading.Event()
    count = 0

    def produce() -> None:
        nonlocal count
        while not over.is_set():
            sent.send(b"%d" % count)
            count += 1
            time.sleep(0.001)  # must stay: limits the rate of the load

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        for way in (cluster.kill, cluster.stop, cluster.kill):
            eventually(partial(lambda before: count > before + 50, count), "more records were sent")
            way(1)
            assert not any(cluster.is_running(broker) for broker in cluster.ids)
            cluster.start_broker(1)
    finally:
        over.set()
        thread.join()
    sent.settle()
    assert not sent.failed
    assert read_values(cluster.bootstrap, name) == [b"%d" % number for number in range(count)]
    await_isr(cluster, name, cluster.ids)


def test_a_clean_stop_of_all(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name)
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        Producer(client).append(name, 0, [Record(None, b"kept", int(time.time() * 1000), ())])
    assert cluster.stop(1) == 0
    for broker in cluster.ids:
        assert Path(cluster.log_dir(broker), ".kafka_cleanshutdown").exists()
    before = len(said(cluster, 1))
    cluster.start_broker(1)
    assert "recovering" not in said(cluster, 1)[before:]
    with consumer(cluster.bootstrap) as client:
        client.assign([TopicPartition(name, 0, 0)])
        assert take(client, 1)[0].value() == b"kept"


def test_the_other_brokers_of_one_process_continue_when_one_fails(name: str) -> None:
    with LocalCluster(one_process=True, fault_switches=True, settings=LONG_SESSIONS) as cluster:
        make_topic(cluster.bootstrap, name)
        wanted = [b"%d" % number for number in range(200)]
        send_all(cluster.bootstrap, name, wanted[:100], conf={"acks": "all"})
        full = leader_of(cluster, name)
        cluster.set_faults(full, {"disk_full": True})
        send_all(cluster.bootstrap, name, wanted[100:], conf={"enable.idempotence": True})
        assert cluster.is_running(full), "the process has two more brokers"
        eventually(lambda: "No space left" in said(cluster, full), "the cause in the log")
        await_isr(cluster, name, [broker for broker in cluster.ids if broker != full])
        assert read_values(cluster.bootstrap, name) == wanted
        assert cluster.stop(full) == 1, "not all of them stopped cleanly"
        cluster.start_broker(full)
        await_isr(cluster, name, cluster.ids)
        assert read_values(cluster.bootstrap, name) == wanted
