"""Both ends of a link between brokers, on real sockets; the test runs the loop."""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

from steady_clock import SteadyClock

from tidelog.core.api.handshake import (
    NONCE_BYTES,
    ConnectingHandshake,
    ListeningHandshake,
    Member,
)
from tidelog.core.api_table import HELLO, HELLO_VERSION
from tidelog.core.wire.codec import decode_request, encode_response
from tidelog.core.wire.frames import parse_request_header
from tidelog.shell.net.event_loop import EventLoop
from tidelog.shell.net.frame_buffer import PREFIX
from tidelog.shell.net.listener import bind
from tidelog.shell.net.peer_link import LinkEvents, PeerLink
from tidelog.shell.net.transport import Address, Transport, connect
from tidelog.shell.os_disk import OsDisk

SECRET = "known to brokers only"
CONNECTING, LISTENING = Member("cluster-1", 2, SECRET), Member("cluster-1", 1, SECRET)
PATIENCE_S = 120


def text_of(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"


def handshake_to(address: tuple[str, int]) -> ConnectingHandshake:
    """Return the handshake of broker 2, which connects to broker 1."""
    return ConnectingHandshake(CONNECTING, 1, text_of(address), os.urandom(NONCE_BYTES))


class LinkStage:
    """Broker 2's link to broker 1, and the socket on which broker 1 would listen."""

    def __init__(
        self, root: Path, connect: Callable[[Address], Transport | None] = connect
    ) -> None:
        self.loop, self.disk = EventLoop(SteadyClock()), OsDisk(str(root))
        [self.door] = bind("127.0.0.1", 0)
        self.door.setblocking(True)
        self.door.settimeout(PATIENCE_S)
        self.address: tuple[str, int] = self.door.getsockname()
        self.answered: list[object] = []
        self.failed: list[int] = []
        self.on_failed: Callable[[], None] = lambda: None
        """Called after a request has failed."""
        self.broken = 0
        self.unproven: list[str] = []
        self._accepted: list[socket.socket] = []
        self.link = PeerLink(
            self.loop,
            self.disk,
            "broker-2",
            handshake_to,
            lambda: self.address,
            self._events(),
            connect,
        )

    def _events(self) -> LinkEvents:
        def failed(correlation: int) -> None:
            self.failed.append(correlation)
            self.on_failed()

        def broken() -> None:
            self.broken += 1

        return LinkEvents(
            lambda _number, response: self.answered.append(response),
            failed,
            broken,
            self.unproven.append,
        )

    def accept(self) -> socket.socket:
        sock = self.door.accept()[0]
        self._accepted.append(sock)
        sock.settimeout(PATIENCE_S)
        return sock

    def prove(self, sock: socket.socket, member: Member = LISTENING) -> None:
        """Answer the link's handshake as this member would."""
        handshake = ListeningHandshake(member, text_of(self.address), os.urandom(NONCE_BYTES))
        challenge = {"document": handshake.challenge(self.heard(sock))}
        sock.sendall(encode_response(HELLO, HELLO_VERSION, 0, challenge))
        assert handshake.accept(self.heard(sock)) == 2
        self.until(lambda: self.link._handshake is None)

    def heard(self, sock: socket.socket) -> bytes:
        """Return the next handshake message that the link sends."""
        frame = self.frame(sock)
        header = parse_request_header(memoryview(frame))
        assert (header.api_key, header.api_version) == (HELLO, HELLO_VERSION)
        return bytes(decode_request(HELLO, HELLO_VERSION, frame, header.position)["document"])

    def frame(self, sock: socket.socket) -> bytes:
        length = PREFIX.unpack(self._received(sock, PREFIX.size))[0]
        return self._received(sock, length)

    def _received(self, sock: socket.socket, count: int) -> bytes:
        """Receive exactly `count` bytes; the rest stays in the socket."""
        got = bytearray()

        def enough() -> bool:
            sock.setblocking(False)
            try:
                while len(got) < count:
                    more = sock.recv(count - len(got))
                    assert more, f"the link closed the connection after {bytes(got)!r}"
                    got.extend(more)
            except BlockingIOError:
                return False
            return True

        self.until(enough)
        sock.setblocking(True)
        sock.settimeout(PATIENCE_S)
        return bytes(got)

    def sent_until_closed(self, sock: socket.socket) -> bytes:
        """Return everything that the link sends before it closes the connection."""
        self.until(lambda: self.link._transport is None)
        got = b""
        try:
            while more := sock.recv(1 << 16):
                got += more
        except ConnectionResetError:
            pass
        return got

    def until(self, done: Callable[[], bool]) -> None:
        give_up = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < give_up
            self.loop.after(5, lambda: None)
            self.loop.turn()

    def close(self) -> None:
        self.link.silent = True
        self.link.close()
        for sock in (self.door, *self._accepted):
            sock.close()
        self.disk.close()
        self.loop.close()
