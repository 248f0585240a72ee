"""The SQLite file of a metadata store: create, check, open, upgrade and copy it.

Invariants: the file appears complete, with the cluster's identity, or not at all, however many
brokers start at the same moment. A file of another program or of a newer Tidelog is not changed.
While SQLite has the file open in this process, nothing else opens it: closing any descriptor of
the file would release SQLite's locks.
"""

import os
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import TypeVar

from tidelog.core.controller.metadata.history import NO_CHECKSUM, WAY_OUT, chained, row_checksum
from tidelog.core.controller.metadata.metadata_store import KV, NO_SESSION, Revision
from tidelog.shell.store.store_backend import (
    IDENTITY_KEY,
    ClusterIdentity,
    NotAStore,
    StoreDamaged,
    StoreError,
    StoreMissing,
    StoreTooNew,
    StoreUnusable,
    new_identity,
    parse_identity,
)

Answer = TypeVar("Answer")
DISKS = "log-dirs"
"""The file beside the store with the folders of further disks."""
_PAST = "CREATE TABLE past (rev INTEGER PRIMARY KEY, checksum INTEGER NOT NULL)"
UPGRADES: tuple[tuple[str, ...], ...] = (
    (
        "ALTER TABLE kv ADD COLUMN checksum INTEGER",
        f"ALTER TABLE meta ADD COLUMN checksum INTEGER NOT NULL DEFAULT {NO_CHECKSUM}",
        _PAST,
    ),
)
"""The statements that upgrade format 1 to 2, format 2 to 3, and so on."""
SCHEMA_VERSION = 1 + len(UPGRADES)

_PAUSE_S, _PAUSE_GROWTH, _PAUSE_MAX_S = 0.0005, 1.2, 0.02
"""Pauses between attempts. SQLite's own grow so fast that a busy writer starves the others."""
_PATIENCE_S = 2.0
_APPLICATION_ID = 0x54494445  # "TIDE"
_MAGIC = b"SQLite format 3\0"
_VERSION_AT, _APPLICATION_AT, _HEADER_BYTES = 60, 68, 100
_SCHEMA = f"""
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
CREATE TABLE kv (
    k TEXT PRIMARY KEY, v BLOB NOT NULL, create_rev INTEGER NOT NULL,
    mod_rev INTEGER NOT NULL, session INTEGER NOT NULL, checksum INTEGER
) WITHOUT ROWID;
CREATE INDEX kv_of_session ON kv (session) WHERE session != {NO_SESSION};
CREATE TABLE ev (
    rev INTEGER NOT NULL, n INTEGER NOT NULL, k TEXT NOT NULL, v BLOB, create_rev INTEGER,
    session INTEGER, PRIMARY KEY (rev, n)
) WITHOUT ROWID;
CREATE TABLE meta (
    rev INTEGER NOT NULL, compacted INTEGER NOT NULL, boot_id TEXT NOT NULL,
    checksum INTEGER NOT NULL
);
INSERT INTO meta VALUES (0, 0, '', {NO_CHECKSUM});
{_PAST};
CREATE TABLE sess (
    id INTEGER PRIMARY KEY AUTOINCREMENT, ttl INTEGER NOT NULL, expires INTEGER NOT NULL,
    lock TEXT NOT NULL, lock_identity TEXT NOT NULL
);
CREATE TABLE client (
    id INTEGER PRIMARY KEY AUTOINCREMENT, lock TEXT NOT NULL, lock_identity TEXT NOT NULL,
    port INTEGER NOT NULL, pid INTEGER NOT NULL, started TEXT NOT NULL
);
"""
KV_COLUMNS = "k, v, create_rev, mod_rev, session, checksum"
"""The columns of a key, in the order of `checked_kv`."""
_known: set[tuple[int, int]] = set()
"""Files that this process has checked and may have open."""


def prepare(path: str, cluster_id: str | None = None) -> ClusterIdentity:
    """Create the store if it is missing, else check it; return its identity.

    `cluster_id`: the cluster whose data the caller holds. Its store is never recreated: a
    missing one is refused.
    """
    try:
        if not os.path.exists(path):
            if cluster_id is not None:
                raise StoreMissing(
                    f"metadata store {path} is missing, but data of cluster {cluster_id} exists;"
                    f" {WAY_OUT}"
                )
            _make_folder(path)
            create(path, {IDENTITY_KEY: new_identity()})
        check(path)
        with closing(connect(path, time.monotonic() + _PATIENCE_S)) as connection:
            _check_whole(connection)
            _check_writable(connection)
            _upgrade(connection)
            kvs = read_keys(connection)
    except (OSError, sqlite3.Error) as error:
        raise unusable(path, error) from error
    except StoreDamaged as error:
        raise StoreDamaged(f"metadata store {path} is damaged: {error}; {WAY_OUT}") from error
    found = next((kv.value for kv in kvs if kv.key == IDENTITY_KEY), None)
    if found is None:
        raise NotAStore(f"metadata store {path} names no cluster; {WAY_OUT}")
    return parse_identity(found)


def read_keys(connection: sqlite3.Connection) -> tuple[KV, ...]:
    """Every key, sorted. Raises StoreDamaged if one does not match its checksum."""
    rows = connection.execute(f"SELECT {KV_COLUMNS} FROM kv ORDER BY k")
    return tuple(checked_kv(*row) for row in rows)


def unusable(path: str, error: OSError | sqlite3.Error) -> StoreError:
    """The error for a failing store: the cause and what to do."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreDamaged(f"metadata store {path} is damaged: {reason(error)}; {WAY_OUT}")
    return StoreUnusable(f"metadata store {path} can't be used: {reason(error)}")


def check(path: str) -> None:
    """Check that a file is a metadata store, without changing it. Raises NotAStore, StoreTooNew."""
    stat = os.stat(path)
    if (stat.st_dev, stat.st_ino) in _known:
        return
    with open(path, "rb") as file:
        header = file.read(_HEADER_BYTES)
    if (
        not header.startswith(_MAGIC)
        or int.from_bytes(header[_APPLICATION_AT : _APPLICATION_AT + 4], "big") != _APPLICATION_ID
    ):
        raise NotAStore(
            f"{path} is not a Tidelog metadata store, or its first page is damaged; if it was"
            f" one, {WAY_OUT}; else choose another path"
        )
    version = int.from_bytes(header[_VERSION_AT : _VERSION_AT + 4], "big")
    if version > SCHEMA_VERSION:
        raise StoreTooNew(
            f"metadata store {path} has format {version}, this Tidelog supports up to"
            f" {SCHEMA_VERSION}; use the Tidelog that wrote it, or a newer one"
        )
    _known.add((stat.st_dev, stat.st_ino))


def connect(path: str, give_up_s: float) -> sqlite3.Connection:
    """Connect to a store that was checked. Never creates the file."""
    return retry_while_busy(give_up_s, lambda: _connect(path))


def retry_while_busy(give_up_s: float, act: Callable[[], Answer]) -> Answer:
    """Call `act`; retry while another process has the file locked."""
    pause_s = _PAUSE_S
    while True:
        try:
            return act()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= give_up_s:
                raise
        time.sleep(pause_s)
        pause_s = min(_PAUSE_MAX_S, pause_s * _PAUSE_GROWTH)


def is_busy(error: sqlite3.Error) -> bool:
    """Whether the error only means that another process has the file locked."""
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{_quoted(os.path.abspath(path))}?mode=rw",
        uri=True,
        timeout=0,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        if connection.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
            raise StoreUnusable(
                f"metadata store {path} is on a file system that processes can't share;"
                " put it on a local disk"
            )
        connection.execute("PRAGMA synchronous = FULL")
        if sys.platform == "darwin":
            connection.execute("PRAGMA fullfsync = 1")
    except BaseException:
        connection.close()
        raise
    return connection


def create(path: str, keys: dict[str, bytes], rev: Revision = 1) -> None:
    """Create a store with these keys at one revision, unless another process just did."""
    draft = f"{path}.{os.getpid()}.{os.urandom(4).hex()}.new"
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    try:
        with closing(_plain(draft)) as connection:
            connection.executescript(_SCHEMA)
            connection.execute("BEGIN")
            if keys:
                _fill(connection, {k: KV(k, v, rev, rev) for k, v in keys.items()}, rev)
            connection.execute("COMMIT")
            connection.execute("PRAGMA journal_mode = WAL")
        _sync(draft)
        _publish(draft, path)
        _sync(os.path.dirname(os.path.abspath(path)))
    finally:
        _discard(draft)


def create_new(path: str, keys: dict[str, bytes], rev: Revision) -> None:
    """Create a store with these keys at one revision; raises StoreUnusable if the file exists."""
    if os.path.exists(path):
        raise StoreUnusable(f"{path} exists already; choose another name")
    try:
        create(path, keys, rev)
    except (OSError, sqlite3.Error) as error:
        raise StoreUnusable(f"can't create {path}: {reason(error)}") from error


def _fill(connection: sqlite3.Connection, kvs: dict[str, KV], rev: Revision) -> None:
    rows = [(*kv, row_checksum(kv)) for kv in kvs.values()]
    connection.executemany("INSERT INTO kv VALUES (?, ?, ?, ?, ?, ?)", rows)
    changes = [(rev, n, kv.key, kv.value, rev, NO_SESSION) for n, kv in enumerate(kvs.values())]
    connection.executemany("INSERT INTO ev VALUES (?, ?, ?, ?, ?, ?)", changes)
    checksum = chained(NO_CHECKSUM, rev, kvs.items())
    connection.execute("INSERT INTO past VALUES (?, ?)", (rev, checksum))
    connection.execute(
        "UPDATE meta SET rev = ?, compacted = ?, checksum = ?", (rev, rev - 1, checksum)
    )


def backup(path: str, target: str) -> None:
    """Copy the store as of one revision to a new file, also while brokers use it."""
    if os.path.exists(target):
        raise StoreUnusable(f"{target} exists already; choose another name for the backup")
    draft = f"{target}.{os.getpid()}.new"
    try:
        check(path)
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        try:
            give_up_s = time.monotonic() + _PATIENCE_S
            with closing(connect(path, give_up_s)) as store, closing(_plain(draft)) as copy:
                store.backup(copy)
            _sync(draft)
            _publish(draft, target)
            _sync(os.path.dirname(os.path.abspath(target)))
        finally:
            _discard(draft)
    except (OSError, sqlite3.Error) as error:
        raise StoreUnusable(f"can't back up {path} to {target}: {reason(error)}") from error


def _make_folder(path: str) -> None:
    os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o700, exist_ok=True)


def _publish(draft: str, path: str) -> None:
    """Give the finished file its name, unless the name exists."""
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    except OSError:
        # A file system without hard links: check the name, with a short race.
        if not os.path.exists(path):
            os.rename(draft, path)


def _discard(draft: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(draft)


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _check_whole(connection: sqlite3.Connection) -> None:
    """Run SQLite's check of the file. Raises StoreDamaged."""
    rows = retry_while_busy(
        time.monotonic() + _PATIENCE_S,
        lambda: connection.execute("PRAGMA quick_check(1)").fetchall(),
    )
    found = [str(line) for (line,) in rows]
    if found != ["ok"]:
        raise StoreDamaged(" ".join(" ".join(found).split()))


def checked_kv(
    key: str, value: bytes, create_rev: int, mod_rev: int, session: int, checksum: int | None
) -> KV:
    """One key from its row. Raises StoreDamaged if it does not match its checksum."""
    kv = KV(key, value, create_rev, mod_rev, session)
    if checksum is not None and checksum != row_checksum(kv):
        raise StoreDamaged(f"the key {key!r} does not match its checksum")
    return kv


def _check_writable(connection: sqlite3.Connection) -> None:
    """Write without a change: on a read-only file, BEGIN alone would succeed."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE meta SET rev = rev")
    except sqlite3.OperationalError as error:
        if not is_busy(error):  # busy: other brokers write, so the file is writable
            raise
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _upgrade(connection: sqlite3.Connection) -> None:
    """Upgrade an older format, unless another broker just did."""
    if _format(connection) == SCHEMA_VERSION:
        return
    retry_while_busy(time.monotonic() + _PATIENCE_S, lambda: connection.execute("BEGIN IMMEDIATE"))
    for statements in UPGRADES[_format(connection) - 1 :]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _format(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _plain(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def _quoted(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def reason(error: OSError | sqlite3.Error) -> str:
    """The system's message, in lower case for the end of a sentence."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error)


def disks(data: str) -> tuple[str, ...]:
    """The folders of further disks that are noted in the data folder, one in each line.

    Raises StoreUnusable if the list can't be read: a broker that starts without one of its log
    directories counts the logs in it as lost.
    """
    path = os.path.join(data, DISKS)
    try:
        with open(path, encoding="utf-8") as file:
            return tuple(line.strip() for line in file if line.strip())
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except (OSError, UnicodeDecodeError) as error:
        why = "not UTF-8" if isinstance(error, ValueError) else reason(error)
        raise StoreUnusable(
            f"can't read {path}, the list of the log directories on further disks: {why}; restore"
            " it with one folder in each line: without a log directory, its records count as lost"
        ) from error
