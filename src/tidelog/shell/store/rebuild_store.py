"""Rebuild a metadata store that is lost, damaged or too old from the brokers' log directories.

Invariants: no broker of these log directories runs meanwhile; the old files are kept under other
names; the log directories are only read.
"""

import json
import os
import sqlite3
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import chain, count
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.metadata_copy import decode_copy
from tidelog.core.controller.metadata.metadata_store import Revision, Snapshot
from tidelog.core.controller.metadata.rebuilding import (
    Base,
    FoundBroker,
    FoundLog,
    Rebuilt,
    rebuild,
)
from tidelog.core.storage import checkpoint, layout
from tidelog.core.storage.checkpoint import CheckpointError, MetaProperties
from tidelog.core.storage.disk import Disk, DiskError, read_file
from tidelog.core.storage.log_directory import METADATA_TOPIC
from tidelog.core.storage.segment.batch_scan import InvalidBatch, whole_batches
from tidelog.core.types import BrokerId, Offset, TopicPartition
from tidelog.shell.os_disk import OsDisk
from tidelog.shell.store import cluster_file
from tidelog.shell.store.log_dir_lock import LogDirInUse, LogDirLock
from tidelog.shell.store.store_backend import (
    IDENTITY_KEY,
    NO_ACCESS,
    StoreAccess,
    StoreError,
    StoreMissing,
    StoreUnusable,
    is_etcd,
    new_identity,
    parse_identity,
)

FILE_SUFFIXES = ("", "-wal", "-shm")
"""The suffixes of one store's files."""


class FoundDirectory(NamedTuple):
    """One log directory that was read."""

    path: str
    cluster_id: str
    broker: FoundBroker
    remarks: tuple[str, ...]
    directory_id: str = ""


class Outcome(NamedTuple):
    """The result of a rebuild, or its plan."""

    store: str
    cluster_id: str
    directories: list[FoundDirectory]
    rebuilt: Rebuilt
    remarks: list[str]
    moved: list[str]
    """The new paths of the old files."""


def replace_store(
    store: str,
    paths: list[str],
    backup: str | None = None,
    *,
    plan: bool = False,
    access: StoreAccess = NO_ACCESS,
    lost: Collection[BrokerId] = (),
    no_others: bool = False,
) -> Outcome:
    """Rebuild the store from log directories, based on a backup or on the store in place.

    `store` is a path or a URL of etcd. `plan`: only report what would be written. `lost`: brokers
    without a log directory, which may have records that no other broker has. `no_others`: if
    neither the store nor the directories list the brokers, these are all. Raises StoreError.
    """
    paths = [os.path.abspath(path) for path in paths]
    if not paths and not is_etcd(store):
        paths = log_directories(store)
    if not paths:
        raise StoreUnusable(
            f"no broker's folder found beside {store}; name the log directories with --log-dir"
        )
    with locked(paths):
        directories = read_directories(paths)
        cluster_id = directories[0].cluster_id
        base, remarks = _base(store, backup, cluster_id, access)
        if is_etcd(store):
            _check_complete(base, [one.broker for one in directories], lost, no_others=no_others)
        rebuilt = rebuild([one.broker for one in directories], base)
        remarks += [text for one in directories for text in one.remarks]
        remarks += rebuilt.remarks
        moved: list[str] = []
        if not plan:
            keys = {IDENTITY_KEY: new_identity(cluster_id), **rebuilt.keys}
            if is_etcd(store):
                from tidelog.shell.store.cluster_secret import without_secret

                keys[IDENTITY_KEY] = without_secret(keys[IDENTITY_KEY], access.secret_file)
                aside = os.path.dirname(paths[0])
                revision = _put_in_etcd(store, keys, rebuilt.revision, access, aside, moved)
                rebuilt = rebuilt._replace(revision=revision)
            else:
                moved = _put_in_place(store, keys, rebuilt.revision)
    return Outcome(store, cluster_id, directories, rebuilt, remarks, moved)


@contextmanager
def locked(paths: list[str]) -> Iterator[None]:
    """Lock log directories, so that no broker runs on them. Raises StoreUnusable."""
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


def _base(
    store: str, backup: str | None, cluster_id: str, access: StoreAccess
) -> tuple[Base | None, list[str]]:
    """The base's keys, with remarks for the operator."""
    if backup is not None:
        base = read_copy(backup)
        if (found := _cluster_of(base)) != cluster_id:
            raise StoreUnusable(
                f"{backup} belongs to cluster {found}, but the log directories to {cluster_id};"
                " choose a backup of this cluster"
            )
        return base, []
    if not is_etcd(store) and not os.path.exists(store):
        return None, [f"{store} does not exist: using only the folders"]
    try:
        base = _read_etcd(store, access) if is_etcd(store) else read_copy(store)
    except StoreMissing as error:
        return None, [f"{str(error).partition(';')[0]}: using only the folders"]
    except StoreError as error:
        return None, [f"{error}; using only the folders"]
    if (found := _cluster_of(base)) != cluster_id:
        return None, [f"{store} belongs to another cluster ({found}): using only the folders"]
    return base, []


def _check_complete(
    base: Base | None, found: list[FoundBroker], lost: Collection[BrokerId], *, no_others: bool
) -> None:
    """Raise StoreUnusable unless every broker with replicas is known: the log directories are on
    several machines, and a leader that is chosen from some of them may lack acknowledged records.
    """
    needed = _brokers_of(base, found)
    if needed is None and not no_others:
        raise StoreUnusable(
            "neither the store nor the log directories tell which brokers exist; without the log"
            " directories of all of them acknowledged records may be lost: name all with --log-dir,"
            " and say with --no-other-brokers that no others exist"
        )
    known = {one.broker for one in found} | set(lost)
    if missing := sorted((needed or set()) - known):
        names = ", ".join(map(str, missing))
        raise StoreUnusable(
            f"the log directories of these brokers are needed too, else acknowledged records may be"
            f" lost: {names}; copy or mount them from their machines and name them with --log-dir,"
            " or name brokers that were removed or are lost for good with --lost-broker"
        )


def _brokers_of(base: Base | None, found: list[FoundBroker]) -> set[BrokerId] | None:
    """Return the brokers that may have replicas: those of the base's partitions, and those of the
    newest copy of the metadata if it is newer than the base. None if neither lists them."""
    needed: set[BrokerId] | None = None
    if base is not None:
        image = ClusterImage()
        image.load(base.snapshot)
        needed = {broker for one in image.partitions.values() for broker in one.replicas}
    copies = [one.copy for one in found if one.copy is not None and one.copy.brokers is not None]
    newest = max(copies, key=lambda copy: copy.revision, default=None)
    if newest is not None and (base is None or newest.revision > base.snapshot.rev):
        needed = (needed or set()).union(newest.brokers or ())
    return needed


def _cluster_of(base: Base) -> str:
    keys = base.snapshot.kvs
    identity = next((kv.value for kv in keys if kv.key == IDENTITY_KEY), None)
    return "none" if identity is None else parse_identity(identity).cluster_id


def read_copy(path: str) -> Base:
    """Read a store and its history from a copy of its files, because reading changes them."""
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


def _read_etcd(store: str, access: StoreAccess) -> Base:
    from tidelog.shell.store.etcd import store_admin

    return store_admin.read_base(store, access)


def _put_in_etcd(
    store: str,
    keys: dict[str, bytes],
    rev: Revision,
    access: StoreAccess,
    folder: str,
    moved: list[str],
) -> Revision:
    """Replace the contents; the old ones are kept in a file in `folder`. Return the revision."""
    from tidelog.shell.store.etcd import store_admin

    store_admin.check_unused(store, access)
    aside = ""
    if store_admin.exists(store, access):
        aside = _free_path(
            os.path.join(folder, f"etcd-store.replaced-{time.strftime('%Y%m%dT%H%M%S')}")
        )
        store_admin.backup(store, aside, access)
        moved.append(aside)
    try:
        return store_admin.replace(store, keys, rev, access, aside)
    except StoreError as error:
        if aside:
            raise StoreUnusable(f"{error}; the earlier contents are kept in {aside}") from error
        raise


def _free_path(stem: str) -> str:
    """Return a path of a file that does not exist yet: two runs may be within one second."""
    paths = chain([f"{stem}.db"], (f"{stem}-{number}.db" for number in count(2)))
    return next(path for path in paths if not os.path.exists(path))


def _put_in_place(store: str, keys: dict[str, bytes], rev: Revision) -> list[str]:
    stamp = time.strftime("%Y%m%dT%H%M%S")
    moved = []
    try:
        for suffix in FILE_SUFFIXES:
            if os.path.exists(store + suffix):
                aside = f"{store}.replaced-{stamp}{suffix}"
                os.rename(store + suffix, aside)
                moved.append(aside)
        cluster_file.create(store, keys, rev)
    except (OSError, sqlite3.Error) as error:
        raise cluster_file.unusable(store, error) from error
    return moved


def read_directories(paths: list[str]) -> list[FoundDirectory]:
    """Read log directories of one cluster; those of one broker are joined. Raises StoreUnusable.

    A log's end is the end of its last valid batch, as in recovery.
    """
    found = [_read(path) for path in paths]
    clusters = sorted({one.cluster_id for one in found})
    if len(clusters) != 1:
        raise StoreUnusable(
            f"the log directories belong to {len(clusters)} clusters ({', '.join(clusters)});"
            " name those of one cluster"
        )
    joined: dict[int, FoundDirectory] = {}
    for one in found:
        known = joined.get(one.broker.broker)
        joined[one.broker.broker] = one if known is None else _join(known, one)
    return list(joined.values())


def _join(one: FoundDirectory, other: FoundDirectory) -> FoundDirectory:
    """Join two log directories of a broker. Raises StoreUnusable if a partition is in both."""
    left, right = one.broker, other.broker
    both = {log.partition for log in left.logs} & {log.partition for log in right.logs}
    if one.directory_id == other.directory_id or both:
        raise StoreUnusable(
            f"two of the log directories, {one.path} and {other.path}, have the same logs of broker"
            f" {left.broker}; name one of them"
        )
    seen = max(left.seen, right.seen, key=lambda point: -1 if point is None else point.revision)
    copies = [copy for copy in (left.copy, right.copy) if copy is not None]
    copies.sort(key=lambda copy: -copy.revision)
    broker = left._replace(
        seen=seen,
        clean_epoch=left.clean_epoch if left.clean_epoch == right.clean_epoch else None,
        copy=copies[0] if copies else None,
        logs=left.logs + right.logs,
    )
    remarks = one.remarks + other.remarks
    return one._replace(path=f"{one.path},{other.path}", broker=broker, remarks=remarks)


def _read(path: str) -> FoundDirectory:
    disk = OsDisk(path)
    try:
        properties = checkpoint.read_properties(disk)
        if properties is None:
            raise StoreUnusable(
                f"{path} is not a log directory: {layout.META_PROPERTIES} is missing"
            )
        return _read_known(path, disk, properties)
    except (CheckpointError, DiskError, KeyError, ValueError) as error:
        raise StoreUnusable(f"{path} can't be read: {error}") from error
    finally:
        disk.close()


def _read_known(path: str, disk: Disk, properties: MetaProperties) -> FoundDirectory:
    broker = int(properties.values["node.id"])
    revision = checkpoint.read_revision(disk)
    remarks = []
    if revision is None:
        remarks.append(f"broker {broker}: {layout.METADATA_REVISION} is damaged and not used")
    seen = revision.seen if revision is not None else None
    marks, warnings = checkpoint.read_offsets(disk, layout.HIGH_WATERMARKS)
    remarks += [f"broker {broker}: {warning}" for warning in warnings]
    logs = []
    for name in disk.list_dir(""):
        partition = layout.parse_dir(name)
        if partition is None or partition.topic == METADATA_TOPIC or not disk.is_dir(name):
            continue
        log = _log(disk, name, partition, marks.get(partition, 0))
        if log is None:
            remarks.append(f"broker {broker}: {name} has no topic id; left out")
        else:
            logs.append(log)
    copy = decode_copy(read_file(disk, layout.METADATA_COPY) or b"")
    found = FoundBroker(broker, seen, _clean_epoch(disk), copy, tuple(logs))
    directory_id = properties.values.get("directory.id", path)
    return FoundDirectory(
        path, properties.values["cluster.id"], found, tuple(remarks), directory_id
    )


def _clean_epoch(disk: Disk) -> int | None:
    data = read_file(disk, layout.CLEAN_SHUTDOWN)
    try:
        return None if data is None else int(json.loads(data)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return None


def _log(disk: Disk, name: str, partition: TopicPartition, mark: Offset) -> FoundLog | None:
    metadata = read_file(disk, f"{name}/{layout.PARTITION_METADATA}")
    if metadata is None:
        return None
    topic_id = checkpoint.parse_topic_metadata(name, metadata)
    epochs = checkpoint.read_epochs(disk, f"{name}/{layout.LEADER_EPOCHS}") or []
    epoch = max([entry.epoch for entry in epochs], default=-1)
    end, batch_epoch, producer_id = _tail(disk, name)
    return FoundLog(partition, topic_id, max(epoch, batch_epoch), end, mark, producer_id)


def _tail(disk: Disk, folder: str) -> tuple[Offset, int, int]:
    """Log end, last leader epoch and highest producer id, from the last segment with batches."""
    names = [layout.parse_file(name) for name in disk.list_dir(folder)]
    bases = sorted(
        (n.base_offset for n in names if n is not None and n.kind == layout.LOG and not n.suffix),
        reverse=True,
    )
    end, epoch, producer_id = (bases[0] if bases else 0), -1, -1
    for base in bases:
        path = f"{folder}/{layout.file_name(base, layout.LOG)}"
        found = False
        try:
            for batch in whole_batches(disk, path, 0, disk.size(path), check_crc=True):
                found = True
                end, epoch = batch.last_offset + 1, batch.leader_epoch
                producer_id = max(producer_id, batch.producer_id)
        except InvalidBatch:
            pass  # an incomplete batch at the end: recovery truncates it
        if found:
            break
    return end, epoch, producer_id


def log_directories(store: str) -> list[str]:
    """The log directories beside a store in a cluster's data folder, and on its further disks."""
    data = os.path.dirname(os.path.abspath(store))
    paths = []
    for folder in (data, *cluster_file.disks(data)):
        try:
            names = sorted(os.listdir(folder))
        except OSError as error:
            raise StoreUnusable(f"can't read {folder}: {error.strerror}") from error
        paths += [os.path.join(folder, name) for name in names if name.startswith("broker-")]
    return [p for p in paths if os.path.isfile(os.path.join(p, layout.META_PROPERTIES))]
