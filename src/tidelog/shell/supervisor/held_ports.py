"""Ports that stay a cluster's own while its brokers are down.

The system may give a free port to anybody, also one whose broker was killed and is about to be
started again. A socket that is bound and does not listen keeps it: on Linux a broker can listen
there all the same, for both say that they share it, and nobody who asks for any free port is
given it. Elsewhere a broker could not, so nothing is held.

Always true: who connects is refused unless a broker listens.
"""

import errno
import socket
import sys

_TRIES = 20


class HeldPorts:
    """Sockets that only keep their ports."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def hold(self, host: str, port: int) -> int:
        """Keep this port, or any free one for 0; what could be kept, else what was asked for."""
        if sys.platform != "linux":
            return port
        for _ in range(1 if port else _TRIES):
            held = _bound(host, port)
            if held:
                self._sockets += held
                return int(held[0].getsockname()[1])
        return port

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()
        self._sockets = []


def _bound(host: str, port: int) -> list[socket.socket]:
    """On all addresses of the host, the same port; none if it is taken on one of them."""
    found: list[socket.socket] = []
    for family, kind, protocol, _, address in socket.getaddrinfo(
        host, port, 0, socket.SOCK_STREAM, 0, socket.AI_PASSIVE
    ):
        wanted = found[0].getsockname()[1] if found else port
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((address[0], wanted, *address[2:]))
            found.append(sock)
        except OSError as error:
            sock.close()
            if error.errno == errno.EADDRNOTAVAIL:
                continue
            for each in found:
                each.close()
            return []
    return found
