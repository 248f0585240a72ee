"""Compaction of `__consumer_offsets` while groups commit.

A coordinator that loads the compacted log knows all committed offsets.
"""

from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from real_cluster import (
    LONG_SESSIONS,
    await_isr,
    commit_offsets,
    committed_offsets,
    consumer,
    eventually,
    leader_of,
    make_topic,
    partition_dir,
    said,
)

from tidelog.core.coordinator.lookup import OFFSETS_TOPIC
from tidelog.core.record.record_batch import batches
from tidelog.shell.supervisor.cluster import LocalCluster

GROUPS = 5
PARTITIONS = 4
ROUNDS = 120
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "8192",
    "log.cleaner.backoff.ms": "100",
    "log.segment.delete.delay.ms": "200",
    # Each kill makes another broker the coordinator; none gets the role back by itself.
    "auto.leader.rebalance.enable": "false",
    **LONG_SESSIONS,
}
Committed = dict[tuple[str, int], tuple[int, str | None]]


def commit(client: Consumer, topic: str, number: int) -> None:
    """Commit an offset for every partition, each with its own metadata."""
    offsets = [
        TopicPartition(topic, partition, number + partition, f"{number}/{partition}")
        for partition in range(PARTITIONS)
    ]
    commit_offsets(client, offsets)


def committed(cluster: LocalCluster, topic: str) -> Committed:
    """Return the committed offsets and metadata that the coordinator has now."""
    found: Committed = {}
    for group in range(GROUPS):
        name = f"group-{group}"
        with consumer(cluster.bootstrap, {"group.id": name}) as client:
            wanted = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
            for one in committed_offsets(client, wanted):
                found[name, one.partition] = one.offset, one.metadata
    return found


def expected(last: int) -> Committed:
    return {
        (f"group-{group}", partition): (last + partition, f"{last}/{partition}")
        for group in range(GROUPS)
        for partition in range(PARTITIONS)
    }


def records(folder: Path) -> int:
    files = [file.read_bytes() for file in folder.glob("*.log")]
    return sum(batch.count for data in files for batch in batches(data))


def is_small(cluster: LocalCluster, broker: int) -> bool:
    """Return whether the log is compacted.

    It then holds the last commit of each key, and the commits since the last cleaning.
    """
    return records(partition_dir(cluster, broker, OFFSETS_TOPIC)) < GROUPS * PARTITIONS * ROUNDS / 4


def replaced_coordinator(cluster: LocalCluster) -> int:
    """Kill the coordinator, wait for another one, restart the first; return the new one."""
    coordinator = leader_of(cluster, OFFSETS_TOPIC)
    cluster.kill(coordinator)
    eventually(lambda: leader_of(cluster, OFFSETS_TOPIC) != coordinator, "another coordinator")
    another = leader_of(cluster, OFFSETS_TOPIC)
    cluster.restart(coordinator)
    await_isr(cluster, OFFSETS_TOPIC, cluster.ids)
    return another


def test_a_coordinator_knows_what_was_committed_after_its_log_was_compacted() -> None:
    with LocalCluster(settings=SETTINGS) as cluster:
        topic = make_topic(cluster.bootstrap, "orders", PARTITIONS)
        for group in range(GROUPS):
            with consumer(cluster.bootstrap, {"group.id": f"group-{group}"}) as client:
                for number in range(ROUNDS):
                    commit(client, topic, number)
        eventually(lambda: all(is_small(cluster, b) for b in cluster.ids), "all brokers compact")
        line = f"compacted {OFFSETS_TOPIC}-0"
        eventually(lambda: all(line in said(cluster, b) for b in cluster.ids), "the lines in logs")
        last = expected(ROUNDS - 1)
        assert committed(cluster, topic) == last
        led = set()
        for _ in cluster.ids:  # each new coordinator loads the log that it compacted itself
            led.add(replaced_coordinator(cluster))
            assert committed(cluster, topic) == last
        assert len(led) > 1
        for broker in cluster.ids:
            cluster.kill(broker)
        for broker in cluster.ids:
            cluster.start_broker(broker, wait=False)
        cluster.wait_ready()
        assert committed(cluster, topic) == last, "after all were killed"
