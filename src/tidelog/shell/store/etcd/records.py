"""The keys and values that a store has in etcd, and their JSON form.

Below the store's prefix, in the order of the keys:

    data            the history record: the store's state, and a checksum of all changes
    data/KEY        core's keys
    live/SESSION    the life sign of a session's broker, and the last renewal of the session;
                    deleted with the session. Without it the session can't be renewed
    past/SLOT       the checksums of the last changes

A watch covers `data` to `live/`; keys of other stores may lie in between, such as those of the
prefix `PREFIX/east`, and are ignored. The revisions of core are those of etcd plus a constant, the
record's `base`: a store that was copied here must not go back to lower revisions than before.
"""

import json
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable
from typing import Any, NamedTuple
from zlib import crc32

from tidelog.core.controller.metadata.metadata_store import (
    ABSENT,
    KV,
    NO_SESSION,
    Delete,
    Guard,
    Operation,
    Put,
    SessionId,
)
from tidelog.core.controller.metadata.silent_sessions import Renewal
from tidelog.shell.store.proof_of_death import LifeSign
from tidelog.shell.store.store_backend import NotAStore, StoreTooNew, StoreUnusable

FORMAT = 1
PAST_KEPT = 1 << 14
"""How many changes back a broker can compare its history with the store's."""
READY, FILLING, MOVED = "ready", "filling", "moved"


class HistoryRecord(NamedTuple):
    """The value of `data`. Each transaction replaces it, guarded by its revision."""

    base: int
    """Core's revision minus etcd's."""
    number: int
    """The number of transactions, for the slot of the next checksum."""
    checksum: int
    state: str = READY
    note: str = ""
    """Where a moved store is now; of an incomplete store, a random text and `kept`."""
    mod_rev: int = 0
    """etcd's revision of the record itself; not part of the value."""

    def encode(self) -> bytes:
        fields = self._asdict()
        del fields["mod_rev"]
        return json.dumps({"format": FORMAT, **fields}).encode()

    def after(self, ops: Iterable[Operation]) -> "HistoryRecord":
        """The record after a transaction."""
        return self._replace(number=self.number + 1, checksum=chained(self.checksum, ops))

    @property
    def kept(self) -> str:
        """The path of the file with the contents before an incomplete store was written, if any."""
        return self.note.partition(" ")[2] if self.state == FILLING else ""

    def check(self, place: str) -> None:
        """Raise StoreUnusable unless brokers may use the store."""
        if self.state == MOVED:
            raise StoreUnusable(
                f"metadata store {place} was copied to {self.note}, which is the cluster's store"
                " now; set tidelog.metadata.store to it"
            )
        if self.state != READY:
            earlier = (
                f"; it kept the earlier contents in {self.kept}: `tidelog store restore"
                f" {self.kept} {place}` uses them"
            )
            raise StoreUnusable(
                f"metadata store {place} is incomplete: the command that wrote it was interrupted;"
                f" run that command again{earlier if self.kept else ''}"
            )


def parse_history(value: bytes, mod_rev: int, place: str) -> HistoryRecord:
    """Decode the value of `data`. Raises NotAStore, StoreTooNew."""
    try:
        fields = json.loads(value)
        version = int(fields.pop("format"))
        if version <= FORMAT:
            return HistoryRecord(**fields, mod_rev=mod_rev)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NotAStore(
            f"{place} is not a Tidelog metadata store: another program uses this prefix; choose"
            " another one in the URL"
        ) from error
    raise StoreTooNew(
        f"metadata store {place} has format {version}, this Tidelog supports up to {FORMAT}; use"
        " the Tidelog that wrote it, or a newer one"
    )


def chained(before: int, ops: Iterable[Operation]) -> int:
    """The checksum of the history after a transaction.

    It covers transactions only. When a session ends by time, etcd deletes its keys without one.
    """
    checksum = before
    for op in ops:
        if isinstance(op, Put):
            checksum = crc32(b"+%d " % len(op.value) + op.value, crc32(op.key.encode(), checksum))
        else:
            checksum = crc32(b"*" if op.prefix else b"-", crc32(op.key.encode(), checksum))
    return checksum or 1


class Layout:
    """The keys of one store."""

    def __init__(self, prefix: str) -> None:
        """`prefix` begins and ends with a slash."""
        self.history = prefix.encode() + b"data"
        self.data = self.history + b"/"
        self.live = prefix.encode() + b"live/"
        self.past = prefix.encode() + b"past/"
        self.end = after_prefix(self.live)
        """The end of the keys that are watched; they begin at `history`."""

    def owns(self, key: bytes) -> bool:
        """Whether a key belongs to this store, without the past checksums."""
        return key == self.history or key.startswith((self.data, self.live))

    def data_key(self, key: str) -> bytes:
        return self.data + key.encode()

    def live_key(self, session: SessionId) -> bytes:
        return self.live + b"%016x" % session

    def past_key(self, count: int) -> bytes:
        return self.past + b"%06d" % (count % PAST_KEPT)


def after_prefix(prefix: bytes) -> bytes:
    """The first key after all that begin with the prefix."""
    assert prefix, "a store has a prefix"
    assert prefix[-1] < 0xFF, "keys are UTF-8"
    return prefix[:-1] + bytes([prefix[-1] + 1])


# -- requests ------------------------------------------------------------------------------


def b64(data: bytes) -> str:
    """Bytes as the gateway wants them."""
    return b2a_base64(data, newline=False).decode()


def range_of(key: bytes, end: bytes | None = None, **options: Any) -> dict[str, Any]:
    """A range request of one key, or of all keys before `end`."""
    return {"key": b64(key), **({} if end is None else {"range_end": b64(end)}), **options}


def compare(key: bytes, rev: int, kind: str = "mod") -> dict[str, Any]:
    """A comparison with etcd's revision; 0: the key is absent."""
    field = "mod_revision" if kind == "mod" else "create_revision"
    target = "MOD" if kind == "mod" else "CREATE"
    return {"key": b64(key), "target": target, "result": "EQUAL", field: rev}


def guard_compare(layout: Layout, guard: Guard, base: int) -> dict[str, Any]:
    """A guard with its revision as etcd counts."""
    rev = ABSENT if guard.rev == ABSENT else guard.rev - base
    if guard.rev != ABSENT and rev <= ABSENT:
        rev = -1  # older than the copy of the store: no key has that revision
    return compare(layout.data_key(guard.key), rev, guard.kind)


def put_op(key: bytes, value: bytes, lease: SessionId = NO_SESSION) -> dict[str, Any]:
    """A put in a transaction; its response has the previous value."""
    request: dict[str, Any] = {"key": b64(key), "value": b64(value), "prev_kv": True}
    if lease != NO_SESSION:
        request["lease"] = lease
    return {"request_put": request}


def operation_op(layout: Layout, op: Operation) -> dict[str, Any]:
    """One operation of core's."""
    key = layout.data_key(op.key)
    if isinstance(op, Put):
        return put_op(key, op.value, op.session)
    return {"request_delete_range": {**delete_range(layout, op), "prev_kv": True}}


def delete_range(layout: Layout, op: Delete) -> dict[str, Any]:
    """The keys that a Delete is about."""
    key = layout.data_key(op.key)
    return range_of(key, after_prefix(key) if op.prefix else None)


# -- responses -----------------------------------------------------------------------------


class Found(NamedTuple):
    """A key as etcd has it."""

    key: bytes
    value: bytes
    create_rev: int
    mod_rev: int
    lease: int


def parse_found(kv: dict[str, Any]) -> Found:
    """Decode a key of a response. Numbers are texts; fields with the value 0 are missing."""
    return Found(
        a2b_base64(kv["key"]),
        a2b_base64(kv.get("value", "")),
        int(kv.get("create_revision", 0)),
        int(kv.get("mod_revision", 0)),
        int(kv.get("lease", 0)),
    )


def revision_of(reply: dict[str, Any]) -> int:
    """etcd's revision in the header of a response."""
    return int(reply.get("header", {}).get("revision", 0))


def as_kv(layout: Layout, found: Found, base: int) -> KV:
    """One of core's keys, with core's revisions."""
    key = found.key[len(layout.data) :].decode()
    created, changed = found.create_rev + base, found.mod_rev + base
    return KV(key, found.value, created, changed, found.lease)


def encode_sign(sign: LifeSign, boot: str, renewal: Renewal) -> bytes:
    """The value of a `live/` key. The life sign is valid on the machine and boot that wrote it
    only."""
    return json.dumps({**sign._asdict(), "boot": boot, **renewal._asdict()}).encode()


def decode_sign(value: bytes, boot: str) -> LifeSign | None:
    """The life sign; None if it is of another machine or boot, so that it proves nothing here."""
    try:
        fields = json.loads(value)
        if fields["boot"] != boot or boot == "unknown":
            return None
        return LifeSign(str(fields["place"]), str(fields["identity"]))
    except (ValueError, KeyError, TypeError):
        return None


def decode_renewal(value: bytes) -> Renewal | None:
    """The last renewal; None if the broker's release does not write renewals."""
    try:
        fields = json.loads(value)
        return Renewal(int(fields["ttl_ms"]), int(fields["sent_ms"]))
    except (ValueError, KeyError, TypeError):
        return None
