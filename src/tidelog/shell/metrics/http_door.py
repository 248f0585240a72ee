"""The listening socket of a broker's metrics, and its connections.

A broker that is not scraped pays for one socket: the HTTP code is imported with the first
connection. Invariants: there are never more than `CONNECTIONS_MAX` connections, and idle ones
keep no scraper out. A newcomer beyond the limit replaces the connection that has waited longest
for a request, or, where all are being answered, one that has not read for `STALLED_MS`.
"""

import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tidelog.shell.net.event_loop import EventLoop
from tidelog.shell.net.transport import SocketTransport

if TYPE_CHECKING:
    from tidelog.shell.metrics.http_exchange import HttpConnection

CONNECTIONS_MAX = 16
ACCEPTS_PER_TURN = 16
OUT_OF_FILES_PAUSE_MS = 1000
STALLED_MS = 1000


class Page(NamedTuple):
    """What is told at one path; the text is made while it is sent."""

    status: str
    content_type: str
    slices: Iterator[str]


Pages: TypeAlias = Callable[[str], Page | None]
"""By path; None where there is none."""


class HttpDoor:
    """Takes connections in, for one broker."""

    def __init__(self, loop: EventLoop, sock: socket.socket, pages: Pages) -> None:
        self.connections: dict[HttpConnection, None] = {}
        """Oldest first."""
        self._loop = loop
        self._sock = sock
        self._pages = pages
        loop.watch(sock, self)

    def ready(self, _events: int) -> None:
        from tidelog.shell.metrics.http_exchange import HttpConnection

        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, _address = self._sock.accept()
            except BlockingIOError:
                return
            except OSError:
                # Out of files: else whoever waits there would wake the loop again and again.
                self._loop.unwatch(self._sock)
                self._loop.after(OUT_OF_FILES_PAUSE_MS, self._listen_again)
                return
            if len(self.connections) >= CONNECTIONS_MAX and not self._close_one():
                sock.close()
                continue
            transport = SocketTransport(sock)
            connection = HttpConnection(self._loop, transport, self._pages, self.connections.pop)
            self.connections[connection] = None

    def _close_one(self) -> bool:
        """Close a connection to make room for a new one; False if all are being answered."""
        longest = min(self.connections, key=lambda one: (one.answering, one.since_ms))
        if longest.answering and self._loop.clock.now_ms() - longest.since_ms < STALLED_MS:
            return False
        longest.close()
        return True

    def close(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.unwatch(self._sock)
            self._sock.close()
        for connection in list(self.connections):
            connection.close()

    def _listen_again(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.watch(self._sock, self)
