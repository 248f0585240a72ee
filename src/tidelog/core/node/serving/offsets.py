"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords requests."""

from typing import Any

from tidelog.core.errors import ErrorCode
from tidelog.core.node.deadlines import Deadlines
from tidelog.core.node.effects import Respond
from tidelog.core.node.events import Peer
from tidelog.core.node.hosting.gate import Gate
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.messages import (
    EARLIEST,
    HIGH_WATERMARK,
    LATEST,
    MAX_TIMESTAMP,
    DeleteRecords,
    DeleteRecordsPartitionResponse,
    DeleteRecordsResponse,
    EpochPartitionResponse,
    ListOffsets,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    OffsetForLeaderEpoch,
    OffsetForLeaderEpochResponse,
)
from tidelog.core.node.turn import Turn
from tidelog.core.node.waiters import Part, Pending
from tidelog.core.record.work_budget import WorkBudget
from tidelog.core.replication import events as on
from tidelog.core.replication.effects import AnswerOffsets
from tidelog.core.slotted import slotted
from tidelog.core.storage.segment.damage import DamagedRecords

SEARCH_BYTES_MAX = 16 * 1024 * 1024
SEARCH_STEPS_MAX = 200_000
"""The limits of one search by timestamp; beyond them only batch headers are used."""
SEARCHES_AT_ONCE = 500
BYTES_AT_ONCE = 8 * 1024 * 1024
STEPS_AT_ONCE = 100_000
"""The cost after which a request pauses: some tens of milliseconds, plus one search."""


class SearchEffort:
    """The cost of the searches of one request so far."""

    __slots__ = ("_bytes", "_searches", "_steps")

    def __init__(self) -> None:
        self._searches = self._bytes = self._steps = 0

    def add(self, budget: WorkBudget) -> None:
        """Add the cost of a finished search."""
        self._searches += 1
        self._bytes += budget.bytes_spent
        self._steps += budget.steps_spent

    @property
    def is_enough(self) -> bool:
        """Whether the request should pause."""
        return (
            self._searches >= SEARCHES_AT_ONCE
            or self._bytes >= BYTES_AT_ONCE
            or self._steps >= STEPS_AT_ONCE
        )


@slotted
class AnswerSlot:
    """Receives the answer of a replica within the same step."""

    answer: Any = None


class OffsetService:
    """Serves requests for the offsets of logs, and deletes records."""

    def __init__(self, turn: Turn, replicas: Replicas, gate: Gate) -> None:
        self._turn = turn
        self._replicas = replicas
        self._gate = gate
        self._waiting: Deadlines[Pending] = Deadlines()

    def epoch_ends(self, peer: Peer, correlation: int, request: OffsetForLeaderEpoch) -> None:
        """Serve OffsetForLeaderEpoch."""
        answers = []
        for asked in request.partitions:
            replica = self._gate.find(asked.topic_partition)
            if isinstance(replica, ErrorCode):
                answers.append(EpochPartitionResponse(asked.topic_partition, replica, None))
                continue
            slot = AnswerSlot()
            event = on.EpochEndRequested(slot, asked.leader_epoch, asked.epoch)
            self._replicas.step(replica, event)
            answers.append(
                EpochPartitionResponse(asked.topic_partition, slot.answer.error, slot.answer.end)
            )
        self._turn.emit(Respond(peer, correlation, OffsetForLeaderEpochResponse(answers)))

    def list_offsets(self, peer: Peer, correlation: int, request: ListOffsets) -> None:
        """Serve ListOffsets; leave out the last partitions if the searches cost too much."""
        answers: list[ListOffsetsPartitionResponse] = []
        effort = SearchEffort()
        for asked in request.partitions:
            answers.append(self._offset(request, asked, effort))
            if effort.is_enough:
                break
        self._turn.emit(Respond(peer, correlation, ListOffsetsResponse(answers)))

    def _offset(
        self, request: ListOffsets, asked: ListOffsetsPartition, effort: SearchEffort
    ) -> ListOffsetsPartitionResponse:
        replica = self._gate.find(asked.topic_partition)
        if isinstance(replica, ErrorCode):
            return ListOffsetsPartitionResponse(asked.topic_partition, replica)
        slot = AnswerSlot()
        event = on.OffsetsRequested(
            slot, asked.leader_epoch, request.replica is None, request.read_committed
        )
        self._replicas.step(replica, event)
        bounds: AnswerOffsets = slot.answer
        if bounds.error is not ErrorCode.NONE:
            return ListOffsetsPartitionResponse(asked.topic_partition, bounds.error)
        if asked.timestamp == EARLIEST:
            epoch = replica.partition.epochs.epoch_for_offset(bounds.log_start_offset)
            return ListOffsetsPartitionResponse(
                asked.topic_partition, ErrorCode.NONE, bounds.log_start_offset, None, epoch
            )
        if asked.timestamp == LATEST:
            if not bounds.end_known:
                return _not_available(asked)
            return ListOffsetsPartitionResponse(
                asked.topic_partition,
                ErrorCode.NONE,
                bounds.end_offset,
                None,
                replica.partition.leader_epoch,
            )
        return self._by_time(replica, asked, bounds, effort)

    def _by_time(
        self,
        replica: HostedReplica,
        asked: ListOffsetsPartition,
        bounds: AnswerOffsets,
        effort: SearchEffort,
    ) -> ListOffsetsPartitionResponse:
        log, budget = replica.log, WorkBudget(SEARCH_BYTES_MAX, SEARCH_STEPS_MAX)
        try:
            if asked.timestamp == MAX_TIMESTAMP:
                found = log.max_timestamp(budget)
            else:
                found = log.offset_for_timestamp(asked.timestamp, budget)
        except DamagedRecords:
            error = ErrorCode.KAFKA_STORAGE_ERROR
            return ListOffsetsPartitionResponse(asked.topic_partition, error)
        finally:
            effort.add(budget)
        if found is None or found.offset >= bounds.end_offset:
            if not bounds.end_known:
                return _not_available(asked)
            return ListOffsetsPartitionResponse(asked.topic_partition, ErrorCode.NONE)
        return ListOffsetsPartitionResponse(
            asked.topic_partition,
            ErrorCode.NONE,
            found.offset,
            found.timestamp,
            found.leader_epoch,
        )

    def delete_records(self, peer: Peer, correlation: int, request: DeleteRecords) -> None:
        """Serve DeleteRecords; respond when all live replicas have deleted the records."""
        preset = ErrorCode.REQUEST_TIMED_OUT
        pending = Pending(
            peer,
            correlation,
            [DeleteRecordsPartitionResponse(p.topic_partition, preset) for p in request.partitions],
            len(request.partitions),
            self._turn.now_ms + request.timeout_ms,
            self._finish,
        )
        if not request.partitions:
            self._finish(pending)
            return
        for index, asked in enumerate(request.partitions):
            replica = self._gate.find(asked.topic_partition)
            if isinstance(replica, ErrorCode):
                answer = DeleteRecordsPartitionResponse(asked.topic_partition, replica)
                pending.settle(index, answer)
                continue
            offset = None if asked.offset == HIGH_WATERMARK else asked.offset
            event = on.DeleteRecordsRequested(Part(pending, index), offset)
            self._replicas.step(replica, event)
        if not pending.done:
            self._waiting.add(pending, pending.deadline_ms)

    def _finish(self, pending: Pending) -> None:
        self._waiting.remove(pending, pending.deadline_ms)
        response = DeleteRecordsResponse(pending.answers)
        self._turn.emit(Respond(pending.peer, pending.correlation, response))

    def tick(self) -> None:
        """Respond to requests that timed out with their preset errors."""
        for pending in self._waiting.due(self._turn.now_ms):
            pending.time_out()
            for answer in pending.answers:
                replica = self._replicas.hosted.get(answer.topic_partition)
                if replica is not None:
                    replica.deletions.forget_done()

    @property
    def waiting(self) -> int:
        """The number of waiting requests."""
        return len(self._waiting)

    def next_ms(self) -> int | None:
        """When `tick` has something to do."""
        return self._waiting.next_ms()


def _not_available(asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(asked.topic_partition, ErrorCode.OFFSET_NOT_AVAILABLE)
