"""The etcd client's own promises: every call answered, watches replaced, the specification kept."""

import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from blocking_store import LocalClient
from hypothesis import given, settings
from hypothesis import strategies as st
from real_etcd import EtcdCluster, running_etcd

from tidelog.core.controller.metadata.metadata_store import (
    Delete,
    Guard,
    Operation,
    Put,
    Snapshot,
    TxnAnswer,
    TxnResult,
    Unavailable,
)
from tidelog.core.controller.metadata.mvcc import Mvcc
from tidelog.shell.store.etcd.address import parse_address
from tidelog.shell.store.etcd.etcd_store import EtcdStore
from tidelog.shell.store.etcd.gateway import Gateway, Nodes
from tidelog.shell.store.etcd.store_setup import StoreSetup, prepare
from tidelog.shell.store.store_backend import NO_ACCESS


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdCluster]:
    with running_etcd(1) as etcd:
        yield etcd


@pytest.fixture
def url(etcd: EtcdCluster, request: pytest.FixtureRequest) -> str:
    url = etcd.url(f"client/{request.node.name}")
    prepare(parse_address(url, NO_ACCESS), None)
    return url


@pytest.fixture
def client(url: str) -> Iterator[LocalClient]:
    with closing(LocalClient(url)) as client:
        yield client


def put(client: LocalClient, key: str) -> int:
    answer = client.transact((), (Put(key, b""),))
    assert isinstance(answer, TxnResult)
    return answer.rev


def test_every_call_is_answered_before_and_after_close(url: str) -> None:
    client = LocalClient(url)
    answers: list[TxnAnswer] = []
    for number in range(20):
        client.client.transact((), (Put(f"k{number}", b""),), answers.append)
    client.close()
    client.client.transact((), (Put("late", b""),), answers.append)
    assert client.until(lambda: len(answers) == 21)
    revisions = [answer.rev for answer in answers[:20] if isinstance(answer, TxnResult)]
    assert revisions == list(range(revisions[0], revisions[0] + 20))
    assert answers[20] == Unavailable()
    assert client.try_read() == Unavailable()
    assert client.try_open() == Unavailable()
    assert client.probe() == Unavailable()
    client.close_session(1)
    client.close()


def test_a_new_watch_replaces_the_old(client: LocalClient) -> None:
    first = put(client, "a")
    old, new = client.watch(first - 1), client.watch(first)
    last = put(client, "b")
    assert client.until(lambda: new.batches)
    assert not old.batches
    assert [batch.rev for batch in new.batches] == [last]


def test_changes_of_other_stores_are_not_seen(etcd: EtcdCluster, client: LocalClient) -> None:
    seen = client.watch(client.read().rev)
    other = etcd.url("client/test_changes_of_other_stores_are_not_seen-")
    prepare(parse_address(other, NO_ACCESS), None)
    etcd.nodes[0].put("/client/another key")
    last = put(client, "mine")
    assert client.until(lambda: seen.batches)
    assert [batch.rev for batch in seen.batches] == [last]
    refused = client.transact((Guard("mine", 1),), (Put("mine", b""),))
    assert isinstance(refused, TxnResult)
    assert refused.rev == last, "a revision that the watch reaches"


def test_a_thread_that_fails_takes_the_broker_with_it(
    client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its store a broker would only look alive."""

    def broken(_store: EtcdStore, _give_up_s: float, _earlier: int) -> Snapshot:
        raise OverflowError("a mistake in the code")

    monkeypatch.setattr(EtcdStore, "read", broken)
    with pytest.raises(RuntimeError, match="metadata store") as failure:
        client.read()
    assert isinstance(failure.value.__cause__, OverflowError)


# -- against the specification -------------------------------------------------------------

KEYS = st.sampled_from(["a", "a/b", "a/c", "ab", "b", "é/1", "é/\U0010ffff", "z\ud7ff", "z\ue000"])
REVISIONS = st.integers(0, 6)
GUARDS = st.lists(st.builds(Guard, KEYS, REVISIONS, st.sampled_from(["mod", "create"])), max_size=2)
PUTS = st.builds(Put, KEYS, st.binary(max_size=3), st.integers(0, 2))
OPS: st.SearchStrategy[list[Operation]] = st.lists(
    st.one_of(PUTS, st.builds(Delete, KEYS, st.booleans())), max_size=3
)
examples = iter(range(10_000))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(GUARDS, OPS), max_size=8), st.integers(0, 8))
def test_any_transactions_do_what_the_specification_does(
    etcd: EtcdCluster,
    transactions: list[tuple[list[Guard], list[Operation]]],
    ended_after: int,
) -> None:
    address = parse_address(etcd.url(f"spec/{next(examples)}"), NO_ACCESS)
    spec, gateway = Mvcc(), Gateway(Nodes(address))
    store, give_up_s = EtcdStore(gateway), time.monotonic() + 20
    for session in (spec.open_session(), spec.open_session()):
        store.end_session(session, give_up_s)  # of the example before
    with StoreSetup(address) as setup:
        setup.store.find_history(setup.give_up_s)
        setup.create({}, -(setup.store.latest + 1))
    for session in (1, 2):
        gateway.call("/v3/lease/grant", {"TTL": 60, "ID": session}, give_up_s)
    for number, (guards, ops) in enumerate(transactions):
        before = spec.revision
        try:
            expected = spec.txn(tuple(guards), tuple(ops))
        except ValueError:
            continue
        answer = store.transact(tuple(guards), tuple(ops), give_up_s)
        if isinstance(expected, TxnResult) and spec.revision == before:
            # Nothing changed: a revision that the watch reaches, not later than the latest.
            assert isinstance(answer, TxnResult)
            assert answer.rev <= expected.rev
            answer = TxnResult(answer.ok, expected.rev, answer.current)
        assert answer == expected
        if number == ended_after:
            spec.expire(1)
            store.end_session(1, give_up_s)
    snapshot = store.read(give_up_s).snapshot
    assert (snapshot.kvs, snapshot.rev) == (spec.range("").kvs, spec.revision)
    gateway.close()
