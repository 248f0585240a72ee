"""The requests and responses of the transaction coordinator.

Invariant: a request gets exactly one response, of the class of the same name. AddPartitionsToTxn
names many transactions on the wire from version 4 on: it is one AddPartitions or VerifyPartitions
for each here.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from tidelog.core.coordinator.shard import APPEND_ERRORS
from tidelog.core.errors import ErrorCode
from tidelog.core.slotted import slotted
from tidelog.core.transactions.transaction import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    ProducerIdentity,
    TransactionState,
)
from tidelog.core.types import TopicPartition


@slotted(frozen=True)
class InitTransactionalId:
    """InitProducerId with a transactional id: fence earlier producers of the id, abort what they
    left open, and get a producer id with its epoch."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdentity | None = None
    """The identity that the producer already has, and wants to continue with (KIP-360)."""


@slotted(frozen=True)
class InitTransactionalIdResponse:
    """The producer id and its epoch."""

    error_code: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


@slotted(frozen=True)
class AddPartitions:
    """Add partitions to a transaction; the first ones start it."""

    transactional_id: str
    producer: ProducerIdentity
    partitions: frozenset[TopicPartition]
    version: int = 0
    """The transaction version of the client."""


@slotted(frozen=True)
class AddPartitionsResponse:
    """The outcome, the same for all partitions."""

    error_code: ErrorCode


@slotted(frozen=True)
class VerifyPartitions:
    """Check that partitions are part of the open transaction."""

    transactional_id: str
    producer: ProducerIdentity
    partitions: frozenset[TopicPartition]


@slotted(frozen=True)
class VerifyPartitionsResponse:
    """The outcome. Without an error, `missing` are not part of the transaction."""

    error_code: ErrorCode
    missing: frozenset[TopicPartition] = frozenset()


@slotted(frozen=True)
class EndTransaction:
    """Commit or abort a transaction. The response follows when the outcome is in the log; the
    markers are written later."""

    transactional_id: str
    producer: ProducerIdentity
    committed: bool
    version: int = 0
    """The transaction version of the client."""


@slotted(frozen=True)
class EndTransactionResponse:
    """The producer id and epoch for the next transaction; from transaction version 2 on."""

    error_code: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


@slotted(frozen=True)
class DescribeTransaction:
    """Describe a transactional id."""

    transactional_id: str


@slotted(frozen=True)
class DescribeTransactionResponse:
    """The state of a transactional id. While markers are written, `partitions` are those without
    one."""

    error_code: ErrorCode
    transactional_id: str
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = NO_TIME
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    partitions: tuple[TopicPartition, ...] = ()


@slotted(frozen=True)
class ListTransactions:
    """List the transactional ids that pass all filters. An empty filter passes every id."""

    states: frozenset[TransactionState] = frozenset()
    unknown_states: bool = False
    """Whether the filter also has states that do not exist: an id in another state must not pass
    because of that."""
    producer_ids: frozenset[int] = frozenset()
    longer_than_ms: int = -1
    """Only transactions that began longer ago; negative: all."""
    matches: Callable[[str], bool] | None = None
    """Whether a transactional id matches the requested pattern; None: all match."""


class ListedTransaction(NamedTuple):
    """One entry of the list."""

    transactional_id: str
    producer_id: int
    state: str


@slotted(frozen=True)
class ListTransactionsResponse:
    """The transactional ids that one broker coordinates."""

    error_code: ErrorCode
    transactions: tuple[ListedTransaction, ...] = ()


TransactionRequest: TypeAlias = (
    InitTransactionalId | AddPartitions | VerifyPartitions | EndTransaction | DescribeTransaction
)
"""Requests about one transactional id."""
Response: TypeAlias = (
    InitTransactionalIdResponse
    | AddPartitionsResponse
    | VerifyPartitionsResponse
    | EndTransactionResponse
    | DescribeTransactionResponse
)


def refused(request: TransactionRequest, error: ErrorCode) -> Response:
    """Return the response to a request that failed."""
    if isinstance(request, DescribeTransaction):
        return DescribeTransactionResponse(error, request.transactional_id)
    if isinstance(request, InitTransactionalId):
        return InitTransactionalIdResponse(error)
    if isinstance(request, AddPartitions):
        return AddPartitionsResponse(error)
    if isinstance(request, VerifyPartitions):
        return VerifyPartitionsResponse(error)
    return EndTransactionResponse(error)


def error_of_append(error: ErrorCode) -> ErrorCode:
    """Return the error for a producer whose transaction could not be written."""
    return _APPEND_ERRORS.get(error, error)


_APPEND_ERRORS = {
    **APPEND_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
