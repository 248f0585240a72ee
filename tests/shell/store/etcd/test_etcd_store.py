"""The store on etcd does what the specification does: on one node, on three, and on three of which
one after the other is killed or frozen meanwhile."""

import http.client
import json
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from threading import Event, Lock, Thread
from typing import TypeVar

import pytest
from blocking_store import LONG_TTL_MS, BlockingStore, LocalClient
from real_etcd import EtcdCluster, EtcdNode, b64, running_etcd
from store_conformance import StoreConformance

from tidelog.core.controller.metadata.metadata_store import (
    ABSENT,
    Guard,
    Operation,
    OutcomeUnknown,
    Put,
    Revision,
    SessionExpired,
    SessionId,
    Snapshot,
    TxnAnswer,
    TxnResult,
    Unavailable,
)
from tidelog.shell.store.etcd.address import parse_address
from tidelog.shell.store.etcd.store_setup import StoreSetup
from tidelog.shell.store.metadata_store_client import SessionGrant
from tidelog.shell.store.store_backend import NO_ACCESS

PATIENCE_S = 120.0
T = TypeVar("T")


class EtcdBlockingStore(BlockingStore):
    """A new store that begins at revision 0, as the specification does."""

    def __init__(
        self,
        etcd: EtcdCluster,
        prefix: str,
        clients: int,
        new_client: Callable[[str], LocalClient] = LocalClient,
    ) -> None:
        self._etcd = etcd
        url = etcd.url(prefix)
        with StoreSetup(parse_address(url, NO_ACCESS)) as setup:
            setup.store.find_history(setup.give_up_s)
            self._base = -(setup.store.latest + 1)
            setup.create({}, self._base)
        super().__init__(url, clients, new_client)

    def _compacted(self) -> Revision:
        """etcd says it in the cancellation of a watch."""
        connection = self._etcd.connection(self._etcd.nodes[0].port, PATIENCE_S)
        request = {"create_request": {"key": b64("a"), "start_revision": 1}}
        connection.request("POST", "/v3/watch", json.dumps(request))
        answer = connection.getresponse()
        while True:
            result = json.loads(answer.readline())["result"]
            if result.get("canceled"):
                connection.close()
                return int(result["compact_revision"]) + self._base


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdCluster]:
    with running_etcd(1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def three() -> Iterator[EtcdCluster]:
    with running_etcd(3) as cluster:
        yield cluster


def eventually(done: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < give_up, what
        time.sleep(0.02)


def serves(node: EtcdNode) -> bool:
    """Whether the node answers a read of the latest revision. Nothing is written: the suite counts
    revisions."""
    try:
        node.post("/v3/kv/range", {"key": b64("a")}, timeout_s=1.0)
    except (OSError, ValueError, http.client.HTTPException):
        return False
    return True


class Faults:
    """Kills and freezes one node at a time: often the leader, or the one that clients use first.

    The thread lives as long as the nodes: a node is ended with the thread that started it.
    """

    def __init__(self, etcd: EtcdCluster) -> None:
        self.kills = self.freezes = 0
        self.quiet = Lock()
        """Held during a fault, and by those who need all nodes."""
        self._etcd = etcd
        self._began = Event()
        self._stop = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def await_next(self) -> None:
        """Wait until the next fault begins."""
        self._began.clear()
        assert self._began.wait(PATIENCE_S)

    def _run(self) -> None:
        chance = random.Random(18)
        while not self._stop.wait(chance.uniform(0.1, 0.4)):
            with self.quiet:
                draw = chance.random()
                node = self._etcd.leader() if draw < 0.4 else self._etcd.nodes[draw > 0.9]
                if chance.random() < 0.5:
                    node.kill()
                    self.kills += 1
                    self._began.set()
                    self._stop.wait(chance.uniform(0.1, 0.6))
                    node.start()
                else:
                    node.freeze()
                    self.freezes += 1
                    self._began.set()
                    self._stop.wait(chance.uniform(0.5, 3.0))
                    node.thaw()
                for each in self._etcd.nodes:
                    eventually(partial(serves, each), f"{each.name} serves again")

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def available(call: Callable[[], T | Unavailable]) -> T:
    """The answer to a call that is repeated while it has no effect."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        answer = call()
        if not isinstance(answer, Unavailable):
            return answer
        assert time.monotonic() < give_up, f"no answer within {PATIENCE_S:g} s"


class PatientClient(LocalClient):
    """Repeats calls that had no effect, and resolves unknown outcomes.

    etcd elects another leader when the machine is busy, so that also happens without faults.

    Only the suite writes to the store, so a higher revision shows that a transaction was applied.
    """

    unknown = 0

    def __init__(self, path: str, faults: Faults | None = None) -> None:
        super().__init__(path)
        self._reader = LocalClient(path)
        self._faults = faults
        self._transactions = 0

    def close(self) -> None:
        self._reader.close()
        super().close()

    def try_read(self, earlier: Revision = 0) -> Snapshot | Unavailable:
        return available(partial(super().try_read, earlier))

    def try_open(self, ttl_ms: int = LONG_TTL_MS) -> SessionGrant | Unavailable:
        return available(partial(super().try_open, ttl_ms))

    def close_session(self, session: SessionId) -> None:
        close = super().close_session

        def ended() -> bool:
            close(session)
            return isinstance(self.renew(session), SessionExpired)

        eventually(ended, "the session ends")

    def transact(
        self, guards: tuple[Guard, ...] = (), ops: tuple[Operation, ...] = ()
    ) -> TxnAnswer:
        before = available(self._reader.try_read)
        known = {kv.key: kv for kv in before.kvs}
        guarded = {guard.key for guard in guards}
        once = tuple(
            Guard(op.key, known[op.key].mod_rev if op.key in known else ABSENT)
            for op in ops
            if isinstance(op, Put) and op.key not in guarded
        )
        self._transactions += 1
        if (
            self._faults is not None and self._transactions == 2
        ):  # has a connection, and knows the store's history
            self._faults.await_next()
        answer = self._send(guards, ops)
        while isinstance(answer, OutcomeUnknown):
            PatientClient.unknown += 1
            now = available(self._reader.try_read).rev
            if now > before.rev:
                current = ((g.key, None if g.rev == ABSENT else known.get(g.key)) for g in guards)
                return TxnResult(True, now, tuple(current))
            again = self._send((*guards, *once), ops)
            if not isinstance(again, TxnResult):
                answer = again
            elif again.ok or available(self._reader.try_read).rev == before.rev:
                return TxnResult(again.ok, again.rev, again.current[: len(guards)])
            # Else the earlier one was applied late.
        return answer

    def _send(
        self, guards: tuple[Guard, ...], ops: tuple[Operation, ...]
    ) -> TxnResult | OutcomeUnknown | SessionExpired:
        give_up = time.monotonic() + PATIENCE_S
        while isinstance(answer := super().transact(guards, ops), Unavailable):
            assert time.monotonic() < give_up, self.reports
        return answer


class TestOneNode(StoreConformance):
    @pytest.fixture
    def store(self, etcd: EtcdCluster, request: pytest.FixtureRequest) -> Iterator[BlockingStore]:
        store = EtcdBlockingStore(etcd, f"one/{request.node.name}", 1, PatientClient)
        yield store
        store.close()


class TestThreeNodes(StoreConformance):
    """Every call by another client than the one before."""

    @pytest.fixture
    def store(self, three: EtcdCluster, request: pytest.FixtureRequest) -> Iterator[BlockingStore]:
        store = EtcdBlockingStore(three, f"three/{request.node.name}", 3, PatientClient)
        yield store
        store.close()


class DisturbedStore(EtcdBlockingStore):
    """A store in an etcd with faults, until the suite compacts it."""

    def __init__(self, etcd: EtcdCluster, prefix: str, faults: Faults) -> None:
        with faults.quiet:
            super().__init__(etcd, prefix, 1, partial(PatientClient, faults=faults))
        self._faults = faults
        self._held = False

    def compact(self, rev: Revision) -> None:
        """A node that is behind may still have what the others compacted."""
        if not self._held:
            self._faults.quiet.acquire()  # until `close`
            self._held = True
        super().compact(rev)

    def close(self) -> None:
        if self._held:
            self._faults.quiet.release()
        super().close()


@pytest.fixture(scope="module")
def faults(three: EtcdCluster) -> Iterator[Faults]:
    faults = Faults(three)
    yield faults
    eventually(lambda: faults.kills > 0 and faults.freezes > 0, "faults of both kinds")
    faults.stop()
    print(faults.kills, "kills,", faults.freezes, "freezes,", PatientClient.unknown, "unknown")  # noqa: T201


@pytest.mark.ci
class TestThreeNodesUnderFaults(StoreConformance):
    @pytest.fixture
    def store(
        self, three: EtcdCluster, faults: Faults, request: pytest.FixtureRequest
    ) -> Iterator[BlockingStore]:
        store = DisturbedStore(three, f"faults/{request.node.name}", faults)
        yield store
        store.close()
