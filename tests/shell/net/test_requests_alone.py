"""Requests that must not overlap with others of their connection, over real sockets."""

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from net_stage import Stage, finish, framed

from tidelog.shell.net.frame_buffer import PREFIX, SMALL


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    finish(stage)


def test_request_behind_one_that_runs_alone_waits_for_its_answer(stage: Stage) -> None:
    peer = stage.connect()
    peer.sendall(framed(b"alone wait", b"next", b"alone", b"last"))
    stage.until(lambda: stage.echo.frames == 1)
    stage.turns(5)
    assert stage.echo.handled == [b"alone wait"]
    stage.echo.waiting[0].fill([framed(b"done")])
    expected = framed(b"done", b"next", b"alone", b"last")
    assert stage.received(peer, len(expected)) == expected


def test_request_that_runs_alone_waits_for_the_answers_of_all_earlier_ones(stage: Stage) -> None:
    peer = stage.connect()
    peer.sendall(framed(b"wait", b"1 wait", b"alone", b"next"))
    stage.until(lambda: stage.echo.frames == 2)
    first, second = stage.echo.waiting
    second.fill([framed(b"two")])
    stage.turns(5)
    assert stage.echo.frames == 2
    first.fill([framed(b"one")])
    expected = framed(b"one", b"two", b"alone", b"next")
    assert stage.received(peer, len(expected)) == expected


def test_frame_that_arrives_alone_is_put_back_whole(stage: Stage) -> None:
    peer = stage.connect()
    peer.sendall(framed(b"wait"))
    stage.until(lambda: stage.echo.frames == 1)
    large = b"alone" + bytes(SMALL * 3)
    peer.sendall(framed(large))
    stage.turns(20)
    assert stage.echo.frames == 1
    stage.echo.waiting[0].fill([framed(b"one")])
    expected = framed(b"one", large)
    assert stage.received(peer, len(expected)) == expected


def test_requests_that_are_answered_at_once_do_not_block_the_connection(stage: Stage) -> None:
    peer = stage.connect()
    peer.sendall(framed(*[b"alone"] * 500))
    stage.until(lambda: stage.echo.frames == 500)
    assert stage.received(peer, 500 * 9) == framed(*[b"alone"] * 500)


def test_peer_that_leaves_behind_a_waiting_request_is_noticed(stage: Stage) -> None:
    peer = stage.connect()
    peer.sendall(framed(b"alone wait"))
    stage.until(lambda: stage.echo.frames == 1)
    peer.close()
    stage.until(lambda: bool(stage.echo.gone))
    assert not stage.listener.connections
    stage.echo.waiting[0].fill([framed(b"too late")])


def test_peer_that_resets_behind_a_waiting_request_is_noticed(stage: Stage) -> None:
    peer = stage.connect()
    peer.sendall(framed(b"alone wait", b"alone last"))
    stage.until(lambda: stage.echo.frames == 1)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    stage.until(lambda: bool(stage.echo.gone))


def test_last_requests_of_a_peer_that_left_are_handled_at_once(stage: Stage) -> None:
    """A consumer that closes while it joins sends LeaveGroup and disconnects.

    No member may remain.
    """
    peer = stage.connect()
    peer.sendall(framed(b"alone wait"))
    stage.until(lambda: stage.echo.frames == 1)
    peer.sendall(framed(b"alone leave", b"alone wait", b"alone last"))
    peer.shutdown(socket.SHUT_WR)
    stage.until(lambda: bool(stage.echo.gone))
    assert stage.echo.handled == [b"alone wait", b"alone leave", b"alone wait", b"alone last"]
    assert not stage.listener.connections


def test_waiting_connection_does_not_keep_counted_memory_for_ever(tmp_path: Path) -> None:
    """Other connections wait for that memory; a small buffer, which is not counted, may stay."""
    stage = Stage(tmp_path, receive_timeout_ms=200)
    try:
        small, large = stage.connect(), stage.connect()
        small.sendall(framed(b"alone wait", b"alone"))
        # A full small buffer makes the connection read more at a time.
        large.sendall(framed(bytes(SMALL - PREFIX.size)))
        assert len(stage.received(large, SMALL)) == SMALL
        large.sendall(framed(b"alone wait") + framed(bytes(SMALL)) * 4)
        stage.until(lambda: bool(stage.echo.gone))
        assert stage.shares.requests.used == 0
        assert len(stage.listener.connections) == 1
        assert not stage.is_closed(small)
    finally:
        finish(stage)
