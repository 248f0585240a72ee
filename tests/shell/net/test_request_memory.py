"""Memory of incomplete requests: connections share it, wait for it and release it."""

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from net_stage import FRAME_MAX, Stage, framed, send_part, stages

from tidelog.shell.net.frame_buffer import SMALL
from tidelog.shell.net.shared_limits import PORTION, RequestMemory, give_to_system

KB = 1024
LARGE = 600 * KB


@pytest.fixture
def staged(tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    yield from stages(tmp_path)


def test_waiting_connections_do_not_search_for_empty_buffers() -> None:
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


def test_no_more_connections_are_woken_than_memory_allows() -> None:
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


def test_memory_is_returned_to_the_system_after_an_overload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Buffer:
        size = 0

        def shrink(self) -> None:
            pass

    given: list[int] = []
    memory = RequestMemory(1600)
    monkeypatch.setattr(
        "tidelog.shell.net.shared_limits.give_to_system", lambda: given.append(memory.used)
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


def test_large_requests_share_the_memory_limit(staged: Callable[..., Stage]) -> None:
    """None could complete with its share alone, but each completes in turn."""
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


def test_a_request_that_holds_memory_for_too_long_is_dropped(staged: Callable[..., Stage]) -> None:
    """Requests that never complete use the memory; a valid one waits, and is served."""
    stage = staged(request_bytes=800 * KB, receive_timeout_ms=1500)
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


def test_the_loop_sleeps_while_a_request_waits_for_memory(staged: Callable[..., Stage]) -> None:
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
