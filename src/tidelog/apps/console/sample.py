"""One moment of a cluster: what the collector fetched, or what the history store returned."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

from tidelog.apps.views.broker import NOT_IN_CLUSTER, BrokerStates, State, all_partitions
from tidelog.apps.views.partition import FetchedStates
from tidelog.core.types import BrokerId, Offset, TopicPartition
from tidelog.shell.client.admin import RegisteredBroker
from tidelog.shell.client.cluster_metadata import ClusterMetadata

DID_NOT_RESPOND = "in the cluster, but it did not respond"
RATE_SPAN_MS = 5_000
"""The time span of rates."""


class Totals(NamedTuple):
    """Sums of offsets at one moment, to compute rates from two of them."""

    at_ms: int
    written: Mapping[str, int]
    """The sum of log end offsets of the leaders, by topic."""
    committed: int
    """The sum of the leaders' high watermarks."""


class Seen(NamedTuple):
    """The last state of a broker that does not respond."""

    at_ms: int
    """When it responded last, or when it was first found silent."""
    state: State


class Sample:
    """The state of all brokers at one moment, with the metadata of the same moment.

    Invariant: it is never changed, so the collector and all pages may use it at once.
    """

    def __init__(
        self,
        at_ms: int,
        metadata: ClusterMetadata,
        registered: Mapping[BrokerId, RegisteredBroker],
        answers: BrokerStates,
        processes: Mapping[BrokerId, str] | None = None,
        isolated: Mapping[BrokerId, bool] | None = None,
        before: Totals | None = None,
        seen: Mapping[BrokerId, Seen] | None = None,
        *,
        is_tidelog: bool = True,
    ) -> None:
        self.at_ms = at_ms
        self.metadata = metadata
        self.registered = registered
        self.answers = answers
        self.processes = processes or {}
        self.isolated = isolated or {}
        self.before = before
        """Totals of a few seconds earlier."""
        self.seen = seen or {}
        """The last states of brokers that do not respond now, where they are known."""
        self.is_tidelog = is_tidelog
        """False for Kafka, whose brokers report no states."""

    @cached_property
    def fetched(self) -> FetchedStates:
        """The states, indexed by partition."""
        return FetchedStates(self.answers, self.metadata.brokers)

    @cached_property
    def min_isrs(self) -> dict[str, int]:
        """min.insync.replicas by topic, as the replicas report it."""
        return {
            each["topic"]: each["min_isr"]
            for state in self.answers.states.values()
            for each in state["partitions"]
            if each["topic"] is not None and each["min_isr"] is not None
        }

    @cached_property
    def totals(self) -> Totals:
        """The offsets of all leaders, summed."""
        written: dict[str, int] = {}
        committed = 0
        for key in self.fetched.hosted:
            leader = self.fetched.leader_of(key)
            if leader is not None:
                written[key.topic] = written.get(key.topic, 0) + (leader["log_end_offset"] or 0)
                committed += leader["high_watermark"] or 0
        return Totals(self.at_ms, written, committed)

    def log_end(self, key: TopicPartition) -> Offset | None:
        """Return the end of a partition for consumers, as its leader reports it: the HW."""
        leader = self.fetched.leader_of(key)
        found: Offset | None = None if leader is None else leader["high_watermark"]
        return found

    def with_partitions(
        self, at_ms: int, keys: Iterable[TopicPartition], answers: BrokerStates
    ) -> "Sample":
        """Return a sample with newer states of some partitions, and the others as they were."""
        newer = set(keys)
        states = dict(self.answers.states)
        for broker, state in answers.states.items():
            kept = [
                each
                for each in (states[broker]["partitions"] if broker in states else ())
                if (each["topic"], each["partition"]) not in newer
            ]
            states[broker] = {**state, "partitions": [*kept, *state["partitions"]]}
        unreachable = {**self.answers.unreachable, **answers.unreachable}
        seen = dict(self.seen)
        for broker in answers.unreachable:
            if broker in states:
                seen[broker] = Seen(self.at_ms, states.pop(broker))
        for broker in answers.states:
            unreachable.pop(broker, None)
        return Sample(
            at_ms,
            self.metadata,
            self.registered,
            BrokerStates(states, unreachable),
            self.processes,
            self.isolated,
            self.before,
            seen,
            is_tidelog=self.is_tidelog,
        )


def past_sample(
    at_ms: int,
    states: Mapping[BrokerId, State],
    metadata: ClusterMetadata,
    before: Totals | None,
    seen: Mapping[BrokerId, Seen] | None = None,
) -> Sample:
    """Return the sample of an earlier moment, as the history store keeps it."""
    replicas = {broker for each in all_partitions(metadata) for broker in each.replicas}
    away = dict.fromkeys(replicas - metadata.brokers.keys(), NOT_IN_CLUSTER)
    if states:  # else it was Kafka
        away.update(dict.fromkeys(metadata.brokers.keys() - states.keys(), DID_NOT_RESPOND))
    registered = {
        each.id: RegisteredBroker(*each, fenced=False) for each in metadata.brokers.values()
    }
    return Sample(
        at_ms, metadata, registered, BrokerStates(dict(states), away), before=before, seen=seen
    )
