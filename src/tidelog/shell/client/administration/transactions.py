"""Administer transactions: list and describe them, describe producers, write an abort marker.

Works with Kafka from 3.0 on. A transaction has two sides: its coordinator, by transactional id, and
the partitions that it wrote to, by producer id. A transaction that only a partition knows hangs.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from tidelog.core.api_table import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    WRITE_TXN_MARKERS,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.types import BrokerId, Offset, TopicPartition
from tidelog.core.wire.codec import Struct
from tidelog.shell.client.client_errors import BrokerError, ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import NO_LEADER, PartitionMetadata
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.coordinators import (
    MOVED,
    TRANSACTION,
    ask_coordinator,
    find_coordinator,
)
from tidelog.shell.client.retry import Retry, retriable_codes

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)
"""The states of a transactional id, with Kafka's names."""
_ENDED = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
"""States without a transaction; brokers still send the start time of the last one."""
NO_FILTER = -1
PARTITIONS_AT_ONCE = 500
IDS_AT_ONCE = 500
_DURATION_SINCE, _PATTERN_SINCE = 1, 2
_NONE = -1


class NoSuchTransaction(ClientError):
    """No coordinator knows the transactional id."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(
            f"there is no transactional id {transactional_id!r};"
            " `tidelog transaction list` shows them"
        )
        self.transactional_id = transactional_id


class ListedTransaction(NamedTuple):
    """A transactional id as its coordinator lists it."""

    transactional_id: str
    coordinator: BrokerId
    producer_id: int
    state: str


class Transaction(NamedTuple):
    """A transactional id as its coordinator describes it."""

    transactional_id: str
    coordinator: BrokerId
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_time_ms: int | None
    """None unless a transaction is open or ending."""
    partitions: list[TopicPartition]
    """The partitions of an open transaction; of an ending one those that have no marker yet."""


class ProducerState(NamedTuple):
    """A producer as the leader of a partition knows it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    """The epoch of the coordinator that wrote the last marker; None without a marker."""
    last_sequence: int
    last_timestamp: int
    start_offset: Offset | None
    """The first offset of its open transaction."""


class Filters(NamedTuple):
    """Which transactions to list: those that pass each filter."""

    states: Sequence[str] = ()
    producer_ids: Collection[int] = ()
    longer_than_ms: int = NO_FILTER
    pattern: str | None = None
    """A regular expression for the transactional id."""


def list_transactions(
    cluster: Cluster, filters: Filters
) -> tuple[list[ListedTransaction], list[ClientError]]:
    """Return the transactional ids of all coordinators, and the errors of brokers that could not
    list theirs."""
    found: list[ListedTransaction] = []
    failed: list[ClientError] = []
    for broker_id in sorted(cluster.refresh([]).brokers):
        try:
            found += _list(cluster, broker_id, filters)
        except ClientError as error:
            failed.append(error)
    return sorted(found), failed


def _list(cluster: Cluster, broker_id: BrokerId, filters: Filters) -> list[ListedTransaction]:
    request = {
        "state_filters": list(filters.states),
        "producer_id_filters": list(filters.producer_ids),
        "duration_filter": filters.longer_than_ms,
        "transactional_id_pattern": filters.pattern,
    }

    def ask() -> Struct:
        broker = cluster.broker(broker_id)
        _check_filters(broker, filters)
        answer = broker.call(LIST_TRANSACTIONS, request)
        if answer["error_code"]:
            what = f"listing the transactions of broker {broker_id}"
            raise BrokerError(what, answer["error_code"])
        return answer

    loading = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,)
    answer = Retry(cluster.timeout_s, retriable=retriable_codes(loading)).call(ask)
    return [
        ListedTransaction(
            each["transactional_id"], broker_id, each["producer_id"], each["transaction_state"]
        )
        for each in answer["transaction_states"]
    ]


def _check_filters(broker: KafkaConnection, filters: Filters) -> None:
    """Raise ClientError if the broker would ignore a filter."""
    version = broker.version(LIST_TRANSACTIONS)
    for name, used, since in (
        ("duration", filters.longer_than_ms != NO_FILTER, _DURATION_SINCE),
        ("pattern", filters.pattern is not None, _PATTERN_SINCE),
    ):
        if used and version < since:
            raise ClientError(
                f"{broker.address} can't filter transactions by {name}: it has version {version}"
                f" of ListTransactions, and version {since} is needed"
            )


def describe_transaction(cluster: Cluster, transactional_id: str) -> Transaction:
    """Return the state of a transactional id. Raises NoSuchTransaction."""
    retry = Retry(cluster.timeout_s, retriable=retriable_codes(MOVED))

    def ask() -> Transaction:
        coordinator = find_coordinator(cluster, transactional_id, retry, TRANSACTION)
        return describe_at(cluster.broker(coordinator), coordinator, transactional_id)

    return retry.call(ask)


def describe_listed(
    cluster: Cluster, listed: Iterable[ListedTransaction]
) -> tuple[dict[str, Transaction], list[ClientError]]:
    """Return the state of listed transactional ids, with few requests to each coordinator, and the
    errors of coordinators. An id that expired or moved since it was listed is left out."""
    names: dict[BrokerId, list[str]] = {}
    for each in listed:
        names.setdefault(each.coordinator, []).append(each.transactional_id)
    found: dict[str, Transaction] = {}
    failed: list[ClientError] = []
    for coordinator, wanted in sorted(names.items()):
        try:
            broker = cluster.broker(coordinator)
            for start in range(0, len(wanted), IDS_AT_ONCE):
                request = {"transactional_ids": wanted[start : start + IDS_AT_ONCE]}
                for each in broker.call(DESCRIBE_TRANSACTIONS, request)["transaction_states"]:
                    if not each["error_code"]:
                        found[each["transactional_id"]] = _transaction(coordinator, each)
        except ClientError as error:
            failed.append(error)
    return found, failed


def describe_at(
    broker: KafkaConnection, coordinator: BrokerId, transactional_id: str
) -> Transaction:
    """Return the state of a transactional id from its coordinator. Raises ClientError."""
    request = {"transactional_ids": [transactional_id]}
    (found,) = broker.call(DESCRIBE_TRANSACTIONS, request)["transaction_states"]
    if found["error_code"] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise NoSuchTransaction(transactional_id)
    if found["error_code"]:
        raise BrokerError(f"describing transactional id {transactional_id}", found["error_code"])
    return _transaction(coordinator, found)


def _transaction(coordinator: BrokerId, found: Struct) -> Transaction:
    partitions = [
        TopicPartition(topic["topic"], index)
        for topic in found["topics"]
        for index in topic["partitions"]
    ]
    state, start_time_ms = found["transaction_state"], _known(found["transaction_start_time_ms"])
    return Transaction(
        found["transactional_id"],
        coordinator,
        found["producer_id"],
        found["producer_epoch"],
        state,
        found["transaction_timeout_ms"],
        None if state in _ENDED else start_time_ms,
        sorted(partitions),
    )


def _known(value: int) -> int | None:
    return None if value == _NONE else value


# -- producers of partitions -------------------------------------------------------------------


def describe_producers(
    cluster: Cluster, keys: Iterable[TopicPartition]
) -> dict[TopicPartition, list[ProducerState] | ClientError]:
    """Return the producers of each partition from its leader, or an error."""
    found: dict[TopicPartition, list[ProducerState] | ClientError] = {}
    by_leader: dict[BrokerId, list[TopicPartition]] = {}
    for key in keys:
        by_leader.setdefault(cluster.partition(*key).leader, []).append(key)
    for leader, wanted in by_leader.items():
        for start in range(0, len(wanted), PARTITIONS_AT_ONCE):
            some = wanted[start : start + PARTITIONS_AT_ONCE]
            try:
                if leader != NO_LEADER:
                    found |= _producers(cluster.broker(leader), some)
            except ClientError:
                continue
    # The leader may have moved, or be about to be elected.
    return {
        key: _settled(cluster, key, found.get(key)) for each in by_leader.values() for key in each
    }


def _settled(
    cluster: Cluster, key: TopicPartition, found: list[ProducerState] | ClientError | None
) -> list[ProducerState] | ClientError:
    """Return the first answer, if it is final; else ask the leader until the time is up."""
    if isinstance(found, list) or (found is not None and not found.retriable):
        return found

    def ask(leader: KafkaConnection, _partition: PartitionMetadata) -> list[ProducerState]:
        answer = _producers(leader, [key])[key]
        if isinstance(answer, ClientError):
            raise answer
        return answer

    try:
        return cluster.ask_leader(*key, ask)
    except ClientError as error:
        return error


def _producers(
    broker: KafkaConnection, keys: Sequence[TopicPartition]
) -> dict[TopicPartition, list[ProducerState] | ClientError]:
    topics: dict[str, list[int]] = {}
    for topic, partition in keys:
        topics.setdefault(topic, []).append(partition)
    request = {
        "topics": [{"name": name, "partition_indexes": each} for name, each in topics.items()]
    }
    answer = broker.call(DESCRIBE_PRODUCERS, request)
    found: dict[TopicPartition, list[ProducerState] | ClientError] = {}
    for topic in answer["topics"]:
        for each in topic["partitions"]:
            key = TopicPartition(topic["name"], each["partition_index"])
            if each["error_code"]:
                what = f"describing the producers of {key}"
                found[key] = BrokerError(what, each["error_code"], each["error_message"])
            else:
                found[key] = [_producer(one) for one in each["active_producers"]]
    return found


def _producer(found: Struct) -> ProducerState:
    return ProducerState(
        found["producer_id"],
        found["producer_epoch"],
        _known(found["coordinator_epoch"]),
        found["last_sequence"],
        found["last_timestamp"],
        _known(found["current_txn_start_offset"]),
    )


# -- changes -----------------------------------------------------------------------------------


def write_abort_marker(
    cluster: Cluster,
    key: TopicPartition,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
) -> None:
    """Abort a producer's transaction in one partition, without its coordinator. Raises ClientError.

    The leader refuses the marker if the producer or the coordinator has a newer epoch by now.
    """
    marker = {
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "transaction_result": False,
        "topics": [{"name": key.topic, "partition_indexes": [key.partition]}],
        "coordinator_epoch": coordinator_epoch,
        "transaction_version": 0,
    }

    def ask(leader: KafkaConnection, _partition: PartitionMetadata) -> None:
        [answer] = leader.call(WRITE_TXN_MARKERS, {"markers": [marker]})["markers"]
        [topic] = answer["topics"]
        [found] = topic["partitions"]
        if found["error_code"]:
            raise BrokerError(f"writing an abort marker into {key}", found["error_code"])

    cluster.ask_leader(*key, ask)


def fence_producer(cluster: Cluster, transactional_id: str, timeout_ms: int) -> int:
    """Fence the producer of a transactional id, and wait until its open transaction is aborted.

    Return the id's new producer epoch. `timeout_ms` is the id's transaction time-out from now on.
    Raises ClientError.
    """

    def ask(broker: KafkaConnection) -> int:
        return init_at(broker, transactional_id, timeout_ms)[1]

    retry = Retry(
        cluster.timeout_s, retriable=retriable_codes((ErrorCode.CONCURRENT_TRANSACTIONS,))
    )
    return retry.call(lambda: ask_coordinator(cluster, transactional_id, ask, TRANSACTION))


def init_at(
    broker: KafkaConnection,
    transactional_id: str,
    timeout_ms: int,
    expected: tuple[int, int] = (_NONE, _NONE),
) -> tuple[int, int]:
    """Fence the producer of a transactional id; return the producer id and epoch from now on.

    With an `expected` producer id and epoch, only that producer is fenced. While the coordinator
    aborts an open transaction, it returns CONCURRENT_TRANSACTIONS. Raises ClientError.
    """
    request = {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": timeout_ms,
        "producer_id": expected[0],
        "producer_epoch": expected[1],
        "enable2_pc": False,
        "keep_prepared_txn": False,
    }
    answer = broker.call(INIT_PRODUCER_ID, request)
    if answer["error_code"]:
        raise BrokerError(f"fencing the producer of {transactional_id}", answer["error_code"])
    return answer["producer_id"], answer["producer_epoch"]
