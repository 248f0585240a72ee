"""Compaction on real brokers: every replica cleans its own log, and no reader misses a record.

The tests write each key many times; the last record of each key must remain. The readers use
librdkafka.
"""

import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from real_cluster import (
    LONG_SESSIONS,
    PATIENCE_S,
    Sent,
    await_isr,
    consumer,
    ends,
    eventually,
    leader_of,
    make_topic,
    partition_dir,
    said,
    send_all,
    state_of,
)

from tidelog.core.record.decoder import decode
from tidelog.core.record.record_batch import batches
from tidelog.shell.supervisor.cluster import LocalCluster

KEYS = 50
ROUNDS = 40
SETTINGS = {
    **LONG_SESSIONS,
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "200",
    "log.segment.delete.delay.ms": "500",
}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "86400000",
}
IN_ORDER = {"batch.size": 4000, "enable.idempotence": True}
"""A batch is smaller than a segment."""
Found = dict[bytes, tuple[int, bytes | None]]
"""Key -> offset and value of its last record."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings=SETTINGS) as cluster:
        yield cluster


def write(bootstrap: str, topic: str, rounds: range, **conf: str) -> None:
    """Write one record for every key in each round."""
    sent = Sent(bootstrap, topic, {**IN_ORDER, **conf})
    for number in rounds:
        for key in range(KEYS):
            value = b"%d of key %d " % (number, key) + b"x" * 80
            sent.send(value, key=b"key-%d" % key)
    sent.settle()
    assert not sent.failed


def newest(number: int) -> dict[bytes, bytes]:
    return {b"key-%d" % k: b"%d of key %d " % (number, k) + b"x" * 80 for k in range(KEYS)}


def read_to_end(client: Consumer, topic: str) -> list[tuple[int, bytes, bytes | None]]:
    """Return every record up to the high watermark.

    Stop at that offset, not when a poll is empty: an empty poll may only mean a slow broker.
    """
    low, high = ends(client, topic)
    client.assign([TopicPartition(topic, 0, low)])
    found: list[tuple[int, bytes, bytes | None]] = []
    until = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < until, f"{len(found)} records, the end is {high}"
        for message in client.consume(500, 0.2):
            assert message.error() is None, message.error()
            offset, key = message.offset(), message.key()
            assert offset is not None
            assert isinstance(key, bytes)
            value = message.value()
            assert value is None or isinstance(value, bytes)
            found.append((offset, key, value))
        (position,) = client.position([TopicPartition(topic, 0)])
        if position.offset >= high or (found and found[-1][0] >= high - 1):
            return found


def records(folder: Path) -> list[tuple[int, bytes, bytes | None]]:
    """Return the records in a replica's files."""
    found = []
    for file in sorted(folder.glob("*.log")):
        for batch in batches(file.read_bytes()):
            assert batch.crc_ok()
            for record in decode(batch):
                assert record.key is not None
                found.append((record.offset, record.key, record.value))
    return found


def last_of(found: list[tuple[int, bytes, bytes | None]]) -> Found:
    return {key: (offset, value) for offset, key, value in found}


def compacted(cluster: LocalCluster, topic: str, broker: int, most: int) -> bool:
    folder = partition_dir(cluster, broker, topic)
    return len(records(folder)) <= most and not list(folder.glob("*.cleaned"))


def await_compacted(cluster: LocalCluster, topic: str, most: int = 8 * KEYS) -> None:
    """Wait until every broker has compacted its log to at most `most` records.

    The active segment is never compacted, nor is a dirty part that is too small.
    """
    eventually(
        lambda: all(compacted(cluster, topic, broker, most) for broker in cluster.ids),
        "all brokers compact",
    )


def await_kept(cluster: LocalCluster, topic: str, broker: int, wanted: Found) -> None:
    """Wait until a replica's files hold these last records.

    The cleaner may replace files while they are read.
    """
    folder = partition_dir(cluster, broker, topic)
    eventually(lambda: last_of(records(folder)) == wanted, f"the last records on broker {broker}")


def test_every_replica_keeps_the_last_record_of_each_key(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name, configs=COMPACTED)
    write(cluster.bootstrap, name, range(ROUNDS))
    await_compacted(cluster, name)
    with consumer(cluster.bootstrap) as client:
        read = read_to_end(client, name)
    assert {key: value for key, (_, value) in last_of(read).items()} == newest(ROUNDS - 1)
    offsets = [offset for offset, _, _ in read]
    assert offsets == sorted(offsets)
    assert all(offset % KEYS == int(key[4:]) for offset, key, _ in read), "none has moved"
    for broker in cluster.ids:
        await_kept(cluster, name, broker, last_of(read))
        eventually(partial(is_noted, cluster, name, broker), "the cleaning in checkpoint and log")


def is_noted(cluster: LocalCluster, topic: str, broker: int) -> bool:
    """Return whether the broker's checkpoint and its log name the cleaning."""
    checkpoint = Path(cluster.log_dir(broker), "cleaner-offset-checkpoint").read_text()
    return f"{topic} 0 " in checkpoint and f"compacted {topic}-0" in said(cluster, broker)


def test_compressed_batches_stay_readable(cluster: LocalCluster, name: str) -> None:
    codecs = ("gzip", "snappy", "lz4", "zstd")
    for codec in codecs:
        topic = f"{name}-{codec}"
        make_topic(cluster.bootstrap, topic, configs={**COMPACTED, "segment.bytes": "3000"})
        packed = {"compression.type": codec, "linger.ms": "5"}
        write(cluster.bootstrap, topic, range(ROUNDS), **packed)
    for codec in codecs:
        await_compacted(cluster, f"{name}-{codec}", ROUNDS * KEYS // 2)
        with consumer(cluster.bootstrap) as client:
            read = read_to_end(client, f"{name}-{codec}")
        assert {key: value for key, (_, value) in last_of(read).items()} == newest(ROUNDS - 1)


def test_deleted_keys_are_removed(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name, configs={**COMPACTED, "delete.retention.ms": "300"})
    write(cluster.bootstrap, name, range(5))
    sent = Sent(cluster.bootstrap, name, IN_ORDER)
    for key in range(0, KEYS, 2):
        sent.client.produce(name, None, key=b"key-%d" % key)
    sent.settle()
    until = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < until, "they never go"
        filling = [b"%d" % number * 1000 for number in range(20, 40)]
        send_all(cluster.bootstrap, name, filling, conf=IN_ORDER, key=b"z")
        with consumer(cluster.bootstrap) as client:
            found = last_of(read_to_end(client, name))
        for key in range(1, KEYS, 2):
            assert found[b"key-%d" % key][1] is not None
        deleted = {b"key-%d" % key for key in range(0, KEYS, 2)} & set(found)
        assert all(found[key][1] is None for key in deleted)
        if not deleted:
            return
        time.sleep(0.2)


def test_compact_and_delete_does_both(cluster: LocalCluster, name: str) -> None:
    both = {**COMPACTED, "cleanup.policy": "compact,delete", "retention.bytes": "60000"}
    make_topic(cluster.bootstrap, name, configs=both)
    sent = Sent(cluster.bootstrap, name, IN_ORDER)
    for number in range(1500):
        sent.send(b"%d" % number + b"x" * 100, key=b"only-%d" % (number % 1000))
    sent.settle()
    # Retention may go on while the records are read.
    with consumer(cluster.bootstrap, {"auto.offset.reset": "earliest"}) as client:

        def come_to_rest() -> tuple[int, int] | None:
            found = ends(client, name)
            time.sleep(0.7)  # must stay: a check of retention that deletes nothing leaves no trace
            return found if found[0] > 0 and found == ends(client, name) else None

        low, _ = eventually(come_to_rest, "a later start")
        read = read_to_end(client, name)
    assert read[0][0] >= low
    assert last_of(read)[b"only-%d" % 499][0] == 1499


def test_readers_during_a_cleaning_read_complete_records(cluster: LocalCluster, name: str) -> None:
    """The cleaner replaces files while consumers read them.

    Each record that a consumer receives is complete, in order, and has its original offset.
    """
    make_topic(cluster.bootstrap, name, configs={**COMPACTED, "min.cleanable.dirty.ratio": "0"})
    stop = threading.Event()
    problems: list[str] = []
    rounds = 0

    def read_again_and_again() -> None:
        nonlocal rounds
        while not stop.is_set():
            conf = {"fetch.message.max.bytes": 5000, "fetch.min.bytes": 2000, "check.crcs": True}
            with consumer(cluster.bootstrap, conf) as client:
                before = -1
                for offset, key, value in read_to_end(client, name):
                    number = offset // KEYS
                    wanted = newest(number)[key] if offset % KEYS == int(key[4:]) else None
                    if value != wanted or offset <= before:
                        problems.append(f"offset {offset} after {before}: {key!r} {value!r}")
                        return
                    before = offset
                rounds += 1

    reader = threading.Thread(target=read_again_and_again)
    write(cluster.bootstrap, name, range(10))
    reader.start()
    try:
        for number in range(10, 40, 5):
            before = rounds
            write(cluster.bootstrap, name, range(number, number + 5))
            eventually(partial(lambda before: rounds > before or problems, before), "a reading")
        eventually(lambda: rounds > 2, "it was read some times")
    finally:
        stop.set()
        reader.join(PATIENCE_S)
    assert not problems


def test_a_follower_that_was_away_copies_what_is_left(cluster: LocalCluster, name: str) -> None:
    """The follower copies a log that already has gaps; its copy survives kill -9."""
    make_topic(cluster.bootstrap, name, configs=COMPACTED)
    leader = leader_of(cluster, name)
    away = next(broker for broker in cluster.ids if broker != leader)
    cluster.kill(away)
    write(cluster.bootstrap, name, range(ROUNDS))
    eventually(lambda: compacted(cluster, name, leader, 8 * KEYS), "the leader compacts")
    cluster.restart(away)
    await_isr(cluster, name, cluster.ids)
    end = ROUNDS * KEYS
    eventually(lambda: state_of(cluster, away, name)["log_end_offset"] == end, "it has all")
    cluster.kill(away)
    cluster.restart(away)
    await_isr(cluster, name, cluster.ids)
    assert "removed" not in said(cluster, away).rpartition("listening")[2]
    offset = (ROUNDS - 1) * KEYS
    last = newest(ROUNDS - 1)
    await_kept(
        cluster, name, away, {b"key-%d" % k: (offset + k, last[b"key-%d" % k]) for k in range(KEYS)}
    )


def test_brokers_that_are_killed_while_they_clean_lose_nothing(tmp_path: Path) -> None:
    """kill -9 several times while a cleaner runs; cleaners are slowed down to make that likely."""
    slow = {**SETTINGS, "log.cleaner.io.max.bytes.per.second": "400000"}
    with LocalCluster(settings=slow, data=str(tmp_path)) as cluster:
        topic = make_topic(cluster.bootstrap, "orders", configs=COMPACTED)
        met = number = turn = 0
        give_up = time.monotonic() + PATIENCE_S
        while turn < 4 or (met < 2 and time.monotonic() < give_up):
            write(cluster.bootstrap, topic, range(number, number + 10))
            number += 10
            victim = cluster.ids[turn % len(cluster.ids)]
            folder = partition_dir(cluster, victim, topic)
            until = time.monotonic() + 5
            while time.monotonic() < until and not list(folder.glob("*.cleaned")):
                time.sleep(0.005)
            met += bool(list(folder.glob("*.cleaned")))
            cluster.kill(victim)
            cluster.restart(victim)
            await_isr(cluster, topic, cluster.ids)
            eventually(lambda at=folder: not list(at.glob("*.swap")), "no file of a cleaning")  # type: ignore[misc]
            turn += 1
        assert met >= 2, "it was not the moment"
        with consumer(cluster.bootstrap) as client:
            read = last_of(read_to_end(client, topic))
        assert {key: value for key, (_, value) in read.items()} == newest(number - 1)
        for broker in cluster.ids:
            await_kept(cluster, topic, broker, read)
