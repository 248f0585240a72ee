"""Connections of throttled clients: nothing is read from them for a while."""

import select
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from net_stage import Stage, framed, stages

from tidelog.shell.net.connection import MUTE_CHECK_MS, Connection
from tidelog.shell.net.shared_limits import HELD_MAX, Admission, ConnectionLimits

LONG_MS = 1_000_000


@pytest.fixture
def staged(tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    yield from stages(tmp_path)


def only(stage: Stage) -> Connection:
    [connection] = stage.listener.connections
    return connection


def test_responses_are_sent_at_once_and_further_requests_are_read_later(
    staged: Callable[..., Stage],
) -> None:
    stage = staged()
    peer = stage.connect()
    answer = stage.echo.answer

    def throttle(frame: bytes) -> list[bytes]:
        if frame == b"much":
            only(stage).mute(LONG_MS)
        return answer(frame)  # type: ignore[return-value]

    stage.echo.answer = throttle  # type: ignore[assignment]
    peer.sendall(framed(b"much", b"next"))

    assert stage.received(peer, 8) == framed(b"much")
    peer.sendall(framed(b"last"))
    stage.turns(5)
    assert stage.echo.handled == [b"much"]

    only(stage)._unmute()
    assert stage.received(peer, 16) == framed(b"next", b"last")


def test_a_muted_connection_is_read_again_after_its_time(staged: Callable[..., Stage]) -> None:
    stage = staged()
    peer = stage.connect()
    peer.sendall(framed(b"1"))
    assert stage.received(peer, 5) == framed(b"1")

    only(stage).mute(20)
    peer.sendall(framed(b"2"))

    assert stage.received(peer, 5) == framed(b"2")


def test_the_longest_time_counts(staged: Callable[..., Stage]) -> None:
    stage = staged()
    peer = stage.connect()
    peer.sendall(framed(b"1"))
    stage.received(peer, 5)
    only(stage).mute(LONG_MS)
    only(stage).mute(1)
    peer.sendall(framed(b"2"))
    stage.turns(10)

    assert stage.echo.handled == [b"1"]


def test_a_waiting_request_is_answered_while_its_connection_is_muted(
    staged: Callable[..., Stage],
) -> None:
    stage = staged()
    peer = stage.connect()
    peer.sendall(framed(b"wait"))
    stage.until(lambda: bool(stage.echo.waiting))

    only(stage).mute(LONG_MS)
    stage.echo.waiting[0].fill([framed(b"done")])

    assert stage.received(peer, 8) == framed(b"done")
    stage.turns(3)
    assert only(stage).open


def muted(stage: Stage) -> tuple[socket.socket, Connection]:
    """A client and its connection, which is muted after one answered request."""
    peer = stage.connect()
    peer.sendall(framed(b"1"))
    assert stage.received(peer, 5) == framed(b"1")
    connection = only(stage)
    connection.mute(LONG_MS)
    return peer, connection


@pytest.mark.skipif(not hasattr(select, "POLLRDHUP"), reason="the system does not report it")
def test_a_client_that_leaves_while_it_is_throttled_is_noticed(
    staged: Callable[..., Stage],
) -> None:
    stage = staged()
    peer, connection = muted(stage)
    timer = connection._mute
    assert timer is not None

    peer.close()

    stage.until(lambda: bool(stage.echo.gone))
    assert not stage.listener.connections
    assert timer.act is None


@pytest.mark.skipif(not hasattr(select, "POLLRDHUP"), reason="the system does not report it")
def test_the_last_requests_of_a_throttled_client_that_leaves_are_handled_at_once(
    staged: Callable[..., Stage],
) -> None:
    """So a consumer that is throttled leaves its group."""
    stage = staged()
    peer, connection = muted(stage)
    answer = stage.echo.answer

    def throttle_again(frame: bytes) -> list[bytes]:
        connection.mute(2 * LONG_MS)
        return answer(frame)  # type: ignore[return-value]

    stage.echo.answer = throttle_again  # type: ignore[assignment]
    peer.sendall(framed(b"alone leave", b"2", b"3"))
    stage.turns(5)
    assert stage.echo.handled == [b"1"]

    peer.shutdown(socket.SHUT_WR)

    stage.until(lambda: bool(stage.echo.gone))
    assert stage.echo.handled == [b"1", b"alone leave", b"2", b"3"]


def test_a_muted_connection_can_be_idle(staged: Callable[..., Stage]) -> None:
    """As in Kafka. Nothing else ends the connection of a client whose machine is lost."""
    stage = staged(idle_max_ms=LONG_MS)
    _, connection = muted(stage)
    stage.listener._sweep_idle()
    assert connection.open

    connection.active_ms -= LONG_MS + 1
    stage.listener._sweep_idle()

    assert stage.echo.gone == ["idle for too long"]


def test_a_muted_connection_with_an_unanswered_request_is_not_idle(
    staged: Callable[..., Stage],
) -> None:
    stage = staged(idle_max_ms=LONG_MS)
    peer = stage.connect()
    peer.sendall(framed(b"wait"))
    stage.until(lambda: bool(stage.echo.waiting))
    connection = only(stage)
    connection.mute(LONG_MS)

    connection.active_ms -= LONG_MS + 1
    stage.listener._sweep_idle()

    assert connection.open


def test_a_muted_connection_that_is_closed_leaves_no_timer(staged: Callable[..., Stage]) -> None:
    stage = staged()
    stage.connect()
    stage.until(lambda: bool(stage.listener.connections))
    connection = only(stage)
    connection.mute(LONG_MS)
    timer = connection._mute
    assert timer is not None

    connection.close("test")

    assert timer.act is None
    connection.mute(LONG_MS)
    assert connection._mute is timer


def test_timers_of_muted_connections_do_not_accumulate(staged: Callable[..., Stage]) -> None:
    """A cancelled timer stays in the loop until its time, and throttle times may be days."""
    stage = staged()
    stage.connect()
    stage.until(lambda: bool(stage.listener.connections))
    connection = only(stage)
    before = len(stage.loop._timers)
    for longer in range(100):
        connection.mute(LONG_MS + longer * LONG_MS)
    [(at_ms, _, timer)] = [entry for entry in stage.loop._timers if entry[2] is connection._mute]

    assert len(stage.loop._timers) <= before + 1
    assert at_ms <= stage.loop.clock.now_ms() + MUTE_CHECK_MS

    assert timer.act is not None
    timer.act()
    assert connection._mute is not timer, "the throttle time is not over"
    connection.close("test")
    assert not [entry for entry in stage.loop._timers if entry[0] > at_ms + MUTE_CHECK_MS]


def test_a_longer_throttle_time_counts_though_a_timer_is_set_already(
    staged: Callable[..., Stage],
) -> None:
    stage = staged()
    peer = stage.connect()
    peer.sendall(framed(b"1"))
    assert stage.received(peer, 5) == framed(b"1")
    connection = only(stage)
    connection.mute(1)
    first = connection._mute
    connection.mute(LONG_MS)
    peer.sendall(framed(b"2"))
    stage.until(lambda: connection._mute is not first)
    stage.turns(5)
    assert stage.echo.handled == [b"1"]

    connection._muted_until_ms = stage.loop.clock.now_ms()
    assert connection._mute is not None
    assert connection._mute.act is not None
    connection._mute.act()
    assert stage.received(peer, 5) == framed(b"2")


def limited(stage: Stage, wait_ms: int) -> None:
    """Let the first connection in, and hold all others."""
    seen: list[str] = []

    def quota(ip: str, _now_ms: int) -> int:
        seen.append(ip)
        return 0 if len(seen) == 1 else wait_ms

    stage.listener._admission = Admission(ConnectionLimits(), quota)


def test_a_connection_beyond_the_rate_of_its_address_is_held_then_closed(
    staged: Callable[..., Stage],
) -> None:
    stage = staged()
    limited(stage, 30)
    first, second = stage.connect(), stage.connect()
    first.sendall(framed(b"1"))
    second.sendall(framed(b"2"))

    assert stage.received(first, 5) == framed(b"1")
    stage.until(lambda: stage.is_closed(second))
    assert stage.echo.handled == [b"1"]
    assert stage.listener._admission.refused == 1


def test_held_connections_do_not_change_the_rate_of_all() -> None:
    admission = Admission(ConnectionLimits(creation_rate=2), lambda _ip, _now: 1000)
    for _ in range(10):
        admission.wait_ms("10.0.0.1", 0)
    admission.admit("10.0.0.2")
    admission.admit("10.0.0.2")

    assert admission.pause_ms(0) > 0


def test_a_bounded_number_of_connections_is_held() -> None:
    admission = Admission(ConnectionLimits(), lambda _ip, _now: 1000)

    assert [admission.hold() for _ in range(HELD_MAX + 1)][-2:] == [True, False]
    admission.release()
    assert admission.hold()


def test_held_connections_are_closed_with_their_listener(staged: Callable[..., Stage]) -> None:
    stage = staged()
    limited(stage, LONG_MS)
    stage.connect()
    held = stage.connect()
    stage.until(lambda: bool(stage.listener._held))

    stage.listener.close()

    assert stage.is_closed(held)
    assert not stage.listener._held


def test_an_address_without_a_quota_costs_nothing() -> None:
    admission = Admission(ConnectionLimits())

    assert admission.wait_ms("10.0.0.1", 0) == 0
