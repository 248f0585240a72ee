"""The state of one transactional id, and the transitions between states.

A transition is a pure function: it returns the next state, to be written to the log, or the error
for the client. Nothing changes before the record of the next state is committed.

States: Empty -> Ongoing with the first partition -> PrepareCommit or PrepareAbort with EndTxn, then
the markers are written -> CompleteCommit or CompleteAbort -> Ongoing with the next partition.

Transaction versions (KIP-890). With version 2 each end of a transaction raises the producer epoch,
so a late request of the last transaction never joins the next one; and the broker, not the client,
adds partitions. The version of a transaction is that of the client that ended it.
"""

from enum import IntEnum
from typing import NamedTuple

from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME = -1
EPOCH_MAX = 0x7FFF
LAST_CLIENT_EPOCH = EPOCH_MAX - 1
"""The highest epoch that a client gets. One more is left to fence the client."""
EPOCH_BUMPS = 2
"""The first transaction version in which each end of a transaction raises the epoch."""


class TransactionState(IntEnum):
    """The states by their numbers in the log. PrepareEpochFence is never written."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """Kafka's name of the state, such as PrepareCommit."""
        return _LABELS[self]

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and markers are being written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Whether there is no transaction: the transactional id may expire."""
        return self in _IDLE


_IDLE = frozenset(
    {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
)
_LABELS = {
    state: "".join(word.capitalize() for word in state.name.split("_"))
    for state in TransactionState
}
STATES_BY_LABEL = {label: state for state, label in _LABELS.items()}


class ProducerIdentity(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


class Transaction(NamedTuple):
    """The state of a transactional id: what one record of the log holds.

    `last_epoch` is not in the log, as in Kafka. It is the epoch before the last raise, if a
    producer with that epoch may still retry.
    """

    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    start_ms: int
    """Wall-clock time of the first partition; NO_TIME if there was no transaction yet."""
    updated_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id of the state before."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id after this transaction, because the epochs of this one are used up."""
    client_version: int = 0
    """The transaction version of the client; see EPOCH_BUMPS."""
    last_epoch: int = NO_EPOCH

    @property
    def is_exhausted(self) -> bool:
        """Whether a client must not get another epoch of this producer id."""
        return self.epoch >= LAST_CLIENT_EPOCH

    def change(self, **fields: object) -> "Transaction":
        """Return the next state. It remembers the producer id of this one."""
        return self._replace(previous_producer_id=self.producer_id, **fields)  # type: ignore[arg-type]


def created(producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """Return the state of a new transactional id before its first InitProducerId is done."""
    empty = TransactionState.EMPTY
    return Transaction(producer_id, NO_EPOCH, timeout_ms, empty, frozenset(), NO_TIME, now_ms)


# -- InitProducerId ------------------------------------------------------------------------


def check_init(known: Transaction, expected: ProducerIdentity | None) -> ErrorCode:
    """Check InitProducerId. `expected` is the identity that the producer already has (KIP-360).

    The previous producer id is accepted with a used-up epoch: the producer did not get the response
    that gave it the next id. Only the current producer may abort an open transaction.
    """
    if expected is not None and known.epoch != NO_EPOCH:
        retried = (
            expected.producer_id == known.previous_producer_id
            and expected.epoch >= LAST_CLIENT_EPOCH
        )
        if expected.producer_id != known.producer_id and not retried:
            return ErrorCode.PRODUCER_FENCED
        current = expected == (known.producer_id, known.epoch)
        if known.state is TransactionState.ONGOING and not current:
            # Kafka aborts the newer producer's transaction first, and then returns this error.
            return ErrorCode.PRODUCER_FENCED
    if known.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.NONE


def init_needs_id(known: Transaction, expected: ProducerIdentity | None) -> bool:
    """Whether InitProducerId continues with another producer id."""
    return known.is_exhausted and (expected is None or expected.epoch == known.epoch)


def initialised(
    known: Transaction,
    expected: ProducerIdentity | None,
    timeout_ms: int,
    now_ms: int,
    new_producer_id: int | None,
) -> Transaction | ErrorCode:
    """Return the state after InitProducerId: a higher epoch, or a new producer id with epoch 0.

    A retry with the epoch before the last raise changes nothing: it gets the same epoch again.
    """
    producer_id = known.producer_id
    if new_producer_id is not None:
        producer_id, epoch = new_producer_id, 0
        last_epoch = NO_EPOCH if expected is None else known.epoch
    elif expected is None:
        epoch, last_epoch = known.epoch + 1, NO_EPOCH
    elif expected.epoch == known.epoch or known.epoch == NO_EPOCH:
        epoch, last_epoch = known.epoch + 1, known.epoch
    elif expected.epoch == known.last_epoch:
        epoch, last_epoch = known.epoch, known.last_epoch
    else:
        return ErrorCode.PRODUCER_FENCED
    return known.change(
        producer_id=producer_id,
        epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        start_ms=NO_TIME,
        updated_ms=now_ms,
    )


# -- AddPartitionsToTxn --------------------------------------------------------------------


def check_producer(known: Transaction, producer: ProducerIdentity) -> ErrorCode:
    """Check that a request is from the current producer of a transactional id."""
    if producer.producer_id != known.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if producer.epoch != known.epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def with_partitions(
    known: Transaction, added: frozenset[TopicPartition], now_ms: int, client_version: int
) -> Transaction:
    """Return the state with more partitions; the first ones start a transaction."""
    ongoing = known.state is TransactionState.ONGOING
    return known.change(
        state=TransactionState.ONGOING,
        partitions=known.partitions | added,
        start_ms=known.start_ms if ongoing else now_ms,
        updated_ms=now_ms,
        client_version=client_version,
    )


# -- EndTxn --------------------------------------------------------------------------------


class AlreadyEnded(NamedTuple):
    """The transaction ended as requested before: this is a retry."""


ALREADY_ENDED = AlreadyEnded()


def check_end(
    known: Transaction, producer: ProducerIdentity, *, committed: bool, version: int
) -> ErrorCode | AlreadyEnded:
    """Check EndTxn. NONE means that the transaction ends now."""
    if version < EPOCH_BUMPS:
        return _check_end_1(known, producer, committed)
    return _check_end_2(known, producer, committed)


def _check_end_1(
    known: Transaction, producer: ProducerIdentity, committed: bool
) -> ErrorCode | AlreadyEnded:
    """Before version 2, an EndTxn with the current epoch may be a retry."""
    error = check_producer(known, producer)
    if error is not ErrorCode.NONE:
        return error
    state = known.state
    if state is TransactionState.ONGOING:
        return ErrorCode.NONE
    if state is TransactionState.EMPTY or _is_commit(state) is not committed:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.CONCURRENT_TRANSACTIONS if state.is_prepared else ALREADY_ENDED


def _check_end_2(
    known: Transaction, producer: ProducerIdentity, committed: bool
) -> ErrorCode | AlreadyEnded:
    """From version 2 on the epoch distinguishes a retry from the next EndTxn. A client may abort
    without partitions: it does not know which of its batches were added."""
    overflowed = (
        known.previous_producer_id == producer.producer_id
        and producer.epoch == LAST_CLIENT_EPOCH
        and known.epoch == 0
    )
    if producer.producer_id != known.producer_id and not overflowed:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    state = known.state
    retried = known.epoch == producer.epoch + 1 or overflowed
    current = producer.epoch == known.epoch
    if state in (TransactionState.ONGOING, TransactionState.EMPTY):
        valid = current
    elif state.is_prepared:
        valid = known.epoch == producer.epoch + 1
    else:
        valid = retried or current
    if not valid:
        return ErrorCode.PRODUCER_FENCED
    if state is TransactionState.ONGOING:
        return ErrorCode.NONE
    if state.is_prepared:
        same = _is_commit(state) is committed
        return ErrorCode.CONCURRENT_TRANSACTIONS if same else ErrorCode.INVALID_TXN_STATE
    if state is not TransactionState.EMPTY and retried:
        return ALREADY_ENDED if _is_commit(state) is committed else ErrorCode.INVALID_TXN_STATE
    return ErrorCode.INVALID_TXN_STATE if committed else ErrorCode.NONE


def _is_commit(state: TransactionState) -> bool:
    return state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


def prepared(
    known: Transaction,
    *,
    committed: bool,
    version: int,
    now_ms: int,
    fence: bool = False,
    next_producer_id: int | None = None,
) -> Transaction:
    """Return the state in which the outcome is decided.

    With `fence` the coordinator itself aborts, because of a time-out or another producer: the epoch
    rises in every version, so the old producer gets an error from now on.
    """
    raises = fence or version >= EPOCH_BUMPS
    epoch = min(known.epoch + 1, EPOCH_MAX) if raises else known.epoch
    last_epoch = known.last_epoch
    if version >= EPOCH_BUMPS:
        last_epoch = known.epoch
    elif fence:
        last_epoch = NO_EPOCH
    prepare = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
    ongoing = known.state is TransactionState.ONGOING
    return known.change(
        state=prepare,
        epoch=epoch,
        last_epoch=last_epoch,
        next_producer_id=NO_PRODUCER_ID if next_producer_id is None else next_producer_id,
        start_ms=known.start_ms if ongoing else now_ms,
        updated_ms=now_ms,
        client_version=version,
    )


def completed(known: Transaction, now_ms: int) -> Transaction:
    """Return the state after the markers are written."""
    is_commit = known.state is TransactionState.PREPARE_COMMIT
    changed = known.change(
        state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
        partitions=frozenset(),
        updated_ms=now_ms,
        next_producer_id=NO_PRODUCER_ID,
    )
    if known.client_version >= EPOCH_BUMPS and known.next_producer_id != NO_PRODUCER_ID:
        return changed._replace(producer_id=known.next_producer_id, epoch=0)
    return changed
