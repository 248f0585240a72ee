"""Topics are created and deleted while brokers are killed; then all brokers agree and work."""

import random
import threading

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.cimpl import NewPartitions, NewTopic
from real_cluster import (
    QUICK_SESSIONS,
    admin_client,
    await_members,
    eventually,
    read_values,
    said,
    send_all,
)

from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

NAMES = [f"topic-{number}" for number in range(12)]
KILLS = 5
ATTEMPTS = 3
"""Changes between a kill and a start, and between a start and the next kill."""


@pytest.mark.ci
def test_topics_are_changed_while_brokers_are_killed() -> None:
    with LocalCluster(settings=QUICK_SESSIONS) as cluster:
        over = threading.Event()
        attempts: list[str] = []

        def await_attempts() -> None:
            wanted = len(attempts) + ATTEMPTS
            eventually(lambda: len(attempts) >= wanted, "more topics are changed")

        workers = [
            threading.Thread(target=change_topics, args=(cluster.bootstrap, seed, over, attempts))
            for seed in range(3)
        ]
        for worker in workers:
            worker.start()
        try:
            chance = random.Random(5)
            for _ in range(KILLS):
                await_attempts()
                broker = chance.choice(cluster.ids)
                (cluster.kill if chance.random() < 0.7 else cluster.stop)(broker)
                await_attempts()
                cluster.start_broker(broker)
        finally:
            over.set()
            for worker in workers:
                worker.join()
        await_members(cluster)
        assert not any("Traceback" in said(cluster, broker) for broker in cluster.ids)
        topics = eventually(lambda: agreed(cluster), "all brokers see the same, all in the ISR")
        for topic, partitions in topics.items():
            for partition in range(partitions):
                value = b"%d" % partition
                send_all(cluster.bootstrap, topic, [value], partition, {"acks": "all"})
                assert read_values(cluster.bootstrap, topic, partition)[-1] == value


def change_topics(bootstrap: str, seed: int, over: threading.Event, attempts: list[str]) -> None:
    """Create, delete, extend and write topics at random until `over` is set.

    Each call may fail while brokers are down; the test does not check the calls.
    """
    chance = random.Random(seed)
    admin = admin_client(bootstrap)
    while not over.is_set():
        name = chance.choice(NAMES)
        kind = chance.random()
        try:
            if kind < 0.5:
                admin.create_topics([NewTopic(name, chance.randint(1, 3), 3)])[name].result(3)
            elif kind < 0.8:
                admin.delete_topics([name])[name].result(3)
            elif kind < 0.9:
                admin.create_partitions([NewPartitions(name, 4)])[name].result(3)
            else:
                send_all(bootstrap, name, [b"x"], conf={"message.timeout.ms": 1000})
        except (KafkaException, TimeoutError, AssertionError):
            continue
        finally:
            attempts.append(name)


def agreed(cluster: LocalCluster) -> dict[str, int] | None:
    """Return the partition count of each topic, if all brokers agree and all ISRs are full."""
    views = []
    for broker in cluster.ids:
        with Cluster(f"localhost:{cluster.port(broker)}") as client:
            topics = client.refresh().topics
            views.append(
                {name: (topic.id, topic.partitions) for name, topic in sorted(topics.items())}
            )
    if any(view != views[0] for view in views):
        return None
    whole = all(
        sorted(partition.isr) == cluster.ids and partition.leader in cluster.ids
        for _, partitions in views[0].values()
        for partition in partitions.values()
    )
    return {name: len(found[1]) for name, found in views[0].items()} if whole else None
