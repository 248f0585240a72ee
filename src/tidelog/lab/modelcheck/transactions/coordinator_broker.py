"""The transaction coordinator, run by the broker's own code.

The shard of the transactional id and the sender of its markers are the shipped classes. The checker
supplies their environment: the log of `__transaction_state`, the clock, and the network. While an
append waits, the state is the one before it and the events since: they are repeated to restore it.
"""

from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias, cast

from tidelog.core.coordinator.shard import Answer, Append
from tidelog.core.errors import ErrorCode
from tidelog.core.node.calls import Calls
from tidelog.core.node.coordinating.coordinator_host import CoordinatorHost
from tidelog.core.node.coordinating.marker_sender import MarkerSender
from tidelog.core.node.coordinating.transaction_coordinator import request_of
from tidelog.core.node.effects import Send
from tidelog.core.node.messages import TxnPartitions, WriteTxnMarkersResponse
from tidelog.core.node.turn import Turn
from tidelog.core.transactions import messages as on
from tidelog.core.transactions.config import TransactionConfig
from tidelog.core.transactions.records import decode_value, encode_key, encode_value
from tidelog.core.transactions.shard import (
    AllocateProducerId,
    Entry,
    SendMarkers,
    TransactionShard,
)
from tidelog.core.transactions.transaction import (
    EPOCH_BUMPS,
    NO_EPOCH,
    NO_TIME,
    ProducerIdentity,
    Transaction,
    TransactionState,
)
from tidelog.core.types import TopicPartition
from tidelog.lab.modelcheck.transactions.messages import (
    MARKER,
    NOW_MS,
    PARTITIONS,
    TRANSACTIONAL_ID,
    Add,
    End,
    Init,
    Marker,
    Message,
    Question,
    Requester,
)

TRANSACTION_TIMEOUT_MS = 60_000
LATER_MS = 10 * TRANSACTION_TIMEOUT_MS
"""When each transaction that is open now has timed out."""
NEVER_MS = 1 << 50
FIRST_PRODUCER_ID = 7

Stored: TypeAlias = tuple[Any, ...]
"""The fields of a `Transaction` without its times; empty if there is none."""
Event: TypeAlias = tuple[Any, ...]
REQUEST, COMMITTED, TIMED_OUT, MARKED, LOADED = range(5)


class Base(NamedTuple):
    """A coordinator without pending appends."""

    current: Stored = ()
    pending: int = 0
    left: tuple[int, ...] = ()
    """The partitions without a marker."""
    armed: int = 0
    """Whether the time-out of the transaction is set."""


class Frozen(NamedTuple):
    """The coordinator as a part of the checker's states."""

    epoch: int = 0
    stored: Stored = ()
    """The last record in the log that is committed."""
    base: Base = Base()
    events: tuple[Event, ...] = ()
    """The events since `base`, while an append waits."""
    markers: tuple[Marker, ...] = ()
    """The markers in flight to their partitions."""


def stored(known: Transaction | None) -> Stored:
    """Return a state as a tuple, without times: no decision within the bounds depends on them."""
    if known is None:
        return ()
    indices = tuple(sorted(name.partition for name in known.partitions))
    began = NO_TIME if known.start_ms == NO_TIME else NOW_MS
    return (
        *known[:3], int(known.state), indices, began, NOW_MS, *known[7:]
    )  # fmt: skip


def transaction(fields: Stored) -> Transaction:
    """Return the state of a tuple."""
    producer_id, epoch, timeout_ms, state, indices, *rest = fields
    partitions = frozenset(PARTITIONS[index] for index in indices)
    return Transaction(producer_id, epoch, timeout_ms, TransactionState(state), partitions, *rest)


def loaded(frozen: Frozen, record: Stored, version: int) -> Frozen:
    """Return the successor of a coordinator, which has loaded this last record of the log."""
    successor = CoordinatorBroker(Frozen(frozen.epoch + 1), version, adds=False)
    successor.load(record)
    return successor.freeze()


def question_of(requester: Requester, question: Question) -> TxnPartitions:
    """Return the transaction in a partition leader's AddPartitionsToTxn request."""
    index, producer_id, epoch, _ = requester
    names = (PARTITIONS[index],)
    return TxnPartitions(TRANSACTIONAL_ID, producer_id, epoch, bool(question.verify_only), names)


class CoordinatorBroker:
    """The parts of a broker that serve one transactional id."""

    def __init__(self, frozen: Frozen, version: int, *, adds: bool) -> None:
        """Restore a coordinator; `version` is the cluster's level of `transaction.version`, and
        `adds` whether its clients use version 2."""
        self._client_version = EPOCH_BUMPS if adds else 0
        self.answers: list[tuple[Requester, Any]] = []
        """Requesters and their responses."""
        self._epoch = frozen.epoch
        self._stored = frozen.stored
        self._base = frozen.base
        """The state before the events."""
        self._events: list[Event] = []
        self._appends: list[Append] = []
        self._shard = TransactionShard(
            TransactionConfig(
                transaction_remove_expired_transaction_cleanup_interval_ms=NEVER_MS,
            ),
            NOW_MS,
            transaction_version=lambda: version,
        )
        self._turn = Turn(NOW_MS)
        self._calls = Calls(self._turn)
        self._sent: dict[Marker, int] = {}
        """Markers that have no response, with the correlation ids of their requests."""
        self._hosted: Any = SimpleNamespace(leader_epoch=frozen.epoch, is_current=True)
        self._sender = MarkerSender(self._host(), cast(Any, self._written))
        self._restore(frozen)

    def _host(self) -> CoordinatorHost:
        image = SimpleNamespace(
            revision=0, partition=lambda _, partition: SimpleNamespace(leader=1 + partition)
        )
        parts: Any = dict.fromkeys(CoordinatorHost._fields, None)
        parts |= {
            "config": SimpleNamespace(broker_id=0, request_timeout_ms=NEVER_MS),
            "turn": self._turn,
            "calls": self._calls,
            "image": image,
        }
        return CoordinatorHost(**parts)

    # -- restoring

    def _restore(self, frozen: Frozen) -> None:
        base, shard = frozen.base, self._shard
        if base.current:
            entry = shard.entries[TRANSACTIONAL_ID] = Entry(transaction(base.current))
            if base.armed:
                shard.loaded(NOW_MS)
            entry.pending = bool(base.pending)
            entry.left = {PARTITIONS[index] for index in base.left}
            shard.take()
        for event in frozen.events:
            self._apply(event)
            self._carry_out(repeated=True)
            self._events.append(event)
        self.answers.clear()
        for marker in frozen.markers:
            self._hosted.leader_epoch = marker.coordinator_epoch
            name = PARTITIONS[marker.partition]
            identity = ProducerIdentity(marker.producer_id, marker.epoch)
            partitions = frozenset({name})
            effect = SendMarkers(
                TRANSACTIONAL_ID, identity, bool(marker.commits), partitions, marker.version
            )
            self._sender.send(self._hosted, effect)
            self._flush()

    def load(self, record: Stored) -> None:
        """Load the log, and begin to serve."""
        self._stored = record
        self._apply_event((LOADED, record))

    # -- events

    def handle(self, requester: Requester, message: Message | Question) -> None:
        self._apply_event((REQUEST, requester, message))

    def commit(self) -> None:
        """Commit the oldest append."""
        [(_, value)] = self._appends[0].records
        assert value is not None, "nothing expires"
        self._stored = stored(decode_value(value))
        self._apply_event((COMMITTED,))

    def time_out(self) -> None:
        """Abort the transaction, which is open for too long."""
        self._apply_event((TIMED_OUT,))

    def marker_answered(self, marker: Marker, error: ErrorCode) -> None:
        """Handle the response of a partition leader to a marker."""
        results = {PARTITIONS[marker.partition]: error}
        response = WriteTxnMarkersResponse(((marker.producer_id, results),))
        self._calls.answer(self._sent.pop(marker), response)
        self._turn.now_ms += NEVER_MS // 2  # send failed markers again
        self._sender.tick()
        self._flush()
        self._carry_out()

    def _written(self, _hosted: object, _name: str, done: frozenset[TopicPartition]) -> None:
        indices = tuple(sorted(name.partition for name in done))
        self._apply_event((MARKED, indices))

    def _apply_event(self, event: Event) -> None:
        """Apply an event, and keep it if its effect waits for an append."""
        before = self._current_base()
        if not self._appends:
            self._base = before
        self._apply(event)
        appended = self._carry_out()
        if not self._appends:
            self._events.clear()
        elif appended or self._current_base() != before:
            self._events.append(event)

    def _apply(self, event: Event) -> None:
        match event:
            case (kind, requester, message) if kind == REQUEST:
                self._shard.handle(requester, self._request(requester, message), NOW_MS)
            case (kind,) if kind == COMMITTED:
                self._shard.written(self._appends.pop(0).token, ErrorCode.NONE, NOW_MS)
            case (kind, record) if kind == LOADED:
                value = encode_value(transaction(record))
                self._shard.replay(encode_key(TRANSACTIONAL_ID), value)
                self._shard.loaded(NOW_MS)
            case (_, indices):
                done = frozenset(PARTITIONS[index] for index in indices)
                self._shard.markers_written(TRANSACTIONAL_ID, done, NOW_MS)
            case _:
                self._shard.tick(LATER_MS)

    def _request(self, requester: Requester, message: Message | Question) -> on.TransactionRequest:
        """Return a message as the shard's request."""
        if isinstance(message, Question):
            return request_of(question_of(requester, message))
        identity = ProducerIdentity(message.producer_id, message.epoch)
        match message:
            case Init():
                expected = None if message.epoch == NO_EPOCH else identity
                return on.InitTransactionalId(TRANSACTIONAL_ID, TRANSACTION_TIMEOUT_MS, expected)
            case Add():
                partitions = frozenset({PARTITIONS[message.partition]})
                return on.AddPartitions(TRANSACTIONAL_ID, identity, partitions)
            case End():
                ends = bool(message.commits), self._client_version
                return on.EndTransaction(TRANSACTIONAL_ID, identity, *ends)
            case _:
                raise TypeError(f"the coordinator does not serve {message}")

    def _carry_out(self, *, repeated: bool = False) -> bool:
        """Carry out the effects of the shard. Return whether there is a new append."""
        appended = False
        while effects := self._shard.take():
            for effect in effects:
                match effect:
                    case Answer(requester, response):
                        self.answers.append((cast(Requester, requester), response))
                    case Append():
                        self._appends.append(effect)
                        appended = True
                    case SendMarkers() if not repeated:
                        self._sender.send(self._hosted, effect)
                        self._flush()
                    case AllocateProducerId():
                        new_id = self._next_producer_id()
                        none = ErrorCode.NONE
                        self._shard.producer_id_allocated(effect.token, none, new_id, NOW_MS)
                    case _:
                        pass
        return appended

    def _next_producer_id(self) -> int:
        entry = self._shard.entries.get(TRANSACTIONAL_ID)
        known = None if entry is None else entry.current
        return FIRST_PRODUCER_ID if known is None else known.producer_id + 1

    def _flush(self) -> None:
        """Send the markers, and note them."""
        self._sender.flush()
        for effect in self._turn.take():
            if isinstance(effect, Send):
                [sent] = cast(Any, effect.request).markers
                [name] = sent.partitions
                marker = Marker(
                    MARKER,
                    sent.producer_id,
                    sent.producer_epoch,
                    name.partition,
                    int(sent.committed),
                    sent.coordinator_epoch,
                    sent.transaction_version,
                )
                self._sent[marker] = effect.correlation

    # -- state

    def _current_base(self) -> Base:
        entry = self._shard.entries.get(TRANSACTIONAL_ID)
        if entry is None:
            return Base()
        due_ms = self._shard.next_ms()
        armed = due_ms is not None and due_ms < NEVER_MS
        left = tuple(sorted(name.partition for name in entry.left))
        return Base(stored(entry.current), int(entry.pending), left, int(armed))

    def freeze(self) -> Frozen:
        """Return the state."""
        markers = tuple(sorted(self._sent))
        if self._appends:
            return Frozen(self._epoch, self._stored, self._base, tuple(self._events), markers)
        return Frozen(self._epoch, self._stored, self._current_base(), (), markers)

    @property
    def pending_record(self) -> Stored:
        """The oldest record that is appended and not committed; empty if there is none."""
        if not self._appends:
            return ()
        [(_, value)] = self._appends[0].records
        return () if value is None else stored(decode_value(value))
