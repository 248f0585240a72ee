"""Brokers of one machine connect over a Unix socket of the same user, otherwise over TCP."""

import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from link_peer import handshake_to
from net_stage import FRAME_MAX, PATIENCE_S, Stage, finish, framed

from tidelog.shell.clock import Clock
from tidelog.shell.net import same_host
from tidelog.shell.net.event_loop import EventLoop
from tidelog.shell.net.listener import Limits, Listener, bind
from tidelog.shell.net.peer_link import LinkEvents, PeerLink
from tidelog.shell.net.same_host import connect_beside, listen_beside
from tidelog.shell.net.transport import SocketTransport
from tidelog.shell.os_disk import OsDisk

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux has names without files"
)


@pytest.fixture
def doors() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A listening TCP socket, and the Unix socket beside it."""
    with ExitStack() as stack:
        [door] = map(stack.enter_context, bind("127.0.0.1", 0))
        beside = listen_beside(door, 5)
        assert beside is not None
        yield door, stack.enter_context(beside)


def address_of(door: socket.socket) -> tuple[str, int]:
    return "127.0.0.1", door.getsockname()[1]


def family_of_link(tmp_path: Path, door: socket.socket) -> int:
    """The socket family of a link to the listener's address."""
    loop, disk = EventLoop(Clock()), OsDisk(str(tmp_path))
    told = LinkEvents(lambda _number, _answer: None, lambda _number: None, lambda: None)
    link = PeerLink(loop, disk, "test", handshake_to, lambda: address_of(door), told)
    assert link._connect()
    assert isinstance(link._transport, SocketTransport)
    family = link._transport.sock.family
    link.close()
    disk.close()
    loop.close()
    return family


def test_a_link_to_the_same_machine_uses_the_unix_socket(
    tmp_path: Path, doors: tuple[socket.socket, socket.socket]
) -> None:
    assert family_of_link(tmp_path, doors[0]) == socket.AF_UNIX


def test_tcp_is_used_without_a_unix_socket(
    tmp_path: Path, doors: tuple[socket.socket, socket.socket]
) -> None:
    doors[1].close()
    assert family_of_link(tmp_path, doors[0]) == socket.AF_INET


def test_a_unix_socket_of_another_user_is_not_used(
    tmp_path: Path, doors: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert family_of_link(tmp_path, doors[0]) == socket.AF_INET


def test_tcp_is_used_if_the_socket_buffer_is_too_small(
    doors: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(same_host, "BUFFER_BYTES_MIN", 1 << 30)
    assert connect_beside(*address_of(doors[0])) is None
    with bind("127.0.0.1", 0)[0] as other:
        assert listen_beside(other, 5) is None


def test_only_a_loopback_address_has_a_unix_socket() -> None:
    with bind("0.0.0.0", 0)[0] as door:
        assert listen_beside(door, 5) is None
    assert connect_beside("192.0.2.1", 9092) is None


def test_a_unix_socket_name_in_use_is_not_taken_over(
    doors: tuple[socket.socket, socket.socket],
) -> None:
    assert listen_beside(doors[0], 5) is None


def test_a_listener_closes_connections_of_other_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)
    second = beside_of(stage, Limits(frame_max=FRAME_MAX))
    with socket.socket(socket.AF_UNIX) as sock:
        owner = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
        sock.connect(same_host._name("127.0.0.1", stage.listener.port))
        stage.until(lambda: stage.is_closed(sock))
    assert not second.connections
    second.close()
    finish(stage)


def beside_of(stage: Stage, limits: Limits) -> Listener:
    """A second listener of the stage, on the Unix socket."""
    beside = listen_beside(stage.listener._sock, 5)
    assert beside is not None
    return Listener(stage.loop, beside, stage.disk, stage.echo, limits, stage.shares)


@pytest.mark.parametrize("name", ["{folder}/peer.sock", "\0", "\0{folder}"])
def test_a_peer_socket_may_have_a_name(tmp_path: Path, name: str) -> None:
    stage = Stage(tmp_path)
    second = beside_of(stage, Limits(frame_max=FRAME_MAX))
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(PATIENCE_S)
        sock.bind(name.format(folder=tmp_path))
        sock.connect(same_host._name("127.0.0.1", stage.listener.port))
        sock.sendall(framed(b"hello"))
        assert stage.received(sock, 9) == framed(b"hello")
    second.close()
    finish(stage)


def test_a_buffer_size_for_tcp_does_not_apply_to_unix_sockets(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    second = beside_of(stage, Limits(frame_max=FRAME_MAX, send_buffer=102_400))
    sock = connect_beside("127.0.0.1", stage.listener.port)
    assert sock is not None
    stage.peers.append(sock)
    stage.until(lambda: bool(second.connections))
    (connection,) = second.connections
    assert isinstance(connection._transport, SocketTransport)
    granted = connection._transport.sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    assert granted >= same_host.BUFFER_BYTES_MIN
    second.close()
    finish(stage)


def test_a_listener_serves_a_unix_socket_like_tcp(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    second = beside_of(stage, Limits(frame_max=FRAME_MAX))
    sock = connect_beside("127.0.0.1", stage.listener.port)
    assert sock is not None
    stage.peers.append(sock)
    large = framed(bytes(1_000_000))  # more than the system's default takes at once
    sock.settimeout(PATIENCE_S)
    sender = threading.Thread(target=lambda: sock.sendall(large))
    sender.start()
    stage.until(lambda: stage.echo.frames == 1)
    sender.join()
    assert stage.received(sock, len(large)) == large
    second.close()
    finish(stage)


def congestion_control(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


def test_a_client_over_loopback_is_sent_to_without_pacing(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.connect()
    stage.until(lambda: bool(stage.listener.connections))
    (connection,) = stage.listener.connections
    assert isinstance(connection._transport, SocketTransport)
    assert congestion_control(connection._transport.sock) == b"reno"
    finish(stage)


def test_remote_peers_keep_the_systems_congestion_control() -> None:
    with socket.socket() as sock:
        before = congestion_control(sock)
        same_host.unpace(sock, "192.0.2.1")
        assert congestion_control(sock) == before
        same_host.unpace(sock, "127.0.0.1")
        assert congestion_control(sock) == b"reno"
