"""The state of one partition of an internal topic: a replicated state machine without I/O.

The input is a request with its requester; the output is responses and records to write. Before a
shard gets its first request, all records of its partition were replayed and are committed.

Invariants: every request gets one response, now or later. A change counts when its records are
committed, not before.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from tidelog.core.errors import ErrorCode

OnWritten: TypeAlias = Callable[[ErrorCode, int], None]
"""Called with the outcome of an append and the time."""


class Answer(NamedTuple):
    """The response to a request of `requester`."""

    requester: object
    response: Any


class TransactionalProducer(NamedTuple):
    """The producer of a transaction that records belong to."""

    id: int
    epoch: int


class Append(NamedTuple):
    """Records to write as one batch to all in-sync replicas. A value of None is a tombstone.

    The runtime calls `CoordinatorShard.written(token, error)` once when the outcome is known.
    """

    token: int
    records: list[tuple[bytes, bytes | None]]
    producer: TransactionalProducer | None = None
    """The producer whose transaction the records belong to, if any."""


class EndMarker(NamedTuple):
    """The end of a producer's transaction."""

    producer: TransactionalProducer
    committed: bool
    coordinator_epoch: int
    """The leader epoch of the transaction coordinator."""
    transaction_version: int = 0
    """From 2 on the marker's epoch must be higher than the one of the producer's records."""


class AppendMarker(NamedTuple):
    """A control batch to write to all in-sync replicas, after the appends before it."""

    token: int
    marker: EndMarker


class Outbox:
    """The effects of a shard in their order, and the callbacks that wait for its appends.

    Invariant: each callback that waits for an append is called once, when the outcome is known.
    Callbacks of successful appends run in the order of the appends, which is their order in the
    log.
    """

    __slots__ = ("_effects", "_next_token", "_waiting")

    def __init__(self) -> None:
        self._effects: list[Any] = []
        self._next_token = 0
        self._waiting: dict[int, list[OnWritten]] = {}

    @property
    def next_token(self) -> int:
        """The token of the next append; tokens only grow."""
        return self._next_token

    def answer(self, requester: object, response: object) -> None:
        """Send a response."""
        self._effects.append(Answer(requester, response))

    def append(
        self,
        records: list[tuple[bytes, bytes | None]],
        on_written: OnWritten,
        producer: TransactionalProducer | None = None,
    ) -> int:
        """Write records as one batch. Return the token of the append."""
        token = self._new_token(on_written)
        self._effects.append(Append(token, records, producer))
        return token

    def append_marker(self, marker: EndMarker, on_written: OnWritten) -> None:
        """Write the control batch that ends a transaction."""
        self._effects.append(AppendMarker(self._new_token(on_written), marker))

    def _new_token(self, on_written: OnWritten) -> int:
        token = self._next_token
        self._next_token += 1
        self._waiting[token] = [on_written]
        return token

    def emit(self, effect: object) -> None:
        """Add an effect that only this coordinator's runtime knows (`carry_out`)."""
        self._effects.append(effect)

    def also_when_written(self, token: int, on_written: OnWritten) -> None:
        """Add a callback to an append that is not written yet."""
        self._waiting[token].append(on_written)

    def written(self, token: int, error: ErrorCode, now_ms: int) -> None:
        """Call the callbacks of an append. Ignore a token from before the shard was unloaded."""
        for on_written in self._waiting.pop(token, ()):
            on_written(error, now_ms)

    def fail_all(self, error: ErrorCode, now_ms: int) -> None:
        """Fail the pending appends: this broker will not learn their outcome."""
        for token in sorted(self._waiting):
            self.written(token, error, now_ms)

    def take(self) -> list[Any]:
        """Remove and return the effects."""
        taken, self._effects = self._effects, []
        return taken


def is_in_doubt(error: ErrorCode) -> bool:
    """Whether records are in the log but may be lost in the next election."""
    return error in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""The error of an append, and the error that a client of any coordinator gets for it."""


K = TypeVar("K", bound=tuple[Any, ...])
"""The key of a timer: an ordered tuple that says what to do and for what."""

_STALE_MIN = 64
"""This many entries of the heap may be out of date, however few timers there are."""


class Timers(Generic[K]):
    """The timers of a shard (sessions, time-outs, clean-ups), at most one for each key.

    Clients send heartbeats all the time, and few sessions end. So setting a timer again costs one
    entry in a dict; the heap is corrected at the old time.

    Invariants: a timer is in the heap at or before the time it is due, and at that time if it is
    the next one. Timers of the same millisecond fire in the order of their keys. The heap holds at
    most about twice as many entries as there are timers.
    """

    __slots__ = ("_due", "_heap", "_queued")

    def __init__(self) -> None:
        self._due: dict[K, int] = {}
        self._queued: dict[K, int] = {}
        self._heap: list[tuple[int, K]] = []

    def arm(self, timer: K, at_ms: int) -> None:
        """Set a timer, or move it to another time."""
        self._due[timer] = at_ms
        queued = self._queued.get(timer)
        if queued is None or at_ms < queued:
            self._queued[timer] = at_ms
            heappush(self._heap, (at_ms, timer))
            if len(self._heap) > 2 * len(self._due) + _STALE_MIN:
                self._rebuild()

    def cancel(self, timer: K) -> None:
        """Remove a timer, if it is set."""
        self._due.pop(timer, None)

    def postpone(self, by_ms: int) -> None:
        """Move all timers."""
        self._due = {timer: at_ms + by_ms for timer, at_ms in self._due.items()}
        self._rebuild()

    @property
    def entries(self) -> int:
        """The size of the heap."""
        return len(self._heap)

    def _rebuild(self) -> None:
        self._queued = dict(self._due)
        self._heap = [(at_ms, timer) for timer, at_ms in self._due.items()]
        heapify(self._heap)

    def next_ms(self) -> int | None:
        """Return when the next timer is due."""
        while self._heap:
            at_ms, timer = self._heap[0]
            due = self._due.get(timer)
            if due == at_ms:
                return at_ms
            heappop(self._heap)
            if self._queued.get(timer) == at_ms:
                del self._queued[timer]
                if due is not None:
                    self.arm(timer, due)
        return None

    def pop_due(self, now_ms: int) -> K | None:
        """Remove and return the next timer, if it is due by now."""
        at_ms = self.next_ms()
        if at_ms is None or at_ms > now_ms:
            return None
        _, timer = heappop(self._heap)
        del self._due[timer]
        self._queued.pop(timer, None)
        return timer


class DamagedRecord(ValueError):
    """A record of an internal topic that does not have the format of its key."""


class CoordinatorShard(ABC, Generic[K]):
    """A state machine with its timers and its outbox. K is the key of its timers."""

    def __init__(self, now_ms: int) -> None:
        self._timers: Timers[K] = Timers()
        self._outbox = Outbox()
        self._now_ms = now_ms

    # -- methods of each coordinator -------------------------------------------------------

    @abstractmethod
    def replay(self, key: bytes, value: bytes | None) -> None:
        """Apply a record of the log, in log order. Raise DamagedRecord if it can't be decoded."""

    def replay_transactional(
        self,
        _producer_id: int,
        _producer_epoch: int,
        key: bytes,
        value: bytes | None,
    ) -> None:
        """Apply a record of a transaction, which a marker commits or aborts later. A coordinator
        without transactional records applies it at once."""
        self.replay(key, value)

    def replay_marker(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        """Apply the marker that ends a producer's transaction."""

    @abstractmethod
    def on_loaded(self) -> None:
        """All records are replayed and committed: set timers, continue interrupted work."""

    @abstractmethod
    def on_unload(self, error: ErrorCode) -> None:
        """Answer every request that waits for something other than an append with this error."""

    @abstractmethod
    def serve(self, requester: object, request: Any) -> None:
        """Answer a request, or write records and answer when they are committed."""

    @abstractmethod
    def on_timer(self, timer: K) -> None:
        """Act on a timer that is due."""

    # -- methods for the runtime -----------------------------------------------------------

    def loaded(self, now_ms: int) -> None:
        """Begin to serve."""
        self._now_ms = now_ms
        self.on_loaded()

    def unload(self, error: ErrorCode) -> None:
        """Fail all pending requests: this broker no longer coordinates these keys."""
        self.on_unload(error)
        self._outbox.fail_all(error, self._now_ms)

    def handle(self, requester: object, request: Any, now_ms: int) -> None:
        """Serve a request. The requester may be any object but None."""
        self._now_ms = now_ms
        self.serve(requester, request)
        self.tick(now_ms)

    def complete_transaction(self, marker: EndMarker, on_written: OnWritten, now_ms: int) -> None:
        """Write the marker of a transaction, and apply it when it is committed.

        If the outcome is unknown, the marker is not applied: the transaction coordinator sends it
        again, and until then the transaction counts as open.
        """
        self._now_ms = now_ms

        def written(error: ErrorCode, now_ms: int) -> None:
            if error is ErrorCode.NONE:
                self.replay_marker(*marker.producer, committed=marker.committed)
            on_written(error, now_ms)

        self._outbox.append_marker(marker, written)
        self.tick(now_ms)

    def written(self, token: int, error: ErrorCode, now_ms: int) -> None:
        """Report the outcome of an append: committed, failed, or unknown (`is_in_doubt`)."""
        self._now_ms = now_ms
        self._outbox.written(token, error, now_ms)
        self.tick(now_ms)

    def tick(self, now_ms: int) -> None:
        """Do everything that is due by now."""
        self._now_ms = now_ms
        while (timer := self._timers.pop_due(now_ms)) is not None:
            self.on_timer(timer)

    def next_ms(self) -> int | None:
        """Return when `tick` has something to do."""
        return self._timers.next_ms()

    def postpone(self, by_ms: int) -> None:
        """Move all timers: this broker was suspended and received no requests for that long."""
        self._timers.postpone(by_ms)

    def take(self) -> list[Any]:
        """Remove and return the effects of the calls before, in order."""
        return self._outbox.take()
