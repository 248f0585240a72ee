"""Transactional batches, which wait until the coordinator has confirmed their transaction.

Only the first batch of a transaction on a partition waits; later ones find the transaction open.
Batches of the same producer that arrive meanwhile wait behind it, so that their order stays.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, TypeAlias

from tidelog.core.errors import ErrorCode
from tidelog.core.lineage.verification import Verification
from tidelog.core.node.effects import Close
from tidelog.core.node.hosting.gate import Gate
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.messages import Produce, ProducePartition
from tidelog.core.node.serving.txn_verification import TxnProducer, TxnVerification
from tidelog.core.node.turn import Turn
from tidelog.core.node.waiters import AnyPart
from tidelog.core.record.record_batch import MAGIC, TRANSACTIONAL, CorruptRecord, RecordBatch, parse
from tidelog.core.replication.events import ACKS_NONE
from tidelog.core.slotted import field, slotted
from tidelog.core.types import INTERNAL_TOPICS

FIRST_WITH_ABORTABLE = 11
"""The first version of Produce whose clients know TRANSACTION_ABORTABLE."""
FIRST_ADDING = 12
"""The first version of Produce that adds partitions to the transaction (version 2)."""
WAITING_BYTES_MAX = 64 * 1024 * 1024
"""The most bytes of waiting batches. Further batches are refused with an error that clients
retry."""

_MAGIC_AT = 16
ATTRIBUTES_AT = 22
"""The position of the lower byte of the attributes in a batch."""
_RETRIED = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors that old producers may not retry; they get NOT_ENOUGH_REPLICAS, as from Kafka."""


class Refusal(NamedTuple):
    """Why a batch was rejected."""

    error: ErrorCode
    message: str
    record_errors: tuple[tuple[int, str], ...] = ()


class AppendBatch(Protocol):
    """Checks and appends a batch, and writes the result to its part of the response."""

    def __call__(
        self, request: Produce, asked: ProducePartition, part: AnyPart, verified: bool = False
    ) -> None: ...


RefuseBatch: TypeAlias = Callable[[ProducePartition, AnyPart, ErrorCode | Refusal], None]


class WaitingBatch(NamedTuple):
    """A batch with its own copy of the records."""

    request: Produce
    asked: ProducePartition
    part: AnyPart


class WaitingProducer(NamedTuple):
    """One producer with batches that wait at one replica."""

    replica: HostedReplica
    producer_id: int
    producer_epoch: int


@slotted(eq=False)
class WaitingBatches:
    """The batches of one producer that wait for the same answer."""

    verification: Verification
    """If a marker has removed it, the response to an earlier request no longer applies."""
    is_asked: bool = False
    """Whether the coordinator was asked and has not answered yet."""
    batches: list[WaitingBatch] = field(default_factory=list)


def transaction_error(request: Produce) -> ErrorCode:
    """Return why a request with transactional batches fails as a whole; NONE if it does not."""
    if request.transactional_id is None:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    producers = set()
    for asked in filter(is_transactional, request.partitions):
        batch = _parsed(asked)
        if batch is not None and batch.producer_id >= 0:
            producers.add((batch.producer_id, batch.producer_epoch))
    return ErrorCode.INVALID_PRODUCER_ID_MAPPING if len(producers) > 1 else ErrorCode.NONE


def is_transactional(asked: ProducePartition) -> bool:
    """Whether the records are a transactional batch, as far as their header shows."""
    records = asked.records
    return (
        len(records) > ATTRIBUTES_AT
        and records[ATTRIBUTES_AT] & TRANSACTIONAL != 0
        and records[_MAGIC_AT] == MAGIC
    )


def _parsed(asked: ProducePartition) -> RecordBatch | None:
    try:
        return parse(asked.records)
    except CorruptRecord:
        return None


def _producer(request: Produce, asked: ProducePartition) -> tuple[TxnProducer | None, int]:
    """Return the producer of a transactional batch and the batch's sequence number; None if its
    transaction needs no verification: the batch is not transactional, or certainly refused."""
    if asked.topic_partition.topic in INTERNAL_TOPICS or not is_transactional(asked):
        return None, 0
    batch = _parsed(asked)
    if batch is None or batch.producer_id < 0 or request.transactional_id is None:
        return None, 0
    add = request.version >= FIRST_ADDING
    producer = (request.transactional_id, batch.producer_id, batch.producer_epoch)
    return TxnProducer(*producer, add), batch.base_sequence


class TransactionalProduce:
    """Appends transactional batches once they are verified."""

    def __init__(
        self,
        turn: Turn,
        gate: Gate,
        verification: TxnVerification,
        append: AppendBatch,
        refuse: RefuseBatch,
    ) -> None:
        self._turn = turn
        self._gate = gate
        self._verification = verification
        self._append = append
        self._refuse = refuse
        self._waiting: dict[WaitingProducer, WaitingBatches] = {}
        self._waiting_bytes = 0

    def append(self, request: Produce, asked: ProducePartition, part: AnyPart) -> None:
        """Append a batch, at once or when its transaction is verified. After the last one of a
        request, `send` must be called."""
        producer, sequence = _producer(request, asked)
        replica = self._gate.find(asked.topic_partition, asked.topic_id)
        if (
            producer is None
            or not isinstance(replica, HostedReplica)
            or not replica.partition.is_leader
        ):
            self._append(request, asked, part)
            return
        if not self._verification.needed(producer):
            self._append(request, asked, part, verified=True)
            return
        found = replica.log.producers.begin_verification(
            producer.id, producer.epoch, sequence, adds=producer.add, wall_ms=self._turn.wall_ms
        )
        if found is ErrorCode.NONE:
            self._append(request, asked, part)
        elif isinstance(found, ErrorCode):
            self._reject(replica, asked, part, found)
        elif self._waiting_bytes + len(asked.records) > WAITING_BYTES_MAX:
            self._reject(replica, asked, part, ErrorCode.NOT_ENOUGH_REPLICAS)
        else:
            self._wait(WaitingBatch(request, asked, part), replica, producer, found)

    def _wait(
        self,
        batch: WaitingBatch,
        replica: HostedReplica,
        producer: TxnProducer,
        verification: Verification,
    ) -> None:
        asked = batch.asked
        self._waiting_bytes += len(asked.records)
        own = ProducePartition(asked.topic_partition, bytearray(asked.records), asked.topic_id)
        batch = batch._replace(asked=own)
        key = WaitingProducer(replica, producer.id, producer.epoch)
        waiting = self._waiting.get(key)
        if waiting is not None and (waiting.verification is verification or not waiting.is_asked):
            waiting.batches.append(batch)
            return
        waiting = self._waiting[key] = WaitingBatches(verification)
        waiting.batches.append(batch)

        def renew() -> None:
            waiting.is_asked = True
            if replica.partition.is_leader:
                state = replica.log.producers
                renewed = state.renew_verification(producer.id, waiting.verification)
                waiting.verification = renewed

        def postponed() -> None:
            waiting.is_asked = False

        def answered(error: ErrorCode) -> None:
            if self._waiting.get(key) is waiting:
                del self._waiting[key]
            for batch in waiting.batches:
                self._resume(batch, key, waiting.verification, error)

        self._verification.ask(producer, asked.topic_partition, answered, renew, postponed)

    def send(self) -> None:
        """Send the requests to coordinators."""
        self._verification.send()

    def _resume(
        self,
        batch: WaitingBatch,
        waiting: WaitingProducer,
        verification: Verification,
        error: ErrorCode,
    ) -> None:
        request, asked, part = batch
        replica = waiting.replica
        self._waiting_bytes -= len(asked.records)
        pending = part.pending
        if pending.done:
            return  # timed out: the producer sends the batch again
        if error is not ErrorCode.NONE:
            self._reject(replica, asked, part, error_for(request.version, error))
        else:
            current = self._gate.find(asked.topic_partition, asked.topic_id)
            known = replica.log.producers.verifications.get(waiting.producer_id)
            verified = current is replica and verification is known
            self._append(request, asked, part, verified=verified)
        if request.acks == ACKS_NONE and pending.answers[part.index].error is not ErrorCode.NONE:
            self._turn.emit(Close(pending.peer))

    def _reject(
        self,
        replica: HostedReplica,
        asked: ProducePartition,
        part: AnyPart,
        error: ErrorCode | Refusal,
    ) -> None:
        traffic = replica.traffic
        traffic.produce_requests += 1
        traffic.failed_produce_requests += 1
        traffic.bytes_rejected += len(asked.records)
        self._refuse(asked, part, error)

    @property
    def waiting(self) -> Iterable[WaitingProducer]:
        """The producers whose batches wait for a coordinator."""
        return self._waiting


def error_for(version: int, error: ErrorCode) -> ErrorCode | Refusal:
    """Return what a producer gets for a coordinator's error, by the version of its request."""
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_WITH_ABORTABLE:
        error = ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.INVALID_TXN_STATE:
        return Refusal(error, "Partition was not added to the transaction")
    if error in _RETRIED or (error is ErrorCode.CONCURRENT_TRANSACTIONS and version < FIRST_ADDING):
        return Refusal(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"The transaction coordinator could not verify the partition: {error.name}.",
        )
    return error
