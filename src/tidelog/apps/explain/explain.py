"""All explanations of one partition, from the state of a running cluster."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tidelog.apps.explain.election import explain_election
from tidelog.apps.explain.high_watermark import (
    explain_high_watermark,
    explain_last_stable_offset,
)
from tidelog.apps.explain.in_sync import explain_isr, explain_leader
from tidelog.apps.explain.losses import explain_damage, explain_losses
from tidelog.apps.explain.reassignment import explain_reassignment
from tidelog.apps.explain.situation import BAD, Explanation, Situation
from tidelog.apps.views.broker import State, fetch_states
from tidelog.apps.views.partition import (
    FetchedStates,
    PartitionView,
    partition_from_states,
    view_partitions,
    with_kafka_details,
)
from tidelog.core.types import BrokerId, TopicPartition
from tidelog.shell.client.cluster import Cluster

RULES = (
    explain_leader,
    explain_high_watermark,
    explain_isr,
    explain_reassignment,
    explain_last_stable_offset,
    explain_election,
    explain_losses,
    explain_damage,
)


def explain(now: Situation) -> list[Explanation]:
    """Return all explanations of a partition, by topic."""
    return [each for rule in RULES for each in rule(now)]


def situation_from_states(
    fetched: FetchedStates, view: PartitionView, alive: frozenset[BrokerId]
) -> Situation:
    """Return the situation of a partition from states that were fetched before."""
    leader = fetched.leader_of(TopicPartition(view.topic, view.partition), view.leader_epoch)
    return Situation(view, alive, leader, _clocks(fetched.states))


def _clocks(states: Mapping[BrokerId, State]) -> dict[BrokerId, int]:
    return {broker: state["now_ms"] for broker, state in states.items()}


class ExplainView(NamedTuple):
    """The explanations of one partition of a running cluster."""

    partition: PartitionView
    explanations: list[Explanation]
    missing: str | None
    """A sentence that lists the unknown values if this is not a Tidelog cluster."""

    @property
    def holds(self) -> bool:
        """Whether no explanation reports a problem."""
        return all(each.severity != BAD for each in self.explanations)

    def as_data(self) -> dict[str, Any]:
        return {
            "partition": self.partition.as_data(),
            "explain": [each.as_data() for each in self.explanations],
            "missing": self.missing,
        }


def explain_partition(cluster: Cluster, topic: str, partition: int) -> ExplainView:
    """Fetch the state of a partition and explain it. Raises NoSuchTopic, ClientError."""
    cluster.refresh([topic])
    found, known = cluster.topic(topic), cluster.partition(topic, partition)
    answers = fetch_states(cluster, sorted(known.replicas), topic, partition)
    alive = frozenset(cluster.metadata.brokers)
    if not answers.states and len(answers.unreachable) < len(known.replicas):
        report = view_partitions(cluster, topic, partition)
        view = with_kafka_details(cluster, report.partitions[0])
        now = Situation(view, alive, kafka=True)
        return ExplainView(view, explain(now), report.missing)
    fetched = FetchedStates(answers, cluster.metadata.brokers)
    view = partition_from_states(fetched, topic, found.id, known)
    return ExplainView(view, explain(situation_from_states(fetched, view, alive)), None)
