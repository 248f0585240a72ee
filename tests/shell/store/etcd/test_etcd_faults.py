"""The store on a real etcd of three nodes, of which some die, freeze or lose the others."""

import random
import time
from collections.abc import Iterator
from contextlib import closing
from threading import Event, Thread

import pytest
from blocking_store import PATIENCE_S, LocalClient, Seen
from real_etcd import EtcdCluster

from tidelog.core.controller.metadata.metadata_store import (
    Guard,
    OutcomeUnknown,
    Put,
    SessionExpired,
    Snapshot,
    TxnResult,
    Unavailable,
)
from tidelog.shell.clock import boot_ms
from tidelog.shell.store.etcd.etcd_store_client import EtcdStoreClient
from tidelog.shell.store.log_dir_lock import LogDirLock
from tidelog.shell.store.metadata_store_client import Renewed, SessionGrant

NODES = 3


def put_until_done(client: LocalClient, key: str, value: bytes = b"") -> int:
    """Write a new key; resend it while the outcome is unknown."""
    give_up = time.monotonic() + 120
    while time.monotonic() < give_up:
        answer = client.transact((Guard(key, 0),), (Put(key, value),))
        if isinstance(answer, TxnResult):
            return answer.rev
    raise AssertionError("no write succeeded")


def test_writes_and_the_watch_survive_the_death_of_a_node(
    client: LocalClient, etcd: EtcdCluster
) -> None:
    seen = client.watch(client.read().rev)
    put_until_done(client, "before")
    node = etcd.nodes[0]  # the node in use: the first of the URL
    node.kill()
    killed = time.monotonic()
    try:
        last = put_until_done(client, "after")
        assert client.until(lambda: seen.batches and seen.batches[-1].rev == last)
        assert time.monotonic() - killed < 45
    finally:
        node.start()
        etcd.wait_for(node)


def test_a_frozen_node_is_left_by_writes_and_by_the_watch(
    client: LocalClient, etcd: EtcdCluster
) -> None:
    seen = client.watch(client.read().rev)
    first = put_until_done(client, "before")
    assert client.until(lambda: seen.batches and seen.batches[-1].rev == first)
    node = etcd.nodes[0]
    node.freeze()
    frozen = time.monotonic()
    try:
        last = put_until_done(client, "after")
        assert client.until(lambda: seen.batches[-1].rev == last)
        assert time.monotonic() - frozen < 45
    finally:
        node.thaw()
        etcd.wait_for(node)


def test_without_a_quorum_nothing_is_acknowledged_and_no_session_ends(
    client: LocalClient, etcd: EtcdCluster
) -> None:
    session = client.open_session(60_000)
    others = etcd.nodes[1:]
    for node in others:
        node.freeze()
    try:
        answer = client.transact((Guard("a", 0),), (Put("a", b""),))
        assert answer in (OutcomeUnknown(), Unavailable())
        assert client.renew(session) == Unavailable()
        assert client.until(lambda: client.reports)
    finally:
        for node in others:
            node.thaw()
    for node in etcd.nodes:
        etcd.wait_for(node)
    give_up = time.monotonic() + 120
    while not isinstance(client.renew(session), Renewed):
        assert time.monotonic() < give_up, client.reports
    put_until_done(client, "a")


def test_an_expired_session_cannot_be_renewed(client: LocalClient) -> None:
    start = client.read()
    seen = client.watch(start.rev)
    session = client.open_session(4_000)
    client.transact((), (Put("mine", b"", session),))
    assert client.until(lambda: any(c.kv is None for b in seen.batches for c in b.changes))
    assert "mine" not in seen.image(start)
    assert client.renew(session) == SessionExpired()
    assert client.transact((), (Put("a", b"", session),)) == SessionExpired()


def test_a_renewal_counts_from_before_it_was_sent(client: LocalClient) -> None:
    session = client.open_session(5_000)
    before = boot_ms()
    answer = client.renew(session)
    assert isinstance(answer, Renewed)
    assert before <= answer.sent_ms <= boot_ms()


def test_a_transaction_that_arrives_late_is_applied_once(
    url: str, client: LocalClient, etcd: EtcdCluster
) -> None:
    """A frozen node may carry out a request after the client has given up on it."""
    client.read()
    node = etcd.nodes[0]
    node.freeze()
    answer = client.transact((Guard("a", 0),), (Put("a", b"once"),))
    # A client whose last request got no answer in time uses another node, which answers.
    assert isinstance(answer, OutcomeUnknown | TxnResult)
    node.thaw()
    put_until_done(client, "a", b"once")
    etcd.wait_for(node)
    time.sleep(0.5)
    seen = client.watch(0)
    kv = next(kv for kv in client.read().kvs if kv.key == "a")
    assert client.until(lambda: seen.batches and seen.batches[-1].rev >= kv.mod_rev)
    changes = [c for batch in seen.batches for c in batch.changes if c.key == "a"]
    assert len(changes) == 1


def test_a_watch_that_fell_behind_a_compaction_is_lost(client: LocalClient) -> None:
    first = put_until_done(client, "a")
    last = put_until_done(client, "b")
    client.compact(last)
    seen = client.watch(first)
    assert client.until(lambda: seen.lost)
    again = client.watch(client.read().rev)
    put_until_done(client, "c")
    assert client.until(lambda: again.batches)


def test_a_free_lock_ends_a_session_at_once(
    url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    mine, other = tmp_path_factory.mktemp("mine"), tmp_path_factory.mktemp("other")
    own, lock = LogDirLock.acquire(str(mine)), LogDirLock.acquire(str(other))
    with closing(LocalClient(url, own.path)) as one, closing(LocalClient(url, lock.path)) as two:
        one.open_session(60_000)
        session = two.open_session(60_000)
        two.transact((), (Put("ids/2", b"", session),))
        seen = one.watch(one.read().rev)
        assert isinstance(one.probe(), int)
        assert isinstance(two.renew(session), Renewed)
        lock.release()
        freed = time.monotonic()
        rev = one.probe()
        assert time.monotonic() - freed < 45  # its session: 60 s
        assert seen.batches, "the probe is answered after the watch has shown the end"
        assert rev == seen.batches[-1].rev
        assert two.renew(session) == SessionExpired()
    own.release()


def test_a_restarted_broker_ends_its_earlier_session(
    url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lock = LogDirLock.acquire(str(tmp_path_factory.mktemp("log")))
    with closing(LocalClient(url, lock.path)) as first:
        old = first.open_session(60_000)
    with closing(LocalClient(url, lock.path)) as again:
        again.open_session(60_000)
        assert again.renew(old) == SessionExpired()
    lock.release()


@pytest.fixture
def two_brokers(
    url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LocalClient, LocalClient]]:
    """Clients with life signs, whose sessions are renewed only when a test does so."""
    locks = [LogDirLock.acquire(str(tmp_path_factory.mktemp(name))) for name in ("one", "two")]
    one, two = (LocalClient(url, lock.path) for lock in locks)
    with closing(one), closing(two):
        yield one, two
    for lock in locks:
        lock.release()


def shorten(client: LocalClient, ttl_ms: int) -> None:
    """Let other brokers expect renewals at a shorter time than etcd does, which a new leader of
    etcd gives a session again."""
    assert isinstance(client.client, EtcdStoreClient)
    signed = client.client._sessions._signed
    assert signed is not None
    signed.ttl_ms = ttl_ms


def test_a_session_that_is_not_renewed_is_ended_although_etcd_continues_it(
    two_brokers: tuple[LocalClient, LocalClient],
) -> None:
    one, two = two_brokers
    silent = two.open_session(600_000)
    shorten(two, 2_000)
    own = one.open_session(2_000)
    two.transact((), (Put("controller", b"", silent),))
    start = one.read()
    seen = one.watch(start.rev)
    assert isinstance(two.renew(silent), Renewed)
    sent = time.monotonic()
    give_up = sent + PATIENCE_S
    while "controller" in seen.image(start):
        assert time.monotonic() < give_up
        answer = one.renew(own)
        if answer == SessionExpired():  # the machine is busy: this client was silent for too long
            again = one.try_open(2_000)
            own = again.session if isinstance(again, SessionGrant) else own
        one.until(lambda: "controller" not in seen.image(start), 0.5)
    assert time.monotonic() - sent >= 2
    assert two.renew(silent) == SessionExpired()


def test_no_session_ends_within_its_time_after_a_renewal(
    two_brokers: tuple[LocalClient, LocalClient],
) -> None:
    """Renewals are no changes of the store for core either."""
    ttl_s = 2.0
    renewed: dict[LocalClient, tuple[int, int]] = {}
    seen = [client.watch(client.read().rev) for client in two_brokers]
    end = time.monotonic() + 4 * ttl_s
    ended = 0
    while time.monotonic() < end:
        for client in two_brokers:
            session, sent_ms = renewed.get(client, (0, 0))
            answer = client.renew(session) if session else client.try_open(int(ttl_s * 1000))
            if isinstance(answer, SessionGrant):
                renewed[client] = answer.session, answer.sent_ms
            elif isinstance(answer, Renewed):
                renewed[client] = session, answer.sent_ms
            elif answer == SessionExpired():  # the machine is busy
                assert boot_ms() >= sent_ms + ttl_s * 1000
                del renewed[client]
                ended += 1
        two_brokers[0].until(lambda: False, 0.2)
    sessions = 2 + ended
    for each in seen:
        assert len(each.batches) <= 2 * sessions, "a session begins and ends with one change each"


class Appender:
    """Appends rows under one counter with guarded transactions, through faults."""

    def __init__(self, url: str, name: str, stop: Event) -> None:
        self.acknowledged: list[str] = []
        self.unknown = 0
        self.longest_gap_s = 0.0
        self._client = LocalClient(url)
        self._name = name
        self._stop = stop
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        rev, value, number = 0, 0, 0
        last = time.monotonic()
        while not self._stop.is_set():
            row = f"rows/{self._name}/{number:06d}"
            ops = (Put("counter", b"%d" % (value + 1)), Put(row, b""))
            answer = self._client.transact((Guard("counter", rev), Guard(row, 0)), ops)
            if isinstance(answer, OutcomeUnknown):
                self.unknown += 1
            if not isinstance(answer, TxnResult):
                continue
            there = answer.now(row)
            if answer.ok or there is not None:
                self.acknowledged.append(row)
                number += 1
                self.longest_gap_s = max(self.longest_gap_s, time.monotonic() - last)
                last = time.monotonic()
            if answer.ok:
                rev, value = answer.rev, value + 1
            else:
                kv = answer.now("counter")
                rev, value = (0, 0) if kv is None else (kv.mod_rev, int(kv.value))

    def join(self) -> None:
        self._thread.join()
        self._client.close()


def disturb(etcd: EtcdCluster, seconds: float, chance: random.Random) -> list[str]:
    """Kill or freeze one node at a time, the leader more often than not."""
    done = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        node = etcd.leader() if chance.random() < 0.6 else chance.choice(etcd.nodes)
        if chance.random() < 0.5:
            done.append(f"kill {node.name}")
            node.kill()
            time.sleep(chance.uniform(0.3, 2.0))
            node.start()
        else:
            done.append(f"freeze {node.name}")
            node.freeze()
            time.sleep(chance.uniform(0.5, 3.0))
            node.thaw()
        etcd.wait_for(node)
        time.sleep(chance.uniform(0.2, 1.0))
    return done


def check_appends(start: Snapshot, end: Snapshot, seen: Seen, appenders: list[Appender]) -> None:
    """Nothing is lost or doubled, and the watch shows what a read shows."""
    rows = {kv.key for kv in end.kvs if kv.key.startswith("rows/")}
    lost = {row for one in appenders for row in one.acknowledged} - rows
    assert not lost
    counter = next(int(kv.value) for kv in end.kvs if kv.key == "counter")
    assert counter == len(rows)
    revisions = [batch.rev for batch in seen.batches]
    assert revisions == sorted(set(revisions))
    assert seen.image(start) == {kv.key: kv for kv in end.kvs}
    counted = [c.kv for b in seen.batches for c in b.changes if c.key == "counter" and c.kv]
    assert [int(kv.value) for kv in counted] == list(range(1, counter + 1))
    assert [b.checksum for b in seen.batches][-1] == end.checksum


def pump_until(watcher: LocalClient, stop: Event) -> None:
    """Run the deliveries of a client."""
    while not watcher.until(stop.is_set, 0.2):
        pass


def run_nemesis(etcd: EtcdCluster, url: str, seconds: float, seed: int) -> None:
    with closing(LocalClient(url)) as watcher:
        start = watcher.read()
        seen = watcher.watch(start.rev)
        stop = Event()
        appenders = [Appender(url, str(n), stop) for n in range(3)]
        # A node is ended with the thread that started it, so the faults come from this one.
        pump = Thread(target=pump_until, args=(watcher, stop))
        pump.start()
        faults = disturb(etcd, seconds, random.Random(seed))
        give_up = time.monotonic() + PATIENCE_S
        while sum(len(one.acknowledged) for one in appenders) <= 100:  # on a slow machine
            assert time.monotonic() < give_up
            time.sleep(0.1)
        stop.set()
        for one in appenders:
            one.join()
        pump.join()
        give_up = time.monotonic() + 120
        end = watcher.try_read()
        while not isinstance(end, Snapshot):
            assert time.monotonic() < give_up, "\n".join(
                r.replace(url, "") for r in watcher.reports
            )
            end = watcher.try_read()
        assert watcher.until(lambda: seen.batches and seen.batches[-1].rev >= end.rev)
        check_appends(start, end, seen, appenders)
        appended = sum(len(one.acknowledged) for one in appenders)
        unknown = sum(one.unknown for one in appenders)
        gap = max(one.longest_gap_s for one in appenders)
        print(  # noqa: T201
            f"{appended} appends, {unknown} unknown, longest gap {gap:.1f} s, {len(faults)} faults"
        )
        assert appended > 100
        assert faults


def test_nothing_is_lost_or_doubled_through_a_few_faults(etcd: EtcdCluster, url: str) -> None:
    run_nemesis(etcd, url, 6.0, 1)


@pytest.mark.ci
@pytest.mark.parametrize("seed", [2, 3])
def test_nothing_is_lost_or_doubled_through_many_faults(
    etcd: EtcdCluster, url: str, seed: int
) -> None:
    run_nemesis(etcd, url, 40.0, seed)
