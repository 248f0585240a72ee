"""The operations of a store on etcd, for one thread.

Invariants: every transaction replaces the history record, guarded by the record's revision. So all
transactions of a store have one order, and each has the checksum of all before it. A transaction
that fails only because another one was applied first is sent again. Reads are linearizable.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from tidelog.core.controller.metadata.history import WAY_OUT
from tidelog.core.controller.metadata.metadata_store import (
    ABSENT,
    KV,
    Delete,
    Guard,
    Operation,
    Put,
    Revision,
    SessionExpired,
    SessionId,
    Snapshot,
    TxnResult,
)
from tidelog.core.controller.metadata.silent_sessions import Renewal
from tidelog.core.slotted import slotted
from tidelog.shell.clock import boot_id, boot_ms
from tidelog.shell.store.etcd.gateway import EtcdError, Gateway, NodesUnavailable, OutcomeLost
from tidelog.shell.store.etcd.records import (
    Found,
    HistoryRecord,
    Layout,
    after_prefix,
    as_kv,
    compare,
    decode_sign,
    delete_range,
    encode_sign,
    guard_compare,
    operation_op,
    parse_found,
    parse_history,
    put_op,
    range_of,
    revision_of,
)
from tidelog.shell.store.proof_of_death import LifeSign
from tidelog.shell.store.store_backend import StoreMissing, StoreUnusable

OPERATIONS_OF_ETCD = 128
"""etcd's limit of operations in one transaction."""
_PAGE = 1_000
_PAGE_S = 5.0
_COMPACTED = "has been compacted"
_FUTURE = "future revision"


class Contents(NamedTuple):
    """A snapshot with the life signs of the sessions, which core does not see."""

    snapshot: Snapshot
    signs: dict[SessionId, Found]


class RevisionCompacted(Exception):
    """etcd has deleted the changes up to the revision."""


class EtcdStore:
    """One thread's access to the store. Not thread-safe."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.place = gateway.nodes.address.url
        self.layout = Layout(gateway.nodes.address.prefix)
        self._history: HistoryRecord | None = None
        self._signed: _Signed | None = None
        self.latest = 0
        """The latest of etcd's revisions that this thread saw."""

    # -- reading ---------------------------------------------------------------------------

    def find_history(self, give_up_s: float) -> HistoryRecord | None:
        """Read the history record; None if there is no store."""
        reply = self._range(range_of(self.layout.history), give_up_s)
        kvs = reply.get("kvs") or ()
        self._history = self._parse_history(parse_found(kvs[0])) if kvs else None
        return self._history

    def history(self, give_up_s: float) -> HistoryRecord:
        """The history record as last seen. Raises StoreMissing, StoreUnusable."""
        found = self._history or self.find_history(give_up_s)
        if found is None:
            raise StoreMissing(f"metadata store {self.place} is missing; {WAY_OUT}")
        found.check(self.place)
        return found

    def read(self, give_up_s: float, earlier: Revision = 0) -> Contents:
        """All keys at one revision, and the checksum of an earlier revision if it is known."""
        found, rev = self.read_all(give_up_s)
        record = found.pop(self.layout.history, None)
        if record is None:
            raise StoreMissing(f"metadata store {self.place} is missing; {WAY_OUT}")
        history = self._parse_history(record)
        history.check(self.place)
        self._history = history
        kvs, signs = [], {}
        for key, one in found.items():
            if key.startswith(self.layout.data):
                kvs.append(as_kv(self.layout, one, history.base))
            elif key.startswith(self.layout.live):
                signs[one.lease] = one
        past = self._checksum_at(earlier, history, rev, give_up_s)
        snapshot = Snapshot(tuple(kvs), rev + history.base, history.checksum, past)
        return Contents(snapshot, signs)

    def read_all(self, give_up_s: float) -> tuple[dict[bytes, Found], int]:
        """The keys of the store without the past checksums, page by page as of one revision."""
        layout = self.layout
        found: dict[bytes, Found] = {}
        rev = self._read_pages(layout.history, after_prefix(layout.data), found, 0, give_up_s)
        self._read_pages(layout.live, after_prefix(layout.live), found, rev, give_up_s)
        return {key: one for key, one in found.items() if layout.owns(key)}, rev

    def _read_pages(
        self, start: bytes, end: bytes, found: dict[bytes, Found], rev: int, give_up_s: float
    ) -> int:
        """Add the keys of a range as of etcd's revision `rev`, 0 for the latest; return it."""
        while True:
            pinned = {"revision": rev} if rev else {}
            request = range_of(start, end, limit=_PAGE, **pinned)
            reply = self._range(request, give_up_s, attempt_s=_PAGE_S)
            rev = rev or revision_of(reply)
            kvs = [parse_found(kv) for kv in reply.get("kvs") or ()]
            found.update({one.key: one for one in kvs})
            if not reply.get("more") or not kvs:
                return rev
            start = kvs[-1].key + b"\0"

    def history_at(self, node: Any, rev: int) -> HistoryRecord:
        """The history record as of etcd's revision, from this very node.

        Raises RevisionCompacted. A node that is behind the revision is NodesUnavailable.
        """
        request = range_of(self.layout.history, revision=rev)
        try:
            reply = self.gateway.call_node(node, "/v3/kv/range", request)
        except EtcdError as error:
            if _COMPACTED in error.message:
                raise RevisionCompacted from error
            if _FUTURE in error.message:
                raise NodesUnavailable(f"{node} is behind revision {rev}") from error
            raise
        kvs = reply.get("kvs") or ()
        if not kvs:
            raise StoreMissing(f"metadata store {self.place} is missing; {WAY_OUT}")
        return self._parse_history(parse_found(kvs[0]))

    def _checksum_at(
        self, earlier: Revision, history: HistoryRecord, rev: int, give_up_s: float
    ) -> int | None:
        wanted = earlier - history.base
        if earlier > 0 and history.number > 0:
            self._check_written_together(history, give_up_s)
        if earlier <= 0 or wanted <= 0 or wanted > rev:
            return None
        if history.mod_rev <= wanted:
            return history.checksum
        past = self.layout.past
        newest_first = {"sort_order": "DESCEND", "sort_target": "MOD", "limit": 1}
        request = range_of(past, after_prefix(past), max_mod_revision=wanted, **newest_first)
        reply = self._range(request, give_up_s, attempt_s=_PAGE_S)
        kvs = reply.get("kvs") or ()
        return int(parse_found(kvs[0]).value) if kvs else None

    def _check_written_together(self, history: HistoryRecord, give_up_s: float) -> None:
        """Raise StoreUnusable if another program wrote the keys: it does not write the record and
        the last checksum at one revision, as each transaction does. Such a copy has other revisions
        than the brokers know, and may be old."""
        last = range_of(self.layout.past_key(history.number - 1))
        kvs = self._range(last, give_up_s).get("kvs") or ()
        if not kvs or parse_found(kvs[0]).mod_rev != history.mod_rev:
            raise StoreUnusable(
                f"the keys of metadata store {self.place} were copied by another program, which"
                f" does not keep their revisions; use `tidelog store copy`, or {WAY_OUT}"
            )

    def _range(
        self, request: dict[str, Any], give_up_s: float, attempt_s: float = 1.0
    ) -> dict[str, Any]:
        reply = self.gateway.call("/v3/kv/range", request, give_up_s, attempt_s=attempt_s)
        self._never_back(revision_of(reply))
        return reply

    def _never_back(self, rev: int) -> None:
        """Detect that etcd's contents were replaced under a running broker."""
        if rev < self.latest:
            raise StoreUnusable(
                f"metadata store {self.place} went back from etcd's revision {self.latest} to {rev}"
                f" while this broker used it; stop all brokers, then {WAY_OUT}"
            )
        self.latest = rev

    def _parse_history(self, found: Found) -> HistoryRecord:
        return parse_history(found.value, found.mod_rev, self.place)

    # -- transactions ----------------------------------------------------------------------

    def transact(
        self, guards: tuple[Guard, ...], ops: tuple[Operation, ...], give_up_s: float
    ) -> TxnResult | SessionExpired:
        """Apply all operations at one revision if every guard holds, else none.

        Raises OutcomeLost if the transaction may have been applied.
        """
        while time.monotonic() < give_up_s:
            history = self.history(give_up_s)
            effective = ops
            if ops and not any(isinstance(op, Put) for op in ops):
                effective, history = self._without_effect(ops, history, give_up_s)
            try:
                result = self._try(history, guards, effective, give_up_s)
            except EtcdError as error:
                if error.not_found:
                    return SessionExpired()
                raise
            except OutcomeLost:
                self._history = None
                raise
            if result is not None:
                return result
        raise NodesUnavailable("each attempt found that another transaction had been applied first")

    def _without_effect(
        self, ops: tuple[Operation, ...], history: HistoryRecord, give_up_s: float
    ) -> tuple[tuple[Operation, ...], HistoryRecord]:
        """No operations if all of them delete nothing: those use no revision."""
        ranges = [
            {"request_range": {**delete_range(self.layout, op), "count_only": True}}
            for op in ops
            if isinstance(op, Delete)
        ]
        ranges.append({"request_range": range_of(self.layout.history)})
        reply = self.gateway.call("/v3/kv/txn", {"success": ranges}, give_up_s)
        *counts, last = (one.get("response_range", {}) for one in reply.get("responses", ()))
        if last.get("kvs"):
            history = self._history = self._parse_history(parse_found(last["kvs"][0]))
            history.check(self.place)
        return (ops if any(int(one.get("count", 0)) for one in counts) else ()), history

    def _try(
        self,
        history: HistoryRecord,
        guards: tuple[Guard, ...],
        ops: tuple[Operation, ...],
        give_up_s: float,
    ) -> TxnResult | None:
        """Send the transaction; return None if another one was applied first."""
        layout = self.layout
        written = {op.key for op in ops if not (isinstance(op, Delete) and op.prefix)}
        unknown = [g.key for g in guards if g.rev != ABSENT and (not ops or g.key not in written)]
        before: dict[str, KV] = {}
        if ops and len(set(unknown)) + len(ops) + 2 > OPERATIONS_OF_ETCD:
            before, seen = self._read_keys(unknown, give_up_s)
            if seen.mod_rev != history.mod_rev:
                return None
            unknown = []
        after = history.after(ops)
        success = self._ranges(unknown) + [operation_op(layout, op) for op in ops]
        if ops:
            success.append(put_op(layout.history, after.encode()))
            checksum = b"%d" % after.checksum
            success.append(put_op(layout.past_key(history.number), checksum))
        request = {
            "compare": [
                *(guard_compare(layout, guard, history.base) for guard in guards),
                compare(layout.history, history.mod_rev),
            ],
            "success": success,
            "failure": [
                *self._ranges(guard.key for guard in guards),
                {"request_range": range_of(layout.history)},
            ],
        }
        reply = self.gateway.call("/v3/kv/txn", request, give_up_s, once=bool(ops))
        rev = revision_of(reply)
        self._never_back(rev)
        found = self._found_in(reply)
        if reply.get("succeeded"):
            if ops:
                self._history = after._replace(mod_rev=rev)
            before.update(self._as_kvs(found, history.base))
            current = tuple(
                (guard.key, None if guard.rev == ABSENT else before.get(guard.key))
                for guard in guards
            )
            return TxnResult(True, rev + history.base if ops else self._latest(found), current)
        return self._refused(guards, found)

    def _refused(self, guards: tuple[Guard, ...], found: dict[bytes, Found]) -> TxnResult | None:
        record = found.pop(self.layout.history, None)
        if record is None:
            self._history = None
            raise StoreMissing(f"metadata store {self.place} was deleted; {WAY_OUT}")
        self._history = self._parse_history(record)
        known = self._as_kvs(found, self._history.base)
        if all(guard.holds_for(known.get(guard.key)) for guard in guards):
            return None
        current = tuple((guard.key, known.get(guard.key)) for guard in guards)
        return TxnResult(False, self._latest(found), current)

    def _latest(self, found: dict[bytes, Found]) -> Revision:
        """The latest revision that watches of this store certainly reach.

        etcd's own may be of another store's change, for which no watch of this one has an event.
        """
        assert self._history is not None
        revs = [one.mod_rev for one in found.values()]
        return max([self._history.mod_rev, *revs]) + self._history.base

    def _ranges(self, keys: Iterable[str]) -> list[dict[str, Any]]:
        return [
            {"request_range": range_of(self.layout.data_key(key))} for key in dict.fromkeys(keys)
        ]

    def _read_keys(
        self, keys: Collection[str], give_up_s: float
    ) -> tuple[dict[str, KV], HistoryRecord]:
        """Some keys and the history record, as of one revision."""
        ranges = [*self._ranges(keys), {"request_range": range_of(self.layout.history)}]
        reply = self.gateway.call("/v3/kv/txn", {"success": ranges}, give_up_s)
        found = self._found_in(reply)
        record = found.pop(self.layout.history, None)
        if record is None:
            raise StoreMissing(f"metadata store {self.place} was deleted; {WAY_OUT}")
        self._history = self._parse_history(record)
        return self._as_kvs(found, self._history.base), self._history

    @staticmethod
    def _found_in(reply: dict[str, Any]) -> dict[bytes, Found]:
        """All keys in the responses of a transaction: those read, and those replaced."""
        found: dict[bytes, Found] = {}
        for response in reply.get("responses") or ():
            kvs = list((response.get("response_range") or {}).get("kvs") or ())
            kvs += (response.get("response_delete_range") or {}).get("prev_kvs") or ()
            put = response.get("response_put") or {}
            kvs += [put["prev_kv"]] if put.get("prev_kv") else []
            found.update({one.key: one for one in map(parse_found, kvs)})
        return found

    def _as_kvs(self, found: dict[bytes, Found], base: int) -> dict[str, KV]:
        own = (one for key, one in found.items() if key.startswith(self.layout.data))
        return {kv.key: kv for kv in (as_kv(self.layout, one, base) for one in own)}

    # -- sessions --------------------------------------------------------------------------

    def open_session(
        self, ttl_ms: int, sign: LifeSign, give_up_s: float, sent_ms: int = 0
    ) -> SessionId:
        """Open a session. Sessions with the same life sign end: this broker holds the lock now."""
        boot = boot_id()
        if sign.identity:
            for session, other in self.signs(give_up_s).items():
                found = decode_sign(other, boot)
                if found is not None and found.identity == sign.identity:
                    self.end_session(session, give_up_s)
        session = _new_session_id()
        ttl_s = -(-ttl_ms // 1000)
        request = {"TTL": ttl_s, "ID": session}
        try:
            reply = self.gateway.call("/v3/lease/grant", request, give_up_s)
            if int(reply.get("TTL", 0)) < ttl_s:
                raise NodesUnavailable(f"etcd granted a session of {reply.get('TTL')} s only")
        except EtcdError as error:
            if "already exists" not in error.message:  # an attempt of this very call succeeded
                raise
        if sign.place and boot != "unknown":
            signed = _Signed(session, sign, boot, ttl_ms, ABSENT)
            if not self._write_renewal(signed, sent_ms, give_up_s):
                raise NodesUnavailable("the session ended while it was opened")
            self._signed = signed
        return session

    def renew_session(
        self, session: SessionId, give_up_s: float, clock: Callable[[], int] = boot_ms
    ) -> int | None:
        """Restart the session's time to live; None if the session has ended.

        Return the time on the clock before the renewal was sent. The other brokers must see the
        renewal too: they count its time when etcd's own count starts again (silent_sessions.py).
        """
        sent_ms = 0

        def note() -> None:
            nonlocal sent_ms
            sent_ms = clock()

        reply = self.gateway.call("/v3/lease/keepalive", {"ID": session}, give_up_s, before=note)
        if int(reply.get("TTL", 0)) <= 0:
            return None
        signed = self._signed
        if signed is not None and signed.session == session:
            # This read needs a quorum. Else a leader of etcd that can send but receives nothing
            # would replicate a renewal that this broker never learns of, but others count from.
            self._range(range_of(self.layout.live_key(session)), give_up_s)
            try:
                written = self._write_renewal(signed, sent_ms, give_up_s)
            except EtcdError as error:
                if error.not_found:
                    return None
                raise
            if not written:
                self.end_session(session, give_up_s)
                return None
        return sent_ms

    def _write_renewal(self, signed: "_Signed", sent_ms: int, give_up_s: float) -> bool:
        """Write the life sign with this renewal; False if other brokers have deleted it.

        The guard keeps the order of renewals: one that a node carries out late has no effect.
        """
        key = self.layout.live_key(signed.session)
        renewal = Renewal(signed.ttl_ms, sent_ms)
        value = encode_sign(signed.sign, signed.boot, renewal)
        while True:
            request = {
                "compare": [compare(key, signed.revision)],
                "success": [put_op(key, value, signed.session)],
                "failure": [{"request_range": range_of(key)}],
            }
            reply = self.gateway.call("/v3/kv/txn", request, give_up_s)
            if reply.get("succeeded"):
                signed.revision = revision_of(reply)
                return True
            found = self._found_in(reply).get(key)
            if found is None:
                return False
            signed.revision = found.mod_rev  # of an earlier attempt whose response was lost
            if found.value == value:
                return True

    def condemn(self, session: SessionId, revision: int, give_up_s: float) -> bool:
        """Let the session's renewals fail from now on, unless it was renewed after etcd's
        `revision`; return whether they do. `end_session` then deletes its keys."""
        key = self.layout.live_key(session)
        request = {
            "compare": [compare(key, revision)],
            "success": [{"request_delete_range": range_of(key)}],
            "failure": [{"request_range": range_of(key)}],
        }
        reply = self.gateway.call("/v3/kv/txn", request, give_up_s)
        return bool(reply.get("succeeded")) or key not in self._found_in(reply)

    def end_session(self, session: SessionId, give_up_s: float) -> int | None:
        """End a session and delete its keys; return etcd's revision, None if it had ended."""
        try:
            return revision_of(self.gateway.call("/v3/lease/revoke", {"ID": session}, give_up_s))
        except EtcdError as error:
            if error.not_found:
                return None
            raise

    def signs(self, give_up_s: float) -> dict[SessionId, bytes]:
        """The life signs of all sessions."""
        live = self.layout.live
        reply = self._range(range_of(live, after_prefix(live)), give_up_s)
        return {one.lease: one.value for one in map(parse_found, reply.get("kvs") or ())}

    # -- upkeep ----------------------------------------------------------------------------

    def compact(self, rev: Revision, give_up_s: float) -> None:
        """Delete the changes up to and including a revision, of all stores in this etcd."""
        history = self.history(give_up_s)
        latest = revision_of(self._range(range_of(self.layout.history), give_up_s))
        try:
            wanted = min(rev - history.base, latest)
            self.gateway.call("/v3/kv/compaction", {"revision": wanted}, give_up_s)
        except EtcdError as error:
            if _COMPACTED not in error.message:
                raise

    def refresh_nodes(self, give_up_s: float) -> None:
        """Learn the addresses of the cluster's members."""
        reply = self.gateway.call("/v3/cluster/member/list", {}, give_up_s)
        self.gateway.nodes.learn(reply.get("members") or [])


@slotted
class _Signed:
    """A session that was opened here with a life sign."""

    session: SessionId
    sign: LifeSign
    boot: str
    ttl_ms: int
    revision: int
    """etcd's revision of the last renewal."""


def _new_session_id() -> SessionId:
    """A positive 63-bit number that is not used twice: the time, and 21 random bits."""
    return time.time_ns() // 1_000_000 << 21 | int.from_bytes(os.urandom(3), "big") >> 3
