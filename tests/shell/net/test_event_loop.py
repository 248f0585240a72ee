"""The loop runs everything that is due, in order."""

import socket
import threading
import time

import pytest

from tidelog.shell.clock import Clock
from tidelog.shell.net.event_loop import READABLE, EventLoop


class Listed:
    """A socket handler that records its events."""

    def __init__(self, loop: EventLoop) -> None:
        self.loop = loop
        self.heard: list[int] = []
        self.here, self.there = socket.socketpair()
        loop.watch(self.here, self)

    def ready(self, events: int) -> None:
        self.heard.append(events)
        self.here.recv(100)

    def close(self) -> None:
        self.loop.unwatch(self.here)
        self.here.close()
        self.there.close()


class Alarm:
    """A ticker that is due once."""

    def __init__(self, at_ms: int) -> None:
        self.at_ms: int | None = at_ms
        self.rung = 0

    def next_deadline_ms(self) -> int | None:
        return self.at_ms

    def tick(self) -> None:
        self.rung += 1
        self.at_ms = None


def test_a_turn_serves_sockets_then_timers_then_the_end() -> None:
    loop = EventLoop(Clock())
    one = Listed(loop)
    said: list[str] = []
    end = lambda: said.append("end")  # noqa: E731 - one object, asked for twice
    loop.at_end_of_turn(end)
    loop.at_end_of_turn(end)
    loop.after(0, lambda: said.append("timer"))
    one.there.send(b"x")
    loop.turn()
    assert (one.heard, said) == ([READABLE], ["timer", "end"])
    one.close()
    loop.close()


def test_a_cancelled_timer_never_runs_and_delays_no_other_timer() -> None:
    loop = EventLoop(Clock())
    said: list[str] = []
    loop.after(1, lambda: said.append("cancelled")).cancel()
    loop.after(20, lambda: said.append("kept"))
    began = time.monotonic()
    while not said:
        loop.turn()
    assert said == ["kept"]
    assert time.monotonic() - began < 60  # the loop sleeps for so long without a timer
    loop.close()


def test_another_thread_ends_the_wait() -> None:
    loop = EventLoop(Clock())
    thread = threading.Timer(0.05, lambda: loop.call_from_thread(loop.stop))
    thread.start()
    loop.run()
    thread.join()
    loop.close()


def test_a_ticker_is_woken_at_its_deadline() -> None:
    loop = EventLoop(Clock())
    alarm = Alarm(loop.clock.now_ms() + 30)
    loop.add_ticker(alarm)
    while not alarm.rung:
        loop.turn()
    assert alarm.rung == 1
    loop.remove_ticker(alarm)
    loop.close()


class Waits:
    """Replaces the loop's poll: records the time-out and returns soon."""

    def __init__(self, loop: EventLoop) -> None:
        self.asked: list[float] = []
        self._poll, loop._poll = loop._poll, self

    def __call__(self, timeout: float) -> list[tuple[int, int]]:
        self.asked.append(timeout)
        return self._poll(min(timeout, 0.01))


class Asking(Listed):
    """A socket handler whose events are small lone requests."""

    def ready(self, events: int) -> None:
        self.loop.lone_request = True
        super().ready(events)


def test_a_loop_polls_for_the_next_request_after_a_small_lone_one() -> None:
    loop = EventLoop(Clock())
    loop.busy_poll.us = 2000
    plain, asking, waits = Listed(loop), Asking(loop), Waits(loop)
    for one in (plain, asking):
        one.there.send(b"x")
        loop.turn()
        waits.asked.clear()
        loop.turn()
        assert (waits.asked[0] == 0) is (one is asking)
        assert waits.asked[-1] > 0, "in the end it sleeps"
    for one in (plain, asking):
        one.there.send(b"x")
    loop.turn()
    waits.asked.clear()
    loop.turn()
    assert waits.asked[0] > 0, "two came in one turn"
    plain.close()
    asking.close()
    loop.close()


@pytest.mark.parametrize("by_thread", [False, True])
def test_a_busy_poll_ends_when_a_timer_is_due(by_thread: bool) -> None:
    loop = EventLoop(Clock())
    loop.busy_poll.us = 60_000_000
    asking, began = Asking(loop), time.monotonic()
    asking.there.send(b"x")
    loop.turn()
    assert asking.heard == [READABLE]
    thread = threading.Timer(0.05, lambda: loop.call_from_thread(loop.stop))
    if by_thread:
        thread.start()
    else:
        loop.after(10, loop.stop)
    loop.run()
    assert time.monotonic() - began < 30
    if by_thread:
        thread.join()
    asking.close()
    loop.close()


def test_a_call_after_close_is_not_an_error() -> None:
    loop = EventLoop(Clock())
    loop.close()
    loop.call_from_thread(loop.stop)


def test_the_monotonic_clock_does_not_follow_the_wall_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    begun_ms, day_ns = clock.now_ms(), 86_400 * 10**9
    true_ns = time.time_ns
    for days in (8, -8):
        monkeypatch.setattr(time, "time_ns", lambda days=days: true_ns() + days * day_ns)
        assert abs(clock.wall_ms() - clock.now_ms() - days * day_ns // 10**6) < 60_000
        assert begun_ms <= clock.now_ms() < begun_ms + 3_600_000
