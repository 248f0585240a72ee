"""A listening socket and the connections that it accepted.

Limits are Kafka's: the number of connections in all and from one address, and of new ones in a
second (shared_limits.py). A connection is closed when it has been idle for too long, unless it
waits for a response, and when it does not complete a request in time.

A listener for brokers, and one with SASL, has limits for peers that are not proved yet: few
connections, a small frame, a short time for the handshake. A new connection beyond them replaces
the oldest unproven connection of the address that has most of them. So no number of unproven
connections keeps a broker or a user out, and proved peers are never closed for others.
"""

import errno
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

from tidelog.core.api.exchange import CloseCode
from tidelog.shell.net.connection import Connection
from tidelog.shell.net.event_loop import EventLoop, Timer
from tidelog.shell.net.same_host import is_own_process, unpace, widen
from tidelog.shell.net.shared_limits import Bounds, Shares
from tidelog.shell.net.transport import SocketTransport, Transport
from tidelog.shell.os_disk import FileSource

BACKLOG = 4096
SYSTEM_DEFAULT = -1
"""For a socket buffer's size: the system's default."""
ACCEPTS_PER_TURN = 64
OUT_OF_FILES_PAUSE_MS = 1000
SWEEP_MS = 10_000
SWEEP_MIN_MS = 50
NEVER = -1
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


NewTransport: TypeAlias = Callable[[socket.socket], Transport]


class Service(Protocol):
    """Handles the frames of a listener's connections."""

    def frame(self, connection: Connection, frame: memoryview) -> None:
        """Handle one frame; its memory is valid until this returns."""
        ...

    def closed(self, connection: Connection) -> None:
        """Called after the connection closed."""
        ...


class UnprovenLimits(NamedTuple):
    """The limits of peers that have not proved yet that they are brokers of this cluster, or which
    users they are."""

    frame_max: int
    connections_max: int
    deadline_ms: int
    """For the whole handshake, from the moment the connection is accepted."""


class Limits(NamedTuple):
    """The limits of each connection of a listener."""

    frame_max: int
    idle_max_ms: int = NEVER
    receive_timeout_ms: int = NEVER
    """How long the bytes of one request may take to arrive."""
    in_flight_max: int = 128
    send_buffer: int = SYSTEM_DEFAULT
    receive_buffer: int = SYSTEM_DEFAULT
    descriptor_max: int = 1 << 30
    """The highest descriptor for connections; the rest is for files. The system assigns the lowest
    free one."""
    unproven: UnprovenLimits | None = None
    """None: peers need no proof."""
    is_for_brokers: bool = False
    """Whether proved peers have no idle limit."""


class CannotListen(Exception):
    """The broker can't listen on an address. Its text is one line."""


def bind(host: str, port: int, backlog: int = BACKLOG) -> list[socket.socket]:
    """Listen on an address; return one socket for each address of the host.

    `localhost` means IPv4 and IPv6, if the machine has IPv6. With port 0 all sockets get the same
    free port. Raises CannotListen.
    """
    try:
        # As bytes: for a string Python imports what it needs for names beyond ASCII.
        name = host.encode("idna") if not host.isascii() else host.encode() or None
        found = socket.getaddrinfo(name, port, 0, socket.SOCK_STREAM, 0, socket.AI_PASSIVE)
    except OSError as error:
        raise CannotListen(
            f"can't listen on {host}:{port}: {error.strerror}; check the host name"
        ) from error
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
            in_use = error.errno == errno.EADDRINUSE
            hint = "; stop the program that uses it, or choose another port" if in_use else ""
            raise CannotListen(
                f"can't listen on {host}:{wanted}: {error.strerror}{hint}"
            ) from error
    if not sockets:
        raise CannotListen(f"can't listen on {host}:{port}: this machine has no such address")
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


def _probe_silent_peer(sock: socket.socket) -> None:
    """Let the kernel close the connection of a broker whose machine is lost.

    Such a connection has no idle limit. The broker that opened it notices the loss sooner and opens
    another one (`_detect_lost_peer` in transport.py), and this one would stay for ever.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
    for name, value in options.items():
        option: int | None = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _tune(sock: socket.socket, limits: Limits) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if limits.is_for_brokers:
        _probe_silent_peer(sock)
    if limits.send_buffer != SYSTEM_DEFAULT:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer)
    if limits.receive_buffer != SYSTEM_DEFAULT:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer)


class ListeningSocket:
    """A listening socket that the loop watches. A subclass handles each accepted socket.

    `new_transport` makes the transport of an accepted connection (transport.py).
    """

    def __init__(
        self,
        loop: EventLoop,
        sock: socket.socket,
        new_transport: NewTransport = SocketTransport,
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._new_transport = new_transport
        loop.watch(sock, self)

    @property
    def port(self) -> int:
        return int(self._sock.getsockname()[1])

    def accepted(self, sock: socket.socket, ip: str, port: int) -> None:
        """Serve a new connection, or close the socket."""
        raise NotImplementedError

    def pause_ms(self) -> int:
        """How long to accept no connection; 0 if one may be accepted now."""
        return 0

    def ready(self, _events: int) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            pause_ms = self.pause_ms()
            if pause_ms:
                self._pause(pause_ms)
                return
            try:
                sock, address = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _OUT_OF_FILES:
                    self._pause(OUT_OF_FILES_PAUSE_MS)
                return
            if sock.family == socket.AF_UNIX:
                address = ("127.0.0.1", 0)  # the peer of a Unix socket has no IP address
            self.accepted(sock, str(address[0]), int(address[1]))

    def stop_listening(self) -> None:
        """Close the listening socket; accepted connections stay open."""
        if self._sock.fileno() >= 0:
            self._loop.unwatch(self._sock)
            self._sock.close()

    def _pause(self, for_ms: int) -> None:
        """Accept no connection for a while: waiting peers would wake the loop repeatedly."""
        self._loop.unwatch(self._sock)
        self._loop.after(for_ms, self._listen_again)

    def _listen_again(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.watch(self._sock, self)


class Listener(ListeningSocket):
    """Accepts connections of Kafka's protocol and closes idle ones."""

    def __init__(
        self,
        loop: EventLoop,
        sock: socket.socket,
        disk: FileSource,
        service: Service,
        limits: Limits,
        shares: Shares,
        new_transport: NewTransport = SocketTransport,
    ) -> None:
        self.connections: set[Connection] = set()
        self._disk = disk
        self._service = service
        self._limits = limits
        self._admission = shares.admission
        self._rate = shares.creation_rate
        self._bounds = Bounds(
            limits.frame_max, limits.in_flight_max, shares.requests, shares.answers
        )
        self._ips: dict[Connection, str] = {}
        self._held: dict[socket.socket, Timer] = {}
        """Accepted sockets that are not served, until they are closed."""
        self._unproven: dict[Connection, int] = {}
        """When each was accepted, oldest first; proved ones are removed at the next check."""
        times = [limits.idle_max_ms, limits.receive_timeout_ms]
        if limits.unproven is not None:
            times.append(limits.unproven.deadline_ms)
        shortest = min((ms for ms in times if ms != NEVER), default=SWEEP_MS)
        self._sweep_ms = min(SWEEP_MS, max(shortest // 4, SWEEP_MIN_MS))
        self._sweep = loop.after(self._sweep_ms, self._sweep_idle)
        super().__init__(loop, sock, new_transport)

    def pause_ms(self) -> int:
        now_ms = self._loop.clock.now_ms()
        return max(self._admission.pause_ms(now_ms), self._rate.pause_ms(now_ms))

    def _forget(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._unproven.pop(connection, None)
        ip = self._ips.pop(connection, None)
        if ip is not None:
            self._admission.leave(ip)
        self._service.closed(connection)

    def close(self) -> None:
        self._sweep.cancel()
        self.stop_listening()
        for connection in list(self.connections):
            connection.close("the broker stops")
        for sock, timer in list(self._held.items()):
            timer.cancel()
            self._admission.release()
            sock.close()
        self._held.clear()

    def accepted(self, sock: socket.socket, ip: str, port: int) -> None:
        limits = self._limits
        wait_ms = self._admission.wait_ms(ip, self._loop.clock.now_ms())
        if wait_ms:
            self._close_later(sock, wait_ms)
            return
        self._rate.take()
        foreign = sock.family == socket.AF_UNIX and not is_own_process(sock)
        if foreign or sock.fileno() > limits.descriptor_max or not self._admission.admit(ip):
            sock.close()
            return
        try:
            sock.setblocking(False)
            if sock.family == socket.AF_UNIX:
                widen(sock)
            else:
                _tune(sock, limits)
                unpace(sock, ip)
        except OSError:
            # Some systems report here that the peer has already disconnected.
            self._admission.leave(ip)
            sock.close()
            return
        connection = Connection(
            self._loop,
            self._new_transport(sock),
            f"{ip}:{port}",
            self._disk,
            self._bounds,
            self._service.frame,
            self._forget,
        )
        self.connections.add(connection)
        self._ips[connection] = ip
        if limits.unproven is not None:
            connection.expect_proof(limits.unproven.frame_max)
            self._unproven[connection] = self._loop.clock.now_ms()
            if len(self._unproven) > limits.unproven.connections_max:
                self._replace_unproven(limits.unproven)

    def _close_later(self, sock: socket.socket, wait_ms: int) -> None:
        """Hold a connection that exceeds the quota of its address, unread, then close it."""
        admission = self._admission
        if sock.fileno() > self._limits.descriptor_max or not admission.hold():
            sock.close()
            return

        def close() -> None:
            self._held.pop(sock, None)
            admission.release()
            sock.close()

        self._held[sock] = self._loop.after(wait_ms, close)

    def _replace_unproven(self, limits: UnprovenLimits) -> None:
        """Close one unproven connection if there are too many."""
        self._unproven = {one: ms for one, ms in self._unproven.items() if one.unproven}
        if len(self._unproven) <= limits.connections_max:
            return
        [(busiest, _)] = Counter(self._ips[one] for one in self._unproven).most_common(1)
        oldest = next(one for one in self._unproven if self._ips[one] == busiest)
        oldest.close(
            "replaced by a newer connection before its handshake finished", CloseCode.REFUSED
        )

    def _sweep_unproven(self, limits: UnprovenLimits, now_ms: int) -> None:
        for connection, since_ms in list(self._unproven.items()):
            if not connection.unproven:
                del self._unproven[connection]
            elif now_ms - since_ms > limits.deadline_ms:
                connection.close("handshake not finished in time", CloseCode.REFUSED)

    def _sweep_idle(self) -> None:
        limits = self._limits
        timeout_ms = limits.receive_timeout_ms
        now = self._loop.clock.now_ms()
        if limits.unproven is not None:
            self._sweep_unproven(limits.unproven, now)
        for connection in list(self.connections):
            idle_ms = now - connection.active_ms
            proved = limits.is_for_brokers and not connection.unproven
            if connection.awaits_answer:
                connection.active_ms = now  # idle time begins with its response
            elif not proved and NEVER < limits.idle_max_ms < idle_ms:
                connection.close("idle for too long", CloseCode.IDLE)
                continue
            if timeout_ms != NEVER and connection.is_overdue(now, timeout_ms):
                connection.close("request not received completely in time", CloseCode.SLOW_REQUEST)
            elif idle_ms >= self._sweep_ms:
                connection.shrink()
        self._sweep = self._loop.after(self._sweep_ms, self._sweep_idle)
