"""One accepted connection: receives requests, sends responses in the order of the requests.

Kafka's clients rely on that order. While a request waits (a long poll, acks=all), later requests
are handled, but their responses wait in their slots. A request that runs alone (`reserve_alone`)
starts when all earlier ones are answered, and blocks later ones until it is answered itself:
their frames stay in the buffer and in the socket.

Reading stops while too many requests or too many response bytes are pending, or all peers
together use too much memory (shared_limits.py). So a peer that never reads costs a bounded
amount. In one turn of the loop a peer gets a few milliseconds, however much it has sent.
"""

import select
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from time import monotonic_ns

from tidelog.core.api.exchange import CloseCode
from tidelog.core.api.peer_session import PeerSession
from tidelog.core.storage.disk import DiskError
from tidelog.shell.net.event_loop import READABLE, WRITABLE, EventLoop, Timer
from tidelog.shell.net.frame_buffer import LARGE_FRAME, SMALL, FrameBuffer, FrameRefused, NoMemory
from tidelog.shell.net.host_address import java_host_address
from tidelog.shell.net.outbox import Chunk, FilePart, Outbox
from tidelog.shell.net.shared_limits import Bounds
from tidelog.shell.net.transport import Transport, TransportFailed
from tidelog.shell.os_disk import FileSource


class Slot:
    """The place of one response in the order of a connection's responses.

    Invariant: a response that is filled in after the connection closed is discarded, and keeps no
    file open.
    """

    __slots__ = ("_connection", "chunks", "size")

    def __init__(self, connection: "Connection") -> None:
        self._connection: Connection | None = connection
        self.chunks: Sequence[Chunk | FilePart] | None = None
        """The response; None until it is filled in."""
        self.size = 0
        """The memory that the response takes, rounded up."""

    @property
    def abandoned(self) -> bool:
        return self._connection is None

    def fill(self, chunks: list[Chunk]) -> None:
        """Set the response; an empty one only frees the slot (acks=0)."""
        if self._connection is not None:
            self.chunks = chunks
            # A part of a file counts as a few bytes, which is exact enough.
            self.size = len(chunks[0]) if len(chunks) == 1 else sum(map(len, chunks))
            self._connection.answered(self)

    def refuse(self, reason: str, code: CloseCode = CloseCode.REFUSED) -> None:
        if self._connection is not None:
            self._connection.close(reason, code)

    def abandon(self) -> None:
        """Detach from a closed connection, so that a handler that still works on the response
        does not keep the connection's memory."""
        for chunk in self.chunks or ():
            if isinstance(chunk, FilePart):
                chunk.release()
        self._connection = self.chunks = None

    def hold_files(self, outbox: Outbox) -> None:
        if self.chunks is not None:
            self.chunks = outbox.hold_files(self.chunks)


def any_awaited(slots: Iterable[Slot]) -> bool:
    """Whether one of these slots has no response yet."""
    return any(slot.chunks is None for slot in slots)


UNSENT_MAX = 16 * 1024 * 1024
UNSENT_MADE_MAX = 2 * 1024 * 1024
"""Limit for unsent bytes in memory; records sent from files are not in memory."""
HELD_MIN = 64 * 1024
"""Smaller amounts are not counted while they wait for an earlier response."""
RECEIVES_PER_TURN = 32
"""Limits how long a peer that never stops sending delays the others."""
MUTE_CHECK_MS = 60_000
"""How often a throttled connection checks whether its throttle time is over, at least."""
_DISCONNECTED = select.POLLERR | select.POLLHUP
_HANG_UP: int = getattr(select, "POLLRDHUP", 0)
"""The peer has closed its sending side. Some systems don't report this for a socket that is not
read from."""


class Connection:
    """One client or broker that connected to a listener."""

    __slots__ = (
        "_bounds",
        "_buffer",
        "_closed",
        "_events",
        "_frames_deferred",
        "_handle",
        "_is_counted",
        "_lacks_memory",
        "_loop",
        "_mute",
        "_muted_until_ms",
        "_outbox",
        "_peer_hung_up",
        "_runs_alone",
        "_slot_bytes",
        "_slots",
        "_transport",
        "active_ms",
        "began_ms",
        "broken_by",
        "close_code",
        "flush",
        "open",
        "peer_host",
        "peer_name",
        "session",
        "unproven",
    )

    def __init__(
        self,
        loop: EventLoop,
        transport: Transport,
        peer_name: str,
        disk: FileSource,
        bounds: Bounds,
        handle: Callable[["Connection", memoryview], None],
        closed: Callable[["Connection"], None],
    ) -> None:
        self.open = True
        self.unproven = False
        """Whether the peer still has to prove that it is a broker of this cluster, or a user."""
        self.peer_name = peer_name
        self.peer_host = java_host_address(peer_name.rpartition(":")[0])
        """The address of the client as ACLs name it."""
        self.active_ms = loop.clock.now_ms()
        self.began_ms = 0
        """When the first byte of an incomplete request arrived; 0 without such a request."""
        self.broken_by = ""
        self.close_code = CloseCode.NOT_COUNTED
        """Why the connection was closed."""
        self.session = PeerSession()
        self.flush: Callable[[], None] = self._flush
        """One bound method, so that the loop runs it once a turn however often it is scheduled."""
        self._loop = loop
        self._transport = transport
        self._handle = handle
        """Handles one frame; the frame's memory is valid until it returns."""
        self._closed = closed
        self._bounds = bounds
        self._buffer = FrameBuffer(bounds.frame_max, bounds.requests)
        self._outbox = Outbox(disk)
        self._slots: deque[Slot] = deque()
        self._slot_bytes = 0
        """Bytes of responses that are still in their slots."""
        self._is_counted = False
        """Whether this peer's unsent bytes are counted in the budget of all peers."""
        self._frames_deferred = False
        """Complete frames are left for the next turn."""
        self._lacks_memory = False
        """Reading waits for memory."""
        self._runs_alone = False
        """A request that runs alone arrived, and some request was unanswered at the last check."""
        self._mute: Timer | None = None
        """Set while the client is throttled: checks whether the throttle time is over."""
        self._muted_until_ms = 0
        self._peer_hung_up = False
        """The peer closed its sending side while requests were unanswered, or while it was
        throttled."""
        self._events = READABLE
        transport.attach(loop, self)

    def reserve(self) -> Slot:
        """Reserve the slot of the next response."""
        slot = Slot(self)
        self._slots.append(slot)
        return slot

    def reserve_alone(self, frame: memoryview) -> Slot | None:
        """Reserve the slot of a request that runs alone, or put its frame back: None.

        A frame that was put back is handled again when all earlier requests are answered.
        """
        self._runs_alone = not self._peer_hung_up
        if self._runs_alone and any_awaited(self._slots):
            self._buffer.put_back(frame)
            return None
        return self.reserve()

    def mute(self, for_ms: int) -> None:
        """Read no further request for this time, because of a quota; responses are still sent.

        A large request that has arrived in part is still read, so that its memory is released. If
        the client disconnects meanwhile, its last requests are read at once: they are finite,
        and the connection is closed after them.
        """
        now_ms = self._loop.clock.now_ms()
        if not self.open or now_ms + for_ms <= self._muted_until_ms:
            return
        self._muted_until_ms = now_ms + for_ms
        if self._mute is None:
            self._set_mute_timer(now_ms)
            self._buffer.read_ahead_max = 0
        if self._is_full():
            self._pause()

    def _set_mute_timer(self, now_ms: int) -> None:
        """Check later whether the throttle time is over.

        A cancelled timer uses memory until its time. So a connection has one, and not for long.
        """
        until_ms = min(self._muted_until_ms, now_ms + MUTE_CHECK_MS)
        self._mute = self._loop.at(until_ms, self._check_mute)

    def _check_mute(self) -> None:
        now_ms = self._loop.clock.now_ms()
        if now_ms < self._muted_until_ms:
            self._set_mute_timer(now_ms)
        else:
            self._unmute()

    def _unmute(self) -> None:
        self._mute = None
        self._muted_until_ms = 0
        self._buffer.read_ahead_max = LARGE_FRAME
        self.active_ms = self._loop.clock.now_ms()
        self._resume()

    def expect_proof(self, frame_max: int) -> None:
        """Limit the peer's frames to this size until `set_proved`."""
        self.unproven = True
        self._buffer.frame_max = frame_max

    def set_proved(self) -> None:
        """Lift the limit: the peer proved who it is."""
        self.unproven = False
        self._buffer.frame_max = self._bounds.frame_max

    def handle_by(self, handle: Callable[["Connection", memoryview], None]) -> None:
        """Pass further frames to this function. Frames of the same turn may still reach the former
        one."""
        self._handle = handle

    def answered(self, slot: Slot) -> None:
        if not self.open:
            return
        self._slot_bytes += slot.size
        if self._slots[0] is slot:
            self._loop.at_end_of_turn(self.flush)
        elif self._slot_bytes > HELD_MIN:
            self._count_unsent()

    def hold_files(self) -> None:
        """Open the files of all pending responses now: they are about to be replaced by others
        of the same names."""
        try:
            for slot in self._slots:
                slot.hold_files(self._outbox)
        except (OSError, DiskError) as error:
            self.close(str(error))

    def send_now(self, chunks: list[Chunk]) -> None:
        """Send without a slot, to a peer that matches responses by number."""
        if not self.open:
            return
        try:
            self._outbox.put(chunks)
        except (OSError, DiskError) as error:
            self.close(str(error))
            return
        self._loop.at_end_of_turn(self.flush)

    def ready(self, events: int) -> None:
        self.active_ms = self._loop.now_ms
        if events & WRITABLE:
            self._flush()
        if events & READABLE:
            self._read()
        elif events & _DISCONNECTED:
            self.close("the peer reset the connection")
        elif events & _HANG_UP:
            self._hung_up()

    def refuse(self, reason: str, code: CloseCode = CloseCode.REFUSED) -> None:
        """Send the finished responses, then close the connection."""
        self._flush()
        self.close(reason, code)

    def shrink(self) -> None:
        """Release the buffer of an idle connection."""
        self._buffer.shrink()

    @property
    def awaits_answer(self) -> bool:
        """Whether a request is unanswered; then the connection is not idle. That of a throttled
        client can be idle, as in Kafka: its machine may be lost."""
        return bool(self._slots)

    def is_overdue(self, now_ms: int, timeout_ms: int) -> bool:
        """Whether an incomplete request has taken longer than the timeout.

        A request that waits for memory has twice the time, because others release theirs
        meanwhile. One that waits behind an earlier request has no limit, unless it holds counted
        memory. A throttled client may hold some for longer if no other connection needs it.
        """
        holds_memory = self._buffer.size > SMALL and (
            self._runs_alone or (self._mute is not None and bool(self._bounds.requests.waiting))
        )
        if not self.began_ms or not (self._lacks_memory or holds_memory or self._events & READABLE):
            return False
        return now_ms - self.began_ms > timeout_ms * (2 if self._lacks_memory else 1)

    def close(self, reason: str, code: CloseCode = CloseCode.NOT_COUNTED) -> None:
        if not self.open:
            return
        self.open = False
        self.broken_by = reason
        self.close_code = code
        self._transport.close()
        self._outbox.close()
        for slot in self._slots:
            slot.abandon()
        self._slots.clear()
        self._slot_bytes = 0
        self._buffer.release()
        if self._mute is not None:
            self._mute.cancel()
        bounds = self._bounds
        if self._lacks_memory:
            bounds.requests.forget(self._memory_released)
        if bounds.requests.waiting:
            bounds.requests.wake()
        if self._is_counted:
            bounds.answers.hold(self, 0)
        # A bound method keeps this object and its buffer alive: drop the reference.
        self.flush = _nothing
        self._closed(self)

    # -- in --------------------------------------------------------------------------------

    def _read(self) -> None:
        buffer = self._buffer
        self._frames_deferred = False
        try:
            self._receive(buffer)
            if buffer.partial:
                self.began_ms = self.began_ms or self.active_ms
        except FrameRefused as refused:
            self.close(str(refused), CloseCode.TOO_LARGE)
        except NoMemory:
            self._wait_for_memory()
        except TransportFailed as error:
            self.close(str(error), CloseCode.TLS)
        except OSError as error:
            self.close(str(error))
        if self._bounds.requests.waiting:
            self._bounds.requests.wake(buffer)

    def _receive(self, buffer: FrameBuffer) -> None:
        fresh = not buffer.partial
        if fresh:
            got = buffer.receive_lone(self._transport)
            if isinstance(got, memoryview):
                self.began_ms = 0
                self._loop.lone_request = len(got) <= SMALL
                self._handle(self, got)
                if self._is_full():
                    self._pause()
                return
            if not got:
                if got == 0:
                    self.close("the peer closed the connection")
                return
        until_ns = monotonic_ns() + self._loop.share_ns()
        if not self._handle_frames(until_ns) or (fresh and not buffer.waiting_for):
            return
        for _ in range(RECEIVES_PER_TURN):
            count = buffer.receive(self._transport)
            if not count:
                if count == 0:
                    self.close("the peer closed the connection")
                return
            if not self._handle_frames(until_ns) or not buffer.waiting_for:
                return
            if monotonic_ns() > until_ns:
                return  # the rest is still in the transport, which calls `ready` again

    def _handle_frames(self, until_ns: int) -> bool:
        """Handle the complete frames; False if reading must stop for now."""
        handle = self._handle
        for frame in self._buffer.frames():
            self.began_ms = 0
            handle(self, frame)
            if not self.open:
                return False
            if self._is_full():
                self._pause()
                return False
            if monotonic_ns() > until_ns:
                self._frames_deferred = True
                self._loop.next_turn(self._read_on)
                return False
        return True

    def _read_on(self) -> None:
        """Handle frames that were left in the buffer; no event announces them."""
        if self._frames_deferred and self._events & READABLE:
            self._read()

    def _pause(self) -> None:
        """Stop reading. If that may be for long, still detect that the peer hangs up: a request
        runs alone, or the client is throttled."""
        waits = self._runs_alone or self._mute is not None
        hang_up = _HANG_UP if waits and not self._peer_hung_up else 0
        self._want(self._events & ~READABLE | hang_up)

    def _hung_up(self) -> None:
        """Handle the remaining requests at once: the peer hung up, so the order does not matter,
        and throttling has no effect any more.

        So a LeaveGroup need not wait for the JoinGroup before it.
        """
        self._peer_hung_up = True
        self._runs_alone = False
        self._want(self._events & ~_HANG_UP)
        self._resume()

    def _wait_for_memory(self) -> None:
        self._lacks_memory = True
        self.began_ms = self.began_ms or self.active_ms
        self._bounds.requests.wait(self._memory_released)
        self._want(self._events & ~READABLE)

    def _memory_released(self) -> None:
        self._lacks_memory = False
        self._resume()

    def _resume(self) -> None:
        """Read again if nothing prevents it any more."""
        if not self.open or self._lacks_memory or self._events & READABLE:
            return
        if not self._is_full():
            if self.began_ms:
                self.began_ms = self._loop.clock.now_ms()
            self._want((self._events | READABLE) & ~_HANG_UP)
            self._frames_deferred = True
            self._loop.next_turn(self._read_on)

    def _is_full(self) -> bool:
        """Whether too much is pending for this peer to read more from it."""
        if self._runs_alone:
            self._runs_alone = any_awaited(self._slots)
        outbox = self._outbox
        return (
            self._runs_alone
            or (self._mute is not None and self._is_mute_effective())
            or len(self._slots) >= self._bounds.in_flight_max
            or outbox.size >= UNSENT_MAX
            or self._slot_bytes + outbox.size - outbox.in_files >= UNSENT_MADE_MAX
        )

    def _is_mute_effective(self) -> bool:
        """Whether reading stops now because the client is throttled.

        Others may wait for the memory of a large request that has arrived in part, and the throttle
        time may be long: such a request is read and handled first, but no byte after it.
        """
        if self._peer_hung_up:
            return False
        buffer, requests = self._buffer, self._bounds.requests
        if buffer.size > SMALL and not buffer.make_small():
            return buffer.waiting_for <= 0
        if self._lacks_memory:
            # This connection would not use the memory that it is offered.
            self._lacks_memory = False
            requests.forget(self._memory_released)
        if requests.waiting:
            requests.wake()
        return True

    # -- out -------------------------------------------------------------------------------

    def _flush(self) -> None:
        if not self.open:
            return
        slots, outbox = self._slots, self._outbox
        try:
            usual = len(slots) == 1 and self._events == READABLE and not self._is_counted
            if usual and outbox.send_lone(self._transport, slots[0].chunks):
                self._slot_bytes -= slots.popleft().size
                if not outbox:
                    return
            while slots:
                chunks = slots[0].chunks
                if chunks is None:
                    break
                self._slot_bytes -= slots.popleft().size
                outbox.put(chunks)
            if outbox.send(self._transport) and not slots and self._events == READABLE:
                if self._is_counted:
                    self._count_unsent()
                return
        except (OSError, DiskError) as error:
            # The log may have been deleted since the response was made: only close.
            self.close(str(error))
            return
        if (outbox or self._is_counted) and not self._count_unsent():
            return
        if not self._events & READABLE:
            self._resume()
        elif (slots or outbox) and (self._lacks_memory or self._is_full()):
            self._pause()
        kept = self._events & ~WRITABLE
        self._want(kept | WRITABLE if outbox else kept)

    def _count_unsent(self) -> bool:
        """Count this peer's unsent bytes; False if the connection was closed because of them."""
        waits = self._slot_bytes + self._outbox.size - self._outbox.in_files
        self._is_counted = waits > 0
        self._bounds.answers.hold(self, waits)
        return self.open

    def _want(self, events: int) -> None:
        if events != self._events:
            self._events = events
            self._transport.want(events)


def _nothing() -> None:
    """Replaces `flush` on a closed connection."""
