"""Connections and peer links work over any transport; sockets are one of them."""

import errno
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from link_peer import LinkStage
from net_stage import PATIENCE_S, Stage, finish, framed
from sealed_transport import FAILED, SealedSocket, SealedTransport

from tidelog.core.api_table import CONTROLLER_CALL
from tidelog.core.controller.events import ListReassignmentsReceived
from tidelog.core.node.messages import Forwarded
from tidelog.core.storage.disk import Region
from tidelog.core.wire.codec import decode_request, encode_response
from tidelog.core.wire.frames import parse_request_header
from tidelog.shell.clock import Clock
from tidelog.shell.metrics.endpoint import HttpListener
from tidelog.shell.metrics.http_connection import Page
from tidelog.shell.net import peer_link
from tidelog.shell.net.event_loop import EventLoop
from tidelog.shell.net.listener import bind
from tidelog.shell.net.outbox import SENDFILE_MIN
from tidelog.shell.net.transport import (
    LOST_PEER_MS,
    Address,
    SocketTransport,
    connect,
    copy_file,
)

PIECES = [1, 7, 1000]
REQUEST = Forwarded(ListReassignmentsReceived(0))


@contextmanager
def sealed_stage(root: Path, piece: int, **limits: int) -> Iterator[tuple[Stage, SealedSocket]]:
    stage = Stage(root, None, None, lambda sock: SealedTransport(sock, piece), **limits)
    peer = SealedSocket.over(stage.connect())
    stage.peers.append(peer)
    yield stage, peer
    finish(stage)


@pytest.mark.parametrize("piece", PIECES)
def test_frames_pass_in_pieces_and_in_order(tmp_path: Path, piece: int) -> None:
    """All frames are sent at once, so no socket event announces those that were read ahead."""
    frames = framed(*[bytes([size % 251]) * size for size in (0, 1, 3, 4, 5, 300, 2000, 1)] * 2)
    with sealed_stage(tmp_path, piece) as (stage, peer):
        peer.sendall(frames)
        assert stage.received(peer, len(frames)) == frames


def test_reading_stops_and_resumes_over_any_transport(tmp_path: Path) -> None:
    with sealed_stage(tmp_path, 7, in_flight_max=2) as (stage, peer):
        frames = [b"%d wait" % number for number in range(10)]
        peer.sendall(framed(*frames))
        for number in range(0, 10, 2):
            stage.until(lambda number=number: stage.echo.frames == number + 2)  # type: ignore[misc]
            stage.turns(20)
            assert stage.echo.frames == number + 2, "no more than two are read"
            for slot in stage.echo.waiting[number:]:
                slot.fill([framed(frames[stage.echo.waiting.index(slot)])])
        expected = framed(*frames)
        assert stage.received(peer, len(expected)) == expected


@pytest.mark.parametrize("piece", [100, 1 << 20])
def test_files_are_copied_where_there_is_no_sendfile(tmp_path: Path, piece: int) -> None:
    records = os.urandom(SENDFILE_MIN + 17)
    with sealed_stage(tmp_path, piece) as (stage, peer):
        stage.disk.append("log", [b"before", records])
        stage.echo.answer = lambda frame: [b"<", Region("log", 6, len(records)), frame + b">"]
        peer.sendall(framed(b"a", b"b"))
        expected = b"".join(b"<" + records + name + b">" for name in (b"a", b"b"))
        assert stage.received(peer, len(expected)) == expected


@pytest.mark.parametrize("piece", PIECES)
def test_the_metrics_listener_works_over_any_transport(piece: int) -> None:
    loop = EventLoop(Clock())
    [sock] = bind("127.0.0.1", 0)
    page = Page("200 OK", "text/plain", iter(["a page"]))
    listener = HttpListener(loop, sock, lambda _: page, lambda sock: SealedTransport(sock, piece))
    peer = SealedSocket.over(socket.create_connection(("127.0.0.1", listener.port)))
    peer.setblocking(False)
    peer.sendall(b"GET / HTTP/1.0\r\n\r\n")
    got, give_up = b"", time.monotonic() + PATIENCE_S
    while not got.endswith(b"a page"):
        assert time.monotonic() < give_up, got
        loop.after(5, lambda: None)
        loop.turn()
        with suppress(BlockingIOError):
            got += peer.recv(1000)
    assert got.startswith(b"HTTP/1.1 200 OK\r\n")
    listener.close()
    peer.close()
    loop.close()


def test_a_failed_handshake_of_the_transport_closes_the_connection(tmp_path: Path) -> None:
    stage = Stage(tmp_path, new_transport=lambda sock: SealedTransport(sock, 100))
    plain = stage.connect()
    plain.sendall(framed(b"a request without the seal"))
    stage.until(lambda: bool(stage.echo.gone))
    assert stage.echo.gone == [FAILED]
    assert stage.echo.frames == 0
    finish(stage)


def test_a_peer_that_closes_during_the_handshake_is_forgotten(tmp_path: Path) -> None:
    stage = Stage(tmp_path, new_transport=lambda sock: SealedTransport(sock, 100))
    plain = stage.connect()
    plain.sendall(b"sea")
    plain.close()
    stage.until(lambda: bool(stage.echo.gone))
    assert not stage.listener.connections
    finish(stage)


def connect_sealed(address: Address) -> SealedTransport:
    sock = socket.socket()
    sock.setblocking(False)
    assert sock.connect_ex(address) == errno.EINPROGRESS
    return SealedTransport(sock, 7)


@pytest.fixture
def link(tmp_path: Path) -> Iterator[LinkStage]:
    stage = LinkStage(tmp_path, connect_sealed)
    yield stage
    stage.close()


def test_a_link_proves_itself_and_sends_requests_in_pieces(link: LinkStage) -> None:
    requests = [Forwarded(ListReassignmentsReceived(number)) for number in (5, 6)]
    for number, request in enumerate(requests):
        link.link.send(number, request)
    peer = SealedSocket.over(link.accept())
    link.prove(peer)
    for _ in requests:
        frame = link.frame(peer)
        header = parse_request_header(memoryview(frame))
        document = decode_request(CONTROLLER_CALL, 0, frame, header.position)
        peer.sendall(encode_response(CONTROLLER_CALL, 0, header.correlation_id, document))
    link.until(lambda: len(link.answered) == len(requests))
    assert link.answered == requests
    assert link.failed == []
    peer.close()


def test_a_link_closes_where_the_transport_fails(link: LinkStage) -> None:
    link.link.send(7, REQUEST)
    plain = link.accept()
    plain.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    link.until(lambda: link.failed == [7])
    assert link.broken == 1


def test_a_transport_that_does_not_finish_its_handshake_is_closed(
    link: LinkStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_link, "HANDSHAKE_MS", 50)
    link.link.send(7, REQUEST)
    link.accept()
    link.until(lambda: link.failed == [7])


# -- sockets -------------------------------------------------------------------------------


@pytest.fixture
def pair() -> Iterator[tuple[SocketTransport, socket.socket]]:
    here, there = socket.socketpair()
    with here, there:
        yield SocketTransport(here), there


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "file").write_bytes(b"0123456789")
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    yield fd
    os.close(fd)


@pytest.mark.parametrize("works", [True, False])
def test_a_file_is_sent_with_and_without_sendfile(
    pair: tuple[SocketTransport, socket.socket],
    file: int,
    works: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here, there = pair

    def fails(*_: object) -> int:
        raise OSError(errno.EINVAL, "this file system has no sendfile")

    if not works:
        monkeypatch.setattr(os, "sendfile", fails)
    assert here.send_file(file, 2, 5) == 5
    assert there.recv(100) == b"23456"
    assert here.send_file(file, 8, 5) == 2
    assert here.send_file(file, 10, 5) == 0, "the file ends there"


def test_an_error_of_the_file_is_not_hidden_by_the_fallback(
    pair: tuple[SocketTransport, socket.socket], file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> int:
        raise OSError(errno.EIO, "unreadable")

    monkeypatch.setattr(os, "sendfile", fails)
    with pytest.raises(OSError, match="unreadable"):
        pair[0].send_file(file, 0, 5)


def test_bytes_that_copy_file_could_not_send_are_read_again(file: int) -> None:
    sent: list[bytes] = []

    def send(data: object) -> int:
        assert isinstance(data, bytes)
        sent.append(data[:3])
        return len(data[:3])

    position = 0
    while count := copy_file(send, file, position, 10 - position):
        position += count
    assert sent == [b"012", b"345", b"678", b"9"]


def test_a_refused_connection_is_an_error_at_its_first_event() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        transport = connect(taken.getsockname())
    if transport is not None:  # some systems refuse at once
        with pytest.raises(ConnectionRefusedError):
            transport.finish_connect()
        transport.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has TCP_USER_TIMEOUT")
def test_the_kernel_closes_a_connection_to_a_lost_machine() -> None:
    """Both while data is not confirmed and while the connection is idle."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        transport = connect(server.getsockname())
        assert isinstance(transport, SocketTransport)
        options = {
            name: transport.sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
            for name in ("TCP_USER_TIMEOUT", "TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
        }
        assert transport.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        transport.close()
    assert options.pop("TCP_USER_TIMEOUT") == LOST_PEER_MS
    probed_s = options["TCP_KEEPIDLE"] + options["TCP_KEEPINTVL"] * (options["TCP_KEEPCNT"] - 1)
    assert probed_s * 1000 <= LOST_PEER_MS
