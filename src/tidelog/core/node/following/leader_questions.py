"""Requests of followers to a leader other than fetches.

ListOffsets, after a fetch was out of range: first the leader's log end offset, then its log start
offset. OffsetForLeaderEpoch, only under the historical truncation policies of the lab: the end of
the follower's last epoch. One request of each kind is in flight; other partitions wait for the
next.
"""

from collections.abc import Callable

from tidelog.core.errors import ErrorCode
from tidelog.core.node.calls import Calls
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.hosting.hosted_replica import HostedReplica, LeaderPartitions
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.messages import (
    EARLIEST,
    LATEST,
    EpochPartition,
    EpochPartitionResponse,
    ListOffsets,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    OffsetForLeaderEpoch,
    OffsetForLeaderEpochResponse,
)
from tidelog.core.node.turn import Turn
from tidelog.core.replication.effects import EpochQuestion, OffsetsQuestion
from tidelog.core.replication.events import EpochEndAnswered, OffsetsAnswered
from tidelog.core.slotted import slotted
from tidelog.core.types import BrokerId, Offset, TopicPartition


@slotted
class Asked:
    """A replica and its question, and the leader's log end offset once it is known."""

    replica: HostedReplica
    question: EpochQuestion | OffsetsQuestion
    log_end_offset: Offset = -1


class LeaderQuestions:
    """The questions to one leader."""

    def __init__(
        self,
        leader: BrokerId,
        partitions: LeaderPartitions,
        config: NodeConfig,
        turn: Turn,
        calls: Calls,
        replicas: Replicas,
        back_off: Callable[[], None],
    ) -> None:
        self._leader = leader
        self._config = config
        self._turn = turn
        self._calls = calls
        self._replicas = replicas
        self._partitions = partitions
        self._back_off = back_off
        """Called when the leader was not reached."""
        self._waiting: dict[TopicPartition, Asked] = {}
        self._asked: dict[TopicPartition, Asked] = {}
        self._in_flight: set[int] = set()

    def awaits(self, topic_partition: TopicPartition) -> bool:
        """Whether a question of the partition is in flight."""
        return topic_partition in self._asked

    def queue(self, replica: HostedReplica, question: EpochQuestion | OffsetsQuestion) -> None:
        """Queue a question for the next request."""
        self._waiting[replica.topic_partition] = Asked(replica, question)

    def abandon(self) -> None:
        """Forget the requests in flight: no response will arrive. All partitions may send again."""
        for correlation in self._in_flight:
            self._calls.abandon(correlation)
        self._in_flight.clear()
        self._release(list(self._asked))

    def pump(self) -> None:
        """Send the queued questions."""
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            self._asked.update(waiting)
            offsets = [tp for tp, a in waiting.items() if isinstance(a.question, OffsetsQuestion)]
            if offsets:
                self._list_offsets(offsets, LATEST)
            epochs = [a for a in waiting.values() if isinstance(a.question, EpochQuestion)]
            if epochs:
                self._ask_epochs(epochs)

    def _send(self, request: object, names: list[TopicPartition], answered: object) -> None:
        """Send a request; partitions without a result may send another one."""
        correlation = -1

        def on_answer(response: object) -> None:
            self._in_flight.discard(correlation)
            answered(response)  # type: ignore[operator]

        def on_failure() -> None:
            self._in_flight.discard(correlation)
            self._release(names)
            self._back_off()

        correlation = self._calls.send(
            self._leader, request, self._config.replica_socket_timeout_ms, on_answer, on_failure
        )
        self._in_flight.add(correlation)

    def _release(self, names: list[TopicPartition]) -> None:
        for topic_partition in names:
            self._asked.pop(topic_partition, None)
            self._partitions.changed[topic_partition] = None

    def _list_offsets(self, names: list[TopicPartition], timestamp: int) -> None:
        partitions = [
            ListOffsetsPartition(tp, self._asked[tp].question.leader_epoch, timestamp)
            for tp in names
        ]
        request = ListOffsets(self._config.broker_id, partitions)
        answered = self._latest_answered if timestamp == LATEST else self._earliest_answered
        self._send(request, names, answered)

    def _latest_answered(self, response: ListOffsetsResponse) -> None:
        ask_start = []
        for part in response.partitions:
            asked = self._asked[part.topic_partition]
            if part.error is not ErrorCode.NONE or part.offset is None:
                self._pass_offsets(asked, part)
            else:
                asked.log_end_offset = part.offset
                ask_start.append(part.topic_partition)
        if ask_start:
            self._list_offsets(ask_start, EARLIEST)

    def _earliest_answered(self, response: ListOffsetsResponse) -> None:
        for part in response.partitions:
            self._pass_offsets(self._asked[part.topic_partition], part)

    def _pass_offsets(self, asked: Asked, part: ListOffsetsPartitionResponse) -> None:
        self._release([part.topic_partition])
        if self._is_obsolete(asked):
            return
        self._replicas.step(
            asked.replica,
            OffsetsAnswered(
                asked.question.leader_epoch,
                part.error,
                -1 if part.offset is None else part.offset,
                asked.log_end_offset,
                self._turn.now_ms,
            ),
        )

    def _ask_epochs(self, asked: list[Asked]) -> None:
        partitions = []
        for item in asked:
            assert isinstance(item.question, EpochQuestion), "chosen by kind"
            partitions.append(
                EpochPartition(
                    item.replica.topic_partition, item.question.leader_epoch, item.question.epoch
                )
            )
        request = OffsetForLeaderEpoch(self._config.broker_id, partitions)
        self._send(request, [p.topic_partition for p in partitions], self._epochs_answered)

    def _epochs_answered(self, response: OffsetForLeaderEpochResponse) -> None:
        for part in response.partitions:
            self._pass_epoch_end(self._asked[part.topic_partition], part)

    def _pass_epoch_end(self, asked: Asked, part: EpochPartitionResponse) -> None:
        self._release([part.topic_partition])
        question = asked.question
        if self._is_obsolete(asked) or not isinstance(question, EpochQuestion):
            return
        self._replicas.step(
            asked.replica,
            EpochEndAnswered(
                question.leader_epoch, question.epoch, part.error, part.end, self._turn.now_ms
            ),
        )

    def _is_obsolete(self, asked: Asked) -> bool:
        """Whether the partition is no longer followed at this leader."""
        return self._partitions.replicas.get(asked.replica.topic_partition) is not asked.replica
