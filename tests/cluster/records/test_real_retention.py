"""Retention deletes old segments, by age and by size, while consumers read them."""

import threading
import time

from confluent_kafka import Message, TopicPartition
from real_cluster import (
    LONG_SESSIONS,
    consumer,
    ends,
    eventually,
    leader_of,
    make_topic,
    partition_dir,
    read_values,
    send_all,
    set_topic_config,
    state_of,
    take,
)

from tidelog.shell.supervisor.cluster import LocalCluster

CHUNK = 10_000
SMALL_BATCHES = {"batch.size": 20_000}
"""Smaller than a segment."""


def chunk(number: int) -> bytes:
    return b"%08d" % number * (CHUNK // 8)


def test_by_size(calm: LocalCluster, name: str) -> None:
    configs = {"segment.bytes": "50000", "retention.bytes": "100000", "file.delete.delay.ms": "100"}
    make_topic(calm.bootstrap, name, configs=configs)
    for start in range(0, 60, 3):
        send_all(calm.bootstrap, name, [chunk(n) for n in range(start, start + 3)])
    # Retention may go on while the records are read.
    with consumer(calm.bootstrap, {"auto.offset.reset": "earliest"}) as client:
        low, high = eventually(
            lambda: ends(client, name) if ends(client, name)[0] > 40 else None, "a later start"
        )
        assert high == 60
        client.assign([TopicPartition(name, 0, low)])
        found: list[Message] = []
        while not found or found[-1].offset() != 59:
            found += take(client, 1)
    offsets = [message.offset() or 0 for message in found]
    assert offsets == sorted(offsets)
    assert [message.value() for message in found] == [chunk(offset) for offset in offsets]
    folders = [partition_dir(calm, broker, name) for broker in calm.ids]
    eventually(
        lambda: all(sum(f.stat().st_size for f in d.glob("*.log")) <= 200_000 for d in folders),
        "smaller files on every replica",
    )


def test_by_age(calm: LocalCluster, name: str) -> None:
    configs = {"segment.bytes": "50000", "retention.ms": "600", "file.delete.delay.ms": "100"}
    make_topic(calm.bootstrap, name, configs=configs)
    for start in range(0, 20, 2):
        send_all(calm.bootstrap, name, [chunk(n) for n in range(start, start + 2)])
    with consumer(calm.bootstrap) as client:
        eventually(lambda: ends(client, name) == (20, 20), "all of it is too old")
    assert send_all(calm.bootstrap, name, [b"new"]) == [20]
    eventually(
        lambda: {state_of(calm, b, name)["log_start_offset"] for b in calm.ids} <= {20, 21},
        "followers start there too",
    )


def test_readers_continue_while_segments_are_deleted(calm: LocalCluster, name: str) -> None:
    """Readers continue at the new log start; their records are complete and in order."""
    configs = {"segment.bytes": "50000", "retention.bytes": "100000", "file.delete.delay.ms": "0"}
    make_topic(calm.bootstrap, name, configs=configs)
    stop = threading.Event()
    problems: list[str] = []
    seen: list[int] = []

    def read_on() -> None:
        conf = {"auto.offset.reset": "earliest", "fetch.message.max.bytes": 20_000}
        with consumer(calm.bootstrap, conf) as client:
            client.assign([TopicPartition(name, 0, 0)])
            while not stop.is_set():
                for message in client.consume(5, 0.05):
                    if message.error() is None:
                        offset = message.offset()
                        assert offset is not None
                        if message.value() != chunk(offset) or (seen and offset <= seen[-1]):
                            problems.append(f"offset {offset} after {seen[-1:]}")
                        seen.append(offset)
                time.sleep(0.02)  # must stay: the reader has to be slower than the writer

    thread = threading.Thread(target=read_on)
    thread.start()
    try:
        for start in range(0, 300, 10):
            values = [chunk(n) for n in range(start, start + 10)]
            send_all(calm.bootstrap, name, values, conf=SMALL_BATCHES)
            time.sleep(0.05)  # must stay: limits the rate of the writer
        eventually(lambda: seen and seen[-1] == 299, "the reader came to the end")
    finally:
        stop.set()
        thread.join()
    assert not problems


def test_a_follower_below_the_leaders_log_start_replaces_its_log(name: str) -> None:
    """The leader deleted all records of the follower, which starts at the new log start."""
    settings = {**LONG_SESSIONS, "log.retention.check.interval.ms": "200"}
    with LocalCluster(settings=settings) as cluster:
        configs = {
            "segment.bytes": "50000",
            "retention.bytes": "100000",
            "file.delete.delay.ms": "100",
        }
        make_topic(cluster.bootstrap, name, configs=configs)
        send_all(cluster.bootstrap, name, [chunk(n) for n in range(3)], conf={"acks": "all"})
        away = next(b for b in cluster.ids if b != leader_of(cluster, name))
        cluster.kill(away)
        for start in range(3, 60, 3):
            send_all(cluster.bootstrap, name, [chunk(n) for n in range(start, start + 3)])
        leader = leader_of(cluster, name)
        eventually(
            lambda: state_of(cluster, leader, name)["log_start_offset"] > 10, "a later start"
        )
        # Else the new leader may delete what is being read.
        set_topic_config(cluster, name, "retention.bytes", "-1")
        cluster.start_broker(away)
        eventually(
            lambda: (
                state_of(cluster, away, name)["log_end_offset"] == 60
                and away in state_of(cluster, leader, name)["isr"]
            ),
            "it has caught up",
        )
        assert state_of(cluster, away, name)["log_start_offset"] > 10
        for broker in cluster.ids:
            if broker != away:
                cluster.stop(broker)
        # Alone it is below min ISR, but it leads and can be read.
        found = read_values(cluster.bootstrap, name)
        assert found[-1] == chunk(59)
        assert found == [chunk(n) for n in range(60 - len(found), 60)]
