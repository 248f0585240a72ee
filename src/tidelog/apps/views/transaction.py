"""Views of transactions: by transactional id, and those that hang in partitions.

A transaction hangs if it is open in a partition, but no coordinator will end it: read-committed
consumers of the partition wait for ever (KIP-664). That happens to transactions of version 0 and 1,
when a late batch arrives after the marker (KIP-890).
"""

import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tidelog.core.types import Offset, TopicPartition
from tidelog.shell.client.administration.transactions import (
    Filters,
    NoSuchTransaction,
    ProducerState,
    Transaction,
    describe_producers,
    describe_transaction,
    list_transactions,
)
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster


class TransactionPartition(NamedTuple):
    """One partition of a transaction, as its leader knows it."""

    key: TopicPartition
    start_offset: Offset | None
    """The first offset of the transaction; None if nothing is written, or a marker ended it."""
    last_timestamp: int | None
    error: str | None = None

    def as_data(self) -> dict[str, Any]:
        return {
            "topic": self.key.topic,
            "partition": self.key.partition,
            "start_offset": self.start_offset,
            "last_timestamp": self.last_timestamp,
            "error": self.error,
        }


class TransactionView(NamedTuple):
    """A transactional id with the partitions of its transaction."""

    transaction: Transaction
    duration_ms: int | None
    partitions: list[TransactionPartition]

    def as_data(self) -> dict[str, Any]:
        return {
            **self.transaction._asdict(),
            "duration_ms": self.duration_ms,
            "partitions": [each.as_data() for each in self.partitions],
        }


class OpenTransaction(NamedTuple):
    """A transaction that a partition has open."""

    key: TopicPartition
    producer: ProducerState
    duration_ms: int
    """The time since the producer's last record."""
    transactional_id: str | None = None
    """The id that the producer belongs to; None if no coordinator knows the producer."""

    @property
    def identity(self) -> tuple[TopicPartition, int, Offset | None]:
        """The values that distinguish it from other transactions."""
        return self.key, self.producer.producer_id, self.producer.start_offset

    def as_data(self) -> dict[str, Any]:
        return {
            "topic": self.key.topic,
            "partition": self.key.partition,
            **self.producer._asdict(),
            "duration_ms": self.duration_ms,
            "transactional_id": self.transactional_id,
        }


class HangingView(NamedTuple):
    """The hanging transactions of the partitions that were searched."""

    hanging: list[OpenTransaction]
    searched: int
    """The number of partitions."""
    errors: list[str]
    """Partitions and coordinators that did not respond: transactions there may hang, too."""

    @property
    def holds(self) -> bool:
        """Whether all brokers responded and no transaction hangs."""
        return not self.hanging and not self.errors

    def as_data(self) -> dict[str, Any]:
        return {
            "hanging": [each.as_data() for each in self.hanging],
            "partitions_searched": self.searched,
            "errors": self.errors,
        }


def _now_ms() -> int:
    return int(time.time() * 1000)


def view_transaction(cluster: Cluster, transactional_id: str) -> TransactionView:
    """Describe a transactional id: its coordinator and the leaders of its partitions are queried.

    Raises NoSuchTransaction.
    """
    found = describe_transaction(cluster, transactional_id)
    duration_ms = None
    if found.start_time_ms is not None:
        duration_ms = max(_now_ms() - found.start_time_ms, 0)
    producers = describe_producers(cluster, found.partitions)
    partitions = [_partition(key, found, producers[key]) for key in found.partitions]
    return TransactionView(found, duration_ms, partitions)


def _partition(
    key: TopicPartition, transaction: Transaction, producers: list[ProducerState] | ClientError
) -> TransactionPartition:
    if isinstance(producers, ClientError):
        return TransactionPartition(key, None, None, str(producers))
    for each in producers:
        if each.producer_id == transaction.producer_id and each.start_offset is not None:
            return TransactionPartition(key, each.start_offset, each.last_timestamp)
    return TransactionPartition(key, None, None)


# -- hanging transactions ----------------------------------------------------------------------


def find_hanging(
    cluster: Cluster, keys: Sequence[TopicPartition], longer_than_ms: int
) -> HangingView:
    """Return the transactions that these partitions have open for this long, and that no
    coordinator will end.

    A transaction may begin or end between the requests. So the partitions with a hanging
    transaction are queried again, and only transactions that are still open are returned.
    """
    errors: list[str] = []
    candidates = open_transactions(cluster, keys, longer_than_ms, errors)
    hanging = _unknown_to_coordinators(cluster, candidates, errors)
    again = open_transactions(cluster, {each.key for each in hanging}, longer_than_ms, errors)
    still_open = {each.identity for each in again}
    confirmed = [each for each in hanging if each.identity in still_open]
    return HangingView(confirmed, len(keys), list(dict.fromkeys(errors)))


def open_transactions(
    cluster: Cluster, keys: Iterable[TopicPartition], longer_than_ms: int, errors: list[str]
) -> list[OpenTransaction]:
    """Return the transactions that partitions have open for this long; add to `errors`."""
    found = []
    now_ms = _now_ms()
    for key, producers in sorted(describe_producers(cluster, keys).items()):
        if isinstance(producers, ClientError):
            errors.append(str(producers))
            continue
        for each in producers:
            duration_ms = max(now_ms - each.last_timestamp, 0)
            if each.start_offset is not None and duration_ms >= longer_than_ms:
                found.append(OpenTransaction(key, each, duration_ms))
    return found


def _unknown_to_coordinators(
    cluster: Cluster, candidates: list[OpenTransaction], errors: list[str]
) -> list[OpenTransaction]:
    """Return the candidates that no coordinator will end.

    A coordinator that does not respond may know any of them: then nothing is known to hang.
    """
    producer_ids = sorted({each.producer.producer_id for each in candidates})
    if not producer_ids:
        return []
    listed, failed = list_transactions(cluster, Filters(producer_ids=producer_ids))
    if failed:
        errors += [str(error) for error in failed]
        return []
    names = {each.producer_id: each.transactional_id for each in listed}
    ending: dict[int, list[TopicPartition]] = {}
    for producer_id, name in names.items():
        try:
            ending[producer_id] = describe_transaction(cluster, name).partitions
        except NoSuchTransaction:  # it expired since it was listed
            continue
    return [
        each._replace(transactional_id=names.get(each.producer.producer_id))
        for each in candidates
        if each.key not in ending.get(each.producer.producer_id, ())
    ]
