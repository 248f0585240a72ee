"""The metadata store's interface, as values.

Core never calls a store. It asks for a transaction with an effect and hears the answer as
an event, so calls are described here by plain values which any store carries out: the
in-memory one (`mvcc`, the specification), SQLite, etcd.

Always true of every store behind this interface: one sequence of revisions for all keys,
+1 for each transaction that changes something, never used twice; a transaction's guards
hold for all of its operations or none is done; a key made anew has a new `create_rev`, so
the `create_rev` of an ephemeral key is a fencing token that never comes back.
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
    """A key with its value, the revisions that made and last changed it, and its session."""

    key: str
    value: bytes
    create_rev: Revision
    mod_rev: Revision
    session: SessionId = NO_SESSION


class Guard(NamedTuple):
    """True while the key's create or mod revision is `rev` (0: while there is no such key)."""

    key: str
    rev: Revision
    kind: Literal["mod", "create"] = "mod"

    def holds_for(self, kv: KV | None) -> bool:
        if kv is None:
            return self.rev == ABSENT
        return self.rev == (kv.mod_rev if self.kind == "mod" else kv.create_rev)


class Put(NamedTuple):
    """Write a key; with a session it vanishes when the session ends."""

    key: str
    value: bytes
    session: SessionId = NO_SESSION


class Delete(NamedTuple):
    """Delete one key, or every key that starts with it."""

    key: str
    prefix: bool = False


Operation: TypeAlias = Put | Delete


class Change(NamedTuple):
    """What one revision did to one key; `kv` is None when it was deleted."""

    key: str
    kv: KV | None


class Batch(NamedTuple):
    """All changes of one revision: never split, never merged with another's.

    `checksum` is that of the store's history up to here (history.py).
    """

    rev: Revision
    changes: tuple[Change, ...]
    checksum: int = 0


class Snapshot(NamedTuple):
    """Every key under a prefix, sorted, as of one revision.

    `checksum` is that of the store's history up to here (history.py), `earlier` the one it had
    at the revision that the reader named; None if that is not known, or is still to come.
    """

    kvs: tuple[KV, ...]
    rev: Revision
    checksum: int = 0
    earlier: int | None = None


@slotted(frozen=True)
class TxnResult:
    """The store's answer. When a guard failed, `current` shows what the guard keys are now.

    `rev` is the transaction's revision if it changed something, else the store's latest.
    """

    ok: bool
    rev: Revision
    current: tuple[tuple[str, KV | None], ...] = ()

    def now(self, key: str) -> KV | None:
        return dict(self.current).get(key)


@slotted(frozen=True)
class Unavailable:
    """The transaction was surely not applied."""


@slotted(frozen=True)
class OutcomeUnknown:
    """It may have been applied, and may still be.

    Reading does not settle it. Send the same guarded transaction again: at most one of
    the two can win, and the loser is shown the winner's values.
    """


@slotted(frozen=True)
class SessionExpired:
    """A key was put with a session that has ended; nothing was applied."""


@slotted(frozen=True)
class Compacted:
    """Changes up to and including `rev` are forgotten: take a snapshot and watch from there."""

    rev: Revision


TxnAnswer: TypeAlias = TxnResult | Unavailable | OutcomeUnknown | SessionExpired


def check_limits(guards: tuple[Guard, ...], ops: tuple[Operation, ...]) -> None:
    """Refuse what some store could not carry out, so that all refuse the same."""
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
