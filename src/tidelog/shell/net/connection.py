"""One accepted connection: frames in, answers out in the order of their requests.

Kafka's clients rely on that order. A request that waits (a long poll, acks=all) keeps the
answers of later ones back; they are handled all the same.

Reading stops while too many requests wait for answers or too many bytes for the peer, so a
peer that sends and never reads costs a bounded amount of memory.
"""

import select
import socket
from collections import deque
from collections.abc import Callable

from tidelog.core.storage.disk import DiskError
from tidelog.shell.net.event_loop import READABLE, WRITABLE, EventLoop
from tidelog.shell.net.frame_buffer import FrameBuffer, FrameRefused
from tidelog.shell.net.outbox import Chunk, Outbox
from tidelog.shell.os_disk import OsDisk

UNANSWERED_MAX = 128
"""No more are handled in one turn, so that nobody takes it all."""
UNSENT_MAX = 16 * 1024 * 1024
RECEIVES_PER_TURN = 32
"""A peer that never stops sending does not keep the others waiting for longer."""
_GONE = select.POLLERR | select.POLLHUP


class Slot:
    """The place of one answer in the line."""

    __slots__ = ("_chunks", "_connection")

    def __init__(self, connection: "Connection") -> None:
        self._connection: Connection | None = connection
        self._chunks: list[Chunk] | None = None

    def fill(self, chunks: list[Chunk]) -> None:
        """The answer; an empty one only gives the place free (acks=0)."""
        if self._connection is not None:
            self._chunks = chunks
            self._connection.answered(self)

    def refuse(self, reason: str) -> None:
        if self._connection is not None:
            self._connection.close(reason)

    def abandon(self) -> None:
        """The connection is gone. Who works on the answer may still do so for long, and must
        not keep the connection's memory."""
        self._connection = self._chunks = None

    @property
    def chunks(self) -> list[Chunk] | None:
        return self._chunks


class Connection:
    """A peer, as seen by the one that listens."""

    __slots__ = (
        "_buffer",
        "_closed",
        "_events",
        "_handle",
        "_loop",
        "_outbox",
        "_slots",
        "_sock",
        "active_ms",
        "broken_by",
        "flush",
        "open",
        "peer_name",
        "session",
    )

    def __init__(
        self,
        loop: EventLoop,
        sock: socket.socket,
        peer_name: str,
        disk: OsDisk,
        frame_max: int,
        handle: Callable[["Connection", memoryview], None],
        closed: Callable[["Connection"], None],
    ) -> None:
        self.open = True
        self.peer_name = peer_name
        self.active_ms = loop.clock.now_ms()
        self.broken_by = ""
        """Why it was closed by us."""
        self.session: object = None
        """What the service knows about this peer."""
        self.flush: Callable[[], None] = self._flush
        """One object, so that asking twice in a turn is asking once."""
        self._loop = loop
        self._sock = sock
        self._handle = handle
        """Takes one frame, which is good until it returns."""
        self._closed = closed
        self._buffer = FrameBuffer(frame_max)
        self._outbox = Outbox(disk)
        self._slots: deque[Slot] = deque()
        self._events = READABLE
        loop.watch(sock, self)

    @property
    def peer_host(self) -> str:
        """Its address without the port."""
        return self.peer_name.rpartition(":")[0]

    def reserve(self) -> Slot:
        """The next place in the line of answers."""
        slot = Slot(self)
        self._slots.append(slot)
        return slot

    def answered(self, slot: Slot) -> None:
        if self.open and self._slots[0] is slot:
            self._loop.at_end_of_turn(self.flush)

    def send_now(self, chunks: list[Chunk]) -> None:
        """Send out of turn, where the peer matches answers by number."""
        if not self.open:
            return
        try:
            self._outbox.put(chunks)
        except (OSError, DiskError) as error:
            self.close(str(error))
            return
        self._loop.at_end_of_turn(self.flush)

    def ready(self, events: int) -> None:
        self.active_ms = self._loop.clock.now_ms()
        if events & WRITABLE:
            self._flush()
        if events & READABLE:
            self._read()
        elif events & _GONE:
            self.close("the peer is gone")

    def refuse(self, reason: str) -> None:
        self.close(reason)

    def shrink(self) -> None:
        """Give back the memory of a quiet connection."""
        self._buffer.shrink()

    def close(self, reason: str) -> None:
        if not self.open:
            return
        self.open = False
        self.broken_by = reason
        self._loop.unwatch(self._sock)
        self._sock.close()
        self._outbox.close()
        for slot in self._slots:
            slot.abandon()
        self._slots.clear()
        # It refers to this very object, whose buffer may be large: let both go at once.
        self.flush = _nothing
        self._closed(self)

    # -- in --------------------------------------------------------------------------------

    def _read(self) -> None:
        buffer = self._buffer
        try:
            if not self._handle_frames():
                return
            for _ in range(RECEIVES_PER_TURN):
                count = buffer.receive(self._sock)
                if not count:
                    if count == 0:
                        self.close("the peer closed it")
                    return
                if not self._handle_frames() or not buffer.waiting_for:
                    return
        except FrameRefused as refused:
            self.close(str(refused))
        except OSError as error:
            self.close(str(error))

    def _handle_frames(self) -> bool:
        """What has come whole; False if that is enough for now."""
        slots, handle, outbox = self._slots, self._handle, self._outbox
        for frame in self._buffer.frames():
            handle(self, frame)
            if not self.open:
                return False
            if len(slots) >= UNANSWERED_MAX or outbox.size >= UNSENT_MAX:
                self._want(self._events & ~READABLE)
                return False
        return True

    def _read_on(self) -> None:
        """Frames may be left that were received before; the socket does not tell of them."""
        if self.open and self._events & READABLE:
            self._read()

    def _overloaded(self) -> bool:
        return len(self._slots) >= UNANSWERED_MAX or self._outbox.size >= UNSENT_MAX

    # -- out -------------------------------------------------------------------------------

    def _flush(self) -> None:
        if not self.open:
            return
        slots, outbox = self._slots, self._outbox
        try:
            while slots and slots[0].chunks is not None:
                chunks = slots.popleft().chunks
                assert chunks is not None
                outbox.put(chunks)
            outbox.send(self._sock)
        except (OSError, DiskError) as error:
            # A log that was deleted since the answer was made is no reason to do more.
            self.close(str(error))
            return
        wanted = READABLE if not self._overloaded() else 0
        if wanted and not self._events & READABLE:
            self._loop.after(0, self._read_on)
        self._want(wanted | WRITABLE if outbox else wanted)

    def _want(self, events: int) -> None:
        if events != self._events:
            self._events = events
            self._loop.rewatch(self._sock, events)


def _nothing() -> None:
    """There is nobody to send to."""
