"""`tidelog store` on etcd: read a store, replace its contents, check that no broker uses it."""

from typing import NamedTuple

from tidelog.core.controller.metadata.keys import BROKER_IDS
from tidelog.core.controller.metadata.metadata_store import NO_SESSION, Revision, SessionId
from tidelog.core.controller.metadata.rebuilding import Base
from tidelog.core.controller.metadata.registrations import decode_broker
from tidelog.shell.clock import boot_id
from tidelog.shell.store import cluster_file
from tidelog.shell.store.etcd.address import parse_address
from tidelog.shell.store.etcd.gateway import EtcdError
from tidelog.shell.store.etcd.records import (
    FILLING,
    FORMAT,
    Found,
    after_prefix,
    decode_sign,
    range_of,
)
from tidelog.shell.store.etcd.store_setup import StoreSetup
from tidelog.shell.store.log_dir_lock import is_abandoned
from tidelog.shell.store.store_backend import (
    IDENTITY_KEY,
    StoreAccess,
    StoreUnusable,
    parse_identity,
)
from tidelog.shell.store.store_contents import SessionState, StoreContents, is_secret

PATIENCE_S = 30.0


def read_contents(url: str, access: StoreAccess) -> StoreContents:
    """Read everything in the store; values with secrets are empty."""
    with StoreSetup(parse_address(url, access), PATIENCE_S) as setup:
        contents = setup.store.read(setup.give_up_s)
        kvs = contents.snapshot.kvs
        shown = tuple(kv._replace(value=b"") if is_secret(kv.key) else kv for kv in kvs)
        leases = {kv.session for kv in kvs if kv.session != NO_SESSION} | set(contents.signs)
        sessions = tuple(
            _session(setup, session, contents.signs.get(session)) for session in sorted(leases)
        )
        return StoreContents(FORMAT, contents.snapshot.rev, None, shown, sessions)


class Registered(NamedTuple):
    """A broker that has a session: its address for clients, and its lock."""

    broker: int
    host: str
    port: int
    lock: str
    """The path of its lock file if it runs on this machine since its boot; else empty."""
    proved_dead: bool


def read_registrations(
    url: str, access: StoreAccess, patience_s: float = PATIENCE_S
) -> list[Registered]:
    """Read the brokers that have a session. Raises StoreError."""
    with StoreSetup(parse_address(url, access), patience_s) as setup:
        layout, boot = setup.store.layout, boot_id()
        start = layout.data_key(BROKER_IDS)
        found = []
        for one in setup.read_range(range_of(start, after_prefix(start))):
            broker = int(one.key.removeprefix(start))
            endpoints = decode_broker(broker, one.create_rev, one.value).endpoints
            signs = setup.read_range(range_of(layout.live_key(one.lease)))
            sign = decode_sign(signs[0].value, boot) if signs else None
            found.append(
                Registered(
                    broker,
                    endpoints[0].host if endpoints else "",
                    endpoints[0].port if endpoints else 0,
                    "" if sign is None else sign.place,
                    sign is not None and is_abandoned(*sign),
                )
            )
        return found


def end_dead_sessions(url: str, access: StoreAccess) -> None:
    """End the sessions of brokers of this machine whose locks are free. Raises StoreError."""
    with StoreSetup(parse_address(url, access), PATIENCE_S) as setup:
        boot = boot_id()
        for session, value in setup.store.signs(setup.give_up_s).items():
            sign = decode_sign(value, boot)
            if sign is not None and is_abandoned(*sign):
                setup.store.end_session(session, setup.give_up_s)


def _session(setup: StoreSetup, session: SessionId, found: Found | None) -> SessionState:
    try:
        reply = setup.store.gateway.call("/v3/lease/timetolive", {"ID": session}, setup.give_up_s)
    except EtcdError as error:
        if not error.not_found:
            raise
        reply = {}
    sign = None if found is None else decode_sign(found.value, boot_id())
    return SessionState(
        session,
        int(reply.get("grantedTTL", 0)) * 1000,
        max(0, int(reply.get("TTL", 0))) * 1000,
        "" if sign is None else sign.place,
        sign is not None and is_abandoned(*sign),
    )


def read_base(url: str, access: StoreAccess) -> Base:
    """Read the store and what is known of its history. Raises StoreMissing."""
    with StoreSetup(parse_address(url, access), PATIENCE_S) as setup:
        snapshot = setup.store.read(setup.give_up_s).snapshot
        return Base(snapshot, {snapshot.rev: snapshot.checksum})


def backup(url: str, target: str, access: StoreAccess) -> None:
    """Write the keys as of one revision to a new file, which is a store on SQLite."""
    base = read_base(url, access)
    keys = {kv.key: kv.value for kv in base.snapshot.kvs if kv.session == NO_SESSION}
    cluster_file.create_new(target, keys, base.snapshot.rev)


def exists(url: str, access: StoreAccess) -> bool:
    """Whether there is a complete store."""
    with StoreSetup(parse_address(url, access), PATIENCE_S) as setup:
        found = setup.store.find_history(setup.give_up_s)
        return found is not None and found.state != FILLING


def check_unused(url: str, access: StoreAccess) -> None:
    """Raise StoreUnusable if a broker may use the store. A missing store is unused."""
    with StoreSetup(parse_address(url, access), PATIENCE_S) as setup:
        found, _ = setup.store.read_all(setup.give_up_s)
        alive = {one.lease for one in found.values() if one.lease != NO_SESSION}
        boot = boot_id()
        for key, one in found.items():
            sign = decode_sign(one.value, boot) if key.startswith(setup.store.layout.live) else None
            if sign is not None and is_abandoned(*sign):
                setup.store.end_session(one.lease, setup.give_up_s)
                alive.discard(one.lease)
        if alive:
            raise StoreUnusable(
                f"metadata store {url} is in use by {len(alive)} sessions; stop all brokers first,"
                " and wait until the sessions of killed ones have ended"
            )


def replace(
    url: str, keys: dict[str, bytes], rev: Revision, access: StoreAccess, kept: str = ""
) -> Revision:
    """Replace all contents by these keys, at revisions from `rev` on; return the latest.

    `kept`: the file with the present contents, if there is one.
    """
    address = parse_address(url, access)
    if IDENTITY_KEY in keys and parse_identity(keys[IDENTITY_KEY]).secret:
        address.check_secret()
    check_unused(url, access)
    with StoreSetup(address, PATIENCE_S) as setup:
        return setup.fill(keys, rev, kept)


def mark_moved(url: str, target: str, access: StoreAccess) -> None:
    """Mark the store as moved, so that no broker starts on it."""
    with StoreSetup(parse_address(url, access), PATIENCE_S) as setup:
        setup.mark_moved(target)
