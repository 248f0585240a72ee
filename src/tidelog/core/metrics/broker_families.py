"""Metrics of a broker as a whole, under the names that jmx_exporter gives Kafka's.

What only the controller knows is told by the controller; others say 0, as in Kafka, so that a
sum over the brokers is the cluster's.
"""

from collections.abc import Callable, Iterator

from tidelog.core.coordinator.lookup import OFFSETS_TOPIC
from tidelog.core.groups.membership.group import GroupState
from tidelog.core.histogram import Histogram, quantiles
from tidelog.core.metrics.exposition import COUNTER, GAUGE, SUMMARY, Family, Sample, labelled
from tidelog.core.metrics.scrape import Scrape
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.measuring.counters import NS_PER_MS
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
    """Percentiles of the last minute or two; sum and count of all."""
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


def _in_office(count: Callable[[Scrape], int]) -> Callable[[Scrape], int]:
    return lambda scrape: count(scrape) if scrape.in_office else 0


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
    """How far a follower's log ends before what the leader said to be committed."""
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

REPLICAS = (
    _one(f"{_MANAGER}_partitioncount", GAUGE, "Replicas on this broker.", lambda s: len(s.hosted)),
    _one(f"{_MANAGER}_leadercount", GAUGE, "Partitions that it leads.", lambda s: len(s.led)),
    _one(
        f"{_MANAGER}_underreplicatedpartitions",
        GAUGE,
        "Partitions that it leads and whose ISR lacks replicas.",
        lambda s: sum(led.under_replicated for led in s.led),
    ),
    _one(
        f"{_MANAGER}_underminisrpartitioncount",
        GAUGE,
        "Partitions that it leads and that refuse acks=all: the ISR is below min.insync.replicas.",
        lambda s: sum(led.under_min_isr for led in s.led),
    ),
    _one(
        f"{_MANAGER}_atminisrpartitioncount",
        GAUGE,
        "Partitions that it leads and that would refuse acks=all with one replica less in sync.",
        lambda s: s.at_min_isr,
    ),
    _one(
        f"{_MANAGER}_offlinereplicacount",
        GAUGE,
        "Replicas here whose log failed.",
        lambda s: s.offline,
    ),
    _one(
        f"{_MANAGER}_reassigningpartitions",
        GAUGE,
        "Partitions that it leads and that are being moved.",
        lambda s: s.reassigning,
    ),
    _one(
        f"{_MANAGER}_isrshrinks_total",
        COUNTER,
        "How often an ISR lost replicas, as its leader saw it.",
        lambda s: s.node.counters.isr_shrinks,
    ),
    _one(
        f"{_MANAGER}_isrexpands_total",
        COUNTER,
        "How often an ISR got replicas back.",
        lambda s: s.node.counters.isr_expands,
    ),
    _one(
        f"{_MANAGER}_failedisrupdates_total",
        COUNTER,
        "ISR proposals that the controller refused.",
        lambda s: s.node.counters.isr_updates_failed,
    ),
    _one(
        "kafka_server_replicafetchermanager_maxlag",
        GAUGE,
        "The largest lag of a follower here, in records behind the leader's high watermark.",
        _max_lag,
        labelled(clientId="Replica"),
    ),
    Family(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        GAUGE,
        ("delayedOperation",),
        "Who waits: produces for their commit, fetches for records, groups for their members.",
        _purgatory,
    ),
)

DAMAGE = (
    _one(
        "tidelog_log_damages_total",
        COUNTER,
        "Logs here that were found damaged: at startup, by a read, or by the scrubber.",
        lambda s: s.node.counters.damages,
    ),
    _one(
        "tidelog_damaged_logs",
        GAUGE,
        "Logs here that are damaged and not repaired yet. Above 0 for long: no other replica"
        " is in sync.",
        lambda s: len(s.node.directory.damaged),
    ),
    _one(
        "tidelog_truncations_refused_total",
        COUNTER,
        "How often a replica here refused to drop committed records that its leader lacks.",
        lambda s: s.node.counters.truncations_refused,
    ),
    _one(
        "tidelog_refusing_replicas",
        GAUGE,
        "Replicas here that stopped fetching because their leader lacks committed records."
        " Above 0 for long: no other replica is in sync.",
        lambda s: len(s.node.refused),
    ),
    _one(
        "tidelog_scrub_verified_bytes_total",
        COUNTER,
        "Bytes of segments whose checksums the scrubber has checked.",
        lambda s: s.node.scrubber.verified_bytes,
    ),
    _one(
        "tidelog_scrub_passes_total",
        COUNTER,
        "Passes of the scrubber over all segments that it has completed.",
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
        "1 on the controller. The sum over the brokers must be 1.",
        lambda s: s.in_office,
    ),
    _one(
        f"{_CONTROLLER}_activebrokercount",
        GAUGE,
        "Brokers that take part.",
        _in_office(lambda s: len(s.node.image.active)),
    ),
    _one(
        f"{_CONTROLLER}_fencedbrokercount",
        GAUGE,
        "Brokers that are registered and may not lead.",
        _in_office(_fenced),
    ),
    _one(
        f"{_CONTROLLER}_globaltopiccount",
        GAUGE,
        "Topics of the cluster.",
        _in_office(lambda s: len(s.node.image.topics)),
    ),
    _one(
        f"{_CONTROLLER}_globalpartitioncount",
        GAUGE,
        "Partitions of the cluster.",
        _in_office(_committed_partitions),
    ),
    _one(
        f"{_CONTROLLER}_offlinepartitionscount",
        GAUGE,
        "Partitions without a leader.",
        _in_office(lambda s: len(s.node.image.leaderless)),
    ),
    _one(
        f"{_CONTROLLER}_preferredreplicaimbalancecount",
        GAUGE,
        "Partitions that another than the first of their replicas leads.",
        _in_office(_not_preferred),
    ),
    Family(
        "kafka_controller_controllerstats_leaderelectionrateandtimems",
        SUMMARY,
        ("quantile",),
        "Leaders elected by this controller, and how long each took to be committed.",
        _elections,
    ),
    _one(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        COUNTER,
        "Leaders elected by this controller that may lack committed records.",
        lambda s: s.node.counters.elections_unclean,
    ),
)

BROKER = (
    _one(
        "kafka_server_kafkaserver_brokerstate",
        GAUGE,
        "3: part of the cluster. 1: starting, or cut off.",
        lambda s: RUNNING if s.node.acting else STARTING,
    ),
    _one(
        "tidelog_broker_acting",
        GAUGE,
        "1 while the broker serves and leads; 0 while it is fenced or fenced itself.",
        lambda s: s.node.acting,
    ),
    _one(
        "tidelog_broker_epoch",
        GAUGE,
        "The broker epoch of its registration; -1 without one.",
        lambda s: -1 if s.node.broker_epoch is None else s.node.broker_epoch,
    ),
    _one(
        "tidelog_broker_fencings_total",
        COUNTER,
        "How often it stopped acting: fenced by the controller, or by itself in time.",
        lambda s: s.node.counters.fencings,
    ),
    _one(
        "tidelog_session_left_seconds",
        GAUGE,
        "Until its session with the metadata store ends, unless renewed.",
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
        "How far it follows the metadata store.",
        lambda s: s.node.image.revision,
    ),
    _one(
        "tidelog_controller_epoch",
        GAUGE,
        "The controller's epoch as this broker knows it.",
        lambda s: s.node.image.controller_epoch,
    ),
    Family(
        "tidelog_info",
        GAUGE,
        ("cluster_id", "broker"),
        "Always 1; the labels say who this is.",
        lambda s: [("", labelled(**s.surroundings.info), 1)],
    ),
)
