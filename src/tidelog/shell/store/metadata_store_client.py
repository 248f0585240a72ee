"""What a broker's host asks of a metadata store, whichever it is: SQLite today, etcd beside it.

No call blocks. Each is answered once, later, on the host's own thread; a store that can't be
reached answers Unavailable in time. The values are core's
(`core/controller/metadata/metadata_store.py`), and so is the meaning of each.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from tidelog.core.controller.metadata.metadata_store import (
    Batch,
    Guard,
    Operation,
    Revision,
    SessionExpired,
    SessionId,
    Snapshot,
    TxnAnswer,
    Unavailable,
)


class SessionGrant(NamedTuple):
    """A new session, good until `sent_ms` + its time to live unless renewed."""

    session: SessionId
    sent_ms: int
    """The host's clock before the question was sent, so the store can't be earlier."""


class Renewed(NamedTuple):
    """The session is good until `sent_ms` + its time to live."""

    sent_ms: int


Opened: TypeAlias = Callable[[SessionGrant | Unavailable], None]
RenewalAnswered: TypeAlias = Callable[[Renewed | SessionExpired | Unavailable], None]
ReadAnswered: TypeAlias = Callable[[Snapshot | Unavailable], None]
Transacted: TypeAlias = Callable[[TxnAnswer], None]


class MetadataStoreClient(Protocol):
    """One broker's line to the store."""

    def open_session(self, ttl_ms: int, answered: Opened) -> None:
        """Open a session. An earlier one of this broker ends, with its keys."""

    def renew_session(self, session: SessionId, answered: RenewalAnswered) -> None:
        """Start the session's time anew."""

    def close_session(self, session: SessionId, done: Callable[[], None] | None = None) -> None:
        """End the session and its keys. `done` also comes when the store can't be reached."""

    def read(self, earlier: Revision, answered: ReadAnswered) -> None:
        """A snapshot of all keys, with the checksum of the store's history at `earlier`."""

    def watch(
        self, after: Revision, changed: Callable[[Batch], None], lost: Callable[[], None]
    ) -> None:
        """Every revision after this one, in order, once. Replaces an earlier watch.

        `lost`: the revisions in between are forgotten; read, and watch from there.
        """

    def transact(
        self, guards: tuple[Guard, ...], ops: tuple[Operation, ...], answered: Transacted
    ) -> None:
        """All operations at one revision if every guard holds."""

    def close(self) -> None:
        """Stop. What is still unanswered is answered; later calls are Unavailable."""
