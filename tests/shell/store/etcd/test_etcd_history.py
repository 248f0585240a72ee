"""A store on etcd recognises contents that are not its own history."""

from contextlib import closing

import pytest
from blocking_store import LocalClient
from real_etcd import EtcdCluster, b64

from tidelog.core.controller.metadata.metadata_store import Guard, Put, TxnResult, Unavailable
from tidelog.shell.store.etcd import store_admin
from tidelog.shell.store.etcd.address import parse_address
from tidelog.shell.store.etcd.store_setup import StoreSetup, prepare
from tidelog.shell.store.store_backend import (
    NO_ACCESS,
    NotAStore,
    StoreMissing,
    StoreTooNew,
    StoreUnusable,
)

NODES = 1


@pytest.fixture
def url(etcd: EtcdCluster, request: pytest.FixtureRequest) -> str:
    """A place without a store."""
    return etcd.url(f"history/{request.node.name}")


def test_a_store_is_created_once_and_found_again(url: str) -> None:
    address = parse_address(url, NO_ACCESS)
    identity = prepare(address, None)
    assert prepare(address, None) == prepare(address, identity.cluster_id) == identity


def test_a_missing_store_of_a_known_cluster_is_refused(url: str) -> None:
    with pytest.raises(StoreMissing, match="data of cluster c1"):
        prepare(parse_address(url, NO_ACCESS), "c1")


def test_keys_copied_by_another_program_are_refused(etcd: EtcdCluster, url: str) -> None:
    prepare(parse_address(url, NO_ACCESS), None)
    with closing(LocalClient(url)) as client:
        for number in range(3):
            client.transact((), (Put("a", b"%d" % number),))
        assert client.read(client.read().rev).earlier is not None
    prefix = parse_address(url, NO_ACCESS).prefix
    node = etcd.nodes[0]
    everything = {"key": b64(prefix), "range_end": b64(prefix[:-1] + "0")}
    for kv in node.post("/v3/kv/range", everything)["kvs"]:
        node.post("/v3/kv/put", {"key": kv["key"], "value": kv["value"]})
    with closing(LocalClient(url)) as client:
        assert client.try_read(7) == Unavailable()
        assert client.until(lambda: client.reports)
        assert "were copied by another program" in client.reports[0]


def test_a_store_that_is_deleted_under_a_broker_is_unavailable(etcd: EtcdCluster, url: str) -> None:
    prepare(parse_address(url, NO_ACCESS), None)
    prefix = parse_address(url, NO_ACCESS).prefix
    with closing(LocalClient(url)) as client:
        assert isinstance(client.transact((), (Put("a", b""),)), TxnResult)
        everything = {"key": b64(prefix), "range_end": b64(prefix[:-1] + "0")}
        etcd.nodes[0].post("/v3/kv/deleterange", everything)
        assert client.transact((Guard("b", 0),), (Put("b", b""),)) == Unavailable()
        assert client.until(lambda: client.reports)
        assert "was deleted" in client.reports[0]


def test_a_store_below_the_prefix_of_another_is_left_alone(url: str) -> None:
    """Such as tidelog/east below tidelog: its keys lie between those of the other store."""
    outer = parse_address(url, NO_ACCESS)
    inner = [parse_address(f"{url}/{name}", NO_ACCESS) for name in ("data-2", "east")]
    identities = [prepare(address, None) for address in (outer, *inner)]
    with closing(LocalClient(url)) as client, closing(LocalClient(f"{url}/east")) as other:
        other.transact((), (Put("b", b"", other.open_session(60_000)),))
        seen = client.watch(client.read().rev)
        assert isinstance(other.transact((), (Put("a", b""),)), TxnResult)
        own = client.transact((), (Put("a", b""),))
        assert client.until(lambda: seen.batches)
        assert isinstance(own, TxnResult)
        assert [batch.rev for batch in seen.batches] == [own.rev]
        store_admin.replace(url, {"a": b"restored"}, 1, NO_ACCESS)
        assert [kv.value for kv in client.read().kvs] == [b"restored"]
        assert {kv.key for kv in other.read().kvs} == {"a", "b", "meta/cluster"}
    assert [prepare(address, None) for address in inner] == identities[1:]


@pytest.mark.parametrize("name", ["data", "live/east", "past"])
def test_a_prefix_among_the_keys_of_another_store_is_refused(url: str, name: str) -> None:
    with pytest.raises(StoreUnusable, match="choose a prefix without it"):
        parse_address(f"{url}/{name}", NO_ACCESS)


def test_a_large_transaction_on_a_deleted_store_is_unavailable(etcd: EtcdCluster, url: str) -> None:
    """Its guards are read first, because it would exceed etcd's limit of operations."""
    prepare(parse_address(url, NO_ACCESS), None)
    prefix = parse_address(url, NO_ACCESS).prefix
    with closing(LocalClient(url)) as client:
        client.read()
        everything = {"key": b64(prefix), "range_end": b64(prefix[:-1] + "0")}
        etcd.nodes[0].post("/v3/kv/deleterange", everything)
        guards = tuple(Guard(f"g{n}", 5) for n in range(60))
        puts = tuple(Put(f"p{n}", b"") for n in range(90))
        assert client.transact(guards, puts) == Unavailable()


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        ("some other program", NotAStore, "another program uses this prefix"),
        ('{"format": 99}', StoreTooNew, "has format 99"),
    ],
)
def test_a_prefix_of_another_program_or_format_is_refused(
    etcd: EtcdCluster, url: str, value: str, error: type[Exception], text: str
) -> None:
    url = url.partition("[")[0] + error.__name__
    prefix = parse_address(url, NO_ACCESS).prefix
    etcd.nodes[0].put(f"{prefix}data", value)
    with pytest.raises(error, match=text):
        prepare(parse_address(url, NO_ACCESS), None)


def test_a_store_is_filled_above_a_revision_and_refused_until_complete(
    etcd: EtcdCluster, url: str
) -> None:
    keys = {f"topics/{n:04d}": b"x" * 10_000 for n in range(250)}
    address = parse_address(url, NO_ACCESS)
    with StoreSetup(address) as setup:
        assert setup.fill(keys, 1_000_000) >= 1_000_000
    with closing(LocalClient(url)) as client:
        snapshot = client.read()
        assert {kv.key: kv.value for kv in snapshot.kvs} == keys
        assert min(kv.create_rev for kv in snapshot.kvs) >= 1_000_000
        answer = client.transact((Guard("topics/0000", 7, "create"),), (Put("a", b""),))
        assert isinstance(answer, TxnResult)
        assert not answer.ok
        old = client.watch(999_000)
        assert client.until(lambda: old.lost), "a revision from before the copy"
        everything = client.watch(0)
        assert client.until(lambda: everything.image(snapshot._replace(kvs=())).keys() == set(keys))
    prefix = address.prefix
    record = '{"format": 1, "base": 0, "number": 0, "checksum": 0, "state": "filling"}'
    etcd.nodes[0].put(f"{prefix}data", record)
    with pytest.raises(StoreUnusable, match="is incomplete"):
        prepare(address, None)
