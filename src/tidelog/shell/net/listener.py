"""A listening socket, and the connections it took.

Limits are Kafka's: so many connections in all and from one address; those that have been
silent for too long are closed.
"""

import errno
import socket
from typing import Any, NamedTuple, Protocol

from tidelog.shell.net.connection import Connection
from tidelog.shell.net.event_loop import EventLoop
from tidelog.shell.os_disk import OsDisk

BACKLOG = 50
SYSTEM_DEFAULT = -1
"""A socket buffer's size: as the system has it."""
ACCEPTS_PER_TURN = 64
OUT_OF_FILES_PAUSE_MS = 1000
SWEEP_MS = 10_000
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Service(Protocol):
    """What happens to the frames of a listener's connections."""

    def frame(self, connection: Connection, frame: memoryview) -> None:
        """Handle one; the frame is good until this returns."""
        ...

    def closed(self, connection: Connection) -> None:
        """The connection is gone."""
        ...


class Limits(NamedTuple):
    """Under Kafka's names: `max.connections` and so on."""

    frame_max: int
    connections_max: int
    connections_per_ip_max: int
    idle_max_ms: int
    send_buffer: int = SYSTEM_DEFAULT
    receive_buffer: int = SYSTEM_DEFAULT
    descriptor_max: int = 1 << 30
    """Connections get no higher descriptor: what is left is for files. The system gives the
    lowest that is free."""


class CannotListen(Exception):
    """The address can't be had."""


def bind(host: str, port: int, backlog: int = BACKLOG) -> list[socket.socket]:
    """Sockets that listen there; `localhost` means both IPv4 and IPv6 where there is IPv6.

    With port 0 all get the same free one.
    """
    try:
        # As bytes: for a string Python imports what it needs for names beyond ASCII.
        name = host.encode("idna") if not host.isascii() else host.encode() or None
        found = socket.getaddrinfo(name, port, 0, socket.SOCK_STREAM, 0, socket.AI_PASSIVE)
    except OSError as error:
        raise CannotListen(f"{host}:{port}: {error.strerror}: check listeners=") from error
    sockets: list[socket.socket] = []
    for family, kind, protocol, _, address in found:
        wanted = sockets[0].getsockname()[1] if sockets else port
        try:
            where = (address[0], wanted, *address[2:])
            sockets.append(_listening(family, kind, protocol, where, backlog))
        except OSError as error:
            if error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL) and len(found) > 1:
                continue
            for sock in sockets:
                sock.close()
            hint = ": is another broker there?" if error.errno == errno.EADDRINUSE else ""
            raise CannotListen(f"{host}:{wanted}: {error.strerror}{hint}") from error
    if not sockets:
        raise CannotListen(f"{host}:{port}: no such address on this machine")
    return sockets


def _listening(
    family: int, kind: int, protocol: int, address: tuple[Any, ...], backlog: int
) -> socket.socket:
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setblocking(False)
        sock.bind(address)
        sock.listen(backlog)
    except OSError:
        sock.close()
        raise
    return sock


class Listener:
    """Takes connections in."""

    def __init__(
        self,
        loop: EventLoop,
        sock: socket.socket,
        disk: OsDisk,
        service: Service,
        limits: Limits,
    ) -> None:
        self.connections: set[Connection] = set()
        self._loop = loop
        self._sock = sock
        self._disk = disk
        self._service = service
        self._limits = limits
        self._by_ip: dict[str, int] = {}
        self._ips: dict[Connection, str] = {}
        self._sweep = loop.after(SWEEP_MS, self._sweep_idle)
        loop.watch(sock, self)

    @property
    def port(self) -> int:
        return int(self._sock.getsockname()[1])

    def ready(self, _events: int) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, address = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _OUT_OF_FILES:
                    # Else the waiting connection would wake the loop again and again.
                    self._loop.unwatch(self._sock)
                    self._loop.after(OUT_OF_FILES_PAUSE_MS, self._listen_again)
                return
            self._take(sock, str(address[0]), int(address[1]))

    def _forget(self, connection: Connection) -> None:
        self.connections.discard(connection)
        ip = self._ips.pop(connection, None)
        if ip is not None:
            self._by_ip[ip] -= 1
            if not self._by_ip[ip]:
                del self._by_ip[ip]
        self._service.closed(connection)

    def close(self) -> None:
        self._sweep.cancel()
        if self._sock.fileno() >= 0:
            self._loop.unwatch(self._sock)
            self._sock.close()
        for connection in list(self.connections):
            connection.close("the broker stops")

    def _take(self, sock: socket.socket, ip: str, port: int) -> None:
        limits = self._limits
        if (
            len(self.connections) >= limits.connections_max
            or sock.fileno() > limits.descriptor_max
            or self._by_ip.get(ip, 0) >= limits.connections_per_ip_max
        ):
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if limits.send_buffer != SYSTEM_DEFAULT:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer)
        if limits.receive_buffer != SYSTEM_DEFAULT:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer)
        connection = Connection(
            self._loop,
            sock,
            f"{ip}:{port}",
            self._disk,
            limits.frame_max,
            self._service.frame,
            self._forget,
        )
        self.connections.add(connection)
        self._ips[connection] = ip
        self._by_ip[ip] = self._by_ip.get(ip, 0) + 1

    def _listen_again(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.watch(self._sock, self)

    def _sweep_idle(self) -> None:
        now = self._loop.clock.now_ms()
        for connection in list(self.connections):
            idle_ms = now - connection.active_ms
            if 0 <= self._limits.idle_max_ms < idle_ms:
                connection.close("silent for too long")
            elif idle_ms > SWEEP_MS:
                connection.shrink()
        self._sweep = self._loop.after(SWEEP_MS, self._sweep_idle)
