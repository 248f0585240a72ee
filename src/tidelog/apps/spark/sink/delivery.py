"""One attempt of one task: write its rows to topics, each of them once.

begin: in the first attempt of a batch nothing is looked up, because the sequence numbers of the
batches suffice: a broker refuses duplicates. If there may have been an earlier attempt, its rows
are found first. append: rows that are already there are left out; the others are encoded and sent.
settle: all batches are acknowledged, and every row found was one of this task's.

Invariant: after `settle` every row of the task is in its topic once. Transactions can replace this
with the same three steps; `begin` then has nothing to find.
"""

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidelog.apps.spark.encoding.encoder import BatchEncoder, EncodedBatch, Rows, timestamps_ms
from tidelog.apps.spark.encoding.row_columns import as_binary
from tidelog.apps.spark.sink.found_rows import (
    Ends,
    FoundRows,
    Starts,
    find_rows,
    row_digest,
)
from tidelog.apps.spark.sink.identity import Origin, identity_of
from tidelog.apps.spark.sink.routing import Routing, Targets
from tidelog.apps.spark.sink.sink_errors import RowsDiffer, RowsGone
from tidelog.apps.spark.sink.task_sender import TaskSender
from tidelog.apps.spark.sink.write_options import SinkColumns, WriteOptions
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection

HELD_BYTES_MAX = 64 * 1024 * 1024
"""Maximum bytes of rows in open batches: with thousands of partitions these fill slowly."""


class Delivered(NamedTuple):
    """The result of a task."""

    rows: int
    """Number of rows that this attempt wrote."""
    found: int
    """Number of rows that earlier attempts wrote."""
    ends: Ends
    tasks: frozenset[int]
    """Tasks of this micro-batch whose rows were found."""


class Delivery:
    """One attempt of a task: writes rows that earlier attempts did not write.

    `look`: an earlier attempt may have written rows; `starts`: where these can be.
    """

    def __init__(
        self,
        cluster: Cluster,
        connections: dict[str, KafkaConnection],
        options: WriteOptions,
        columns: SinkColumns,
        origin: Origin,
        *,
        look: bool,
        starts: Starts,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._columns = columns
        self._origin = origin
        self._look = look
        self._starts = starts
        self._identity = identity_of(origin)
        self._found: dict[str, FoundRows] = {}
        self._rows = 0
        self._held = 0
        self._sender = TaskSender(cluster, connections, options.delivery_s, options.batch_bytes)
        self._encoder = BatchEncoder(
            self._identity.producer_id,
            self._identity.epoch,
            {},
            codec=options.codec,
            batch_bytes=options.batch_bytes,
        )
        first = origin.batch + origin.task
        self._routing = Routing(cluster, columns, options.topic, first, self._begin_topic)

    def begin(self) -> None:
        """Find the rows of earlier attempts; call it before the first row."""
        if self._look and self._options.topic is not None:
            self._routing.begin(self._options.topic)

    def append(self, batch: Any) -> None:
        """Encode and send the rows of an Arrow batch. Raises SinkError, ClientError."""
        if not batch.num_rows:
            return
        targets = self._routing.route(batch)
        if any(found.rows for found in self._found.values()):
            fresh = self._not_found(batch, targets)
            batch, targets = batch.filter(pa.array(fresh)), targets[fresh]
        columns = self._columns
        rows = Rows(
            key=_column(batch, columns.key),
            value=_column(batch, columns.value),
            headers=_column(batch, columns.headers),
            timestamp_ms=timestamps_ms(
                _column(batch, columns.timestamp), batch.num_rows, int(time.time() * 1000)
            ),
        )
        self._rows += batch.num_rows
        self._held += batch.nbytes
        self._send_all(self._encoder.append(rows, targets))
        if self._held > HELD_BYTES_MAX:
            self._send_all(self._encoder.finish())
            self._held = 0
        self._sender.post()

    def settle(self) -> Delivered:
        """Wait until all rows are in the topics. Raises SinkError, ClientError."""
        self._send_all(self._encoder.finish())
        self._sender.flush()
        self._check_left()
        ends: Ends = {}
        for topic, found in self._found.items():
            ends.setdefault(topic, {}).update(found.ends)
        for (topic, partition), last in self._sender.acknowledged.items():
            ends.setdefault(topic, {})[partition] = last.end
        found_rows = sum(found.total for found in self._found.values())
        tasks = frozenset[int]().union(*(found.tasks for found in self._found.values()))
        return Delivered(self._rows, found_rows, ends, tasks)

    def _begin_topic(self, topic: str) -> None:
        if not self._look:
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
            raise RowsGone(topic, sum(found.compacted.values()))
        self._found[topic] = found
        for partition, sequence in found.next_sequence.items():
            self._encoder.sequences[self._routing.place(topic, partition)] = sequence

    def _not_found(self, batch: Any, targets: Targets) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return which rows earlier attempts did not write.

        This is the only place that handles rows one by one: only after a failure, and only until
        all rows found are matched.
        """
        keys = _values(batch, self._columns.key)
        values = _values(batch, self._columns.value)
        headers = _values(batch, self._columns.headers)
        fresh = np.ones(batch.num_rows, np.bool_)
        for row in range(batch.num_rows):
            found = self._found.get(self._routing.targets[targets[row]].topic)
            if found is not None and found.rows:
                pairs = [(each["key"], each["value"]) for each in headers[row] or ()]
                digest = row_digest(keys[row], values[row], pairs)
                fresh[row] = not found.take(digest)
        return fresh

    def _send_all(self, batches: Iterable[EncodedBatch]) -> None:
        for each in batches:
            key = self._routing.targets[each.target]
            self._sender.send(key, each.data, each.base_sequence, each.count)
            self._held -= len(each.data)

    def _check_left(self) -> None:
        left = {topic: found.left for topic, found in self._found.items() if found.left}
        if left and not self._options.accept_mismatch:
            topics = ", ".join(sorted(left))
            raise RowsDiffer(
                f"batch {self._origin.batch}, task {self._origin.task}: {sum(left.values())} rows"
                f" that an earlier attempt wrote to {topics} are not among those of this one"
            )


def _column(batch: Any, place: int | None) -> Any:
    return None if place is None else batch.column(place)


def _values(batch: Any, place: int | None) -> list[Any]:
    """Return the values of a column; text as bytes, as the topic stores it."""
    if place is None:
        return [None] * batch.num_rows
    column = batch.column(place)
    headers = pa.types.is_list(column.type)
    return (column if headers else as_binary(column, "")).to_pylist()
