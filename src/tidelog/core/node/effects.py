"""Everything a broker can ask of its host, in the order in which it must be done.

What concerns its own log directory is not here: the node writes to its Disk itself, and an
answer in this list may rely on all that was written before it.
"""

from dataclasses import dataclass
from typing import TypeAlias

from tidelog.core.controller.effects import StoreTransaction
from tidelog.core.controller.metadata.metadata_store import Revision
from tidelog.core.node.events import Peer
from tidelog.core.types import BrokerId


@dataclass(slots=True)
class Send:
    """Ask another broker; its answer comes back as ResponseReceived."""

    broker: BrokerId
    correlation: int
    request: object


@dataclass(slots=True)
class Respond:
    """Answer a RequestReceived."""

    peer: Peer
    correlation: int
    response: object


@dataclass(slots=True)
class Close:
    """Close the connection to that peer: the only way to refuse what asks for no answer."""

    peer: Peer


@dataclass(slots=True)
class OpenSession:
    """Open a store session and keep renewing it."""

    ttl_ms: int


@dataclass(slots=True)
class CloseSession:
    """End the session now, and all keys put with it."""


@dataclass(slots=True)
class ReadStore:
    """Take a snapshot of the whole store."""


@dataclass(slots=True)
class WatchStore:
    """Tell every change after this revision; replaces an earlier watch."""

    after: Revision


@dataclass(slots=True)
class Flush:
    """Make these files, then these directories' entries, survive a power failure."""

    flush: int
    files: tuple[str, ...]
    directories: tuple[str, ...]


@dataclass(slots=True)
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
    | Halt
)
