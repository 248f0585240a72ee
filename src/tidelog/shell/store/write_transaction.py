"""One write transaction: what the store's specification (`core`'s Mvcc) says, done in SQL.

Always true: sessions that have run out are ended first, at the time read after the write lock
was taken, so nobody passes a guard on a key whose owner's time is over; the keys of a session
go in one revision; every revision is written to the watch log with the change itself.
"""

import sqlite3
from collections.abc import Iterable

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

REVISIONS_KEPT = 10_000
"""How far back a watch can start; older changes are forgotten, a few with each transaction."""
_FORGOTTEN_AT_ONCE = 64
_FORGET_EVERY = 16

_SELECT = "SELECT k, v, create_rev, mod_rev, session FROM kv "


class WriteTransaction:
    """The store between BEGIN IMMEDIATE and COMMIT. Nothing here begins or commits."""

    __slots__ = ("_connection", "_now_ms", "changed", "compacted", "rev")

    def __init__(
        self, connection: sqlite3.Connection, now_ms: int, boot_id: str, spare_from_ms: int | None
    ) -> None:
        """`spare_from_ms`: since then nobody could write, so nobody could renew either."""
        self._connection = connection
        self._now_ms = now_ms
        self.changed = False
        self.rev: Revision
        self.compacted: Revision
        self.rev, self.compacted, boot = connection.execute(
            "SELECT rev, compacted, boot_id FROM meta"
        ).fetchone()
        if boot != boot_id:
            self._begin_boot(boot_id)
        if spare_from_ms is not None:
            sql = "UPDATE sess SET expires = ? + ttl WHERE expires >= ?"
            self._write(sql, now_ms, spare_from_ms)
        self._sweep()

    # -- keys ------------------------------------------------------------------------------

    def transact(
        self, guards: tuple[Guard, ...], ops: tuple[Operation, ...]
    ) -> TxnResult | SessionExpired:
        """All operations at one revision if every guard holds, else none."""
        current = tuple((guard.key, self.get(guard.key)) for guard in guards)
        holds = (guard.holds_for(kv) for guard, (_, kv) in zip(guards, current, strict=True))
        if not all(holds):
            return TxnResult(False, self.rev, current)
        sessions = {op.session for op in ops if isinstance(op, Put) and op.session != NO_SESSION}
        if not all(self.alive(session) for session in sessions):
            return SessionExpired()
        self._apply(ops)
        return TxnResult(True, self.rev, current)

    def get(self, key: str) -> KV | None:
        row = self._connection.execute(_SELECT + "WHERE k = ?", (key,)).fetchone()
        return None if row is None else KV._make(row)

    def compact(self, rev: Revision) -> None:
        """Forget the changes up to and including a revision."""
        rev = min(rev, self.rev)
        if rev > self.compacted:
            self.compacted = rev
            self._write("UPDATE meta SET compacted = ?", rev)
            self._write("DELETE FROM ev WHERE rev <= ?", rev)

    def _apply(self, ops: Iterable[Operation]) -> None:
        rev = self.rev + 1
        changes: dict[str, KV | None] = {}
        for op in ops:
            if isinstance(op, Put):
                old = self.get(op.key)
                created = rev if old is None else old.create_rev
                kv = KV(op.key, op.value, created, rev, op.session)
                self._write("REPLACE INTO kv VALUES (?, ?, ?, ?, ?)", *kv)
                changes[op.key] = kv
            else:
                for key in self._matching(op):
                    self._write("DELETE FROM kv WHERE k = ?", key)
                    changes[key] = None
        if changes:
            self._log(rev, changes)

    def _matching(self, op: Delete) -> list[str]:
        if not op.prefix:
            rows = self._connection.execute("SELECT k FROM kv WHERE k = ?", (op.key,))
        elif end := _after_prefix(op.key):
            sql = "SELECT k FROM kv WHERE k >= ? AND k < ? ORDER BY k"
            rows = self._connection.execute(sql, (op.key, end))
        else:
            rows = self._connection.execute("SELECT k FROM kv WHERE k >= ? ORDER BY k", (op.key,))
        return [key for (key,) in rows]

    def _log(self, rev: Revision, changes: dict[str, KV | None]) -> None:
        self._connection.executemany(
            "INSERT INTO ev VALUES (?, ?, ?, ?, ?, ?)",
            [
                (rev, number, key, *((None,) * 3 if kv is None else (kv.value, kv[2], kv.session)))
                for number, (key, kv) in enumerate(changes.items())
            ],
        )
        self.rev = rev
        self._write("UPDATE meta SET rev = ?", rev)
        if rev % _FORGET_EVERY == 0:
            self.compact(min(rev - REVISIONS_KEPT, self.compacted + _FORGOTTEN_AT_ONCE))

    # -- sessions --------------------------------------------------------------------------

    def open_session(self, ttl_ms: int, lock: str, lock_identity: str) -> SessionId:
        """A new session. Whoever held that lock before us is dead: we hold it now."""
        if lock:
            self._end_all("SELECT id FROM sess WHERE lock = ? ORDER BY id", lock)
        fields = (ttl_ms, self._now_ms + ttl_ms, lock, lock_identity)
        sql = "INSERT INTO sess (ttl, expires, lock, lock_identity) VALUES (?, ?, ?, ?)"
        session = self._write(sql, *fields).lastrowid
        assert session is not None, "it was just inserted"
        return session

    def renew_session(self, session: SessionId) -> bool:
        """Start its time anew; False when it has ended."""
        sql = "UPDATE sess SET expires = ? + ttl WHERE id = ?"
        return self._write(sql, self._now_ms, session).rowcount > 0

    def end_session(self, session: SessionId) -> None:
        """End it, by its holder, by time or by proof: its keys go in one revision."""
        rows = self._connection.execute(
            f"SELECT k FROM kv WHERE session = ? AND session != {NO_SESSION} ORDER BY k", (session,)
        )
        self._apply([Delete(key) for (key,) in rows.fetchall()])
        self._write("DELETE FROM sess WHERE id = ?", session)

    def alive(self, session: SessionId) -> bool:
        found = self._connection.execute("SELECT 1 FROM sess WHERE id = ?", (session,))
        return found.fetchone() is not None

    def _sweep(self) -> None:
        """End who has run out. Time to live beyond its own length is a clock gone back."""
        sql = "SELECT id FROM sess WHERE expires <= ? OR expires - ttl > ? ORDER BY id"
        self._end_all(sql, self._now_ms, self._now_ms)

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
        """Note who uses the store and where to wake it, in place of who held the lock before."""
        self.forget_clients(lock)
        self._write("DELETE FROM client WHERE port = ?", port)
        fields = (lock, lock_identity, port, pid, started)
        sql = "INSERT INTO client (lock, lock_identity, port, pid, started) VALUES (?, ?, ?, ?, ?)"
        client = self._write(sql, *fields).lastrowid
        assert client is not None, "it was just inserted"
        return client

    def forget_clients(self, lock: str) -> None:
        """Forget who was known under this lock: it is dead."""
        if lock:
            self._write("DELETE FROM client WHERE lock = ?", lock)

    def forget_client(self, client: int) -> None:
        self._write("DELETE FROM client WHERE id = ?", client)

    def peer_ports(self, client: int) -> list[int]:
        rows = self._connection.execute("SELECT port FROM client WHERE id != ?", (client,))
        return [port for (port,) in rows]

    def _write(self, sql: str, *parameters: object) -> sqlite3.Cursor:
        cursor = self._connection.execute(sql, parameters)
        if cursor.rowcount > 0:
            self.changed = True
        return cursor


def _after_prefix(prefix: str) -> str:
    """The first text behind all that starts with the prefix; empty when there is none."""
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return ""
    last = ord(stem[-1]) + 1
    return stem[:-1] + chr(0xE000 if 0xD800 <= last < 0xE000 else last)
