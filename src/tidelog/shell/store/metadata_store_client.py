"""The interface between a broker and its metadata store, for every kind of store.

No call blocks. Each is answered once, later, on the broker's main thread; if the store can't be
reached, the answer is Unavailable. The values are core's
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
    """A new session, valid until `sent_ms` + its time to live unless renewed."""

    session: SessionId
    sent_ms: int
    """The broker's clock before the request was sent: the store's deadline is not earlier."""


class Renewed(NamedTuple):
    """The session is valid until `sent_ms` + its time to live."""

    sent_ms: int


Opened: TypeAlias = Callable[[SessionGrant | Unavailable], None]
RenewalAnswered: TypeAlias = Callable[[Renewed | SessionExpired | Unavailable], None]
ReadAnswered: TypeAlias = Callable[[Snapshot | Unavailable], None]
Transacted: TypeAlias = Callable[[TxnAnswer], None]


class MetadataStoreClient(Protocol):
    """One broker's access to the store."""

    def open_session(self, ttl_ms: int, answered: Opened) -> None:
        """Open a session. An earlier session of this broker ends, and its keys are deleted."""

    def renew_session(self, session: SessionId, answered: RenewalAnswered) -> None:
        """Restart the session's time to live."""

    def close_session(self, session: SessionId, done: Callable[[], None] | None = None) -> None:
        """End the session and its keys. `done` is called even if the store is unavailable."""

    def read(self, earlier: Revision, answered: ReadAnswered) -> None:
        """Read all keys, and the checksum of the store's history at revision `earlier`."""

    def watch(
        self, after: Revision, changed: Callable[[Batch], None], lost: Callable[[], None]
    ) -> None:
        """Watch every revision after this one, in order, once. Replaces an earlier watch.

        `lost`: the store has deleted the revisions in between; read all keys and watch again.
        """

    def transact(
        self, guards: tuple[Guard, ...], ops: tuple[Operation, ...], answered: Transacted
    ) -> None:
        """Apply all operations at one revision if every guard holds."""

    def close(self) -> None:
        """Answer the pending calls, then stop; later calls are Unavailable."""
