"""Open a metadata store by its URL: the scheme selects the kind of store.

    sqlite:PATH                  one file, for brokers of one machine
    etcd://HOST:PORT,.../PREFIX  planned, for brokers of several machines

A new kind of store is a class with the methods of `StoreBackend` and a row in `_BACKENDS`. A
backend imports its client when it is used, so that a broker loads only the store that it uses.
"""

from collections.abc import Callable

from tidelog.shell.store.store_backend import (
    BrokerSide,
    ClusterIdentity,
    OpenedStore,
    StoreBackend,
    StoreError,
)

SETTING = "tidelog.metadata.store"


class SqliteBackend:
    """One SQLite file."""

    def __init__(self, path: str) -> None:
        self.place = path
        self.files = (path,)

    def prepare(self, cluster_id: str | None) -> ClusterIdentity:
        from tidelog.shell.store import cluster_file

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
    "memory": "works in the simulator only; a broker needs its metadata again after a restart",
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
