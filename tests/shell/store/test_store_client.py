"""The client's guarantees: every call is answered, sessions end by time, watches, commits."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue

import pytest
from blocking_store import GIVE_UP_S, PATIENCE_S, LocalClient, check_failed_thread
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.core.controller.metadata.metadata_store import (
    Batch,
    Compacted,
    Delete,
    Guard,
    Operation,
    OutcomeUnknown,
    Put,
    SessionExpired,
    TxnAnswer,
    TxnResult,
    Unavailable,
)
from tidelog.core.controller.metadata.mvcc import Mvcc
from tidelog.shell.clock import boot_ms
from tidelog.shell.store import cluster_file, sqlite_store, write_transaction
from tidelog.shell.store.log_dir_lock import LockProof
from tidelog.shell.store.metadata_store_client import Renewed, SessionGrant
from tidelog.shell.store.sqlite_store import SqliteStore
from tidelog.shell.store.sqlite_store_client import SqliteStoreClient


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "cluster.db")
    cluster_file.create(path, {})
    return path


@pytest.fixture
def client(path: str) -> Iterator[LocalClient]:
    with closing(LocalClient(path)) as client:
        yield client


def put(client: LocalClient, key: str, value: bytes = b"", session: int = 0) -> int:
    answer = client.transact((), (Put(key, value, session),))
    assert isinstance(answer, TxnResult)
    return answer.rev


# -- sessions ------------------------------------------------------------------------------


def test_a_session_ends_by_time_and_can_not_be_renewed(client: LocalClient) -> None:
    session = client.open_session(2_000)
    put(client, "mine", session=session)
    rev = put(client, "stays")
    seen = client.watch(rev)
    assert client.until(lambda: seen.batches)
    assert [batch.rev for batch in seen.batches] == [rev + 1]
    assert client.renew(session) == SessionExpired()
    assert client.transact((), (Put("a", b"", session),)) == SessionExpired()
    assert [kv.key for kv in client.read().kvs] == ["stays"]


def test_a_renewed_session_lives(client: LocalClient) -> None:
    session = client.open_session(5_000)
    put(client, "mine", session=session)
    for _ in range(5):
        time.sleep(1.1)  # must stay: in all longer than the time to live
        before = boot_ms()
        answer = client.renew(session)
        assert isinstance(answer, Renewed)
        assert before <= answer.sent_ms <= boot_ms()
    assert [kv.key for kv in client.read().kvs] == ["mine"]


def test_a_session_counts_from_before_its_request(path: str) -> None:
    """The holder's deadline is never later than the store's."""
    clock = iter([1_000, 2_000])
    deliveries: SimpleQueue[Callable[[], None]] = SimpleQueue()
    answers: list[SessionGrant | Unavailable] = []
    client = SqliteStoreClient(
        path, LockProof(), lambda: next(clock), deliveries.put, patience_s=PATIENCE_S
    )
    client.open_session(500, answers.append)
    deliveries.get()()
    assert answers == [SessionGrant(1, 1_000)]
    client.close()


def test_guards_on_keys_of_an_expired_session_fail_before_a_sweep(path: str) -> None:
    store = SqliteStore(path, LockProof(), 9, 9_000, lambda _text: None)
    give_up_s = time.monotonic() + 120
    session = store.write(give_up_s, lambda tx: tx.open_session(300, "", ""))
    made = store.write(give_up_s, lambda tx: tx.transact((), (Put("controller", b"", session),)))
    assert isinstance(made, TxnResult)
    while (store.next_expiry_ms() or 0) >= boot_ms():
        assert time.monotonic() < give_up_s
        time.sleep(0.01)
    guards = (Guard("controller", made.rev, "create"),)
    late = store.write(give_up_s, lambda tx: tx.transact(guards, (Put("x", b""),)))
    assert late == TxnResult(False, made.rev + 1, (("controller", None),))
    store.close()


def test_another_boot_voids_all_sessions(
    path: str, client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = client.open_session()
    put(client, "mine", session=session)
    monkeypatch.setattr(sqlite_store, "boot_id", lambda: "another")
    with closing(LocalClient(path)) as later:
        assert later.renew(session) == SessionExpired()
        assert later.read().kvs == ()


def test_a_clock_that_went_back_ends_a_session(
    path: str, client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a boot id, a session with more time left than its time to live is of another boot."""
    session = client.open_session(60_000)
    monkeypatch.setattr(sqlite_store, "boot_ms", lambda: boot_ms() - 1_000)
    with closing(LocalClient(path)) as later:
        assert later.renew(session) == SessionExpired()


# -- watches -------------------------------------------------------------------------------


def test_a_new_watch_replaces_the_old(client: LocalClient) -> None:
    first = put(client, "a")
    old, new = client.watch(0), client.watch(first)
    put(client, "b")
    assert client.until(lambda: new.batches)
    assert not old.batches
    assert [batch.rev for batch in new.batches] == [first + 1]


def test_a_watch_that_fell_behind_is_lost_once(client: LocalClient) -> None:
    for _ in range(3):
        put(client, "a")
    client.compact(2)
    seen = client.watch(1)
    assert client.until(lambda: seen.lost)
    seen.lost = False
    put(client, "b")
    assert not client.until(lambda: seen.lost or seen.batches, 0.1)
    again = client.watch(client.read().rev)
    last = put(client, "c")
    assert client.until(lambda: again.batches)
    assert again.batches[0].rev == last


def test_old_changes_are_deleted_a_few_at_a_time(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_transaction, "REVISIONS_KEPT", 40)
    store = SqliteStore(path, LockProof(), 9, 9_000, lambda _text: None)
    give_up_s = time.monotonic() + 120
    for number in range(100):
        op = Put("a", b"%d" % number)
        store.write(give_up_s, lambda tx, op=op: tx.transact((), (op,)))  # type: ignore[misc]
    compacted = store.changes_after(0, give_up_s)
    assert isinstance(compacted, Compacted)
    assert 40 <= compacted.rev <= 60
    kept = store.changes_after(compacted.rev, give_up_s)
    assert isinstance(kept, list)
    assert [batch.rev for batch in kept] == list(range(compacted.rev + 1, 101))
    store.close()


# -- when things go wrong ------------------------------------------------------------------


class _FailingCommit(sqlite3.Connection):
    """A connection whose next commit succeeds but is reported as failed."""

    armed = False

    def execute(self, sql: str, parameters: object = (), /) -> sqlite3.Cursor:
        cursor = super().execute(sql, parameters)  # type: ignore[arg-type]
        if sql == "COMMIT" and _FailingCommit.armed:
            _FailingCommit.armed = False
            raise sqlite3.OperationalError("disk I/O error")
        return cursor


def test_a_commit_that_fails_half_way_is_unknown(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: plain(*a, factory=_FailingCommit, **k))
    with closing(LocalClient(path)) as client:
        put(client, "a")
        _FailingCommit.armed = True
        assert client.transact((Guard("b", 0),), (Put("b", b""),)) == OutcomeUnknown()
        # The same guarded transaction again settles it, on a new connection.
        settled = client.transact((Guard("b", 0),), (Put("b", b""),))
        assert isinstance(settled, TxnResult)
        assert not settled.ok
        _FailingCommit.armed = True
        assert client.try_open() == Unavailable()


def test_a_missing_or_replaced_store_is_unavailable(path: str, client: LocalClient) -> None:
    put(client, "a")
    moved = Path(path).rename(path + ".away")
    assert client.transact((), (Put("b", b""),)) == Unavailable()
    assert client.try_read() == Unavailable()
    assert client.try_open() == Unavailable()
    cluster_file.create(path, {})
    assert client.transact((), (Put("b", b""),)) == Unavailable()
    moved.rename(path)
    assert put(client, "b") == 2


def test_every_call_is_answered_before_and_after_close(path: str) -> None:
    client = LocalClient(path)
    answers: list[TxnAnswer] = []
    for number in range(20):
        client.client.transact((), (Put(f"k{number}", b""),), answers.append)
    client.close()
    client.client.transact((), (Put("late", b""),), answers.append)
    assert client.until(lambda: len(answers) == 21)
    assert [answer.rev for answer in answers[:20] if isinstance(answer, TxnResult)] == list(
        range(1, 21)
    )
    assert answers[20] == Unavailable()
    assert client.try_read() == Unavailable()
    assert client.try_open() == Unavailable()
    client.close_session(1)
    client.close()


def test_a_closed_client_leaves_no_trace_in_the_list_of_clients(
    path: str, client: LocalClient
) -> None:
    put(client, "a")
    with closing(LocalClient(path)) as other:
        put(other, "b")
        assert _clients(path) == 2
    assert _clients(path) == 1


def _clients(path: str) -> int:
    with closing(cluster_file.connect(path, 0.0)) as connection:
        return int(connection.execute("SELECT count(*) FROM client").fetchone()[0])


def test_several_waiting_calls_share_one_second(path: str, client: LocalClient) -> None:
    put(client, "a")
    with (
        closing(LocalClient(path, patience_s=GIVE_UP_S)) as impatient,
        closing(cluster_file.connect(path, 0.0)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        answers: list[TxnAnswer] = []
        for _ in range(60):
            impatient.client.transact((), (Put("b", b""),), answers.append)
        assert impatient.until(lambda: len(answers) == 60)
        assert answers == [Unavailable()] * 60
        assert 0.9 < time.monotonic() - began < 30, "one after another: a minute"
        other.execute("ROLLBACK")
    assert put(client, "b") == 2


# -- against the specification -------------------------------------------------------------

KEYS = st.sampled_from(["a", "a/b", "a/c", "ab", "b", "é/1", "é/\U0010ffff", "z\ud7ff", "z\ue000"])
REVISIONS = st.integers(0, 6)
GUARDS = st.lists(st.builds(Guard, KEYS, REVISIONS, st.sampled_from(["mod", "create"])), max_size=2)
PUTS = st.builds(Put, KEYS, st.binary(max_size=3), st.integers(0, 2))
OPS: st.SearchStrategy[list[Operation]] = st.lists(
    st.one_of(PUTS, st.builds(Delete, KEYS, st.booleans())), max_size=3
)


@settings(deadline=None)
@given(st.lists(st.tuples(GUARDS, OPS), max_size=8), st.integers(0, 8))
def test_any_transactions_do_what_the_specification_does(
    tmp_path_factory: pytest.TempPathFactory,
    transactions: list[tuple[list[Guard], list[Operation]]],
    ended_after: int,
) -> None:
    path = str(tmp_path_factory.mktemp("spec") / "cluster.db")
    cluster_file.create(path, {})
    spec, store = Mvcc(), SqliteStore(path, LockProof(), 9, 9_000, lambda _text: None)
    give_up_s = time.monotonic() + 120
    for _ in range(2):
        session = store.write(give_up_s, lambda tx: tx.open_session(60_000, "", ""))
        assert session == spec.open_session()
    for number, (guards, ops) in enumerate(transactions):
        try:
            expected = spec.txn(tuple(guards), tuple(ops))
        except ValueError:
            continue
        call = (tuple(guards), tuple(ops))
        assert store.write(give_up_s, lambda tx, call=call: tx.transact(*call)) == expected  # type: ignore[misc]
        if number == ended_after:
            spec.expire(1)
            store.write(give_up_s, lambda tx: tx.end_session(1))
    snapshot = store.snapshot(give_up_s)
    assert snapshot == spec.range("")
    batches = store.changes_after(0, give_up_s)
    told = spec.watch("", 0)
    assert isinstance(told, list)
    assert batches == [Batch(*batch) for batch in told]
    store.close()


def test_a_failed_store_thread_ends_the_broker(
    client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_failed_thread(client, monkeypatch, SqliteStore, "snapshot")
