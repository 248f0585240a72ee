"""Everything that can happen to a broker. `now_ms` is monotonic: it never goes back.

What a broker asks for in return is in effects.py.
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
"""Who sent a request, and gets the response; only the host knows what it means."""
RequestHandler: TypeAlias = Callable[[Peer, int, Any], None]
"""Serves requests of one type; called with the peer, the correlation and the request."""


@slotted
class Started:
    """The process is up, its logs are recovered."""

    now_ms: int


@slotted
class RequestReceived:
    """A client or another broker asks something (messages.py, controller/events.py)."""

    peer: Peer
    correlation: int
    request: object
    now_ms: int


@slotted
class ResponseReceived:
    """The answer to a Send."""

    correlation: int
    response: object
    now_ms: int


@slotted
class RequestFailed:
    """The connection that a Send went over is gone: no answer will come."""

    correlation: int
    now_ms: int


@slotted
class SessionOpened:
    """The store gave a session, good until `deadline_ms` unless renewed."""

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
    """The session ended, or could not be opened: nothing written with it exists any more."""

    now_ms: int


@slotted
class StoreRead:
    """The answer to ReadStore."""

    answer: Snapshot | Unavailable
    now_ms: int


@slotted
class StoreChanged:
    """The watch brought one revision."""

    batch: Batch
    now_ms: int


@slotted
class WatchLost:
    """The watch was cut or fell behind compaction: only a new snapshot helps."""

    now_ms: int


@slotted
class TransactionAnswered:
    """What became of a StoreTransaction."""

    tag: int
    answer: TxnAnswer
    now_ms: int


@slotted
class FlushCompleted:
    """The files of a Flush are on stable storage; or not, and `error` says why."""

    flush: int
    error: str | None
    now_ms: int


@slotted
class LogCleaned:
    """What came of a CleanLog so far: a group is ready to be put in place, or it is done, or it
    can't be done, and the text says why."""

    cleaning: int
    told: CleaningMessage
    now_ms: int


@slotted
class BrokerDied:
    """Proof that a broker's process is gone, from the host (a lock that the kernel freed)."""

    broker: BrokerId
    broker_epoch: BrokerEpoch
    now_ms: int


@slotted
class Ticked:
    """Time passed: `next_deadline_ms` was reached."""

    now_ms: int


@slotted
class WallClockRead:
    """A reading of the wall clock, which may be wrong. The host reads the clock every second. It
    sends this event if the clock was set, and always while `Node.clock.doubt_ms` is not 0."""

    wall_ms: int
    now_ms: int


@slotted
class ShutdownRequested:
    """Hand over what this broker leads, then stop."""

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
