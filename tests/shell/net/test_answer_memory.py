"""Unread responses are counted; above the limit the connection with most of them is closed."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from net_stage import FRAME_MAX, Stage, framed, stages

from tidelog.shell.net.connection import UNSENT_MADE_MAX


@pytest.fixture
def staged(tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    yield from stages(tmp_path)


def test_the_connection_with_most_unread_responses_is_closed(staged: Callable[..., Stage]) -> None:
    stage = staged(answer_bytes=4_000_000)
    stage.echo.answer = lambda frame: [framed(b"a" * (int(frame) if frame.isdigit() else 100_000))]
    hoarders = []
    for size in (b"1500000", b"1900000", b"1000000", b"1000000"):
        peer = stage.connect()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.sendall(framed(size) * 8)
        hoarders.append(peer)
        stage.turns(10)
        assert stage.shares.answers.used <= 4_000_000
    assert 1 <= len(stage.echo.gone) < 4
    assert all("responses were not read" in reason for reason in stage.echo.gone)
    reader = stage.connect()
    reader.sendall(framed(b"more"))
    assert len(stage.received(reader, 100_004)) == 100_004
    for peer in hoarders:
        peer.close()
    stage.until(lambda: len(stage.listener.connections) == 1)
    assert stage.shares.answers.used == 0


def test_answers_behind_one_that_waits_are_counted(staged: Callable[..., Stage]) -> None:
    stage = staged(answer_bytes=FRAME_MAX * 16)
    stage.echo.answer = lambda _: [framed(b"a" * 500_000)]
    peer = stage.connect()
    peer.sendall(framed(b"wait") + framed(b"more") * 100)
    stage.turns(20)
    assert stage.echo.frames < 10, "it went on answering"
    assert UNSENT_MADE_MAX <= stage.shares.answers.used < UNSENT_MADE_MAX + 600_000
    stage.echo.waiting[0].fill([framed(b"now")])
    assert len(stage.received(peer, 7 + 100 * 500_004)) == 7 + 100 * 500_004
    assert stage.shares.answers.used == 0


def test_the_connection_that_adds_bytes_may_be_the_one_that_is_closed(
    staged: Callable[..., Stage],
) -> None:
    stage = staged(answer_bytes=1_000_000)
    stage.echo.answer = lambda _: [framed(b"a" * 400_000)]
    peer = stage.connect()
    peer.sendall(framed(b"wait") + framed(b"more") * 10)
    stage.until(lambda: bool(stage.echo.gone))
    assert stage.shares.answers.used == 0
    stage.echo.waiting[0].fill([b"too late"])
