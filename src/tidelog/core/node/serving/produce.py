"""Produce requests: check the batch header, let the partition append the batch, respond by acks.

Records are not decoded, unless the topic's settings require another codec or keys
(record/opened_batch.py). With acks=all the response waits for the high watermark; its preset error
is REQUEST_TIMED_OUT, which a time-out sends as it is. With acks=0 there is no response; an error
closes the connection.
"""

from collections.abc import Callable, Iterable

from tidelog.core.errors import ErrorCode
from tidelog.core.node.deadlines import Deadlines
from tidelog.core.node.effects import Close, Respond
from tidelog.core.node.events import Peer
from tidelog.core.node.hosting.gate import Gate
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.messages import (
    Produce,
    ProducePartition,
    ProducePartitionResponse,
    ProduceResponse,
)
from tidelog.core.node.serving.txn_produce import (
    ATTRIBUTES_AT,
    Refusal,
    TransactionalProduce,
    is_transactional,
    transaction_error,
)
from tidelog.core.node.serving.txn_verification import TxnVerification
from tidelog.core.node.turn import Turn
from tidelog.core.node.waiters import AnyPart, LonePart, Part, Pending
from tidelog.core.record.record_batch import (
    CODEC_MASK,
    TRANSACTIONAL,
    CorruptRecord,
    RecordBatch,
)
from tidelog.core.record.validation import is_plausible, packing_fault, validate
from tidelog.core.replication.events import ACKS_ALL, ACKS_NONE, ProduceReceived
from tidelog.core.types import INTERNAL_TOPICS

_TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT
_INVALID_ACKS = ErrorCode.INVALID_REQUIRED_ACKS
RECORD_ERRORS_MAX = 100
"""How many rejected records of a batch the response names."""


class ProduceService:
    """Appends batches, and responds when they are acknowledged."""

    def __init__(
        self,
        turn: Turn,
        replicas: Replicas,
        gate: Gate,
        wake_resting: Callable[[HostedReplica], None],
        verification: TxnVerification,
    ) -> None:
        self._turn = turn
        self._replicas = replicas
        self._gate = gate
        self._wake_resting = wake_resting
        """Notes the progress of followers that rest, before a record is appended."""
        self._transactions = TransactionalProduce(
            turn, gate, verification, append=self._append, refuse=self._refuse
        )
        self.deadlines: Deadlines[Pending] = Deadlines()

    def produce(self, peer: Peer, correlation: int, request: Produce) -> None:
        """Serve a produce request."""
        if request.acks == ACKS_NONE:
            self._produce_unanswered(peer, correlation, request)
            return
        partitions = request.partitions
        until_ms = self._turn.now_ms + request.timeout_ms
        pending: Pending
        if len(partitions) == 1:
            preset = ProducePartitionResponse(partitions[0].topic_partition, _TIMED_OUT)
            pending = lone = LonePart(peer, correlation, [preset], 1, until_ms, self._finish)
            records = partitions[0].records
            if len(records) > ATTRIBUTES_AT and records[ATTRIBUTES_AT] & TRANSACTIONAL:
                self._append_all(request, [lone])
            else:
                self._append(request, partitions[0], lone)
        else:
            presets = [ProducePartitionResponse(p.topic_partition, _TIMED_OUT) for p in partitions]
            count = len(partitions)
            pending = Pending(peer, correlation, presets, count, until_ms, self._finish)
            if not partitions:
                self._finish(pending)
                return
            self._append_all(request, _parts(pending))
        if not pending.done:
            self.deadlines.add(pending, until_ms)

    def _produce_unanswered(self, peer: Peer, correlation: int, request: Produce) -> None:
        none = ErrorCode.NONE
        answers = [ProducePartitionResponse(p.topic_partition, none) for p in request.partitions]
        pending = Pending(peer, correlation, answers, len(answers) + 1, 0, _ignore)
        self._append_all(request, _parts(pending))
        if any(answer.error is not none for answer in answers):
            self._turn.emit(Close(peer))

    def _append_all(self, request: Produce, parts: Iterable[AnyPart]) -> None:
        """Append the batches of a request, of which some may be transactional."""
        if not any(map(is_transactional, request.partitions)):
            for asked, part in zip(request.partitions, parts, strict=True):
                self._append(request, asked, part)
            return
        error = transaction_error(request)
        for asked, part in zip(request.partitions, parts, strict=True):
            if error is not ErrorCode.NONE:
                self._refuse(asked, part, error)
            else:
                self._transactions.append(request, asked, part)
        self._transactions.send()

    def _append(
        self, request: Produce, asked: ProducePartition, part: AnyPart, verified: bool = False
    ) -> None:
        if asked.topic_partition.topic in INTERNAL_TOPICS and not request.internal_topics_allowed:
            self._refuse(asked, part, ErrorCode.INVALID_TOPIC_EXCEPTION)
            return
        replica = self._gate.find(asked.topic_partition, asked.topic_id)
        if not isinstance(replica, HostedReplica):
            self._refuse(asked, part, replica)
            return
        if request.acks != ACKS_ALL and not self._gate.acting:
            # Detached: only what followers have confirmed may be acknowledged.
            self._refuse(asked, part, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        replica.traffic.produce_requests += 1
        rules = replica.rules
        batch: RecordBatch | Refusal | ErrorCode = self._check(request, asked, replica)
        if isinstance(batch, RecordBatch) and (
            rules.keys_needed
            or rules.codec is not None
            or rules.records_checked
            or (batch.attributes & CODEC_MASK and not is_plausible(batch))
        ):
            batch = self._inspected(request, batch, replica)
        if not isinstance(batch, RecordBatch):
            replica.traffic.failed_produce_requests += 1
            replica.traffic.bytes_rejected += len(asked.records)
            self._refuse(asked, part, batch)
            return
        if rules.log_append_time:
            part.append_time_ms = stamp = self._turn.wall_ms
            batch.stamp_log_append_time(stamp)
        if replica.resting:
            self._wake_resting(replica)
        if not replica.acks_seen >> (request.acks + 1) & 1:
            self._replicas.note_acks(replica, request.acks)
        event = ProduceReceived(part, batch, request.acks, self._turn.now_ms, True, verified)
        self._replicas.step(replica, event)

    def _inspected(
        self, request: Produce, batch: RecordBatch, replica: HostedReplica
    ) -> RecordBatch | Refusal | ErrorCode:
        """Return the batch if a client can decompress it; decode it only where that is needed."""
        rules = replica.rules
        scanned = rules.keys_needed or rules.records_checked
        if batch.attributes & CODEC_MASK and not is_plausible(batch):
            fault = packing_fault(batch)
            if fault is not None:
                return Refusal(ErrorCode.INVALID_RECORD, fault)
            scanned = True
        if not scanned and rules.codec == batch.codec:
            return batch
        return self._opened(request, batch, replica, scanned)

    def _opened(
        self, request: Produce, batch: RecordBatch, replica: HostedReplica, scanned: bool
    ) -> RecordBatch | Refusal | ErrorCode:
        """Return the batch with the codec of the topic, or the error found in its records."""
        from tidelog.core.record.opened_batch import OpenedBatch
        from tidelog.core.record.work_budget import WorkBudget

        rules = replica.rules
        if request.budget is None:
            request.budget = WorkBudget()
        opened = OpenedBatch(batch, request.budget)
        try:
            keyless = opened.without_key() if scanned else []
            if rules.keys_needed and keyless:
                errors = tuple((index, "no key") for index in keyless[:RECORD_ERRORS_MAX])
                message = (
                    f"{len(keyless)} of {batch.count} records have no key; the topic is compacted"
                )
                return Refusal(ErrorCode.INVALID_RECORD, message, errors)
            if rules.codec is None or rules.codec == batch.codec:
                return batch
            packed = opened.repack(rules.codec, rules.level)
        except CorruptRecord as corrupt:
            return Refusal(corrupt.error, corrupt.reason)
        if packed.size > rules.max_message_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE
        if packed.size > replica.log.config.segment_bytes:
            return ErrorCode.RECORD_LIST_TOO_LARGE
        return packed

    def _check(
        self, request: Produce, asked: ProducePartition, replica: HostedReplica
    ) -> RecordBatch | ErrorCode:
        refusal = replica.partition.produce_error(request.acks)
        if refusal is _INVALID_ACKS:
            return refusal
        now, wall = self._turn.now_ms, self._turn.wall
        batch = validate(
            asked.records,
            replica.rules,
            now + wall.earliest_ahead_ms,
            now + wall.latest_ahead_ms,
            request.version,
            refusal,
        )
        if not isinstance(batch, RecordBatch):
            return batch
        # Only for new batches: a follower appends any batch that its leader has.
        if batch.size > replica.log.config.segment_bytes:
            return ErrorCode.RECORD_LIST_TOO_LARGE
        return batch

    def _refuse(self, asked: ProducePartition, part: AnyPart, refusal: ErrorCode | Refusal) -> None:
        error = refusal if isinstance(refusal, ErrorCode) else refusal.error
        answer = ProducePartitionResponse(asked.topic_partition, error)
        if isinstance(refusal, Refusal):
            answer.error_message = refusal.message
            answer.record_errors = refusal.record_errors
        part.pending.settle(part.index, answer)

    def _finish(self, pending: Pending) -> None:
        self.deadlines.remove(pending, pending.deadline_ms)
        response = ProduceResponse(pending.answers)
        self._turn.emit(Respond(pending.peer, pending.correlation, response))

    def tick(self) -> None:
        """Respond to requests that timed out with their preset errors."""
        expired = self.deadlines.due(self._turn.now_ms)
        for pending in expired:
            pending.time_out()
            for answer in pending.answers:
                replica = self._replicas.hosted.get(answer.topic_partition)
                if replica is not None:
                    replica.commits.forget_done()
                    replica.flushes.forget_done()

    @property
    def waiting(self) -> int:
        """The number of waiting requests."""
        return len(self.deadlines)

    def next_ms(self) -> int | None:
        """When `tick` has something to do."""
        return self.deadlines.next_ms()


def _parts(pending: Pending) -> list[AnyPart]:
    return [Part(pending, index) for index in range(len(pending.answers))]


def _ignore(_pending: Pending) -> None:
    """With acks=0 there is no response."""
