"""The pages of transactions: transactional ids from their coordinators, and partitions in which an
open transaction holds back read-committed consumers.

The second list is part of each sample, also of earlier moments. The first one needs requests, and
is not in the history. A transaction that only a partition knows hangs; this is asserted only after
`find_hanging`, which asks twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidelog.apps.console.cluster_pool import ClusterPool
from tidelog.apps.console.failure import INVALID, NOT_FOUND, Failure
from tidelog.apps.console.sample import Sample
from tidelog.apps.views.transaction import find_hanging, view_transaction
from tidelog.core.coordinator.lookup import TRANSACTIONS_TOPIC
from tidelog.core.types import TopicPartition
from tidelog.shell.client.administration.transactions import (
    Filters,
    ListedTransaction,
    NoSuchTransaction,
    Transaction,
    describe_listed,
    list_transactions,
)
from tidelog.shell.client.client_errors import ClientError

Json = dict[str, Any]
SHOWN_MAX = 2_000
"""Transactional ids of one page: open ones first, then by name."""
OPEN_STATES = frozenset(("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"))
QUIET_MS = 5_000
"""A transaction without a new record for this long is looked up if no coordinator lists it as open.
A younger one may have begun or ended between the sample and the list."""


def open_in_partitions(sample: Sample) -> list[Json]:
    """Return the partitions whose last stable offset is below the high watermark, and why."""
    found = []
    for key in sorted(sample.fetched.hosted):
        leader = sample.fetched.leader_of(key)
        unstable = None if leader is None else leader.get("unstable")
        if leader is None or not unstable:
            continue
        found.append(
            {
                "topic": key.topic,
                "partition": key.partition,
                "last_stable_offset": leader["last_stable_offset"],
                "high_watermark": leader["high_watermark"],
                **unstable,
                "transactional_id": None,
                "hangs": False,
            }
        )
    return found


def transactions_now(pool: ClusterPool, sample: Sample) -> Json:
    """Return all transactional ids, and the partitions with an open transaction."""
    waiting = open_in_partitions(sample)
    listed: list[ListedTransaction] = []
    described: dict[str, Transaction] = {}
    failed: list[ClientError] = []
    if TRANSACTIONS_TOPIC in sample.metadata.topics:
        with pool.borrow() as cluster:
            listed, failed = list_transactions(cluster, Filters())
            begun = [each for each in listed if each.state in OPEN_STATES][:SHOWN_MAX]
            described, more = describe_listed(cluster, begun)
            failed += more
            _name(waiting, listed)
            if not failed:
                suspects = _suspects(waiting, described.values(), sample.at_ms)
                if suspects:
                    view = find_hanging(cluster, suspects, QUIET_MS)
                    hanging = {(each.key, each.producer.producer_id) for each in view.hanging}
                    for row in waiting:
                        row["hangs"] = (_key(row), row["producer_id"]) in hanging
    by_state = sorted(listed, key=lambda each: (each.state not in OPEN_STATES, each))
    return {
        "at_ms": sample.at_ms,
        "transactions": [
            _row(each, described.get(each.transactional_id)) for each in by_state[:SHOWN_MAX]
        ],
        "total": len(listed),
        "open": waiting,
        "failed": [str(error) for error in failed],
        "missing": None
        if sample.is_tidelog
        else "Brokers of Kafka do not report which partitions an open transaction holds back; the"
        " page of a transaction lists its partitions.",
    }


def transactions_past(sample: Sample, sampled_ms: int | None) -> Json:
    """Return the partitions with an open transaction at an earlier moment."""
    return {
        "at_ms": sample.at_ms,
        "transactions": None,
        "total": None,
        "open": open_in_partitions(sample),
        "failed": [],
        "missing": "The history has no transactional ids, only the partitions below.",
        "sampled_at_ms": sampled_ms,
    }


def transaction_now(pool: ClusterPool, sample: Sample, name: str) -> Json:
    """Return a transactional id with the partitions of its transaction. Raises Failure."""
    if TRANSACTIONS_TOPIC not in sample.metadata.topics:
        raise unknown_transaction(name)
    with pool.borrow() as cluster:
        try:
            view = view_transaction(cluster, name)
        except NoSuchTransaction as error:
            raise unknown_transaction(name) from error
    found = view.transaction
    return {
        "at_ms": sample.at_ms,
        **found._asdict(),
        "partitions": [
            {**each.as_data(), **_offsets(sample, each.key)} for each in view.partitions
        ],
    }


def unknown_transaction(name: str) -> Failure:
    """Return the failure for a transactional id that no coordinator knows."""
    why = f"there is no transactional id {name!r}"
    return Failure(NOT_FOUND, why, "the list of transactions has all transactional ids")


def past_transaction() -> Failure:
    """Return the failure for a transactional id at an earlier moment."""
    return Failure(
        INVALID, "the history has no transactional ids", "the list of transactions has partitions"
    )


def _offsets(sample: Sample, key: TopicPartition) -> Json:
    leader = sample.fetched.leader_of(key)
    return {
        "last_stable_offset": leader and leader["last_stable_offset"],
        "high_watermark": leader and leader["high_watermark"],
    }


def _row(listed: ListedTransaction, found: Transaction | None) -> Json:
    return {
        **listed._asdict(),
        "producer_epoch": found and found.producer_epoch,
        "start_time_ms": found and found.start_time_ms,
        "timeout_ms": found and found.timeout_ms,
        "partitions": None if found is None else len(found.partitions),
    }


def _key(row: Mapping[str, Any]) -> TopicPartition:
    return TopicPartition(row["topic"], row["partition"])


def _name(waiting: Iterable[Json], listed: Iterable[ListedTransaction]) -> None:
    names = {each.producer_id: each.transactional_id for each in listed}
    for row in waiting:
        row["transactional_id"] = names.get(row["producer_id"])


def _suspects(
    waiting: Sequence[Json], described: Iterable[Transaction], now_ms: int
) -> list[TopicPartition]:
    """Return the partitions whose oldest open transaction no coordinator lists as open."""
    known = {(key, each.producer_id) for each in described for key in each.partitions}
    return [
        _key(row)
        for row in waiting
        if row["producer_id"] is not None
        and (_key(row), row["producer_id"]) not in known
        and now_ms - (row["last_write_ms"] or 0) >= QUIET_MS
    ]
