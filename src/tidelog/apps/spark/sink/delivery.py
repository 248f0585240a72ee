"""One attempt of one task: write its rows to topics, each row once.

begin: find the rows of earlier attempts, if there may have been any. The first attempt of a batch
needs no search: brokers detect duplicates by sequence number. append: skip the rows that were
found; encode and send the others. settle: wait until all batches are acknowledged, and check that
every row found was also a row of this attempt.

All attempts of a task use the same producer id, epoch and sequence numbers. A broker therefore
acknowledges a batch that another attempt has written. Such an acknowledgement is accepted only if
the batch in the log holds the same rows.

Invariants: after `settle` every row of the task is in its topic once. An acknowledged batch is in
the log of all in-sync replicas; a batch of another attempt with other rows raises Conflict.

In a transaction each attempt is a producer of its own: see transactional_delivery.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidelog.apps.spark.encoding.encoder import (
    BatchEncoder,
    EncodedBatch,
    Rows,
    as_binary,
    timestamps_ms,
)
from tidelog.apps.spark.sink.found_rows import (
    Ends,
    FoundRows,
    Starts,
    find_rows,
    row_digest,
)
from tidelog.apps.spark.sink.identity import Origin, identity_of
from tidelog.apps.spark.sink.routing import Routing, Targets
from tidelog.apps.spark.sink.sink_errors import (
    Conflict,
    RowsCompacted,
    RowsDiffer,
    SinkError,
    TooLarge,
    TooLate,
)
from tidelog.apps.spark.sink.write_options import SinkColumns, WriteOptions
from tidelog.core.errors import ErrorCode
from tidelog.core.record.decoder import decode
from tidelog.core.record.record_batch import RecordBatch, parse
from tidelog.core.types import TopicPartition
from tidelog.shell.client.batch_sender import (
    ANSWER_S,
    OUT_OF_ORDER,
    Acknowledged,
    BatchSender,
    Outgoing,
    Produced,
)
from tidelog.shell.client.client_errors import ClientError, error_name
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.fetching import fetch_batch

OPEN_BYTES_MAX = 64 * 1024 * 1024
"""Maximum bytes of rows in open batches: with thousands of partitions these fill slowly."""
REPLICAS_WAIT_MS = 15_000
"""How long a leader waits for its followers before it returns REQUEST_TIMED_OUT."""
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class Delivered(NamedTuple):
    """The result of a task."""

    rows: int
    """Number of rows that this attempt wrote."""
    found: int
    """Number of rows that earlier attempts wrote."""
    ends: Ends
    tasks: frozenset[int]
    """Tasks of this micro-batch whose rows were found."""


class Channel(NamedTuple):
    """How a task's rows reach the brokers."""

    encoder: BatchEncoder
    sender: BatchSender


class Delivery:
    """Writes the rows of a task that earlier attempts did not write.

    `search`: an earlier attempt may have written rows; `starts`: the offsets from which to search.
    """

    def __init__(
        self,
        cluster: Cluster,
        connections: dict[str, KafkaConnection],
        options: WriteOptions,
        columns: SinkColumns,
        origin: Origin,
        *,
        search: bool,
        starts: Starts,
    ) -> None:
        self._cluster = cluster
        self._connections = connections
        self._options = options
        self._columns = columns
        self._origin = origin
        self._search = search
        self._starts = starts
        self._identity = identity_of(origin)
        self._found: dict[str, FoundRows] = {}
        self._rows = 0
        self._open_bytes = 0
        self._sequences: dict[int, int] = {}
        """The next sequence number of each target, if it is not 0."""
        self._channel: Channel | None = None
        first = origin.batch + origin.task
        self._routing = Routing(cluster, columns, options.topic, first, self._begin_topic)

    def begin(self) -> None:
        """Find the rows of earlier attempts. Call this before the first `append`."""
        if self._search and self._options.topic is not None:
            self._routing.begin(self._options.topic)

    def append(self, batch: Any) -> None:
        """Encode and send the rows of an Arrow batch. Raises SinkError, ClientError."""
        if not batch.num_rows:
            return
        targets = self._routing.route(batch)
        if any(found.rows for found in self._found.values()):
            is_new = self._not_found(batch, targets)
            batch, targets = batch.filter(pa.array(is_new)), targets[is_new]
        columns = self._columns
        rows = Rows(
            key=_optional_column(batch, columns.key),
            value=_optional_column(batch, columns.value),
            headers=_optional_column(batch, columns.headers),
            timestamp_ms=timestamps_ms(
                _optional_column(batch, columns.timestamp), batch.num_rows, int(time.time() * 1000)
            ),
        )
        if not batch.num_rows:
            return
        self._rows += batch.num_rows
        self._open_bytes += batch.nbytes
        channel = self._channel = self._channel or self._open_channel()
        self._before_targets(targets)
        self._send_all(channel.sender, channel.encoder.append(rows, targets))
        if self._open_bytes > OPEN_BYTES_MAX:
            self._send_all(channel.sender, channel.encoder.finish())
            self._open_bytes = 0
        channel.sender.post()

    def settle(self) -> Delivered:
        """Wait until all batches are acknowledged. Raises SinkError, ClientError."""
        acknowledged: Mapping[TopicPartition, Acknowledged] = {}
        if self._channel is not None:
            encoder, sender = self._channel
            self._send_all(sender, encoder.finish())
            sender.flush()
            acknowledged = sender.acknowledged
        self._check_left()
        ends: Ends = {}
        for topic, found in self._found.items():
            ends.setdefault(topic, {}).update(found.ends)
        for (topic, partition), last in acknowledged.items():
            ends.setdefault(topic, {})[partition] = last.end
        found_rows = sum(found.total for found in self._found.values())
        tasks = frozenset[int]().union(*(found.tasks for found in self._found.values()))
        return Delivered(self._rows, found_rows, ends, tasks)

    def _open_channel(self) -> Channel:
        """Return the encoder and sender, before the first row is written."""
        options = self._options
        encoder = BatchEncoder(
            self._identity.producer_id,
            self._identity.epoch,
            self._sequences,
            codec=options.codec,
            batch_bytes=options.batch_bytes,
        )
        sender = TaskSender(
            self._cluster, self._connections, options.delivery_s, options.batch_bytes
        )
        return Channel(encoder, sender)

    def _before_targets(self, targets: Targets) -> None:
        """Prepare the partitions that rows will be sent to."""

    def _continue_at(self, target: int, sequence: int) -> None:
        """Continue the sequence numbers of the rows found in a partition."""
        if self._channel is None:
            self._sequences[target] = sequence
        else:
            self._channel.encoder.sequences[target] = sequence

    def _begin_topic(self, topic: str) -> None:
        if not self._search:
            return
        partitions = self._cluster.topic(topic).partitions
        found = find_rows(
            self._cluster,
            topic,
            partitions,
            self._identity,
            self._starts,
            own_times=self._columns.timestamp is not None,
        )
        if found.compacted and not self._options.accept_mismatch:
            raise RowsCompacted(topic, sum(found.compacted.values()))
        self._found[topic] = found
        for partition, sequence in found.next_sequence.items():
            self._continue_at(self._routing.target_of(topic, partition), sequence)

    def _not_found(self, batch: Any, targets: Targets) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return a mask of the rows that earlier attempts did not write.

        This handles rows one by one, but only after a failure, and only until all rows found are
        matched.
        """
        keys = _values(batch, self._columns.key)
        values = _values(batch, self._columns.value)
        headers = _values(batch, self._columns.headers)
        is_new = np.ones(batch.num_rows, np.bool_)
        for row in range(batch.num_rows):
            found = self._found.get(self._routing.targets[targets[row]].topic)
            if found is not None and found.rows:
                pairs = [(each["key"], each["value"]) for each in headers[row] or ()]
                digest = row_digest(keys[row], values[row], pairs)
                is_new[row] = not found.remove(digest)
        return is_new

    def _send_all(self, sender: BatchSender, batches: Iterable[EncodedBatch]) -> None:
        for each in batches:
            key = self._routing.targets[each.target]
            sender.send(key, each.data, each.base_sequence, each.count)
            self._open_bytes -= len(each.data)

    def _check_left(self) -> None:
        left = {topic: found.left for topic, found in self._found.items() if found.left}
        if left and not self._options.accept_mismatch:
            topics = ", ".join(sorted(left))
            raise RowsDiffer(
                f"batch {self._origin.batch}, task {self._origin.task}: {sum(left.values())} rows"
                f" that an earlier attempt wrote to {topics} are missing in this attempt"
            )


def _optional_column(batch: Any, place: int | None) -> Any:
    return None if place is None else batch.column(place)


def _values(batch: Any, place: int | None) -> list[Any]:
    """Return the values of a column; strings as bytes, as the topic stores them."""
    if place is None:
        return [None] * batch.num_rows
    column = batch.column(place)
    headers = pa.types.is_list(column.type)
    return (column if headers else as_binary(column, "")).to_pylist()


class TaskSender(BatchSender):
    """Sends the batches of one task, and detects other attempts of the same task.

    `connections` are kept for the next task. After an error they must not be used again.
    """

    def __init__(
        self,
        cluster: Cluster,
        connections: dict[str, KafkaConnection],
        delivery_s: float,
        batch_bytes: int,
        transactional_id: str | None = None,
    ) -> None:
        timeout_ms = min(REPLICAS_WAIT_MS, int(cluster.timeout_s * 1000))
        super().__init__(
            cluster,
            timeout_s=delivery_s,
            request_timeout_ms=timeout_ms,
            answer_s=cluster.timeout_s + ANSWER_S - timeout_ms / 1000,
            connections=connections,
            transactional_id=transactional_id,
        )
        self._batch_bytes = batch_bytes
        self._log_append_time: set[str] = set()
        """Topics with LogAppendTime: their responses always contain a time."""

    def accept(self, key: TopicPartition, batch: Outgoing, produced: Produced) -> None:
        """Compare the rows if another attempt may have written the batch.

        A response contains a time if the topic has LogAppendTime, or if the log already had the
        batch. A time before 1970 looks like a missing time, so such batches are always compared.
        """
        has_time = produced.log_append_time_ms >= 0
        if not has_time and parse(batch.data).max_timestamp >= 0:
            return
        if key.topic in self._log_append_time:
            return
        found = fetch_batch(self.cluster, key, produced.base_offset)
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


def same_records(one: RecordBatch, other: RecordBatch) -> bool:
    """Whether two batches hold the same rows; they may be compressed differently."""
    if one.crc == other.crc:
        return True
    return one.count == other.count and all(
        (a.key, a.value, a.headers) == (b.key, b.value, b.headers)
        for a, b in zip(decode(one), decode(other), strict=True)
    )
