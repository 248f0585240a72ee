"""Metrics of clients with quotas: what they use, and how long they are throttled.

As with Kafka, the label that does not decide is empty: clients that share the limit of a user have
no client id. Clients without a limit are not measured.
"""

from collections.abc import Callable, Iterator

from tidelog.core.metrics.exposition import GAUGE, SUMMARY, Family, Sample, labelled
from tidelog.core.metrics.scrape import Scrape
from tidelog.core.quotas.client_quotas import ClientQuota, ClientQuotas, Limit

_LABELS = ("user", "client_id")
_THROTTLED = "Throttle times that clients were given, in milliseconds, for"
_Find = Callable[[ClientQuotas], ClientQuota]


def _each(scrape: Scrape, find: _Find) -> Iterator[tuple[str, Limit]]:
    quota = find(scrape.node.client_quotas.current())
    for (user, client_id), usage in quota.usages(scrape.now_ms):
        found = quota.limit_of(user, client_id)
        if found is not None:
            labels = labelled(user=user, client_id=client_id)
            yield labels, Limit(found[0], (user, client_id), usage)


def _rate(name: str, meaning: str, find: _Find) -> Family:
    def samples(scrape: Scrape) -> Iterator[Sample]:
        for labels, limit in _each(scrape, find):
            yield "", labels, limit.usage.rate.per_second(scrape.now_ms)

    return Family(name, GAUGE, _LABELS, meaning, samples)


def _throttle_time(name: str, quota: str, find: _Find) -> Family:
    def samples(scrape: Scrape) -> Iterator[Sample]:
        for labels, limit in _each(scrape, find):
            yield "_sum", labels, limit.usage.throttled_ms
            yield "_count", labels, limit.usage.throttled

    return Family(name, SUMMARY, _LABELS, f"{_THROTTLED} `{quota}`.", samples)


def _tokens(scrape: Scrape) -> Iterator[Sample]:
    for labels, limit in _each(scrape, lambda quotas: quotas.mutation):
        if limit.usage.tokens is not None:
            yield "", labels, limit.usage.tokens.tokens(limit.value, scrape.now_ms)


QUOTAS = (
    _rate(
        "kafka_server_produce_byte_rate",
        "Bytes a second of produce requests, of clients with `producer_byte_rate`.",
        lambda quotas: quotas.produce,
    ),
    _throttle_time(
        "kafka_server_produce_throttle_time", "producer_byte_rate", lambda quotas: quotas.produce
    ),
    _rate(
        "kafka_server_fetch_byte_rate",
        "Bytes a second of fetch responses, of clients with `consumer_byte_rate`.",
        lambda quotas: quotas.fetch,
    ),
    _throttle_time(
        "kafka_server_fetch_throttle_time", "consumer_byte_rate", lambda quotas: quotas.fetch
    ),
    _rate(
        "kafka_server_request_request_time",
        "Percent of the broker's thread, of clients with `request_percentage`.",
        lambda quotas: quotas.request,
    ),
    _throttle_time(
        "kafka_server_request_throttle_time", "request_percentage", lambda quotas: quotas.request
    ),
    _rate(
        "kafka_server_controllermutation_mutation_rate",
        "Partitions a second, of clients with `controller_mutation_rate`.",
        lambda quotas: quotas.mutation,
    ),
    Family(
        "kafka_server_controllermutation_tokens",
        GAUGE,
        _LABELS,
        "Partitions that clients with `controller_mutation_rate` may still change; below 0 while"
        " they must wait.",
        _tokens,
    ),
    _throttle_time(
        "kafka_server_controllermutation_throttle_time",
        "controller_mutation_rate",
        lambda quotas: quotas.mutation,
    ),
)
