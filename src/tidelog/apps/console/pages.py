"""Renders resources: now from the collector's last sample, earlier ones from the history store."""

from typing import Any

from tidelog.apps.console import resources
from tidelog.apps.console.collector import Collector
from tidelog.apps.console.explanations import explanations, kafka_explanations
from tidelog.apps.console.failure import NOT_FOUND, Failure, before_history, of_client
from tidelog.apps.console.fetched import Fetched
from tidelog.apps.console.recorder import Recorder
from tidelog.apps.console.resources import (
    BROKER,
    GROUP,
    GROUPS,
    OVERVIEW,
    PARTITION,
    TOPIC,
    TRANSACTION,
    TRANSACTIONS,
    Resource,
)
from tidelog.apps.console.sample import RATE_SPAN_MS, Sample, past_sample
from tidelog.apps.console.transactions import past_transaction, transactions_past
from tidelog.apps.views.group_sample import EndOf, with_ends
from tidelog.core.types import TopicPartition
from tidelog.shell.client.client_errors import ClientError

Json = dict[str, Any]
EVENTS_MAX = 100


class Pages:
    """All resources of one cluster."""

    def __init__(
        self, collector: Collector, fetched: Fetched, recorder: Recorder, *, is_file: bool = False
    ) -> None:
        """`is_file`: the present is the end of a file; there are no brokers to ask."""
        self._is_file = is_file
        self._collector = collector
        self._fetched = fetched
        self._recorder = recorder

    def now(self, resource: Resource) -> Json:
        """Return a resource as it is now. Raises Failure."""
        return self.render(resource, self._collector.fresh())

    def past(self, resource: Resource, at_ms: int) -> Json:
        """Return a resource as it was. Raises Failure."""
        if resource.kind in (GROUPS, GROUP):
            return self._past_groups(resource, at_ms)
        if resource.kind == TRANSACTION:
            raise past_transaction()
        topic = resource.name if resource.kind in (TOPIC, PARTITION) else None
        found = self._recorder.state_at(at_ms, topic)
        if found is None:
            raise before_history()
        states, metadata = found
        earlier = (
            self._recorder.state_at(at_ms - RATE_SPAN_MS) if resource.kind == OVERVIEW else None
        )
        before = None
        if earlier is not None:
            before = past_sample(at_ms - RATE_SPAN_MS, *earlier, None).totals
        seen = self._recorder.last_seen(at_ms, *resource.key) if resource.key else None
        sample = past_sample(at_ms, states, metadata, before, seen)
        if resource.kind == TRANSACTIONS:
            return transactions_past(sample, self._recorder.sampled_at(at_ms))
        data = self._from_sample(resource, sample, past=True)
        return {**data, "sampled_at_ms": self._recorder.sampled_at(at_ms)}

    def _past_groups(self, resource: Resource, at_ms: int) -> Json:
        """Return the groups, or one of them, as they were. Raises Failure."""
        found = self._recorder.groups_at(at_ms)
        if found is None:
            why = "the history has no groups of that time"
            raise Failure(NOT_FOUND, why, "open the page without a time")
        sampled_ms, groups = found
        moment = self._recorder.state_at(at_ms)
        end_of: EndOf = lambda _: None  # noqa: E731
        if moment is not None:
            end_of = past_sample(at_ms, *moment, None).log_end
        if resource.kind == GROUPS:
            rows = [each.row(end_of) for each in groups]
            return {"at_ms": at_ms, "groups": rows, "failed": [], "sampled_at_ms": sampled_ms}
        view = next((each.view for each in groups if each.listed.group == resource.name), None)
        if view is None:
            why = f"there was no group {resource.name!r}, or the history has only its name"
            raise Failure(NOT_FOUND, why, "the list of groups has all groups")
        events = self._recorder.group_events(resource.name, at_ms, EVENTS_MAX)
        data = with_ends(view, end_of).as_data()
        return {"at_ms": at_ms, **data, "events": events, "sampled_at_ms": sampled_ms}

    def render(self, resource: Resource, sample: Sample) -> Json:
        """Return a resource from this sample, and from further requests. Raises Failure."""
        try:
            if resource.kind == GROUPS:
                return self._fetched.groups(sample.log_end if sample.is_tidelog else None)
            if resource.kind == GROUP:
                events = self._recorder.group_events(resource.name, None, EVENTS_MAX)
                return {**self._fetched.group(resource.name), "events": events}
            if resource.kind == TRANSACTIONS and self._is_file:
                return transactions_past(sample, sample.at_ms)
            if resource.kind == TRANSACTIONS:
                return self._fetched.transactions(sample)
            if resource.kind == TRANSACTION and self._is_file:
                raise past_transaction()
            if resource.kind == TRANSACTION:
                return self._fetched.transaction(sample, resource.name)
            return self._from_sample(resource, sample, past=False)
        except ClientError as error:
            raise of_client(error) from error

    def needs_requests(self, resource: Resource, sample: Sample) -> bool:
        """Whether a sample alone does not show changes of this resource."""
        if resource.kind in (GROUPS, GROUP, TRANSACTIONS, TRANSACTION):
            return True
        return resource.kind in (TOPIC, PARTITION) and not sample.is_tidelog

    def _from_sample(self, resource: Resource, sample: Sample, *, past: bool) -> Json:
        if resource.kind == OVERVIEW:
            return resources.overview(sample)
        if resource.kind == TOPIC:
            resources.find_topic(sample, resource.name)
            configs = [] if past else self._fetched.topic_configs(resource.name)
            return resources.topic(sample, resource.name, configs)
        if resource.kind == BROKER:
            known = resource.number in sample.answers.states or not sample.is_tidelog
            configs = self._fetched.broker_configs(resource.number) if known and not past else []
            return resources.broker(sample, resource.number, configs)
        assert resource.kind == PARTITION
        key = TopicPartition(resource.name, resource.number)
        if sample.is_tidelog or past:
            view = resources.partition_view(sample, key)
            data = resources.partition(sample, view)
            data["explain"] = explanations(sample, view)
        else:
            data = self._fetched.kafka_partition(key)
            data["explain"] = kafka_explanations(sample, data["partition"])
        to_ms = sample.at_ms if past else None
        data["events"] = self._recorder.events(None, to_ms, *key, EVENTS_MAX)
        return data
