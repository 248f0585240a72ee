"""Limits on the number of connections, and on the rate of new ones."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from net_stage import Stage, framed, stages

from tidelog.shell.net.listener import Listener, bind
from tidelog.shell.net.shared_limits import Admission, ConnectionLimits


@pytest.fixture
def staged(tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    yield from stages(tmp_path)


def test_some_addresses_may_have_more_or_fewer() -> None:
    admission = Admission(ConnectionLimits(per_ip=1, per_ip_overrides={"10.0.0.1": 2, "::1": 0}))
    assert [admission.admit("10.0.0.1") for _ in range(3)] == [True, True, False]
    assert [admission.admit("10.0.0.2") for _ in range(2)] == [True, False]
    assert not admission.admit("::1")
    assert (admission.total, admission.refused) == (3, 3)
    admission.leave("10.0.0.1")
    assert admission.admit("10.0.0.1")


def test_two_sockets_share_the_total(staged: Callable[..., Stage]) -> None:
    """`localhost` is IPv4 and IPv6, and `max.connections` is for the broker."""
    stage = staged(ConnectionLimits(total=2))
    [sock] = bind("127.0.0.1", 0)
    second = Listener(
        stage.loop, sock, stage.disk, stage.echo, stage.listener._limits, stage.shares
    )
    try:
        first, other = stage.connect(), stage.connect()
        stage.until(lambda: len(stage.listener.connections) == 2)
        with socket.create_connection(("127.0.0.1", second.port)) as third:
            stage.until(lambda: stage.is_closed(third))
        first.close()
        stage.until(lambda: stage.shares.admission.total == 1)
        with socket.create_connection(("127.0.0.1", second.port)) as fourth:
            fourth.sendall(framed(b"hi"))
            assert stage.received(fourth, 6) == framed(b"hi")
        assert not stage.is_closed(other)
    finally:
        second.close()


def test_new_connections_are_accepted_at_the_creation_rate() -> None:
    admission = Admission(ConnectionLimits(creation_rate=4))
    now_ms = 1_700_000_000_000
    taken = []
    for _ in range(3000):
        if admission.pause_ms(now_ms) == 0:
            admission.admit("10.0.0.1")
            taken.append(now_ms)
        now_ms += 1
    assert 4 + 3 * 4 - 1 <= len(taken) <= 4 + 3 * 4
    pause_ms = admission.pause_ms(now_ms)
    assert admission.pause_ms(now_ms + pause_ms) == 0
    assert Admission(ConnectionLimits(creation_rate=0)).pause_ms(now_ms) > 0


def test_a_connection_above_the_rate_of_its_listener_waits(staged: Callable[..., Stage]) -> None:
    stage = staged(creation_rate=20)
    for _ in range(40):
        stage.connect()
    stage.turns(5)
    assert len(stage.listener.connections) < 40
    stage.until(lambda: len(stage.listener.connections) == 40)


def test_a_connection_above_the_creation_rate_waits(staged: Callable[..., Stage]) -> None:
    stage = staged(ConnectionLimits(creation_rate=20))
    began_ms = stage.loop.clock.now_ms()
    for _ in range(40):
        stage.connect()
    stage.until(lambda: len(stage.listener.connections) == 40)
    assert stage.loop.clock.now_ms() - began_ms >= 900, "20 are accepted at once, 20 in a second"
