"""Request leader elections, as Kafka's kafka-leader-election does."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.apps.changes.outcome import Change, done, rejected
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.shell.client.administration.partitions import elect_leaders as request_election
from tidelog.shell.client.client_errors import BrokerError
from tidelog.shell.client.cluster_metadata import NO_LEADER
from tidelog.shell.client.retry import Retry

if TYPE_CHECKING:
    from tidelog.shell.client.administration.topics import Outcome
    from tidelog.shell.client.cluster import Cluster
    from tidelog.shell.client.cluster_metadata import PartitionMetadata

_HINTS: dict[int, str] = {
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "`tidelog partition describe {name}` shows why",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "start a broker that has a replica",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`tidelog topic list` shows the topics",
}


def elect_leaders(
    cluster: "Cluster", names: Sequence[tuple[str, int | None]] | None, *, unclean: bool
) -> list[Change]:
    """Elect leaders of partitions, or of all partitions that need an election (None)."""
    wanted = None if names is None else _partitions(cluster, names)
    outcomes = request_election(cluster, wanted, unclean=unclean)
    elected = [key for key, outcome in outcomes.items() if outcome.holds]
    leaders = _await_leaders(cluster, elected, preferred=not unclean)
    return [
        _change(key, outcome, leaders.get(key), unclean=unclean)
        for key, outcome in sorted(outcomes.items())
    ]


def _partitions(
    cluster: "Cluster", names: Sequence[tuple[str, int | None]]
) -> list[TopicPartition]:
    """Expand a topic without a partition number to all its partitions. Raises NoSuchTopic."""
    cluster.refresh(sorted({topic for topic, _ in names}))
    wanted: dict[TopicPartition, None] = {}
    for topic, number in names:
        numbers = cluster.topic(topic).partitions if number is None else (number,)
        wanted.update({TopicPartition(topic, each): None for each in numbers})
    return list(wanted)


def _await_leaders(
    cluster: "Cluster", keys: Sequence[TopicPartition], *, preferred: bool
) -> dict[TopicPartition, int]:
    """Wait until the metadata shows the elected leaders; return them."""
    retry = Retry(cluster.timeout_s)
    topics = sorted({key.topic for key in keys})
    while keys:
        cluster.refresh(topics)
        shown = {key: cluster.topic(key.topic).partitions[key.partition] for key in keys}
        if all(_shows_election(each, preferred=preferred) for each in shown.values()):
            return {key: each.leader for key, each in shown.items()}
        late = BrokerError("waiting for the new leaders", ErrorCode.REQUEST_TIMED_OUT)
        retry.wait(late)
    return {}


def _shows_election(partition: "PartitionMetadata", *, preferred: bool) -> bool:
    if preferred:
        return partition.leader == partition.replicas[0]
    return partition.leader != NO_LEADER


def _change(
    key: TopicPartition, outcome: "Outcome", leader: int | None, *, unclean: bool
) -> Change:
    name = f"{key.topic}/{key.partition}"
    if outcome.error == ErrorCode.ELECTION_NOT_NEEDED:
        why = "it has a leader" if unclean else "its preferred replica leads"
        return done(name, f"{name}: no election needed, {why}")
    if outcome.holds:
        return done(name, f"{name}: broker {leader} leads")
    hint = _HINTS.get(outcome.error, "").format(name=name)
    return rejected(f"electing a leader of {name}", outcome._replace(name=name), hint)
