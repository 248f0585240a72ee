"""The store's file as one thread uses it: bounded waits, one connection, plain answers.

Always true: a write either commits, or surely did not happen, or raises `CommitUnknown`; no
call waits longer for other processes than it was given; the connection is made anew after any
failure that could have left it in doubt, and never works on a file that lost its name.
"""

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import groupby
from typing import TypeVar

from tidelog.core.controller.metadata.metadata_store import (
    KV,
    Batch,
    Change,
    Compacted,
    Revision,
    SessionId,
    Snapshot,
)
from tidelog.shell.store import cluster_file
from tidelog.shell.store.boot_clock import boot_id, boot_ms
from tidelog.shell.store.cluster_file import StoreUnusable
from tidelog.shell.store.log_dir_lock import identity_of, is_abandoned
from tidelog.shell.store.write_lock_holder import Process, StuckWriter, this_process
from tidelog.shell.store.write_transaction import WriteTransaction

Answer = TypeVar("Answer")
_BLOCKED_MS = 1_000
"""Blocked for as long as this, sessions that ran out meanwhile get their time anew."""


class StoreBusy(Exception):
    """Others kept the file for as long as we could wait; nothing was done."""


class CommitUnknown(Exception):
    """The commit failed half-way: it may or may not be in the file."""


class SqliteStore:
    """One client's connection. All of it belongs to one thread."""

    def __init__(
        self,
        path: str,
        lock_path: str,
        port: int,
        stuck_after_ms: int,
        report: Callable[[str], None],
    ) -> None:
        self._path = path
        self._lock_path = lock_path
        self._port = port
        self._boot_id = boot_id()
        self._process = this_process()
        self._connection: sqlite3.Connection | None = None
        self._inode: tuple[int, int] | None = None
        self._client: int | None = None
        self._clients: list[Process] = []
        self._stuck = StuckWriter(path, stuck_after_ms, report)
        self._version = -1
        self.blocked_ms: int | None = None
        """When a write first found the file taken, if none got through since."""
        self.to_wake: list[int] = []
        """Ports of the other clients, to be told of the last commit."""
        self.committed = False
        """Whether this client changed something; for the caller to put back."""

    # -- writing ---------------------------------------------------------------------------

    def write(self, give_up_s: float, body: Callable[[WriteTransaction], Answer]) -> Answer:
        """Run the body in a write transaction and commit what it changed."""
        connection = self._open()
        self._begin(connection, give_up_s)
        try:
            transaction = self._start(connection)
            before = transaction.rev
            answer = body(transaction)
            if self._client is None and self._port:
                self._client = transaction.register_client(
                    self._lock_path, identity_of(self._lock_path), self._port, *self._process
                )
            ports = transaction.peer_ports(self._client or 0) if transaction.rev != before else []
        except BaseException:
            self._drop()
            raise
        if transaction.changed:
            self._commit(connection)
            self.committed = True
        else:
            connection.execute("ROLLBACK")
        self.to_wake = ports
        return answer

    def _start(self, connection: sqlite3.Connection) -> WriteTransaction:
        now = boot_ms()
        spare = self.blocked_ms
        if spare is not None and now - spare < _BLOCKED_MS:
            spare = None
        self.blocked_ms = None
        self._stuck.over()
        return WriteTransaction(connection, now, self._boot_id, spare)

    def _begin(self, connection: sqlite3.Connection, give_up_s: float) -> None:
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not _is_busy(error):
                    self._drop()
                    raise
                if self.blocked_ms is None:
                    self.blocked_ms = boot_ms()
            else:
                return
            if time.monotonic() >= give_up_s:
                self._look_at_holder(connection)
                raise StoreBusy

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._drop()
            raise CommitUnknown from error

    def _look_at_holder(self, connection: sqlite3.Connection) -> None:
        with suppress(sqlite3.Error):  # readers are not blocked, unless by a recovery
            rows = connection.execute("SELECT pid, started FROM client").fetchall()
            self._clients = [Process(pid, started) for pid, started in rows]
        self._stuck.look(time.monotonic(), self._data_version(connection), self._clients)

    # -- reading ---------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Every key, as of one revision."""
        connection = self._open()
        try:
            connection.execute("BEGIN")
            (rev,) = connection.execute("SELECT rev FROM meta").fetchone()
            rows = connection.execute(
                "SELECT k, v, create_rev, mod_rev, session FROM kv ORDER BY k"
            )
            kvs = tuple(map(KV._make, rows))
            connection.execute("COMMIT")
        except sqlite3.Error:
            self._drop()
            raise
        return Snapshot(kvs, rev)

    def changes_after(self, after: Revision) -> list[Batch] | Compacted:
        """Whole revisions, in order."""
        connection = self._open()
        try:
            connection.execute("BEGIN")
            (compacted,) = connection.execute("SELECT compacted FROM meta").fetchone()
            rows = connection.execute(
                "SELECT rev, k, v, create_rev, session FROM ev WHERE rev > ? ORDER BY rev, n",
                (after,),
            ).fetchall()
            connection.execute("COMMIT")
        except sqlite3.Error:
            self._drop()
            raise
        if after < compacted:
            return Compacted(compacted)
        return [
            Batch(rev, tuple(_change(*row) for row in changes))
            for rev, changes in groupby(rows, key=lambda row: row[0])
        ]

    def changed_by_others(self) -> bool:
        """Whether another connection committed since this was last asked."""
        version = self._data_version(self._open())
        changed = version != self._version
        self._version = version
        return changed

    def next_expiry_ms(self) -> int | None:
        """When the next session runs out, if nobody renews it."""
        (expires,) = self._open().execute("SELECT min(expires) FROM sess").fetchone()
        return None if expires is None else int(expires)

    def dead_sessions(self) -> list[SessionId]:
        """Sessions of others whose lock is free: their brokers are dead."""
        rows = self._open().execute(
            "SELECT id, lock, lock_identity FROM sess WHERE lock NOT IN ('', ?)",
            (self._lock_path,),
        )
        return [session for session, *lock in rows.fetchall() if is_abandoned(*lock)]

    # -- the connection --------------------------------------------------------------------

    def close(self) -> None:
        """Take our name off the list of clients, if the file is free, and close it."""
        if self._connection is not None and self._client is not None:
            client = self._client
            with suppress(StoreBusy, CommitUnknown, sqlite3.Error, OSError):
                self.write(time.monotonic(), lambda tx: tx.forget_client(client))
        self._drop()

    def _open(self) -> sqlite3.Connection:
        """The connection, if the file still is the one that this client began with."""
        stat = os.stat(self._path)
        inode = (stat.st_dev, stat.st_ino)
        if self._inode not in (None, inode):
            self._drop()
            raise StoreUnusable(f"metadata store {self._path} was replaced; restart the broker")
        if self._connection is None:
            cluster_file.check(self._path)
            self._connection = cluster_file.connect(self._path)
            self._inode = inode
            self._client = None
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
            self._version = -1

    @staticmethod
    def _data_version(connection: sqlite3.Connection) -> int:
        try:
            (version,) = connection.execute("PRAGMA data_version").fetchone()
        except sqlite3.OperationalError:
            return -1
        return int(version)


def _change(rev: int, key: str, value: bytes | None, create_rev: int, session: int) -> Change:
    if value is None:
        return Change(key, None)
    return Change(key, KV(key, value, create_rev, rev, session))


def _is_busy(error: sqlite3.Error) -> bool:
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
