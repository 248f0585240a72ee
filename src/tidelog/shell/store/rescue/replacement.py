"""Replace a store that is lost, damaged or too old.

Invariants: no broker of these log directories runs meanwhile; the old files are kept under other
names; the log directories are only read.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tidelog.core.controller.metadata.metadata_store import Snapshot
from tidelog.core.controller.metadata.rebuilding import Base, Rebuilt, rebuild
from tidelog.shell.store import cluster_file
from tidelog.shell.store.cluster_file import IDENTITY_KEY, StoreError, StoreUnusable
from tidelog.shell.store.log_dir_lock import LogDirInUse, LogDirLock
from tidelog.shell.store.rescue.found_folders import (
    FoundDirectory,
    log_directories,
    read_directories,
)

BESIDE = ("", "-wal", "-shm")
"""The files of one store."""


class Outcome(NamedTuple):
    """A store that was rebuilt, or would be."""

    store: str
    cluster_id: str
    directories: list[FoundDirectory]
    rebuilt: Rebuilt
    remarks: list[str]
    moved: list[str]
    """The new paths of the old files."""


def replace_store(
    store: str, paths: list[str], backup: str | None = None, *, plan: bool = False
) -> Outcome:
    """Rebuild the store from log directories, with a backup or what is in place as the base.

    `plan`: only say what would be written. Raises StoreError.
    """
    paths = [os.path.abspath(path) for path in paths] or log_directories(store)
    if not paths:
        raise StoreUnusable(
            f"no broker's folder found beside {store}; name the log directories with --log-dir"
        )
    with _locked(paths):
        directories = read_directories(paths)
        cluster_id = directories[0].cluster_id
        base, remarks = _base(store, backup, cluster_id)
        rebuilt = rebuild([one.broker for one in directories], base)
        remarks += [text for one in directories for text in one.remarks]
        remarks += rebuilt.remarks
        moved = [] if plan else _put_in_place(store, rebuilt, cluster_id)
    return Outcome(store, cluster_id, directories, rebuilt, remarks, moved)


@contextmanager
def _locked(paths: list[str]) -> Iterator[None]:
    with ExitStack() as stack:
        for path in paths:
            try:
                lock = LogDirLock.acquire(path)
            except LogDirInUse as error:
                raise StoreUnusable(f"{error}; stop all brokers first") from error
            except OSError as error:
                raise StoreUnusable(f"can't lock {path}: {error.strerror}") from error
            stack.callback(lock.release)
        yield


def _base(store: str, backup: str | None, cluster_id: str) -> tuple[Base | None, list[str]]:
    """The base's keys, with remarks for the operator."""
    if backup is not None:
        base = read_copy(backup)
        if (found := _cluster_of(base)) != cluster_id:
            raise StoreUnusable(f"{backup} belongs to cluster {found}, the folders to {cluster_id}")
        return base, []
    if not os.path.exists(store):
        return None, [f"{store} does not exist: using only the folders"]
    try:
        base = read_copy(store)
    except StoreError as error:
        return None, [f"{error}; using only the folders"]
    if (found := _cluster_of(base)) != cluster_id:
        return None, [f"{store} belongs to another cluster ({found}): using only the folders"]
    return base, []


def _cluster_of(base: Base) -> str:
    keys = base.snapshot.kvs
    identity = next((kv.value for kv in keys if kv.key == IDENTITY_KEY), None)
    return "none" if identity is None else cluster_file.parse_identity(identity).cluster_id


def read_copy(path: str) -> Base:
    """A store with its history, read from a copy of its files: reading changes them."""
    with TemporaryDirectory(prefix="tidelog-") as folder:
        copy = os.path.join(folder, "cluster.db")
        try:
            for suffix in ("", "-wal"):
                if os.path.exists(path + suffix):
                    copyfile(path + suffix, copy + suffix)
            cluster_file.prepare(copy)
            with closing(cluster_file.connect(copy, time.monotonic())) as connection:
                (rev,) = connection.execute("SELECT rev FROM meta").fetchone()
                past = connection.execute("SELECT rev, checksum FROM past").fetchall()
                return Base(Snapshot(cluster_file.read_keys(connection), rev), dict(past))
        except (StoreError, OSError, sqlite3.Error, ValueError, KeyError) as error:
            text = str(error).replace(copy, path).partition("; ")[0]
            raise StoreUnusable(f"{path} can't be read ({text})") from error


def _put_in_place(store: str, rebuilt: Rebuilt, cluster_id: str) -> list[str]:
    keys = {IDENTITY_KEY: cluster_file.new_identity(cluster_id), **rebuilt.keys}
    stamp = time.strftime("%Y%m%dT%H%M%S")
    moved = []
    try:
        for suffix in BESIDE:
            if os.path.exists(store + suffix):
                aside = f"{store}.replaced-{stamp}{suffix}"
                os.rename(store + suffix, aside)
                moved.append(aside)
        cluster_file.create(store, keys, rebuilt.revision)
    except (OSError, sqlite3.Error) as error:
        raise cluster_file.unusable(store, error) from error
    return moved
