"""One client's connection to the store's file, used by one thread.

Invariants: a write commits, or has certainly not happened, or raises `CommitUnknown`. No call waits
for other processes longer than its limit. After a failure that may have left the connection in an
unknown state, it is opened again. A file that was replaced or deleted is not used any more.
"""

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

from tidelog.core.controller.metadata.history import NO_CHECKSUM, WAY_OUT
from tidelog.core.controller.metadata.metadata_store import (
    KV,
    Batch,
    Change,
    Compacted,
    Revision,
    SessionId,
    Snapshot,
)
from tidelog.shell.clock import boot_id, boot_ms
from tidelog.shell.store import cluster_file
from tidelog.shell.store.cluster_file import is_busy, read_keys, retry_while_busy
from tidelog.shell.store.proof_of_death import LifeSign, ProofOfDeath
from tidelog.shell.store.store_backend import StoreUnusable
from tidelog.shell.store.write_lock_holder import Process, StuckWriter, this_process
from tidelog.shell.store.write_transaction import WriteTransaction

Answer = TypeVar("Answer")
_BLOCKED_MS = 1_000
"""After writes were blocked for this long, sessions that expired meanwhile are extended."""


class StoreBusy(Exception):
    """Other processes locked the file until the time limit; nothing was changed."""


class CommitUnknown(Exception):
    """The commit failed: the change may or may not be in the file."""


class SqliteStore:
    """One client's connection. Not thread-safe."""

    def __init__(
        self,
        path: str,
        proof: ProofOfDeath,
        port: int,
        stuck_after_ms: int,
        report: Callable[[str], None],
    ) -> None:
        self._path = os.path.abspath(path)
        self._proof = proof
        self._port = port
        self._boot_id = boot_id()
        self._process = this_process()
        self._connection: sqlite3.Connection | None = None
        self._inode: tuple[int, int] | None = None
        self._client: int | None = None
        self._clients: list[Process] = []
        self._stuck = StuckWriter(self._path, stuck_after_ms, report)
        self._version = -1
        self._seen: Revision = 0
        """The latest revision that this client saw."""
        self.blocked_ms: int | None = None
        """When a write first found the file locked, if no write succeeded since."""
        self.to_wake: list[int] = []
        """Ports of other clients that must be notified of the last commit."""
        self.committed = False
        """Whether this client changed something; the caller resets it."""

    @property
    def registered(self) -> bool:
        """Whether other clients know this client's wake-up port."""
        return self._client is not None

    # -- writing ---------------------------------------------------------------------------

    def write(self, give_up_s: float, body: Callable[[WriteTransaction], Answer]) -> Answer:
        """Run the body in a write transaction and commit its changes."""
        connection = self._open(give_up_s)
        self._begin(connection, give_up_s)
        try:
            transaction = self._start(connection)
            before = transaction.rev
            self._check_not_older(before)
            answer = body(transaction)
            if self._client is None:
                self._client = transaction.register_client(
                    *self._proof.own(), self._port, *self._process
                )
            ports = transaction.peer_ports(self._client) if transaction.rev != before else []
            if not transaction.changed:
                connection.execute("ROLLBACK")
                return answer
        except BaseException:
            self._drop()
            raise
        self._commit(connection)
        self.committed = True
        self.to_wake += ports
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
        def begin() -> None:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if is_busy(error):
                    self._note_blocked(connection)
                raise

        try:
            retry_while_busy(give_up_s, begin)
        except sqlite3.Error as error:
            if not is_busy(error):
                self._drop()
                raise
            raise StoreBusy from error

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._drop()
            raise CommitUnknown from error

    def _note_blocked(self, connection: sqlite3.Connection) -> None:
        if self.blocked_ms is None:
            self.blocked_ms = boot_ms()
        if not self._stuck.is_due(time.monotonic()):
            return
        with suppress(sqlite3.Error):  # readers are not blocked, unless by a recovery
            rows = connection.execute("SELECT pid, started FROM client").fetchall()
            self._clients = [Process(pid, started) for pid, started in rows]
        self._stuck.look(time.monotonic(), self._data_version(connection), self._clients)

    # -- reading ---------------------------------------------------------------------------

    def revision(self, give_up_s: float) -> Revision:
        """The latest revision."""
        rows = self._read(give_up_s, _fetch("SELECT rev FROM meta"))
        return int(rows[0][0])

    def snapshot(self, give_up_s: float, earlier: Revision = 0) -> Snapshot:
        """All keys at one revision, and the checksum of an earlier revision if known."""

        def take(connection: sqlite3.Connection) -> Snapshot:
            rev, checksum = connection.execute("SELECT rev, checksum FROM meta").fetchone()
            self._check_not_older(rev)
            sql = "SELECT checksum FROM past WHERE rev = ?"
            past = connection.execute(sql, (earlier,)).fetchone()
            return Snapshot(read_keys(connection), rev, checksum, past and past[0])

        return self._read(give_up_s, take)

    def _check_not_older(self, rev: Revision) -> None:
        """Detect that the file's contents were replaced under a running broker."""
        if rev < self._seen:
            raise StoreUnusable(
                f"metadata store {self._path} went back from revision {self._seen} to {rev} while"
                f" this broker used it; stop all brokers, then {WAY_OUT}"
            )
        self._seen = rev

    def changes_after(self, after: Revision, give_up_s: float) -> list[Batch] | Compacted:
        """The revisions after this one, in order."""

        def take(connection: sqlite3.Connection) -> tuple[Revision, list[Any], dict[int, int]]:
            rev, compacted = connection.execute("SELECT rev, compacted FROM meta").fetchone()
            self._check_not_older(rev)
            sql = "SELECT rev, k, v, create_rev, session FROM ev WHERE rev > ? ORDER BY rev, n"
            rows = connection.execute(sql, (after,)).fetchall()
            past = connection.execute("SELECT rev, checksum FROM past WHERE rev > ?", (after,))
            return compacted, rows, dict(past.fetchall())

        compacted, rows, past = self._read(give_up_s, take)
        if after < compacted:
            return Compacted(compacted)
        return [
            Batch(rev, tuple(_change(*row) for row in changes), past.get(rev, NO_CHECKSUM))
            for rev, changes in groupby(rows, key=itemgetter(0))
        ]

    def _read(self, give_up_s: float, take: Callable[[sqlite3.Connection], Answer]) -> Answer:
        """Run `take` in a read transaction."""
        connection = self._open(give_up_s)

        def read() -> Answer:
            connection.execute("BEGIN")
            try:
                return take(connection)
            finally:
                connection.execute("ROLLBACK")

        try:
            return retry_while_busy(give_up_s, read)
        except sqlite3.Error:
            self._drop()
            raise

    def changed_by_others(self) -> bool:
        """Whether another connection committed since the last call."""
        version = self._data_version(self._open(time.monotonic()))
        changed = version != self._version
        self._version = version
        return changed

    def next_expiry_ms(self) -> int | None:
        """When the next session expires unless it is renewed."""
        row = self._read(time.monotonic(), _fetch("SELECT min(expires) FROM sess"))[0]
        return None if row[0] is None else int(row[0])

    def dead(self) -> list[tuple[SessionId, str]]:
        """The sessions of brokers that are proved dead, with the place of the life sign."""
        sql = "SELECT id, lock, lock_identity FROM sess WHERE lock != ''"
        rows = self._read(time.monotonic(), _fetch(sql))
        is_dead = self._proof.is_dead
        return [(session, place) for session, place, file in rows if is_dead(LifeSign(place, file))]

    # -- the connection --------------------------------------------------------------------

    def close(self) -> None:
        """Remove this client from the list of clients, if the file is not locked, and close it."""
        if self._connection is not None and self._client is not None:
            client = self._client
            with suppress(StoreBusy, CommitUnknown, sqlite3.Error, OSError):
                self.write(time.monotonic(), lambda tx: tx.forget_client(client))
        self._drop()

    def _open(self, give_up_s: float) -> sqlite3.Connection:
        """The connection. Raises StoreUnusable if the file was replaced since the start."""
        stat = os.stat(self._path)
        inode = (stat.st_dev, stat.st_ino)
        if self._inode not in (None, inode):
            self._drop()
            raise StoreUnusable(f"metadata store {self._path} was replaced; restart the broker")
        if self._connection is None:
            cluster_file.check(self._path)
            self._connection = cluster_file.connect(self._path, give_up_s)
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


def _fetch(sql: str, *parameters: object) -> Callable[[sqlite3.Connection], list[Any]]:
    return lambda connection: connection.execute(sql, parameters).fetchall()
