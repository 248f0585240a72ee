"""`tidelog up --host`: the part of a cluster of several machines that runs on this machine.

The data folder notes the machine's address, rack and node ids in `machine.json`, so that the next
`tidelog up` there needs no options. Invariant: checks change nothing.
"""

import errno
import json
import os
import socket
from typing import TYPE_CHECKING

from tidelog.shell.store.store_backend import is_etcd
from tidelog.shell.supervisor.cluster_plan import HOST, ClusterPlan, Machine, join_address
from tidelog.shell.supervisor.data_folder import MACHINE, Refusal, WrongSetting, log_dir

if TYPE_CHECKING:
    from tidelog.core.settings.broker_settings import BrokerSettings

ID_MAX = 2**31 - 1
_ANY = ("0.0.0.0", "::", "[::]", "*")


def choose(data: str, given: Machine, brokers: int | None, store: str) -> Machine:
    """The machine as given on the command line, completed by what the folder notes.

    `brokers` is the number of brokers on the command line, `store` the URL of the metadata store.
    Raises Refusal.
    """
    noted = read(data)
    host = without_brackets(given.host) or (noted.host if noted else "")
    ids = given.node_ids or (noted.node_ids if noted else ())
    if not host:
        raise WrongSetting(
            "--rack, --node-ids and --secret-file describe one of several machines; add --host with"
            " this machine's address (racks of a cluster on one machine: --racks)"
        )
    if not is_etcd(store):
        raise WrongSetting(
            f"--host {host} is for a cluster of several machines, and these need a metadata store"
            " that all of them reach; add --store etcd://HOST:PORT,HOST:PORT/PREFIX"
        )
    check_host(host)
    if not ids:
        raise WrongSetting(
            "--host needs --node-ids, such as --node-ids 11,12: brokers of all machines of a"
            " cluster have different ids"
        )
    if brokers is not None and brokers != len(ids):
        shown = ",".join(map(str, ids))
        raise WrongSetting(
            f"--brokers {brokers} does not match --node-ids {shown}, which"
            f" {'is' if len(ids) == 1 else 'are'} {len(ids)}; give one id for each broker"
        )
    rack = given.rack or (noted.rack if noted else host)
    secret = given.secret_file and os.path.abspath(given.secret_file)
    return Machine(host, rack, ids, secret or (noted.secret_file if noted else ""))


def parse_ids(text: str) -> tuple[int, ...]:
    """Parse `11,12`. Raises WrongSetting."""
    ids = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        if not (word.isascii() and word.isdecimal()) or int(word) > ID_MAX:
            raise WrongSetting(f"--node-ids {text}: {word!r} is not a broker id, such as 11")
        if int(word) in ids:
            raise WrongSetting(f"--node-ids {text}: broker id {int(word)} is given twice")
        ids.append(int(word))
    if text and not ids:
        raise WrongSetting(f"--node-ids {text!r} names no broker id; use --node-ids 11,12")
    return tuple(ids)


def without_brackets(host: str) -> str:
    """An IPv6 address as listeners have it, `[fd00::1]`, without its brackets."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def check_host(host: str) -> None:
    """Raise WrongSetting unless brokers can listen on the host and other machines can use it."""
    if host in _ANY:
        raise WrongSetting(
            f"--host {host} is not an address that other machines can connect to; name one of this"
            " machine's addresses (`ip address` lists them)"
        )
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "not a valid name"
        raise WrongSetting(f"--host {host} is unknown: {why}") from error
    for family, kind, protocol, _, address in found:
        literal = address[0] == host or host == HOST
        if not literal and str(address[0]).startswith(("127.", "::1")):
            raise WrongSetting(
                f"--host {host} is {address[0]} on this machine, which other machines can't connect"
                " to; name an address of the network (`ip address` lists them)"
            )
        with socket.socket(family, kind, protocol) as sock:
            try:
                sock.bind(address)
            except OSError as error:
                why = f"can't be used: {error.strerror}"
                if error.errno == errno.EADDRNOTAVAIL:
                    why = "is not an address of this machine; `ip address` lists them"
                raise WrongSetting(f"--host {host} {why}") from error


def check_secret(settings: "BrokerSettings") -> None:
    """Raise WrongSetting if the cluster's secret would be sent over a network as plain text."""
    from tidelog.shell.store.etcd.address import parse_address
    from tidelog.shell.store.open_store import access_of
    from tidelog.shell.store.store_backend import StoreError

    try:
        parse_address(settings.metadata_store, access_of(settings)).check_secret()
    except StoreError as error:
        raise WrongSetting(str(error)) from error


def check_ids(plan: ClusterPlan, settings: "BrokerSettings") -> None:
    """Raise Refusal if a broker of another machine or folder runs under an id of this plan."""
    from tidelog.shell.store.etcd.store_admin import read_registrations
    from tidelog.shell.store.log_dir_lock import LOCK_NAME
    from tidelog.shell.store.open_store import access_of

    for one in read_registrations(plan.store_url, access_of(settings)):
        if one.broker not in plan.brokers or one.proved_dead:
            continue
        own = os.path.join(log_dir(plan.data, one.broker), LOCK_NAME)
        here = one.host == plan.host
        if here and (not one.lock or os.path.realpath(one.lock) == os.path.realpath(own)):
            continue  # an earlier process of this very broker, whose session has not ended yet
        where = f"in {os.path.dirname(one.lock)}" if here else "of another machine"
        raise Refusal(
            f"node id {one.broker} is in use by a broker {where},"
            f" {join_address(one.host, one.port)}; choose others with --node-ids, or stop that"
            " broker; after a crash its session ends within 9 s"
        )


def end_dead_sessions(plan: ClusterPlan, settings: "BrokerSettings", files: list[int]) -> None:
    """End the sessions of this machine's dead brokers in a process of its own, and do not wait.

    Brokers of other machines can't check the locks, and would wait for the time-out. `files` are
    the supervisor's descriptors, which the process closes: it may outlive the supervisor.
    """
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    try:
        if os.fork() == 0:
            from tidelog.shell.store.etcd import store_admin
            from tidelog.shell.store.open_store import access_of

            for file in files:
                os.close(file)
            null = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):  # a reader of the supervisor's output must not wait for it
                os.dup2(null, stream)
            store_admin.end_dead_sessions(plan.store_url, access_of(settings))
    finally:
        os._exit(0)  # if it failed, the sessions end by their time-out


def read(data: str) -> Machine | None:
    """What the folder notes; None if it notes no machine. Raises Refusal."""
    path = os.path.join(data, MACHINE)
    try:
        with open(path, encoding="utf-8") as file:
            fields = json.load(file)
        return Machine(
            str(fields["host"]),
            str(fields["rack"]),
            tuple(map(int, fields["node_ids"])),
            str(fields.get("secret_file", "")),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Refusal(
            f"can't read {path}: {error}; delete it, and name --host, --rack and --node-ids"
        ) from error


def note(data: str, machine: Machine) -> None:
    """Note the machine in its folder, for the next start."""
    path = os.path.join(data, MACHINE)
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(machine._asdict(), file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)
