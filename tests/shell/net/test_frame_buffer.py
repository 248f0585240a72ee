"""Frames are returned whole and in order, however the bytes arrive."""

import socket
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.shell.net.frame_buffer import (
    ALLOCATED_AHEAD_MAX,
    PREFIX,
    SMALL,
    FrameBuffer,
    FrameRefused,
)

FRAME_MAX = 1 << 20


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    here.setblocking(False)
    with here, there:
        yield here, there


def framed(body: bytes) -> bytes:
    return PREFIX.pack(len(body)) + body


def taken(buffer: FrameBuffer, sock: socket.socket) -> list[bytes]:
    found = []
    while buffer.receive(sock):
        found += [bytes(frame) for frame in buffer.frames()]
    return found


@settings(max_examples=60, deadline=None)
@given(
    bodies=st.lists(st.integers(0, 3 * SMALL), min_size=1, max_size=8),
    cuts=st.lists(st.integers(1, 2 * SMALL), min_size=1, max_size=40),
)
def test_frames_are_complete_however_bytes_arrive(bodies: list[int], cuts: list[int]) -> None:
    sent = [bytes([65 + number]) * length for number, length in enumerate(bodies)]
    stream = b"".join(map(framed, sent))
    here, there = socket.socketpair()
    here.setblocking(False)
    buffer = FrameBuffer(FRAME_MAX)
    got: list[bytes] = []
    with here, there:
        while stream:
            cut = cuts.pop() if cuts else len(stream)
            there.sendall(stream[:cut])
            stream = stream[cut:]
            got += taken(buffer, here)
    assert got == sent


def test_a_large_frame_is_read_to_its_end_and_no_further(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    here, there = pair
    body = b"x" * 60_000
    there.sendall(framed(body)[:100])
    buffer = FrameBuffer(FRAME_MAX)
    assert buffer.receive(here) == 100
    assert list(buffer.frames()) == []
    there.sendall(framed(body)[100:] + framed(b"next"))
    assert buffer.waiting_for == len(body) + 4 - 100
    got = taken(buffer, here)
    assert got == [body, b"next"]


def test_a_frame_that_is_too_long_is_refused_before_it_is_received(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    here, there = pair
    there.sendall(PREFIX.pack(FRAME_MAX + 1))
    buffer = FrameBuffer(FRAME_MAX)
    buffer.receive(here)
    with pytest.raises(FrameRefused, match="1048577"):
        list(buffer.frames())
    assert buffer.size == SMALL


@pytest.mark.parametrize("length", [-1, -(2**31)])
def test_a_negative_length_is_refused(
    length: int, pair: tuple[socket.socket, socket.socket]
) -> None:
    here, there = pair
    there.sendall(PREFIX.pack(length))
    buffer = FrameBuffer(FRAME_MAX)
    buffer.receive(here)
    with pytest.raises(FrameRefused):
        list(buffer.frames())


def test_an_idle_buffer_releases_its_memory(pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    there.sendall(framed(b"x" * 50_000))
    buffer = FrameBuffer(FRAME_MAX)
    assert taken(buffer, here) == [b"x" * 50_000]
    assert buffer.size > SMALL
    buffer.shrink()
    assert buffer.size == 0
    there.sendall(framed(b"again"))
    assert taken(buffer, here) == [b"again"]


def test_a_buffer_with_part_of_a_frame_is_not_released(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    here, there = pair
    buffer = FrameBuffer(FRAME_MAX)
    there.sendall(framed(b"y" * 50_000)[:40_000])
    assert taken(buffer, here) == []
    buffer.shrink()
    there.sendall(framed(b"y" * 50_000)[40_000:])
    assert taken(buffer, here) == [b"y" * 50_000]


def test_the_end_of_the_stream_is_zero_and_silence_is_none(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    here, there = pair
    buffer = FrameBuffer(FRAME_MAX)
    assert buffer.receive(here) is None
    there.close()
    assert buffer.receive(here) == 0


def test_a_length_without_its_bytes_allocates_little_memory(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """Otherwise a few hundred connections that announce large frames would use all memory."""
    here, there = pair
    buffer = FrameBuffer(100 << 20)
    there.sendall(PREFIX.pack(90 << 20))
    assert taken(buffer, here) == []
    assert buffer.size <= ALLOCATED_AHEAD_MAX


@pytest.mark.parametrize(
    "length", [ALLOCATED_AHEAD_MAX - 4, ALLOCATED_AHEAD_MAX, 5 * ALLOCATED_AHEAD_MAX + 3]
)
@pytest.mark.parametrize("before", [0, 1, SMALL])
def test_a_very_large_frame_is_received_whole(
    pair: tuple[socket.socket, socket.socket], length: int, before: int
) -> None:
    here, there = pair
    buffer = FrameBuffer(100 << 20)
    bodies = [b"b" * before, bytes(range(256)) * (length // 256) + b"x" * (length % 256), b"after"]
    stream = b"".join(map(framed, bodies))
    got = []
    for start in range(0, len(stream), 50_000):
        there.sendall(stream[start : start + 50_000])
        got += taken(buffer, here)
    assert got == bodies


@pytest.mark.parametrize(
    ("sent", "lone"),
    [
        (framed(b"abc"), b"abc"),
        (framed(b""), b""),
        (framed(b"abc") + framed(b"d"), None),
        (framed(b"abc") + b"\0", None),
        (framed(b"abc")[:-1], None),
        (b"\0\0", None),
        (framed(bytes(101)), None),
    ],
)
def test_receive_lone_returns_a_frame_that_arrives_alone(sent: bytes, lone: bytes | None) -> None:
    here, there = socket.socketpair()
    with here, there:
        there.sendall(sent)
        buffer = FrameBuffer(100)
        got = buffer.receive_lone(here)
        assert got == (len(sent) if lone is None else lone)
        assert buffer.partial == (lone is None)
        buffer.release()


def test_a_client_with_tls_is_named_on_a_plaintext_listener() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc")
        buffer = FrameBuffer(100 * 1024 * 1024)
        buffer.receive(ours)
        with pytest.raises(FrameRefused, match="the peer uses TLS, and this listener does not"):
            list(buffer.frames())
