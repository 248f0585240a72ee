"""Open a metadata store by its URL: the scheme selects the kind of store.

    sqlite:PATH                  one file, for brokers of one machine
    etcd://HOST:PORT,.../PREFIX  planned, for brokers of several machines

A new kind of store is a class with the methods of `StoreBackend` and a row in `_BACKENDS`.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from tidelog.shell.store import cluster_file
from tidelog.shell.store.cluster_file import ClusterIdentity, StoreError
from tidelog.shell.store.metadata_store_client import MetadataStoreClient
from tidelog.shell.store.proof_of_death import DeathProbe, ProofOfDeath

SETTING = "tidelog.metadata.store"


class BrokerSide(NamedTuple):
    """What a store's client needs of its broker."""

    proof: ProofOfDeath
    now_ms: Callable[[], int]
    deliver: Callable[[Callable[[], None]], None]
    """Runs a callback on the broker's main thread."""
    session_timeout_ms: int
    report: Callable[[str], None]
    """Logs a warning; called on the broker's main thread."""


class OpenedStore(NamedTuple):
    """One broker's access to the store."""

    client: MetadataStoreClient
    deaths: DeathProbe


class StoreBackend(Protocol):
    """A metadata store that a URL names."""

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

        `cluster_id`: the cluster whose data the broker holds. A store that is missing although
        data of its cluster exists is refused. Raises StoreError.
        """
        ...

    def open(self, broker: BrokerSide) -> OpenedStore:
        """Connect a broker to the store, which must be prepared."""
        ...


class SqliteBackend:
    """One SQLite file."""

    def __init__(self, path: str) -> None:
        self.place = path
        self.files = (path,)

    def prepare(self, cluster_id: str | None) -> ClusterIdentity:
        return cluster_file.prepare(self.place, cluster_id)

    def open(self, broker: BrokerSide) -> OpenedStore:
        from tidelog.shell.store.sqlite_store_client import SqliteStoreClient

        client = SqliteStoreClient(
            self.place,
            broker.proof,
            broker.now_ms,
            broker.deliver,
            stuck_after_ms=broker.session_timeout_ms,
            report=broker.report,
        )
        return OpenedStore(client, client)


_BACKENDS: dict[str, Callable[[str], StoreBackend]] = {"sqlite": SqliteBackend}
_PLANNED = {
    "etcd": "is not supported yet; all brokers of a cluster must run on one machine",
    "memory": "exists in the simulator only, because brokers must find their metadata again",
}


def store_at(url: str) -> StoreBackend:
    """The store that a URL names. Raises StoreError for an unknown or unsupported scheme."""
    scheme, colon, place = url.partition(":")
    backend = _BACKENDS.get(scheme)
    if not colon or not place:
        raise StoreError(f"{SETTING}={url} is not a store URL; use sqlite:PATH")
    if backend is None:
        why = _PLANNED.get(scheme, "is unknown")
        raise StoreError(f"{SETTING}={url}: the scheme {scheme}: {why}; use sqlite:PATH")
    return backend(place)
