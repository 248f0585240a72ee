"""Metrics of a broker as a whole and of its traffic, under the names that jmx_exporter gives
Kafka's.

Metrics that only the controller knows are 0 on other brokers, as in Kafka, so that the sum over the
brokers is the cluster's value.
"""

from collections.abc import Callable, Iterator

from tidelog.core.coordinator.lookup import OFFSETS_TOPIC
from tidelog.core.groups.membership.group import GroupState
from tidelog.core.histogram import NS_PER_SECOND, Histogram, quantiles
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
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.hosting.loss_recorder import CAUSES
from tidelog.core.node.measuring.counters import NS_PER_MS, LossCount
from tidelog.core.node.measuring.request_times import FETCH, FETCH_CONSUMER, FETCH_FOLLOWER
from tidelog.core.node.upkeep.scrubber import NO_TIME_MS

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
RUNNING, STARTING = 3, 1
"""Kafka's numbers for a broker's state."""


def _one(
    name: str, kind: str, meaning: str, value: Callable[[Scrape], float], labels: str = ""
) -> Family:
    names = tuple(part.partition("=")[0] for part in labels.strip("{}").split(",") if part)
    return Family(name, kind, names, meaning, lambda scrape: [("", labels, value(scrape))])


def summary_samples(times: Histogram, now_ms: int, unit_ns: int, **labels: str) -> Iterator[Sample]:
    """Percentiles of the last one or two minutes; sum and count since the start."""
    found = quantiles(times.recent(now_ms), QUANTILES)
    for quantile, took_ns in zip(QUANTILES, found, strict=True):
        spelled = "0.50" if quantile == 0.5 else str(quantile)
        yield "", labelled(**labels, quantile=spelled), took_ns / unit_ns
    yield "_sum", labelled(**labels), times.sum_ns / unit_ns
    yield "_count", labelled(**labels), times.count


def _purgatory(scrape: Scrape) -> Iterator[Sample]:
    waiting = dict(scrape.node.purgatory())
    groups = [
        g
        for h in scrape.node.coordinators.shards(OFFSETS_TOPIC).values()
        if h.loaded
        for g in h.shard.groups
    ]
    waiting["Rebalance"] = sum(g.state is GroupState.PREPARING_REBALANCE for g in groups)
    waiting["Heartbeat"] = sum(len(group.members) for group in groups)
    for operation, count in waiting.items():
        yield "", labelled(delayedOperation=operation), count


def _on_controller(count: Callable[[Scrape], int]) -> Callable[[Scrape], int]:
    return lambda scrape: count(scrape) if scrape.is_controller else 0


def _committed_partitions(scrape: Scrape) -> int:
    return sum(topic.partition_count for topic in scrape.node.image.topics.values())


def _not_preferred(scrape: Scrape) -> int:
    image = scrape.node.image
    return sum(p.leader != p.replicas[0] for key, p in image.partitions.items() if p.replicas)


def _fenced(scrape: Scrape) -> int:
    return sum(b.fenced for b in scrape.node.image.brokers.values())


def _max_lag(scrape: Scrape) -> int:
    return max((lag_behind_leader(replica) for replica, _ in scrape.followed), default=0)


def lag_behind_leader(replica: HostedReplica) -> int:
    """Committed records that are missing in a follower, by the leader's last high watermark."""
    return max(0, replica.leader_high_watermark - replica.partition.log_end_offset)


def _elections(scrape: Scrape) -> Iterator[Sample]:
    yield from summary_samples(scrape.node.counters.elections, scrape.now_ms, NS_PER_MS)


def _last_pass_age(scrape: Scrape) -> Iterator[Sample]:
    last_ms = scrape.node.scrubber.last_pass_ms
    if last_ms != NO_TIME_MS:
        yield "", "", (scrape.now_ms - last_ms) / 1000


def _session_left(scrape: Scrape) -> float:
    deadline_ms = scrape.node.session_deadline_ms
    return 0.0 if deadline_ms is None else (deadline_ms - scrape.now_ms) / 1000


_MANAGER = "kafka_server_replicamanager"
_CONTROLLER = "kafka_controller_kafkacontroller"


def _losses(scrape: Scrape) -> Iterator[Sample]:
    counts = scrape.node.counters.losses
    for cause in CAUSES:
        yield "", labelled(cause=cause), counts[cause].losses if cause in counts else 0


def _loss_records(scrape: Scrape) -> Iterator[Sample]:
    for cause in CAUSES:
        count = scrape.node.counters.losses.get(cause, LossCount())
        yield "", labelled(cause=cause, kind="removed"), count.removed
        yield "", labelled(cause=cause, kind="committed"), count.committed
        yield "", labelled(cause=cause, kind="acknowledged"), count.acknowledged


REPLICAS = (
    _one(f"{_MANAGER}_partitioncount", GAUGE, "Replicas on this broker.", lambda s: len(s.hosted)),
    _one(
        f"{_MANAGER}_leadercount", GAUGE, "Partitions that this broker leads.", lambda s: len(s.led)
    ),
    _one(
        f"{_MANAGER}_underreplicatedpartitions",
        GAUGE,
        "Partitions led by this broker whose ISR is smaller than the replication factor.",
        lambda s: sum(led.under_replicated for led in s.led),
    ),
    _one(
        f"{_MANAGER}_underminisrpartitioncount",
        GAUGE,
        "Partitions led by this broker that refuse acks=all: the ISR is below min.insync.replicas.",
        lambda s: sum(led.under_min_isr for led in s.led),
    ),
    _one(
        f"{_MANAGER}_atminisrpartitioncount",
        GAUGE,
        "Partitions led by this broker whose ISR is exactly min.insync.replicas.",
        lambda s: s.at_min_isr,
    ),
    _one(
        f"{_MANAGER}_offlinereplicacount",
        GAUGE,
        "Replicas on this broker whose log failed.",
        lambda s: s.offline,
    ),
    _one(
        "kafka_log_logmanager_offlinelogdirectorycount",
        GAUGE,
        "Log directories of this broker that can't be used: their disk failed.",
        lambda s: len(s.node.directory.offline),
    ),
    _one(
        f"{_MANAGER}_reassigningpartitions",
        GAUGE,
        "Partitions led by this broker that are being reassigned.",
        lambda s: s.reassigning,
    ),
    _one(
        f"{_MANAGER}_isrshrinks_total",
        COUNTER,
        "How often the ISR of a partition led by this broker shrank.",
        lambda s: s.node.counters.isr_shrinks,
    ),
    _one(
        f"{_MANAGER}_isrexpands_total",
        COUNTER,
        "How often the ISR of a partition led by this broker expanded.",
        lambda s: s.node.counters.isr_expands,
    ),
    _one(
        f"{_MANAGER}_failedisrupdates_total",
        COUNTER,
        "ISR changes that the controller refused.",
        lambda s: s.node.counters.isr_updates_failed,
    ),
    _one(
        "kafka_server_replicafetchermanager_maxlag",
        GAUGE,
        "The largest lag of a follower on this broker, in records behind the leader's high"
        " watermark.",
        _max_lag,
        labelled(clientId="Replica"),
    ),
    Family(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        GAUGE,
        ("delayedOperation",),
        "Waiting requests: produces for replication, fetches for records, groups for members.",
        _purgatory,
    ),
)

DAMAGE = (
    _one(
        "tidelog_log_damages_total",
        COUNTER,
        "Logs on this broker that were found damaged: at startup, by a read, or by the scrubber.",
        lambda s: s.node.counters.damages,
    ),
    _one(
        "tidelog_damaged_logs",
        GAUGE,
        "Logs on this broker that are damaged and not repaired yet. Above 0 for long: no other"
        " replica is in sync.",
        lambda s: len(s.node.directory.damaged),
    ),
    Family(
        "tidelog_losses_total",
        COUNTER,
        ("cause",),
        "Entries of this broker in the loss ledger: how often replicas removed records, by cause."
        " leader_change and leader_deleted are normal with acks=1 or after a long absence.",
        _losses,
    ),
    Family(
        "tidelog_loss_records_total",
        COUNTER,
        ("cause", "kind"),
        "Records in these entries: all that were removed, those below the high watermark that the"
        " replica knew (committed), those that this broker had acknowledged as leader"
        " (acknowledged). Several replicas may count the same record.",
        _loss_records,
    ),
    _one(
        "tidelog_truncations_refused_total",
        COUNTER,
        "How often a replica on this broker refused to truncate committed records that its leader"
        " lacks.",
        lambda s: s.node.counters.truncations_refused,
    ),
    _one(
        "tidelog_refusing_replicas",
        GAUGE,
        "Replicas on this broker that stopped fetching: their leader lacks committed records."
        " Above 0 for long: no other replica is in sync.",
        lambda s: len(s.node.refused),
    ),
    _one(
        "tidelog_scrub_verified_bytes_total",
        COUNTER,
        "Bytes of segments that the scrubber has verified.",
        lambda s: s.node.scrubber.verified_bytes,
    ),
    _one(
        "tidelog_scrub_passes_total",
        COUNTER,
        "Complete passes of the scrubber over all segments.",
        lambda s: s.node.scrubber.passes,
    ),
    Family(
        "tidelog_scrub_last_pass_age_seconds",
        GAUGE,
        (),
        "Time since the scrubber's last complete pass; absent before the first one.",
        _last_pass_age,
    ),
)

CONTROLLER = (
    _one(
        f"{_CONTROLLER}_activecontrollercount",
        GAUGE,
        "1 on the controller, 0 on other brokers. The sum over the brokers must be 1.",
        lambda s: s.is_controller,
    ),
    _one(
        f"{_CONTROLLER}_activebrokercount",
        GAUGE,
        "Brokers that are registered and not fenced.",
        _on_controller(lambda s: len(s.node.image.active)),
    ),
    _one(
        f"{_CONTROLLER}_fencedbrokercount",
        GAUGE,
        "Brokers that are registered and fenced.",
        _on_controller(_fenced),
    ),
    _one(
        f"{_CONTROLLER}_globaltopiccount",
        GAUGE,
        "Topics in the cluster.",
        _on_controller(lambda s: len(s.node.image.topics)),
    ),
    _one(
        f"{_CONTROLLER}_globalpartitioncount",
        GAUGE,
        "Partitions in the cluster.",
        _on_controller(_committed_partitions),
    ),
    _one(
        f"{_CONTROLLER}_offlinepartitionscount",
        GAUGE,
        "Partitions without a leader.",
        _on_controller(lambda s: len(s.node.image.leaderless)),
    ),
    _one(
        f"{_CONTROLLER}_preferredreplicaimbalancecount",
        GAUGE,
        "Partitions whose leader is not the preferred (first) replica.",
        _on_controller(_not_preferred),
    ),
    Family(
        "kafka_controller_controllerstats_leaderelectionrateandtimems",
        SUMMARY,
        ("quantile",),
        "Leader elections by this controller, and the time until each was committed.",
        _elections,
    ),
    _one(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        COUNTER,
        "Unclean leader elections by this controller: the leader may lack committed records.",
        lambda s: s.node.counters.elections_unclean,
    ),
)

BROKER = (
    _one(
        "kafka_server_kafkaserver_brokerstate",
        GAUGE,
        "3: running. 1: starting, or fenced.",
        lambda s: RUNNING if s.node.acting else STARTING,
    ),
    _one(
        "tidelog_broker_acting",
        GAUGE,
        "1 while the broker serves and leads; 0 while it is fenced.",
        lambda s: s.node.acting,
    ),
    _one(
        "tidelog_broker_detached",
        GAUGE,
        "1 while the metadata store does not respond and the broker serves only partitions whose"
        " in-sync followers keep fetching.",
        lambda s: s.node.detached,
    ),
    _one(
        "tidelog_broker_epoch",
        GAUGE,
        "The broker epoch of its registration; -1 if it is not registered.",
        lambda s: -1 if s.node.broker_epoch is None else s.node.broker_epoch,
    ),
    _one(
        "tidelog_broker_fencings_total",
        COUNTER,
        "How often the broker was fenced, by the controller or by itself.",
        lambda s: s.node.counters.fencings,
    ),
    _one(
        "tidelog_session_left_seconds",
        GAUGE,
        "Time until its session with the metadata store ends, unless it is renewed.",
        _session_left,
    ),
    _one(
        "tidelog_clock_doubt_seconds",
        GAUGE,
        "How far the machine's clock is ahead of the last confirmed time; negative: behind."
        " 0: the clock is trusted. Ages of records are computed from the earlier of the two.",
        lambda s: s.node.clock.doubt_ms / 1000,
    ),
    _one(
        "tidelog_metadata_revision",
        GAUGE,
        "The revision of the metadata store that this broker has applied.",
        lambda s: s.node.image.revision,
    ),
    _one(
        "tidelog_controller_epoch",
        GAUGE,
        "The controller epoch that this broker knows.",
        lambda s: s.node.image.controller_epoch,
    ),
    Family(
        "tidelog_info",
        GAUGE,
        ("cluster_id", "broker"),
        "Always 1; the labels name the cluster and the broker.",
        lambda s: [("", labelled(**s.host.info), 1)],
    ),
)


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
