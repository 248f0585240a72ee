"""Metrics of traffic: bytes and records by topic, requests and their times, turns of the event
loop, connections, the process.
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
"""From a microsecond to sixteen seconds; each is a bound of `Histogram` too."""


def _topic(name: str, field: str, meaning: str) -> Family:
    def samples(scrape: Scrape) -> Iterator[Sample]:
        counters = scrape.node.counters
        yield "", "", getattr(counters.all_topics(), field)
        for topic, traffic in sorted(counters.topics.items()):
            yield "", labelled(topic=topic), getattr(traffic, field)

    family = f"kafka_server_brokertopicmetrics_{name}_total"
    return Family(family, COUNTER, ("topic",), meaning, samples)


def _requests(scrape: Scrape) -> Iterator[tuple[str, Histogram]]:
    """Times by request name. Produce and Fetch are there from the start, others once received."""
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
        value = scrape.host.process.get(name)
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
    _topic(
        "messagesin",
        "messages_in",
        "Records appended by producers to partitions led by this broker.",
    ),
    _topic("bytesin", "bytes_in", "Bytes of their batches. Without a label: all topics."),
    _topic("bytesout", "bytes_out", "Bytes of records sent to consumers."),
    _topic("bytesrejected", "bytes_rejected", "Bytes of refused batches."),
    _topic(
        "totalproducerequests", "produce_requests", "Produce requests, counted once per partition."
    ),
    _topic(
        "failedproducerequests",
        "failed_produce_requests",
        "Produce requests with a refused batch, per partition.",
    ),
    _topic(
        "totalfetchrequests",
        "fetch_requests",
        "Answered fetches of consumers, counted once per partition.",
    ),
    _topic(
        "failedfetchrequests",
        "failed_fetch_requests",
        "Fetches of consumers that failed, per partition.",
    ),
    _topic(
        "replicationbytesin", "replication_bytes_in", "Bytes that followers on this broker fetched."
    ),
    _topic("replicationbytesout", "replication_bytes_out", "Bytes sent to followers."),
)

REQUESTS = (
    Family(
        "kafka_network_requestmetrics_requests_total",
        COUNTER,
        ("request",),
        "Answered requests. Fetch is the sum of FetchConsumer and FetchFollower.",
        _request_counts,
    ),
    Family(
        "kafka_network_requestmetrics_totaltimems",
        SUMMARY,
        ("request", "quantile"),
        "Milliseconds from a request's arrival to its response; percentiles of the last minutes."
        " Includes the time that fetches wait for records and produces for replication.",
        _total_times,
    ),
    Family(
        "tidelog_request_seconds",
        HISTOGRAM,
        ("request", "le"),
        "Seconds from a request's arrival to its response, in buckets that can be summed over"
        " brokers.",
        _request_buckets,
    ),
    Family(
        "tidelog_loop_turn_seconds",
        HISTOGRAM,
        ("le",),
        "Duration of the event loop's turns. During a turn, no other request is served.",
        lambda s: _buckets(s.times.turn),
    ),
)

CONNECTIONS = (
    Family(
        "kafka_server_socket_server_metrics_connection_count",
        GAUGE,
        ("listener",),
        "Open connections.",
        _by("listener", lambda s: dict(s.host.connections)),
    ),
    Family(
        "tidelog_connections_ended_total",
        COUNTER,
        ("reason",),
        "Connections that the broker refused or closed.",
        _by("reason", lambda s: dict(s.host.refused)),
    ),
)

PROCESS = (
    _process("process_cpu_seconds_total", COUNTER, "CPU time of the process, user and system."),
    _process("process_resident_memory_bytes", GAUGE, "Resident memory of the process."),
    _process("process_virtual_memory_bytes", GAUGE, "Virtual memory of the process."),
    _process("process_open_fds", GAUGE, "Open file descriptors of the process."),
    _process("process_max_fds", GAUGE, "The largest number of open file descriptors."),
    _process(
        "process_start_time_seconds", GAUGE, "Start time of the process, in seconds since 1970."
    ),
)
