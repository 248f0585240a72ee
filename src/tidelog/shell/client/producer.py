"""Appending batches, one at a time, and knowing whether they are in the log.

An idempotent producer (the default) numbers its records for each partition; a batch that is
sent again carries the same numbers, so a broker that has it already says so and writes
nothing. Always true: `append` returns only when the batch is in the log, once; `Unresolved`
says that the time was up before that was known; any other error, that it is not there.

Without idempotence a batch is sent again only if surely nothing of it was written.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.core.errors import ErrorCode
from tidelog.core.record.compression import Codec
from tidelog.core.record.crc32c import Buffer
from tidelog.core.record.encoder import NO_PRODUCER, encode_batch
from tidelog.core.record.encoder import Producer as ProducerStamp
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import MAX_SEQUENCE
from tidelog.core.types import Offset, TopicPartition
from tidelog.shell.client.api_keys import INIT_PRODUCER_ID, PRODUCE
from tidelog.shell.client.client_errors import (
    BrokerError,
    CannotConnect,
    ClientError,
    Unresolved,
)
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import NO_TOPIC_ID, TopicMetadata
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.retry import Retry

ALL = -1
NO_OFFSET = -1
REQUEST_TIMEOUT_MS = 5_000
"""How long a broker may wait for replicas before it says that it gave up."""
ANSWER_S = 2.0
TIMEOUT_S = 30.0
LAST_VERSION_WITH_NAMES = 12
_NO_TRANSACTION_TIMEOUT_MS = 2**31 - 1
_NOTHING_WRITTEN = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""A leader that loses its office answers NOT_LEADER_OR_FOLLOWER for batches it has written."""


class Produced(NamedTuple):
    """A broker's answer for one batch."""

    error: int
    base_offset: Offset
    log_append_time_ms: int
    log_start_offset: Offset
    message: str | None


class Producer:
    """Appends to any partition; `timeout_s` bounds each append, retries included."""

    def __init__(
        self,
        cluster: Cluster,
        acks: int = ALL,
        *,
        idempotent: bool = True,
        timeout_s: float = TIMEOUT_S,
        codec: Codec = Codec.NONE,
    ) -> None:
        if idempotent and acks != ALL:
            raise ValueError("idempotence needs acks=all (-1)")
        self.cluster = cluster
        self.acks = acks
        self.timeout_s = timeout_s
        self.codec = codec
        self._idempotent = idempotent
        self._id: tuple[int, int] | None = None
        self._sequences: dict[TopicPartition, int] = {}

    def append(self, topic: str, partition: int, records: Sequence[Record]) -> Offset:
        """Append the records as one batch; the offset of the first, -1 if nobody says it (with
        acks=0, or a retry so late that the broker no longer knows)."""
        key = TopicPartition(topic, partition)
        retry = Retry(self.timeout_s)
        stamp = self._stamp(key, retry) if self._idempotent else NO_PRODUCER
        batch = encode_batch(records, attributes=self.codec, producer=stamp)
        try:
            produced = self._settle(key, batch, retry)
        except BaseException:
            # Whether these numbers are used up is not always known, and they must never be
            # given to other records: go on as another producer.
            self._id = None
            self._sequences.clear()
            raise
        self._sequences[key] = (stamp.sequence + len(records)) & MAX_SEQUENCE
        return produced.base_offset

    def _stamp(self, key: TopicPartition, retry: Retry) -> ProducerStamp:
        if self._id is None:
            self._id = init_producer_id(self.cluster, retry)
        return ProducerStamp(*self._id, self._sequences.get(key, 0))

    def _settle(self, key: TopicPartition, batch: Buffer, retry: Retry) -> Produced:
        """Send until the batch is known to be in the log."""
        maybe_written = False
        first = True
        while True:
            error: ClientError
            try:
                if not first:
                    self.cluster.refresh([key.topic])
                first = False
                produced = self._send(key, batch, retry)
                if produced.error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    return produced
                error = BrokerError(f"append to {key}", produced.error, produced.message)
                maybe_written |= error.retriable and produced.error not in _NOTHING_WRITTEN
                again = error.retriable
            except ClientError as failed:
                error = failed
                maybe_written |= isinstance(failed, Unresolved)
                again = isinstance(failed, CannotConnect | Unresolved)
            if not again or (maybe_written and not self._idempotent):
                raise _verdict(error, maybe_written)
            retry.wait(_verdict(error, maybe_written))

    def _send(self, key: TopicPartition, batch: Buffer, retry: Retry) -> Produced:
        leader = self.cluster.leader(*key, retry)
        topic = self.cluster.topic(key.topic)
        broker = self.cluster.broker(leader.leader)
        left_ms = max(int(retry.remaining_s * 1000), 1)
        timeout_ms = min(REQUEST_TIMEOUT_MS, left_ms)
        return produce(broker, topic, key.partition, batch, self.acks, timeout_ms)


def _verdict(error: ClientError, maybe_written: bool) -> ClientError:
    if maybe_written and not isinstance(error, Unresolved):
        return Unresolved(f"{error}; it may be in the log all the same")
    return error


def produce(
    leader: KafkaConnection,
    topic: TopicMetadata,
    partition: int,
    batch: Buffer,
    acks: int = ALL,
    timeout_ms: int = REQUEST_TIMEOUT_MS,
) -> Produced:
    """Send one ready-made batch once; what the broker says. Raises ClientError only if it
    says nothing."""
    request = {
        "transactional_id": None,
        "acks": acks,
        "timeout_ms": timeout_ms,
        "topic_data": [
            {
                "name": topic.name,
                "topic_id": topic.id,
                "partition_data": [{"index": partition, "records": batch}],
            }
        ],
    }
    newest = None if topic.id != NO_TOPIC_ID else LAST_VERSION_WITH_NAMES
    if acks == 0:
        leader.send(PRODUCE, request, newest)
        return Produced(ErrorCode.NONE, NO_OFFSET, -1, -1, None)
    # The broker itself waits up to timeout_ms for replicas; its answer needs a way back.
    wait_s = timeout_ms / 1000 + min(leader.timeout_s, ANSWER_S)
    answer = leader.call(PRODUCE, request, newest, wait_s)
    found = answer["responses"][0]["partition_responses"][0]
    return Produced(
        found["error_code"],
        found["base_offset"],
        found.get("log_append_time_ms", -1),
        found.get("log_start_offset", -1),
        found.get("error_message"),
    )


def init_producer_id(cluster: Cluster, retry: Retry | None = None) -> tuple[int, int]:
    """A producer id that nobody else has, and its epoch."""
    retry = retry or Retry(cluster.timeout_s)
    request = {"transactional_id": None, "transaction_timeout_ms": _NO_TRANSACTION_TIMEOUT_MS}
    while True:
        try:
            answer = cluster.ask_any(lambda broker: broker.call(INIT_PRODUCER_ID, request))
            if not answer["error_code"]:
                return answer["producer_id"], answer["producer_epoch"]
            error = BrokerError("getting a producer id", answer["error_code"])
            retry.failed(error)
        except Unresolved as failed:
            retry.wait(failed)  # an id that was given and not heard of is no loss
