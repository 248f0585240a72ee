"""A node's dealings with the metadata store: what it asks for, and its session kept alive.

The node says when a session is to be opened or closed; in between it is renewed here, three
times in its life. A renewal that fails is tried again and again: the node itself stops
acting when the deadline comes near, and the store says when the session has ended.

News of the store come to the node in order, and of many at once only some in each turn of the
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
"""How often a renewal that failed is tried again."""
CHANGES_A_TURN = 300
"""Of keys, but for one batch: they are never split."""


class StoreSession:
    """Turns a node's wishes into store calls, and answers into events."""

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
        self._news: deque[Batch] = deque()
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
        self._news.clear()

        def changed(batch: Batch) -> None:
            if watching == self._watching:
                self._news.append(batch)
                self._tell()

        def lost() -> None:
            if watching == self._watching:
                self._news.clear()
                self._step(on.WatchLost(self._now_ms()))

        self._store.watch(effect.after, changed, lost)

    def _tell(self) -> None:
        """What came, as far as this turn has room for it."""
        if self._room == CHANGES_A_TURN:
            self._loop.at_end_of_turn(self._turn_over)
        while self._news and self._room > 0:
            batch = self._news.popleft()
            self._room -= max(len(batch.changes), 1)
            self._step(on.StoreChanged(batch, self._now_ms()))

    def _turn_over(self) -> None:
        self._room = CHANGES_A_TURN
        if self._news:
            self._loop.next_turn(self._tell)

    def transact(self, effect: StoreTransaction) -> None:
        tag = effect.tag
        self._store.transact(
            effect.guards,
            effect.ops,
            lambda answer: self._step(on.TransactionAnswered(tag, answer, self._now_ms())),
        )

    def _now_ms(self) -> int:
        return self._loop.clock.now_ms()
