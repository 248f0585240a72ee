"""The input of one scrape: the node, its host's metrics, and counts over all replicas.

Invariant: the node keeps running between two slices of a scrape. So the lists are copies, and a
partition that is deleted meanwhile is still reported as it was.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidelog.core.controller.metadata.registrations import PartitionRegistration
from tidelog.core.metrics.exposition import labelled
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.measuring.request_times import RequestTimes
from tidelog.core.node.node import Node

REPLICAS_PER_SLICE = 100


class HostMetrics(NamedTuple):
    """Metrics that the shell measures: of the process and its connections."""

    process: Mapping[str, float]
    """Values by metric name."""
    connections: Mapping[str, int]
    """Open connections by listener."""
    refused: Mapping[str, int]
    """Connections that the broker refused or closed, by reason."""
    info: Mapping[str, str]


class Led(NamedTuple):
    """A partition that this broker leads."""

    replica: HostedReplica
    labels: str
    known: PartitionRegistration | None
    isr: int
    replicas: int
    """The number of replicas without those that a reassignment is adding."""

    @property
    def under_replicated(self) -> bool:
        return self.isr < self.replicas

    @property
    def under_min_isr(self) -> bool:
        return self.isr < self.replica.partition.min_isr


class Scrape:
    """The state of one scrape of a broker."""

    def __init__(self, node: Node, times: RequestTimes, host: HostMetrics, now_ms: int) -> None:
        self.node = node
        self.times = times
        self.host = host
        self.now_ms = now_ms
        self.hosted: list[tuple[HostedReplica, str]] = []
        self.led: list[Led] = []
        self.followed: list[tuple[HostedReplica, str]] = []
        self.offline = 0
        self.at_min_isr = 0
        self.reassigning = 0

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller."""
        return self.node.controller.is_active

    def prepare(self) -> Iterator[None]:
        """Collect the values of all replicas; yield after a few, so that requests are served."""
        node = self.node
        node.counters.forget_all_but(node.image.topics)
        beginnings: dict[str, str] = {}
        for number, replica in enumerate(list(node.replicas.values())):
            topic, partition = replica.topic_partition
            if topic not in beginnings:
                beginnings[topic] = labelled(topic=topic)[:-1]
            self._collect(replica, f'{beginnings[topic]},partition="{partition}"}}')
            if number % REPLICAS_PER_SLICE == REPLICAS_PER_SLICE - 1:
                yield

    def _collect(self, replica: HostedReplica, labels: str) -> None:
        partition = replica.partition
        self.hosted.append((replica, labels))
        self.offline += partition.offline
        if not partition.is_leader:
            self.followed.append((replica, labels))
            return
        known = self.node.image.partition(*replica.topic_partition)
        adding = 0 if known is None else len(known.adding)
        moving = known is not None and bool(known.adding or known.removing)
        isr = len(partition.isr.members)
        led = Led(replica, labels, known, isr, len(partition.replicas) - adding)
        self.led.append(led)
        self.reassigning += moving
        self.at_min_isr += isr == partition.min_isr
