"""One write transaction of the metadata store: core's specification (`Mvcc`) in SQL.

Invariants: expired sessions are ended first, by the time that was read after the write lock was
acquired, so no guard holds for a key of an expired session. The keys of a session are deleted in
one revision. Every revision is written to the watch log together with the change itself.
"""

import sqlite3
from collections.abc import Collection, Iterable
from itertools import chain
from typing import Any

from tidelog.core.controller.metadata.history import chained, row_checksum
from tidelog.core.controller.metadata.metadata_store import (
    KV,
    NO_SESSION,
    Delete,
    Guard,
    Operation,
    Put,
    Revision,
    SessionExpired,
    SessionId,
    TxnResult,
)
from tidelog.shell.store.cluster_file import KV_COLUMNS, checked_kv

REVISIONS_KEPT = 10_000
"""How far back a watch can start; each transaction deletes a few older changes."""
CHECKSUMS_KEPT = 100_000
"""How far back a broker can compare its history with the store's."""
_FORGOTTEN_AT_ONCE = 64
_FORGET_EVERY = 16

_ROWS_AT_ONCE = 100
"""Some builds of SQLite accept at most 999 parameters."""
_EXPIRED = "(expires <= ? OR expires - ttl > ?)"
"""Expired sessions. One with more time left than its time to live is of another boot."""


class WriteTransaction:
    """The store between BEGIN IMMEDIATE and COMMIT, which the caller executes."""

    __slots__ = ("_checksum", "_connection", "_now_ms", "changed", "compacted", "rev")

    def __init__(
        self, connection: sqlite3.Connection, now_ms: int, boot_id: str, spare_from_ms: int | None
    ) -> None:
        """`spare_from_ms`: since then no client could write, and so none could renew."""
        self._connection = connection
        self._now_ms = now_ms
        self.changed = False
        self.rev: Revision
        self.compacted: Revision
        self.rev, self.compacted, self._checksum, boot, over = connection.execute(
            "SELECT rev, compacted, checksum, boot_id,"
            f" (SELECT count(*) FROM sess WHERE {_EXPIRED}) FROM meta",
            (now_ms, now_ms),
        ).fetchone()
        if boot != boot_id:
            self._begin_boot(boot_id)
        if over and spare_from_ms is not None:
            sql = "UPDATE sess SET expires = ? + ttl WHERE expires >= ?"
            self._write(sql, now_ms, spare_from_ms)
        if over:
            self._end_all(f"SELECT id FROM sess WHERE {_EXPIRED} ORDER BY id", now_ms, now_ms)

    # -- keys ------------------------------------------------------------------------------

    def transact(
        self, guards: tuple[Guard, ...], ops: tuple[Operation, ...]
    ) -> TxnResult | SessionExpired:
        """Apply all operations at one revision if every guard holds, else none."""
        known = self._find({item.key for item in (*guards, *ops)})
        current = tuple((guard.key, known.get(guard.key)) for guard in guards)
        if not all(guard.holds_for(known.get(guard.key)) for guard in guards):
            return TxnResult(False, self.rev, current)
        sessions = {op.session for op in ops if isinstance(op, Put) and op.session != NO_SESSION}
        if not self._all_alive(sessions):
            return SessionExpired()
        self._apply(ops, known)
        return TxnResult(True, self.rev, current)

    def _find(self, keys: Collection[str]) -> dict[str, KV]:
        rows = self._in_chunks(f"SELECT {KV_COLUMNS} FROM kv WHERE k IN", keys)
        return {row[0]: checked_kv(*row) for row in rows}

    def compact(self, rev: Revision) -> None:
        """Delete the changes up to and including a revision."""
        rev = min(rev, self.rev)
        if rev > self.compacted:
            self.compacted = rev
            self._write("UPDATE meta SET compacted = ?", rev)
            self._write("DELETE FROM ev WHERE rev <= ?", rev)

    def _apply(self, ops: Iterable[Operation], known: dict[str, KV]) -> None:
        rev = self.rev + 1
        changes: dict[str, KV | None] = {}
        for op in ops:
            if isinstance(op, Put):
                old = known.get(op.key)
                created = rev if old is None else old.create_rev
                changes[op.key] = KV(op.key, op.value, created, rev, op.session)
            elif op.prefix:
                changes.update(dict.fromkeys(self._under(op.key)))
            elif op.key in known:
                changes[op.key] = None
        if changes:
            self._in_chunks("DELETE FROM kv WHERE k IN", [k for k, kv in changes.items() if not kv])
            rows = [(*kv, row_checksum(kv)) for kv in changes.values() if kv]
            self._insert(f"REPLACE INTO kv ({KV_COLUMNS}) VALUES", rows)
            self._log(rev, changes)

    def _under(self, prefix: str) -> list[str]:
        end = _after_prefix(prefix)
        sql = f"SELECT k FROM kv WHERE k >= ? {'AND k < ?' if end else ''} ORDER BY k"
        rows = self._connection.execute(sql, (prefix, end) if end else (prefix,))
        return [key for (key,) in rows]

    def _log(self, rev: Revision, changes: dict[str, KV | None]) -> None:
        rows = [
            (rev, number, key, *((kv.value, kv.create_rev, kv.session) if kv else (None,) * 3))
            for number, (key, kv) in enumerate(changes.items())
        ]
        self._insert("INSERT INTO ev VALUES", rows)
        self.rev = rev
        self._checksum = chained(self._checksum, rev, changes.items())
        self._write("UPDATE meta SET rev = ?, checksum = ?", rev, self._checksum)
        self._write("INSERT INTO past VALUES (?, ?)", rev, self._checksum)
        if rev % _FORGET_EVERY == 0:
            self.compact(min(rev - REVISIONS_KEPT, self.compacted + _FORGOTTEN_AT_ONCE))
            self._write("DELETE FROM past WHERE rev <= ?", rev - CHECKSUMS_KEPT)

    # -- sessions --------------------------------------------------------------------------

    def open_session(self, ttl_ms: int, lock: str, lock_identity: str) -> SessionId:
        """Open a session. Sessions with the same lock end: this broker holds the lock now."""
        if lock_identity:
            sql = "SELECT id FROM sess WHERE lock_identity = ? ORDER BY id"
            self._end_all(sql, lock_identity)
        fields = (ttl_ms, self._now_ms + ttl_ms, lock, lock_identity)
        sql = "INSERT INTO sess (ttl, expires, lock, lock_identity) VALUES (?, ?, ?, ?)"
        session = self._write(sql, *fields).lastrowid
        assert session is not None, "the row was just inserted"
        return session

    def renew_session(self, session: SessionId) -> bool:
        """Restart the session's time to live; False if the session has ended."""
        sql = "UPDATE sess SET expires = ? + ttl WHERE id = ?"
        return self._write(sql, self._now_ms, session).rowcount > 0

    def end_session(self, session: SessionId) -> None:
        """End a session and delete its keys in one revision."""
        rows = self._connection.execute(
            f"SELECT {KV_COLUMNS} FROM kv WHERE session = ? AND session != {NO_SESSION} ORDER BY k",
            (session,),
        )
        owned = {row[0]: checked_kv(*row) for row in rows.fetchall()}
        self._apply([Delete(key) for key in owned], owned)
        self._write("DELETE FROM sess WHERE id = ?", session)

    def _all_alive(self, sessions: set[SessionId]) -> bool:
        return len(self._in_chunks("SELECT id FROM sess WHERE id IN", sessions)) == len(sessions)

    def _begin_boot(self, boot_id: str) -> None:
        self._end_all("SELECT id FROM sess ORDER BY id")
        self._write("DELETE FROM client")
        self._write("UPDATE meta SET boot_id = ?", boot_id)

    def _end_all(self, sql: str, *parameters: object) -> None:
        for (session,) in self._connection.execute(sql, parameters).fetchall():
            self.end_session(session)

    # -- clients ---------------------------------------------------------------------------

    def register_client(
        self, lock: str, lock_identity: str, port: int, pid: int, started: str
    ) -> int:
        """Register a client and its wake-up port, in place of the lock's previous holder."""
        self.forget_clients(lock)
        self._write("DELETE FROM client WHERE port = ?", port)
        fields = (lock, lock_identity, port, pid, started)
        sql = "INSERT INTO client (lock, lock_identity, port, pid, started) VALUES (?, ?, ?, ?, ?)"
        client = self._write(sql, *fields).lastrowid
        assert client is not None, "the row was just inserted"
        return client

    def forget_clients(self, lock: str) -> None:
        """Remove the clients with this lock: their process has ended."""
        if lock:
            self._write("DELETE FROM client WHERE lock = ?", lock)

    def forget_client(self, client: int) -> None:
        self._write("DELETE FROM client WHERE id = ?", client)

    def peer_ports(self, client: int) -> list[int]:
        rows = self._connection.execute("SELECT port FROM client WHERE id != ?", (client,))
        return [port for (port,) in rows]

    # -- statements ------------------------------------------------------------------------
    # Few and long statements: at each one the interpreter may switch to another thread for a
    # while, and all other writers wait for this transaction.

    def _write(self, sql: str, *parameters: object) -> sqlite3.Cursor:
        cursor = self._connection.execute(sql, parameters)
        if cursor.rowcount > 0:
            self.changed = True
        return cursor

    def _in_chunks(self, sql: str, items: Collection[object]) -> list[tuple[Any, ...]]:
        """Execute a statement that ends in IN, for any number of items."""
        left, rows = list(items), []
        while left:
            chunk, left = left[:_ROWS_AT_ONCE], left[_ROWS_AT_ONCE:]
            rows += self._write(f"{sql} ({_marks(len(chunk))})", *chunk).fetchall()
        return rows

    def _insert(self, sql: str, rows: list[Any]) -> None:
        """Execute a statement that ends in VALUES, for any number of rows."""
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            chunk = rows[start : start + _ROWS_AT_ONCE]
            row = f"({_marks(len(chunk[0]))})"
            self._write(f"{sql} {', '.join([row] * len(chunk))}", *chain.from_iterable(chunk))


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def _after_prefix(prefix: str) -> str:
    """The first string after all that start with the prefix; empty if no such string exists."""
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return ""
    last = ord(stem[-1]) + 1
    return stem[:-1] + chr(0xE000 if 0xD800 <= last < 0xE000 else last)
