"""Tests that every metadata store must pass; the test of a store subclasses them.

A store that is asynchronous or remote is wrapped so that it looks like this: `expire` ends a
session as its time-out would, `watch` returns what has arrived after a revision.
"""

from typing import Protocol

import pytest

from tidelog.core.controller.metadata.history import chained
from tidelog.core.controller.metadata.metadata_store import (
    ABSENT,
    GUARDS_MAX,
    KEY_BYTES_MAX,
    KV,
    OPERATIONS_MAX,
    VALUE_BYTES_MAX,
    Batch,
    Change,
    Compacted,
    Delete,
    Guard,
    Operation,
    Put,
    Revision,
    SessionExpired,
    SessionId,
    Snapshot,
    TxnResult,
)


class Store(Protocol):
    def get(self, key: str) -> tuple[KV | None, Revision]: ...
    def range(self, prefix: str, earlier: Revision = 0) -> Snapshot: ...
    def txn(
        self, guards: tuple[Guard, ...], ops: tuple[Operation, ...]
    ) -> TxnResult | SessionExpired: ...
    def watch(self, prefix: str, after: Revision) -> list[Batch] | Compacted: ...
    def compact(self, rev: Revision) -> None: ...
    def open_session(self) -> SessionId: ...
    def expire(self, session: SessionId) -> None: ...


def put(store: Store, key: str, value: bytes = b"v", session: SessionId = 0) -> Revision:
    result = store.txn((), (Put(key, value, session),))
    assert isinstance(result, TxnResult)
    assert result.ok
    return result.rev


def changes_after(store: Store, prefix: str, after: Revision) -> list[tuple[Revision, object]]:
    """The changes of a watch without the checksums of the history."""
    batches = store.watch(prefix, after)
    assert isinstance(batches, list)
    return [(batch.rev, batch.changes) for batch in batches]


class StoreConformance:
    """Subclass it with a `store` fixture."""

    def test_a_missing_key_reads_as_none(self, store: Store) -> None:
        assert store.get("nothing")[0] is None

    def test_a_put_key_reads_back_with_its_revisions(self, store: Store) -> None:
        first = put(store, "a", b"1")
        second = put(store, "a", b"2")
        assert second > first
        assert store.get("a") == (KV("a", b"2", first, second, 0), second)

    def test_a_recreated_key_has_a_new_create_revision(self, store: Store) -> None:
        first = put(store, "a")
        store.txn((), (Delete("a"),))
        second = put(store, "a")
        kv, _ = store.get("a")
        assert kv is not None
        assert kv.create_rev == second > first

    def test_a_range_is_sorted_and_ends_with_the_prefix(self, store: Store) -> None:
        for key in ("topics/T10/0", "topics/T1/1", "topics/T1/0", "topics/T1x/0"):
            put(store, key)
        snapshot = store.range("topics/T1/")
        assert [kv.key for kv in snapshot.kvs] == ["topics/T1/0", "topics/T1/1"]
        assert snapshot.rev == store.get("topics/T1/0")[1]

    def test_all_operations_of_a_transaction_share_a_revision(self, store: Store) -> None:
        before = put(store, "gone")
        result = store.txn((), (Put("a", b"1"), Put("b", b"2"), Delete("gone")))
        assert isinstance(result, TxnResult)
        assert result.rev == before + 1
        assert {kv.mod_rev for kv in store.range("").kvs} == {result.rev}

    def test_a_transaction_that_changes_nothing_uses_no_revision(self, store: Store) -> None:
        before = put(store, "a")
        assert store.txn((), (Delete("absent"),)) == TxnResult(True, before)
        assert store.txn((), ()) == TxnResult(True, before)

    @pytest.mark.parametrize("kind", ["mod", "create"])
    def test_a_guard_on_absence_holds_only_without_the_key(self, store: Store, kind: str) -> None:
        guard = Guard("a", ABSENT, "mod" if kind == "mod" else "create")
        assert store.txn((guard,), (Put("a", b"1"),)) == TxnResult(True, 1, (("a", None),))
        second = store.txn((guard,), (Put("a", b"2"),))
        assert isinstance(second, TxnResult)
        assert not second.ok
        assert second.now("a") == KV("a", b"1", 1, 1, 0)

    def test_a_mod_guard_fails_once_the_key_changed(self, store: Store) -> None:
        seen = put(store, "a")
        put(store, "a")
        result = store.txn((Guard("a", seen),), (Put("a", b"late"),))
        assert isinstance(result, TxnResult)
        assert not result.ok

    def test_a_create_guard_survives_a_change_but_not_a_new_key(self, store: Store) -> None:
        token = put(store, "controller")
        put(store, "controller")
        guard = Guard("controller", token, "create")
        result = store.txn((guard,), (Put("x", b""),))
        assert isinstance(result, TxnResult)
        assert result.ok
        store.txn((), (Delete("controller"),))
        put(store, "controller")
        result = store.txn((guard,), (Put("x", b""),))
        assert isinstance(result, TxnResult)
        assert not result.ok

    def test_a_guard_on_a_missing_key_fails(self, store: Store) -> None:
        result = store.txn((Guard("a", 7, "create"),), (Put("x", b""),))
        assert result == TxnResult(False, 0, (("a", None),))

    def test_one_failed_guard_stops_all_operations(self, store: Store) -> None:
        rev = put(store, "a")
        result = store.txn((Guard("a", rev), Guard("b", 9)), (Put("a", b"2"), Put("c", b"3")))
        assert isinstance(result, TxnResult)
        assert not result.ok
        assert result.now("b") is None
        assert [kv.value for kv in store.range("").kvs] == [b"v"]

    def test_a_prefix_is_deleted_without_its_neighbours(self, store: Store) -> None:
        for key in ("topics/T1/0", "topics/T1/1", "topics/T10/0"):
            put(store, key)
        store.txn((), (Delete("topics/T1/", prefix=True),))
        assert [kv.key for kv in store.range("").kvs] == ["topics/T10/0"]

    def test_prefixes_one_in_the_other_delete_a_key_once(self, store: Store) -> None:
        for key in ("a", "a/b", "a/b/c", "b"):
            put(store, key)
        before = store.get("b")[1]
        store.txn((), (Delete("a/b"), Delete("a/", prefix=True), Delete("a", prefix=True)))
        assert changes_after(store, "", before) == [
            (before + 1, (Change("a/b", None), Change("a/b/c", None), Change("a", None)))
        ]

    def test_an_empty_prefix_deletes_all(self, store: Store) -> None:
        put(store, "a")
        put(store, "\U0010ffff")
        store.txn((), (Delete("", prefix=True),))
        assert store.range("").kvs == ()

    def test_a_large_transaction_is_one_revision(self, store: Store) -> None:
        names = [f"topics/{n:03d}" for n in range(OPERATIONS_MAX)]
        made = store.txn(
            tuple(Guard(key, ABSENT) for key in names), tuple(Put(key, b"1") for key in names)
        )
        assert made == TxnResult(True, 1, tuple((key, None) for key in names))
        guards = tuple(Guard(key, 1) for key in names)
        changed = store.txn(guards, tuple(Put(key, b"2") for key in names))
        assert isinstance(changed, TxnResult)
        assert changed.current == tuple((key, KV(key, b"1", 1, 1)) for key in names)
        store.txn((), (Delete("topics/", prefix=True),))
        gone = tuple(Change(key, None) for key in names)
        assert changes_after(store, "", 2) == [(3, gone)]

    def test_a_watch_returns_every_revision_once_and_whole(self, store: Store) -> None:
        start = put(store, "other")
        first = store.txn((), (Put("p/a", b"1"), Put("p/b", b"2"), Put("other", b"")))
        assert isinstance(first, TxnResult)
        second = store.txn((), (Delete("p/a"),))
        assert isinstance(second, TxnResult)
        put(store, "other")
        assert changes_after(store, "p/", start) == [
            (
                first.rev,
                (
                    Change("p/a", KV("p/a", b"1", first.rev, first.rev, 0)),
                    Change("p/b", KV("p/b", b"2", first.rev, first.rev, 0)),
                ),
            ),
            (second.rev, (Change("p/a", None),)),
        ]

    def test_equal_histories_have_equal_checksums(self, store: Store) -> None:
        first = put(store, "a", b"1")
        at_first = store.range("").checksum
        second = put(store, "a", b"2")
        now = store.range("", first)
        assert (now.earlier, store.range("", second).earlier) == (at_first, now.checksum)
        assert at_first != now.checksum
        assert store.range("", second + 1).earlier is None, "it is still to come"
        told = store.watch("", 0)
        assert isinstance(told, list)
        assert [batch.checksum for batch in told] == [at_first, now.checksum]

    def test_a_watch_continues_after_its_revision(self, store: Store) -> None:
        first = put(store, "a", b"1")
        second = put(store, "a", b"2")
        batches = store.watch("", first)
        assert isinstance(batches, list)
        assert [batch.rev for batch in batches] == [second]
        assert store.watch("", second) == []

    def test_a_snapshot_and_a_watch_from_it_lose_nothing(self, store: Store) -> None:
        put(store, "a")
        snapshot = store.range("")
        second = put(store, "b")
        batches = store.watch("", snapshot.rev)
        assert isinstance(batches, list)
        assert [batch.rev for batch in batches] == [second]

    def test_a_watch_below_the_compaction_returns_compacted(self, store: Store) -> None:
        first = put(store, "a", b"1")
        second = put(store, "a", b"2")
        store.compact(second)
        assert store.watch("", first) == Compacted(second)
        assert store.watch("", second) == []
        assert store.get("a")[0] == KV("a", b"2", first, second, 0)

    def test_compaction_never_goes_back_nor_beyond_the_present(self, store: Store) -> None:
        for _ in range(3):
            put(store, "a")
        store.compact(2)
        store.compact(1)
        assert store.watch("", 1) == Compacted(2)
        store.compact(99)
        assert store.watch("", 2) == Compacted(3)

    def test_the_keys_of_a_session_are_deleted_with_it_in_one_revision(self, store: Store) -> None:
        session = store.open_session()
        put(store, "brokers/ids/1", session=session)
        put(store, "controller", session=session)
        before = put(store, "stays")
        store.expire(session)
        assert [kv.key for kv in store.range("").kvs] == ["stays"]
        assert changes_after(store, "", before) == [
            (before + 1, (Change("brokers/ids/1", None), Change("controller", None)))
        ]

    def test_an_ended_session_can_put_nothing(self, store: Store) -> None:
        session = store.open_session()
        store.expire(session)
        assert store.txn((), (Put("a", b"", session), Put("b", b""))) == SessionExpired()
        assert store.range("").kvs == ()

    def test_a_failed_guard_is_reported_before_an_ended_session(self, store: Store) -> None:
        session = store.open_session()
        store.expire(session)
        result = store.txn((Guard("a", 7),), (Put("a", b"", session),))
        assert isinstance(result, TxnResult)
        assert not result.ok

    def test_an_unknown_session_can_put_nothing(self, store: Store) -> None:
        assert store.txn((), (Put("a", b"", 99),)) == SessionExpired()

    def test_session_numbers_are_used_once(self, store: Store) -> None:
        first = store.open_session()
        store.expire(first)
        assert store.open_session() > first

    def test_sessions_are_independent(self, store: Store) -> None:
        one, other = store.open_session(), store.open_session()
        put(store, "a", session=one)
        put(store, "b", session=other)
        store.expire(other)
        assert [kv.key for kv in store.range("").kvs] == ["a"]

    def test_a_key_taken_over_from_a_session_outlives_it(self, store: Store) -> None:
        session = store.open_session()
        put(store, "a", session=session)
        put(store, "a")
        store.expire(session)
        assert store.get("a")[0] is not None

    @pytest.mark.parametrize(
        ("guards", "ops"),
        [
            ((Guard("a", 0),) * (GUARDS_MAX + 1), ()),
            ((), tuple(Put(f"k{n}", b"") for n in range(OPERATIONS_MAX + 1))),
            ((), (Put("k" * (KEY_BYTES_MAX + 1), b""),)),
            ((), (Put("k", b"x" * (VALUE_BYTES_MAX + 1)),)),
            ((), (Put("k", b"1"), Delete("k"))),
            ((), (Delete("p/", prefix=True), Put("p/a", b""))),
        ],
        ids=["guards", "operations", "key", "value", "twice", "under a deleted prefix"],
    )
    def test_a_transaction_beyond_the_limits_is_refused(
        self, store: Store, guards: tuple[Guard, ...], ops: tuple[Operation, ...]
    ) -> None:
        with pytest.raises(ValueError, match=r"transaction|key|value"):
            store.txn(guards, ops)
        assert store.range("").kvs == ()


class ChainedChecksums:
    """For stores that know a transaction's revision before they commit it. Subclass it too."""

    def test_checksums_are_chained_over_revisions_and_changes(self, store: Store) -> None:
        first, second = put(store, "a", b"1"), put(store, "a", b"2")
        assert store.range("").checksum == chained(
            chained(0, first, [("a", KV("a", b"1", first, first))]),
            second,
            [("a", KV("a", b"2", first, second))],
        )
