"""Events: everything that can happen to a broker. `now_ms` is monotonic.

The requests of a broker to its host are in effects.py.
"""

from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

from tidelog.core.controller.metadata.metadata_store import (
    Batch,
    SessionId,
    Snapshot,
    TxnAnswer,
    Unavailable,
)
from tidelog.core.slotted import slotted
from tidelog.core.storage.cleaning.plan import CleaningMessage
from tidelog.core.types import BrokerEpoch, BrokerId

Peer: TypeAlias = Hashable
"""The sender of a request, which gets the response. Only the host interprets it."""
RequestHandler: TypeAlias = Callable[[Peer, int, Any], None]
"""Serves requests of one type; called with the peer, the correlation and the request."""


@slotted
class Started:
    """The process has started and its logs are recovered."""

    now_ms: int


@slotted
class RequestReceived:
    """A request of a client or another broker (messages.py, controller/events.py)."""

    peer: Peer
    correlation: int
    request: object
    now_ms: int


@slotted
class ResponseReceived:
    """The response to a Send."""

    correlation: int
    response: object
    now_ms: int


@slotted
class RequestFailed:
    """The connection of a Send was closed: no response will arrive."""

    correlation: int
    now_ms: int


@slotted
class SessionOpened:
    """A store session is open, valid until `deadline_ms` unless renewed."""

    session: SessionId
    deadline_ms: int
    now_ms: int


@slotted
class SessionRenewed:
    """The host renewed the session. The deadline counts from before the renewal was sent."""

    deadline_ms: int
    now_ms: int


@slotted
class SessionLost:
    """The session ended or could not be opened: keys written with it are deleted."""

    now_ms: int


@slotted
class StoreRead:
    """The result of ReadStore."""

    answer: Snapshot | Unavailable
    now_ms: int


@slotted
class StoreChanged:
    """The watch reported the changes of one revision."""

    batch: Batch
    now_ms: int


@slotted
class WatchLost:
    """The watch was closed or fell behind compaction: a new snapshot is needed."""

    now_ms: int


@slotted
class TransactionAnswered:
    """The outcome of a StoreTransaction."""

    tag: int
    answer: TxnAnswer
    now_ms: int


@slotted
class FlushCompleted:
    """The files of a Flush are on stable storage; if not, `error` is the reason."""

    flush: int
    error: str | None
    now_ms: int


@slotted
class LogCleaned:
    """Progress of a CleanLog: a group of segments is ready, the cleaning ended, or it failed for
    the reason in the text."""

    cleaning: int
    message: CleaningMessage
    now_ms: int


@slotted
class BrokerDied:
    """Proof of the host that a broker's process died (the kernel released its lock)."""

    broker: BrokerId
    broker_epoch: BrokerEpoch
    now_ms: int


@slotted
class Ticked:
    """`next_deadline_ms` was reached."""

    now_ms: int


@slotted
class WallClockRead:
    """A reading of the wall clock, which may be wrong. The host reads the clock every second. It
    sends this event if the clock was set, and always while `Node.clock.doubt_ms` is not 0."""

    wall_ms: int
    now_ms: int


@slotted
class ShutdownRequested:
    """Move leadership to other brokers, then stop."""

    now_ms: int


Event: TypeAlias = (
    Started
    | RequestReceived
    | ResponseReceived
    | RequestFailed
    | SessionOpened
    | SessionRenewed
    | SessionLost
    | StoreRead
    | StoreChanged
    | WatchLost
    | TransactionAnswered
    | FlushCompleted
    | LogCleaned
    | BrokerDied
    | Ticked
    | WallClockRead
    | ShutdownRequested
)
