"""A transport with the difficulties of TLS, as a replacement for TLS in tests.

Both sides first send a greeting; then every byte is mapped to another one. The transport reads
ahead of its owner, passes on a few bytes at a time, refuses every second call to send, and has no
sendfile. If a peer does not send the greeting, the handshake fails.
"""

import socket
from collections.abc import Sequence

from tidelog.core.record.crc32c import Buffer
from tidelog.shell.net.event_loop import READABLE, WRITABLE, EventLoop, SocketHandler
from tidelog.shell.net.transport import copy_file

GREETING = b"sealed 1"
FAILED = "the peer speaks no sealed protocol"
READ_AHEAD = 1 << 16
_SEAL = bytes(byte ^ 0x5A for byte in range(256))


def sealed(data: Buffer) -> bytes:
    """Seal bytes, or unseal sealed ones."""
    return bytes(data).translate(_SEAL)


class SealedTransport:
    """The broker's side."""

    def __init__(self, sock: socket.socket, piece: int) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._piece = piece
        self._unsent = bytearray(GREETING)
        self._greeting = b""
        self._unread = bytearray()
        self._ended = False
        self._failure: OSError | None = None
        self._refuse = False
        self._wanted = 0
        self._scheduled = False
        self._loop: EventLoop
        self._owner: SocketHandler

    def attach(self, loop: EventLoop, owner: SocketHandler, events: int = READABLE) -> None:
        self._loop, self._owner, self._wanted = loop, owner, events
        loop.watch(self._sock, self, READABLE | WRITABLE)

    def want(self, events: int) -> None:
        self._wanted = events
        self._schedule()

    def finish_connect(self) -> None:
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        self._loop.unwatch(self._sock)
        self._sock.close()

    def recv_into(self, buffer: memoryview, /) -> int:
        if self._failure is not None:
            raise self._failure
        count = min(len(buffer), len(self._unread), self._piece)
        if not count and not self._ended:
            raise BlockingIOError
        buffer[:count] = self._unread[:count]
        del self._unread[:count]
        return count

    def send(self, data: Buffer, /) -> int:
        self._refuse = not self._refuse
        if self._unsent or self._refuse:
            raise BlockingIOError
        self._unsent += sealed(data[: self._piece])
        self._watch()
        return min(len(data), self._piece)

    send_before_file = send

    def send_many(self, buffers: Sequence[Buffer], /) -> int:
        return self.send(buffers[0])

    def send_file(self, fd: int, position: int, count: int, /) -> int:
        return copy_file(self.send, fd, position, count)

    def ready(self, _events: int) -> None:
        try:
            if self._unsent:
                del self._unsent[: self._sock.send(self._unsent[: self._piece])]
            if len(self._unread) < READ_AHEAD:
                self._receive()
        except BlockingIOError:
            pass
        except OSError as error:
            self._failure = error
        self._schedule()

    def _receive(self) -> None:
        data = self._sock.recv(READ_AHEAD)
        self._ended = not data
        missing = len(GREETING) - len(self._greeting)
        self._greeting += data[:missing]
        self._unread += sealed(data[missing:])
        if not GREETING.startswith(self._greeting) or (self._ended and missing):
            self._failure = ConnectionError(FAILED)

    def _serve(self) -> None:
        """Call the owner while it wants to read or write and can."""
        self._scheduled = False
        events = self._possible()
        if events and self._sock.fileno() >= 0:
            self._owner.ready(events)
        self._schedule()

    def _possible(self) -> int:
        if self._failure is not None:
            return READABLE | WRITABLE
        if self._greeting != GREETING:
            return 0
        readable = READABLE if self._unread or self._ended else 0
        return self._wanted & (readable | (0 if self._unsent else WRITABLE))

    def _schedule(self) -> None:
        if self._sock.fileno() < 0:
            return
        self._watch()
        if self._possible() and not self._scheduled:
            self._scheduled = True
            self._loop.next_turn(self._serve)

    def _watch(self) -> None:
        reads = len(self._unread) < READ_AHEAD and not self._ended and self._failure is None
        events = (READABLE if reads else 0) | (WRITABLE if self._unsent else 0)
        self._loop.rewatch(self._sock, events)


class SealedSocket(socket.socket):
    """The peer's side, for a test that reads and writes by itself."""

    _greeted = False

    @classmethod
    def over(cls, sock: socket.socket) -> "SealedSocket":
        timeout = sock.gettimeout()
        found = cls(fileno=sock.detach())
        found.settimeout(timeout)
        socket.socket.sendall(found, GREETING)
        return found

    def sendall(self, data: Buffer, _flags: int = 0, /) -> None:  # type: ignore[override]
        super().sendall(sealed(data))

    def recv(self, count: int, _flags: int = 0, /) -> bytes:
        if not self._greeted:
            greeting = super().recv(len(GREETING), socket.MSG_PEEK)
            if len(greeting) < len(GREETING) and greeting:
                raise BlockingIOError
            self._greeted = super().recv(len(GREETING)) == GREETING
        return sealed(super().recv(count))
