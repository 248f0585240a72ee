"""Renewals of sessions in the simulated store, and the brokers that watch them, as with etcd.

Each broker runs the shipped rule (silent_sessions.py) on its own clock. It learns of renewals in
their order, sometimes late: its link may be cut, its watch may lag, its process may be paused.
It ends the sessions of other brokers that are silent, unless a renewal came first.

Invariant, checked at each end: the broker of the session no longer counts on it.
"""

from collections.abc import Callable
from typing import NamedTuple

from tidelog.core.controller.metadata.metadata_store import Revision, SessionId
from tidelog.core.controller.metadata.silent_sessions import Renewal, SilentSessions
from tidelog.core.settings.broker_settings import fencing_margin_ms
from tidelog.core.types import BrokerId
from tidelog.lab.sim.world import World

DELAY_MAX_MS = 20
LATE_MAX_MS = 1_500
_RETRY_MS = 100


class Watcher:
    """What a broker's client of the store knows of sessions, its own and those of others."""

    __slots__ = ("broker", "clock", "deadline_ms", "known", "rule", "session", "ttl_ms", "waiting")

    def __init__(self, broker: BrokerId, clock: Callable[[], int]) -> None:
        self.broker = broker
        self.clock = clock
        self.rule = SilentSessions()
        self.session: SessionId | None = None
        self.ttl_ms = 0
        self.deadline_ms = 0
        """Until when the broker counts on its session, on its own clock, without the margin."""
        self.known = 0
        """The number of changes in the log that it has seen."""
        self.waiting = False
        """Whether it will look at the log soon."""


class _Written(NamedTuple):
    """A line of the log; no renewal: the session ended."""

    session: SessionId
    renewal: Renewal | None


class Renewals:
    """The log of all renewals, and who has seen how much of it."""

    def __init__(self, world: World, end: Callable[[SessionId], None]) -> None:
        self.reachable: Callable[[BrokerId], bool]
        """Whether a broker that runs and the store reach each other."""
        self.on_early_end: Callable[[BrokerId], None]
        """Called if a session is ended on which its broker still counts."""
        self._world = world
        self._end = end
        self._random = world.random("renewals")
        self._log: list[_Written] = []
        self._last: dict[SessionId, tuple[Renewal, Revision]] = {}
        """The last renewal of each session that exists, and its place in the log."""
        self._watchers: list[Watcher] = []

    # -- the store -------------------------------------------------------------------------

    def write(self, session: SessionId, renewal: Renewal) -> None:
        """Write a renewal, unless a later one of the session was written before."""
        last = self._last.get(session)
        if last is None or renewal.sent_ms > last[0].sent_ms:
            self._append(_Written(session, renewal))
            self._last[session] = renewal, len(self._log)

    def ended(self, session: SessionId) -> None:
        """The session has ended, for whatever reason."""
        if self._last.pop(session, None) is not None:
            self._append(_Written(session, None))

    def _append(self, written: _Written) -> None:
        self._log.append(written)
        for watcher in self._watchers:
            self._look_soon(watcher)

    def _condemn(self, session: SessionId, revision: Revision) -> None:
        """End a silent session if this is still its last renewal."""
        last = self._last.get(session)
        if last is None or last[1] != revision:
            return
        self._world.count("silent session ended")
        for watcher in self._watchers:
            margin_ms = fencing_margin_ms(watcher.ttl_ms)
            if watcher.session == session and watcher.clock() < watcher.deadline_ms - margin_ms:
                self.on_early_end(watcher.broker)
        self._end(session)

    # -- the brokers -----------------------------------------------------------------------

    def opened(self, watcher: Watcher, session: SessionId, ttl_ms: int, deadline_ms: int) -> None:
        """A broker learns that its session is open."""
        watcher.session, watcher.ttl_ms, watcher.deadline_ms = session, ttl_ms, deadline_ms
        watcher.rule.opened(session, ttl_ms, watcher.clock())
        if watcher not in self._watchers:
            self._watchers.append(watcher)
            self._look_soon(watcher)
        self._check_later(watcher)

    def renewed(self, watcher: Watcher, deadline_ms: int) -> None:
        """A broker learns that its session is renewed."""
        watcher.deadline_ms = max(watcher.deadline_ms, deadline_ms)
        watcher.rule.renewed(watcher.clock())

    def lost(self, watcher: Watcher) -> None:
        """A broker has no session any more."""
        watcher.session = None
        watcher.rule.closed()

    def died(self, watcher: Watcher) -> None:
        """A broker's process has ended."""
        self.lost(watcher)
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def _check_later(self, watcher: Watcher) -> None:
        interval_ms = watcher.rule.interval_ms
        if interval_ms is not None:
            self._world.after(interval_ms, self._check, watcher, watcher.session)

    def _check(self, watcher: Watcher, session: SessionId) -> None:
        if watcher.session != session:
            return
        if self.reachable(watcher.broker):
            for silent in watcher.rule.silent(watcher.clock()):
                delay_ms = self._random.randint(1, DELAY_MAX_MS)
                self._world.after(delay_ms, self._condemn, silent.session, silent.revision)
        self._check_later(watcher)

    def _look_soon(self, watcher: Watcher) -> None:
        if not watcher.waiting:
            watcher.waiting = True
            late = self._random.random() < 0.05
            delay_ms = self._random.randint(1, LATE_MAX_MS if late else DELAY_MAX_MS)
            self._world.after(delay_ms, self._look, watcher)

    def _look(self, watcher: Watcher) -> None:
        if watcher not in self._watchers:
            return
        if not self.reachable(watcher.broker):
            self._world.after(_RETRY_MS, self._look, watcher)
            return
        watcher.waiting = False
        now_ms = watcher.clock()
        for place, (session, renewal) in enumerate(self._log[watcher.known :], watcher.known + 1):
            if renewal is None:
                watcher.rule.ended(session)
            else:
                watcher.rule.seen(session, renewal, place, now_ms)
        watcher.known = len(self._log)
