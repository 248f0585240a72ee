"""Fetch: from consumers, who read what is committed, and from followers, who read all.

A follower's fetch also tells how far it has come; that is noted once, when it arrives.
"""

from tidelog.core.errors import ErrorCode
from tidelog.core.node.deadlines import Deadlines
from tidelog.core.node.effects import Respond
from tidelog.core.node.events import Peer
from tidelog.core.node.messages import Fetch, FetchPartition, FetchResponse
from tidelog.core.node.replicas import HostedReplica, Replicas
from tidelog.core.node.serving.fetch_sessions import (
    UNTOLD,
    FetchSession,
    FetchSessions,
    SessionPartition,
)
from tidelog.core.node.serving.gate import Gate
from tidelog.core.node.serving.long_poll import FetchPart, PendingFetch, failed
from tidelog.core.node.turn import Turn
from tidelog.core.replication import events as on
from tidelog.core.types import TopicPartition


class FetchService:
    """Answers fetches, now or when there is something to say."""

    def __init__(self, turn: Turn, replicas: Replicas, gate: Gate, sessions: FetchSessions) -> None:
        self._turn = turn
        self._replicas = replicas
        self._gate = gate
        self._sessions = sessions
        self._parked: Deadlines[PendingFetch] = Deadlines()

    def fetch(self, peer: Peer, correlation: int, request: Fetch) -> None:
        session = self._sessions.open(request, self._turn.now_ms)
        if isinstance(session, ErrorCode):
            self._turn.emit(Respond(peer, correlation, FetchResponse(session, 0, [])))
            return
        deadline = self._turn.now_ms + request.max_wait_ms
        pending = PendingFetch(peer, correlation, request, session, deadline, [])
        in_session = isinstance(session, FetchSession)
        for known in session.partitions.values():
            part = self._read(request, known)
            if not in_session:
                part.told = part.answer.high_watermark
            pending.parts.append(part)
            pending.look(part)
        if pending.ripe or request.max_wait_ms <= 0 or not pending.parts:
            self._respond(pending)
        else:
            self._park(pending)

    def _read(self, request: Fetch, known: SessionPartition) -> FetchPart:
        asked = known.asked
        replica = self._gate.find(asked.topic_partition, asked.topic_id)
        if isinstance(replica, ErrorCode):
            return FetchPart(asked, None, UNTOLD, failed(asked, replica))
        part = FetchPart(asked, replica, known.high_watermark, _NO_ANSWER)
        event = (
            self._follower_event(request, part)
            if request.replica is not None
            else (self._consumer_event(request, part))
        )
        self._replicas.step(replica, event)
        return part

    def _follower_event(self, request: Fetch, part: FetchPart) -> on.FollowerFetchReceived:
        asked = part.asked
        assert request.replica is not None, "only a follower has a replica id"
        return on.FollowerFetchReceived(
            part,
            request.replica,
            asked.offset,
            asked.leader_epoch,
            asked.last_fetched_epoch,
            asked.log_start_offset,
            request.broker_epoch,
            self._turn.now_ms,
        )

    def _consumer_event(self, request: Fetch, part: FetchPart) -> on.ConsumerFetchReceived:
        asked = part.asked
        return on.ConsumerFetchReceived(
            part,
            asked.offset,
            asked.leader_epoch,
            asked.last_fetched_epoch,
            request.read_committed,
            request.any_replica,
        )

    def _park(self, pending: PendingFetch) -> None:
        self._parked.add(pending, pending.deadline_ms)
        for part in pending.parts:
            if part.replica is not None:
                part.replica.polls[pending] = part

    def _respond(self, pending: PendingFetch) -> None:
        committed = pending.request.read_committed
        answers = [part.response(read_committed=committed) for part in pending.parts]
        told = pending.session.answer(answers)
        response = FetchResponse(ErrorCode.NONE, pending.session.id, told)
        self._turn.emit(Respond(pending.peer, pending.correlation, response))

    def _unpark(self, pending: PendingFetch) -> None:
        self._parked.remove(pending, pending.deadline_ms)
        for part in pending.parts:
            if part.replica is not None:
                del part.replica.polls[pending]
        self._respond(pending)

    def wake(self) -> None:
        """Look at every poll where something happened in this step."""
        replicas = self._replicas
        while replicas.deposed:
            replica, error = replicas.deposed.popitem()
            self._fail(replica, error)
        while replicas.touched:
            replica, _ = replicas.touched.popitem()
            self._look_again(replica)

    def _fail(self, replica: HostedReplica, error: ErrorCode) -> None:
        for pending, part in list(replica.polls.items()):
            part.answer = failed(part.asked, error)
            pending.look(part)
            self._unpark(pending)

    def _look_again(self, replica: HostedReplica) -> None:
        partition = replica.partition
        for pending, part in list(replica.polls.items()):
            request = pending.request
            if not partition.log_start_offset <= part.asked.offset <= partition.log_end_offset:
                part.answer = failed(part.asked, ErrorCode.OFFSET_OUT_OF_RANGE)
            else:
                part.answer = partition.fetch_again(
                    part.answer, request.replica, read_committed=request.read_committed
                )
            pending.look(part)
            if pending.ripe:
                self._unpark(pending)

    def expire(self) -> None:
        """Answer those who have waited long enough."""
        for pending in self._parked.due(self._turn.now_ms):
            self._unpark(pending)

    def next_ms(self) -> int | None:
        return self._parked.next_ms()


_NO_ANSWER = failed(
    FetchPartition(TopicPartition("", 0), None, 0, 0), ErrorCode.UNKNOWN_SERVER_ERROR
)
"""Stands in until the replica has answered, which it does in the same step."""
