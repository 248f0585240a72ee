"""A file is replaced by another of the same name while responses that refer to it wait."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from net_stage import Stage, finish, framed

from tidelog.core.storage.disk import Region
from tidelog.shell.net.outbox import SENDFILE_MIN


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    finish(stage)


def exchange(stage: Stage) -> None:
    stage.disk.write("a.log.swap", b"another" * 100_000)
    stage.disk.rename("a.log", "a.log.deleted")
    stage.disk.rename("a.log.swap", "a.log")


@pytest.mark.parametrize("length", [100, SENDFILE_MIN, 200_000])
def test_a_response_is_sent_from_the_file_it_was_made_of(stage: Stage, length: int) -> None:
    data = os.urandom(length + 20)
    stage.disk.append("a.log", [data])
    stage.echo.answer = lambda _: [b"head", Region("a.log", 10, length)]
    peer = stage.connect()
    peer.sendall(framed(b"wait", b"give"))
    stage.until(lambda: stage.echo.frames == 2)
    (connection,) = stage.listener.connections
    connection.hold_files()
    connection.hold_files()
    exchange(stage)
    stage.disk.delete("a.log.deleted")
    stage.echo.waiting[0].fill([b""])
    assert stage.received(peer, 4 + length) == b"head" + data[10 : 10 + length]


def test_held_files_are_released_with_the_connection(stage: Stage) -> None:
    stage.disk.append("a.log", [bytes(200_000)])
    stage.echo.answer = lambda _: [Region("a.log", 0, 200_000)]
    peer = stage.connect()
    peer.sendall(framed(b"wait", b"give"))
    stage.until(lambda: stage.echo.frames == 2)
    (connection,) = stage.listener.connections
    before = len(os.listdir("/proc/self/fd"))
    connection.hold_files()
    stage.disk.delete("a.log")
    assert len(os.listdir("/proc/self/fd")) == before, "it is deleted, and open"
    connection.close("enough")
    assert len(os.listdir("/proc/self/fd")) == before - 2, "its socket is gone too"


def test_a_missing_file_closes_the_connection(stage: Stage) -> None:
    stage.echo.answer = lambda _: [Region("a.log", 0, 200_000)]
    peer = stage.connect()
    peer.sendall(framed(b"wait", b"give"))
    stage.until(lambda: stage.echo.frames == 2)
    (connection,) = stage.listener.connections
    connection.hold_files()
    assert "a.log" in connection.broken_by


def test_files_of_a_response_that_cannot_be_held_completely_are_released(stage: Stage) -> None:
    stage.disk.append("a.log", [bytes(200_000)])
    stage.echo.answer = lambda _: [Region("a.log", 0, 200_000), Region("b.log", 0, 200_000)]
    peer = stage.connect()
    peer.sendall(framed(b"wait", b"give"))
    stage.until(lambda: stage.echo.frames == 2)
    (connection,) = stage.listener.connections
    connection.hold_files()
    assert "b.log" in connection.broken_by
    before = len(os.listdir("/proc/self/fd"))
    stage.disk.delete("a.log")
    assert len(os.listdir("/proc/self/fd")) == before - 1, "nobody holds it open"
