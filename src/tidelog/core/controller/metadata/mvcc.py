"""The metadata store in memory: the specification that every other store is tested against.

It has no clock and no I/O: `expire` ends a session, and `watch` returns the changes after a
revision. Faults between a caller and a store (lost, late or duplicate responses) are added by the
caller.
"""

from bisect import bisect_right
from collections.abc import Hashable

from tidelog.core.controller.metadata.history import NO_CHECKSUM, chained
from tidelog.core.controller.metadata.metadata_store import (
    KV,
    NO_SESSION,
    Batch,
    Change,
    Compacted,
    Delete,
    Guard,
    Operation,
    Put,
    Revision,
    SessionExpired,
    SessionId,
    Snapshot,
    TxnResult,
    check_limits,
)


class Mvcc:
    """Keys, revisions and sessions; each transaction that changes something is a revision."""

    __slots__ = (
        "_checksums",
        "_history",
        "_keys",
        "_last_session",
        "_sessions",
        "compacted",
        "revision",
    )

    def __init__(self) -> None:
        self.revision: Revision = 0
        self.compacted: Revision = 0
        self._keys: dict[str, KV] = {}
        self._history: list[Batch] = []
        self._checksums: dict[Revision, int] = {}
        self._sessions: set[SessionId] = set()
        self._last_session: SessionId = NO_SESSION

    def get(self, key: str) -> tuple[KV | None, Revision]:
        return self._keys.get(key), self.revision

    def range(self, prefix: str, earlier: Revision = 0) -> Snapshot:
        """Return all keys under the prefix as of the present revision."""
        kvs = (kv for key, kv in self._keys.items() if key.startswith(prefix))
        past = self._checksums.get(earlier)
        return Snapshot(tuple(sorted(kvs)), self.revision, self.checksum, past)

    @property
    def checksum(self) -> int:
        """The checksum of the whole history."""
        return self._checksums.get(self.revision, NO_CHECKSUM)

    def txn(
        self, guards: tuple[Guard, ...], ops: tuple[Operation, ...]
    ) -> TxnResult | SessionExpired:
        """Apply all operations in one revision if every guard holds, else none."""
        check_limits(guards, ops)
        current = tuple((guard.key, self._keys.get(guard.key)) for guard in guards)
        if not all(guard.holds_for(self._keys.get(guard.key)) for guard in guards):
            return TxnResult(False, self.revision, current)
        if any(isinstance(op, Put) and not self.alive(op.session) for op in ops):
            return SessionExpired()
        self._commit(ops)
        return TxnResult(True, self.revision, current)

    def watch(self, prefix: str, after: Revision) -> list[Batch] | Compacted:
        """Return all changes under the prefix after a revision, in order, by revision."""
        if after < self.compacted:
            return Compacted(self.compacted)
        start = bisect_right(self._history, after, key=lambda batch: batch.rev)
        batches = []
        for rev, changes, checksum in self._history[start:]:
            seen = tuple(change for change in changes if change.key.startswith(prefix))
            if seen:
                batches.append(Batch(rev, seen, checksum))
        return batches

    def compact(self, rev: Revision) -> None:
        """Drop the changes up to and including a revision; the keys stay as they are."""
        self.compacted = max(self.compacted, min(rev, self.revision))
        self._history = [batch for batch in self._history if batch.rev > self.compacted]

    def open_session(self) -> SessionId:
        self._last_session += 1
        self._sessions.add(self._last_session)
        return self._last_session

    def alive(self, session: SessionId) -> bool:
        return session == NO_SESSION or session in self._sessions

    def expire(self, session: SessionId) -> None:
        """End a session, and delete its keys in one revision."""
        self._sessions.discard(session)
        owned = [kv.key for kv in self._keys.values() if kv.session == session != NO_SESSION]
        self._commit(tuple(Delete(key) for key in sorted(owned)))

    def freeze(self) -> Hashable:
        return self.revision, self.compacted, frozenset(self._keys.values())

    def _commit(self, ops: tuple[Operation, ...]) -> None:
        rev = self.revision + 1
        changes: dict[str, Change] = {}
        for op in ops:
            if isinstance(op, Put):
                old = self._keys.get(op.key)
                created = rev if old is None else old.create_rev
                kv = KV(op.key, op.value, created, rev, op.session)
                self._keys[op.key] = kv
                changes[op.key] = Change(op.key, kv)
            else:
                for key in self._matching(op):
                    del self._keys[key]
                    changes[key] = Change(key, None)
        if changes:
            checksum = chained(self.checksum, rev, changes.values())
            self.revision = rev
            self._checksums[rev] = checksum
            self._history.append(Batch(rev, tuple(changes.values()), checksum))

    def _matching(self, op: Delete) -> list[str]:
        if op.prefix:
            return sorted(key for key in self._keys if key.startswith(op.key))
        return [op.key] if op.key in self._keys else []
