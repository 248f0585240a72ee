"""The broker's own code that decides whether a leader serves while the store does not respond.

Gate, activation, fetch sessions and produce requests are the shipped classes. The checker supplies
their environment: the clock, the end of the session, one partition, and its followers' sessions.
"""

from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias, cast

from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.node.activation import Activation
from tidelog.core.node.hosting.gate import Gate
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.measuring.counters import Traffic
from tidelog.core.node.messages import (
    NEW_SESSION,
    Fetch,
    FetchPartition,
    Produce,
    ProducePartition,
)
from tidelog.core.node.serving.fetch_sessions import FetchSession, FetchSessions
from tidelog.core.node.serving.produce import ProduceService
from tidelog.core.node.turn import Turn
from tidelog.core.record.encoder import encode_value
from tidelog.core.record.validation import BatchRules
from tidelog.core.replication.events import ACKS_ALL
from tidelog.core.replication.partition import Partition
from tidelog.core.types import TopicPartition

TICK_MS = 3_000
LEASE_TICKS, SESSION_TICKS, MARGIN_TICKS = 1, 3, 1
"""In units of a tick: a lease is a third of the session, as in core/node/assembly.py. The margin is
wider than the shipped one, so that a broker is detached for one tick before its session ends."""
ACKS_LEADER = 1
TOPIC_ID = b"lease-model-topic"[:16]
NAME = TopicPartition("t", 0)

OLD = LEASE_TICKS + 1
"""The largest age in a state: older ages make no difference."""
NOW_TICKS = 10
"""The clock always shows this time: the states of the checker hold ages only."""

Session: TypeAlias = tuple[int, ...]
"""A follower's fetch session: the age of the last response, the age of the response that the latest
fetch confirms, and the leader epoch of that fetch; empty without a session."""


class Decision(NamedTuple):
    """What the leader's broker does at one moment."""

    acting: bool
    serves: bool
    """Whether it answers clients' reads of this partition."""
    serves_followers: bool
    accepts: frozenset[int]
    """The values of acks with which it accepts a write."""
    fails_waiters: bool
    """Whether a write that waits for followers fails now."""


class LeaderBroker:
    """One broker with one partition, at one moment."""

    def __init__(self, partition: Partition, sessions: tuple[Session, ...], left: int) -> None:
        """Build the parts; `left` is the number of ticks until the store may end the session."""
        self._turn = Turn(NOW_TICKS * TICK_MS)
        self._sessions = FetchSessions(slots=len(sessions), seed=1)
        self._open = [self._restore(*each) for each in enumerate(sessions)]
        self._appended: list[object] = []
        self._failed: list[object] = []
        log = SimpleNamespace(config=SimpleNamespace(segment_bytes=1 << 20))
        self._replica = HostedReplica(
            NAME, TOPIC_ID, partition, cast(Any, log), BatchRules(), Traffic()
        )
        self._replicas = cast(
            Any,
            SimpleNamespace(
                hosted={NAME: self._replica},
                note_acks=lambda _replica, _acks: None,
                step=lambda _, event: self._appended.append(event),
                fail_waiters=lambda replica, _: self._failed.append(replica),
            ),
        )
        confirmed_ms, lease_ms = self._sessions.confirmed_ms, LEASE_TICKS * TICK_MS
        self._gate = Gate(
            self._turn, self._replicas, ClusterImage(), partition.local, confirmed_ms, lease_ms
        )
        self._let_session_lapse(left > MARGIN_TICKS)

    def _restore(self, follower: int, session: Session) -> FetchSession | None:
        if not session:
            return None
        responded, confirmed, leader_epoch = session
        asked = FetchPartition(NAME, TOPIC_ID, 0, 1, leader_epoch)
        request = Fetch(follower, None, 0, 0, 1, [asked], session_epoch=NEW_SESSION)
        opened = self._sessions.open(request, 0)
        assert isinstance(opened, FetchSession), "there is a slot for each follower"
        opened.responded_ms, opened.confirmed_ms = _time_ms(responded), _time_ms(confirmed)
        return opened

    def _let_session_lapse(self, valid: bool) -> None:
        """Let the broker act, and then lose its session unless `valid`, while a write waits."""
        registration = SimpleNamespace(may_act=True, may_detach=False)
        applier = SimpleNamespace(settled=True, let_lead=_ignore, begin_acting=_ignore)
        flushing = SimpleNamespace(begin_acting=_ignore)
        parts = (registration, applier, flushing)
        activation = Activation(self._turn, self._gate, self._replicas, *cast(Any, parts))
        activation.update()
        cast(Any, self._replica).commits = ("a write",)
        registration.may_act, registration.may_detach = valid, not valid
        activation.update()

    def decide(self) -> Decision:
        """Return the answers of the shipped code."""
        found = self._gate.find(NAME, TOPIC_ID, by_follower=True)
        return Decision(
            self._gate.acting,
            self._replica.partition.is_leader and self._gate.serves(self._replica),
            isinstance(found, HostedReplica),
            frozenset(acks for acks in (ACKS_ALL, ACKS_LEADER) if self._accepts(acks)),
            bool(self._failed),
        )

    def _accepts(self, acks: int) -> bool:
        """Send a produce request; it is accepted if it reaches the partition."""
        self._appended.clear()
        parts = (self._turn, self._replicas, self._gate, _ignore)
        service = ProduceService(*parts, cast(Any, None))  # no transactions
        records = ProducePartition(NAME, encode_value(b"", self._turn.wall_ms), TOPIC_ID)
        service.produce("client", 0, Produce(acks, 0, [records]))
        return bool(self._appended)

    def fetched(self, follower: int, leader_epoch: int, *, new: bool, forget: bool) -> Session:
        """Apply a follower's fetch to its session, respond at once, and return the session."""
        asked = [FetchPartition(NAME, TOPIC_ID, 0, 1, leader_epoch)]
        known = self._open[follower]
        if new or known is None:
            request = Fetch(follower, None, 0, 0, 1, asked, session_epoch=NEW_SESSION)
        else:
            ids = (known.id, known.epoch)
            forgotten = [NAME] if forget else []
            named = [] if forget else asked
            request = Fetch(follower, None, 0, 0, 1, named, *ids, forgotten)
        session = self._sessions.open(request, self._turn.now_ms)
        assert isinstance(session, FetchSession), "the session is known or new"
        if NAME not in session.partitions:
            return ()
        return (0, _age(session.confirmed_ms), leader_epoch)


def older(session: Session) -> Session:
    """Return the session one tick later."""
    if not session:
        return session
    responded, confirmed, leader_epoch = session
    return (min(responded + 1, OLD), min(confirmed + 1, OLD), leader_epoch)


def _time_ms(age: int) -> int:
    return (NOW_TICKS - age) * TICK_MS


def _age(time_ms: int) -> int:
    return min(OLD, NOW_TICKS - time_ms // TICK_MS)


def _ignore(*_: object) -> None:
    """Do nothing: these effects do not matter here."""
