"""Metrics of partitions: of the replicas on this broker, and of followers by their leader.

The names are jmx_exporter's for Kafka's own metrics, kafka_exporter's for what it would request
from the cluster (reported by the leader only), and Tidelog's for what Kafka does not report.
"""

from collections.abc import Callable, Iterable, Iterator

from tidelog.core.metrics.broker_families import lag_behind_leader
from tidelog.core.metrics.exposition import COUNTER, GAUGE, Family, Sample, labelled
from tidelog.core.metrics.scrape import Led, Scrape
from tidelog.core.node.description import last_times
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.types import TopicPartition

_LABELS = ("topic", "partition")


def _each(name: str, meaning: str, value: Callable[[HostedReplica], float]) -> Family:
    """A gauge of every replica on this broker."""

    def samples(scrape: Scrape) -> Iterable[Sample]:
        return (("", labels, value(replica)) for replica, labels in scrape.hosted)

    return Family(name, GAUGE, _LABELS, meaning, samples)


def _led(name: str, meaning: str, value: Callable[[Led], float]) -> Family:
    """A gauge of every partition that this broker leads."""

    def samples(scrape: Scrape) -> Iterable[Sample]:
        return (("", led.labels, value(led)) for led in scrape.led)

    return Family(name, GAUGE, _LABELS, meaning, samples)


def _fetcher_lag(scrape: Scrape) -> Iterator[Sample]:
    for replica, labels in scrape.followed:
        leader = replica.partition.leader
        if leader is not None:
            client = f'{{clientId="ReplicaFetcherThread-0-{leader}",'
            yield "", client + labels[1:], lag_behind_leader(replica)


def _of_replicas(
    value: Callable[[Scrape, Led, int], float | None],
) -> Callable[[Scrape], Iterator[Sample]]:
    """Samples of each replica of the partitions that this broker leads, its own replica first."""

    def samples(scrape: Scrape) -> Iterator[Sample]:
        for led in scrape.led:
            partition = led.replica.partition
            for broker in (partition.local, *sorted(partition.followers)):
                found = value(scrape, led, broker)
                if found is not None:
                    yield "", f'{led.labels[:-1]},replica="{broker}"}}', found

    return samples


def _log_end(_scrape: Scrape, led: Led, broker: int) -> float | None:
    partition = led.replica.partition
    if broker == partition.local:
        return partition.log_end_offset
    follower = partition.followers.get(broker)
    return None if follower is None else follower.log_end_offset


def _lag(scrape: Scrape, led: Led, broker: int) -> float | None:
    end = _log_end(scrape, led, broker)
    return None if end is None else max(0, led.replica.partition.log_end_offset - end)


def _caught_up_age(scrape: Scrape, led: Led, broker: int) -> float | None:
    follower = led.replica.partition.followers.get(broker)
    if follower is None:
        return None
    _, caught_up_ms = last_times(led.replica, broker, follower)
    return None if caught_up_ms is None else max(0, scrape.now_ms - caught_up_ms) / 1000


def _counted(
    name: str, meaning: str, counts: Callable[[Scrape], dict[TopicPartition, int]]
) -> Family:
    """A counter for every replica on this broker, 0 before its first count."""

    def samples(scrape: Scrape) -> Iterator[Sample]:
        found = counts(scrape)
        for replica, labels in scrape.hosted:
            yield "", labels, found.get(replica.topic_partition, 0)

    return Family(name, COUNTER, _LABELS, meaning, samples)


def _partitions_of_topics(scrape: Scrape) -> Iterator[Sample]:
    if scrape.is_controller:
        for name, topic in sorted(scrape.node.image.topics.items()):
            yield "", labelled(topic=name), topic.partition_count


def _brokers(scrape: Scrape) -> Iterator[Sample]:
    if scrape.is_controller:
        yield "", "", len(scrape.node.image.active)


LOGS = (
    _each(
        "kafka_log_log_logendoffset",
        "The log end offset (LEO) of this replica.",
        lambda r: r.partition.log_end_offset,
    ),
    _each(
        "kafka_log_log_logstartoffset",
        "The log start offset of this replica.",
        lambda r: r.partition.log_start_offset,
    ),
    _each("kafka_log_log_size", "The log's size on disk in bytes.", lambda r: r.log.size),
    _each("kafka_log_log_numlogsegments", "The log's segments.", lambda r: len(r.log.segments)),
    _each(
        "tidelog_partition_high_watermark",
        "The high watermark (HW) that this replica knows: records below it are committed.",
        lambda r: r.partition.high_watermark,
    ),
    _each(
        "tidelog_partition_leader_epoch",
        "The leader epoch of this replica.",
        lambda r: r.partition.leader_epoch,
    ),
    Family(
        "kafka_server_fetcherlagmetrics_consumerlag",
        GAUGE,
        ("clientId", *_LABELS),
        "Records that this follower is behind the leader's high watermark.",
        _fetcher_lag,
    ),
    _counted(
        "tidelog_records_truncated_total",
        "Records that this replica truncated because its leader did not have them.",
        lambda s: s.node.counters.truncated,
    ),
    _counted(
        "tidelog_records_lost_total",
        "Truncated records that were committed, or lost by an unclean election. Several replicas"
        " may count the same record.",
        lambda s: s.node.counters.lost,
    ),
)

LEADERS = (
    _led(
        "kafka_cluster_partition_underreplicated",
        "1 if the ISR is smaller than the replication factor. Reported by the leader, like those"
        " below.",
        lambda led: led.under_replicated,
    ),
    _led(
        "kafka_cluster_partition_underminisr",
        "1 if acks=all is refused.",
        lambda led: led.under_min_isr,
    ),
    _led("kafka_cluster_partition_insyncreplicascount", "In-sync replicas.", lambda led: led.isr),
    _led("kafka_cluster_partition_replicascount", "Replicas.", lambda led: led.replicas),
    _led(
        "kafka_cluster_partition_laststableoffsetlag",
        "Committed records that read_committed consumers do not see yet.",
        lambda led: led.replica.partition.high_watermark - led.replica.partition.last_stable_offset,
    ),
    Family(
        "tidelog_replica_log_end_offset",
        GAUGE,
        (*_LABELS, "replica"),
        "The log end offset of each replica, as the leader knows it from fetches.",
        _of_replicas(_log_end),
    ),
    Family(
        "tidelog_replica_lag",
        GAUGE,
        (*_LABELS, "replica"),
        "Records of the leader's log that the replica does not have yet.",
        _of_replicas(_lag),
    ),
    Family(
        "tidelog_replica_caught_up_age_seconds",
        GAUGE,
        (*_LABELS, "replica"),
        "Time since a follower was caught up. Above replica.lag.time.max.ms it leaves the ISR.",
        _of_replicas(_caught_up_age),
    ),
)

EXPORTER = (
    Family("kafka_brokers", GAUGE, (), "Live brokers. Reported by the controller.", _brokers),
    Family(
        "kafka_topic_partitions",
        GAUGE,
        ("topic",),
        "Partition count of a topic. Reported by the controller.",
        _partitions_of_topics,
    ),
    _led(
        "kafka_topic_partition_current_offset",
        "The high watermark. Reported by the leader, like those below.",
        lambda led: led.replica.partition.high_watermark,
    ),
    _led(
        "kafka_topic_partition_oldest_offset",
        "The log start offset.",
        lambda led: led.replica.partition.log_start_offset,
    ),
    _led(
        "kafka_topic_partition_leader",
        "The leader's id.",
        lambda led: led.replica.partition.local,
    ),
    _led("kafka_topic_partition_replicas", "Replicas.", lambda led: led.replicas),
    _led("kafka_topic_partition_in_sync_replica", "In-sync replicas.", lambda led: led.isr),
    _led(
        "kafka_topic_partition_leader_is_preferred",
        "1 if the leader is the preferred (first) replica.",
        lambda led: led.replica.partition.replicas[:1] == (led.replica.partition.local,),
    ),
    _led(
        "kafka_topic_partition_under_replicated_partition",
        "1 if the ISR is smaller than the replication factor.",
        lambda led: led.under_replicated,
    ),
)
