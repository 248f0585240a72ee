"""The store on etcd does what the specification does: on one node, and on three."""

import json
from collections.abc import Iterator

import pytest
from blocking_store import BlockingStore
from real_etcd import EtcdCluster, b64, running_etcd
from store_conformance import StoreConformance

from tidelog.core.controller.metadata.metadata_store import Revision
from tidelog.shell.store.etcd.address import parse_address
from tidelog.shell.store.etcd.store_setup import StoreSetup
from tidelog.shell.store.store_backend import NO_ACCESS


class EtcdBlockingStore(BlockingStore):
    """A new store that begins at revision 0, as the specification does."""

    def __init__(self, etcd: EtcdCluster, prefix: str, clients: int) -> None:
        self._etcd = etcd
        url = etcd.url(prefix)
        with StoreSetup(parse_address(url, NO_ACCESS)) as setup:
            setup.store.find_history(setup.give_up_s)
            self._base = -(setup.store.latest + 1)
            setup.create({}, self._base)
        super().__init__(url, clients)

    def _compacted(self) -> Revision:
        """etcd says it in the cancellation of a watch."""
        connection = self._etcd.connection(self._etcd.nodes[0].port, 5.0)
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


class TestOneNode(StoreConformance):
    @pytest.fixture
    def store(self, etcd: EtcdCluster, request: pytest.FixtureRequest) -> Iterator[BlockingStore]:
        store = EtcdBlockingStore(etcd, f"one/{request.node.name}", clients=1)
        yield store
        store.close()


class TestThreeNodes(StoreConformance):
    """Every call by another client than the one before."""

    @pytest.fixture
    def store(self, three: EtcdCluster, request: pytest.FixtureRequest) -> Iterator[BlockingStore]:
        store = EtcdBlockingStore(three, f"three/{request.node.name}", clients=3)
        yield store
        store.close()
