"""Open a metadata store by its URL: the scheme selects the kind of store.

    sqlite:PATH                  one file, for brokers of one machine
    etcd://HOST:PORT,.../PREFIX  keys in an etcd cluster, for brokers of several machines
    etcds://...                  the same over TLS

A new kind of store is a class with the methods of `StoreBackend` and a row in `_BACKENDS`. A
backend imports its client when it is used, so that a broker loads only the store that it uses.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.shell.store.store_backend import (
    NO_ACCESS,
    BrokerSide,
    ClusterIdentity,
    OpenedStore,
    StoreAccess,
    StoreBackend,
    StoreError,
)

if TYPE_CHECKING:
    from tidelog.core.settings.broker_settings import BrokerSettings

SETTING = "tidelog.metadata.store"


class SqliteBackend:
    """One SQLite file."""

    def __init__(self, path: str, access: StoreAccess) -> None:
        self.place = path
        self.files = (path,)
        self._secret_file = access.secret_file

    def prepare(self, cluster_id: str | None) -> ClusterIdentity:
        from tidelog.shell.store import cluster_file

        identity = cluster_file.prepare(self.place, cluster_id)
        return _complete(identity, self._secret_file, self.place)

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


class EtcdBackend:
    """A prefix in an etcd cluster."""

    def __init__(self, url: str, access: StoreAccess) -> None:
        from tidelog.shell.store.etcd.address import parse_address

        self._address = parse_address(url, access)
        self.place = self._address.url
        own = (access.password_file, access.key_file, access.secret_file)
        self.files = tuple(path for path in own if path)

    def prepare(self, cluster_id: str | None) -> ClusterIdentity:
        from tidelog.shell.store.etcd.store_setup import prepare

        self._address.check_secret()
        identity = prepare(self._address, cluster_id)
        return _complete(identity, self._address.access.secret_file, self.place)

    def open(self, broker: BrokerSide) -> OpenedStore:
        from tidelog.shell.store.etcd.etcd_store_client import EtcdStoreClient

        client = EtcdStoreClient(
            self._address, broker.proof, broker.now_ms, broker.deliver, report=broker.report
        )
        return OpenedStore(client, client)


_BACKENDS: dict[str, Callable[[str, StoreAccess], StoreBackend]] = {
    "sqlite": lambda url, access: SqliteBackend(url.partition(":")[2], access),
    "etcd": EtcdBackend,
    "etcds": EtcdBackend,
}
_PLANNED = {
    "memory": "works in the simulator only; a broker needs its metadata again after a restart",
}
_FORMS = "use sqlite:PATH or etcd://HOST:PORT,HOST:PORT/PREFIX"


def _complete(identity: ClusterIdentity, secret_file: str, place: str) -> ClusterIdentity:
    if not secret_file and not identity.secret_check:
        return identity
    from tidelog.shell.store.cluster_secret import complete

    return complete(identity, secret_file, place)


def store_at(url: str, access: StoreAccess = NO_ACCESS) -> StoreBackend:
    """The store that a URL names. Raises StoreError for an unknown or unsupported scheme."""
    scheme, colon, place = url.partition(":")
    backend = _BACKENDS.get(scheme)
    if not colon or not place:
        raise StoreError(f"{SETTING}={url} is not a store URL; {_FORMS}")
    if backend is None:
        why = _PLANNED.get(scheme, "is unknown")
        raise StoreError(f"{SETTING}={url}: the scheme {scheme}: {why}; {_FORMS}")
    return backend(url, access)


def store_of(settings: "BrokerSettings") -> StoreBackend:
    """The store that a broker's settings name. Raises StoreError."""
    return store_at(settings.metadata_store, access_of(settings))


def access_of(settings: "BrokerSettings") -> StoreAccess:
    """How a broker logs in to its store."""
    get = settings.get
    return StoreAccess(
        user=get("tidelog.metadata.store.user") or "",
        password_file=get("tidelog.metadata.store.password.file") or "",
        ca_file=get("tidelog.metadata.store.ca.file") or "",
        certificate_file=get("tidelog.metadata.store.certificate.file") or "",
        key_file=get("tidelog.metadata.store.key.file") or "",
        allow_plaintext=get("tidelog.metadata.store.allow.plaintext"),
        secret_file=get("tidelog.cluster.secret.file") or "",
    )
