"""Copy a stopped cluster's metadata store to a store of another kind or place.

Brokers compare a store's revision with the last one that they applied (ADR 34), and a broker epoch
is the revision of a registration. So the copy continues above the source's revisions, whatever the
target counts. Keys of sessions are left out: no broker runs.

Invariants: the source is only marked as moved, after the target is complete; then no broker starts
on it. A copy that was interrupted can be run again.
"""

import os
import time
from contextlib import ExitStack
from typing import NamedTuple

from tidelog.core.controller.metadata.metadata_store import NO_SESSION, Revision
from tidelog.core.controller.metadata.rebuilding import Base
from tidelog.shell.store import cluster_file
from tidelog.shell.store.rebuild_store import FILE_SUFFIXES, locked, log_directories, read_copy
from tidelog.shell.store.store_backend import (
    IDENTITY_KEY,
    StoreAccess,
    StoreMissing,
    StoreUnusable,
    is_etcd,
    parse_identity,
)
from tidelog.shell.store.store_contents import read_contents


class CopyOutcome(NamedTuple):
    """The result of a copy."""

    cluster_id: str
    keys: int
    revision: Revision
    kept: list[str]
    """Where the source is now."""


def copy_store(source: str, target: str, access: StoreAccess) -> CopyOutcome:
    """Copy a store and mark the source as moved. Places are paths or URLs. Raises StoreError."""
    with ExitStack() as stack:
        if not is_etcd(source):
            if not os.path.exists(source):
                raise StoreMissing(f"metadata store {source} does not exist")
            stack.enter_context(locked(log_directories(source)))
        base = _read_unused(source, access)
        keys = {kv.key: kv.value for kv in base.snapshot.kvs if kv.session == NO_SESSION}
        identity = keys.get(IDENTITY_KEY)
        if identity is None:
            raise StoreUnusable(f"metadata store {source} names no cluster")
        if is_etcd(target):
            from tidelog.shell.store.cluster_secret import without_secret

            keys[IDENTITY_KEY] = without_secret(identity, access.secret_file)
        revision = _write(target, keys, base.snapshot.rev + 1, access)
        kept = _mark_moved(source, target, access)
    return CopyOutcome(parse_identity(identity).cluster_id, len(keys), revision, kept)


def read_base(place: str, access: StoreAccess) -> Base:
    """Read a store and its history from a path or URL. Raises StoreError."""
    if is_etcd(place):
        from tidelog.shell.store.etcd import store_admin

        return store_admin.read_base(place, access)
    return read_copy(place)


def _read_unused(source: str, access: StoreAccess) -> Base:
    if is_etcd(source):
        from tidelog.shell.store.etcd import store_admin

        store_admin.check_unused(source, access)
        return store_admin.read_base(source, access)
    used = [s for s in read_contents(source).sessions if s.left_ms and not s.proved_dead]
    if used:
        raise StoreUnusable(
            f"metadata store {source} is in use by {len(used)} sessions; stop all brokers first,"
            " and wait until the sessions of killed ones have ended"
        )
    return read_copy(source)


def _write(target: str, keys: dict[str, bytes], rev: Revision, access: StoreAccess) -> Revision:
    there = _found(target, access)
    if there is not None:
        found = {kv.key: kv.value for kv in there.snapshot.kvs}
        if found == keys and there.snapshot.rev >= rev:
            return there.snapshot.rev  # an earlier attempt was interrupted after the copy
        raise StoreUnusable(f"{target} has a metadata store already; choose another path or prefix")
    if is_etcd(target):
        from tidelog.shell.store.etcd import store_admin

        return store_admin.replace(target, keys, rev, access)
    cluster_file.create_new(target, keys, rev)
    return rev


def _found(target: str, access: StoreAccess) -> Base | None:
    if is_etcd(target):
        from tidelog.shell.store.etcd import store_admin

        there = store_admin.exists(target, access)
    else:
        there = os.path.exists(target)
    return read_base(target, access) if there else None


def _mark_moved(source: str, target: str, access: StoreAccess) -> list[str]:
    """A broker whose setting still names the source must not start on it."""
    if is_etcd(source):
        from tidelog.shell.store.etcd import store_admin

        store_admin.mark_moved(source, target, access)
        return [source]
    stamp = time.strftime("%Y%m%dT%H%M%S")
    kept = []
    for suffix in FILE_SUFFIXES:
        if os.path.exists(source + suffix):
            os.rename(source + suffix, f"{source}.moved-{stamp}{suffix}")
            kept.append(f"{source}.moved-{stamp}{suffix}")
    return kept
