"""Appends the records of shards to their partitions, as a producer with acks=all would.

Several appends of one shard in one turn share a batch. The outcome is reported once for each
append: committed, refused, or unknown because the write timed out.
"""

from collections.abc import Callable
from typing import Any

from tidelog.core.coordinator.outbox import Append
from tidelog.core.errors import ErrorCode
from tidelog.core.node.coordinating.hosted_shard import HostedShard
from tidelog.core.node.deadlines import Deadlines
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.messages import ProducePartitionResponse
from tidelog.core.node.turn import Turn
from tidelog.core.node.waiters import Part, Pending
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import RecordBatch, parse
from tidelog.core.replication.events import ACKS_ALL, ProduceReceived

SHARED_BYTES_MAX = 256 * 1024
"""Appends share a batch up to this size; a larger append gets a batch of its own."""


class ShardWriter:
    """Appends for the shards of one coordinator, and collects the outcomes."""

    def __init__(
        self,
        timeout_ms: int,
        turn: Turn,
        replicas: Replicas,
        wake_resting: Callable[[HostedReplica], None],
    ) -> None:
        self.done: list[tuple[HostedShard[Any], int, ErrorCode]] = []
        """Outcomes of appends by their tokens, for `take_done`."""
        self._timeout_ms = timeout_ms
        self._turn = turn
        self._replicas = replicas
        self._wake_resting = wake_resting
        self._waiting: Deadlines[Pending] = Deadlines()

    def write(self, hosted: HostedShard[Any], appends: list[Append]) -> None:
        """Write appends as one batch, or as several if one would be too large."""
        group: list[Append] = []
        size = 0
        for append in appends:
            more = sum(len(key) + len(value or b"") for key, value in append.records)
            if group and size + more > SHARED_BYTES_MAX:
                self._write(hosted, group)
                group, size = [], 0
            group.append(append)
            size += more
        self._write(hosted, group)

    def _write(self, hosted: HostedShard[Any], appends: list[Append]) -> None:
        replica = hosted.replica
        batch = _batch_of(appends, self._turn.wall_ms)
        error = replica.partition.produce_error(ACKS_ALL)
        too_large = batch.size > min(
            replica.rules.max_message_bytes, replica.log.config.segment_bytes
        )
        if error is ErrorCode.NONE and too_large:
            error = ErrorCode.MESSAGE_TOO_LARGE
            if len(appends) > 1:
                # One of them is too large, or only their sum is: each gets its own outcome.
                for append in appends:
                    self._write(hosted, [append])
                return
        tokens = [append.token for append in appends]
        if error is not ErrorCode.NONE:
            self.done += [(hosted, token, error) for token in tokens]
            return
        pending = self._pending(hosted, tokens)
        if replica.resting:
            self._wake_resting(replica)
        event = ProduceReceived(Part(pending, 0), batch, ACKS_ALL, self._turn.now_ms)
        self._replicas.step(replica, event)
        if not pending.done:
            self._waiting.add(pending, pending.deadline_ms)

    def _pending(self, hosted: HostedShard[Any], tokens: list[int]) -> Pending:
        preset = ErrorCode.REQUEST_TIMED_OUT
        answers = [ProducePartitionResponse(hosted.replica.topic_partition, preset)]

        def finish(pending: Pending) -> None:
            self._waiting.remove(pending, pending.deadline_ms)
            error = pending.answers[0].error
            self.done += [(hosted, token, error) for token in tokens]

        deadline_ms = self._turn.now_ms + self._timeout_ms
        return Pending(hosted, 0, answers, 1, deadline_ms, finish)

    def take_done(self) -> list[tuple[HostedShard[Any], int, ErrorCode]]:
        """Remove and return the outcomes."""
        done, self.done = self.done, []
        return done

    def forget(self, hosted: HostedShard[Any]) -> None:
        """Drop the outcomes of a shard that was unloaded."""
        self.done = [entry for entry in self.done if entry[0] is not hosted]

    def expire(self) -> None:
        """Time out appends that were not committed in time: their outcome is unknown."""
        for pending in self._waiting.due(self._turn.now_ms):
            pending.time_out()
            pending.peer.replica.commits.forget_done()  # type: ignore[attr-defined]

    def next_ms(self) -> int | None:
        """Return when `expire` has something to do."""
        return self._waiting.next_ms()


def _batch_of(appends: list[Append], wall_ms: int) -> RecordBatch:
    records = [Record(key, value, wall_ms) for append in appends for key, value in append.records]
    return parse(encode_batch(records))
