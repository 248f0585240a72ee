"""Transactions of producers: begin, add partitions, commit or abort, and look up the outcome.

Requests go to the coordinator of the transactional id, which is remembered until it fails. They
have the versions of transaction version 1: the client adds partitions itself, and EndTxn does not
change the epoch. So EndTxn may be sent by another process than the producer, and repeated, with the
producer id and epoch alone. Each transaction begins with InitProducerId, which raises the epoch as
EndTxn does in version 2: a late batch of an earlier transaction can't join a later one.

Invariant: all requests are safe to repeat, so they are retried until `timeout_s` has passed.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple, TypeVar

from tidelog.core.api_table import ADD_PARTITIONS_TO_TXN, END_TXN
from tidelog.core.errors import ErrorCode
from tidelog.core.record.control import TransactionMarker, read_control
from tidelog.core.record.decoder import decode
from tidelog.core.record.record_batch import RecordBatch, batches
from tidelog.core.types import BrokerId, Offset, TopicPartition
from tidelog.shell.client.administration.transactions import (
    Transaction,
    describe_at,
    init_at,
)
from tidelog.shell.client.client_errors import BrokerError, ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.coordinators import MOVED, TRANSACTION, find_coordinator
from tidelog.shell.client.fetching import fetch_partition
from tidelog.shell.client.offsets import list_offset
from tidelog.shell.client.retry import Retry, retriable_codes

T = TypeVar("T")
FETCH_BYTES = 1024 * 1024
LAST_ADD_OF_CLIENTS = 3
"""Later versions of AddPartitionsToTxn are for brokers."""
LAST_END_WITHOUT_BUMP = 4
"""Later versions of EndTxn raise the epoch of the producer."""
_RETRIED = (
    *MOVED,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
ENDED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)
"""Errors of EndTxn if the coordinator does not have this transaction open: it was aborted, or it
was committed and the id has been used or forgotten since."""


class TransactionalProducer(NamedTuple):
    """The identity of a producer: enough to end its transaction."""

    transactional_id: str
    producer_id: int
    epoch: int


class UnknownOutcome(ClientError):
    """A transaction has ended, but the log does not show how."""

    def __init__(
        self, producer: TransactionalProducer, key: TopicPartition, offset: Offset
    ) -> None:
        super().__init__(
            f"the transaction of {producer.transactional_id} (producer {producer.producer_id},"
            f" epoch {producer.epoch}) has ended, but {key} has no marker of it after offset"
            f" {offset}: records may have been deleted"
        )


class TransactionCoordinators:
    """Sends requests about transactional ids to their coordinators.

    `timeout_s` bounds each call, retries included.
    """

    def __init__(self, cluster: Cluster, timeout_s: float) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._known: dict[str, BrokerId] = {}

    def begin(self, transactional_id: str, timeout_ms: int) -> TransactionalProducer:
        """Fence earlier producers of the id, and wait until their transaction is aborted.

        `timeout_ms`: how long a transaction may be open. Raises ClientError.
        """

        def ask(broker: KafkaConnection, _: BrokerId) -> TransactionalProducer:
            return TransactionalProducer(
                transactional_id, *init_at(broker, transactional_id, timeout_ms)
            )

        return self._ask(transactional_id, ask)

    def fence(self, producer: TransactionalProducer, timeout_ms: int) -> None:
        """Abort the producer's open transaction, unless the id has a newer producer.

        This raises the epoch, so that a batch that is still on its way is rejected.
        """

        def ask(broker: KafkaConnection, _: BrokerId) -> None:
            init_at(broker, producer.transactional_id, timeout_ms, producer[1:])

        try:
            self._ask(producer.transactional_id, ask)
        except BrokerError as error:
            if error.code not in ENDED:
                raise

    def add_partitions(
        self, producer: TransactionalProducer, keys: Collection[TopicPartition]
    ) -> None:
        """Add partitions to the transaction; the first ones start it. Raises ClientError."""
        topics: dict[str, list[int]] = {}
        for key in keys:
            topics.setdefault(key.topic, []).append(key.partition)
        request = {
            "v3_and_below_transactional_id": producer.transactional_id,
            "v3_and_below_producer_id": producer.producer_id,
            "v3_and_below_producer_epoch": producer.epoch,
            "v3_and_below_topics": [
                {"name": name, "partitions": partitions} for name, partitions in topics.items()
            ],
        }

        def ask(broker: KafkaConnection, _: BrokerId) -> None:
            answer = broker.call(ADD_PARTITIONS_TO_TXN, request, LAST_ADD_OF_CLIENTS)
            codes = {
                each["partition_error_code"]
                for topic in answer["results_by_topic_v3_and_below"]
                for each in topic["results_by_partition"]
            }
            # Beside an error of one partition, the others get OPERATION_NOT_ATTEMPTED.
            failed = codes - {ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED}
            if failed:
                what = f"adding partitions to the transaction of {producer.transactional_id}"
                raise BrokerError(what, min(failed))

        self._ask(producer.transactional_id, ask)

    def end(self, producer: TransactionalProducer, *, committed: bool) -> None:
        """Commit or abort. The outcome is final when this returns; the markers follow.

        Raises BrokerError with one of ENDED if the transaction may have ended in another way.
        """
        request = {
            "transactional_id": producer.transactional_id,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "committed": committed,
        }

        def ask(broker: KafkaConnection, _: BrokerId) -> None:
            answer = broker.call(END_TXN, request, LAST_END_WITHOUT_BUMP)
            if answer["error_code"]:
                doing = "committing" if committed else "aborting"
                what = f"{doing} the transaction of {producer.transactional_id}"
                raise BrokerError(what, answer["error_code"])

        self._ask(producer.transactional_id, ask)

    def describe(self, transactional_id: str) -> Transaction:
        """Return the state of a transactional id. Raises NoSuchTransaction, ClientError."""

        def ask(broker: KafkaConnection, coordinator: BrokerId) -> Transaction:
            return describe_at(broker, coordinator, transactional_id)

        return self._ask(transactional_id, ask)

    def _ask(self, transactional_id: str, ask: Callable[[KafkaConnection, BrokerId], T]) -> T:
        retry = Retry(self._timeout_s, retriable=retriable_codes(_RETRIED))

        def attempt() -> T:
            coordinator = self._known.get(transactional_id)
            if coordinator is None:
                coordinator = find_coordinator(self._cluster, transactional_id, retry, TRANSACTION)
                self._known[transactional_id] = coordinator
            try:
                return ask(self._cluster.broker(coordinator), coordinator)
            except ClientError as error:
                if not isinstance(error, BrokerError) or error.code in MOVED:
                    self._known.pop(transactional_id, None)
                raise

        return retry.call(attempt)


def committed_in_log(
    cluster: Cluster, producer: TransactionalProducer, key: TopicPartition, offset: Offset
) -> bool:
    """Return whether the transaction with the producer's batch at `offset` was committed.

    The first marker of the producer after that batch shows it. The coordinator writes it soon after
    the outcome is decided. Raises UnknownOutcome, ClientError.
    """
    unknown = UnknownOutcome(producer, key, offset)
    retry = Retry(cluster.timeout_s)
    position = offset
    while True:
        end = list_offset(cluster, *key).offset
        while position < end:
            before = position
            try:
                found = fetch_partition(cluster, key, position, FETCH_BYTES)
            except BrokerError as error:
                if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise unknown from error
                raise
            for batch in batches(found.records):
                position = max(position, batch.next_offset)
                marker = _marker(batch, producer)
                if marker is not None:
                    return not marker.is_abort
            if position == before:
                break
        retry.wait(unknown)


def _marker(batch: RecordBatch, producer: TransactionalProducer) -> TransactionMarker | None:
    """Return the marker in a batch if it ends a transaction of this producer epoch or a later
    one. Coordinators that abort write the next epoch."""
    ours = batch.producer_id == producer.producer_id and batch.producer_epoch >= producer.epoch
    if not (ours and batch.is_control):
        return None
    for record in decode(batch):
        found = read_control(record.key, record.value)
        if isinstance(found, TransactionMarker):
            return found
    return None
