"""Choose the partition of each row, for a whole Arrow batch at once.

The topic is set by the option, or else by the row. The partition is set by the row, or else by the
hash of the key (as in Kafka's Java client). Rows without a key go to one partition, and after
KEYLESS_ROWS rows to the next. This depends only on the number of rows, so a retried task writes the
same number of rows to each partition. Invariant: a target is the index of its partition in
`targets` and never changes.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.apps.near_names import nearest
from tidelog.apps.spark.encoding.encoder import partitions_of_keys
from tidelog.apps.spark.sink.sink_errors import SinkError
from tidelog.apps.spark.sink.write_options import SinkColumns
from tidelog.core.api_table import METADATA
from tidelog.core.types import TopicPartition
from tidelog.shell.client.client_errors import BrokerError, NoSuchTopic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.retry import Retry

CREATION_S = 10.0
KEYLESS_ROWS = 8192
"""Number of rows without a key that go to one partition before the next partition."""

_NUMBERS = 2**31
"""Limit of the first partition number for rows without a key, so that additions can't overflow."""

Targets = np.ndarray[Any, np.dtype[np.int32]]


class Routing:
    """Finds the targets of rows; calls `begin_topic` with each topic before its first row."""

    def __init__(
        self,
        cluster: Cluster,
        columns: SinkColumns,
        topic: str | None,
        first: int,
        begin_topic: Callable[[str], None],
    ) -> None:
        self.targets: list[TopicPartition] = []
        self._cluster = cluster
        self._columns = columns
        self._topic = topic
        self._first = first % _NUMBERS
        self._keyless = 0
        self._begin_topic = begin_topic
        self._bases: dict[str, tuple[int, int]] = {}

    def route(self, batch: Any) -> Targets:
        """Return the target of each row. Raises SinkError, ClientError."""
        if self._topic is not None:
            return self._in_topic(self._topic, batch, None)
        topics = batch.column(self._columns.topic)
        if topics.null_count:
            raise SinkError(
                "a row has no topic (its column 'topic' is null); filter such rows out,"
                " or set the option 'topic'"
            )
        coded = pc.dictionary_encode(topics)
        codes = coded.indices.to_numpy(zero_copy_only=False)
        targets = np.empty(batch.num_rows, np.int32)
        for code, name in enumerate(coded.dictionary.to_pylist()):
            rows = np.flatnonzero(codes == code)
            targets[rows] = self._in_topic(name, batch, rows)
        return targets

    def target_of(self, topic: str, partition: int) -> int:
        """Return the target of a partition, after `begin` of its topic."""
        return self._bases[topic][0] + partition

    def begin(self, topic: str) -> tuple[int, int]:
        """Return the first target and the partition count of a topic; add it at the first call."""
        found = self._bases.get(topic)
        if found is None:
            count = partition_count(self._cluster, topic)
            found = self._bases[topic] = len(self.targets), count
            self.targets += [TopicPartition(topic, partition) for partition in range(count)]
            self._begin_topic(topic)
        return found

    def _in_topic(self, topic: str, batch: Any, rows: Any) -> Targets:
        base, count = self.begin(topic)
        number = batch.num_rows if rows is None else len(rows)
        partitions = self._given(
            topic, count, _part_of_column(batch, self._columns.partition, rows)
        )
        if partitions is None or (partitions < 0).any():
            hashed = self._by_key(_part_of_column(batch, self._columns.key, rows), count, number)
            partitions = (
                hashed if partitions is None else np.where(partitions < 0, hashed, partitions)
            )
        return (partitions + base).astype(np.int32, copy=False)

    def _by_key(self, keys: Any, count: int, number: int) -> Targets:
        if keys is None:
            return self._next_keyless(count, number)
        hashed = partitions_of_keys(keys, count)
        keyless = np.flatnonzero(hashed < 0)
        if len(keyless):
            hashed[keyless] = self._next_keyless(count, len(keyless))
        return hashed

    def _next_keyless(self, count: int, number: int) -> Targets:
        rows = np.arange(self._keyless, self._keyless + number)
        self._keyless += number
        return ((self._first + rows // KEYLESS_ROWS) % count).astype(np.int32)

    def _given(self, topic: str, count: int, column: Any) -> Targets | None:
        """Return the partitions that rows specify, or -1; None if no row specifies one."""
        if column is None or column.null_count == len(column):
            return None
        low, high = pc.min_max(column).as_py().values()
        if low < 0 or high >= count:
            raise SinkError(
                f"a row has partition {low if low < 0 else high}, but topic {topic} has partitions"
                f" 0 to {count - 1}"
            )
        found: Targets = pc.fill_null(column, -1).to_numpy(zero_copy_only=False)
        return found


def _part_of_column(batch: Any, place: int | None, rows: Any) -> Any:
    if place is None:
        return None
    column = batch.column(place)
    return column if rows is None else column.take(pa.array(rows))


def partition_count(cluster: Cluster, topic: str) -> int:
    """Return the partition count of a topic. Brokers create a missing topic if they allow it."""
    try:
        return len(cluster.topic(topic).partitions)
    except NoSuchTopic:
        pass
    request = {"topics": [{"name": topic}], "allow_auto_topic_creation": True}
    retry = Retry(CREATION_S)
    what = f"topic {topic!r} does not exist, and the brokers do not create it"
    meant = nearest(topic, cluster.refresh().topics)
    next_step = f"{meant} try: tidelog topic create {topic}".strip()
    missing = SinkError(f"{what} (auto.create.topics.enable); {next_step}")
    while True:
        cluster.ask_any(lambda broker: broker.call(METADATA, request))
        try:
            cluster.refresh([topic])
            return len(cluster.topic(topic).partitions)
        except NoSuchTopic:
            retry.wait(missing)
        except BrokerError as error:
            retry.failed(error)
