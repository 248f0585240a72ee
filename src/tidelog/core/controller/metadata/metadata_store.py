"""The interface of the metadata store, as plain values.

Core never calls a store. It emits a transaction as an effect and gets the response as an event.
So calls are plain values that any store can carry out: the one in memory (`mvcc`, the
specification), SQLite, etcd.

Invariants of every store: there is one sequence of revisions for all keys, +1 for each transaction
that changes something, never used twice. A transaction is applied as a whole if all its guards
hold, else not at all. A key that is created again has a new `create_rev`, so the `create_rev` of
an ephemeral key is a fencing token that never returns.
"""

from typing import Literal, NamedTuple, TypeAlias

from tidelog.core.slotted import slotted

Revision: TypeAlias = int
SessionId: TypeAlias = int

NO_SESSION: SessionId = 0
ABSENT: Revision = 0
"""As a guard's revision: the key must not exist."""

GUARDS_MAX = 100
OPERATIONS_MAX = 100
KEY_BYTES_MAX = 512
VALUE_BYTES_MAX = 1 << 20


class KV(NamedTuple):
    """A key with its value, the revisions that created and last changed it, and its session."""

    key: str
    value: bytes
    create_rev: Revision
    mod_rev: Revision
    session: SessionId = NO_SESSION


class Guard(NamedTuple):
    """Holds while the key's create or mod revision is `rev` (0: while the key is absent)."""

    key: str
    rev: Revision
    kind: Literal["mod", "create"] = "mod"

    def holds_for(self, kv: KV | None) -> bool:
        if kv is None:
            return self.rev == ABSENT
        return self.rev == (kv.mod_rev if self.kind == "mod" else kv.create_rev)


class Put(NamedTuple):
    """Write a key; with a session it is deleted when the session ends."""

    key: str
    value: bytes
    session: SessionId = NO_SESSION


class Delete(NamedTuple):
    """Delete one key, or every key that starts with it."""

    key: str
    prefix: bool = False


Operation: TypeAlias = Put | Delete


class Change(NamedTuple):
    """The change of one key in one revision; `kv` is None if it was deleted."""

    key: str
    kv: KV | None


class Batch(NamedTuple):
    """All changes of one revision: never split, never merged with another revision.

    `checksum` is that of the store's history up to this revision (history.py).
    """

    rev: Revision
    changes: tuple[Change, ...]
    checksum: int = 0


class Snapshot(NamedTuple):
    """Every key under a prefix, sorted, as of one revision.

    `checksum` is that of the store's history up to this revision (history.py). `earlier` is the
    checksum at the revision that the reader named; None if it is unknown or in the future.
    """

    kvs: tuple[KV, ...]
    rev: Revision
    checksum: int = 0
    earlier: int | None = None


@slotted(frozen=True)
class TxnResult:
    """The store's response. If a guard failed, `current` has the present values of its keys.

    `rev` is the transaction's revision if it changed something, else the store's latest.
    """

    ok: bool
    rev: Revision
    current: tuple[tuple[str, KV | None], ...] = ()

    def now(self, key: str) -> KV | None:
        return dict(self.current).get(key)


@slotted(frozen=True)
class Unavailable:
    """The transaction was not applied."""


@slotted(frozen=True)
class OutcomeUnknown:
    """The transaction may have been applied, or may still be.

    Reading does not settle it. Send the same guarded transaction again: at most one of the two
    is applied, and the response to the other shows the values of the first.
    """


@slotted(frozen=True)
class SessionExpired:
    """The session of a Put has ended; nothing was applied."""


@slotted(frozen=True)
class Compacted:
    """Changes up to `rev` are no longer kept: take a snapshot and watch from there."""

    rev: Revision


TxnAnswer: TypeAlias = TxnResult | Unavailable | OutcomeUnknown | SessionExpired


def check_limits(guards: tuple[Guard, ...], ops: tuple[Operation, ...]) -> None:
    """Raise ValueError for a transaction beyond the limits, which are the same for all stores."""
    if len(guards) > GUARDS_MAX or len(ops) > OPERATIONS_MAX:
        raise ValueError(f"{len(guards)} guards and {len(ops)} operations in one transaction")
    written: set[str] = set()
    prefixes = tuple(op.key for op in ops if isinstance(op, Delete) and op.prefix)
    for op in ops:
        if len(op.key.encode()) > KEY_BYTES_MAX:
            raise ValueError(f"key of {len(op.key.encode())} bytes")
        if isinstance(op, Put) and len(op.value) > VALUE_BYTES_MAX:
            raise ValueError(f"value of {len(op.value)} bytes at {op.key}")
        if op.key in written or (isinstance(op, Put) and op.key.startswith(prefixes)):
            raise ValueError(f"key {op.key} written twice in one transaction")
        written.add(op.key)
