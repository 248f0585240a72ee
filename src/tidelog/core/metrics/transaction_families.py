"""Metrics of transactions: of those that this broker coordinates, and of the partitions that it
leads.

`txn-marker-channel-metrics` has only the number of requests: markers share their connection with
all other requests between brokers.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from tidelog.core.coordinator.lookup import TRANSACTIONS_TOPIC
from tidelog.core.metrics.broker_families import summary_samples
from tidelog.core.metrics.exposition import COUNTER, GAUGE, SUMMARY, Family, Sample, labelled
from tidelog.core.metrics.load_time_families import load_time_families
from tidelog.core.metrics.scrape import Scrape
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.measuring.counters import NS_PER_MS
from tidelog.core.transactions.shard import Outcome
from tidelog.core.transactions.transaction import STATES_BY_LABEL

LATE_MS = 5 * 60_000
"""As in Kafka: a transaction is late when it is this much older than the longest time-out."""
_CHANNEL = "kafka_coordinator_transaction_transactionmarkerchannelmanager"
_MANAGER = "kafka_server_replicamanager"
_VERIFICATION = "kafka_server_addpartitionstotxnmanager"


def _one(name: str, kind: str, meaning: str, value: Callable[[Scrape], float]) -> Family:
    return Family(name, kind, (), meaning, lambda scrape: [("", "", value(scrape))])


def _of_coordinator(value: Callable[[Any], float]) -> Callable[[Scrape], float]:
    """A value of the transaction coordinator; 0 while there is none."""

    def read(scrape: Scrape) -> float:
        runtime = scrape.node.coordinators.running(TRANSACTIONS_TOPIC)
        return 0 if runtime is None else value(runtime)

    return read


def _ids(scrape: Scrape) -> Iterator[Sample]:
    """The number of transactional ids of this broker by state, including states without any."""
    found = Counter(
        entry.current.state.label
        for hosted in list(scrape.node.coordinators.shards(TRANSACTIONS_TOPIC).values())
        for entry in hosted.shard.entries.values()
        if entry.current is not None
    )
    for label in STATES_BY_LABEL:
        yield "", labelled(state=label), found[label]


def _unwritten(scrape: Scrape) -> int:
    shards = scrape.node.coordinators.shards(TRANSACTIONS_TOPIC).values()
    return sum(len(hosted.shard.unwritten) for hosted in shards)


def _ended(scrape: Scrape) -> Iterator[Sample]:
    ended = scrape.node.counters.transactions.ended
    for outcome in Outcome:
        yield "", labelled(outcome=outcome), ended.get(outcome, 0)


def _verification_times(scrape: Scrape) -> Iterator[Sample]:
    times = scrape.node.counters.transactions.verifications
    yield from summary_samples(times, scrape.now_ms, NS_PER_MS)


def _oldest_ms(replica: HostedReplica, wall_ms: int) -> int | None:
    """How long ago the producer of a partition's oldest open transaction wrote last."""
    producers = replica.log.producers
    first = next(iter(producers.open_transactions), None)
    return None if first is None else wall_ms - producers.producers[first].last_timestamp


def _oldest(scrape: Scrape) -> Iterator[int]:
    wall_ms = scrape.node.wall_ms
    for led in scrape.led:
        found = _oldest_ms(led.replica, wall_ms)
        if found is not None:
            yield found


def _late(scrape: Scrape) -> int:
    late_ms = scrape.node.config.transactions.transaction_max_timeout_ms + LATE_MS
    return sum(found > late_ms for found in _oldest(scrape))


TRANSACTIONS = (
    *load_time_families("transaction", TRANSACTIONS_TOPIC),
    Family(
        "tidelog_transactional_ids",
        GAUGE,
        ("state",),
        "Transactional ids that this broker coordinates, by state.",
        _ids,
    ),
    Family(
        "tidelog_transactions_ended_total",
        COUNTER,
        ("outcome",),
        "Transactions that this broker ended as coordinator, by outcome: `committed`, `aborted` by"
        " the producer, `timed_out`, or `fenced` by the next producer of the id.",
        _ended,
    ),
    _one(
        "tidelog_transaction_markers_waiting",
        GAUGE,
        "Markers that this broker still has to send as coordinator, one for each partition.",
        _of_coordinator(lambda runtime: runtime.markers.waiting),
    ),
    _one(
        f"{_CHANNEL}_unknowndestinationqueuesize",
        GAUGE,
        "Markers that wait because their partition has no leader.",
        _of_coordinator(lambda runtime: runtime.markers.without_leader),
    ),
    _one(
        f"{_CHANNEL}_logappendretryqueuesize",
        GAUGE,
        "Transactions that have all markers, but whose end could not be written to"
        " `__transaction_state` yet.",
        _unwritten,
    ),
    _one(
        "kafka_server_txn_marker_channel_metrics_request_total",
        COUNTER,
        "Requests with markers that this broker sent to other brokers.",
        lambda scrape: scrape.node.counters.transactions.marker_requests,
    ),
    _one(
        f"{_VERIFICATION}_verificationfailurerate_total",
        COUNTER,
        "Partitions for which a transaction coordinator returned an error to this broker, their"
        " leader.",
        lambda scrape: scrape.node.counters.transactions.verification_failures,
    ),
    Family(
        f"{_VERIFICATION}_verificationtimems",
        SUMMARY,
        ("quantile",),
        "Milliseconds from a request to a transaction coordinator until its response.",
        _verification_times,
    ),
    _one(
        f"{_MANAGER}_produceridcount",
        GAUGE,
        "Producer ids that the replicas on this broker remember.",
        lambda scrape: sum(len(replica.log.producers.producers) for replica, _ in scrape.hosted),
    ),
    _one(
        f"{_MANAGER}_partitionswithlatetransactionscount",
        GAUGE,
        "Led partitions whose oldest open transaction got no record for five minutes more than"
        " `transaction.max.timeout.ms`: it hangs.",
        _late,
    ),
    _one(
        "tidelog_transactions_open",
        GAUGE,
        "Transactions that are open in the partitions that this broker leads, one for each"
        " partition.",
        lambda scrape: sum(len(led.replica.log.producers.open_transactions) for led in scrape.led),
    ),
    _one(
        "tidelog_transaction_oldest_seconds",
        GAUGE,
        "The longest time without a new record in an open transaction that holds back"
        " read-committed consumers of a led partition.",
        lambda scrape: max(_oldest(scrape), default=0) / 1000,
    ),
)
