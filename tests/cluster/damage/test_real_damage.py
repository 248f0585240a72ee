"""The files of one replica are damaged while all brokers are down; two replicas are intact.

No acknowledged record may be lost, and the cluster repairs itself: all replicas are in sync again
and hold the same bytes. The tests apply each kind of damage of `tidelog verify --faults damage` to
the broker that led last, after a clean stop and after kill -9. Each kind of damage has its own
partition, so that one cluster run covers many.
"""

from collections.abc import Callable, Iterator
from itertools import zip_longest

import pytest
from confluent_kafka import TopicPartition
from real_cluster import (
    PATIENCE_S,
    Sent,
    assert_all_run,
    consumer,
    eventually,
    make_topic,
    segment_bytes,
    take,
)

from tidelog.apps.verify.nemesis.damage import (
    BROKER_WAYS,
    CHECKPOINTS,
    PARTITION_WAYS,
    WHOLE_FILES,
    damage,
)
from tidelog.core import types
from tidelog.shell.client import admin
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

BROKERS = (1, 2, 3)
DAMAGED = 1
MENDED_S = 240.0
RECORDS = 160
PRODUCER = {"acks": "all", "enable.idempotence": True, "batch.num.messages": 4}
"""Idempotent: the leader changes while records are sent, and retries would add duplicates."""
CONFIGS = {
    "min.insync.replicas": "2",
    "segment.bytes": "16384",
    "index.interval.bytes": "1024",
}
"""Four segments or more, each of about ten batches."""
CLEAN = pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after kill -9"])


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


def value(partition: int, number: int) -> bytes:
    return b"%04d %04d" % (partition, number) + b"." * 400


class Topic:
    """A topic whose partitions all receive the same number of records."""

    def __init__(self, cluster: LocalCluster, name: str, partitions: int) -> None:
        self.cluster = cluster
        self.name = make_topic(cluster.bootstrap, name, partitions, 3, CONFIGS)
        self.partitions = range(partitions)
        self.sent = 0

    def send(self, count: int) -> None:
        """Send `count` more records to each partition; all must be acknowledged."""
        sent = Sent(self.cluster.bootstrap, self.name, PRODUCER)
        for number in range(self.sent, self.sent + count):
            for partition in self.partitions:
                sent.send(value(partition, number), partition)
        sent.settle(MENDED_S)
        assert not sent.failed, next(iter(sent.failed.items()))
        self.sent += count

    def stop(self, clean: bool) -> None:
        """Stop all brokers; the broker to damage stops last."""
        for broker in sorted(BROKERS, key=lambda broker: broker == DAMAGED):
            (self.cluster.stop if clean else self.cluster.kill)(broker)

    def damage(self, partition: int, way: str) -> None:
        place = types.TopicPartition(self.name, partition)
        damage(self.cluster.log_dir(DAMAGED), place, way)

    def start(self) -> None:
        for broker in BROKERS:
            self.cluster.start_broker(broker, wait=False)

    def unmended(self) -> set[int]:
        """Return the partitions that are damaged or have replicas out of sync.

        All partitions, as long as the damaged broker has not checked all its logs.
        """
        with Cluster(self.cluster.bootstrap, timeout_s=PATIENCE_S) as client:
            found = client.refresh([self.name]).topics[self.name].partitions
            state = admin.describe_state(client, DAMAGED, self.name)
        if state is None or not state["acting"] or not state["scrub"]["passes"]:
            return set(self.partitions)
        damaged = {each["partition"] for each in state["partitions"] if each["damage"]}
        known = {each["partition"] for each in state["partitions"]}
        behind = {n for n, each in found.items() if len(each.isr) < 3 or each.leader < 0}
        return damaged | behind | (set(self.partitions) - known)

    def differing(self) -> set[int]:
        """Return the partitions whose replicas hold different bytes.

        Ignore the space that is preallocated after the last record.
        """

        def logs(partition: int) -> set[bytes]:
            places = [(self.cluster, broker, self.name, partition) for broker in BROKERS]
            return {segment_bytes(*place).rstrip(b"\0") for place in places}

        return {partition for partition in self.partitions if len(logs(partition)) > 1}

    def lost(self) -> dict[int, str]:
        """Return, by partition, a description of the records that can't be read."""
        lost = {}
        with consumer(self.cluster.bootstrap) as client:
            for partition in self.partitions:
                values = [value(partition, number) for number in range(self.sent)]
                client.assign([TopicPartition(self.name, partition, 0)])
                try:
                    found = [message.value() for message in take(client, len(values))]
                except AssertionError as error:
                    lost[partition] = str(error)
                    continue
                if found != values:
                    lost[partition] = f"{len(set(values) - set(found))} of {len(values)} lost"
        return lost


def await_none(look: Callable[[], set[int]], what: str, names: list[str]) -> None:
    """Wait until `look` returns no partition; else fail and name the damage to the rest."""
    left: set[int] = set()

    def none_left() -> bool:
        left.clear()
        left.update(look())
        return not left

    try:
        eventually(none_left, what, MENDED_S)
    except AssertionError as error:
        ways = "; ".join(names[number] for number in sorted(left)) or str(error)
        raise AssertionError(f"not within {MENDED_S:g} s: {what}, after: {ways}") from None


def check(topic: Topic, names: list[str]) -> None:
    """Check, after all brokers have restarted, that the cluster repairs itself without loss."""
    try:
        topic.send(1)
        await_none(topic.unmended, "every replica is in sync", names)
    finally:
        assert_all_run(topic.cluster)
    lost = topic.lost()
    assert not lost, "; ".join(f"{names[n]}: {what}" for n, what in lost.items())
    await_none(topic.differing, "all replicas hold the same bytes", names)


@pytest.mark.ci
@CLEAN
def test_damage_to_one_replica_loses_nothing(cluster: LocalCluster, name: str, clean: bool) -> None:
    ways = list(PARTITION_WAYS)
    topic = Topic(cluster, name, len(ways))
    topic.send(RECORDS // 2)
    for broker in BROKERS:
        cluster.restart(broker)  # the second half has other leader epochs
    topic.send(RECORDS // 2)
    topic.stop(clean)
    for partition, way in enumerate(ways):
        topic.damage(partition, way)
    topic.start()
    check(topic, ways)


@pytest.mark.ci
@CLEAN
def test_damage_to_one_broker_loses_nothing(cluster: LocalCluster, name: str, clean: bool) -> None:
    """Kinds of damage that concern different files of the broker are applied together."""
    topic = Topic(cluster, name, partitions=3)
    topic.send(RECORDS)
    for ways in rounds():
        topic.stop(clean)
        for way in ways:
            topic.damage(0, way)
        topic.start()
        check(topic, [", ".join(ways)] * 3)


def rounds() -> Iterator[list[str]]:
    """Yield groups of damage to a whole broker; a group damages each whole file at most once."""
    by_file: dict[str, list[str]] = {}
    for way in BROKER_WAYS:
        row = next((name for what, name in CHECKPOINTS.items() if way.endswith(what)), way)
        file = next((name for name in WHOLE_FILES if name in way), row)
        by_file.setdefault(file, []).append(way)
    for together in zip_longest(*(ways for file, ways in by_file.items() if file in WHOLE_FILES)):
        yield [way for way in together if way is not None]
    yield from (ways for file, ways in by_file.items() if file not in WHOLE_FILES)
