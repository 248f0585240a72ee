"""A store client that waits for its responses, and stores to test it with.

The test's own thread is the host's loop: `until` runs the callbacks that the client delivers.
"""

import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest

from tidelog.core.controller.metadata.metadata_store import (
    KV,
    Batch,
    Compacted,
    Guard,
    Operation,
    Revision,
    SessionExpired,
    SessionId,
    Snapshot,
    TxnAnswer,
    TxnResult,
    Unavailable,
)
from tidelog.shell.clock import boot_ms
from tidelog.shell.store import cluster_file
from tidelog.shell.store.etcd.address import parse_address
from tidelog.shell.store.etcd.etcd_store_client import EtcdStoreClient
from tidelog.shell.store.log_dir_lock import LockProof
from tidelog.shell.store.metadata_store_client import Renewed, SessionGrant
from tidelog.shell.store.sqlite_store_client import SqliteStoreClient
from tidelog.shell.store.store_backend import NO_ACCESS

PATIENCE_S = 120.0
GIVE_UP_S = 1.0
"""As in a broker: a call gives up after a second, also if its thread only got no CPU."""
LONG_TTL_MS = 60_000


class LocalClient:
    """A store's client and the loop that it delivers to. `path`: a file, or a URL of etcd.

    The limits of time are those of calls of SQLite.
    """

    def __init__(
        self,
        path: str,
        lock_path: str = "",
        *,
        stuck_after_ms: int = 9_000,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._deliveries: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.reports: list[str] = []
        proof = LockProof(lock_path)
        self.client: SqliteStoreClient | EtcdStoreClient
        if path.startswith("etcd"):
            address = parse_address(path, NO_ACCESS)
            self.client = EtcdStoreClient(
                address, proof, boot_ms, self._deliveries.put, report=self.reports.append
            )
        else:
            self.client = SqliteStoreClient(
                path,
                proof,
                boot_ms,
                self._deliveries.put,
                stuck_after_ms=stuck_after_ms,
                patience_s=patience_s,
                report=self.reports.append,
            )

    def until(self, done: Callable[[], object], patience_s: float = PATIENCE_S) -> bool:
        """Run deliveries until the condition is true; return whether it became true."""
        give_up = time.monotonic() + patience_s
        while not done():
            left = give_up - time.monotonic()
            try:
                self._deliveries.get(timeout=max(0.0, left))()
            except Empty:
                return bool(done())
        return True

    def transact(
        self, guards: tuple[Guard, ...] = (), ops: tuple[Operation, ...] = ()
    ) -> TxnAnswer:
        answers: list[TxnAnswer] = []
        self.client.transact(guards, ops, answers.append)
        assert self.until(lambda: answers)
        return answers[0]

    def try_open(self, ttl_ms: int = LONG_TTL_MS) -> SessionGrant | Unavailable:
        answers: list[SessionGrant | Unavailable] = []
        self.client.open_session(ttl_ms, answers.append)
        assert self.until(lambda: answers)
        return answers[0]

    def open_session(self, ttl_ms: int = LONG_TTL_MS) -> SessionId:
        give_up = time.monotonic() + PATIENCE_S
        while isinstance(answer := self.try_open(ttl_ms), Unavailable):
            assert time.monotonic() < give_up, self.reports
        return answer.session

    def renew(self, session: SessionId) -> Renewed | SessionExpired | Unavailable:
        answers: list[Renewed | SessionExpired | Unavailable] = []
        self.client.renew_session(session, answers.append)
        assert self.until(lambda: answers)
        return answers[0]

    def close_session(self, session: SessionId) -> None:
        done: list[bool] = []
        self.client.close_session(session, lambda: done.append(True))
        assert self.until(lambda: done)

    def try_read(self, earlier: Revision = 0) -> Snapshot | Unavailable:
        answers: list[Snapshot | Unavailable] = []
        self.client.read(earlier, answers.append)
        assert self.until(lambda: answers)
        return answers[0]

    def read(self, earlier: Revision = 0) -> Snapshot:
        give_up = time.monotonic() + PATIENCE_S
        while isinstance(answer := self.try_read(earlier), Unavailable):
            assert time.monotonic() < give_up, self.reports
        return answer

    def probe(self) -> Revision | Unavailable:
        answers: list[Revision | Unavailable] = []
        self.client.probe_deaths(answers.append)
        assert self.until(lambda: answers)
        return answers[0]

    def compact(self, rev: Revision) -> None:
        done: list[bool] = []
        self.client.compact(rev, lambda: done.append(True))
        assert self.until(lambda: done)

    def watch(self, after: Revision) -> "Seen":
        seen = Seen()
        self.client.watch(after, seen.batches.append, seen.told_lost)
        return seen

    def close(self) -> None:
        self.client.close()


def check_failed_thread(
    client: LocalClient, patch: pytest.MonkeyPatch, store: type, operation: str
) -> None:
    """A mistake in the code of a store's thread ends the broker: without its store it would seem to
    run but could not work."""

    def broken(*_words: object, **_options: object) -> Snapshot:
        raise OverflowError("a mistake in the code")

    patch.setattr(store, operation, broken)
    with pytest.raises(RuntimeError, match="metadata store") as failure:
        client.read()
    assert isinstance(failure.value.__cause__, OverflowError)


class Seen:
    """The batches that a watch received."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.lost = False

    def told_lost(self) -> None:
        self.lost = True

    def image(self, start: Snapshot) -> dict[str, KV]:
        """Return the keys after all received changes."""
        keys = {kv.key: kv for kv in start.kvs}
        for batch in self.batches:
            for change in batch.changes:
                if change.kv is None:
                    keys.pop(change.key, None)
                else:
                    keys[change.key] = change.kv
        return keys


class BlockingStore:
    """The conformance suite's store: clients in turn, so that each sees what others did.

    A session is opened by a client of its own, because a client has one session at a time.
    """

    def __init__(
        self, path: Path | str, clients: int, new_client: Callable[[str], LocalClient] = LocalClient
    ) -> None:
        self._path = str(path)
        if isinstance(path, Path) and not path.exists():
            cluster_file.create(self._path, {})
        self._clients = [new_client(self._path) for _ in range(clients)]

    def _next(self) -> LocalClient:
        self._clients.append(self._clients.pop(0))
        return self._clients[0]

    def get(self, key: str) -> tuple[KV | None, Revision]:
        snapshot = self._next().read()
        return next((kv for kv in snapshot.kvs if kv.key == key), None), snapshot.rev

    def range(self, prefix: str, earlier: Revision = 0) -> Snapshot:
        snapshot = self._next().read(earlier)
        kvs = tuple(kv for kv in snapshot.kvs if kv.key.startswith(prefix))
        return snapshot._replace(kvs=kvs)

    def txn(
        self, guards: tuple[Guard, ...], ops: tuple[Operation, ...]
    ) -> TxnResult | SessionExpired:
        answer = self._next().transact(guards, ops)
        assert isinstance(answer, TxnResult | SessionExpired)
        return answer

    def watch(self, prefix: str, after: Revision) -> list[Batch] | Compacted:
        """Wait until the watch has received the store's latest revision."""
        client = self._next()
        rev = client.read().rev
        seen = client.watch(after)
        if after >= rev:
            assert not client.until(lambda: seen.batches or seen.lost, 0.05)
            return []
        assert client.until(lambda: seen.lost or (seen.batches and seen.batches[-1].rev >= rev))
        if seen.lost:
            return Compacted(self._compacted())
        parts = [
            b._replace(changes=tuple(c for c in b.changes if c.key.startswith(prefix)))
            for b in seen.batches
        ]
        return [batch for batch in parts if batch.changes]

    def _compacted(self) -> Revision:
        connection = cluster_file.connect(self._path, 0.0)
        try:
            (rev,) = connection.execute("SELECT compacted FROM meta").fetchone()
        finally:
            connection.close()
        return int(rev)

    def compact(self, rev: Revision) -> None:
        self._next().compact(rev)

    def open_session(self) -> SessionId:
        return self._next().open_session()

    def expire(self, session: SessionId) -> None:
        self._next().close_session(session)

    def close(self) -> None:
        for client in self._clients:
            client.close()
