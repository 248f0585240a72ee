"""Send the batches of one Spark task, and detect other attempts of the same task.

All attempts of a task use the same producer id, epoch and sequence numbers. A broker therefore
acknowledges a batch that another attempt has written. Such an acknowledgement is accepted only
if the batch in the log holds the same rows.

Invariant: an acknowledged batch is in the log of all in-sync replicas; a batch of another
attempt with other rows raises Conflict.
"""

from collections.abc import Iterable

from tidelog.apps.spark.sink.sink_errors import Conflict, SinkError, TooLarge, TooLate
from tidelog.core.errors import ErrorCode
from tidelog.core.record.decoder import decode
from tidelog.core.record.record_batch import RecordBatch, batches, parse
from tidelog.core.types import Offset, TopicPartition
from tidelog.shell.client.batch_sender import (
    ANSWER_S,
    OUT_OF_ORDER,
    BatchSender,
    Outgoing,
    Produced,
)
from tidelog.shell.client.client_errors import BrokerError, ClientError, error_name
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.fetching import fetch_partition
from tidelog.shell.client.retry import Retry

REPLICAS_WAIT_MS = 15_000
"""How long a leader waits for its followers before it returns REQUEST_TIMED_OUT."""
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class TaskSender(BatchSender):
    """Sends the batches of one task. `connections` outlive it; after an error they must not be
    used again."""

    def __init__(
        self,
        cluster: Cluster,
        connections: dict[str, KafkaConnection],
        delivery_s: float,
        batch_bytes: int,
    ) -> None:
        timeout_ms = min(REPLICAS_WAIT_MS, int(cluster.timeout_s * 1000))
        super().__init__(
            cluster,
            timeout_s=delivery_s,
            request_timeout_ms=timeout_ms,
            answer_s=cluster.timeout_s + ANSWER_S - timeout_ms / 1000,
            connections=connections,
        )
        self._batch_bytes = batch_bytes
        self._log_append_time: set[str] = set()
        """Topics with LogAppendTime: their responses always contain a time."""

    def accept(self, key: TopicPartition, batch: Outgoing, produced: Produced) -> None:
        """Compare the rows if the batch may have been in the log before.

        A response contains a time if the topic has LogAppendTime, or if the batch was there
        before. A time before 1970 looks like none, so such batches are always compared.
        """
        has_time = produced.log_append_time_ms >= 0
        if not has_time and parse(batch.data).max_timestamp >= 0:
            return
        if key.topic in self._log_append_time:
            return
        found = batch_at(self.cluster, key, produced.base_offset)
        if found.is_log_append_time:
            self._log_append_time.add(key.topic)
        elif not same_records(found, parse(batch.data)):
            raise Conflict(key, batch.sequence, "with other rows")

    def refusal(self, key: TopicPartition, batch: Outgoing, produced: Produced) -> Exception:
        code = produced.error
        if code == ErrorCode.NONE:
            return Conflict(key, batch.sequence, "ahead of this attempt")
        if code in _TOO_LARGE:
            return TooLarge(key, len(batch.data), batch.count, self._batch_bytes)
        if code == ErrorCode.INVALID_PRODUCER_EPOCH:
            return TooLate(key)
        if code in OUT_OF_ORDER:
            return Conflict(key, batch.sequence, error_name(code))
        return super().refusal(key, batch, produced)

    def gave_up(self, failure: ClientError, waiting: Iterable[Outgoing]) -> Exception:
        rows = sum(batch.count for batch in waiting)
        return SinkError(
            f"{rows} rows were not acknowledged within {self.timeout_s:g} s"
            f" (kafka.delivery.timeout.ms): {failure}"
        )


def batch_at(cluster: Cluster, key: TopicPartition, offset: Offset) -> RecordBatch:
    """Fetch the batch that contains an offset; wait until the high watermark has reached it."""

    def attempt() -> RecordBatch:
        found = fetch_partition(cluster, key, offset, max_bytes=1, max_wait_ms=1000)
        batch = next(batches(found.records), None)
        if batch is None:
            raise BrokerError(f"fetch of {key} at offset {offset}", ErrorCode.OFFSET_NOT_AVAILABLE)
        return batch

    return Retry(cluster.timeout_s).call(attempt)


def same_records(one: RecordBatch, other: RecordBatch) -> bool:
    """Whether two batches hold the same rows, however they are compressed."""
    if one.crc == other.crc:
        return True
    return one.count == other.count and all(
        (a.key, a.value, a.headers) == (b.key, b.value, b.headers)
        for a, b in zip(decode(one), decode(other), strict=True)
    )
