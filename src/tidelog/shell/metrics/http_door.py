"""The socket on which a broker tells its metrics, and who has come through it.

A broker that nobody asks pays for one socket; what speaks HTTP is imported when the first one
comes. Always true: there are never more connections than `CONNECTIONS_MAX`, and none stays for
longer than it has something to do.
"""

import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tidelog.shell.net.event_loop import EventLoop

if TYPE_CHECKING:
    from tidelog.shell.metrics.http_exchange import HttpConnection

CONNECTIONS_MAX = 16
ACCEPTS_PER_TURN = 16
OUT_OF_FILES_PAUSE_MS = 1000


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
        self.connections: set[HttpConnection] = set()
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
            if len(self.connections) >= CONNECTIONS_MAX:
                sock.close()
                continue
            connection = HttpConnection(self._loop, sock, self._pages, self.connections.discard)
            self.connections.add(connection)

    def close(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.unwatch(self._sock)
            self._sock.close()
        for connection in list(self.connections):
            connection.close()

    def _listen_again(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.watch(self._sock, self)
