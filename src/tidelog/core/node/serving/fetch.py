"""Fetch requests of consumers, which read committed records, and of followers, which read all.

A follower's fetch also reports its log end offset; that is noted once, when the fetch arrives. In a
session, partitions that rest are skipped. Their fetches would only have shown that the follower is
caught up; this is noted before a record is appended, with the time of the last fetch. So the
leader has the same knowledge as without resting.
"""

from collections.abc import Container, Mapping

from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.registrations import BrokerRegistration
from tidelog.core.errors import ErrorCode
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.deadlines import Deadlines
from tidelog.core.node.effects import Respond
from tidelog.core.node.events import Peer
from tidelog.core.node.hosting.gate import Gate
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.hosting.replication_quota import ReplicationQuota
from tidelog.core.node.messages import (
    UNRESOLVED,
    Fetch,
    FetchPartition,
    FetchPartitionResponse,
    FetchResponse,
)
from tidelog.core.node.serving.fetch_sessions import (
    NOT_REMEMBERED,
    NOT_SENT,
    FetchSession,
    FetchSessions,
    SessionPartition,
)
from tidelog.core.node.serving.long_poll import FetchPart, PendingFetch, Reads, failed
from tidelog.core.node.turn import Turn
from tidelog.core.replication import events as on
from tidelog.core.replication.log_end_offset import FollowerProgress
from tidelog.core.replication.replica import Replica
from tidelog.core.storage.disk import Region
from tidelog.core.types import BrokerId, Offset, TopicPartition

WAIT_MS = 5
"""How long a fetch of an expected follower waits."""
EXPECTED_MS = 200
"""How long a follower is expected."""


class ExpectedFollowers:
    """Followers that should soon fetch a partition which this broker has just begun to lead.

    A follower has one fetch with each leader. If that fetch waits for records of other partitions
    when this broker becomes the leader of another one, the follower would fetch the new partition
    half a second later, and the first acks=all there would wait as long. So the fetch of an
    expected follower waits only a few milliseconds, until the follower fetches the partition or
    `EXPECTED_MS` are over. The follower learns of the partition from the store, as this broker did.
    """

    __slots__ = ("_expected",)

    def __init__(self) -> None:
        self._expected: dict[BrokerId, dict[TopicPartition, int]] = {}
        """By follower: partitions with deadlines, the earliest first."""

    def __bool__(self) -> bool:
        return bool(self._expected)

    def expect(self, follower: BrokerId, partition: TopicPartition, now_ms: int) -> None:
        """Expect a follower to fetch a partition."""
        expected = self._expected.setdefault(follower, {})
        expected.pop(partition, None)
        expected[partition] = now_ms + EXPECTED_MS
        self._drop_found(expected, (), now_ms)

    def lacks_any(self, follower: BrokerId, asked: Container[TopicPartition], now_ms: int) -> bool:
        """Whether a follower that fetches these partitions lacks one that is expected."""
        expected = self._expected.get(follower)
        if expected is None:
            return False
        self._drop_found(expected, asked, now_ms)
        if not expected:
            del self._expected[follower]
        return bool(expected)

    @staticmethod
    def _drop_found(
        expected: dict[TopicPartition, int], asked: Container[TopicPartition], now_ms: int
    ) -> None:
        """Drop the first ones that were found or are late; each partition is dropped once."""
        while expected:
            first = next(iter(expected))
            if first not in asked and now_ms < expected[first]:
                break
            del expected[first]


def preferred_read_replica(
    replica: Replica, offset: Offset, rack: str, brokers: Mapping[BrokerId, BrokerRegistration]
) -> BrokerId | None:
    """Return the in-sync follower of the consumer's rack with the largest log end offset; None for
    the leader (KIP-392).

    The choice is a hint: the follower responds from its own log, up to its own high watermark, and
    a consumer that finds nothing there returns to the leader.
    """
    if brokers[replica.local].rack == rack:
        return None
    there = [
        (follower.log_end_offset, follower.last_caught_up_ms, broker)
        for broker, follower in replica.followers.items()
        if broker in replica.isr.members
        and broker in replica.brokers
        and brokers[broker].rack == rack
        and _holds(follower, offset)
    ]
    return max(there)[2] if there else None


def _holds(follower: FollowerProgress, offset: Offset) -> bool:
    end = follower.log_end_offset
    return end is not None and follower.log_start_offset <= offset <= end


_NONE = ErrorCode.NONE
PARKED_PARTITIONS_MAX = 200_000
"""Partitions in all waiting fetches of clients: each takes half a kilobyte. A fetch above the limit
is answered at once."""

RESPONSE_BYTES, PARTITION_BYTES = 20, 40
"""What a response and a partition in it take without records, for quotas."""


class FetchService:
    """Responds to fetches at once, or when there are enough bytes."""

    def __init__(
        self,
        config: NodeConfig,
        turn: Turn,
        image: ClusterImage,
        replicas: Replicas,
        gate: Gate,
        sessions: FetchSessions,
        quota: ReplicationQuota,
    ) -> None:
        self._rack_aware = config.rack_aware_reads
        self._linger_ms = config.high_watermark_linger_ms
        self._turn = turn
        self._image = image
        self._replicas = replicas
        self._gate = gate
        self._sessions = sessions
        self._quota = quota
        self.deadlines: Deadlines[PendingFetch] = Deadlines()
        self._polling: dict[int, PendingFetch] = {}
        """The parked fetch of each session."""
        self._parked_partitions = 0
        """Partitions in the waiting fetches of clients."""
        self._expected = ExpectedFollowers()

    def fetch(self, peer: Peer, correlation: int, request: Fetch) -> None:
        """Respond to a fetch, or park it until there are enough bytes."""
        now = self._turn.now_ms
        session = self._sessions.open(request, now)
        if isinstance(session, ErrorCode):
            self._turn.emit(Respond(peer, correlation, FetchResponse(session, 0, [])))
            return
        earlier = self._polling.get(session.id)
        if earlier is not None:
            self._unpark(earlier)
        until_ms = now + request.max_wait_ms
        pending = PendingFetch(peer, correlation, request, session, until_ms, [])
        stale = self._is_stale(request)
        for known in session.active.values():
            pending.add(self._read(request, known, stale, now))
        waits = request.max_wait_ms > 0 and session.partitions
        if waits and not self._is_due(pending) and self._may_park(pending):
            self._park(pending)
        else:
            self.deadlines.remove(pending, pending.deadline_ms)
            self._respond(pending)

    def _read(self, request: Fetch, known: SessionPartition, stale: bool, now_ms: int) -> FetchPart:
        asked = known.asked
        reader, topic = request.reader, asked.topic_partition.topic
        if reader is not None and not topic.startswith(UNRESOLVED) and not reader.may_read(topic):
            refused = failed(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            return FetchPart(known, asked, None, NOT_SENT, refused)
        follower = request.replica is not None
        replica = self._gate.find(asked.topic_partition, asked.topic_id, by_follower=follower)
        if stale and isinstance(replica, HostedReplica):
            replica = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not isinstance(replica, HostedReplica):
            return FetchPart(known, asked, None, NOT_SENT, failed(asked, replica))
        if request.replica is not None and replica.sent.get(request.replica) == asked.offset:
            # The follower fetches the same records again: they may be damaged here.
            replica.log.require_verification_at(asked.offset)
        part = FetchPart(known, asked, replica, known.high_watermark, _NO_ANSWER)
        self._replicas.step(replica, _event(request, part, now_ms))
        if part.known_high_watermark == NOT_REMEMBERED:
            part.known_high_watermark = part.answer.high_watermark
        if replica.leader_throttled and request.replica is not None:
            self._throttle(request.replica, part, replica)
        if self._rack_aware and request.rack_id and self._gate.acting:
            self._prefer_near_replica(request, part, replica)
        return part

    def _throttle(self, follower: BrokerId, part: FetchPart, replica: HostedReplica) -> None:
        """Leave out the records of a throttled partition while the quota is exceeded, unless the
        follower is in sync: it must not leave the ISR because of a throttle."""
        if follower in replica.partition.isr.members:
            part.throttled_ms, part.most_bytes = 0, None
        else:
            part.throttled_ms = self._quota.wait_ms(self._turn.now_ms)
            part.most_bytes = self._quota.most_bytes()

    def _prefer_near_replica(self, request: Fetch, part: FetchPart, replica: HostedReplica) -> None:
        """Refer a consumer to a replica in its rack."""
        answer = part.answer
        asks_a_leader = request.replica is None and replica.partition.is_leader
        if asks_a_leader and answer.error is ErrorCode.NONE and answer.diverging is None:
            part.preferred = preferred_read_replica(
                replica.partition, answer.offset, request.rack_id, self._image.brokers
            )

    def _is_stale(self, request: Fetch) -> bool:
        """Whether the fetch is of an earlier incarnation of the follower (KIP-903)."""
        if request.replica is None or request.broker_epoch is None:
            return False
        known = self._image.brokers.get(request.replica)
        return known is not None and request.broker_epoch < known.epoch

    def _is_due(self, pending: PendingFetch) -> bool:
        """Whether to respond now; if only a new high watermark is to be sent, wait a little."""
        if pending.complete:
            return True
        if not pending.behind:
            return False
        self._bring_forward(pending, self._linger_ms)
        return pending.deadline_ms <= self._turn.now_ms

    def _bring_forward(self, pending: PendingFetch, wait_ms: int) -> None:
        """Let the fetch wait at most `wait_ms`."""
        soon_ms = self._turn.now_ms + wait_ms
        if soon_ms < pending.deadline_ms:
            self.deadlines.remove(pending, pending.deadline_ms)
            pending.deadline_ms = soon_ms
            self.deadlines.add(pending, soon_ms)

    def _may_park(self, pending: PendingFetch) -> bool:
        """Whether the fetch may wait. Followers always may: there are few of them."""
        if pending.request.replica is not None:
            return True
        return self._parked_partitions + len(pending.parts) <= PARKED_PARTITIONS_MAX

    def _park(self, pending: PendingFetch) -> None:
        if pending.request.replica is None:
            pending.parked_partitions = len(pending.parts)
            self._parked_partitions += pending.parked_partitions
        if self._expected:
            self._shorten_wait(pending)
        self.deadlines.add(pending, pending.deadline_ms)
        if pending.session.id:
            self._polling[pending.session.id] = pending
        for part in pending.parts:
            if part.replica is not None:
                part.replica.polls[pending] = part
            if part.throttled_ms:
                self._bring_forward(pending, part.throttled_ms)

    def _unpark(self, pending: PendingFetch) -> None:
        self.deadlines.remove(pending, pending.deadline_ms)
        self._parked_partitions -= pending.parked_partitions
        pending.parked_partitions = 0
        self._polling.pop(pending.session.id, None)
        for part in pending.parts:
            if part.replica is not None:
                del part.replica.polls[pending]
        self._respond(pending)

    def _respond(self, pending: PendingFetch) -> None:
        request, session = pending.request, pending.session
        committed = request.read_committed
        answers = [part.response(committed) for part in pending.parts]
        allowance = request.allowance
        request.allowance = None  # a session keeps its latest request
        if allowance is not None and not allowance.allows(
            _size(session.unsent(answers)), self._turn.now_ms
        ):
            # Nothing is noted as sent: the session sends it with the next fetch.
            session_id = self._sessions.skip(session)
            response = FetchResponse(_NONE, session_id, [])
            self._turn.emit(Respond(pending.peer, pending.correlation, response))
            return
        self._count(pending.parts, request.replica)
        sent = session.changes(answers)
        if isinstance(session, FetchSession) and not session.closed:
            session.responded_ms = self._turn.now_ms
            for part in pending.parts:
                known = session.active.get(part.asked.topic_partition)
                if known is part.known and part.is_settled(request.replica):
                    assert part.replica is not None, "only replicas can be settled"
                    session.rest(known, part.replica)
        response = FetchResponse(_NONE, session.id, sent)
        self._turn.emit(Respond(pending.peer, pending.correlation, response))

    def _count(self, parts: list[FetchPart], follower: BrokerId | None) -> None:
        for part in parts:
            if part.replica is None:
                continue
            traffic, region = part.replica.traffic, part.region
            if follower is not None:
                if region is not None:
                    traffic.replication_bytes_out += region.length
                    part.replica.sent[follower] = part.answer.offset
                    if part.replica.leader_throttled:
                        in_sync = follower in part.replica.partition.isr.members
                        self._quota.record(region.length, self._turn.now_ms, in_sync=in_sync)
                else:
                    part.replica.sent.pop(follower, None)
                continue
            traffic.fetch_requests += 1
            if region is not None:
                traffic.bytes_out += region.length
            elif part.answer.error is not _NONE:
                traffic.failed_fetch_requests += 1

    # -- expected followers -------------------------------------------------------------------

    def _expect_followers(self) -> None:
        """Expect fetches from the followers of replicas that lead from now on."""
        for replica in self._replicas.newly_led:
            for follower in replica.partition.followers:
                self._expected.expect(follower, replica.topic_partition, self._turn.now_ms)
        self._replicas.newly_led.clear()
        for pending in self._polling.values():
            self._shorten_wait(pending)

    def _shorten_wait(self, pending: PendingFetch) -> None:
        follower, session = pending.request.replica, pending.session
        if (
            follower is not None
            and isinstance(session, FetchSession)
            and self._expected.lacks_any(follower, session.partitions, self._turn.now_ms)
        ):
            self._bring_forward(pending, WAIT_MS)

    # -- changes of replicas ------------------------------------------------------------------

    def wake_resting(self, replica: HostedReplica) -> None:
        """Wake the session partitions that rest at a replica, before or after its log changes, and
        note the progress of their followers as of the last fetch."""
        for known, session in list(replica.resting.items()):
            part = self._attach(replica, known, session)
            event = _event(session.request, part, session.used_ms)
            if self._gate.serving:
                self._replicas.step(replica, event)

    def _attach(
        self, replica: HostedReplica, known: SessionPartition, session: FetchSession
    ) -> FetchPart:
        session.activate(known)
        part = FetchPart(known, known.asked, replica, known.high_watermark, _NO_ANSWER)
        part.answer = replica.partition.fetch_again(
            failed(known.asked, ErrorCode.NONE), session.request.replica
        )
        pending = self._polling.get(session.id)
        if pending is not None:
            pending.parts.append(part)
            replica.polls[pending] = part
        return part

    def wake(self) -> None:
        """Check the waiting fetches of all replicas that changed in this step."""
        replicas = self._replicas
        if replicas.newly_led:
            self._expect_followers()
        while replicas.deposed:
            deposed = dict(replicas.deposed)
            replicas.deposed.clear()
            # All errors are set before any fetch is answered: when the disk fails, no partition
            # of a response may show a high watermark of the step that failed.
            for replica, error in deposed.items():
                self._fail(replica, error)
            for replica in deposed:
                for pending in list(replica.polls):
                    self._unpark(pending)
        while replicas.rejoining:
            replica, _ = replicas.rejoining.popitem()
            members = replica.partition.isr.members
            for known, session in list(replica.resting.items()):
                follower = session.request.replica
                if follower is not None and follower not in members:
                    self._attach(replica, known, session)
        while replicas.touched:
            replica, _ = replicas.touched.popitem()
            if replica.resting:
                self.wake_resting(replica)
            self._check_polls(replica)

    def _fail(self, replica: HostedReplica, error: ErrorCode) -> None:
        for known, session in list(replica.resting.items()):
            self._attach(replica, known, session)
        for pending, part in replica.polls.items():
            part.answer = failed(part.asked, error)
            pending.update(part)

    def _check_polls(self, replica: HostedReplica) -> None:
        if not replica.polls:
            return
        reads: Reads = {}
        for pending, part in list(replica.polls.items()):
            answer, request = part.answer, pending.request
            if replica.leader_throttled and request.replica is not None:
                self._throttle(request.replica, part, replica)
            if answer.error is _NONE and answer.diverging is None:
                part.answer = replica.partition.fetch_again(
                    answer, request.replica, read_committed=request.read_committed
                )
            pending.update(part, reads)
            if self._is_due(pending):
                self._unpark(pending)

    def tick(self) -> None:
        """Respond to the fetches whose time is over."""
        for pending in self.deadlines.due(self._turn.now_ms):
            self._unpark(pending)

    def waiting_from(self, replica: HostedReplica, follower: BrokerId) -> Offset | None:
        """Return the offset from which a fetch of a follower waits here; None without a fetch."""
        for pending, part in replica.polls.items():
            if pending.request.replica == follower:
                return Offset(part.asked.offset)
        for known, session in replica.resting.items():
            if session.request.replica == follower and session.id in self._polling:
                return Offset(known.asked.offset)
        return None

    @property
    def waiting(self) -> int:
        """The number of waiting requests."""
        return len(self.deadlines)

    def next_ms(self) -> int | None:
        """When `tick` has something to do."""
        return self.deadlines.next_ms()


def _event(
    request: Fetch, part: FetchPart, now_ms: int
) -> on.FollowerFetchReceived | on.ConsumerFetchReceived:
    asked = part.asked
    if request.replica is None:
        return on.ConsumerFetchReceived(
            part,
            asked.offset,
            asked.leader_epoch,
            asked.last_fetched_epoch,
            request.read_committed,
            request.any_replica,
        )
    return on.FollowerFetchReceived(
        part,
        request.replica,
        asked.offset,
        asked.leader_epoch,
        asked.last_fetched_epoch,
        asked.log_start_offset,
        request.broker_epoch,
        now_ms,
    )


_NO_ANSWER = failed(
    FetchPartition(TopicPartition("", 0), None, 0, 0), ErrorCode.UNKNOWN_SERVER_ERROR
)
"""A placeholder until the replica answers, in the same step."""


def _size(answers: list[FetchPartitionResponse]) -> int:
    """The bytes of a response that count towards a quota: records, and an estimate of the rest."""
    size = RESPONSE_BYTES
    for answer in answers:
        records = answer.records
        size += PARTITION_BYTES
        if records is not None:
            size += records.length if isinstance(records, Region) else len(records)
    return size
