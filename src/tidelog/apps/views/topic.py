"""Views of topics: configs, and each partition's leader, replicas, ISR and offsets.

Invariant: leaders, replicas and ISR of a topic come from one response; configs, reassignments and
offsets come a moment later, and are None or empty if a request for them failed.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tidelog.core.api_table import LIST_PARTITION_REASSIGNMENTS
from tidelog.core.errors import ErrorCode
from tidelog.core.storage.layout import format_topic_id
from tidelog.core.types import BrokerId, LeaderEpoch, Offset, TopicPartition
from tidelog.shell.client.admin import MIN_ISR, TOPIC_RESOURCE
from tidelog.shell.client.administration.configs import ConfigEntry, Resource, describe_configs
from tidelog.shell.client.administration.partitions import Reassignment, list_reassignments
from tidelog.shell.client.administration.topics import describe_topics
from tidelog.shell.client.client_errors import BrokerError, ClientError, NoSuchTopic, NotOffered
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import (
    NO_LEADER,
    NO_TOPIC_ID,
    PartitionMetadata,
    TopicMetadata,
)
from tidelog.shell.client.offsets import EARLIEST, LATEST, Found, FoundOffset, list_offsets

TOPICS_PER_REQUEST = 500


class TopicSummary(NamedTuple):
    """A topic with its counts."""

    name: str
    partitions: int
    replication_factor: int
    internal: bool


class TopicPartitionView(NamedTuple):
    """One partition as metadata shows it; None means unknown."""

    topic: str
    partition: int
    leader: BrokerId | None
    leader_epoch: LeaderEpoch | None
    replicas: list[BrokerId]
    isr: list[BrokerId]
    offline_replicas: list[BrokerId]
    elr: list[BrokerId] | None
    last_known_elr: list[BrokerId] | None
    adding: list[BrokerId]
    removing: list[BrokerId]
    log_start_offset: Offset | None
    high_watermark: Offset | None
    error: str | None
    """Why the offsets are unknown."""

    @property
    def replication_factor(self) -> int:
        """The replica count without replicas that a reassignment is adding."""
        return len(self.replicas) - len(self.adding)

    @property
    def under_replicated(self) -> bool:
        return len(self.isr) < self.replication_factor


class TopicView(NamedTuple):
    """One topic, with all partitions or those that match a filter."""

    name: str
    id: str | None
    internal: bool
    partition_count: int
    replication_factor: int
    configs: dict[str, str | None]
    """Configs that differ from Kafka's defaults."""
    min_isr: int | None
    partitions: list[TopicPartitionView]

    def as_data(self) -> dict[str, Any]:
        return {**self._asdict(), "partitions": [each._asdict() for each in self.partitions]}


class PartitionFilters(NamedTuple):
    """Which partitions to return: those that match any filter that is set; all if none is set."""

    under_replicated: bool = False
    unavailable: bool = False
    under_min_isr: bool = False
    at_min_isr: bool = False

    def match(self, topic: TopicView, each: TopicPartitionView, alive: Iterable[BrokerId]) -> bool:
        dead = each.leader is None or each.leader not in alive
        isr = len(each.isr)
        required = min(topic.min_isr or 0, each.replication_factor)
        return (
            (self.under_replicated and each.under_replicated)
            or (self.unavailable and dead)
            or (self.under_min_isr and (each.leader is None or isr < required))
            or (self.at_min_isr and isr == required)
        )


def select_topics(
    cluster: Cluster,
    names: Sequence[str],
    patterns: Sequence[re.Pattern[str]] = (),
    *,
    internal: bool,
) -> list[TopicMetadata]:
    """Return the topics with these names, or whose whole name matches a pattern; by default all.

    `internal` applies to patterns. Raises NoSuchTopic for an unknown name.
    """
    topics = cluster.refresh().topics
    if patterns or not names:
        patterns = patterns or [re.compile(".*")]
        return [
            topic
            for name, topic in sorted(topics.items())
            if (internal or not topic.internal) and any(p.fullmatch(name) for p in patterns)
        ]
    for name in names:
        if name not in topics:
            raise NoSuchTopic(f"topic {name!r}", name)
    return [topics[name] for name in dict.fromkeys(names)]


def summarize_topics(topics: Iterable[TopicMetadata]) -> list[TopicSummary]:
    """Return the topics with their counts."""
    return [
        TopicSummary(topic.name, len(topic.partitions), _replicas(topic), topic.internal)
        for topic in topics
    ]


def _replicas(topic: TopicMetadata) -> int:
    return max((len(each.replicas) for each in topic.partitions.values()), default=0)


def view_topics(
    cluster: Cluster, names: Sequence[str], filters: PartitionFilters | None = None
) -> list[TopicView]:
    """Describe topics; with filters, only the partitions that match and topics that have any."""
    moves = _moves(cluster)
    found = []
    for start in range(0, len(names), TOPICS_PER_REQUEST):
        part = names[start : start + TOPICS_PER_REQUEST]
        topics = [_checked(topic) for topic in describe_topics(cluster, part).values()]
        resources = [Resource(TOPIC_RESOURCE, topic.name) for topic in topics]
        configs = _configs(cluster, resources)
        found += [
            _topic(topic, configs.get(resource, []), moves)
            for topic, resource in zip(topics, resources, strict=True)
        ]
    if filters is not None and any(filters):
        found = [_filtered(topic, filters, cluster.metadata.brokers) for topic in found]
        found = [topic for topic in found if topic.partitions]
    return _with_offsets(cluster, found)


def _filtered(topic: TopicView, filters: PartitionFilters, alive: Iterable[BrokerId]) -> TopicView:
    kept = [each for each in topic.partitions if filters.match(topic, each, alive)]
    return topic._replace(partitions=kept)


def _checked(topic: TopicMetadata) -> TopicMetadata:
    if topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise NoSuchTopic(f"topic {topic.name!r}", topic.name)
    if topic.error and topic.error != ErrorCode.LEADER_NOT_AVAILABLE:
        raise BrokerError(f"request for the metadata of topic {topic.name}", topic.error)
    return topic


def _configs(cluster: Cluster, resources: list[Resource]) -> dict[Resource, list[ConfigEntry]]:
    """Return configs; empty if the cluster does not support DescribeConfigs."""
    try:
        return describe_configs(cluster, resources)
    except NotOffered:
        return {}


def _moves(cluster: Cluster) -> dict[TopicPartition, Reassignment]:
    """Return reassignments in progress; empty if they can't be listed: the rest is still useful."""
    try:
        if not cluster.any_broker().offers(LIST_PARTITION_REASSIGNMENTS):
            return {}
        return list_reassignments(cluster)
    except ClientError:
        return {}


def _topic(
    topic: TopicMetadata, configs: Sequence[ConfigEntry], moves: dict[TopicPartition, Reassignment]
) -> TopicView:
    partitions = [
        _partition(topic.name, each, moves.get(TopicPartition(topic.name, each.partition)))
        for each in topic.partitions.values()
    ]
    min_isr = next((each.value for each in configs if each.name == MIN_ISR), None)
    return TopicView(
        topic.name,
        None if topic.id == NO_TOPIC_ID else format_topic_id(topic.id),
        topic.internal,
        len(partitions),
        partitions[0].replication_factor if partitions else 0,
        {each.name: each.value for each in configs if not each.is_default},
        None if min_isr is None else int(min_isr),
        partitions,
    )


def _partition(
    topic: str, each: PartitionMetadata, move: Reassignment | None
) -> TopicPartitionView:
    return TopicPartitionView(
        topic,
        each.partition,
        None if each.leader == NO_LEADER else each.leader,
        None if each.leader_epoch < 0 else each.leader_epoch,
        each.replicas,
        each.isr,
        each.offline_replicas,
        each.elr,
        each.last_known_elr,
        [] if move is None else move.adding,
        [] if move is None else move.removing,
        None,
        None,
        None,
    )


def _with_offsets(cluster: Cluster, topics: list[TopicView]) -> list[TopicView]:
    keys = [TopicPartition(each.topic, each.partition) for t in topics for each in t.partitions]
    ends = list_offsets(cluster, dict.fromkeys(keys, LATEST))
    starts = list_offsets(
        cluster, {key: EARLIEST for key, end in ends.items() if isinstance(end, FoundOffset)}
    )
    return [
        topic._replace(partitions=[_with_ends(each, starts, ends) for each in topic.partitions])
        for topic in topics
    ]


def _with_ends(each: TopicPartitionView, starts: Found, ends: Found) -> TopicPartitionView:
    key = TopicPartition(each.topic, each.partition)
    start, end = starts.get(key), ends[key]
    failed = next((found for found in (end, start) if isinstance(found, ClientError)), None)
    return each._replace(
        log_start_offset=start.offset if isinstance(start, FoundOffset) else None,
        high_watermark=end.offset if isinstance(end, FoundOffset) else None,
        error=None if failed is None else str(failed),
    )
