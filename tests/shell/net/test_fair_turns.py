"""Connections share a turn fairly, and a request must be complete in time."""

import socket
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from net_stage import Stage, framed, stages

from tidelog.shell.net.frame_buffer import PREFIX, FrameBuffer
from tidelog.shell.net.outbox import Chunk

KB = 1024


@pytest.fixture
def staged(tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    yield from stages(tmp_path)


def test_a_request_that_does_not_end_is_dropped(staged: Callable[..., Stage]) -> None:
    stage = staged(receive_timeout_ms=1000)
    slow, silent, busy = stage.connect(), stage.connect(), stage.connect()
    slow.sendall(framed(b"x" * 100)[:50])
    until = time.monotonic() + 120
    while not stage.is_closed(slow):
        assert time.monotonic() < until
        # Always part of a request is there, but each of them ends.
        busy.setblocking(True)
        busy.sendall(framed(b"request")[5:] + framed(b"request")[:5] if stage.echo.frames else b"")
        stage.turns(3)
        if not stage.echo.frames:
            busy.sendall(framed(b"request") + framed(b"request")[:5])
        time.sleep(0.01)  # must stay: the rate of the peer that sends
    assert stage.echo.gone == ["request not received completely in time"]
    assert len(stage.listener.connections) == 2
    assert not stage.is_closed(silent)


def test_a_request_sent_byte_by_byte_is_closed_when_it_times_out(
    staged: Callable[..., Stage],
) -> None:
    stage = staged(receive_timeout_ms=200)
    peer = stage.connect()
    peer.sendall(PREFIX.pack(100_000))
    until = time.monotonic() + 120
    while not stage.echo.gone:
        assert time.monotonic() < until
        peer.sendall(b"x")
        stage.turns(2)
        time.sleep(0.01)  # must stay: the rate of the peer that sends
    assert "not received completely" in stage.echo.gone[0]


def test_one_connection_does_not_use_a_whole_turn(staged: Callable[..., Stage]) -> None:
    stage = staged(in_flight_max=1 << 20)

    def slowly(frame: bytes) -> list[Chunk]:
        until = time.perf_counter() + 0.0005
        while time.perf_counter() < until:
            pass
        return [PREFIX.pack(len(frame)) + frame]

    stage.echo.answer = slowly
    greedy, modest = stage.connect(), stage.connect()
    stage.until(lambda: len(stage.listener.connections) == 2)
    greedy.sendall(framed(b"greedy") * 2000)
    modest.sendall(framed(b"modest"))
    assert stage.received(modest, 10) == framed(b"modest")
    assert stage.echo.frames < 100
    assert stage.received(greedy, 20_000) == framed(b"greedy") * 2000


@pytest.mark.parametrize("peers", [5, 40])
def test_connections_that_sent_much_share_a_turn(
    staged: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch, peers: int
) -> None:
    """The clock advances by a millisecond with each reading."""
    clock = count(0, 1_000_000)
    monkeypatch.setattr("tidelog.shell.net.connection.monotonic_ns", lambda: next(clock))
    stage = staged()
    for peer in [stage.connect() for _ in range(peers)]:
        peer.sendall(framed(*[b"much"] * 50))
    most = before = 0
    while stage.echo.frames < peers * 50:
        stage.turns(1)
        most, before = max(most, stage.echo.frames - before), stage.echo.frames
    assert most <= 100, "one turn is no longer than another, but for one request of each"


def test_many_large_requests_are_received_in_turns(
    staged: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same clock: no connection reads until its whole request has arrived."""
    clock = count(0, 1_000_000)
    monkeypatch.setattr("tidelog.shell.net.connection.monotonic_ns", lambda: next(clock))
    received = 0
    receive = FrameBuffer.receive

    def counted(buffer: FrameBuffer, sock: socket.socket) -> int | None:
        nonlocal received
        received += 1
        return receive(buffer, sock)

    monkeypatch.setattr(FrameBuffer, "receive", counted)
    for name in ("GRAIN", "ALLOCATED_AHEAD_MAX"):
        monkeypatch.setattr(f"tidelog.shell.net.frame_buffer.{name}", 4 * KB)
    stage = staged()
    for peer in [stage.connect() for _ in range(40)]:
        peer.sendall(framed(bytes(100 * KB)))
    most = before = 0
    while stage.echo.frames < 40:
        stage.turns(1)
        most, before = max(most, received - before), received
    assert most <= 3 * 40
