"""The two clusters, with one set of verbs: three Tidelog brokers, three Apache Kafka brokers.

Both stay up through a run and rest while the other works: Kafka's JVMs are warm only after
gigabytes. Always true: when a side's block is left, its processes and folders are gone.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

from beside_kafka.kafka_cluster import KafkaCluster
from processes import cpu_s, rss_mb

from tidelog.shell.client.admin import create_topic, delete_topic
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

TIDELOG, KAFKA = "tidelog", "kafka"
PATIENCE_S = 120.0
LOOK_S = 0.02


class Brokers(Protocol):
    """What both clusters have."""

    ids: list[int]

    @property
    def bootstrap(self) -> str: ...
    def pid(self, broker: int) -> int: ...
    def port(self, broker: int) -> int: ...
    def is_running(self, broker: int) -> bool: ...
    def kill(self, broker: int) -> None: ...
    def close(self) -> None: ...


class Side:
    """One of them, up and ready."""

    def __init__(self, name: str, settings: Mapping[str, str] | None = None) -> None:
        self.name = name
        wanted = {"auto.create.topics.enable": "false", **(settings or {})}
        self.brokers: Brokers
        began = time.monotonic()
        if name == TIDELOG:
            self.brokers = self._ours = LocalCluster(brokers=3, settings=wanted)
            self._ours.start()
        else:
            self.brokers = self._theirs = KafkaCluster(wanted)
            began = time.monotonic()  # folders are formatted once, not at each start
            for broker in self.brokers.ids:
                self._theirs.start_broker(broker)
        self.wait_ready()
        self.start_s = time.monotonic() - began

    def __enter__(self) -> "Side":
        return self

    def __exit__(self, *_: object) -> None:
        self.brokers.close()

    @property
    def bootstrap(self) -> str:
        return self.brokers.bootstrap

    @property
    def pids(self) -> list[int]:
        return [self.brokers.pid(b) for b in self.brokers.ids if self.brokers.is_running(b)]

    def cpu_s(self) -> float:
        return sum(map(cpu_s, self.pids))

    def rss_mb(self) -> float:
        """Of all three."""
        return sum(map(rss_mb, self.pids))

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
        self.until(lambda client: in_sync(client, topic) == partitions * replicas)

    def drop(self, topic: str) -> None:
        with Cluster(self.bootstrap) as client:
            delete_topic(client, topic)

    def leader(self, topic: str, partition: int = 0) -> int:
        with Cluster(self.bootstrap) as client:
            return client.leader(topic, partition).leader

    def until(self, true: Callable[[Cluster], bool]) -> None:
        give_up = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up:
            with suppress(ClientError, OSError), Cluster(self.bootstrap, timeout_s=5) as client:
                while time.monotonic() < give_up:
                    if true(client):
                        return
                    time.sleep(LOOK_S)
            time.sleep(LOOK_S)
        raise SystemExit(f"{self.name}: not so after {PATIENCE_S:.0f} s")


def in_sync(client: Cluster, topic: str) -> int:
    """How many replicas of all its partitions are in sync."""
    known = client.refresh([topic]).topics[topic]
    return sum(len(each.isr) for each in known.partitions.values() if each.leader >= 0)
