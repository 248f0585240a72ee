"""Splits received bytes into frames: four bytes of length, then that many bytes.

Each connection reuses one buffer. A large frame is received directly to its final place, up to
its end and no further, so its bytes are not moved. A very large one is moved as the buffer grows:
a length alone proves nothing, so memory grows with the bytes that have arrived. An idle connection
has no buffer.

Invariants: frames are views of the buffer, valid until the next `receive`; every byte beyond the
small buffer is counted (shared_limits.py).
"""

from collections.abc import Iterator
from struct import Struct
from typing import Protocol

from tidelog.shell.net.shared_limits import RequestMemory

PREFIX = Struct(">i")
SMALL = 8 * 1024
BUSY = 64 * 1024
"""Buffer size for a peer that sends more than the small buffer holds. It also limits a read before
the end of the frame is known, so that little of the next frame has to be moved."""
GRAIN = 128 * 1024
"""Sizes of large buffers are multiples of this: frames of a producer vary in size."""
LARGE_FRAME = 16 * 1024
"""Up to this size, the end of a frame may be received together with bytes of the next one."""
_TLS_RECORD = 0x1603
"""The first two bytes of a TLS client, where a length is expected."""
ALLOCATED_AHEAD_MAX = 2 * 1024 * 1024
"""Memory that is allocated for a length alone: more than a batch of Kafka's default limit."""


class FrameRefused(Exception):
    """The length of a frame is negative or above the limit."""


_EMPTY = bytearray()
_NO_VIEW = memoryview(_EMPTY)


class NoMemory(Exception):
    """The rest of the frame must wait until other peers' requests release memory."""


class Source(Protocol):
    """The source of received bytes: a transport."""

    def recv_into(self, buffer: memoryview, /) -> int: ...


def _why_refused(length: int, frame_max: int) -> str:
    if length >> 16 == _TLS_RECORD:
        return "the peer uses TLS, and this listener does not: its security.protocol is PLAINTEXT"
    return f"frame of {length} bytes exceeds the limit of {frame_max}"


class FrameBuffer:
    """The bytes that one connection has received and not yet handled."""

    __slots__ = ("_buffer", "_end", "_memory", "_start", "_view", "frame_max", "read_ahead_max")

    def __init__(self, frame_max: int, memory: RequestMemory | None = None) -> None:
        self.frame_max = frame_max
        self.read_ahead_max = LARGE_FRAME
        """A larger frame is received up to its end and no further; 0: every frame."""
        self._memory = RequestMemory() if memory is None else memory
        self._buffer = _EMPTY
        self._view = _NO_VIEW
        self._start = 0
        self._end = 0

    def receive(self, source: Source) -> int | None:
        """Receive bytes and return their number; None: nothing to read, 0: end of the stream.

        Raises NoMemory.
        """
        limit = self._make_room()
        try:
            count = source.recv_into(self._view[self._end : limit])
        except BlockingIOError:
            return None
        self._end += count
        return count

    def frames(self) -> Iterator[memoryview]:
        """The complete frames, without their lengths. Raises FrameRefused."""
        while self._end - self._start >= PREFIX.size:
            (length,) = PREFIX.unpack_from(self._buffer, self._start)
            if not 0 <= length <= self.frame_max:
                raise FrameRefused(_why_refused(length, self.frame_max))
            begin = self._start + PREFIX.size
            if begin + length > self._end:
                return
            self._start = begin + length
            yield self._view[begin : begin + length]

    def receive_lone(self, source: Source) -> memoryview | int | None:
        """As `receive`, into an empty buffer. Returns the frame itself if exactly one complete
        frame has arrived: the usual case."""
        size = len(self._buffer)
        if self._end == size or size > BUSY:
            limit = self._make_room()
            into = self._view[:limit]
        else:
            into = self._view
        try:
            count = source.recv_into(into)
        except BlockingIOError:
            return None
        if count >= PREFIX.size:
            length: int = PREFIX.unpack_from(self._buffer)[0]
            if length == count - PREFIX.size and length <= self.frame_max:
                self._start = self._end = count
                return self._view[PREFIX.size : count]
        self._start, self._end = 0, count
        return count

    def put_back(self, frame: memoryview) -> None:
        """Let `frames` return the last frame again. Only valid until the next `receive`."""
        self._start -= PREFIX.size + len(frame)

    @property
    def waiting_for(self) -> int:
        """The number of bytes that the incomplete frame lacks; 0 if its length is unknown."""
        have = self._end - self._start
        if have < PREFIX.size:
            return 0
        (length,) = PREFIX.unpack_from(self._buffer, self._start)
        return int(PREFIX.size + length - have)

    @property
    def partial(self) -> bool:
        """Whether the buffer has part of a frame, or a frame that was not handled."""
        return self._start != self._end

    @property
    def size(self) -> int:
        """The size of the buffer in bytes."""
        return len(self._buffer)

    def shrink(self) -> None:
        """Release the memory if the buffer is empty."""
        if self._start == self._end:
            self.release()

    def make_small(self) -> bool:
        """Release the counted memory; False if more than the small buffer holds was received."""
        size = len(self._buffer)
        if self._end - self._start > SMALL:
            return False
        self._replace(SMALL)
        self._memory.give_back(self, size - SMALL)
        return True

    def release(self) -> None:
        """Release the memory and discard its contents."""
        size = len(self._buffer)
        self._buffer, self._view = _EMPTY, _NO_VIEW
        self._start = self._end = 0
        if size > SMALL:
            self._memory.give_back(self, size - SMALL)

    def _make_room(self) -> int:
        """Make room for the rest of the frame; return the position up to which to read."""
        if self._start == self._end:
            if self._end == len(self._buffer):
                if self._end == 0:
                    self._replace(SMALL)
                elif self._end == SMALL and self._memory.grow(self, BUSY, needed=False):
                    self._replace(BUSY)
            self._start = self._end = 0
            return min(len(self._buffer), BUSY)
        missing = self.waiting_for
        whole = self._end - self._start + missing
        if whole > len(self._buffer):
            self._grow(whole)
        elif self._start + whole > len(self._buffer) or self._end == len(self._buffer):
            self._view[: self._end - self._start] = bytes(self._view[self._start : self._end])
            self._end -= self._start
            self._start = 0
        if missing and whole > self.read_ahead_max:
            return min(self._start + whole, len(self._buffer))
        return len(self._buffer)

    def _grow(self, whole: int) -> None:
        """Enlarge the buffer towards the frame's size, as far as its bytes have arrived."""
        have = self._end - self._start
        ahead = ALLOCATED_AHEAD_MAX if self._memory.plenty else GRAIN
        if self._end < len(self._buffer) and whole > ahead:
            return
        size = min(-(-whole // GRAIN) * GRAIN, max(ahead, 2 * have))
        if not self._memory.grow(self, size):
            raise NoMemory
        self._replace(size)

    def _replace(self, size: int) -> None:
        buffer = bytearray(size)
        kept = self._end - self._start
        buffer[:kept] = self._view[self._start : self._end]
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._start, self._end = 0, kept
