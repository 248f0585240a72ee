"""Create a store on etcd, check it, and replace its contents.

Invariants: a store appears with the cluster's identity or not at all, however many brokers start at
the same moment. A store whose contents are being replaced is marked as incomplete until all of them
are there, and brokers refuse it.
"""

import os
import time
from collections.abc import Mapping
from typing import Any

from tidelog.core.controller.metadata.history import NO_CHECKSUM, WAY_OUT
from tidelog.core.controller.metadata.metadata_store import OPERATIONS_MAX, Put, Revision
from tidelog.shell.store.cluster_secret import without_secret
from tidelog.shell.store.etcd.address import EtcdAddress
from tidelog.shell.store.etcd.etcd_store import EtcdStore
from tidelog.shell.store.etcd.gateway import (
    EtcdError,
    Gateway,
    Nodes,
    NodesUnavailable,
    OutcomeLost,
)
from tidelog.shell.store.etcd.records import (
    FILLING,
    MOVED,
    READY,
    Found,
    HistoryRecord,
    after_prefix,
    compare,
    parse_found,
    put_op,
    range_of,
    revision_of,
)
from tidelog.shell.store.store_backend import (
    IDENTITY_KEY,
    ClusterIdentity,
    NotAStore,
    StoreMissing,
    StoreUnusable,
    new_identity,
    parse_identity,
)

PATIENCE_S = 10.0
"""How long a starting broker waits for etcd: its nodes may be starting too."""
_VALUES_AT_ONCE = 1 << 20
"""Bytes of values in one transaction; etcd's limit is 1.5 MiB for a request."""


class StoreSetup:
    """One command's access to a store on etcd."""

    def __init__(self, address: EtcdAddress, patience_s: float = PATIENCE_S) -> None:
        self.store = EtcdStore(Gateway(Nodes(address)))
        self.give_up_s = time.monotonic() + patience_s
        self._place = address.url
        self._secret_file = address.access.secret_file

    def __enter__(self) -> "StoreSetup":
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.store.gateway.close()
        if isinstance(error, NodesUnavailable | EtcdError | OutcomeLost):
            raise StoreUnusable(
                f"metadata store {self._place} can't be used: {error}; check that etcd runs and"
                " that its nodes reach each other"
            ) from error

    def prepare(self, cluster_id: str | None) -> ClusterIdentity:
        """Create the store if it is missing; return the cluster's identity."""
        if self.store.find_history(self.give_up_s) is None:
            if cluster_id is not None:
                raise StoreMissing(
                    f"metadata store {self._place} is missing, but data of cluster {cluster_id}"
                    f" exists; {WAY_OUT}"
                )
            self.create({IDENTITY_KEY: without_secret(new_identity(), self._secret_file)})
        self.store.history(self.give_up_s)
        return self.identity()

    def identity(self) -> ClusterIdentity:
        """The cluster's identity. Raises NotAStore."""
        found = self.read_range(range_of(self.store.layout.data_key(IDENTITY_KEY)))
        if not found:
            raise NotAStore(f"metadata store {self._place} names no cluster; {WAY_OUT}")
        return parse_identity(found[0].value)

    def read_range(self, request: dict[str, Any]) -> list[Found]:
        """Read the keys of a range."""
        reply = self.store.gateway.call("/v3/kv/range", request, self.give_up_s)
        return [parse_found(kv) for kv in reply.get("kvs") or ()]

    def create(self, keys: Mapping[str, bytes], base: int = 0) -> None:
        """Create a store with a few keys at one revision, unless another process just did."""
        layout = self.store.layout
        puts = [Put(key, value) for key, value in keys.items()]
        first = HistoryRecord(base, 0, NO_CHECKSUM)
        record = first.after(puts)._replace(number=0) if puts else first
        ops = [put_op(layout.data_key(put.key), put.value) for put in puts]
        request = {
            "compare": [compare(layout.history, 0)],
            "success": [*ops, put_op(layout.history, record.encode())],
        }
        self.store.gateway.call("/v3/kv/txn", request, self.give_up_s)
        if self.store.find_history(self.give_up_s) is None:
            raise StoreUnusable(f"metadata store {self._place} could not be created")

    def fill(self, keys: Mapping[str, bytes], rev: Revision, kept: str = "") -> Revision:
        """Replace all contents by these keys, at revisions from `rev` on; return the latest.

        Until the last step the store is marked as incomplete; then this can be called again. Each
        step is guarded by the step before, so that one that arrives late has no effect. `kept`: the
        file with the present contents, noted in the incomplete store.
        """
        layout = self.store.layout
        found = self.store.find_history(self.give_up_s)
        present = self.store.latest
        base = max(0, rev - present - 1)
        kept = kept or (found.kept if found is not None else "")
        note = f"{os.urandom(8).hex()} {kept}".rstrip()
        record = HistoryRecord(base, 0, NO_CHECKSUM, FILLING, note)
        step = self._step(
            [
                {"request_delete_range": range_of(prefix, after_prefix(prefix))}
                for prefix in (layout.data, layout.live, layout.past)
            ],
            0 if found is None else found.mod_rev,
            record,
        )
        puts = [Put(key, value) for key, value in sorted(keys.items())]
        while puts:
            count, size = 0, 0
            while count < min(len(puts), OPERATIONS_MAX) and (
                not count or size + len(puts[count].value) <= _VALUES_AT_ONCE
            ):
                size += len(puts[count].value)
                count += 1
            chunk, puts = puts[:count], puts[count:]
            record = record.after(chunk)
            step = self._step(
                [put_op(layout.data_key(put.key), put.value) for put in chunk], step, record
            )
        ready = record._replace(state=READY, note="", number=0)
        return self._step([], step, ready) + base

    def mark_moved(self, target: str) -> None:
        """Mark the store as moved, so that no broker starts on it."""
        record = self.store.history(self.give_up_s)
        self._step([], record.mod_rev, record._replace(state=MOVED, note=target))

    def _step(self, ops: list[dict[str, Any]], before: int, record: HistoryRecord) -> int:
        """Apply operations and replace the history record if it is the one of etcd's revision
        `before`; return the new one's revision."""
        history = self.store.layout.history
        request = {
            "compare": [compare(history, before)],
            "success": [*ops, put_op(history, record.encode())],
            "failure": [{"request_range": range_of(history)}],
        }
        reply = self.store.gateway.call("/v3/kv/txn", request, self.give_up_s)
        if reply.get("succeeded"):
            return revision_of(reply)
        kvs = reply["responses"][0].get("response_range", {}).get("kvs") or ()
        found = parse_found(kvs[0]) if kvs else None
        if found is not None and found.value == record.encode():
            return found.mod_rev  # an attempt of this very step succeeded
        raise StoreUnusable(
            f"metadata store {self._place} was changed by another process meanwhile; stop all"
            " brokers, then run this command again"
        )


def prepare(address: EtcdAddress, cluster_id: str | None) -> ClusterIdentity:
    """Create the store if it is missing, else check it; return the cluster's identity."""
    with StoreSetup(address) as setup:
        return setup.prepare(cluster_id)
