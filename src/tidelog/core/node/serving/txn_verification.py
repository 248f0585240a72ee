"""Requests to transaction coordinators: is this partition in the producer's transaction?

Before a leader appends the first batch of a transaction, the coordinator of the transactional id
must confirm that the partition is in an ongoing transaction, or add it (transaction version 2).
Without this, a late batch could begin a transaction that no marker ends (KIP-890).

A question is sent to the leader of the id's partition of `__transaction_state`. While several
requests to one broker are open, further questions wait and then share one request. If the
coordinator still ends the previous transaction, an addition is repeated for a short time, as in
Kafka: that is faster than a retry of the client.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.coordinator.lookup import TRANSACTIONS_TOPIC, partition_for
from tidelog.core.errors import ErrorCode
from tidelog.core.lineage.verification import Verification
from tidelog.core.node.calls import Calls
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.deadlines import Deadlines
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.measuring.counters import NS_PER_MS
from tidelog.core.node.messages import (
    AddPartitionsToTxn,
    AddPartitionsToTxnResponse,
    TxnPartitions,
)
from tidelog.core.node.turn import Turn
from tidelog.core.slotted import slotted
from tidelog.core.types import BrokerId, TopicPartition

REQUESTS_AT_ONCE = 4
"""Open requests to one broker. Later questions wait for a response, and then share a request."""

Then: TypeAlias = Callable[[ErrorCode], None]
"""Called once with the coordinator's result; NONE if the batch may be appended."""
Renew: TypeAlias = Callable[[], None]
"""Called each time before the coordinator is asked; puts back a removed verification."""
Postponed: TypeAlias = Callable[[], None]
"""Called when the coordinator will be asked again later."""
Answered: TypeAlias = Callable[[AddPartitionsToTxnResponse], None]
AskLocal: TypeAlias = Callable[[AddPartitionsToTxn, Answered], None]
"""Passes a request to this broker's own coordinator."""


def _ignore() -> None:
    """Do nothing: nothing waits for this request."""


class TxnProducer(NamedTuple):
    """A transactional producer; `add`: whether the coordinator may add partitions."""

    transactional_id: str
    id: int
    epoch: int
    add: bool


@slotted(eq=False)
class Question:
    """One partition of one transaction."""

    producer: TxnProducer
    topic_partition: TopicPartition
    then: Then
    renew: Renew
    postponed: Postponed
    repeat_until_ms: int
    """Until when to ask again if the previous transaction is not complete."""


class TxnVerification:
    """Asks transaction coordinators about partitions."""

    def __init__(
        self,
        config: NodeConfig,
        turn: Turn,
        image: ClusterImage,
        calls: Calls,
        replicas: Replicas,
        ask_local: AskLocal,
    ) -> None:
        self.deadlines: Deadlines[Question] = Deadlines()
        """Questions to repeat."""
        self._config = config
        self._turn = turn
        self._image = image
        self._calls = calls
        self._replicas = replicas
        self.ask_local = ask_local
        self._waiting: dict[BrokerId, list[Question]] = {}
        self._open: dict[BrokerId, int] = {}
        """The number of open requests by broker."""
        self._revision = image.revision
        """The revision of the metadata by which the questions were queued."""

    def verify(
        self,
        topic_partition: TopicPartition,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        add: bool,
        then: Then,
    ) -> None:
        """Verify one partition, for a coordinator that appends to its log; `then` may be called
        at once. NONE allows an append with `verified` in this step."""
        replica = self._replicas.hosted.get(topic_partition)
        if replica is None:
            then(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        producer = TxnProducer(transactional_id, producer_id, producer_epoch, add)
        state = replica.log.producers
        needed = self.needed(producer)
        found: Verification | ErrorCode = ErrorCode.NONE
        if needed:
            found = state.begin_verification(
                producer_id, producer_epoch, -1, adds=False, wall_ms=self._turn.wall_ms
            )
        if isinstance(found, ErrorCode):
            then(found)
            return
        verification = found

        def renew() -> None:
            nonlocal verification
            verification = state.renew_verification(producer_id, verification)

        def answered(error: ErrorCode) -> None:
            if error is ErrorCode.NONE and not (
                state.verifications.get(producer_id) is verification
                or state.has_transaction(producer_id, producer_epoch)
            ):
                error = ErrorCode.INVALID_TXN_STATE  # a marker has ended the transaction
            then(error)

        self.ask(producer, topic_partition, answered, renew)
        self.send()

    def needed(self, producer: TxnProducer) -> bool:
        """Whether the coordinator must be asked; partitions are always added."""
        return producer.add or self._config.transaction_partition_verification_enable

    def ask(
        self,
        producer: TxnProducer,
        topic_partition: TopicPartition,
        then: Then,
        renew: Renew,
        postponed: Postponed = _ignore,
    ) -> None:
        """Add a question, for `send`. `then` may be called at once, with an error."""
        if not producer.transactional_id:
            then(ErrorCode.INVALID_REQUEST)
            return
        until_ms = self._turn.now_ms
        if producer.add:
            until_ms += self._config.add_partitions_to_txn_retry_backoff_max_ms
        self._queue(Question(producer, topic_partition, then, renew, postponed, until_ms))

    def _queue(self, question: Question) -> None:
        broker = self._coordinator(question.producer.transactional_id)
        if broker is None:
            question.then(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            self._waiting.setdefault(broker, []).append(question)

    def _coordinator(self, transactional_id: str) -> BrokerId | None:
        """Return the broker that coordinates an id, if there is one."""
        known = self._image.topics.get(TRANSACTIONS_TOPIC)
        if known is None:
            return None
        index = partition_for(transactional_id, known.partition_count)
        partition = self._image.partition(TRANSACTIONS_TOPIC, index)
        if partition is None or partition.leader is None:
            return None
        leader = self._image.brokers.get(partition.leader)
        return None if leader is None or leader.fenced else leader.id

    def send(self) -> None:
        """Send the questions that wait, as far as not too many requests are open."""
        if self._revision != self._image.revision:
            self._revision = self._image.revision
            queued, self._waiting = self._waiting, {}
            for question in (each for questions in queued.values() for each in questions):
                self._queue(question)  # the coordinator may have moved from a broker that hangs
        waiting, self._waiting = self._waiting, {}
        for broker, questions in waiting.items():
            if self._open.get(broker, 0) < REQUESTS_AT_ONCE:
                self._send(broker, questions)
            else:
                self._waiting[broker] = questions

    def _send(self, broker: BrokerId, questions: list[Question]) -> None:
        groups: dict[TxnProducer, list[Question]] = {}
        for question in questions:
            question.renew()
            groups.setdefault(question.producer, []).append(question)
        request = AddPartitionsToTxn(
            tuple(
                TxnPartitions(
                    producer.transactional_id,
                    producer.id,
                    producer.epoch,
                    not producer.add,
                    tuple(dict.fromkeys(question.topic_partition for question in group)),
                )
                for producer, group in groups.items()
            )
        )
        self._open[broker] = self._open.get(broker, 0) + 1
        counts, sent_ms = self._turn.counters.transactions, self._turn.now_ms

        def done() -> None:
            self._open[broker] -= 1
            counts.verifications.note((self._turn.now_ms - sent_ms) * NS_PER_MS)

        def answered(response: AddPartitionsToTxnResponse) -> None:
            done()
            for group, results in zip(groups.values(), response.results, strict=True):
                for question in group:
                    error = results.get(question.topic_partition, ErrorCode.UNKNOWN_SERVER_ERROR)
                    counts.verification_failures += error is not ErrorCode.NONE
                    self._answered(question, error)
            self.send()

        def failed() -> None:
            done()
            counts.verification_failures += len(questions)
            for question in questions:
                question.then(ErrorCode.NETWORK_EXCEPTION)
            self.send()

        if broker == self._config.broker_id:
            self.ask_local(request, answered)
        else:
            timeout_ms = self._config.request_timeout_ms
            self._calls.send(broker, request, timeout_ms, answered, failed)

    def _answered(self, question: Question, error: ErrorCode) -> None:
        now_ms = self._turn.now_ms
        if error is ErrorCode.CONCURRENT_TRANSACTIONS and now_ms < question.repeat_until_ms:
            question.postponed()
            backoff_ms = self._config.add_partitions_to_txn_retry_backoff_ms
            self.deadlines.add(question, now_ms + backoff_ms)
        elif error is ErrorCode.PRODUCER_FENCED:
            question.then(ErrorCode.INVALID_PRODUCER_EPOCH)
        else:
            question.then(error)

    def tick(self) -> None:
        """Repeat questions."""
        for question in self.deadlines.due(self._turn.now_ms):
            self._queue(question)
        self.send()

    def next_ms(self) -> int | None:
        """The time at which `tick` must be called; None if no request is repeated."""
        return self.deadlines.next_ms()
