"""All transactional ids of one partition of `__transaction_state`: the coordinator's state machine.

Each id has a state (transaction.py). A request checks it and writes the next state; while that is
pending, other requests for the id get CONCURRENT_TRANSACTIONS. Once the outcome of a transaction is
in the log it is final: the shard has markers written to all partitions of the transaction, also
after a failover, and then writes that the transaction is complete.

Invariants: see core/coordinator/shard.py. A pending change is one of: an append, a producer id that
is being allocated, markers that are being written. The time of a call depends on the ids that it is
about, not on the number of ids.
"""

from collections.abc import Callable
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

from tidelog.core.coordinator.shard import CoordinatorShard
from tidelog.core.errors import ErrorCode
from tidelog.core.transactions import messages as on
from tidelog.core.transactions.config import TransactionConfig
from tidelog.core.transactions.messages import error_of_append, refused
from tidelog.core.transactions.records import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from tidelog.core.transactions.transaction import (
    EPOCH_BUMPS,
    AlreadyEnded,
    ProducerIdentity,
    Transaction,
    TransactionState,
    check_end,
    check_init,
    check_producer,
    completed,
    created,
    init_needs_id,
    initialised,
    prepared,
    with_partitions,
)
from tidelog.core.types import TopicPartition
from tidelog.core.wall_clock import WallClock

IDS_AT_ONCE = 2_000
"""Transactional ids checked in one call for expiration."""
TOMBSTONE_BYTES_MAX = 16 * 1024
RETRY_MS = 100
"""The pause before a completed transaction is written again."""
_PAUSE_MS = 1
_DEFAULT_VERSION = 2


class TimerKind(IntEnum):
    """What a timer is for."""

    ABORT = 0
    COMPLETE = 1
    EXPIRE = 2


class Outcome(StrEnum):
    """How a transaction ended, for operators."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    """By its producer."""
    TIMED_OUT = "timed_out"
    FENCED = "fenced"
    """By the next producer of the transactional id."""


class Timer(NamedTuple):
    """The key of a timer."""

    kind: TimerKind
    transactional_id: str = ""


class AllocateProducerId(NamedTuple):
    """An effect: get a producer id, then call `producer_id_allocated` with this token."""

    token: int


class SendMarkers(NamedTuple):
    """An effect: write markers that end a transaction, and call `markers_written` for each
    partition that has one."""

    transactional_id: str
    producer: ProducerIdentity
    committed: bool
    partitions: frozenset[TopicPartition]
    version: int


class Entry:
    """A transactional id: its committed state, and whether a change is pending."""

    __slots__ = ("current", "left", "pending")

    def __init__(self, current: Transaction | None = None) -> None:
        self.current = current
        """None until the first InitProducerId is committed."""
        self.pending = False
        self.left: set[TopicPartition] = set()
        """The partitions that have no marker yet."""


OnProducerId = Callable[[ErrorCode, int], None]
OnChanged = Callable[[ErrorCode], None]


class TransactionShard(CoordinatorShard[Timer]):
    """The transactional ids of a partition."""

    def __init__(
        self,
        config: TransactionConfig,
        now_ms: int,
        wall: WallClock | None = None,
        transaction_version: Callable[[], int] = lambda: _DEFAULT_VERSION,
        count: Callable[[Outcome], None] = lambda _: None,
    ) -> None:
        super().__init__(now_ms)
        self._count = count
        """Called for each transaction whose outcome is committed."""
        self._config = config
        self._wall = wall or WallClock()
        self._cluster_version = transaction_version
        """The level of `transaction.version` that the cluster has agreed on."""
        self._entries: dict[str, Entry] = {}
        self._allocations: dict[int, tuple[OnProducerId, OnChanged]] = {}
        self._next_allocation = 0
        self.unwritten: set[str] = set()
        """Ids whose transaction has all markers, but could not be written as complete yet."""
        self._unloaded = False
        self._to_expire: list[str] = []
        """Ids still to check in this round of expiration."""
        self._base_ms = now_ms
        self._expire_at(now_ms + self._expire_interval_ms)
        self._handlers: dict[type, Callable[[object, Any], None]] = {
            on.InitTransactionalId: self._init,
            on.AddPartitions: self._add,
            on.VerifyPartitions: self._verify,
            on.EndTransaction: self._end,
            on.DescribeTransaction: self._describe,
        }

    @property
    def _expire_interval_ms(self) -> int:
        return self._config.transaction_remove_expired_transaction_cleanup_interval_ms

    @property
    def entries(self) -> dict[str, Entry]:
        """All transactional ids, for metrics and tests."""
        return self._entries

    # -- loading and unloading ------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None) -> None:
        transactional_id = decode_key(key)
        if transactional_id is None:
            return
        if value is None:
            self._entries.pop(transactional_id, None)
        else:
            self._entries[transactional_id] = Entry(decode_value(value))

    def on_loaded(self) -> None:
        """Continue to write the markers of transactions whose outcome is decided."""
        for transactional_id, entry in self._entries.items():
            known = entry.current
            assert known is not None, "only committed states are in the log"
            if known.state.is_prepared:
                self._send_markers(transactional_id, entry, known)
            elif known.state is TransactionState.ONGOING:
                open_ms = self._wall.earliest_ms(self._now_ms) - known.start_ms
                left_ms = known.timeout_ms - min(max(open_ms, 0), known.timeout_ms)
                self._abort_at(transactional_id, self._now_ms + left_ms)

    def on_unload(self, error: ErrorCode) -> None:
        """Answer the requests that wait for a producer id."""
        self._unloaded = True
        allocations, self._allocations = self._allocations, {}
        for _, on_changed in allocations.values():
            on_changed(error)

    # -- requests -------------------------------------------------------------------------

    def serve(self, requester: object, request: Any) -> None:
        self._handlers[type(request)](requester, request)

    def list_transactions(
        self, request: on.ListTransactions, now_ms: int
    ) -> list[on.ListedTransaction]:
        """Return the transactional ids of this shard that pass the filters."""
        wall_ms = self._wall.at_ms(now_ms)
        return [
            on.ListedTransaction(transactional_id, known.producer_id, known.state.label)
            for transactional_id, entry in self._entries.items()
            if (known := entry.current) is not None
            and _passes(transactional_id, known, request, wall_ms)
        ]

    # -- InitProducerId -------------------------------------------------------------------

    def _init(self, requester: object, request: on.InitTransactionalId) -> None:
        def fail(error: ErrorCode) -> None:
            self._outbox.answer(requester, on.InitTransactionalIdResponse(error))

        if not 0 < request.timeout_ms <= self._config.transaction_max_timeout_ms:
            fail(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
            return
        name = request.transactional_id
        entry = self._entries.get(name)
        if entry is None:
            entry = self._entries[name] = Entry()
            self._allocate(
                name,
                entry,
                lambda new_id: self._initialise(requester, request, entry, new_id),
                fail,
            )
            return
        known = entry.current
        if entry.pending or known is None:
            fail(ErrorCode.CONCURRENT_TRANSACTIONS)
            return
        error = check_init(known, request.expected)
        if error is not ErrorCode.NONE:
            fail(error)
        elif known.state is TransactionState.ONGOING:
            self._fence(
                name,
                entry,
                Outcome.FENCED,
                # The producer retries, and gets an epoch of its own once the abort is complete.
                lambda error, _next: fail(_retry_later(error)),
            )
        elif init_needs_id(known, request.expected):
            self._allocate(
                name,
                entry,
                lambda new_id: self._initialise(requester, request, entry, new_id),
                fail,
            )
        else:
            self._initialise(requester, request, entry, None)

    def _initialise(
        self,
        requester: object,
        request: on.InitTransactionalId,
        entry: Entry,
        new_producer_id: int | None,
    ) -> None:
        now_ms = self._wall_ms()
        known = entry.current
        if known is None:
            assert new_producer_id is not None, "a new transactional id gets a producer id first"
            known = created(new_producer_id, request.timeout_ms, now_ms)
            new_producer_id = None
        expected, timeout_ms = request.expected, request.timeout_ms
        following = initialised(known, expected, timeout_ms, now_ms, new_producer_id)
        if isinstance(following, ErrorCode):
            self._outbox.answer(requester, on.InitTransactionalIdResponse(following))
            return

        def changed(error: ErrorCode) -> None:
            response = on.InitTransactionalIdResponse(error)
            if error is ErrorCode.NONE:
                producer = (following.producer_id, following.epoch)
                response = on.InitTransactionalIdResponse(error, *producer)
            self._outbox.answer(requester, response)

        self._change(request.transactional_id, entry, following, changed)

    # -- AddPartitionsToTxn ---------------------------------------------------------------

    def _add(self, requester: object, request: on.AddPartitions) -> None:
        def respond(error: ErrorCode) -> None:
            self._outbox.answer(requester, on.AddPartitionsResponse(error))

        name = request.transactional_id
        entry = self._entries.get(name)
        if entry is None:
            respond(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            return
        known = entry.current
        if entry.pending or known is None:
            respond(ErrorCode.CONCURRENT_TRANSACTIONS)
            return
        error = check_producer(known, request.producer)
        if error is ErrorCode.NONE and known.state.is_prepared:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        added = request.partitions
        ongoing = known.state is TransactionState.ONGOING
        if error is not ErrorCode.NONE or (ongoing and added <= known.partitions):
            respond(error)
            return

        def changed(error: ErrorCode) -> None:
            if error is ErrorCode.NONE and not ongoing:
                self._abort_at(name, self._now_ms + known.timeout_ms)
            respond(error)

        following = with_partitions(known, added, self._wall_ms(), request.version)
        self._change(name, entry, following, changed)

    def _verify(self, requester: object, request: on.VerifyPartitions) -> None:
        """Check partitions without regard to pending changes: a partition was added when its record
        is committed, and the partition's leader checks again when it appends."""
        entry = self._entries.get(request.transactional_id)
        known = None if entry is None else entry.current
        missing: frozenset[TopicPartition] = frozenset()
        if known is None:
            error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        else:
            error = check_producer(known, request.producer)
            if error is ErrorCode.NONE and known.state.is_prepared:
                error = ErrorCode.CONCURRENT_TRANSACTIONS
            if error is ErrorCode.NONE:
                missing = request.partitions - known.partitions
        self._outbox.answer(requester, on.VerifyPartitionsResponse(error, missing))

    # -- EndTxn ---------------------------------------------------------------------------

    def _end(self, requester: object, request: on.EndTransaction) -> None:
        def fail(error: ErrorCode) -> None:
            self._outbox.answer(requester, on.EndTransactionResponse(error))

        name, version = request.transactional_id, request.version
        entry = self._entries.get(name)
        if entry is None:
            fail(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            return
        known = entry.current
        if known is None:
            fail(ErrorCode.CONCURRENT_TRANSACTIONS)
            return
        if version < EPOCH_BUMPS:
            error = check_producer(known, request.producer)
            if error is not ErrorCode.NONE:
                fail(error)
                return
        if entry.pending:
            fail(ErrorCode.CONCURRENT_TRANSACTIONS)
            return
        verdict = check_end(known, request.producer, committed=request.committed, version=version)
        if isinstance(verdict, AlreadyEnded):
            producer = (known.producer_id, known.epoch) if version >= EPOCH_BUMPS else ()
            self._outbox.answer(requester, on.EndTransactionResponse(ErrorCode.NONE, *producer))
            return
        if verdict is not ErrorCode.NONE:
            fail(verdict)
            return

        def ended(error: ErrorCode, following: Transaction | None) -> None:
            if error is not ErrorCode.NONE or following is None:
                fail(error)
                return
            producer: tuple[int, ...] = ()
            if version >= EPOCH_BUMPS:
                done = completed(following, self._wall_ms())
                producer = (done.producer_id, done.epoch)
            self._outbox.answer(requester, on.EndTransactionResponse(error, *producer))

        outcome = Outcome.COMMITTED if request.committed else Outcome.ABORTED
        self._prepare(name, entry, outcome, ended, version)

    def _fence(
        self,
        name: str,
        entry: Entry,
        outcome: Outcome,
        ended: Callable[[ErrorCode, Transaction | None], None],
    ) -> None:
        """Abort the transaction with a higher epoch, in the cluster's transaction version."""
        self._prepare(name, entry, outcome, ended, self._cluster_version(), fence=True)

    def _prepare(
        self,
        name: str,
        entry: Entry,
        outcome: Outcome,
        ended: Callable[[ErrorCode, Transaction | None], None],
        version: int,
        *,
        fence: bool = False,
    ) -> None:
        """Write the outcome of a transaction, then let the markers be written."""
        known = entry.current
        assert known is not None, "the caller checked the state"

        def write(next_producer_id: int | None) -> None:
            following = prepared(
                known,
                committed=outcome is Outcome.COMMITTED,
                version=version,
                now_ms=self._wall_ms(),
                fence=fence,
                next_producer_id=next_producer_id,
            )

            def changed(error: ErrorCode) -> None:
                ended(error, following)
                if error is ErrorCode.NONE:
                    self._count(outcome)
                    self._timers.cancel(Timer(TimerKind.ABORT, name))
                    self._send_markers(name, entry, following)

            self._change(name, entry, following, changed)

        if version >= EPOCH_BUMPS and known.is_exhausted:
            self._allocate(name, entry, write, lambda error: ended(error, None))
        else:
            write(None)

    # -- markers --------------------------------------------------------------------------

    def _send_markers(self, name: str, entry: Entry, known: Transaction) -> None:
        entry.pending = True
        entry.left = set(known.partitions)
        if not entry.left:
            self._complete(name, entry)
            return
        self._outbox.emit(
            SendMarkers(
                name,
                ProducerIdentity(known.producer_id, known.epoch),
                known.state is TransactionState.PREPARE_COMMIT,
                known.partitions,
                known.client_version,
            )
        )

    def markers_written(self, name: str, done: frozenset[TopicPartition], now_ms: int) -> None:
        """Note the partitions that have their marker, or need none because they were deleted."""
        self._now_ms = now_ms
        entry = self._entries.get(name)
        if entry is None or not entry.left:
            return
        entry.left -= done
        if not entry.left:
            self._complete(name, entry)

    def _complete(self, name: str, entry: Entry) -> None:
        """Write that the transaction is complete, until it is in the log."""
        known = entry.current
        assert known is not None, "markers belong to an outcome"

        def changed(error: ErrorCode) -> None:
            self.unwritten.discard(name)
            # NOT_COORDINATOR alone does not mean that the shard is unloaded: without a lease this
            # broker may not append for a moment.
            if error is ErrorCode.NONE or self._unloaded:
                return
            self.unwritten.add(name)
            entry.pending = True
            self._timers.arm(Timer(TimerKind.COMPLETE, name), self._now_ms + RETRY_MS)

        self._change(name, entry, completed(known, self._wall_ms()), changed)

    # -- timers ---------------------------------------------------------------------------

    def on_timer(self, timer: Timer) -> None:
        if timer.kind is TimerKind.EXPIRE:
            self._expire_some()
            return
        name = timer.transactional_id
        entry = self._entries.get(name)
        if entry is None or entry.current is None:
            return
        if timer.kind is TimerKind.COMPLETE:
            self._complete(name, entry)
        elif entry.current.state is TransactionState.ONGOING:
            self._time_out(name, entry)

    def _abort_at(self, name: str, at_ms: int) -> None:
        """Check at the end of an interval whether the transaction is still open."""
        interval = self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        intervals = -(-(at_ms - self._base_ms) // interval)
        self._timers.arm(Timer(TimerKind.ABORT, name), self._base_ms + intervals * interval)

    def _time_out(self, name: str, entry: Entry) -> None:
        """Abort a transaction that is open for too long, or try again later."""

        def ended(error: ErrorCode, _following: Transaction | None) -> None:
            if error is not ErrorCode.NONE:
                self._abort_at(name, self._now_ms + 1)

        if entry.pending:
            self._abort_at(name, self._now_ms + 1)
        else:
            self._fence(name, entry, Outcome.TIMED_OUT, ended)

    # -- expiration -----------------------------------------------------------------------

    def _expire_at(self, at_ms: int) -> None:
        self._timers.arm(Timer(TimerKind.EXPIRE), at_ms)

    def _expire_some(self) -> None:
        """Delete a few of the transactional ids that have expired, and the rest in later calls."""
        if not self._to_expire:
            self._to_expire = list(self._entries)
        oldest_ms = (
            self._wall.earliest_ms(self._now_ms) - self._config.transactional_id_expiration_ms
        )
        expired: list[tuple[str, Entry]] = []
        left, room = IDS_AT_ONCE, TOMBSTONE_BYTES_MAX
        while self._to_expire and left > 0 and room > 0:
            name = self._to_expire.pop()
            entry = self._entries.get(name)
            left -= 1
            if entry is None or entry.pending or entry.current is None:
                continue
            if entry.current.state.is_idle and entry.current.updated_ms <= oldest_ms:
                expired.append((name, entry))
                room -= len(name)
        if expired:
            self._delete(expired)
        pause_ms = _PAUSE_MS if self._to_expire else max(self._expire_interval_ms, _PAUSE_MS)
        self._expire_at(self._now_ms + pause_ms)

    def _delete(self, expired: list[tuple[str, Entry]]) -> None:
        for _, entry in expired:
            entry.pending = True

        def written(error: ErrorCode, _now_ms: int) -> None:
            for name, entry in expired:
                entry.pending = False
                if error is ErrorCode.NONE:
                    self._entries.pop(name, None)

        self._outbox.append([(encode_key(name), None) for name, _ in expired], written)

    # -- descriptions ---------------------------------------------------------------------

    def _describe(self, requester: object, request: on.DescribeTransaction) -> None:
        name = request.transactional_id
        entry = self._entries.get(name)
        known = None if entry is None else entry.current
        if entry is None or known is None:
            self._outbox.answer(requester, refused(request, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND))
            return
        partitions = entry.left if known.state.is_prepared else known.partitions
        self._outbox.answer(
            requester,
            on.DescribeTransactionResponse(
                ErrorCode.NONE,
                name,
                known.state.label,
                known.timeout_ms,
                known.start_ms,
                known.producer_id,
                known.epoch,
                tuple(sorted(partitions)),
            ),
        )

    # -- changes --------------------------------------------------------------------------

    def _wall_ms(self) -> int:
        """The time for records: never behind the confirmed clock, so ids do not expire early."""
        return self._wall.latest_ms(self._now_ms)

    def _change(
        self, name: str, entry: Entry, following: Transaction, on_changed: OnChanged
    ) -> None:
        """Write the next state of an id. It counts when it is committed.

        If the outcome of the append is unknown, the id keeps its state: each record holds the whole
        state, so a later one replaces the one in doubt, here and after a failover.
        """
        entry.pending = True

        def written(error: ErrorCode, _now_ms: int) -> None:
            entry.pending = False
            if error is ErrorCode.NONE:
                entry.current = following
            elif entry.current is None:
                self._entries.pop(name, None)
            on_changed(error_of_append(error))

        value = encode_value(following, self._cluster_version())
        self._outbox.append([(encode_key(name), value)], written)

    def _allocate(
        self,
        name: str,
        entry: Entry,
        on_allocated: Callable[[int], None],
        on_failed: OnChanged,
    ) -> None:
        """Get a producer id for a change of an entry."""
        entry.pending = True
        token = self._next_allocation
        self._next_allocation += 1

        def failed(error: ErrorCode) -> None:
            entry.pending = False
            if entry.current is None:
                self._entries.pop(name, None)
            on_failed(error)

        def allocated(error: ErrorCode, producer_id: int) -> None:
            if error is not ErrorCode.NONE:
                failed(error)
                return
            entry.pending = False
            on_allocated(producer_id)

        self._allocations[token] = (allocated, failed)
        self._outbox.emit(AllocateProducerId(token))

    def producer_id_allocated(
        self, token: int, error: ErrorCode, producer_id: int, now_ms: int
    ) -> None:
        """Continue with a producer id. Ignore a token from before the shard was unloaded."""
        self._now_ms = now_ms
        waiting = self._allocations.pop(token, None)
        if waiting is not None:
            waiting[0](error, producer_id)


def _retry_later(error: ErrorCode) -> ErrorCode:
    return ErrorCode.CONCURRENT_TRANSACTIONS if error is ErrorCode.NONE else error


def _passes(name: str, known: Transaction, request: on.ListTransactions, wall_ms: int) -> bool:
    if request.producer_ids and known.producer_id not in request.producer_ids:
        return False
    if (request.states or request.unknown_states) and known.state not in request.states:
        return False
    if request.longer_than_ms >= 0 and wall_ms - known.start_ms <= request.longer_than_ms:
        return False
    return request.matches is None or request.matches(name)
