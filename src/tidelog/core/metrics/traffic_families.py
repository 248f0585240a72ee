"""Metrics of what comes and goes: bytes and messages by topic, requests and how long they take,
turns of the loop, connections, the process.
"""

from collections.abc import Callable, Iterator

from tidelog.core.histogram import NS_PER_SECOND, Histogram
from tidelog.core.metrics.broker_families import summary_samples
from tidelog.core.metrics.exposition import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    SUMMARY,
    Family,
    Sample,
    labelled,
)
from tidelog.core.metrics.scrape import Scrape
from tidelog.core.node.measuring.counters import NS_PER_MS
from tidelog.core.node.measuring.request_times import FETCH, FETCH_CONSUMER, FETCH_FOLLOWER

BUCKETS_NS = tuple(1000 * 4**step for step in range(13))
"""From a microsecond to sixteen seconds; each is a bound of the histogram."""


def _topic(name: str, field: str, meaning: str) -> Family:
    def samples(scrape: Scrape) -> Iterator[Sample]:
        counters = scrape.node.counters
        yield "", "", getattr(counters.all_topics(), field)
        for topic, traffic in sorted(counters.topics.items()):
            yield "", labelled(topic=topic), getattr(traffic, field)

    family = f"kafka_server_brokertopicmetrics_{name}_total"
    return Family(family, COUNTER, ("topic",), meaning, samples)


def _requests(scrape: Scrape) -> Iterator[tuple[str, Histogram]]:
    """Those that came, by name; those of Kafka's that can wait are told from the start."""
    by_request = scrape.times.by_request
    yield from sorted(by_request.items())


def _total_times(scrape: Scrape) -> Iterator[Sample]:
    for request, times in _requests(scrape):
        yield from summary_samples(times, scrape.now_ms, NS_PER_MS, request=request)


def _request_counts(scrape: Scrape) -> Iterator[Sample]:
    for request, times in _requests(scrape):
        yield "", labelled(request=request), times.count
    by_request = scrape.times.by_request
    fetches = by_request[FETCH_CONSUMER].count + by_request[FETCH_FOLLOWER].count
    yield "", labelled(request=FETCH), fetches


def _request_buckets(scrape: Scrape) -> Iterator[Sample]:
    for request, times in _requests(scrape):
        yield from _buckets(times, request=request)


def _buckets(times: Histogram, **labels: str) -> Iterator[Sample]:
    for bound_ns in BUCKETS_NS:
        bound = labelled(**labels, le=repr(bound_ns / NS_PER_SECOND))
        yield "_bucket", bound, times.upto(bound_ns)
    count = times.count
    yield "_bucket", labelled(**labels, le="+Inf"), count
    yield "_sum", labelled(**labels), times.sum_ns / NS_PER_SECOND
    yield "_count", labelled(**labels), count


def _process(name: str, kind: str, meaning: str) -> Family:
    def samples(scrape: Scrape) -> Iterator[Sample]:
        value = scrape.surroundings.process.get(name)
        if value is not None:
            yield "", "", value

    return Family(name, kind, (), meaning, samples)


def _by(
    label: str, counts: Callable[[Scrape], dict[str, int]]
) -> Callable[[Scrape], Iterator[Sample]]:
    def samples(scrape: Scrape) -> Iterator[Sample]:
        for name, count in sorted(counts(scrape).items()):
            yield "", labelled(**{label: name}), count

    return samples


TOPICS = (
    _topic("messagesin", "messages_in", "Records that producers sent and this leader took."),
    _topic("bytesin", "bytes_in", "Their bytes, as whole batches. Without a label: all topics."),
    _topic("bytesout", "bytes_out", "Bytes of records sent to consumers."),
    _topic("bytesrejected", "bytes_rejected", "Bytes of batches that were refused."),
    _topic("totalproducerequests", "produce_requests", "Produces, once for each partition."),
    _topic("failedproducerequests", "failed_produce_requests", "Those with a refused batch."),
    _topic("totalfetchrequests", "fetch_requests", "Consumers' fetches answered, by partition."),
    _topic("failedfetchrequests", "failed_fetch_requests", "Those answered with an error."),
    _topic("replicationbytesin", "replication_bytes_in", "Bytes fetched from leaders."),
    _topic("replicationbytesout", "replication_bytes_out", "Bytes sent to followers."),
)

REQUESTS = (
    Family(
        "kafka_network_requestmetrics_requests_total",
        COUNTER,
        ("request",),
        "Requests answered. Fetch is the sum of FetchConsumer and FetchFollower.",
        _request_counts,
    ),
    Family(
        "kafka_network_requestmetrics_totaltimems",
        SUMMARY,
        ("request", "quantile"),
        "Milliseconds from a request's arrival to its answer; percentiles of the last minutes."
        " Fetches and produces wait on purpose.",
        _total_times,
    ),
    Family(
        "tidelog_request_seconds",
        HISTOGRAM,
        ("request", "le"),
        "The same as buckets, which can be summed over brokers.",
        _request_buckets,
    ),
    Family(
        "tidelog_loop_turn_seconds",
        HISTOGRAM,
        ("le",),
        "Turns of the broker's loop: while one lasts, nobody else is served.",
        lambda s: _buckets(s.times.turn),
    ),
)

CONNECTIONS = (
    Family(
        "kafka_server_socket_server_metrics_connection_count",
        GAUGE,
        ("listener",),
        "Open connections.",
        _by("listener", lambda s: dict(s.surroundings.connections)),
    ),
    Family(
        "tidelog_connections_ended_total",
        COUNTER,
        ("reason",),
        "Connections that were refused or dropped by the broker.",
        _by("reason", lambda s: dict(s.surroundings.refused)),
    ),
)

PROCESS = (
    _process("process_cpu_seconds_total", COUNTER, "CPU time, user and system."),
    _process("process_resident_memory_bytes", GAUGE, "Memory in RAM."),
    _process("process_virtual_memory_bytes", GAUGE, "Address space."),
    _process("process_open_fds", GAUGE, "Open files and sockets."),
    _process("process_max_fds", GAUGE, "How many it may open."),
    _process("process_start_time_seconds", GAUGE, "When it started, in seconds since 1970."),
)
