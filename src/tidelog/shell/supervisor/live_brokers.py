"""Find the live brokers of a data folder: processes that hold the locks of their log folders.

The kernel frees a lock with its process, so a held lock proves that the broker is alive, whether
`tidelog up` started it or a user with `tidelog broker`. `up.json` knows only the
former, and the metadata store keeps registrations of brokers that are down.

Invariant: a pid is returned only if that process has the lock file open, as far as /proc shows
it; a stale number in the file never becomes the target of a signal.
"""

import os
from typing import NamedTuple

from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.registrations import decode_broker
from tidelog.shell.store.log_dir_lock import LOCK_NAME, is_free
from tidelog.shell.store.store_backend import StoreError, is_etcd
from tidelog.shell.store.store_contents import read_contents
from tidelog.shell.supervisor import data_folder

PROC = "/proc"
ETCD_S = 2.0
"""How long to wait for etcd."""


class Place(NamedTuple):
    """A broker that a process runs: its cluster's folder, and its id."""

    data: str
    broker: int


def live_brokers(data: str) -> dict[int, int]:
    """The pids of the live brokers of a data folder, by broker id."""
    found = {}
    for broker in data_folder.broker_ids(data):
        lock = os.path.join(data_folder.log_dir(data, broker), LOCK_NAME)
        if os.path.exists(lock) and not is_free(lock):
            pid = data_folder.lock_holder(lock)
            if pid is not None and _has_open(pid, lock):
                found[broker] = pid
    return found


def registered_address(data: str, broker: int) -> tuple[str, int] | None:
    """The address for clients in a broker's registration; None if it is unknown."""
    store = data_folder.store_url(data)
    if is_etcd(store):
        return _registered_in_etcd(store, broker)
    try:
        contents = read_contents(store.removeprefix("sqlite:"))
    except StoreError:
        return None
    for kv in contents.kvs:
        if kv.key == keys.broker_id(broker):
            endpoints = decode_broker(broker, kv.create_rev, kv.value).endpoints
            return (endpoints[0].host, endpoints[0].port) if endpoints else None
    return None


def _registered_in_etcd(url: str, broker: int) -> tuple[str, int] | None:
    """The address in a broker's registration; the login is in the environment, if one is needed."""
    from tidelog.shell.settings_sources import load_settings
    from tidelog.shell.store.etcd.store_admin import read_registrations
    from tidelog.shell.store.open_store import access_of

    try:
        settings = load_settings(None, os.environ, (), {"node.id": "1"}).settings
        found = read_registrations(url, access_of(settings), ETCD_S)
    except (StoreError, ValueError):
        return None
    return next(((one.host, one.port) for one in found if one.broker == broker), None)


def clusters() -> dict[str, list[int]]:
    """The data folders on this machine with live brokers, and the brokers' ids.

    Finds only processes of this user, and none on systems without /proc.
    """
    found: dict[str, list[int]] = {}
    for name in os.listdir(PROC) if os.path.isdir(PROC) else ():
        for place in places_of(int(name)) if name.isdecimal() else ():
            found.setdefault(place.data, []).append(place.broker)
    return {data: sorted(brokers) for data, brokers in sorted(found.items())}


def places_of(pid: int) -> list[Place]:
    """The brokers that this process runs, by the lock files that it has open."""
    places = set()
    for path in _open_files(pid):
        folder, name = os.path.split(path)
        data, log_dir = os.path.split(folder)
        broker = data_folder.broker_id(log_dir)
        if name == LOCK_NAME and broker is not None:
            places.add(Place(data, broker))
    return sorted(places)


def _has_open(pid: int, path: str) -> bool:
    if not os.path.isdir(PROC):
        return True
    return os.path.realpath(path) in _open_files(pid)


def _open_files(pid: int) -> set[str]:
    folder = os.path.join(PROC, str(pid), "fd")
    found = set()
    try:
        for entry in os.listdir(folder):
            found.add(os.readlink(os.path.join(folder, entry)))
    except OSError:
        return found  # another user's process, or one that has just ended
    return found
