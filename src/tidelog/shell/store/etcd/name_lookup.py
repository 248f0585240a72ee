"""Look up the addresses of etcd's nodes in threads of their own.

The system's resolver has no time limit: with a name server that does not respond it returns after
5 s or more, and a call of 3 s, such as the renewal of a session, would take as long. So a lookup
runs in a thread of its own. A caller gets the last known addresses at once, and waits, in its own
time limit, only while none is known. A lookup that fails keeps the last known addresses.
"""

import _thread
import socket
import time
from collections.abc import Iterable
from signal import SIG_BLOCK, SIG_SETMASK, SIGCHLD, SIGHUP, SIGINT, SIGTERM, pthread_sigmask
from typing import Any, NamedTuple, TypeAlias

from tidelog.shell.store.etcd.http_connection import Endpoint

FRESH_S = 5.0
"""How long found addresses are used before they are looked up again, with the next connection."""
_AGAIN_S = 0.5
"""The pause after a lookup that failed."""
_STOP_SIGNALS = (SIGHUP, SIGINT, SIGTERM, SIGCHLD)

Addresses: TypeAlias = list[tuple[Any, Any, int, str, Any]]
"""As `socket.getaddrinfo` returns them."""


class _Known(NamedTuple):
    """The addresses of one node's name."""

    addresses: Addresses
    """Empty before the first lookup that succeeded."""
    problem: str
    """Why the last lookup failed."""
    fresh_until_s: float


_NOTHING = _Known([], "", 0.0)


class NameLookup:
    """The addresses of nodes, for all threads of a client."""

    __slots__ = ("_known", "_lock", "_running")

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._known: dict[Endpoint, _Known] = {}
        self._running: dict[Endpoint, Any] = {}
        """Locks that are held while a lookup runs."""

    def prepare(self, endpoints: Iterable[Endpoint]) -> None:
        """Start to look up the names whose addresses are unknown or old."""
        for endpoint in endpoints:
            if _numeric(endpoint) is None:
                self._start(endpoint)

    def addresses(self, endpoint: Endpoint, give_up_s: float) -> Addresses:
        """Return the last known addresses of a node. Raises OSError if there are none in time."""
        if (numeric := _numeric(endpoint)) is not None:
            return numeric
        running = self._start(endpoint)
        if not self._known.get(endpoint, _NOTHING).addresses and running is not None:
            if not running.acquire(timeout=max(0.0, give_up_s - time.monotonic())):
                raise OSError(f"the name {endpoint.host} was not resolved in time")
            running.release()
        known = self._known.get(endpoint, _NOTHING)
        if not known.addresses:
            raise OSError(f"the name {endpoint.host} can't be resolved: {known.problem}")
        return known.addresses

    def _start(self, endpoint: Endpoint) -> Any:
        """Start a lookup if one is due. Return the lock of the one that runs; None if none does."""
        with self._lock:
            running = self._running.get(endpoint)
            known = self._known.get(endpoint, _NOTHING)
            if running is not None or time.monotonic() < known.fresh_until_s:
                return running
            running = self._running[endpoint] = _thread.allocate_lock()
            running.acquire()
        # Block signals in this thread: a signal delivered here would not wake the host's thread.
        before = pthread_sigmask(SIG_BLOCK, _STOP_SIGNALS)
        try:
            _thread.start_new_thread(self._look_up, (endpoint, running))
        except RuntimeError as error:  # too many threads
            self._ended(endpoint, running, [], str(error))
        finally:
            pthread_sigmask(SIG_SETMASK, before)
        return running

    def _look_up(self, endpoint: Endpoint, running: Any) -> None:
        found: Addresses = []
        problem = ""
        try:
            found = socket.getaddrinfo(*endpoint, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            problem = getattr(error, "strerror", None) or str(error)
        self._ended(endpoint, running, found, problem)

    def _ended(self, endpoint: Endpoint, running: Any, found: Addresses, problem: str) -> None:
        now_s = time.monotonic()
        with self._lock:
            if found:
                self._known[endpoint] = _Known(found, "", now_s + FRESH_S)
            else:
                earlier = self._known.get(endpoint, _NOTHING).addresses
                self._known[endpoint] = _Known(earlier, problem, now_s + _AGAIN_S)
            del self._running[endpoint]
        running.release()


def _numeric(endpoint: Endpoint) -> Addresses | None:
    """Return the address if the host is one; None if it is a name."""
    try:
        return socket.getaddrinfo(*endpoint, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return None
