"""Effects: everything that a broker requests from its host, to be carried out in order.

Writes to the log directory are not here: the node writes to its Disk itself, and a response in
this list may depend on everything that was written before it.
"""

from typing import TypeAlias

from tidelog.core.controller.effects import StoreTransaction
from tidelog.core.controller.metadata.metadata_store import Revision
from tidelog.core.node.events import Peer
from tidelog.core.slotted import slotted
from tidelog.core.storage.cleaning.plan import CleaningPlan
from tidelog.core.types import BrokerId


@slotted
class Send:
    """Send a request to another broker; its response arrives as ResponseReceived."""

    broker: BrokerId
    correlation: int
    request: object


@slotted
class Respond:
    """Respond to a RequestReceived."""

    peer: Peer
    correlation: int
    response: object


@slotted
class Close:
    """Close the connection to a peer: the only way to report the error of a request without a
    response (acks=0)."""

    peer: Peer


@slotted
class OpenSession:
    """Open a store session and keep renewing it."""

    ttl_ms: int


@slotted
class CloseSession:
    """End the session now; the store deletes all keys that were put with it."""


@slotted
class ReadStore:
    """Read a snapshot of the whole store, with the checksum of its history at `earlier`."""

    earlier: Revision = 0


@slotted
class WatchStore:
    """Report every change after this revision; replaces an earlier watch."""

    after: Revision


@slotted
class Flush:
    """Sync these files, then the entries of these directories."""

    flush: int
    files: tuple[str, ...]
    directories: tuple[str, ...]
    place: int = 0
    """The number of the log directory, in the order of `log.dirs`."""


@slotted
class CleanLog:
    """Run a cleaning outside the node: it may take long. LogCleaned reports each group that is
    ready, then the end; responses given before must be sent first. At most `bytes_per_second` are
    read and written."""

    cleaning: int
    plan: CleaningPlan
    bytes_per_second: float
    place: int = 0
    """The number of the log directory, in the order of `log.dirs`."""


@slotted
class StopCleaning:
    """Stop a cleaning; its result is not used."""

    cleaning: int


@slotted
class Halt:
    """End the process; `clean` is False after an error."""

    reason: str
    clean: bool


Effect: TypeAlias = (
    Send
    | Respond
    | Close
    | OpenSession
    | CloseSession
    | ReadStore
    | WatchStore
    | StoreTransaction
    | Flush
    | CleanLog
    | StopCleaning
    | Halt
)
