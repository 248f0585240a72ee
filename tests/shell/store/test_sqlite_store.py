"""The SQLite store conforms to the specification: one client, several, several processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from blocking_store import BlockingStore
from store_conformance import ChainedChecksums, Store, StoreConformance
from worker_process import Worker

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
    TxnResult,
)
from tidelog.shell.store import cluster_file


class TestOneClient(StoreConformance, ChainedChecksums):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[BlockingStore]:
        store = BlockingStore(tmp_path / "cluster.db", clients=1)
        yield store
        store.close()


class TestSeveralClients(StoreConformance, ChainedChecksums):
    """Each call is made by a different client than the previous one."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[BlockingStore]:
        store = BlockingStore(tmp_path / "cluster.db", clients=3)
        yield store
        store.close()


class ProcessStore:
    """Two processes in turn; before each transaction a third one dies in a transaction."""

    def __init__(self, path: Path, servers: list[Worker]) -> None:
        self._path = str(path)
        cluster_file.create(self._path, {})
        self._killer, *self._servers = servers
        for server in self._servers:
            server.call("open", self._path)

    def _next(self) -> Worker:
        self._servers.append(self._servers.pop(0))
        return self._servers[0]

    def get(self, key: str) -> tuple[KV | None, Revision]:
        found: tuple[KV | None, Revision] = self._next().call("get", key)
        return found

    def range(self, prefix: str, earlier: Revision = 0) -> Snapshot:
        snapshot: Snapshot = self._next().call("range", prefix, earlier)
        return snapshot

    def txn(
        self, guards: tuple[Guard, ...], ops: tuple[Operation, ...]
    ) -> TxnResult | SessionExpired:
        self._killer.call("die", self._path)
        result: TxnResult | SessionExpired = self._next().call("txn", guards, ops)
        return result

    def watch(self, prefix: str, after: Revision) -> list[Batch] | Compacted:
        seen: list[Batch] | Compacted = self._next().call("watch", prefix, after)
        return seen

    def compact(self, rev: Revision) -> None:
        self._next().call("compact", rev)

    def open_session(self) -> SessionId:
        session: SessionId = self._next().call("open_session")
        return session

    def expire(self, session: SessionId) -> None:
        self._next().call("expire", session)

    def close(self) -> None:
        for server in self._servers:
            server.call("close")


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Worker]]:
    workers = [Worker("server") for _ in range(3)]
    yield workers
    for worker in workers:
        worker.end()


class TestSeveralProcesses(StoreConformance, ChainedChecksums):
    """Each call is made by a different process than the previous one, while others are killed."""

    @pytest.fixture
    def store(self, tmp_path: Path, servers: list[Worker]) -> Iterator[Store]:
        store = ProcessStore(tmp_path / "cluster.db", servers)
        yield store
        store.close()
