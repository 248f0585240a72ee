"""A producer: append batches one at a time and report whether they are in the log.

An idempotent producer (the default) numbers its records for each partition. A batch that is
sent again carries the same numbers, so a broker that has it already does not write it twice.
Invariant: `append` returns only when the batch is in the log, once. `Unresolved` means that the
time was up before the outcome was known; any other error means that the batch is not in the log.

Without idempotence a batch is sent again only if it is certain that nothing of it was written.
Batches go through `BatchSender`, as those of Spark's sink do.
"""

from collections.abc import Callable, Sequence

from tidelog.core.api_table import INIT_PRODUCER_ID
from tidelog.core.errors import ErrorCode
from tidelog.core.record.compression import Codec
from tidelog.core.record.crc32c import Buffer
from tidelog.core.record.encoder import NO_PRODUCER, encode_batch
from tidelog.core.record.encoder import Producer as ProducerStamp
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import MAX_SEQUENCE
from tidelog.core.types import Offset, TopicPartition
from tidelog.shell.client.batch_sender import (
    ALL,
    ANSWER_S,
    NO_OFFSET,
    WRITTEN_UNKNOWN_OFFSET,
    BatchSender,
    Outgoing,
    Produced,
    send_produce,
)
from tidelog.shell.client.client_errors import (
    BrokerError,
    ClientError,
    Unresolved,
)
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import TopicMetadata
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.retry import Retry

__all__ = ["ALL", "NO_OFFSET", "Produced", "Producer", "init_producer_id", "produce"]

REQUEST_TIMEOUT_MS = 5_000
"""How long a broker waits for replicas before it returns REQUEST_TIMED_OUT."""
TIMEOUT_S = 30.0
_NO_TRANSACTION_TIMEOUT_MS = 2**31 - 1
_REQUEST = "request for a producer id"
_NO_IDS = "the broker gets no ids while no controller or no metadata store responds"


class Producer:
    """Appends to any partition; `timeout_s` bounds each append, retries included.

    `waiting` is called with the error before each retry.
    """

    def __init__(
        self,
        cluster: Cluster,
        acks: int = ALL,
        *,
        idempotent: bool = True,
        timeout_s: float = TIMEOUT_S,
        codec: Codec = Codec.NONE,
        waiting: Callable[[Exception], object] = lambda _error: None,
    ) -> None:
        if idempotent and acks != ALL:
            raise ValueError("idempotence needs acks=all (-1)")
        self.cluster = cluster
        self.timeout_s = timeout_s
        self.codec = codec
        self._waiting = waiting
        self._idempotent = idempotent
        self._id: tuple[int, int] | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._sender = _AppendSender(
            cluster,
            timeout_s=timeout_s,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            answer_s=min(cluster.timeout_s, ANSWER_S),
            acks=acks,
            idempotent=idempotent,
        )

    def append(self, topic: str, partition: int, records: Sequence[Record]) -> Offset:
        """Append the records as one batch and return the offset of the first record.

        -1: the offset is unknown (acks=0, or a retry so late that the broker forgot the batch).
        """
        key = TopicPartition(topic, partition)
        retry = self._sender.retry = Retry(self.timeout_s, waiting=self._waiting)
        stamp = self._stamp(key, retry) if self._idempotent else NO_PRODUCER
        batch = encode_batch(records, attributes=self.codec, producer=stamp)
        try:
            self._sender.send(key, batch, stamp.sequence, len(records))
            self._sender.flush()
        except BaseException as error:
            # These sequence numbers may be used up, and no other records may get them:
            # continue under a new producer id.
            self._id = None
            self._sequences.clear()
            maybe_written = self._sender.abandon()
            if maybe_written and isinstance(error, ClientError):
                raise _unresolved(error) from None
            raise
        self._sequences[key] = (stamp.sequence + len(records)) & MAX_SEQUENCE
        return self._sender.acknowledged[key].base_offset

    def _stamp(self, key: TopicPartition, retry: Retry) -> ProducerStamp:
        if self._id is None:
            self._id = init_producer_id(self.cluster, retry)
        return ProducerStamp(*self._id, self._sequences.get(key, 0))


class _AppendSender(BatchSender):
    """Counts a batch as written if the broker reports that its sequence numbers are duplicates."""

    def _judge(self, key: TopicPartition, batch: Outgoing, produced: Produced) -> None:
        if produced.error == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            produced = produced._replace(error=ErrorCode.NONE)
        super()._judge(key, batch, produced)


def _unresolved(error: ClientError) -> ClientError:
    if isinstance(error, Unresolved):
        return error
    return Unresolved(f"{error}; the batch may be in the log")


def produce(
    leader: KafkaConnection,
    topic: TopicMetadata,
    partition: int,
    batch: Buffer,
    acks: int = ALL,
    timeout_ms: int = REQUEST_TIMEOUT_MS,
) -> Produced:
    """Send one encoded batch once and return the broker's response, error codes included.

    Raises ClientError only if there is no response.
    """
    key = TopicPartition(topic.name, partition)
    answer_s = min(leader.timeout_s, ANSWER_S)
    pending = send_produce(leader, {topic.name: topic}, {key: batch}, acks, timeout_ms, answer_s)
    return WRITTEN_UNKNOWN_OFFSET if acks == 0 else pending.receive(leader)[key]


def init_producer_id(cluster: Cluster, retry: Retry | None = None) -> tuple[int, int]:
    """Request a unique producer id; return it with its epoch."""
    retry = retry or Retry(cluster.timeout_s)
    request = {"transactional_id": None, "transaction_timeout_ms": _NO_TRANSACTION_TIMEOUT_MS}
    while True:
        try:
            answer = cluster.ask_any(lambda broker: broker.call(INIT_PRODUCER_ID, request))
            if not answer["error_code"]:
                return answer["producer_id"], answer["producer_epoch"]
            code = answer["error_code"]
            why = _NO_IDS if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else None
            retry.failed(BrokerError(_REQUEST, code, why))
        except Unresolved as failed:
            # No record was sent, and an unused producer id is harmless.
            retry.wait(ClientError(f"{_REQUEST} failed: {failed}"))
