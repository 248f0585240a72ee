"""The listener for brokers: unproven connections are few and short, and keep no broker out."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from net_stage import Echo, Stage, framed, stages

from tidelog.shell.net.connection import Connection
from tidelog.shell.net.frame_buffer import PREFIX
from tidelog.shell.net.listener import UnprovenLimits
from tidelog.shell.net.transport import SocketTransport

LONG_MS = 600_000


class Gate(Echo):
    """A service that accepts a frame `hello` as a proof."""

    def frame(self, connection: Connection, frame: memoryview) -> None:
        if bytes(frame) == b"hello":
            connection.set_proved()
        super().frame(connection, frame)


@pytest.fixture
def staged(tmp_path: Path) -> Iterator[Callable[[UnprovenLimits], Stage]]:
    makers = stages(tmp_path)
    make = next(makers)

    def make_gate(limits: UnprovenLimits, *, is_for_brokers: bool = True) -> Stage:
        stage = make(unproven=limits, is_for_brokers=is_for_brokers, idle_max_ms=LONG_MS)
        stage.listener._service = stage.echo = Gate()
        return stage

    yield make_gate
    next(makers, None)


def prove(stage: Stage) -> Connection:
    before = set(stage.listener.connections)
    peer = stage.connect()
    peer.sendall(framed(b"hello"))
    assert stage.received(peer, 9) == framed(b"hello")
    [connection] = stage.listener.connections - before
    return connection


def test_an_unproven_peer_sends_small_frames_only(staged: Callable[..., Stage]) -> None:
    stage = staged(UnprovenLimits(100, 10, LONG_MS))
    rude, friend = stage.connect(), stage.connect()
    rude.sendall(PREFIX.pack(101))
    stage.until(lambda: stage.is_closed(rude))
    friend.sendall(framed(b"hello") + framed(b"x" * 5000))
    assert len(stage.received(friend, 9 + 5004)) == 9 + 5004


def test_an_unproven_peer_is_closed_at_its_deadline(staged: Callable[..., Stage]) -> None:
    """Also a peer that slowly sends parts of a frame."""
    stage = staged(UnprovenLimits(100, 10, 1000))
    broker = prove(stage)
    silent, slow = stage.connect(), stage.connect()
    bytes_sent = iter(PREFIX.pack(100) + bytes(90))

    def both_closed() -> bool:
        if not stage.is_closed(slow):
            try:
                slow.send(bytes([next(bytes_sent, 0)]))
            except OSError:
                return stage.is_closed(silent)
            return False
        return stage.is_closed(silent)

    stage.until(both_closed)
    assert set(stage.echo.gone) == {"handshake not finished in time"}
    assert stage.listener.connections == {broker}, "proved brokers may be silent"
    assert not stage.listener._unproven


def test_idle_unproven_connections_keep_no_broker_out(staged: Callable[..., Stage]) -> None:
    stage = staged(UnprovenLimits(100, 8, LONG_MS))
    early = prove(stage)
    idle = [stage.connect() for _ in range(100)]
    stage.until(lambda: len(stage.echo.gone) >= 92)
    late = prove(stage)
    assert {early, late} <= stage.listener.connections
    assert len(stage.listener.connections) <= 2 + 8
    assert [stage.is_closed(peer) for peer in idle[:92]] == [True] * 92, "the oldest go first"
    assert stage.echo.gone[0] == "replaced by a newer connection before its handshake finished"


def test_proved_brokers_do_not_count_as_unproven(staged: Callable[..., Stage]) -> None:
    stage = staged(UnprovenLimits(100, 2, LONG_MS))
    proved = {prove(stage) for _ in range(5)}
    assert proved == stage.listener.connections
    assert not stage.echo.gone


@pytest.mark.parametrize("is_for_brokers", [True, False])
def test_proved_clients_have_an_idle_limit_and_brokers_have_none(
    staged: Callable[..., Stage], is_for_brokers: bool
) -> None:
    stage = staged(UnprovenLimits(100, 2, LONG_MS), is_for_brokers=is_for_brokers)
    connection = prove(stage)
    connection.active_ms -= LONG_MS + 1
    stage.listener._sweep_idle()
    assert connection.open == is_for_brokers


def test_many_unproven_connections_of_one_address_replace_each_other(
    staged: Callable[..., Stage],
) -> None:
    """A broker of another machine with a slow handshake stays connected."""
    stage = staged(UnprovenLimits(100, 8, LONG_MS))
    stage.connect()
    stage.until(lambda: len(stage.listener.connections) == 1)
    [far] = stage.listener.connections
    stage.listener._ips[far] = "192.0.2.7"
    stage.listener._admission._by_ip = {"192.0.2.7": 1}
    for _ in range(50):
        stage.connect()
    stage.until(lambda: len(stage.echo.gone) == 43)
    assert far.open


def test_the_kernel_closes_a_connection_from_a_lost_machine(staged: Callable[..., Stage]) -> None:
    """A proved peer has no idle limit; without probes its connection would stay for ever."""
    stage = staged(UnprovenLimits(100, 10, LONG_MS))
    transport = prove(stage)._transport
    assert isinstance(transport, SocketTransport)
    assert transport.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    if hasattr(socket, "TCP_KEEPIDLE"):
        assert transport.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 60
