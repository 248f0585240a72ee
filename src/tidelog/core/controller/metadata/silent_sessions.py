"""Which sessions of other brokers have ended because nobody renewed them.

etcd ends a session that is not renewed, but it may be late: a new leader of etcd gives all sessions
their whole time to live again. So each broker also writes every renewal of its session to the
store, and the other brokers count the time since then by their own clocks. A broker that finds a
session silent for its time to live ends it with a transaction, guarded by the revision of the last
renewal that it has seen. A renewal is guarded too: it fails once the session has been ended.

Why a session never ends too early: its broker counts the time to live from before it sent the last
renewal that succeeded. Other brokers count from a later moment, and end the session only if that
renewal is still the last one. The margin of the broker (`fencing_margin_ms`) covers differences in
the speed of the clocks.

Why not all sessions end after an outage of the store: a broker ends sessions of others only while
its own renewals succeed, and only after the others had time to renew theirs.

Requires: the store applies the renewals of a session in the order in which they were sent, each at
most once.

Invariants: the time of a renewal is never estimated too early; time in which this process was
suspended, or by which its clock jumped, does not count as silence.
"""

from collections.abc import Collection
from typing import NamedTuple

from tidelog.core.controller.metadata.metadata_store import NO_SESSION, Revision, SessionId
from tidelog.core.slotted import slotted

CHECKS_IN_A_SESSION = 36
"""How often `silent` must be called in a time to live."""
_SUSPENDED = 12
"""A time between two checks above this part of the time to live is no silence: less than the margin
of a broker, a tenth."""


class Renewal(NamedTuple):
    """What a broker writes to the store with each renewal of its session."""

    ttl_ms: int
    sent_ms: int
    """The broker's own clock before it sent the renewal: only differences have a meaning."""


class Silent(NamedTuple):
    """A session to end, if the revision of its last renewal is still this one."""

    session: SessionId
    revision: Revision


@slotted
class _Known:
    """The last renewal of another broker's session."""

    renewal: Renewal
    revision: Revision
    arrived_ms: int
    silent_since_ms: int


class SilentSessions:
    """One broker's view of the renewals of all sessions."""

    __slots__ = ("_checked_ms", "_own", "_patient_until_ms", "_renewed_ms", "_sessions", "_ttl_ms")

    def __init__(self) -> None:
        self._own: SessionId = NO_SESSION
        self._ttl_ms = 0
        self._renewed_ms = 0
        self._patient_until_ms = 0
        """Until then other brokers may still need time to renew their sessions."""
        self._checked_ms = 0
        self._sessions: dict[SessionId, _Known] = {}

    @property
    def interval_ms(self) -> int | None:
        """The time between two checks; None while there is nothing to check."""
        return max(1, self._ttl_ms // CHECKS_IN_A_SESSION) if self._own != NO_SESSION else None

    # -- this broker's own session ---------------------------------------------------------

    def opened(self, session: SessionId, ttl_ms: int, now_ms: int) -> None:
        """This broker has a new session."""
        self._own, self._ttl_ms = session, ttl_ms
        self._renewed_ms = now_ms
        self._patient_until_ms = now_ms + ttl_ms

    def closed(self) -> None:
        """This broker has no session, so it ends none of other brokers."""
        self._own = NO_SESSION

    def renewed(self, now_ms: int) -> None:
        """This broker renewed its session, so the store works.

        Other brokers may have waited for the store too. After a short outage, such as an election
        of etcd, they get a third of the time to live; after a long one all of it.
        """
        silence_ms = now_ms - self._renewed_ms
        self._renewed_ms = now_ms
        if silence_ms > self._ttl_ms * 2 // 3:
            self._patient_until_ms = now_ms + self._ttl_ms
        elif silence_ms > self._renewal_due_ms:
            self._patient_until_ms = max(self._patient_until_ms, now_ms + self._ttl_ms // 3)

    @property
    def _renewal_due_ms(self) -> int:
        """A renewal every third of the time to live, and what it may take."""
        return self._ttl_ms // 3 + self._ttl_ms // 9

    # -- sessions of other brokers ---------------------------------------------------------

    def seen(self, session: SessionId, renewal: Renewal, revision: Revision, now_ms: int) -> None:
        """Note a session's renewal that is in the store.

        It may arrive late, if the watch paused. Then it counts from the arrival of the renewal
        before, plus the time that passed at the broker in between.
        """
        known = self._sessions.get(session)
        if known is not None and revision == known.revision:
            return
        since_ms = now_ms
        if known is not None:
            passed_ms = renewal.sent_ms - known.renewal.sent_ms
            if passed_ms > 0:
                since_ms = min(now_ms, known.arrived_ms + passed_ms)
        self._sessions[session] = _Known(renewal, revision, now_ms, since_ms)

    def ended(self, session: SessionId) -> None:
        """The session has ended."""
        self._sessions.pop(session, None)

    def keep(self, sessions: Collection[SessionId]) -> None:
        """Forget all sessions but these, which are all that the store has."""
        for session in [one for one in self._sessions if one not in sessions]:
            del self._sessions[session]

    def silent(self, now_ms: int) -> list[Silent]:
        """Return the sessions to end now. Called at every `interval_ms`."""
        self._check_time(now_ms)
        works = now_ms - self._renewed_ms <= self._renewal_due_ms
        if self._own == NO_SESSION or not works or now_ms < self._patient_until_ms:
            return []
        return [
            Silent(session, known.revision)
            for session, known in self._sessions.items()
            if session != self._own and now_ms - known.silent_since_ms >= known.renewal.ttl_ms
        ]

    def _check_time(self, now_ms: int) -> None:
        """Do not count the time since the last check if that was too long ago."""
        gap_ms = now_ms - self._checked_ms
        self._checked_ms = now_ms
        for known in self._sessions.values():
            if gap_ms > known.renewal.ttl_ms // _SUSPENDED:
                known.silent_since_ms = min(known.silent_since_ms + gap_ms, now_ms)
                known.arrived_ms = min(known.arrived_ms + gap_ms, now_ms)
