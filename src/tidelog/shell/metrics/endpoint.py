"""The metrics endpoint of a broker: its listening socket and HTTP connections.

A broker that is not scraped has one socket more: the HTTP code is imported with the first
connection. Invariants: there are never more than `CONNECTIONS_MAX` connections, and idle ones
keep no scraper out. A new connection beyond the limit replaces one that waits for a request, or
that has not read for `STALLED_MS`: of the address that has most connections, the one that has
waited longest. If only addresses with fewer connections than its own have such connections, it is
refused: a flood from one address closes no connection of another.
"""

import socket
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.core.node.measuring.request_times import RequestTimes
from tidelog.core.node.node import Node
from tidelog.core.settings.listeners import Listener
from tidelog.shell.net.event_loop import EventLoop
from tidelog.shell.net.listener import CannotListen, ListeningSocket, NewTransport, bind
from tidelog.shell.net.transport import SocketTransport

if TYPE_CHECKING:
    from tidelog.shell.metrics.credentials import Credentials
    from tidelog.shell.metrics.http_connection import HttpConnection, Page, Pages

CONNECTIONS_MAX = 16
STALLED_MS = 1000
SETTING = "tidelog.metrics.listener"


class HttpListener(ListeningSocket):
    """Accepts HTTP connections on one socket."""

    def __init__(
        self,
        loop: EventLoop,
        sock: socket.socket,
        pages: "Pages",
        new_transport: NewTransport = SocketTransport,
        credentials: "Credentials | None" = None,
        refused: Callable[[str], None] = lambda _peer: None,
    ) -> None:
        """`refused` is called with the address of each client that lacks the credentials."""
        self.connections: dict[HttpConnection, str] = {}
        """The address of each, oldest first."""
        self._pages = pages
        self._credentials = credentials
        self._refused = refused
        super().__init__(loop, sock, new_transport)

    def accepted(self, sock: socket.socket, ip: str, port: int) -> None:
        from tidelog.shell.metrics.http_connection import Access, HttpConnection

        if len(self.connections) >= CONNECTIONS_MAX and not self._close_one(ip):
            sock.close()
            return
        transport = self._new_transport(sock)
        access = None
        if self._credentials is not None:
            access = Access(self._credentials, lambda: self._refused(f"{ip}:{port}"))
        forget = self.connections.__delitem__
        connection = HttpConnection(self._loop, transport, self._pages, forget, access)
        self.connections[connection] = ip

    def _close_one(self, new_ip: str) -> bool:
        """Close a connection to make room for one from `new_ip`; False if none may be closed."""
        now_ms = self._loop.clock.now_ms()
        count = Counter([*self.connections.values(), new_ip])
        closable = [
            (-count[ip], one.answering, one.since_ms, one)
            for one, ip in self.connections.items()
            if not one.answering or now_ms - one.since_ms >= STALLED_MS
            if count[ip] >= count[new_ip]
        ]
        if not closable:
            return False
        min(closable, key=lambda row: row[:3])[3].close()
        return True

    def close(self) -> None:
        self.stop_listening()
        for connection in list(self.connections):
            connection.close()


class MetricsEndpoint:
    """One broker's endpoint. Its sockets are bound at start, and served once the broker runs."""

    def __init__(
        self,
        loop: EventLoop,
        listener: Listener | None,
        tls: NewTransport | None = None,
        credentials: "Credentials | None" = None,
    ) -> None:
        """`tls` makes the transports of a listener with TLS."""
        self._loop = loop
        self._tls = tls
        self._credentials = credentials
        self._sockets: list[socket.socket] = []
        self._listeners: list[HttpListener] = []
        self.address: str | None = None
        """host:port for Prometheus, with https:// before it if it uses TLS; None if metrics are
        off."""
        if listener is None:
            return
        try:
            self._sockets = bind(listener.host, listener.port)
        except CannotListen as reason:
            raise CannotListen(f"{SETTING}: {reason}") from reason
        host = socket.gethostname() if listener.everywhere else listener.host
        shown = f"[{host}]" if ":" in host else host
        scheme = "" if tls is None else "https://"
        self.address = f"{scheme}{shown}:{self._sockets[0].getsockname()[1]}"

    def open(
        self,
        node: Node,
        times: RequestTimes,
        connections: Callable[[], dict[str, int]],
        ended: Callable[[], dict[str, int]],
        cluster_id: str,
        refused: Callable[[str], None],
    ) -> None:
        made: list[Pages] = []

        def pages(path: str) -> "Page | None":
            if not made:
                from tidelog.shell.metrics.pages import MetricsPages

                now_ms = self._loop.clock.now_ms
                who = {"cluster_id": cluster_id, "broker": str(node.config.broker_id)}
                made.append(MetricsPages(node, times, now_ms, connections, ended, who))
            return made[0](path)

        guard = (self._tls or SocketTransport, self._credentials, refused)
        self._listeners = [HttpListener(self._loop, sock, pages, *guard) for sock in self._sockets]

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        for sock in self._sockets:
            sock.close()
