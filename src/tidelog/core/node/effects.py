"""Everything a broker can ask of its host, in the order in which it must be done.

What concerns its own log directory is not here: the node writes to its Disk itself, and an
answer in this list may rely on all that was written before it.
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
    """Ask another broker; its answer comes back as ResponseReceived."""

    broker: BrokerId
    correlation: int
    request: object


@slotted
class Respond:
    """Answer a RequestReceived."""

    peer: Peer
    correlation: int
    response: object


@slotted
class Close:
    """Close the connection to that peer: the only way to refuse what asks for no answer."""

    peer: Peer


@slotted
class OpenSession:
    """Open a store session and keep renewing it."""

    ttl_ms: int


@slotted
class CloseSession:
    """End the session now, and all keys put with it."""


@slotted
class ReadStore:
    """Take a snapshot of the whole store, with the checksum that its history had earlier."""

    earlier: Revision = 0


@slotted
class WatchStore:
    """Tell every change after this revision; replaces an earlier watch."""

    after: Revision


@slotted
class Flush:
    """Make these files, then these directories' entries, survive a power failure."""

    flush: int
    files: tuple[str, ...]
    directories: tuple[str, ...]


@slotted
class CleanLog:
    """Carry out a cleaning, away from the node: it may take long. Each group is told when it is
    ready, then the end (LogCleaned); before that answers that were given must be out. At most
    so many bytes are to be read and written in a second."""

    cleaning: int
    plan: CleaningPlan
    bytes_per_second: float


@slotted
class StopCleaning:
    """End that cleaning, wherever it is: nobody waits for it any more."""

    cleaning: int


@slotted
class Halt:
    """End the process. Not `clean` means that something broke."""

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
