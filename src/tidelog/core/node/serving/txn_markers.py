"""WriteTxnMarkers: a transaction coordinator ends transactions on the partitions of this leader.

A marker is a control batch. It is appended like a batch with acks=all, and reported when all
in-sync replicas have it. An operator's tool sends the same request to abort a transaction that was
left open (KIP-664).
"""

from collections.abc import Callable
from typing import TypeAlias

from tidelog.core.coordinator.lookup import OFFSETS_TOPIC
from tidelog.core.errors import ErrorCode
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.deadlines import Deadlines
from tidelog.core.node.effects import Respond
from tidelog.core.node.events import Peer
from tidelog.core.node.hosting.gate import Gate
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.messages import (
    ProducePartitionResponse,
    TxnMarker,
    WriteTxnMarkers,
    WriteTxnMarkersResponse,
)
from tidelog.core.node.turn import Turn
from tidelog.core.node.waiters import Part, Pending
from tidelog.core.record.control import ControlType
from tidelog.core.record.encoder import Producer, encode_marker
from tidelog.core.record.record_batch import parse
from tidelog.core.replication.events import ACKS_ALL, ProduceReceived
from tidelog.core.types import TopicPartition

Answered: TypeAlias = Callable[[WriteTxnMarkersResponse], None]
CompleteOffsets: TypeAlias = Callable[
    [TopicPartition, TxnMarker, Callable[[ErrorCode], None]], None
]
"""Appends the marker to a partition of `__consumer_offsets`: the group coordinator orders it with
its own appends, and applies it to its state."""

_NOT_READY = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors of a group coordinator, which the sender of markers does not expect."""


class TxnMarkerService:
    """Appends markers, and responds when they are committed."""

    def __init__(
        self,
        config: NodeConfig,
        turn: Turn,
        replicas: Replicas,
        gate: Gate,
        wake_resting: Callable[[HostedReplica], None],
        complete_offsets: CompleteOffsets | None = None,
    ) -> None:
        self._timeout_ms = config.request_timeout_ms
        self._turn = turn
        self._replicas = replicas
        self._gate = gate
        self._wake_resting = wake_resting
        self._complete_offsets = complete_offsets
        self._waiting: Deadlines[Pending] = Deadlines()

    def write_txn_markers(self, peer: Peer, correlation: int, request: WriteTxnMarkers) -> None:
        """Serve WriteTxnMarkers."""

        def answered(response: WriteTxnMarkersResponse) -> None:
            self._turn.emit(Respond(peer, correlation, response))

        self.write(request, answered)

    def write(self, request: WriteTxnMarkers, answered: Answered) -> None:
        """Append the markers; `answered` is called when all are committed or refused."""
        preset = ErrorCode.REQUEST_TIMED_OUT
        presets = [
            ProducePartitionResponse(name, preset)
            for marker in request.markers
            for name in marker.partitions
        ]

        def finish(pending: Pending) -> None:
            self._waiting.remove(pending, pending.deadline_ms)
            answered(_response(request, pending.answers))

        until_ms = self._turn.now_ms + self._timeout_ms
        pending = Pending(None, 0, presets, len(presets), until_ms, finish)
        if not presets:
            finish(pending)
            return
        index = 0
        for marker in request.markers:
            for name in marker.partitions:
                self._append(marker, name, Part(pending, index))
                index += 1
        if not pending.done:
            self._waiting.add(pending, until_ms)

    def _append(self, marker: TxnMarker, name: TopicPartition, part: Part) -> None:
        replica = self._gate.find(name)
        if isinstance(replica, ErrorCode):
            _settle(part, name, replica)
            return
        if name.topic == OFFSETS_TOPIC and self._complete_offsets is not None:
            self._complete_offsets(name, marker, lambda error: _settle(part, name, error))
            return
        kind = ControlType.COMMIT if marker.committed else ControlType.ABORT
        producer = Producer(marker.producer_id, marker.producer_epoch)
        stamp = self._turn.wall_ms
        batch = parse(encode_marker(kind, producer, marker.coordinator_epoch, stamp))
        if replica.rules.log_append_time:
            batch.stamp_log_append_time(stamp)
        if replica.resting:
            self._wake_resting(replica)
        if not replica.acks_seen & 1:
            self._replicas.note_acks(replica, ACKS_ALL)
        event = ProduceReceived(
            part,
            batch,
            ACKS_ALL,
            self._turn.now_ms,
            transaction_version=marker.transaction_version,
        )
        self._replicas.step(replica, event)

    def tick(self) -> None:
        """Respond to requests that timed out. A marker may still be committed: the coordinator
        repeats it."""
        for pending in self._waiting.due(self._turn.now_ms):
            pending.time_out()
            for answer in pending.answers:
                replica = self._replicas.hosted.get(answer.topic_partition)
                if replica is not None:
                    replica.commits.forget_done()

    def next_ms(self) -> int | None:
        """The time at which `tick` must be called; None if no request waits."""
        return self._waiting.next_ms()


def _settle(part: Part, name: TopicPartition, error: ErrorCode) -> None:
    if error in _NOT_READY:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    part.pending.settle(part.index, ProducePartitionResponse(name, error))


def _response(
    request: WriteTxnMarkers, answers: list[ProducePartitionResponse]
) -> WriteTxnMarkersResponse:
    left = iter(answers)
    return WriteTxnMarkersResponse(
        tuple(
            (marker.producer_id, {name: next(left).error for name in marker.partitions})
            for marker in request.markers
        )
    )
