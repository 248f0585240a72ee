"""The explanations of a partition page, from a sample of now or of an earlier moment."""

from typing import Any, NamedTuple

from tidelog.apps.console.failure import before_history
from tidelog.apps.console.recorder import Recorder
from tidelog.apps.console.resources import partition_view
from tidelog.apps.console.sample import Sample, past_sample
from tidelog.apps.explain.explain import ExplainView, explain, situation_from_states
from tidelog.apps.explain.situation import Situation
from tidelog.apps.views.partition import PartitionView, ReplicaView
from tidelog.core.types import TopicPartition

Json = dict[str, Any]


class PastView(NamedTuple):
    """The explanations of a partition at an earlier moment."""

    report: ExplainView
    sampled_ms: int
    """The time of the sample that they are made from."""

    def as_data(self) -> Json:
        return {"sampled_at_ms": self.sampled_ms, **self.report.as_data()}


def explain_past(recorder: Recorder, key: TopicPartition, at_ms: int | None) -> PastView:
    """Explain a partition at a moment of a history; None: the last one. Raises Failure."""
    if at_ms is None:
        span = recorder.span()
        at_ms = 0 if span is None else span.to_ms
    found, sampled_ms = recorder.state_at(at_ms, key.topic), recorder.sampled_at(at_ms)
    if found is None or sampled_ms is None:
        raise before_history()
    sample = past_sample(at_ms, *found, None)
    view = partition_view(sample, key)
    now = _situation(sample, view)
    return PastView(ExplainView(view, explain(now), None), sampled_ms)


def explanations(sample: Sample, view: PartitionView) -> list[Json]:
    """Return the explanations of a partition."""
    return [each.as_data() for each in explain(_situation(sample, view))]


def _situation(sample: Sample, view: PartitionView) -> Situation:
    return situation_from_states(sample.fetched, view, frozenset(sample.metadata.brokers))


def kafka_explanations(sample: Sample, partition: Json) -> list[Json]:
    """Return the explanations of a partition of Kafka, whose view is given as data."""
    rows = [ReplicaView(**each) for each in partition["replicas"]]
    view = PartitionView(**{**partition, "replicas": rows})
    now = Situation(view, frozenset(sample.metadata.brokers), kafka=True)
    return [each.as_data() for each in explain(now)]
