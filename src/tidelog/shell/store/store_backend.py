"""The types that every kind of metadata store shares: its interface, its errors, its identity.

A store is a class with the methods of `StoreBackend` and a row in `open_store._BACKENDS`. Its
client has the methods of `MetadataStoreClient` (metadata_store_client.py) and of `DeathProbe`
(proof_of_death.py).
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:  # `tidelog up` imports this module for its errors only
    from tidelog.shell.store.metadata_store_client import MetadataStoreClient
    from tidelog.shell.store.proof_of_death import DeathProbe, ProofOfDeath

IDENTITY_KEY = "meta/cluster"
"""The key that holds the cluster's identity, in the encoding of `new_identity`."""


class StoreError(Exception):
    """The store can't be used. The text is one line."""


class NotAStore(StoreError):
    """The URL leads to something that is not a metadata store."""


class StoreTooNew(StoreError):
    """A newer Tidelog wrote the store."""


class StoreMissing(StoreError):
    """The store is missing, but data of its cluster exists."""


class StoreUnusable(StoreError):
    """The store can't be read, written or created."""


class StoreDamaged(StoreError):
    """Part of the store does not match its checksums."""


class ClusterIdentity(NamedTuple):
    """The cluster's id, and the secret that only its brokers know."""

    cluster_id: str
    secret: str
    """Empty if the store does not contain it (`cluster_secret.py`)."""
    secret_check: str = ""


def new_identity(cluster_id: str | None = None) -> bytes:
    """Encode a cluster's identity with a new secret, and with a new id unless one is given."""
    import json
    from binascii import b2a_base64

    name = cluster_id or "-"
    while name.startswith("-"):  # would look like an option on a command line
        name = b2a_base64(os.urandom(16), newline=False).decode().rstrip("=")
        name = name.replace("+", "-").replace("/", "_")
    return json.dumps({"cluster_id": name, "secret": os.urandom(32).hex()}).encode()


def parse_identity(value: bytes) -> ClusterIdentity:
    """Decode the value of `IDENTITY_KEY`."""
    import json

    fields = json.loads(value)
    secret, check = fields.get("secret", ""), fields.get("secret_check", "")
    return ClusterIdentity(fields["cluster_id"], secret, check)


class StoreAccess(NamedTuple):
    """How to log in to a store that is a server, and where the cluster's secret is."""

    user: str = ""
    password_file: str = ""
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    allow_plaintext: bool = False
    """Whether a server on another machine may be reached without TLS."""
    secret_file: str = ""
    """The file with the cluster's secret; empty: the store contains it."""


NO_ACCESS = StoreAccess()


def is_etcd(place: str) -> bool:
    """Whether the place of a store is a URL of etcd; else it is the path of a file."""
    return place.startswith(("etcd:", "etcds:"))


class BrokerSide(NamedTuple):
    """The parts of a broker that a store's client uses."""

    proof: "ProofOfDeath"
    now_ms: Callable[[], int]
    deliver: Callable[[Callable[[], None]], None]
    """Runs a callback on the broker's main thread."""
    session_timeout_ms: int
    report: Callable[[str], None]
    """Logs a warning; called on the broker's main thread."""


class OpenedStore(NamedTuple):
    """One broker's access to the store."""

    client: "MetadataStoreClient"
    deaths: "DeathProbe"


class StoreBackend(Protocol):
    """A metadata store at one URL."""

    @property
    def place(self) -> str:
        """Where the store is, for messages."""
        ...

    @property
    def files(self) -> tuple[str, ...]:
        """The store's files on this machine, which only the brokers' user may open."""
        ...

    def prepare(self, cluster_id: str | None) -> ClusterIdentity:
        """Create the store if it is missing, else check it; return the cluster's identity.

        `cluster_id`: the cluster whose data the broker holds; None for a broker without data.
        Raises StoreMissing if the store is missing although such data exists, else a StoreError.
        """
        ...

    def open(self, broker: BrokerSide) -> OpenedStore:
        """Connect a broker to the store, which must be prepared."""
        ...
