"""Connections of throttled clients: nothing is read from them for a while."""

import select
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from net_stage import Stage, framed, send_part, stages

from tidelog.shell.net.connection import MUTE_CHECK_MS, Connection
from tidelog.shell.net.frame_buffer import LARGE_FRAME, PREFIX, SMALL
from tidelog.shell.net.shared_limits import HELD_MAX, Admission, ConnectionLimits

LONG_MS = 1_000_000
KB = 1024
LARGE = 600 * KB
LIMIT = 800 * KB


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


def partly_received(stage: Stage, frame: bytes, count: int) -> tuple[socket.socket, Connection]:
    """A client with one unanswered request, and its connection, which received so many bytes of
    the next request."""
    before = set(stage.listener.connections)
    waiting = len(stage.echo.waiting)
    peer = stage.connect()
    peer.sendall(framed(b"wait"))
    stage.until(lambda: len(stage.echo.waiting) > waiting)
    [connection] = stage.listener.connections - before
    assert not send_part(stage, peer, framed(frame)[:count])
    stage.until(lambda: connection._lacks_memory or unhandled(connection) == count)
    return peer, connection


def unhandled(connection: Connection) -> int:
    """The number of bytes that were received and not handled."""
    return connection._buffer._end - connection._buffer._start


def test_a_request_that_has_arrived_in_part_is_completed_while_its_connection_is_muted(
    staged: Callable[..., Stage],
) -> None:
    """Its memory is released, so that requests of other clients need not wait for it."""
    stage = staged(request_bytes=LIMIT)
    stage.echo.answer = lambda frame: [framed(frame[:1])]
    large, next_one = b"m" * LARGE, b"n" * LARGE
    peer, connection = partly_received(stage, large, LARGE // 2)
    connection.mute(LONG_MS)
    stage.echo.waiting[0].fill([framed(b"w")])
    assert stage.shares.requests.used >= LARGE // 2

    send_part(stage, peer, framed(large)[LARGE // 2 :] + framed(next_one))
    assert stage.received(peer, 10) == framed(b"w", b"m")
    assert stage.echo.handled[1:] == [large]
    assert stage.shares.requests.used == 0

    stage.turns(5)
    assert stage.echo.handled[1:] == [large], "one, and no more"


def test_small_requests_behind_one_that_is_completed_are_not_read(
    staged: Callable[..., Stage],
) -> None:
    """Otherwise a muted client whose requests arrive in part would be read for ever."""
    stage = staged()
    stage.echo.answer = lambda frame: [framed(frame[:1])]
    size = 12 * KB
    peer, connection = partly_received(stage, b"1" * size, SMALL)
    assert not send_part(stage, peer, framed(b"1" * size)[SMALL : SMALL + KB])
    stage.until(lambda: unhandled(connection) == SMALL + KB)
    connection.mute(LONG_MS)
    stage.echo.waiting[0].fill([framed(b"w")])

    left = framed(b"1" * size)[SMALL + KB :] + framed(*[b"2" * size] * 5)
    assert not send_part(stage, peer, left)

    assert stage.received(peer, 10) == framed(b"w", b"1")
    stage.turns(20)
    assert stage.echo.handled == [b"wait", b"1" * size]
    assert connection._buffer.size == SMALL
    connection._unmute()
    assert connection._buffer.read_ahead_max == LARGE_FRAME
    assert stage.received(peer, 25) == framed(b"2") * 5


def test_a_request_that_is_completed_while_muted_has_the_usual_time(
    staged: Callable[..., Stage],
) -> None:
    stage = staged(request_bytes=LIMIT, receive_timeout_ms=LONG_MS)
    _, connection = partly_received(stage, b"m" * LARGE, LARGE // 2)
    connection.mute(2 * LONG_MS)

    connection.began_ms -= LONG_MS + 1
    stage.listener._sweep_idle()

    assert stage.echo.gone == ["request not received completely in time"]


def test_a_small_part_of_a_request_holds_no_counted_memory_while_muted(
    staged: Callable[..., Stage],
) -> None:
    stage = staged()
    large, small = b"l" * LARGE, b"s" * KB
    peer, connection = partly_received(stage, large, LARGE // 2)
    assert not send_part(stage, peer, framed(large)[LARGE // 2 :])
    stage.until(lambda: stage.echo.handled[-1] == large)
    assert not send_part(stage, peer, framed(small)[:100])
    stage.until(lambda: unhandled(connection) == 100)
    assert stage.shares.requests.used

    connection.mute(LONG_MS)
    assert not stage.shares.requests.used
    assert not send_part(stage, peer, framed(small)[100:])
    stage.turns(5)
    assert stage.echo.handled[-1] == large

    connection._unmute()
    stage.until(lambda: stage.echo.handled[-1] == small)


def test_a_muted_connection_that_waits_for_memory_lets_others_go_first(
    staged: Callable[..., Stage],
) -> None:
    """It would not use what is offered to it, and those behind it would wait on."""
    stage = staged(request_bytes=LIMIT)
    stage.echo.answer = lambda frame: [framed(frame[:1])]
    _, first = partly_received(stage, b"1" * LARGE, LARGE)
    _, second = partly_received(stage, b"2" * LARGE, LARGE)
    waiter_peer, waiter = partly_received(stage, b"3" * LARGE, SMALL)
    assert list(stage.shares.requests.waiting)[-1] == waiter._memory_released

    waiter.mute(LONG_MS)

    assert waiter._memory_released not in stage.shares.requests.waiting
    first.close("test")
    second.close("test")
    waiter._unmute()
    stage.echo.waiting[2].fill([framed(b"w")])
    assert not send_part(stage, waiter_peer, framed(b"3" * LARGE)[SMALL:])
    assert stage.received(waiter_peer, 10) == framed(b"w", b"3")


def test_requests_that_arrived_completely_hold_memory_only_while_no_other_needs_it(
    staged: Callable[..., Stage],
) -> None:
    """They are not handled while their client is throttled."""
    stage = staged(request_bytes=LIMIT, receive_timeout_ms=LONG_MS)
    peer = stage.connect()
    # A full small buffer makes the connection read more at a time.
    peer.sendall(framed(bytes(SMALL - PREFIX.size)))
    assert len(stage.received(peer, SMALL)) == SMALL
    connection = only(stage)
    answer = stage.echo.answer

    def throttle(frame: bytes) -> list[bytes]:
        connection.mute(2 * LONG_MS)
        return answer(frame)  # type: ignore[return-value]

    stage.echo.answer = throttle  # type: ignore[assignment]
    peer.sendall(framed(*[b"1" * KB] * 20))
    stage.until(lambda: stage.echo.frames == 2)
    stage.turns(5)
    assert stage.echo.frames == 2
    assert stage.shares.requests.used

    connection.began_ms -= LONG_MS + 1
    stage.listener._sweep_idle()
    assert not stage.echo.gone

    while not stage.shares.requests.waiting:
        partly_received(stage, b"2" * LARGE, LARGE)
    stage.listener._sweep_idle()
    assert stage.echo.gone == ["request not received completely in time"]
    assert connection not in stage.listener.connections


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
