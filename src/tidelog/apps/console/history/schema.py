"""The file of the history store: tables, version, the lock of its writer.

One process writes; the lock file beside it says which. Others read the same file. A commit is
written to the operating system but not flushed to the disk: after a killed console the file is
whole, after a crash of the machine its last seconds may be missing.
"""

import fcntl
import os
import sqlite3
from contextlib import suppress

VERSION = 2
PAGE_BYTES = 4096
_BUSY_MS = 5_000
_TABLES = """
CREATE TABLE sample (at_ms INTEGER PRIMARY KEY);
CREATE TABLE cluster (at_ms INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE broker (
    broker INTEGER, at_ms INTEGER, body BLOB, PRIMARY KEY (broker, at_ms)
) WITHOUT ROWID;
CREATE TABLE partition (
    id INTEGER PRIMARY KEY, topic TEXT NOT NULL, partition INTEGER NOT NULL,
    UNIQUE (topic, partition)
);
CREATE TABLE shape (
    id INTEGER PRIMARY KEY AUTOINCREMENT, hash BLOB NOT NULL UNIQUE, body BLOB NOT NULL
);
CREATE TABLE state (
    partition INTEGER, at_ms INTEGER, shape INTEGER, numbers BLOB,
    PRIMARY KEY (partition, at_ms)
) WITHOUT ROWID;
CREATE TABLE event (
    id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, partition INTEGER, body TEXT NOT NULL,
    of_group TEXT
);
CREATE TABLE group_sample (at_ms INTEGER PRIMARY KEY);
CREATE TABLE group_state (
    name TEXT, at_ms INTEGER, shape BLOB, numbers BLOB, PRIMARY KEY (name, at_ms)
) WITHOUT ROWID;
CREATE INDEX event_time ON event (at_ms);
CREATE INDEX event_partition ON event (partition, at_ms);
CREATE INDEX event_group ON event (of_group, at_ms) WHERE of_group IS NOT NULL;
"""
"""A row holds from its time until the next one of the same partition, broker or cluster.

`broker.body` is NULL while the broker does not respond; `state.shape` is NULL when the partition
was deleted. `group_state.shape` is NULL if it is the one of the row before, and `numbers` is NULL
when the group was deleted.
"""


class WriterLock:
    """Held by the console that writes a store, until it is closed or its process ends."""

    def __init__(self, path: str) -> None:
        self._path = path + ".lock"
        self._fd = -1
        self.problem = ""
        """Why the lock file can't be used; empty if it can."""

    def acquire(self) -> bool:
        """Take the lock; False if another process has it, or the folder can't be written."""
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self.problem = f"can't write {self._path}: {error.strerror}"
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        self._fd = fd
        return True

    def release(self) -> None:
        """Release the lock; the file stays."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def open_writer(path: str, max_bytes: int) -> sqlite3.Connection:
    """Open the store to write; a file of another version, or a damaged one, is replaced."""
    try:
        found = _open(path, max_bytes)
    except sqlite3.DatabaseError:
        found = None
    if found is not None:
        return found
    for suffix in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.remove(path + suffix)
    os.replace(path, path + ".old")
    found = _open(path, max_bytes)
    assert found is not None, "a new file has the version of this code"
    return found


def _open(path: str, max_bytes: int) -> sqlite3.Connection | None:
    """Return a connection, or None if the file has another version."""
    # SQLite gives its other files the mode of this one.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    db = sqlite3.connect(path, timeout=_BUSY_MS / 1000, check_same_thread=False)
    try:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if version != VERSION and (version or tables):
            db.close()
            return None
        if not tables:
            db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        wal_pages = max(16, min(1000, max_bytes // PAGE_BYTES // 20))
        db.execute(f"PRAGMA wal_autocheckpoint = {wal_pages}")
        db.execute(f"PRAGMA journal_size_limit = {wal_pages * PAGE_BYTES}")
        if not tables:
            db.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {VERSION}; COMMIT;")
        db.execute("SELECT count(*) FROM (SELECT 1 FROM state LIMIT 1)").fetchone()
    except sqlite3.DatabaseError:
        db.close()
        raise
    return db


def open_reader(path: str) -> sqlite3.Connection | None:
    """Open the store to read; None if there is none of this version."""
    if not os.path.exists(path):
        return None
    # The folder may not be writable; then the file is read without its shared memory.
    for more in ("mode=ro", "mode=ro&immutable=1"):
        try:
            db = sqlite3.connect(
                f"file:{_quoted(path)}?{more}",
                timeout=_BUSY_MS / 1000,
                uri=True,
                isolation_level=None,
                check_same_thread=False,
            )
            (version,) = db.execute("PRAGMA user_version").fetchone()
            db.execute("SELECT 1 FROM sqlite_master").fetchone()
        except sqlite3.DatabaseError:
            continue
        if version == VERSION:
            return db
        db.close()
        return None
    return None


def _quoted(path: str) -> str:
    from urllib.parse import quote

    return quote(os.path.abspath(path))


def used_bytes(db: sqlite3.Connection) -> int:
    """Return the bytes of all pages that hold data."""
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    (free,) = db.execute("PRAGMA freelist_count").fetchone()
    return int(pages - free) * PAGE_BYTES


def file_bytes(path: str) -> int:
    """Return the size of the store's files."""
    total = 0
    for suffix in ("", "-wal"):
        with suppress(OSError):
            total += os.path.getsize(path + suffix)
    return total
