"""A node's access to the metadata store: its requests, and the renewal of its session.

The node decides when a session is opened or closed. In between it is renewed here, three times in
its time to live. A renewal that fails is retried: the node itself stops acting when the deadline
comes near, and the store reports when the session has ended.

Changes in the store are passed to the node in order, and only `CHANGES_A_TURN` in each turn of the
loop.
"""

from collections import deque
from collections.abc import Callable

from tidelog.core.controller.effects import StoreTransaction
from tidelog.core.controller.metadata.metadata_store import (
    Batch,
    SessionExpired,
    SessionId,
    Unavailable,
)
from tidelog.core.node import effects as do
from tidelog.core.node import events as on
from tidelog.shell.net.event_loop import EventLoop, Timer
from tidelog.shell.store.metadata_store_client import (
    MetadataStoreClient,
    Renewed,
    SessionGrant,
)

RENEWALS_IN_A_SESSION = 3
RETRIES_IN_A_SESSION = 18
"""Retries of a failed renewal in a session's time to live."""
CHANGES_A_TURN = 300
"""Changed keys in one turn; more only if a single batch has more, because batches are not split."""


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
