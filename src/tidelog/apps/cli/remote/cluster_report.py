"""The cluster as a whole: its brokers, topics, and which partitions are in danger.

Always true: what is counted comes from one Metadata answer, so the counts fit together; the
brokers' own answers (size, epoch) come a moment later.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tidelog.apps.cli.remote.partition_report import State, ask_states, log_sizes
from tidelog.core.types import BrokerId, Offset
from tidelog.shell.client import admin
from tidelog.shell.client.administration.brokers import registered_brokers
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import NO_LEADER, ClusterMetadata, PartitionMetadata

TOPICS_ASKED_TOGETHER = 500
TIDELOG, KAFKA = "Tidelog", "Kafka"


class Broker(NamedTuple):
    """One broker; None is not known."""

    id: BrokerId
    host: str | None
    port: int | None
    rack: str | None
    controller: bool
    registered: bool
    """False: it has replicas, but was unregistered."""
    fenced: bool
    """It takes no part in the cluster: it is down, just starting, or not registered."""
    unreachable: str | None
    leads: int
    follows: int
    in_sync: int
    """Of the replicas it has, those in the ISR."""
    broker_epoch: int | None
    acting: bool | None
    """Whether it serves: a broker that lost its session stops by itself."""
    log_bytes: int | None


class Topic(NamedTuple):
    """One topic."""

    name: str
    internal: bool
    partitions: int
    replication_factor: int


class Summary(NamedTuple):
    """What `cluster info` shows."""

    cluster_id: str | None
    kind: str
    controller: BrokerId | None
    brokers: list[Broker]
    topics: list[Topic]
    partitions: int
    replicas: int

    def away(self) -> list[BrokerId]:
        """Brokers that are fenced, or do not answer."""
        return [each.id for each in self.brokers if each.fenced or each.unreachable is not None]

    def as_data(self) -> dict[str, Any]:
        return {
            **self._asdict(),
            "brokers": [broker._asdict() for broker in self.brokers],
            "topics": [topic._asdict() for topic in self.topics],
        }


class Ailing(NamedTuple):
    """A partition that is not as it should be."""

    topic: str
    partition: int
    leader: BrokerId | None
    replicas: list[BrokerId]
    isr: list[BrokerId]
    min_isr: int | None

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.partition}"


class Damaged(NamedTuple):
    """A replica with records that are damaged or missing."""

    topic: str
    partition: int
    broker: BrokerId
    offset: Offset
    """The first damaged or missing offset."""
    reason: str


class Health(NamedTuple):
    """Partitions by what is wrong with them (M16); a partition may be in several lists."""

    partitions: int
    offline: list[Ailing]
    """Nobody leads: neither written nor read."""
    under_min_isr: list[Ailing]
    """Writes with acks=all are refused."""
    under_replicated: list[Ailing]
    """Not all replicas are in sync."""
    at_min_isr: list[Ailing]
    """One broker less, and writes are refused. No fault by itself."""
    not_preferred: list[Ailing]
    """Led by another replica than the first of its assignment. No fault by itself."""
    no_controller: bool
    brokers_away: list[BrokerId]
    """They are registered or have replicas, and are fenced or do not answer."""
    min_isr_unknown: bool
    damaged: Sequence[Damaged] = ()
    """Replicas that found damage in their logs and are not mended yet."""

    @property
    def holds(self) -> bool:
        wrong = (self.offline, self.under_min_isr, self.under_replicated, self.damaged)
        return not any(wrong) and not self.brokers_away and not self.no_controller

    def as_data(self) -> dict[str, Any]:
        lists = ("offline", "under_min_isr", "under_replicated", "at_min_isr", "not_preferred")
        found = {name: [each._asdict() for each in getattr(self, name)] for name in lists}
        found["damaged"] = [each._asdict() for each in self.damaged]
        return {**self._asdict(), **found}


# -- brokers and topics ----------------------------------------------------------------------


def summarize(cluster: Cluster) -> Summary:
    """Ask for the metadata, and every broker about itself."""
    metadata = cluster.refresh()
    registered = registered_brokers(cluster)
    hosts = {broker for each in _partitions(metadata) for broker in each.replicas}
    ids = sorted({*metadata.brokers, *registered, *hosts})
    states, unreachable = ask_states(cluster, ids)
    kind = TIDELOG if states else KAFKA
    leads = Counter(each.leader for each in _partitions(metadata))
    has = Counter(broker for each in _partitions(metadata) for broker in each.replicas)
    in_sync = Counter(broker for each in _partitions(metadata) for broker in each.isr)
    brokers = []
    for broker in ids:
        place = metadata.brokers.get(broker)
        known = registered.get(broker)
        address = place or known
        state = states.get(broker)
        brokers.append(
            Broker(
                id=broker,
                host=None if address is None else address.host,
                port=None if address is None else address.port,
                rack=None if address is None else address.rack,
                controller=broker == metadata.controller_id,
                registered=known is not None,
                # Metadata may name a broker for a moment after it left.
                fenced=known is None or known.fenced,
                unreachable=unreachable.get(broker),
                leads=leads[broker],
                follows=has[broker] - leads[broker],
                in_sync=in_sync[broker],
                broker_epoch=None if state is None else state["broker_epoch"],
                acting=None if state is None else state["acting"],
                log_bytes=_log_bytes(cluster, broker, state) if place else None,
            )
        )
    topics = [
        Topic(name, topic.internal, len(topic.partitions), _replication_factor(topic.partitions))
        for name, topic in sorted(metadata.topics.items())
    ]
    count = sum(topic.partitions for topic in topics)
    controller = None if metadata.controller_id == NO_LEADER else metadata.controller_id
    cluster_id = metadata.cluster_id
    return Summary(cluster_id, kind, controller, brokers, topics, count, sum(has.values()))


def _partitions(metadata: ClusterMetadata) -> Iterator[PartitionMetadata]:
    for topic in metadata.topics.values():
        yield from topic.partitions.values()


def _replication_factor(partitions: dict[int, PartitionMetadata]) -> int:
    return max((len(each.replicas) for each in partitions.values()), default=0)


def _log_bytes(cluster: Cluster, broker: BrokerId, state: State | None) -> int | None:
    if state is not None:
        return sum(int(each["size"]) for each in state["partitions"])
    try:
        return sum(size for size, _ in log_sizes(cluster, broker))
    except ClientError:
        return None


# -- health ----------------------------------------------------------------------------------


def examine(cluster: Cluster) -> Health:
    """Judge every partition, and see whether every broker answers."""
    metadata = cluster.refresh()
    min_isrs = _min_isrs(cluster, sorted(metadata.topics))
    no_controller = metadata.controller_id == NO_LEADER
    found = Health(0, [], [], [], [], [], no_controller, [], not min_isrs)
    count = 0
    hosts: set[BrokerId] = {*metadata.brokers, *registered_brokers(cluster)}
    for name, topic in sorted(metadata.topics.items()):
        for each in topic.partitions.values():
            count += 1
            hosts.update(each.replicas)
            _judge(found, name, each, min_isrs.get(name))
    states, away = ask_states(cluster, sorted(hosts))
    return found._replace(
        partitions=count,
        brokers_away=sorted(away),
        min_isr_unknown=bool(metadata.topics) and not min_isrs,
        damaged=[each for broker, state in states.items() for each in _damaged(broker, state)],
    )


def _damaged(broker: BrokerId, state: State) -> Iterator[Damaged]:
    for each in state["partitions"]:
        damage = each.get("damage")
        if damage is not None:
            place = (each["topic"], each["partition"])
            yield Damaged(*place, broker, damage["offset"], damage["reason"])


def _judge(found: Health, topic: str, each: PartitionMetadata, min_isr: int | None) -> None:
    leader = None if each.leader == NO_LEADER else each.leader
    ailing = Ailing(topic, each.partition, leader, each.replicas, each.isr, min_isr)
    if leader is None:
        found.offline.append(ailing)
    elif each.replicas and leader != each.replicas[0]:
        found.not_preferred.append(ailing)
    if len(each.isr) < len(each.replicas):
        found.under_replicated.append(ailing)
    if min_isr is not None:
        wanted = min(min_isr, len(each.replicas))  # no more than there are
        if len(each.isr) < wanted:
            found.under_min_isr.append(ailing)
        elif len(each.isr) == wanted:
            found.at_min_isr.append(ailing)


def _min_isrs(cluster: Cluster, topics: list[str]) -> dict[str, int]:
    """Empty if the broker does not tell."""
    found: dict[str, int] = {}
    for start in range(0, len(topics), TOPICS_ASKED_TOGETHER):
        part = topics[start : start + TOPICS_ASKED_TOGETHER]
        try:
            configs = admin.topic_configs(cluster, part, [admin.MIN_ISR])
        except ClientError:
            return {}
        for name, values in configs.items():
            value = values.get(admin.MIN_ISR)
            if value is not None:
                found[name] = int(value)
    return found
