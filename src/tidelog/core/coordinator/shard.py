"""The state of one partition of an internal topic: a replicated state machine without I/O.

The input is a request with its requester; the output is responses and records to write. Before
a shard gets its first request, all records of its partition were replayed and are committed.

Invariants: every request gets one response, now or later. A change counts when its records are
committed, not before.
"""

from abc import ABC, abstractmethod
from typing import Any, Generic

from tidelog.core.coordinator.outbox import Outbox
from tidelog.core.coordinator.timers import K, Timers
from tidelog.core.errors import ErrorCode


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
