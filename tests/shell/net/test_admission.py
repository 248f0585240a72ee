"""Places: how many connections there may be, how fast they come, and what strangers may say."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from net_stage import Echo, Stage, framed, stages

from tidelog.shell.net.admission import Admission, ConnectionLimits
from tidelog.shell.net.connection import Connection
from tidelog.shell.net.frame_buffer import PREFIX
from tidelog.shell.net.listener import Listener, bind


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


def test_new_connections_come_as_fast_as_they_may() -> None:
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


def test_a_connection_that_comes_too_soon_waits(staged: Callable[..., Stage]) -> None:
    stage = staged(ConnectionLimits(creation_rate=20))
    for _ in range(40):
        stage.connect()
    stage.turns(5)
    assert len(stage.listener.connections) < 40
    stage.until(lambda: len(stage.listener.connections) == 40)


def test_a_stranger_says_who_it_is_in_few_words(staged: Callable[..., Stage]) -> None:
    stage = staged(stranger_frame_max=100, idle_max_ms=1000)
    greeted: list[Connection] = []

    class Polite(Echo):
        def frame(self, connection: Connection, frame: memoryview) -> None:
            if bytes(frame) == b"hello":
                connection.trust()
                greeted.append(connection)
            super().frame(connection, frame)

    stage.listener._service = stage.echo = Polite()
    rude, silent, friend = stage.connect(), stage.connect(), stage.connect()
    rude.sendall(PREFIX.pack(101))
    stage.until(lambda: stage.is_closed(rude))
    friend.sendall(framed(b"hello") + framed(b"x" * 5000))
    assert len(stage.received(friend, 9 + 5004)) == 9 + 5004
    stage.until(lambda: stage.is_closed(silent))
    stage.turns(5)
    assert set(greeted) == stage.listener.connections, "brokers may be silent"
