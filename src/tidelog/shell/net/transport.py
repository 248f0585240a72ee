"""The byte streams that connections are made of: TCP and Unix sockets, and TLS (tls_transport.py).

A `Transport` owns everything that differs between kinds of stream: receiving, sending, sending
a file with or without sendfile, a handshake of its own, and which events of the socket it needs.
Connections, peer links and the metrics endpoint only know this protocol.

A transport with a handshake registers itself with the event loop, and calls the owner's `ready`
when the handshake has ended. If it failed, the owner gets READABLE, and `recv_into` raises the
OSError with the reason. Bytes that were received but not read cause no event of the socket: while
the owner wants READABLE, the transport calls it in the next turn of the loop.
"""

import errno
import os
import socket
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from tidelog.core.record.crc32c import Buffer
from tidelog.shell.net.event_loop import READABLE, EventLoop, SocketHandler
from tidelog.shell.net.same_host import connect_beside

COPY_BYTES = 64 * 1024
"""Bytes that `copy_file` reads at once: a few TLS records."""
LOST_PEER_MS = 3000
"""A connection to another broker is closed if its machine confirms nothing for this long. Without
this limit TCP waits longer after each attempt: after a cut of a minute, a follower fetched again
only 20 to 50 s after the link was restored."""
_PROBE_S = 1
"""How often an idle connection is probed: a follower that waits for a response sends nothing."""
_IN_PROGRESS = (0, errno.EINPROGRESS, errno.EWOULDBLOCK)
_NO_SENDFILE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTSOCK)
_MORE: int = getattr(socket, "MSG_MORE", 0)

Address: TypeAlias = tuple[str, int]


class TransportFailed(OSError):
    """The handshake of a transport failed, or its stream is broken. Its text is the reason."""


class Transport(Protocol):
    """A non-blocking stream of bytes to one peer.

    All methods that receive or send raise BlockingIOError if nothing can be done at the moment,
    and another OSError if the stream has failed; its text is the reason.
    """

    def recv_into(self, buffer: memoryview, /) -> int:
        """Receive at most as many bytes as the buffer has; 0 is the end of the stream."""
        ...

    def send(self, data: Buffer, /) -> int:
        """Send part of the data or all; return the number of bytes."""
        ...

    def send_before_file(self, data: Buffer, /) -> int:
        """As `send`; a file follows at once, and may share the last packet."""
        ...

    def send_many(self, buffers: Sequence[Buffer], /) -> int:
        """As `send`, for several buffers in one call."""
        ...

    def send_file(self, fd: int, position: int, count: int, /) -> int:
        """Send at most `count` bytes of a file; 0 if the file ends at `position`."""
        ...

    def attach(self, loop: EventLoop, owner: SocketHandler, events: int = READABLE) -> None:
        """Call the owner's `ready` when it can receive or send. Must be called first, and once."""
        ...

    def want(self, events: int) -> None:
        """Set which operations the owner waits for: READABLE, WRITABLE, both or neither."""
        ...

    def finish_connect(self) -> None:
        """Raise OSError if the connection was not made. For the first event after `connect`."""
        ...

    def close(self) -> None:
        """Detach from the loop and close the stream."""
        ...


class SocketTransport:
    """A plain TCP or Unix socket.

    Receiving and sending are the socket's own methods: the transport adds no call to them.
    """

    __slots__ = ("_loop", "recv_into", "send", "send_many", "sock")

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.recv_into: Callable[[memoryview], int] = sock.recv_into
        self.send: Callable[[Buffer], int] = sock.send
        self.send_many: Callable[[Sequence[Buffer]], int] = sock.sendmsg
        self._loop: EventLoop | None = None

    def send_before_file(self, data: Buffer, /) -> int:
        return self.sock.send(data, _MORE)

    def send_file(self, fd: int, position: int, count: int, /) -> int:
        try:
            return os.sendfile(self.sock.fileno(), fd, position, count)
        except OSError as error:
            if error.errno not in _NO_SENDFILE:
                raise
            return copy_file(self.send, fd, position, count)

    def attach(self, loop: EventLoop, owner: SocketHandler, events: int = READABLE) -> None:
        self._loop = loop
        loop.watch(self.sock, owner, events)

    def want(self, events: int) -> None:
        assert self._loop is not None, "attached before"
        self._loop.rewatch(self.sock, events)

    def finish_connect(self) -> None:
        number = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            raise OSError(number, os.strerror(number))

    def close(self) -> None:
        if self._loop is not None:
            self._loop.unwatch(self.sock)
        self.sock.close()


def copy_file(send: Callable[[Buffer], int], fd: int, position: int, count: int) -> int:
    """Send part of a file without sendfile; return the bytes sent, 0 at the end of the file.

    Bytes that `send` does not accept are read again by the next call.
    """
    data = os.pread(fd, min(count, COPY_BYTES), position)
    return send(data) if data else 0


def connect(address: Address) -> Transport | None:
    """Begin to connect to another broker; None if that fails at once.

    Uses the Unix socket beside the address if there is one, else TCP.
    """
    sock = connect_beside(*address) or connect_by_tcp(address)
    return None if sock is None else SocketTransport(sock)


def connect_by_tcp(address: Address) -> socket.socket | None:
    """Begin to connect to another broker; None if that fails at once."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _detect_lost_peer(sock)
    if sock.connect_ex(address) not in _IN_PROGRESS:
        sock.close()
        return None
    return sock


def _detect_lost_peer(sock: socket.socket) -> None:
    """Let the kernel close the connection if the peer's machine is lost or cut off.

    A process that hangs is not concerned: its kernel still confirms what arrives. Only Linux has
    all these options.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {
        "TCP_USER_TIMEOUT": LOST_PEER_MS,
        "TCP_KEEPIDLE": _PROBE_S,
        "TCP_KEEPINTVL": _PROBE_S,
        "TCP_KEEPCNT": LOST_PEER_MS // 1000 // _PROBE_S,
    }
    for name, value in options.items():
        option: int | None = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
