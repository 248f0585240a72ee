"""The cluster that the console shows: a data folder on this machine, or bootstrap addresses.

A data folder is read again at each use, so the console finds a cluster that is started later, or
again on other ports.
"""

import time
from typing import Protocol

from tidelog.apps.console.failure import UNAVAILABLE, Failure
from tidelog.core.types import BrokerId
from tidelog.shell.client.security import ClientSecurity, read_security_file
from tidelog.shell.supervisor import throwaway_tls, up_file
from tidelog.shell.supervisor.cluster_plan import join_address
from tidelog.shell.supervisor.live_brokers import live_brokers, registered_address

RUNNING, PAUSED, STOPPED = "running", "paused", "stopped"
_SEARCH_S = 5.0
"""How often brokers that `up.json` does not list are searched: it reads all their open files."""


class Target(Protocol):
    """Where the cluster is."""

    data: str | None
    """The data folder, if the brokers are processes of this machine."""

    def bootstrap(self) -> str:
        """Return the bootstrap addresses. Raises Failure if no cluster is up."""

    def security(self) -> ClientSecurity | None:
        """Return the security settings of connections to it; None: plaintext."""

    def processes(self) -> dict[BrokerId, str]:
        """Return `running`, `paused` or `stopped` by broker; empty for a remote cluster."""


class RemoteCluster:
    """A cluster, Tidelog or Kafka, known by its addresses only."""

    data: str | None = None

    def __init__(self, addresses: str, security: ClientSecurity | None = None) -> None:
        self._addresses = addresses
        self._security = security

    def bootstrap(self) -> str:
        return self._addresses

    def security(self) -> ClientSecurity | None:
        return self._security

    def processes(self) -> dict[BrokerId, str]:
        return {}


class FolderCluster:
    """The cluster of a data folder, whose brokers may be stopped."""

    def __init__(self, data: str, security: ClientSecurity | None = None) -> None:
        """`security` is for brokers that `tidelog up --tls` did not start."""
        self.data: str | None = data
        self._folder = data
        self._security = security
        self._by_hand: dict[BrokerId, int] = {}
        self._searched = float("-inf")

    def bootstrap(self) -> str:
        up = up_file.read(self._folder)
        if up is not None and any(entry.is_running() for entry in up.brokers):
            # A broker that starts for the first time has no port yet.
            listening = [join_address(each.host, each.port) for each in up.brokers if each.port]
            if not listening:
                raise Failure(UNAVAILABLE, f"the cluster in {self._folder} is starting", "wait")
            return ",".join(listening)
        addresses = [registered_address(self._folder, broker) for broker in self._search()]
        if found := [join_address(*address) for address in addresses if address is not None]:
            return ",".join(found)
        where = up_file.option(self._folder)
        raise Failure(
            UNAVAILABLE, f"no cluster is up in {self._folder}", f"start it: tidelog up{where}"
        )

    def security(self) -> ClientSecurity | None:
        if self._security is None and throwaway_tls.is_made(self._folder):
            self._security = read_security_file(
                throwaway_tls.path(self._folder, throwaway_tls.CLIENT)
            )
        return self._security

    def processes(self) -> dict[BrokerId, str]:
        up = up_file.read(self._folder)
        found = {}
        for entry in [] if up is None else up.brokers:
            found[entry.id] = _state(entry.pid) if entry.is_running() else STOPPED
        if not found or STOPPED in found.values():
            found.update({broker: _state(pid) for broker, pid in self._search().items()})
        return found

    def _search(self) -> dict[BrokerId, int]:
        """Return the pids of live brokers, also of those that were started by hand."""
        if time.monotonic() - self._searched > _SEARCH_S:
            self._by_hand = live_brokers(self._folder)
            self._searched = time.monotonic()
        return self._by_hand


def _state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state = file.read().rpartition(b")")[2].split()[0]
    except OSError:
        return RUNNING  # no /proc; the caller found it running
    return PAUSED if state in (b"T", b"t") else RUNNING
