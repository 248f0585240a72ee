"""The explanations of a partition page, from a sample of now or of an earlier moment."""

from typing import Any

from tidelog.apps.console.sample import Sample
from tidelog.apps.explain.explain import explain, situation_from_states
from tidelog.apps.explain.situation import Situation
from tidelog.apps.views.partition import PartitionView, ReplicaView

Json = dict[str, Any]


def explanations(sample: Sample, view: PartitionView) -> list[Json]:
    """Return the explanations of a partition."""
    alive = frozenset(sample.metadata.brokers)
    now = situation_from_states(sample.fetched, view, alive)
    return [each.as_data() for each in explain(now)]


def kafka_explanations(sample: Sample, partition: Json) -> list[Json]:
    """Return the explanations of a partition of Kafka, whose view is given as data."""
    rows = [ReplicaView(**each) for each in partition["replicas"]]
    view = PartitionView(**{**partition, "replicas": rows})
    now = Situation(view, frozenset(sample.metadata.brokers), kafka=True)
    return [each.as_data() for each in explain(now)]
