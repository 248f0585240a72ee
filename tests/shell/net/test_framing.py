"""Framing as a property: frames do not depend on how the bytes arrive.

Invalid bytes wait for more or are refused.
"""

import socket
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.shell.net.frame_buffer import ALLOCATED_AHEAD_MAX, PREFIX, FrameBuffer, FrameRefused
from tidelog.shell.net.shared_limits import RequestMemory

FRAME_MAX = 300_000
REFUSED = b"refused"

BODIES = st.integers(0, 200) | st.integers(0, 40_000) | st.sampled_from([8188, 65_532, FRAME_MAX])
LENGTHS = st.integers(-(2**31), 2**31 - 1) | st.sampled_from([0, 1, FRAME_MAX, FRAME_MAX + 1, -1])


class Script:
    """A socket that has received these pieces, one after the other."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = [piece for piece in pieces if piece]

    def recv_into(self, target: memoryview) -> int:
        assert len(target) > 0, "there is no room to go on"
        if not self._pieces:
            raise BlockingIOError
        piece = self._pieces[0]
        count = min(len(piece), len(target))
        target[:count] = piece[:count]
        self._pieces[0] = piece[count:]
        if not self._pieces[0]:
            del self._pieces[0]
        return count


def taken(pieces: list[bytes], memory: RequestMemory | None = None) -> tuple[list[bytes], int]:
    """Return the complete frames, and the number of bytes of the incomplete one."""
    sock = cast(socket.socket, Script(pieces))
    buffer = FrameBuffer(FRAME_MAX, memory)
    found: list[bytes] = []
    received = used = 0
    try:
        while count := buffer.receive(sock):
            received += count
            for frame in buffer.frames():
                found.append(bytes(frame))
                used += PREFIX.size + len(frame)
            assert buffer.size <= max(ALLOCATED_AHEAD_MAX, 2 * FRAME_MAX)
            assert buffer.partial == (used < received)
    except FrameRefused:
        return [*found, REFUSED], 0
    return found, received - used


def cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({min(cut, len(stream)) for cut in cuts})
    return [stream[a:b] for a, b in zip([0, *at], [*at, len(stream)], strict=True)]


def read_plainly(stream: bytes) -> tuple[list[bytes], int]:
    """Return the frames, parsed in the simplest way."""
    found: list[bytes] = []
    while len(stream) >= PREFIX.size:
        (length,) = PREFIX.unpack_from(stream)
        if not 0 <= length <= FRAME_MAX:
            return [*found, REFUSED], 0
        if len(stream) < PREFIX.size + length:
            break
        found.append(stream[PREFIX.size : PREFIX.size + length])
        stream = stream[PREFIX.size + length :]
    return found, len(stream)


@settings(max_examples=150, deadline=None)
@given(
    bodies=st.lists(BODIES, max_size=6),
    tail=st.binary(max_size=9),
    cuts=st.lists(st.integers(0, 400_000), max_size=30),
)
def test_frames_do_not_depend_on_how_bytes_arrive(
    bodies: list[int], tail: bytes, cuts: list[int]
) -> None:
    stream = b"".join(
        PREFIX.pack(length) + bytes([number + 1]) * length for number, length in enumerate(bodies)
    )
    stream += tail
    assert taken(cut(stream, cuts)) == read_plainly(stream)


@settings(max_examples=300, deadline=None)
@given(
    parts=st.lists(st.binary(max_size=12) | LENGTHS.map(PREFIX.pack), max_size=12),
    cuts=st.lists(st.integers(0, 150), max_size=20),
)
def test_any_bytes_wait_or_are_refused(parts: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(parts)
    assert taken(cut(stream, cuts)) == read_plainly(stream)


@settings(max_examples=60, deadline=None)
@given(bodies=st.lists(BODIES, max_size=6), cuts=st.lists(st.integers(0, 400_000), max_size=30))
def test_little_memory_gives_the_same_frames(bodies: list[int], cuts: list[int]) -> None:
    """A single connection always makes progress, whatever the limit."""
    stream = b"".join(PREFIX.pack(length) + b"x" * length for length in bodies)
    memory = RequestMemory(0)
    assert taken(cut(stream, cuts), memory) == read_plainly(stream)
    assert memory.used >= 0
