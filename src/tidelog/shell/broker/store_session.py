"""A node's access to the metadata store: its requests, its session, and the proof of deaths.

The node decides when a session is opened or closed. In between it is renewed here, three times in
its time to live. A renewal that fails is retried: the node itself stops acting shortly before the
deadline, and the store reports when the session has ended.

Changes in the store are passed to the node in order, and only `CHANGES_A_TURN` in each turn of the
loop.
"""

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from tidelog.core.controller.effects import StoreTransaction
from tidelog.core.controller.metadata.metadata_store import (
    Batch,
    Revision,
    SessionExpired,
    SessionId,
    Unavailable,
)
from tidelog.core.node import effects as do
from tidelog.core.node import events as on
from tidelog.core.node.node import Node
from tidelog.shell.net.event_loop import EventLoop, Timer
from tidelog.shell.store.metadata_store_client import (
    MetadataStoreClient,
    Renewed,
    SessionGrant,
)
from tidelog.shell.store.proof_of_death import DeathProbe

RENEWALS_IN_A_SESSION = 3
RETRIES_IN_A_SESSION = 18
"""Retries of a failed renewal in a session's time to live."""
CHANGES_A_TURN = 300
"""Changed keys in one turn; more only if a single batch has more, because batches are not split."""


PROBE_DELAYS_MS = (0, 5, 20, 60, 150, 400, 1000)
PATIENCE_MS = 500
"""The longest time that a response waits for an election."""

Act: TypeAlias = Callable[[], None]
Unsettled: TypeAlias = Callable[[], bool]


class StoreSession:
    """Turns a node's effects into store calls, and the answers into events."""

    def __init__(
        self,
        loop: EventLoop,
        store: MetadataStoreClient,
        step: Callable[[on.Event], None],
    ) -> None:
        self._loop = loop
        self._store = store
        self._step = step
        self._session: SessionId | None = None
        self._ttl_ms = 0
        self._timer: Timer | None = None
        self._opening = 0
        self._watching = 0
        self._changes: deque[Batch] = deque()
        self._room = CHANGES_A_TURN

    # -- the session -----------------------------------------------------------------------

    def open_session(self, effect: do.OpenSession) -> None:
        self._opening += 1
        opening = self._opening
        self._ttl_ms = effect.ttl_ms

        def answered(answer: SessionGrant | Unavailable) -> None:
            if opening != self._opening:
                if isinstance(answer, SessionGrant):
                    self._store.close_session(answer.session)
                return
            if isinstance(answer, Unavailable):
                self._step(on.SessionLost(self._now_ms()))
                return
            self._session = answer.session
            self._renew_after(self._ttl_ms // RENEWALS_IN_A_SESSION)
            deadline_ms = answer.sent_ms + self._ttl_ms
            self._step(on.SessionOpened(answer.session, deadline_ms, self._now_ms()))

        self._store.open_session(effect.ttl_ms, answered)

    def close_session(self, _effect: do.CloseSession) -> None:
        self._opening += 1
        session, self._session = self._session, None
        self._stop_renewing()
        if session is not None:
            self._store.close_session(session)

    def _renew_after(self, delay_ms: int) -> None:
        self._stop_renewing()
        self._timer = self._loop.after(delay_ms, self._renew)

    def _stop_renewing(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _renew(self) -> None:
        session = self._session
        if session is None:
            return

        def answered(answer: Renewed | SessionExpired | Unavailable) -> None:
            if self._session != session:
                return
            if isinstance(answer, SessionExpired):
                self._session = None
                self._step(on.SessionLost(self._now_ms()))
            elif isinstance(answer, Renewed):
                self._renew_after(self._ttl_ms // RENEWALS_IN_A_SESSION)
                deadline_ms = answer.sent_ms + self._ttl_ms
                self._step(on.SessionRenewed(deadline_ms, self._now_ms()))
            else:
                self._renew_after(self._ttl_ms // RETRIES_IN_A_SESSION)

        self._store.renew_session(session, answered)

    # -- data ------------------------------------------------------------------------------

    def read(self, effect: do.ReadStore) -> None:
        self._store.read(
            effect.earlier, lambda answer: self._step(on.StoreRead(answer, self._now_ms()))
        )

    def watch(self, effect: do.WatchStore) -> None:
        self._watching += 1
        watching = self._watching
        self._changes.clear()

        def changed(batch: Batch) -> None:
            if watching == self._watching:
                self._changes.append(batch)
                self._pass_on()

        def lost() -> None:
            if watching == self._watching:
                self._changes.clear()
                self._step(on.WatchLost(self._now_ms()))

        self._store.watch(effect.after, changed, lost)

    def _pass_on(self) -> None:
        """Pass changes to the node, up to the limit of this turn."""
        if self._room == CHANGES_A_TURN:
            self._loop.at_end_of_turn(self._turn_over)
        while self._changes and self._room > 0:
            batch = self._changes.popleft()
            self._room -= max(len(batch.changes), 1)
            self._step(on.StoreChanged(batch, self._now_ms()))

    def _turn_over(self) -> None:
        self._room = CHANGES_A_TURN
        if self._changes:
            self._loop.next_turn(self._pass_on)

    def transact(self, effect: StoreTransaction) -> None:
        tag = effect.tag
        self._store.transact(
            effect.guards,
            effect.ops,
            lambda answer: self._step(on.TransactionAnswered(tag, answer, self._now_ms())),
        )

    def _now_ms(self) -> int:
        return self._loop.clock.now_ms()


class DeathDetector:
    """Detects at once that another broker is dead (ADR 17), and delays responses that name it.

    The probe ends the sessions of brokers that are proved dead. There are two occasions to probe:

    - A connection to a broker broke. Then several times, because a dying process closes its
      sockets shortly before or after its lock.
    - A client requests metadata. Clients do so when a leader dies; if the response named the old
      leader, they would retry only after their back-off. So the response waits until proved
      deaths have taken effect: another leader is elected, or none. It waits for `PATIENCE_MS` at
      most; a death that can't be proved is left to the session time-out.
    """

    def __init__(self, loop: EventLoop, node: Node, probe: DeathProbe) -> None:
        self._loop = loop
        self._node = node
        self._deaths = probe
        self._requests: list[tuple[Act, Unsettled]] = []
        self._held: list[tuple[Revision, int, Act, Unsettled]] = []

    def peer_lost(self) -> None:
        """Probe several times: the connection to a broker broke."""
        for delay_ms in PROBE_DELAYS_MS:
            self._loop.after(delay_ms, self._probe)

    def _probe(self) -> None:
        if self._node.halted is None:
            self._deaths.probe_deaths()

    def when_settled(self, act: Act, unsettled: Unsettled) -> None:
        """Call `act` when no leader is provably dead any more, or after `PATIENCE_MS`."""
        self._requests.append((act, unsettled))
        if len(self._requests) == 1:
            self._loop.at_end_of_turn(self._probe_once)

    def _probe_once(self) -> None:
        """Probe once for all requests of this turn."""
        requests, self._requests = self._requests, []

        def answered(revision: Revision | Unavailable) -> None:
            known = 0 if isinstance(revision, Unavailable) else revision
            deadline_ms = self._loop.clock.now_ms() + PATIENCE_MS
            held = [(known, deadline_ms, act, unsettled) for act, unsettled in requests]
            self._held += held
            self.image_advanced()
            if self._held:
                self._loop.after(PATIENCE_MS, self.image_advanced)

        self._deaths.probe_deaths(answered)

    def image_advanced(self) -> None:
        """Continue the requests that need not wait any more."""
        if not self._held:
            return
        held, self._held = self._held, []
        now_ms, revision = self._loop.clock.now_ms(), self._node.image.revision
        for one in held:
            known, deadline_ms, act, unsettled = one
            if now_ms < deadline_ms and (revision < known or unsettled()):
                self._held.append(one)
            else:
                act()
