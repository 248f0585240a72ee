"""The event loop of a broker: one thread for sockets, timers and callbacks of other threads.

A turn handles, in this order: ready sockets, callbacks of other threads, timers, and callbacks
for the end of the turn. So the responses to all requests of one turn are sent together.
"""

import os
import select
import socket
from collections.abc import Callable
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from time import perf_counter_ns
from typing import Any, Protocol, TypeAlias

from tidelog.core.node.measuring.request_times import TurnTimes
from tidelog.shell.clock import Clock

READABLE = select.POLLIN
WRITABLE = select.POLLOUT
"""The same values for poll and epoll."""

IDLE_MS = 60_000

Act: TypeAlias = Callable[[], None]

SHARE_NS_MAX = 5_000_000
SHARED_NS = 50_000_000
"""The time in one turn for one connection, and for all: connections that have sent a great deal
delay the others by no more than this, apart from one request each."""


Ready: TypeAlias = list[tuple[int, int]]

CREDIT_MAX = 9
LOSS = 3
"""A miss costs about three times what a hit saves."""
RESTS = 32
"""Turns without polling once the credit is used up."""

_yield_cpu = getattr(os, "sched_yield", lambda: None)


class SocketHandler(Protocol):
    """The owner of a socket that the loop watches."""

    def ready(self, events: int) -> None:
        """Handle events: the socket can be read or written, or has failed."""
        ...


class Ticker(Protocol):
    """An object with a deadline of its own, which the loop checks before each wait."""

    def next_deadline_ms(self) -> int | None: ...

    def tick(self) -> None:
        """Called when the deadline has passed."""
        ...


class _Poller(Protocol):
    def register(self, fd: int, eventmask: int, /) -> Any: ...
    def modify(self, fd: int, eventmask: int, /) -> Any: ...
    def unregister(self, fd: int, /) -> Any: ...


class Timer:
    """A callback at a time, unless it is cancelled."""

    __slots__ = ("act",)

    def __init__(self, act: Act) -> None:
        self.act: Act | None = act

    def cancel(self) -> None:
        self.act = None


class EventLoop:
    """Calls handlers and callbacks until it is stopped."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.turns = TurnTimes(perf_counter_ns)
        self._watched: dict[int, SocketHandler] = {}
        self._timers: list[tuple[int, int, Timer]] = []
        self._order = count()
        self._left_by_threads: list[Act] = []
        self._ending: dict[Act, None] = {}
        self._next: list[Act] = []
        self._tickers: list[Ticker] = []
        self._tick_at_ms = 0
        self._due_ms = 0
        """When the next timer or ticker is due; computed before each wait."""
        self._stopped = False
        self.busy_poll = BusyPoll()
        self.lone_request = False
        """A small complete request was received in this turn, with nothing after it."""
        self.busy = 1
        """How many handlers share this turn."""
        self.now_ms = clock.now_ms()
        """When this turn began; exact enough for most uses."""
        self._poller: _Poller
        self._poll: Callable[[float], list[tuple[int, int]]]
        self._close_poller: Act
        if hasattr(select, "epoll"):
            epoll = select.epoll()
            self._poller = epoll
            self._poll, self._poll_unit_ms = epoll.poll, 1000
            self._close_poller = epoll.close
        else:
            poll = select.poll()
            self._poller = poll
            self._poll, self._poll_unit_ms = poll.poll, 1
            self._close_poller = lambda: None
        self._waker = _Waker(self)

    # -- sockets ---------------------------------------------------------------------------

    def watch(self, sock: socket.socket, watched: SocketHandler, events: int = READABLE) -> None:
        self._watched[sock.fileno()] = watched
        self._poller.register(sock.fileno(), events)

    def rewatch(self, sock: socket.socket, events: int) -> None:
        """Change the events to wait for on a watched socket."""
        self._poller.modify(sock.fileno(), events)

    def unwatch(self, sock: socket.socket) -> None:
        """Stop watching a socket. Must be called before the socket is closed."""
        if self._watched.pop(sock.fileno(), None) is not None:
            self._poller.unregister(sock.fileno())

    # -- time ------------------------------------------------------------------------------

    def at(self, when_ms: int, act: Act) -> Timer:
        timer = Timer(act)
        heappush(self._timers, (when_ms, next(self._order), timer))
        if when_ms < self._due_ms:
            self._due_ms = when_ms
        return timer

    def after(self, delay_ms: int, act: Act) -> Timer:
        return self.at(self.clock.now_ms() + delay_ms, act)

    def add_ticker(self, ticker: Ticker) -> None:
        """Check this ticker's deadline before each wait."""
        self._tickers.append(ticker)

    def remove_ticker(self, ticker: Ticker) -> None:
        if ticker in self._tickers:
            self._tickers.remove(ticker)

    # -- order -----------------------------------------------------------------------------

    def at_end_of_turn(self, act: Act) -> None:
        """Call `act` once at the end of this turn, however often it is scheduled."""
        self._ending[act] = None

    def share_ns(self) -> int:
        """The time that one handler may use in this turn."""
        return min(SHARE_NS_MAX, SHARED_NS // (self.busy or 1))

    def next_turn(self, act: Act) -> None:
        """Call `act` in the next turn, after all sockets that are ready."""
        self._next.append(act)

    @property
    def wakeup_fd(self) -> int:
        """A descriptor where a byte ends the wait, for `signal.set_wakeup_fd`."""
        return self._waker.fd

    def call_from_thread(self, act: Act) -> None:
        """Run this on the loop's thread soon. The only method for other threads."""
        self._left_by_threads.append(act)
        self._waker.wake()

    # -- running ---------------------------------------------------------------------------

    def run(self) -> None:
        while not self._stopped:
            self.turn()

    def turn(self) -> None:
        """Wait for events and handle everything that is due."""
        watched = self._watched
        ready = self._wait()
        put_off: list[Act] | None = None
        if self._next:
            put_off, self._next = self._next, []
        self.busy = len(ready) if put_off is None else len(ready) + len(put_off)
        turns = self.turns
        turns.began_ns = began_ns = perf_counter_ns()
        self.now_ms = now_ms = self.clock.now_ms()
        for fd, events in ready:
            one = watched.get(fd)
            if one is not None:
                one.ready(events)
        if put_off is not None:
            for act in put_off:
                act()
        if self._left_by_threads:
            left, self._left_by_threads = self._left_by_threads, []
            for act in left:
                act()
        if now_ms >= self._due_ms:
            self._run_timers(now_ms)
        while self._ending:
            ending, self._ending = self._ending, {}
            for act in ending:
                act()
        turns.since(began_ns)

    def stop(self) -> None:
        """Return from `run` after this turn."""
        self._stopped = True

    def close(self) -> None:
        self._waker.close()
        self._close_poller()

    def _wait(self) -> list[tuple[int, int]]:
        timeout_ms = self._timeout_ms()
        lone, self.lone_request = self.lone_request, False
        if lone and self.busy == 1 and timeout_ms:
            ready = self.busy_poll.poll(self._poll, timeout_ms)
            if ready:
                return ready
            if ready is not None:  # polling took part of the time
                timeout_ms = self._timeout_ms()
        return self._poll(timeout_ms / self._poll_unit_ms)

    def _timeout_ms(self) -> int:
        if self._left_by_threads or self._ending or self._next or self._stopped:
            self._due_ms = 0
            return 0
        now = self.clock.now_ms()
        due_ms = now + IDLE_MS
        for ticker in self._tickers:
            wanted_ms = ticker.next_deadline_ms()
            if wanted_ms is not None and wanted_ms < due_ms:
                due_ms = wanted_ms
        self._tick_at_ms = due_ms
        timers = self._timers
        while timers and timers[0][2].act is None:
            heappop(timers)
        if timers and timers[0][0] < due_ms:
            due_ms = timers[0][0]
        self._due_ms = due_ms
        return due_ms - now if due_ms > now else 0

    def _run_timers(self, now_ms: int) -> None:
        timers = self._timers
        while timers and timers[0][0] <= now_ms:
            act = heappop(timers)[2].act
            if act is not None:
                act()
        if now_ms >= self._tick_at_ms:
            for ticker in list(self._tickers):
                ticker.tick()


class _Waker:
    """A socket pair by which another thread or a signal ends the loop's wait."""

    def __init__(self, loop: EventLoop) -> None:
        self._here, self._there = socket.socketpair()
        self._here.setblocking(False)
        self._there.setblocking(False)
        loop.watch(self._here, self)

    @property
    def fd(self) -> int:
        return self._there.fileno()

    def wake(self) -> None:
        # Full: a wake-up is pending already. Closed: the loop has ended.
        with suppress(OSError):
            self._there.send(b"\0")

    def ready(self, _events: int) -> None:
        with suppress(BlockingIOError):
            self._here.recv(4096)

    def close(self) -> None:
        self._here.close()
        self._there.close()


class BusyPoll:
    """Checks for the next request for a short time before the loop sleeps.

    A sleeping core wakes late: in a virtual machine after 50 to 90 µs, as long as a small request
    takes, and waking costs CPU on both sides. A client that sends one small request after another
    sends the next one soon. So after such a request the loop polls for a moment.

    A poll that finds nothing wastes CPU. So the loop polls only after a turn with a single small
    request, and only while that pays: a hit earns one credit, a miss costs several. Without credit
    the loop polls once in `RESTS` turns, in case the client's behaviour has changed.

    Invariants: other processes run first (sched_yield), and nothing that is due is delayed.
    """

    __slots__ = ("_credit", "_rest", "us")

    def __init__(self) -> None:
        self.us = 0
        """Microseconds; 0 turns busy polling off."""
        self._credit = 0
        self._rest = 0

    def poll(self, poll_once: Callable[[float], Ready], timeout_ms: int) -> Ready | None:
        """Poll for a moment; return the events, or None if it did not poll."""
        if not self._credit and self._rest:
            self._rest -= 1
            return None
        if not self.us:
            return None
        until_ns = perf_counter_ns() + min(self.us, timeout_ms * 1000) * 1000
        while perf_counter_ns() < until_ns:
            ready = poll_once(0)
            if ready:
                self._credit = min(self._credit + 1, CREDIT_MAX)
                return ready
            _yield_cpu()
        self._credit = max(self._credit - LOSS, 0)
        self._rest = RESTS
        return []
