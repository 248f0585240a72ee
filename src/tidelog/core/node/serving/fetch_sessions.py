"""Incremental fetch sessions, the answering side (KIP-227).

A reader of a thousand partitions would name them all in every fetch, and be told about them
all. In a session both sides remember: the request names only what changed since the last
one, the answer only partitions that have something to say. The session epoch counts the
requests, so that one which went missing or came twice is noticed.

A partition whose reader has all there is, and knows it, *rests*: it is left out of the
session's fetches until something happens to its replica, so that a thousand idle partitions
cost nothing (serving/fetch.py rouses them).

Always true: at most `slots` sessions; a session's partition is either active or rests at
exactly one replica. What is stored for a partition is the last request's
wording, its leader epoch included: a session that kept an old one would be fenced for ever
(KAFKA-9338).
"""

from tidelog.core.errors import ErrorCode
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.messages import (
    NEW_SESSION,
    SESSION_EPOCH_MAX,
    SESSIONLESS,
    UNRESOLVED,
    Fetch,
    FetchPartition,
    FetchPartitionResponse,
)
from tidelog.core.slotted import field, slotted
from tidelog.core.types import Offset, TopicPartition

EVICTION_MS = 120_000
"""An idle session may make place for another after that; a busy small one for a larger."""
PARTITIONS_MAX = 500_000
"""In all sessions of clients together: each takes a third of a kilobyte."""
UNTOLD: Offset = -1
"""The high watermark of a reader that was not sent one yet: it is behind any other."""
NOT_REMEMBERED: Offset = -2
"""The same outside a session: the reader is assumed to know the high watermark of the moment when
its fetch arrives."""
_NONE = ErrorCode.NONE
_FULL = (SESSIONLESS, NEW_SESSION)


@slotted(eq=False)
class SessionPartition:
    """What a reader asked of one partition, and what it was last told."""

    asked: FetchPartition
    high_watermark: Offset = UNTOLD
    log_start_offset: Offset = UNTOLD
    resting_at: HostedReplica | None = None

    def has_news(self, answer: FetchPartitionResponse) -> bool:
        """Whether the reader must hear of this answer."""
        return (
            answer.records is not None
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
            or answer.error is not _NONE
            or answer.diverging is not None
            or answer.preferred_read_replica is not None
        )

    def told(self, answer: FetchPartitionResponse) -> None:
        # After an error or a divergence the reader took nothing from this answer: it hears
        # of the next one whatever that says.
        failed = answer.error is not _NONE or answer.diverging is not None
        self.high_watermark = UNTOLD if failed else answer.high_watermark
        self.log_start_offset = answer.log_start_offset


@slotted(eq=False)
class FetchSession:
    """What one reader follows."""

    id: int
    request: Fetch
    """The latest; it says who reads, and how."""
    created_ms: int
    used_ms: int
    epoch: int = 1
    """Of the next request."""
    partitions: dict[TopicPartition, SessionPartition] = field(default_factory=dict)
    active: dict[TopicPartition, SessionPartition] = field(default_factory=dict)
    """Those that do not rest, in the order in which they are looked at; who got records
    goes to the end."""
    closed: bool = False

    @property
    def from_follower(self) -> bool:
        return self.request.replica is not None

    def update(self, request: Fetch) -> None:
        if request.broker_epoch != self.request.broker_epoch:
            # Another registration of the follower: its leaders must hear of it everywhere.
            self.rouse_all()
        self.request = request
        for topic_partition in request.forgotten:
            self._forget(topic_partition)
        for asked in request.partitions:
            known = self.partitions.get(asked.topic_partition)
            if known is not None and known.asked.topic_id == asked.topic_id:
                if known.asked.leader_epoch != asked.leader_epoch:
                    # An answer under the old epoch may have been void to the reader.
                    known.high_watermark = UNTOLD
                known.asked = asked
                self.rouse(known)
                continue
            self._forget(asked.topic_partition)
            new = SessionPartition(asked)
            self.partitions[asked.topic_partition] = self.active[asked.topic_partition] = new

    def _forget(self, topic_partition: TopicPartition) -> None:
        known = self.partitions.pop(topic_partition, None)
        if known is not None:
            self.rouse(known)
            del self.active[topic_partition]

    def rest(self, known: SessionPartition, replica: HostedReplica) -> None:
        """Leave it out until something happens to its replica."""
        del self.active[known.asked.topic_partition]
        known.resting_at = replica
        replica.resting[known] = self

    def rouse(self, known: SessionPartition) -> None:
        """Look at it again in every fetch."""
        if known.resting_at is not None:
            del known.resting_at.resting[known]
            known.resting_at = None
            self.active[known.asked.topic_partition] = known

    def rouse_all(self) -> None:
        """Let nothing rest."""
        for known in self.partitions.values():
            self.rouse(known)

    def answer(self, answers: list[FetchPartitionResponse]) -> list[FetchPartitionResponse]:
        """Those that bring news, which are noted as told."""
        news = []
        for answer in answers:
            known = self.partitions.get(answer.topic_partition)
            if known is None or not known.has_news(answer):
                continue
            known.told(answer)
            news.append(answer)
            if answer.records is not None and len(self.active) > 1:
                self.active[answer.topic_partition] = self.active.pop(answer.topic_partition)
        return news


@slotted
class Sessionless:
    """A full fetch that nobody remembers."""

    partitions: dict[TopicPartition, SessionPartition]
    active: dict[TopicPartition, SessionPartition]
    """The same: no partition rests."""
    id: int = 0

    def answer(self, answers: list[FetchPartitionResponse]) -> list[FetchPartitionResponse]:
        """All of them."""
        return answers


class FetchSessions:
    """A bounded number of sessions."""

    __slots__ = ("_client_partitions", "_next_id", "_sessions", "_slots")

    def __init__(self, slots: int, seed: int) -> None:
        self._slots = slots
        self._sessions: dict[int, FetchSession] = {}
        self._client_partitions = 0
        """In all sessions of clients."""
        # Ids of different starts of this broker must differ: a reader that did not notice
        # the restart would otherwise meet a stranger's session.
        self._next_id = seed * 0x9E3779B1 & SESSION_EPOCH_MAX

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: Fetch, now_ms: int) -> FetchSession | Sessionless | ErrorCode:
        """The partitions that this request is about, or why it can't be known."""
        if request.session_epoch in _FULL:
            self._close(request.session_id)
            if (
                request.session_epoch == NEW_SESSION
                and not _names_strangers(request)
                and self._has_room_for(request)
                and self._make_room(request, now_ms)
            ):
                return self._create(request, now_ms)
            found = {
                asked.topic_partition: SessionPartition(asked, NOT_REMEMBERED)
                for asked in request.partitions
            }
            return Sessionless(found, found)
        session = self._sessions.get(request.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if _names_strangers(request) or not self._has_room_for(request):
            self._close(session.id)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        session.epoch = 1 if session.epoch == SESSION_EPOCH_MAX else session.epoch + 1
        session.used_ms = now_ms
        self._update(session, request)
        return session

    def _update(self, session: FetchSession, request: Fetch) -> None:
        before = len(session.partitions)
        session.update(request)
        if not session.from_follower:
            self._client_partitions += len(session.partitions) - before

    def _has_room_for(self, request: Fetch) -> bool:
        added = len(request.partitions)
        return request.replica is not None or self._client_partitions + added <= PARTITIONS_MAX

    def _create(self, request: Fetch, now_ms: int) -> FetchSession:
        while self._next_id == 0 or self._next_id in self._sessions:
            self._next_id = self._next_id + 1 & SESSION_EPOCH_MAX
        session = FetchSession(self._next_id, request, now_ms, now_ms)
        self._next_id = self._next_id + 1 & SESSION_EPOCH_MAX
        self._update(session, request)
        self._sessions[session.id] = session
        return session

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.closed = True
            if not session.from_follower:
                self._client_partitions -= len(session.partitions)
            session.rouse_all()

    def _make_room(self, request: Fetch, now_ms: int) -> bool:
        """Whether there is a slot for it, perhaps at the cost of another session.

        Followers come before clients, larger sessions before smaller; but a session is
        left alone while it is young and in use.
        """
        if len(self._sessions) < self._slots:
            return True
        idlest = min(self._sessions.values(), key=lambda s: s.used_ms, default=None)
        if idlest is None:
            return False
        if now_ms - idlest.used_ms > EVICTION_MS:
            self._close(idlest.id)
            return True
        least = min(self._sessions.values(), key=lambda s: (s.from_follower, len(s.partitions)))
        outranked = request.replica is not None and not least.from_follower
        outgrown = (
            (request.replica is not None) == least.from_follower
            and len(request.partitions) > len(least.partitions)
            and now_ms - least.created_ms > EVICTION_MS
        )
        if outranked or outgrown:
            self._close(least.id)
            return True
        return False


def _names_strangers(request: Fetch) -> bool:
    """Whether it names, or wants forgotten, a topic by an id that is unknown here.

    A session goes by names. A topic that comes into one without a name would not be found
    again under the name it gets later; one that was deleted could not be forgotten by its
    id, and would answer every fetch at once with its error.
    """
    for asked in request.partitions:  # a generator would take twice as long for one of them
        if asked.topic_partition.topic.startswith(UNRESOLVED):
            return True
    return any(topic.startswith(UNRESOLVED) for topic, _ in request.forgotten)
