"""A real etcd, and a prepared store in it with a client, for the tests of the store on etcd."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from blocking_store import LocalClient
from real_etcd import EtcdCluster, running_etcd

from tidelog.shell.store.etcd.address import parse_address
from tidelog.shell.store.etcd.store_setup import prepare
from tidelog.shell.store.store_backend import NO_ACCESS


@pytest.fixture(scope="module")
def etcd(request: pytest.FixtureRequest) -> Iterator[EtcdCluster]:
    """An etcd with as many nodes as the module's NODES says."""
    with running_etcd(request.module.NODES) as cluster:
        yield cluster


@pytest.fixture
def url(etcd: EtcdCluster, request: pytest.FixtureRequest) -> str:
    """A new store of this test."""
    url = etcd.url(f"{request.module.__name__}/{request.node.name}")
    prepare(parse_address(url, NO_ACCESS), None)
    return url


@pytest.fixture
def client(url: str) -> Iterator[LocalClient]:
    with closing(LocalClient(url)) as client:
        yield client
