"""What peers can't do to each other: take all memory, all time, or every place."""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event

import pytest
from net_stage import FRAME_MAX, Echo, Stage, finish, framed

from tidelog.shell.net.admission import Admission, ConnectionLimits
from tidelog.shell.net.connection import UNSENT_MADE_MAX, Connection
from tidelog.shell.net.frame_buffer import PREFIX, SMALL, FrameBuffer
from tidelog.shell.net.listener import Listener, bind
from tidelog.shell.net.memory_budget import PORTION, RequestMemory, give_to_system
from tidelog.shell.net.outbox import Chunk

KB = 1024
LARGE = 600 * KB


@pytest.fixture
def staged(tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    stages: list[Stage] = []

    def make(admitted: ConnectionLimits | None = None, **limits: int) -> Stage:
        stages.append(Stage(tmp_path, admitted, **limits))
        return stages[-1]

    yield make
    for stage in stages:
        finish(stage)


def send_part(stage: Stage, peer: socket.socket, data: bytes) -> bytes:
    """As much as the broker takes; what is left."""
    peer.setblocking(False)
    idle = 0
    while data and idle < 20:
        with contextlib.suppress(BlockingIOError):
            data = data[peer.send(data) :]
            idle = -1
        idle += 1
        stage.turns(1)
    return data


# -- places ------------------------------------------------------------------------------------


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
    for _ in range(25):
        stage.connect()
    stage.turns(5)
    assert len(stage.listener.connections) < 25
    stage.until(lambda: len(stage.listener.connections) == 25)


# -- time --------------------------------------------------------------------------------------


def test_a_request_that_does_not_end_is_dropped(staged: Callable[..., Stage]) -> None:
    stage = staged(receive_timeout_ms=200)
    slow, silent, busy = stage.connect(), stage.connect(), stage.connect()
    slow.sendall(framed(b"x" * 100)[:50])
    until = time.monotonic() + 10
    while not stage.is_closed(slow):
        assert time.monotonic() < until
        # Always part of a request is there, but each of them ends.
        busy.setblocking(True)
        busy.sendall(framed(b"request")[5:] + framed(b"request")[:5] if stage.echo.frames else b"")
        stage.turns(3)
        if not stage.echo.frames:
            busy.sendall(framed(b"request") + framed(b"request")[:5])
        time.sleep(0.01)
    assert stage.echo.gone == ["a request that did not come to its end"]
    assert len(stage.listener.connections) == 2
    assert not stage.is_closed(silent)


def test_a_byte_now_and_then_does_not_help(staged: Callable[..., Stage]) -> None:
    stage = staged(receive_timeout_ms=200)
    peer = stage.connect()
    peer.sendall(PREFIX.pack(100_000))
    until = time.monotonic() + 10
    while not stage.echo.gone:
        assert time.monotonic() < until
        peer.sendall(b"x")
        stage.turns(2)
        time.sleep(0.01)
    assert "did not come to its end" in stage.echo.gone[0]


def test_nobody_takes_the_whole_turn(staged: Callable[..., Stage]) -> None:
    stage = staged(in_flight_max=1 << 20)

    def slowly(frame: bytes) -> list[Chunk]:
        until = time.perf_counter() + 0.0005
        while time.perf_counter() < until:
            pass
        return [PREFIX.pack(len(frame)) + frame]

    stage.echo.answer = slowly
    greedy, modest = stage.connect(), stage.connect()
    stage.until(lambda: len(stage.listener.connections) == 2)
    greedy.sendall(framed(b"greedy") * 2000)
    modest.sendall(framed(b"modest"))
    assert stage.received(modest, 10) == framed(b"modest")
    assert stage.echo.frames < 100
    assert stage.received(greedy, 20_000) == framed(b"greedy") * 2000


# -- memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize("peers", [5, 40])
def test_many_who_sent_much_share_a_turn(
    staged: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch, peers: int
) -> None:
    """By a clock that goes on by a millisecond when somebody looks at it."""
    clock = count(0, 1_000_000)
    monkeypatch.setattr("tidelog.shell.net.connection.monotonic_ns", lambda: next(clock))
    stage = staged()
    for peer in [stage.connect() for _ in range(peers)]:
        peer.sendall(framed(*[b"much"] * 50))
    most = before = 0
    while stage.echo.frames < peers * 50:
        stage.turns(1)
        most, before = max(most, stage.echo.frames - before), stage.echo.frames
    assert most <= 100, "one turn is no longer than another, but for one request of each"


def test_many_large_requests_come_in_by_turns(
    staged: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By such a clock, too: nobody reads until its whole request is there."""
    clock = count(0, 1_000_000)
    monkeypatch.setattr("tidelog.shell.net.connection.monotonic_ns", lambda: next(clock))
    received = 0
    receive = FrameBuffer.receive

    def counted(buffer: FrameBuffer, sock: socket.socket) -> int | None:
        nonlocal received
        received += 1
        return receive(buffer, sock)

    monkeypatch.setattr(FrameBuffer, "receive", counted)
    for name in ("GRAIN", "TAKEN_ON_TRUST"):
        monkeypatch.setattr(f"tidelog.shell.net.frame_buffer.{name}", 4 * KB)
    stage = staged()
    for peer in [stage.connect() for _ in range(40)]:
        peer.sendall(framed(bytes(100 * KB)))
    most = before = 0
    while stage.echo.frames < 40:
        stage.turns(1)
        most, before = max(most, received - before), received
    assert most <= 3 * 40


def test_the_thousandth_that_waits_for_memory_asks_nobody() -> None:
    class Buffer:
        size = asked = 0

        def shrink(self) -> None:
            self.asked += 1

    memory = RequestMemory(100)
    holders = [Buffer() for _ in range(100)]
    for holder in holders:
        assert memory.grow(holder, 1)
        holder.size = 1
    favoured, *others = [Buffer() for _ in range(1000)]
    assert memory.grow(favoured, 1), "one may always go on"
    for other in others:
        assert not memory.grow(other, 1)
        memory.wait(Event().set)
    assert sum(holder.asked for holder in holders) <= 2 * len(holders)
    memory.wake(holders[0])
    assert sum(holder.asked for holder in holders) <= 2 * len(holders) + 1


def test_as_many_are_woken_as_there_is_memory_for() -> None:
    class Buffer:
        size = 0

        def shrink(self) -> None:
            pass

    memory = RequestMemory(10 * PORTION)
    full, favoured = Buffer(), Buffer()
    assert memory.grow(full, 10 * PORTION)
    assert memory.grow(favoured, PORTION)
    woken: list[int] = []
    for number in range(1000):
        memory.wait(partial(woken.append, number))
    memory.wake()
    assert not woken, "nothing was given back"
    memory.give_back(full, 4 * PORTION)
    memory.wake()
    assert woken == [0, 1, 2]
    memory.wake()
    assert woken == [0, 1, 2, 3, 4, 5], "those before did not take it"
    memory.wait(partial(woken.append, 1000))
    memory.give_back(favoured, 2 * PORTION)
    for _ in range(1000):
        memory.wake()
    assert woken == list(range(1001)), "each of them once"
    memory.wake()
    assert not memory.waiting


def test_memory_goes_back_to_the_system_after_an_overload(monkeypatch: pytest.MonkeyPatch) -> None:
    class Buffer:
        size = 0

        def shrink(self) -> None:
            pass

    given: list[int] = []
    memory = RequestMemory(1600)
    monkeypatch.setattr(
        "tidelog.shell.net.memory_budget.give_to_system", lambda: given.append(memory.used)
    )
    some, most = Buffer(), Buffer()
    for _ in range(2):
        assert memory.grow(some, 800)
        memory.give_back(some, 800)
        assert not given, "half of it is nothing unusual"
        assert memory.grow(some, 800)
        assert memory.grow(most, 300)
        memory.give_back(some, 800)
        assert not given
        memory.give_back(most, 300)
        assert given.pop() == 0
    give_to_system()


def test_an_idle_connection_has_no_buffer(staged: Callable[..., Stage]) -> None:
    stage = staged()
    peer = stage.connect()
    stage.until(lambda: len(stage.listener.connections) == 1)
    (connection,) = stage.listener.connections
    assert connection._buffer.size == 0
    peer.sendall(framed(b"hi"))
    assert stage.received(peer, 6) == framed(b"hi")
    assert connection._buffer.size == SMALL
    connection.shrink()
    assert connection._buffer.size == 0
    peer.sendall(framed(b"again"))
    assert stage.received(peer, 9) == framed(b"again")


def test_large_requests_share_what_there_is(staged: Callable[..., Stage]) -> None:
    """All begin, none could end with its share alone; each ends all the same."""
    limit = 800 * KB
    stage = staged(request_bytes=limit)
    stage.echo.answer = lambda frame: [framed(frame[:1])]
    peers = [stage.connect() for _ in range(8)]
    requests = [framed(bytes([number]) * LARGE) for number in range(8)]
    left = [
        send_part(stage, peer, data[: LARGE // 2])
        for peer, data in zip(peers, requests, strict=True)
    ]
    memory = stage.shares.requests
    assert memory.used <= limit + FRAME_MAX
    rests = [part + data[LARGE // 2 :] for part, data in zip(left, requests, strict=True)]
    answers: dict[int, bytes] = {}

    def all_answered() -> bool:
        assert memory.used <= limit + FRAME_MAX
        for number, peer in enumerate(peers):
            if rests[number]:
                with contextlib.suppress(BlockingIOError):
                    rests[number] = rests[number][peer.send(rests[number]) :]
            with contextlib.suppress(BlockingIOError):
                answers[number] = answers.get(number, b"") + peer.recv(100)
        return all(len(answers.get(number, b"")) == 5 for number in range(8))

    stage.until(all_answered)
    assert answers == {number: framed(bytes([number])) for number in range(8)}
    for connection in stage.listener.connections:
        connection.shrink()
    assert memory.used == 0
    assert not memory.waiting


def test_whoever_holds_up_the_others_is_dropped(staged: Callable[..., Stage]) -> None:
    """Memory is taken by requests that never end; an honest one waits, and is served."""
    stage = staged(request_bytes=800 * KB, receive_timeout_ms=300)
    stage.echo.answer = lambda frame: [framed(frame[:1])]
    for _ in range(4):
        hostile = stage.connect()
        send_part(stage, hostile, framed(b"h" * LARGE)[: LARGE - 1000])
    honest = stage.connect()
    rest = send_part(stage, honest, framed(b"x" * LARGE))
    assert stage.shares.requests.waiting, "there was memory for all"
    answer = bytearray()

    def answered() -> bool:
        nonlocal rest
        with contextlib.suppress(BlockingIOError):
            rest = rest[honest.send(rest) :] if rest else b""
        with contextlib.suppress(BlockingIOError):
            answer.extend(honest.recv(100))
        return len(answer) == 5

    stage.until(answered)
    stage.until(lambda: len(stage.echo.gone) == 4)
    assert stage.shares.requests.used < 800 * KB


def test_the_loop_rests_while_a_request_waits_for_memory(staged: Callable[..., Stage]) -> None:
    stage = staged(request_bytes=300 * KB)
    for _ in range(3):
        send_part(stage, stage.connect(), framed(b"h" * LARGE)[: LARGE - 1000])
    assert stage.shares.requests.waiting
    stage.turns(3)
    before, turns = time.monotonic(), 0
    stage.loop.after(200, lambda: None)
    while time.monotonic() < before + 0.2:
        stage.loop.turn()
        turns += 1
    assert turns < 20


def test_small_requests_pass_while_memory_is_used_up(staged: Callable[..., Stage]) -> None:
    stage = staged(request_bytes=300 * KB)
    for _ in range(3):
        send_part(stage, stage.connect(), framed(b"h" * LARGE)[: LARGE - 1000])
    peer = stage.connect()
    peer.sendall(framed(b"small") * 3000)
    assert stage.received(peer, 27_000) == framed(b"small") * 3000


def test_answers_nobody_takes_cost_the_one_with_most_of_them(staged: Callable[..., Stage]) -> None:
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
    assert all("answers were not taken" in reason for reason in stage.echo.gone)
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


def test_a_connection_can_be_the_one_with_most(staged: Callable[..., Stage]) -> None:
    stage = staged(answer_bytes=1_000_000)
    stage.echo.answer = lambda _: [framed(b"a" * 400_000)]
    peer = stage.connect()
    peer.sendall(framed(b"wait") + framed(b"more") * 10)
    stage.until(lambda: bool(stage.echo.gone))
    assert stage.shares.answers.used == 0
    stage.echo.waiting[0].fill([b"too late"])


def test_a_stranger_says_who_it_is_in_few_words(staged: Callable[..., Stage]) -> None:
    stage = staged(stranger_frame_max=100, idle_max_ms=150)
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
