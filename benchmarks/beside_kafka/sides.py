"""The two clusters, with one set of verbs: three Tidelog brokers, three Apache Kafka brokers.

Always true: when a side's block is left, its processes and folders are gone.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from beside_kafka.kafka_cluster import KafkaCluster
from processes import Meter, rss_mb

from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.shell.client.admin import create_topic, delete_topic
from tidelog.shell.client.administration.reassignments import alter_reassignments
from tidelog.shell.client.administration.topics import NewTopic, create_topics
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import TopicMetadata
from tidelog.shell.supervisor.cluster import LocalCluster

TIDELOG, KAFKA = "tidelog", "kafka"
PATIENCE_S = 240.0
LOOK_S = 0.02
TOPICS_AT_ONCE = 100
MADE = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


class Brokers(Protocol):
    """What both clusters have."""

    ids: list[int]

    @property
    def bootstrap(self) -> str: ...
    def pid(self, broker: int) -> int: ...
    def port(self, broker: int) -> int: ...
    def is_running(self, broker: int) -> bool: ...
    def kill(self, broker: int) -> None: ...
    def pause(self, broker: int) -> None: ...
    def resume(self, broker: int) -> None: ...
    def close(self) -> None: ...


class Side:
    """One of them, up and ready."""

    def __init__(self, name: str, settings: Mapping[str, str] | None = None) -> None:
        self.name = name
        wanted = {"auto.create.topics.enable": "false", **(settings or {})}
        self.brokers: Brokers
        if name == TIDELOG:
            self.brokers = self._ours = LocalCluster(brokers=3, settings=wanted)
        else:  # its folders are formatted once, not at each start
            self.brokers = self._theirs = KafkaCluster(wanted)
        try:
            self.start = self._start()
        except BaseException:
            self.brokers.close()
            raise

    def _start(self) -> dict[str, float]:
        """What it took until Metadata lists all brokers."""
        born: list[int] = []
        meter = Meter(lambda: born)
        began = time.monotonic()
        if self.name == TIDELOG:
            self._ours.start()
        else:
            for broker in self.brokers.ids:
                self._theirs.start_broker(broker)
        self.wait_ready()
        self.ready_at = time.monotonic()
        born.extend(self.pids())
        return {"seconds": self.ready_at - began, **meter.read()}

    def __enter__(self) -> "Side":
        return self

    def __exit__(self, *_: object) -> None:
        self.brokers.close()

    @property
    def bootstrap(self) -> str:
        return self.brokers.bootstrap

    def pids(self) -> list[int]:
        """Of those that run."""
        return [self.brokers.pid(b) for b in self.brokers.ids if self.brokers.is_running(b)]

    def rss_mb(self) -> float:
        """Of all three, now."""
        return sum(map(rss_mb, self.pids()))

    def start_broker(self, broker: int) -> None:
        if self.name == TIDELOG:
            self._ours.start_broker(broker, wait=False)
        else:
            self._theirs.start_broker(broker)

    # -- topics -----------------------------------------------------------------------------

    def wait_ready(self) -> None:
        """Metadata lists all brokers."""
        self.until(lambda client: len(client.refresh([]).brokers) == len(self.brokers.ids))

    def make(self, topic: str, partitions: int, replicas: int) -> None:
        with Cluster(self.bootstrap) as client:
            create_topic(client, topic, partitions, replicas)
        self.wait_in_sync([topic], partitions * replicas)

    def make_many(self, topics: Sequence[str], partitions: int, replicas: int) -> None:
        for first in range(0, len(topics), TOPICS_AT_ONCE):
            some = topics[first : first + TOPICS_AT_ONCE]
            wanted = [NewTopic(name, partitions, replicas, (), {}) for name in some]
            with Cluster(self.bootstrap, timeout_s=60) as client:
                made = [outcome for outcome, _, _ in create_topics(client, wanted)]
            # The client asks again when an answer is late: then they exist.
            refused = [each for each in made if each.error not in MADE]
            if refused:
                raise SystemExit(f"{self.name}: {refused[0]}")
        self.wait_in_sync(topics, partitions * replicas)

    def wait_in_sync(
        self, topics: Sequence[str], replicas: int, patience_s: float = PATIENCE_S
    ) -> None:
        """Until each topic has so many replicas in sync, all its partitions together."""

        def all_there(client: Cluster) -> bool:
            known = client.refresh(topics)
            listed = len(known.brokers) == len(self.brokers.ids)
            return listed and all(in_sync(known.topics[name]) == replicas for name in topics)

        self.until(all_there, patience_s)

    def add_replica(self, topic: str) -> None:
        """The first partition goes to all brokers, whoever had it."""
        with Cluster(self.bootstrap) as client:
            had = client.topic(topic).partitions[0].replicas
            wanted = [*had, *(broker for broker in self.brokers.ids if broker not in had)]
            key = TopicPartition(topic, 0)
            begun = alter_reassignments(client, {key: wanted})[key]
        if begun.error:
            raise SystemExit(f"{self.name}: {begun}")

    def drop(self, topic: str) -> None:
        with Cluster(self.bootstrap) as client:
            delete_topic(client, topic)

    def leader(self, topic: str, partition: int = 0) -> int:
        with Cluster(self.bootstrap) as client:
            return client.leader(topic, partition).leader

    def until(self, true: Callable[[Cluster], bool], patience_s: float = PATIENCE_S) -> None:
        give_up = time.monotonic() + patience_s
        while time.monotonic() < give_up:
            with suppress(ClientError, OSError), Cluster(self.bootstrap, timeout_s=5) as client:
                while time.monotonic() < give_up:
                    began = time.monotonic()
                    if true(client):
                        return
                    # To ask about thousands of partitions is work: not more than half the time.
                    time.sleep(max(LOOK_S, time.monotonic() - began))
            time.sleep(LOOK_S)
        raise SystemExit(f"{self.name}: not so after {patience_s:.0f} s")


def in_sync(topic: TopicMetadata) -> int:
    """How many replicas of all its partitions are in sync; those without a leader are not."""
    return sum(len(each.isr) for each in topic.partitions.values() if each.leader >= 0)
