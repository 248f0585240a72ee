"""What one scrape looks at: the node and its surroundings, and counts over all its replicas.

Always true: between two slices of a scrape the node goes on. So lists are copies, and a
partition that is gone in the meantime is still told, as it was.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidelog.core.controller.metadata.registrations import PartitionRegistration
from tidelog.core.metrics.exposition import labelled
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.measuring.request_times import RequestTimes
from tidelog.core.node.node import Node

LOOKED_AT_ONCE = 100


class Surroundings(NamedTuple):
    """What a node can't know of itself."""

    process: Mapping[str, float]
    """By the name of the metric."""
    connections: Mapping[str, int]
    """Open ones, by listener."""
    refused: Mapping[str, int]
    """Connections that were not let in or were thrown out, by the reason."""
    info: Mapping[str, str]


class Led(NamedTuple):
    """A partition that this broker leads."""

    replica: HostedReplica
    labels: str
    known: PartitionRegistration | None
    isr: int
    replicas: int
    """How many there should be; those that a reassignment adds come on top."""

    @property
    def under_replicated(self) -> bool:
        return self.isr < self.replicas

    @property
    def under_min_isr(self) -> bool:
        return self.isr < self.replica.partition.min_isr


class Scrape:
    """One look at a broker."""

    def __init__(
        self, node: Node, times: RequestTimes, surroundings: Surroundings, now_ms: int
    ) -> None:
        self.node = node
        self.times = times
        self.surroundings = surroundings
        self.now_ms = now_ms
        self.hosted: list[tuple[HostedReplica, str]] = []
        self.led: list[Led] = []
        self.followed: list[tuple[HostedReplica, str]] = []
        self.offline = 0
        self.at_min_isr = 0
        self.reassigning = 0

    @property
    def in_office(self) -> bool:
        """Whether this broker is the controller."""
        return self.node.controller.in_office

    def prepare(self) -> Iterator[None]:
        """Look at all replicas, some at a time."""
        node = self.node
        node.counters.forget_all_but(node.image.topics)
        beginnings: dict[str, str] = {}
        for number, replica in enumerate(list(node.replicas.values())):
            topic, partition = replica.topic_partition
            if topic not in beginnings:
                beginnings[topic] = labelled(topic=topic)[:-1]
            self._look(replica, f'{beginnings[topic]},partition="{partition}"}}')
            if number % LOOKED_AT_ONCE == LOOKED_AT_ONCE - 1:
                yield

    def _look(self, replica: HostedReplica, labels: str) -> None:
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
