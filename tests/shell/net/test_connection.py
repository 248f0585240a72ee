"""Connections over real sockets: order, files, limits, misbehaving peers."""

import contextlib
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from net_stage import FRAME_MAX, Stage, finish, framed

from tidelog.core.storage.disk import Region
from tidelog.shell.net.connection import Connection
from tidelog.shell.net.frame_buffer import PREFIX
from tidelog.shell.net.listener import CannotListen, bind
from tidelog.shell.net.shared_limits import ConnectionLimits


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    finish(stage)


def test_responses_are_sent_in_the_order_of_requests(stage: Stage) -> None:
    peer = stage.connect()
    peer.sendall(framed(b"one", b"wait", b"three"))
    assert stage.received(peer, 7) == framed(b"one")
    stage.until(lambda: stage.echo.frames == 3)
    stage.echo.waiting[0].fill([framed(b"two")])
    assert stage.received(peer, 7 + 9) == framed(b"two", b"three")


def test_short_and_long_stretches_of_files_are_sent(stage: Stage) -> None:
    data = os.urandom(300_000)
    stage.disk.append("a.log", [data])
    stage.echo.answer = lambda _: [
        PREFIX.pack(100 + 200_000 + 3),
        Region("a.log", 50, 100),
        Region("a.log", 1000, 200_000),
        b"end",
    ]
    peer = stage.connect()
    peer.sendall(framed(b"give"))
    got = stage.received(peer, 4 + 200_103)
    assert got[4:] == data[50:150] + data[1000:201_000] + b"end"


def test_a_file_deleted_while_it_is_sent_is_sent_completely(stage: Stage) -> None:
    data = os.urandom(8_000_000)
    stage.disk.append("a.log", [data])
    stage.echo.answer = lambda _: [Region("a.log", 0, len(data))]
    peer = stage.connect()
    peer.sendall(framed(b"give"))
    stage.until(lambda: stage.echo.frames == 1)
    stage.disk.delete("a.log")
    assert stage.received(peer, len(data)) == data


def test_a_file_that_ended_early_closes_the_connection(stage: Stage) -> None:
    stage.disk.append("a.log", [b"x" * 20_000])
    stage.echo.answer = lambda _: [Region("a.log", 0, 30_000)]
    peer = stage.connect()
    peer.sendall(framed(b"give"))
    stage.until(lambda: bool(stage.echo.gone))
    assert "shorter than" in stage.echo.gone[0]


@pytest.mark.parametrize("length", [100, 200_000])
def test_a_file_deleted_while_its_answer_waited_closes_the_connection(
    stage: Stage, length: int
) -> None:
    """The response waits for an earlier one, so its file is not open yet."""
    stage.disk.append("a.log", [bytes(length)])
    stage.echo.answer = lambda _: [Region("a.log", 0, length)]
    peer = stage.connect()
    peer.sendall(framed(b"wait", b"give"))
    stage.until(lambda: stage.echo.frames == 2)
    stage.disk.delete("a.log")
    stage.echo.waiting[0].fill([framed(b"one")])
    stage.until(lambda: bool(stage.echo.gone))
    assert "a.log" in stage.echo.gone[0]


def test_a_segment_that_is_being_deleted_is_still_sent(stage: Stage) -> None:
    data = os.urandom(200_000)
    stage.disk.append("a.log", [data])
    stage.echo.answer = lambda _: [Region("a.log", 0, len(data))]
    peer = stage.connect()
    peer.sendall(framed(b"wait", b"give"))
    stage.until(lambda: stage.echo.frames == 2)
    stage.disk.rename("a.log", "a.log.deleted")
    stage.echo.waiting[0].fill([b""])
    assert stage.received(peer, len(data)) == data


@pytest.mark.parametrize("length", [100, 200_000])
def test_a_response_without_a_slot_from_a_missing_file_closes_the_connection(
    stage: Stage, length: int
) -> None:
    stage.connect()
    stage.until(lambda: bool(stage.listener.connections))
    (connection,) = stage.listener.connections
    connection.send_now([Region("a.log", 0, length)])
    assert not connection.open
    connection.send_now([b"too late"])


@pytest.mark.parametrize("length", [-5, FRAME_MAX + 1, 0x47455420])
def test_an_invalid_length_closes_the_connection(stage: Stage, length: int) -> None:
    peer = stage.connect()
    peer.sendall(PREFIX.pack(length) + b"garbage")
    stage.until(lambda: stage.is_closed(peer))
    assert stage.listener.connections == set()


def test_a_peer_that_never_reads_is_not_read_from(stage: Stage) -> None:
    stage.echo.answer = lambda _: [b"x" * 1_000_000]
    peer = stage.connect()
    peer.setblocking(False)
    sent = 0
    for _ in range(400):
        with contextlib.suppress(BlockingIOError):
            sent += peer.send(framed(b"more") * 100) // 8
        stage.loop.after(0, lambda: None)
        stage.loop.turn()
    assert stage.echo.frames < 2000, "it went on reading"
    assert sent > stage.echo.frames


def test_unanswered_requests_are_bounded(tmp_path: Path) -> None:
    """The limit includes received requests: the rest are handled later, in order."""
    stage = Stage(tmp_path, in_flight_max=50)
    peer = stage.connect()
    count = 3 * 50 + 20
    peer.sendall(framed(b"wait") * (count - 1) + framed(b"last"))
    for done in range(50, count, 50):
        stage.until(lambda: stage.echo.frames >= done)  # noqa: B023 - called before it changes
        for _ in range(5):
            stage.loop.after(0, lambda: None)
            stage.loop.turn()
        assert stage.echo.frames == done
        waiting, stage.echo.waiting = stage.echo.waiting, []
        for slot in waiting:
            slot.fill([framed(b"done")])
    stage.until(lambda: stage.echo.frames == count)
    for slot in stage.echo.waiting:
        slot.fill([framed(b"done")])
    assert stage.received(peer, count * 8) == framed(b"done") * (count - 1) + framed(b"last")
    finish(stage)


def test_connections_are_bounded_in_all_and_by_address(tmp_path: Path) -> None:
    stage = Stage(tmp_path, ConnectionLimits(per_ip=2))
    first, second, third = stage.connect(), stage.connect(), stage.connect()
    stage.until(lambda: stage.is_closed(third))
    assert not stage.is_closed(first)
    first.close()
    stage.until(lambda: len(stage.listener.connections) == 1)
    fourth = stage.connect()
    fourth.sendall(framed(b"hi"))
    assert stage.received(fourth, 6) == framed(b"hi")
    second.close()
    finish(stage)


def test_connections_leave_descriptors_for_files(tmp_path: Path) -> None:
    """Otherwise a client that connects repeatedly would keep a broker from writing."""
    stage = Stage(tmp_path, descriptor_max=2)
    try:
        peer = stage.connect()
        stage.until(lambda: stage.is_closed(peer))
        assert not stage.listener.connections
    finally:
        finish(stage)


def test_files_being_sent_leave_descriptors_for_writing(stage: Stage) -> None:
    stage.disk.append("a.log", [bytes(200_000)])
    stage.disk.lease_descriptor_max = 1
    stage.echo.answer = lambda _: [Region("a.log", 0, 200_000)]
    stage.connect().sendall(framed(b"give"))
    before = len(os.listdir("/dev/fd"))
    stage.until(lambda: bool(stage.echo.gone))
    assert "too many files" in stage.echo.gone[0]
    assert len(os.listdir("/dev/fd")) <= before


def test_a_closed_connection_releases_its_memory_at_once(stage: Stage) -> None:
    """The memory is released without a garbage collection: the buffer may be large."""
    gc.collect()
    gc.disable()
    try:
        peer = stage.connect()
        peer.sendall(framed(b"wait"))
        stage.until(lambda: stage.echo.frames == 1)
        peer.close()
        stage.until(lambda: bool(stage.echo.gone))
        assert not [thing for thing in gc.get_objects() if isinstance(thing, Connection)]
        (unanswered,) = stage.echo.waiting
        unanswered.fill([b"too late"])
        unanswered.refuse("too late")
    finally:
        gc.enable()


def later(stage: Stage, passed_ms: int) -> None:
    """Make every connection idle for longer, without waiting."""
    for connection in stage.listener.connections:
        connection.active_ms -= passed_ms


def test_a_silent_peer_is_closed(tmp_path: Path) -> None:
    stage = Stage(tmp_path, idle_max_ms=0)
    peer = stage.connect()
    stage.until(lambda: len(stage.listener.connections) == 1)
    later(stage, 1)
    stage.listener._sweep_idle()
    stage.until(lambda: stage.is_closed(peer))
    finish(stage)


def test_a_connection_that_waits_for_a_response_is_not_idle(tmp_path: Path) -> None:
    """A long poll, a produce that waits for replicas, a member that waits for the others."""
    stage = Stage(tmp_path, idle_max_ms=200)
    patient, silent = stage.connect(), stage.connect()
    patient.sendall(framed(b"wait"))
    stage.until(lambda: bool(stage.echo.gone))
    later(stage, 300)
    stage.listener._sweep_idle()
    assert stage.echo.gone == ["idle for too long"]
    stage.echo.waiting[0].fill([framed(b"at last")])
    assert stage.received(patient, 11) == framed(b"at last")
    stage.listener._sweep_idle()
    assert not stage.is_closed(patient), "it has just got its answer"
    stage.until(lambda: len(stage.echo.gone) == 2)
    assert stage.is_closed(patient)
    assert stage.is_closed(silent)
    finish(stage)


def test_a_port_in_use_is_reported_in_one_line(stage: Stage) -> None:
    with pytest.raises(CannotListen, match=r"can't listen on .* in use; stop the program"):
        bind("127.0.0.1", stage.listener.port)


def test_localhost_is_both_families_on_one_port() -> None:
    sockets = bind("localhost", 0)
    assert len({sock.getsockname()[1] for sock in sockets}) == 1
    for sock in sockets:
        sock.close()
