"""A listener on a real socket with an echo service; the test runs the loop."""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from steady_clock import SteadyClock

from tidelog.core.settings.setting import INT_MAX
from tidelog.shell.net.connection import Connection, Slot
from tidelog.shell.net.event_loop import EventLoop
from tidelog.shell.net.frame_buffer import PREFIX
from tidelog.shell.net.listener import Limits, Listener, UnprovenLimits, bind
from tidelog.shell.net.outbox import Chunk
from tidelog.shell.net.shared_limits import (
    UNLIMITED,
    Admission,
    AnswerMemory,
    ConnectionLimits,
    CreationRate,
    RequestMemory,
    Shares,
)
from tidelog.shell.net.transport import SocketTransport, Transport
from tidelog.shell.os_disk import OsDisk

FRAME_MAX = 1 << 20
PATIENCE_S = 120


class Echo:
    """Responds at once, unless the frame says `wait`. Frames that begin with `alone` run alone."""

    def __init__(self) -> None:
        self.waiting: list[Slot] = []
        self.frames = 0
        self.handled: list[bytes] = []
        self.gone: list[str] = []
        self.answer: Callable[[bytes], list[Chunk]] = lambda frame: [
            PREFIX.pack(len(frame)) + frame
        ]

    def frame(self, connection: Connection, frame: memoryview) -> None:
        body = bytes(frame)
        alone = body.startswith(b"alone")
        slot = connection.reserve_alone(frame) if alone else connection.reserve()
        if slot is None:
            return
        self.frames += 1
        self.handled.append(body)
        if body.endswith(b"wait"):
            self.waiting.append(slot)
        else:
            slot.fill(self.answer(body))

    def closed(self, connection: Connection) -> None:
        self.gone.append(connection.broken_by)


class Stage:
    """A listener with an Echo service."""

    def __init__(
        self,
        root: Path,
        admitted: ConnectionLimits | None = None,
        unproven: UnprovenLimits | None = None,
        new_transport: Callable[[socket.socket], Transport] = SocketTransport,
        **limits: int,
    ) -> None:
        self.loop = EventLoop(SteadyClock())
        self.disk = OsDisk(str(root))
        self.echo = Echo()
        [sock] = bind("127.0.0.1", 0)
        self.shares = Shares(
            Admission(admitted or ConnectionLimits()),
            RequestMemory(limits.pop("request_bytes", UNLIMITED)),
            AnswerMemory(limits.pop("answer_bytes", UNLIMITED)),
            CreationRate(limits.pop("creation_rate", INT_MAX)),
        )
        values: dict[str, Any] = {"frame_max": FRAME_MAX, "unproven": unproven, **limits}
        bounds = Limits(**values)
        self.listener = Listener(
            self.loop, sock, self.disk, self.echo, bounds, self.shares, new_transport
        )
        self.peers: list[socket.socket] = []

    def connect(self) -> socket.socket:
        peer = socket.create_connection(("127.0.0.1", self.listener.port), timeout=PATIENCE_S)
        self.peers.append(peer)
        return peer

    def until(self, done: Callable[[], bool]) -> None:
        give_up = time.monotonic() + PATIENCE_S
        self.loop.call_from_thread(lambda: None)
        while not done():
            assert time.monotonic() < give_up
            self.loop.after(5, lambda: None)
            self.loop.turn()

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.loop.after(0, lambda: None)
            self.loop.turn()

    def received(self, peer: socket.socket, count: int) -> bytes:
        got = bytearray()
        peer.setblocking(False)

        def enough() -> bool:
            try:
                while len(got) < count:
                    more = peer.recv(1 << 16)
                    if not more:
                        raise AssertionError("the connection was closed")
                    got.extend(more)
            except BlockingIOError:
                return False
            return True

        self.until(enough)
        return bytes(got)

    def is_closed(self, peer: socket.socket) -> bool:
        peer.setblocking(False)
        try:
            return peer.recv(1) == b""
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True


def finish(stage: Stage) -> None:
    stage.listener.close()
    for peer in stage.peers:
        peer.close()
    stage.disk.close()
    stage.loop.close()


def framed(*bodies: bytes) -> bytes:
    return b"".join(PREFIX.pack(len(body)) + body for body in bodies)


def stages(root: Path) -> Iterator[Callable[..., Stage]]:
    """Provide a function that creates stages; they are closed at the end of the test."""
    made: list[Stage] = []

    def make(
        admitted: ConnectionLimits | None = None,
        unproven: UnprovenLimits | None = None,
        **limits: int,
    ) -> Stage:
        made.append(Stage(root, admitted, unproven, SocketTransport, **limits))
        return made[-1]

    yield make
    for stage in made:
        finish(stage)


def send_part(stage: Stage, peer: socket.socket, data: bytes) -> bytes:
    """Send as much as the broker accepts; return the rest."""
    peer.setblocking(False)
    idle = 0
    while data and idle < 20:
        with contextlib.suppress(BlockingIOError):
            data = data[peer.send(data) :]
            idle = -1
        idle += 1
        stage.turns(1)
    return data
