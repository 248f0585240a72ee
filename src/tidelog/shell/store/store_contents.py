"""Read a store's file for `tidelog store show`, also while brokers use it.

Invariants: nothing is written, the contents are of one revision, and secrets are left out.
"""

import sqlite3
import time
from contextlib import closing
from typing import NamedTuple

from tidelog.core.controller.metadata.metadata_store import KV, Revision, SessionId
from tidelog.shell.clock import boot_id, boot_ms
from tidelog.shell.store.cluster_file import (
    SCHEMA_VERSION,
    check,
    connect,
    reason,
)
from tidelog.shell.store.log_dir_lock import is_abandoned
from tidelog.shell.store.store_backend import IDENTITY_KEY, StoreUnusable

_PATIENCE_S = 2.0
_SECRET_KEYS = (IDENTITY_KEY, "user/")


class SessionState(NamedTuple):
    """A session: its broker's lock file, and the time left without a renewal."""

    session: SessionId
    ttl_ms: int
    left_ms: int
    lock: str
    proved_dead: bool


class StoreContents(NamedTuple):
    """A store as of one revision."""

    format: int
    rev: Revision
    compacted: Revision | None
    """Watches can start after it; None if the store does not say."""
    kvs: tuple[KV, ...]
    sessions: tuple[SessionState, ...]


def read_contents(path: str) -> StoreContents:
    """Read everything in the store; values with secrets are empty."""
    try:
        check(path)
        with closing(connect(path, time.monotonic() + _PATIENCE_S)) as connection:
            connection.execute("BEGIN")
            return _read(connection)
    except (OSError, sqlite3.Error) as error:
        raise StoreUnusable(f"metadata store {path} can't be read: {reason(error)}") from error


def is_secret(key: str) -> bool:
    """Whether the key's value is a secret."""
    return key.startswith(_SECRET_KEYS)


def _read(connection: sqlite3.Connection) -> StoreContents:
    rev, compacted, boot = connection.execute("SELECT rev, compacted, boot_id FROM meta").fetchone()
    rows = connection.execute("SELECT k, v, create_rev, mod_rev, session FROM kv ORDER BY k")
    kvs = tuple(kv._replace(value=b"") if is_secret(kv.key) else kv for kv in map(KV._make, rows))
    now = boot_ms() if boot == boot_id() else None
    sessions = tuple(
        SessionState(
            session,
            ttl,
            0 if now is None else max(0, expires - now),
            lock,
            now is None or is_abandoned(lock, identity),
        )
        for session, ttl, expires, lock, identity in connection.execute(
            "SELECT id, ttl, expires, lock, lock_identity FROM sess ORDER BY id"
        )
    )
    return StoreContents(SCHEMA_VERSION, rev, compacted, kvs, sessions)
