"""The etcd client's own promises: every call answered, watches replaced, the specification kept."""

import time

import pytest
from blocking_store import PATIENCE_S, LocalClient, check_failed_thread
from hypothesis import given, settings
from hypothesis import strategies as st
from real_etcd import EtcdCluster

from tidelog.core.controller.metadata.metadata_store import (
    Delete,
    Guard,
    Operation,
    Put,
    TxnAnswer,
    TxnResult,
    Unavailable,
)
from tidelog.core.controller.metadata.mvcc import Mvcc
from tidelog.shell.store.etcd.address import parse_address
from tidelog.shell.store.etcd.etcd_store import EtcdStore
from tidelog.shell.store.etcd.etcd_store_client import EtcdStoreClient
from tidelog.shell.store.etcd.gateway import Gateway, Nodes
from tidelog.shell.store.etcd.store_setup import StoreSetup, prepare
from tidelog.shell.store.store_backend import NO_ACCESS

NODES = 1


def put(client: LocalClient, key: str) -> int:
    """Write a key; again if the request had no effect, as its thread got no CPU for seconds."""
    give_up = time.monotonic() + PATIENCE_S
    while isinstance(answer := client.transact((), (Put(key, b""),)), Unavailable):
        assert time.monotonic() < give_up
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


def test_changes_of_other_stores_are_not_seen(
    etcd: EtcdCluster, url: str, client: LocalClient
) -> None:
    seen = client.watch(client.read().rev)
    other = f"{url}-"
    prepare(parse_address(other, NO_ACCESS), None)
    etcd.nodes[0].put(f"{parse_address(url, NO_ACCESS).prefix}another key")
    last = put(client, "mine")
    assert client.until(lambda: seen.batches)
    assert [batch.rev for batch in seen.batches] == [last]
    refused = client.transact((Guard("mine", 1),), (Put("mine", b""),))
    assert isinstance(refused, TxnResult)
    assert refused.rev == last, "a revision that the watch reaches"


def test_a_watch_that_skips_a_transaction_is_lost(url: str, client: LocalClient) -> None:
    """Releases of etcd have dropped events. The number in the history record shows the gap: here
    the record is that of the transaction after the next."""
    put(client, "a")
    start = client.read()
    seen = client.watch(start.rev)
    put(client, "b")
    assert client.until(lambda: seen.batches)
    with StoreSetup(parse_address(url, NO_ACCESS)) as setup:
        record = setup.store.find_history(setup.give_up_s)
        assert record is not None
        setup._step([], record.mod_rev, record._replace(number=record.number + 2))
    assert client.until(lambda: seen.lost)
    assert len(seen.batches) == 1, "nothing is delivered that is not the next change"
    assert any("skipped from transaction" in text for text in client.reports)
    again = client.watch(client.read().rev)
    last = put(client, "c")
    assert client.until(lambda: again.batches)
    assert [batch.rev for batch in again.batches] == [last]


def test_a_probe_that_sends_nothing_does_not_end_an_outage_in_the_log(
    etcd: EtcdCluster, client: LocalClient
) -> None:
    node = etcd.nodes[0]
    assert isinstance(client.client, EtcdStoreClient)
    client.client._members_s = float("inf")  # no failing request but the one below
    node.freeze()
    try:
        assert not isinstance(client.transact((), (Put("a", b""),)), TxnResult)
        time.sleep(1.1)  # the log waits for this long without a failure
        client.probe()
        client.until(lambda: len(client.reports) > 1, 0.5)
        assert [text for text in client.reports if "works again" in text] == []
    finally:
        node.thaw()
        etcd.wait_for(node)
    put(client, "b")
    assert client.until(lambda: len(client.reports) == 2)
    assert client.reports[1].endswith("works again")


def test_a_failed_store_thread_ends_the_broker(
    client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_failed_thread(client, monkeypatch, EtcdStore, "read")


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
    store, give_up_s = EtcdStore(gateway), time.monotonic() + PATIENCE_S
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
