"""One broker's metrics, from its setting to its pages: off, or a socket of its own.

Nothing of what is behind the socket is imported before somebody asks.
"""

import socket
from collections.abc import Callable

from tidelog.core.node.measuring.request_times import RequestTimes
from tidelog.core.node.node import Node
from tidelog.core.settings.listeners import Listener
from tidelog.shell.metrics.http_door import HttpDoor, Page, Pages
from tidelog.shell.net.event_loop import EventLoop
from tidelog.shell.net.listener import CannotListen, bind

SETTING = "tidelog.metrics.listener"


class Exposure:
    """The sockets, bound before the broker is; the doors, opened when it is there."""

    def __init__(self, loop: EventLoop, listener: Listener | None) -> None:
        self._loop = loop
        self._sockets: list[socket.socket] = []
        self._doors: list[HttpDoor] = []
        self.address: str | None = None
        """host:port, for whoever scrapes; None if it is off."""
        if listener is None:
            return
        try:
            self._sockets = bind(listener.host, listener.port)
        except CannotListen as reason:
            raise CannotListen(f"{SETTING}: {reason}") from reason
        host = socket.gethostname() if listener.everywhere else listener.host
        shown = f"[{host}]" if ":" in host else host
        self.address = f"{shown}:{self._sockets[0].getsockname()[1]}"

    def open(
        self,
        node: Node,
        times: RequestTimes,
        connections: Callable[[], dict[str, int]],
        ended: Callable[[], dict[str, int]],
        cluster_id: str,
    ) -> None:
        made: list[Pages] = []

        def pages(path: str) -> Page | None:
            if not made:
                from tidelog.shell.metrics.pages import MetricsPages

                now_ms = self._loop.clock.now_ms
                who = {"cluster_id": cluster_id, "broker": str(node.config.broker_id)}
                made.append(MetricsPages(node, times, now_ms, connections, ended, who))
            return made[0](path)

        self._doors = [HttpDoor(self._loop, sock, pages) for sock in self._sockets]

    def close(self) -> None:
        for door in self._doors:
            door.close()
        for sock in self._sockets:
            sock.close()
