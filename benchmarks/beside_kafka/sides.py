"""The two clusters behind one interface: three Tidelog brokers, three Apache Kafka brokers.

Invariant: after a side's `with` block its processes and folders do not exist any more.
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
from tidelog.shell.client.administration.partitions import alter_reassignments
from tidelog.shell.client.administration.topics import NewTopic, create_topics
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import TopicMetadata
from tidelog.shell.supervisor.cluster import LocalCluster

TIDELOG, KAFKA = "tidelog", "kafka"
PATIENCE_S = 240.0
POLL_S = 0.02
TOPICS_AT_ONCE = 100
MADE = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


class Brokers(Protocol):
    """The interface that both clusters have."""

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
    """One of the two clusters, started and ready."""

    def __init__(self, name: str, settings: Mapping[str, str] | None = None) -> None:
        self.name = name
        wanted = {"auto.create.topics.enable": "false", **(settings or {})}
        self.brokers: Brokers
        if name == TIDELOG:
            self.brokers = self._ours = LocalCluster(brokers=3, settings=wanted)
        else:  # the constructor formats the folders, so a start does not include that
            self.brokers = self._theirs = KafkaCluster(wanted)
        try:
            self.start = self._start()
        except BaseException:
            self.brokers.close()
            raise

    def _start(self) -> dict[str, float]:
        """Start the brokers; return time and CPU until Metadata lists all of them."""
        started: list[int] = []
        meter = Meter(lambda: started)
        began = time.monotonic()
        if self.name == TIDELOG:
            self._ours.start()
        else:
            for broker in self.brokers.ids:
                self._theirs.start_broker(broker)
        self.wait_ready()
        self.ready_at = time.monotonic()
        started.extend(self.pids())
        return {"seconds": self.ready_at - began, **meter.read()}

    def __enter__(self) -> "Side":
        return self

    def __exit__(self, *_: object) -> None:
        self.brokers.close()

    @property
    def bootstrap(self) -> str:
        return self.brokers.bootstrap

    def pids(self) -> list[int]:
        """Return the process ids of the running brokers."""
        return [self.brokers.pid(b) for b in self.brokers.ids if self.brokers.is_running(b)]

    def rss_mb(self) -> float:
        """Return the current memory of all running brokers together."""
        return sum(map(rss_mb, self.pids()))

    def start_broker(self, broker: int) -> None:
        if self.name == TIDELOG:
            self._ours.start_broker(broker, wait=False)
        else:
            self._theirs.start_broker(broker)

    # -- topics -----------------------------------------------------------------------------

    def wait_ready(self) -> None:
        """Wait until Metadata lists all brokers."""
        self.wait_until(lambda client: len(client.refresh([]).brokers) == len(self.brokers.ids))

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
            # The client retries when a response is late; the topics may exist by then.
            failed = [each for each in made if each.error not in MADE]
            if failed:
                raise SystemExit(f"{self.name}: {failed[0]}")
        self.wait_in_sync(topics, partitions * replicas)

    def wait_in_sync(
        self, topics: Sequence[str], replicas: int, patience_s: float = PATIENCE_S
    ) -> None:
        """Wait until each topic has `replicas` replicas in sync, summed over its partitions."""

        def all_in_sync(client: Cluster) -> bool:
            known = client.refresh(topics)
            listed = len(known.brokers) == len(self.brokers.ids)
            return listed and all(in_sync(known.topics[name]) == replicas for name in topics)

        self.wait_until(all_in_sync, patience_s)

    def add_replica(self, topic: str) -> None:
        """Assign the first partition to all brokers."""
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

    def wait_until(
        self, is_true: Callable[[Cluster], bool], patience_s: float = PATIENCE_S
    ) -> None:
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            with suppress(ClientError, OSError), Cluster(self.bootstrap, timeout_s=5) as client:
                while time.monotonic() < deadline:
                    began = time.monotonic()
                    if is_true(client):
                        return
                    # Metadata of many partitions is costly: spend at most half the time on it.
                    time.sleep(max(POLL_S, time.monotonic() - began))
            time.sleep(POLL_S)
        raise SystemExit(f"{self.name}: brokers or replicas are not ready after {patience_s:.0f} s")


def in_sync(topic: TopicMetadata) -> int:
    """Return the number of in-sync replicas, summed over the partitions that have a leader."""
    return sum(len(each.isr) for each in topic.partitions.values() if each.leader >= 0)
