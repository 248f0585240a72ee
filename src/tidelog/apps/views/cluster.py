"""Views of a whole cluster: its brokers and topics, and the partitions that have a problem."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tidelog.apps.views.broker import (
    BrokerStates,
    BrokerView,
    State,
    broker_ids,
    fetch_states,
    is_detached,
    view_brokers,
)
from tidelog.apps.views.topic import TopicSummary, summarize_topics
from tidelog.core.types import BrokerId, Offset
from tidelog.shell.client import admin
from tidelog.shell.client.admin import registered_brokers
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import NO_LEADER, ClusterMetadata, PartitionMetadata

TOPICS_PER_REQUEST = 500
TIDELOG, KAFKA = "Tidelog", "Kafka"


class ClusterView(NamedTuple):
    """A cluster with its brokers and topics."""

    cluster_id: str | None
    kind: str
    """`Tidelog` or `Kafka`."""
    controller: BrokerId | None
    brokers: list[BrokerView]
    topics: list[TopicSummary]
    partitions: int
    replicas: int

    def unavailable_brokers(self) -> list[BrokerId]:
        """Return the brokers that are fenced or did not respond."""
        return [each.id for each in self.brokers if each.fenced or each.unreachable is not None]

    def as_data(self) -> dict[str, Any]:
        return {
            **self._asdict(),
            "brokers": [broker._asdict() for broker in self.brokers],
            "topics": [topic._asdict() for topic in self.topics],
        }


class PartitionProblem(NamedTuple):
    """A partition in one of the lists of `HealthView`."""

    topic: str
    partition: int
    leader: BrokerId | None
    replicas: list[BrokerId]
    isr: list[BrokerId]
    min_isr: int | None

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.partition}"


class DamagedReplica(NamedTuple):
    """A replica with records that are damaged or missing."""

    topic: str
    partition: int
    broker: BrokerId
    offset: Offset
    """The first damaged or missing offset."""
    reason: str


class HealthView(NamedTuple):
    """Partitions by problem (M16); a partition may be in several lists."""

    partitions: int
    offline: list[PartitionProblem]
    """Partitions without a leader: they can't be written or read."""
    under_min_isr: list[PartitionProblem]
    """Writes with acks=all are rejected."""
    under_replicated: list[PartitionProblem]
    """Not all replicas are in sync."""
    at_min_isr: list[PartitionProblem]
    """If one more replica leaves the ISR, writes are rejected. Not a problem yet."""
    not_preferred: list[PartitionProblem]
    """The leader is not the first replica of the assignment. Not a problem."""
    no_controller: bool
    brokers_away: list[BrokerId]
    """Brokers that are registered or have replicas, and are fenced or did not respond."""
    min_isr_unknown: bool
    damaged: Sequence[DamagedReplica] = ()
    """Replicas that found damage in their logs and are not repaired yet."""
    without_store: Sequence[BrokerId] = ()
    """Brokers that serve although they can't reach the metadata store. If it fails for all, no
    leader can be elected, and a broker that stops can't return."""

    @property
    def holds(self) -> bool:
        """Whether there is no problem."""
        wrong = (self.offline, self.under_min_isr, self.under_replicated, self.damaged)
        brokers = (self.brokers_away, self.without_store)
        return not any(wrong) and not any(brokers) and not self.no_controller

    def as_data(self) -> dict[str, Any]:
        lists = ("offline", "under_min_isr", "under_replicated", "at_min_isr", "not_preferred")
        found = {name: [each._asdict() for each in getattr(self, name)] for name in lists}
        found["damaged"] = [each._asdict() for each in self.damaged]
        return {**self._asdict(), **found}


def view_cluster(cluster: Cluster) -> ClusterView:
    """Fetch the metadata, and the state of every broker."""
    brokers, is_tidelog = view_brokers(cluster)
    metadata = cluster.metadata
    topics = summarize_topics(topic for _, topic in sorted(metadata.topics.items()))
    return ClusterView(
        cluster_id=metadata.cluster_id,
        kind=TIDELOG if is_tidelog else KAFKA,
        controller=None if metadata.controller_id == NO_LEADER else metadata.controller_id,
        brokers=brokers,
        topics=topics,
        partitions=sum(topic.partitions for topic in topics),
        replicas=sum(broker.leads + broker.follows for broker in brokers),
    )


def view_health(cluster: Cluster) -> HealthView:
    """Check every partition, and whether every broker responds."""
    metadata = cluster.refresh()
    min_isrs = _min_isrs(cluster, sorted(metadata.topics))
    ids = broker_ids(metadata, registered_brokers(cluster))
    return health_from_states(metadata, min_isrs, fetch_states(cluster, ids))


def health_from_states(
    metadata: ClusterMetadata, min_isrs: Mapping[str, int], answers: BrokerStates
) -> HealthView:
    """Check every partition from states that were fetched before; `min_isrs` by topic."""
    no_controller = metadata.controller_id == NO_LEADER
    found = HealthView(0, [], [], [], [], [], no_controller, [], not min_isrs)
    count = 0
    for name, topic in sorted(metadata.topics.items()):
        for each in topic.partitions.values():
            count += 1
            _check(found, name, each, min_isrs.get(name))
    states, unreachable = answers
    return found._replace(
        partitions=count,
        brokers_away=sorted(unreachable),
        min_isr_unknown=bool(metadata.topics) and not min_isrs,
        damaged=[each for broker, state in states.items() for each in _damaged(broker, state)],
        without_store=sorted(broker for broker, state in states.items() if is_detached(state)),
    )


def _damaged(broker: BrokerId, state: State) -> Iterator[DamagedReplica]:
    for each in state["partitions"]:
        damage = each.get("damage")
        if damage is not None:
            place = (each["topic"], each["partition"])
            yield DamagedReplica(*place, broker, damage["offset"], damage["reason"])


def _check(found: HealthView, topic: str, each: PartitionMetadata, min_isr: int | None) -> None:
    leader = None if each.leader == NO_LEADER else each.leader
    problem = PartitionProblem(topic, each.partition, leader, each.replicas, each.isr, min_isr)
    if leader is None:
        found.offline.append(problem)
    elif each.replicas and leader != each.replicas[0]:
        found.not_preferred.append(problem)
    if len(each.isr) < len(each.replicas):
        found.under_replicated.append(problem)
    if min_isr is not None:
        required = min(min_isr, len(each.replicas))
        if len(each.isr) < required:
            found.under_min_isr.append(problem)
        elif len(each.isr) == required:
            found.at_min_isr.append(problem)


def _min_isrs(cluster: Cluster, topics: list[str]) -> dict[str, int]:
    """Return min.insync.replicas of each topic; empty if the cluster does not return configs."""
    found: dict[str, int] = {}
    for start in range(0, len(topics), TOPICS_PER_REQUEST):
        part = topics[start : start + TOPICS_PER_REQUEST]
        try:
            configs = admin.topic_configs(cluster, part, [admin.MIN_ISR])
        except ClientError:
            return {}
        for name, values in configs.items():
            value = values.get(admin.MIN_ISR)
            if value is not None:
                found[name] = int(value)
    return found
