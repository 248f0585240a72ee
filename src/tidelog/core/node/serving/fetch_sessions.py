"""Incremental fetch sessions on the leader (KIP-227).

Without a session, a reader of a thousand partitions names all of them in every fetch and gets all
of them in every response. In a session both sides remember: the request names only what changed
since the last one, the response only partitions with changes. The session epoch counts the
requests, so that a lost or duplicate request is noticed.

A partition whose reader is caught up and knows the high watermark *rests*: fetches skip it until
its replica changes, so that a thousand idle partitions cost nothing (serving/fetch.py wakes them).

Invariants: at most `slots` sessions; a request changes or closes only a session of its own owner; a
partition of a session is either active or rests at exactly one replica. The position stored for a
partition is that of the last request, including its leader epoch: a session that kept an old epoch
would be fenced forever (KAFKA-9338).
"""

from typing import TypeAlias

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
from tidelog.core.principal import Principal
from tidelog.core.replication.log_end_offset import NEVER_MS
from tidelog.core.slotted import field, slotted
from tidelog.core.types import BrokerId, Offset, TopicPartition

EVICTION_MS = 120_000
"""After this time an idle session may be replaced by another, a busy one by a larger one."""
PARTITIONS_MAX = 500_000
"""Partitions in all sessions of clients: each takes a third of a kilobyte."""
NOT_SENT: Offset = -1
"""The high watermark of a reader that was not sent one yet: it is behind any other."""
NOT_REMEMBERED: Offset = -2
"""The same outside a session: the reader is assumed to know the high watermark of the moment when
its fetch arrives."""
Owner: TypeAlias = BrokerId | Principal | None
"""Who may use a session: one follower, or the clients of one principal. None: without an
authoriser the clients are not told apart, and each of them may read everything."""
_NONE = ErrorCode.NONE
_FULL = (SESSIONLESS, NEW_SESSION)


@slotted(eq=False)
class SessionPartition:
    """The position of a reader in one partition, and the values last sent to it."""

    asked: FetchPartition
    high_watermark: Offset = NOT_SENT
    log_start_offset: Offset = NOT_SENT
    resting_at: HostedReplica | None = None

    def has_changes(self, answer: FetchPartitionResponse) -> bool:
        """Whether the answer has records, an error or a value that the reader does not know."""
        return (
            answer.records is not None
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
            or answer.error is not _NONE
            or answer.diverging is not None
            or answer.preferred_read_replica is not None
        )

    def note_sent(self, answer: FetchPartitionResponse) -> None:
        """Remember the values that were sent."""
        # After an error or a divergence the reader used nothing of this answer: it gets the next
        # one in any case.
        failed = answer.error is not _NONE or answer.diverging is not None
        self.high_watermark = NOT_SENT if failed else answer.high_watermark
        self.log_start_offset = answer.log_start_offset


@slotted(eq=False)
class FetchSession:
    """The partitions that one reader follows."""

    id: int
    owner: Owner
    request: Fetch
    """The latest request: who reads, and how."""
    created_ms: int
    used_ms: int
    responded_ms: int = NEVER_MS
    """When the latest response was sent."""
    confirmed_ms: int = NEVER_MS
    """When the response was sent that the latest request confirms. The reader sent that request
    later; when it arrived says nothing, if this process hung meanwhile."""
    epoch: int = 1
    """The epoch expected in the next request."""
    partitions: dict[TopicPartition, SessionPartition] = field(default_factory=dict)
    active: dict[TopicPartition, SessionPartition] = field(default_factory=dict)
    """Partitions that do not rest, in the order in which they are read; one that got records goes
    to the end."""
    closed: bool = False

    @property
    def from_follower(self) -> bool:
        return self.request.replica is not None

    def update(self, request: Fetch) -> None:
        """Apply the changes that a request names."""
        if request.broker_epoch != self.request.broker_epoch:
            # The follower registered again: every partition must learn its new broker epoch.
            self.activate_all()
        if request.reader != self.request.reader:
            # Another host or other ACLs: each partition must be checked again.
            self.activate_all()
        self.request = request
        for topic_partition in request.forgotten:
            self._forget(topic_partition)
        for asked in request.partitions:
            known = self.partitions.get(asked.topic_partition)
            if known is not None and known.asked.topic_id == asked.topic_id:
                if known.asked.leader_epoch != asked.leader_epoch:
                    # The reader may have discarded an answer with the old epoch.
                    known.high_watermark = NOT_SENT
                known.asked = asked
                self.activate(known)
                continue
            self._forget(asked.topic_partition)
            new = SessionPartition(asked)
            self.partitions[asked.topic_partition] = self.active[asked.topic_partition] = new

    def _forget(self, topic_partition: TopicPartition) -> None:
        known = self.partitions.pop(topic_partition, None)
        if known is not None:
            self.activate(known)
            del self.active[topic_partition]

    def rest(self, known: SessionPartition, replica: HostedReplica) -> None:
        """Skip a partition until its replica changes."""
        del self.active[known.asked.topic_partition]
        known.resting_at = replica
        replica.resting[known] = self

    def activate(self, known: SessionPartition) -> None:
        """Read a partition again in every fetch."""
        if known.resting_at is not None:
            del known.resting_at.resting[known]
            known.resting_at = None
            self.active[known.asked.topic_partition] = known

    def activate_all(self) -> None:
        """Read all partitions again in every fetch."""
        for known in self.partitions.values():
            self.activate(known)

    def changes(self, answers: list[FetchPartitionResponse]) -> list[FetchPartitionResponse]:
        """Return the answers to send, and note them as sent."""
        changed = []
        for answer in answers:
            known = self.partitions.get(answer.topic_partition)
            if known is None or not known.has_changes(answer):
                continue
            known.note_sent(answer)
            changed.append(answer)
            if answer.records is not None and len(self.active) > 1:
                self.active[answer.topic_partition] = self.active.pop(answer.topic_partition)
        return changed

    def unsent(self, answers: list[FetchPartitionResponse]) -> list[FetchPartitionResponse]:
        """Return what `changes` would return, and note nothing."""
        found = self.partitions
        return [
            answer
            for answer in answers
            if answer.topic_partition in found and found[answer.topic_partition].has_changes(answer)
        ]


@slotted
class Sessionless:
    """The partitions of a full fetch outside any session."""

    partitions: dict[TopicPartition, SessionPartition]
    active: dict[TopicPartition, SessionPartition]
    """All partitions of the request: none rests."""
    id: int = 0

    def changes(self, answers: list[FetchPartitionResponse]) -> list[FetchPartitionResponse]:
        """Return all answers."""
        return answers

    def unsent(self, answers: list[FetchPartitionResponse]) -> list[FetchPartitionResponse]:
        """Return all answers."""
        return answers


class FetchSessions:
    """A bounded number of sessions."""

    __slots__ = ("_client_partitions", "_next_id", "_of_followers", "_sessions", "_slots")

    def __init__(self, slots: int, seed: int) -> None:
        self._slots = slots
        self._sessions: dict[int, FetchSession] = {}
        self._of_followers: dict[BrokerId, FetchSession] = {}
        """The newest session of each follower."""
        self._client_partitions = 0
        """Partitions in all sessions of clients."""
        # Ids must differ between starts of this broker: a reader that did not notice the restart
        # could otherwise use a session of another reader.
        self._next_id = seed * 0x9E3779B1 & SESSION_EPOCH_MAX

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: Fetch, now_ms: int) -> FetchSession | Sessionless | ErrorCode:
        """Return the session of a request, new or known, or the error."""
        if request.session_epoch in _FULL:
            named = self._find(request)
            if named is not None:
                self._close(named)
            if (
                request.session_epoch == NEW_SESSION
                and not _names_unknown_topics(request)
                and self._has_room_for(request)
                and self._make_room(request, now_ms)
            ):
                return self._create(request, now_ms)
            found = {
                asked.topic_partition: SessionPartition(asked, NOT_REMEMBERED)
                for asked in request.partitions
            }
            return Sessionless(found, found)
        session = self._find(request)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if _names_unknown_topics(request) or not self._has_room_for(request):
            self._close(session)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        session.epoch = 1 if session.epoch == SESSION_EPOCH_MAX else session.epoch + 1
        session.used_ms = now_ms
        session.confirmed_ms = session.responded_ms
        self._update(session, request)
        return session

    def skip(self, session: FetchSession | Sessionless) -> int:
        """Return the session id of an empty response to a throttled client.

        A session that this request opened is closed: the client did not get its partitions yet, and
        opens a session again with its next fetch, as with Kafka.
        """
        if isinstance(session, Sessionless):
            return 0
        if session.request.session_epoch != NEW_SESSION:
            return session.id
        if not session.closed:
            self._close(session)
        return 0

    def _find(self, request: Fetch) -> FetchSession | None:
        """Return the session that a request names, if it belongs to the sender.

        A session of another owner is unknown to it. Ids can be guessed, and a fetch in a follower's
        session is taken as a sign that this follower still follows, which extends the lease.
        """
        session = self._sessions.get(request.session_id)
        return None if session is None or session.owner != _owner(request) else session

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
        session = FetchSession(self._next_id, _owner(request), request, now_ms, now_ms)
        self._next_id = self._next_id + 1 & SESSION_EPOCH_MAX
        self._update(session, request)
        self._sessions[session.id] = session
        if request.replica is not None:
            self._of_followers[request.replica] = session
        return session

    def confirmed_ms(self, follower: BrokerId, replica: HostedReplica) -> int:
        """Return when a response was sent that the follower has confirmed by its next fetch, if it
        still fetches this partition in the leader's epoch; else a time long ago."""
        session = self._of_followers.get(follower)
        known = None if session is None else session.partitions.get(replica.topic_partition)
        if session is None or known is None or session.closed:
            return NEVER_MS
        same_epoch = known.asked.leader_epoch == replica.partition.leader_epoch
        same_topic = known.asked.topic_id in (None, replica.topic_id)
        return session.confirmed_ms if same_epoch and same_topic else NEVER_MS

    def _close(self, session: FetchSession) -> None:
        del self._sessions[session.id]
        session.closed = True
        if not session.from_follower:
            self._client_partitions -= len(session.partitions)
        session.activate_all()

    def _make_room(self, request: Fetch, now_ms: int) -> bool:
        """Whether there is a slot for a new session; another session may be closed for it.

        Followers come before clients, and larger sessions before smaller ones; but a session that
        is young and in use is not closed.
        """
        if len(self._sessions) < self._slots:
            return True
        idlest = min(self._sessions.values(), key=lambda s: s.used_ms, default=None)
        if idlest is None:
            return False
        if now_ms - idlest.used_ms > EVICTION_MS:
            self._close(idlest)
            return True
        least = min(self._sessions.values(), key=lambda s: (s.from_follower, len(s.partitions)))
        outranked = request.replica is not None and not least.from_follower
        outgrown = (
            (request.replica is not None) == least.from_follower
            and len(request.partitions) > len(least.partitions)
            and now_ms - least.created_ms > EVICTION_MS
        )
        if outranked or outgrown:
            self._close(least)
            return True
        return False


def _owner(request: Fetch) -> Owner:
    if request.replica is not None:
        return request.replica
    return None if request.reader is None else request.reader.principal


def _names_unknown_topics(request: Fetch) -> bool:
    """Whether a request adds or removes a topic whose id is unknown on this broker.

    A session identifies topics by name. A topic without a name would not be found under the name
    that it gets later. A deleted topic could not be removed by its id, and its error would end
    every fetch at once.
    """
    for asked in request.partitions:  # a generator would take twice as long for one of them
        if asked.topic_partition.topic.startswith(UNRESOLVED):
            return True
    forgotten = request.forgotten
    return bool(forgotten) and any(topic.startswith(UNRESOLVED) for topic, _ in forgotten)
