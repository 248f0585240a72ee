"""The ledger: a compacted topic that lists the completed micro-batches of each query.

Only the last line of a query counts. It contains the number of the last completed micro-batch, the
run of the query that wrote it, and the ends of the topics at that time. A first line is written
before the first row of a query. Lines are numbered and have a producer id computed from the query,
so if two processes write a line with the same number, only the first succeeds. A query that writes
in transactions also has lines with a decision: which transactions of the next micro-batch are to be
committed.

Invariants: a line is replicated to all in-sync replicas before it is used. A batch is in the ledger
only when all its rows are in their topics. A process reads only the lines written since its last
read; a new process searches backwards from the end.
"""

import json
from typing import Any, NamedTuple

from tidelog.apps.spark.sink.found_rows import Ends
from tidelog.apps.spark.sink.identity import ledger_producer
from tidelog.apps.spark.sink.sink_errors import SinkError
from tidelog.apps.spark.sink.task_transaction import Pending
from tidelog.core.errors import ErrorCode
from tidelog.core.record.decoder import decode
from tidelog.core.record.encoder import Producer, encode_batch
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import MAX_SEQUENCE
from tidelog.core.types import Offset, TopicPartition
from tidelog.shell.client.admin import create_topic, registered_brokers
from tidelog.shell.client.client_errors import BrokerError, NoSuchTopic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import PartitionMetadata
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.consumer import Reader
from tidelog.shell.client.fetching import fetch_batch
from tidelog.shell.client.offsets import list_offset
from tidelog.shell.client.partitioner import partition_of_key
from tidelog.shell.client.producer import produce
from tidelog.shell.client.retry import Retry, retriable_codes

PARTITIONS = 8
REPLICAS = 3
VERSION = 1
TRANSACTIONAL_VERSION = 2
"""The version of lines about transactions. Other lines keep the lower version, so that an older
tidelog can read them."""
NOTHING_DONE = -1
_SEGMENT_BYTES = 16 * 1024 * 1024
_FIRST_STEP = 16
_STEP_GROWTH = 16


class Line(NamedTuple):
    """A query's line in the ledger."""

    batch: int
    """The last completed batch; NOTHING_DONE if none is complete."""
    run: str
    ends: Ends
    number: int
    time_ms: int
    transactional: bool = False
    """Whether the run that wrote the line writes in transactions: then readers of committed records
    see no rows of a micro-batch that it did not complete."""
    pending: Pending | None = None
    """The decision to commit a later batch than `batch`; its transactions may still be open."""

    def value(self) -> bytes:
        fields = {"version": VERSION, **self._asdict()}
        if self.transactional or self.pending is not None:
            fields["version"] = TRANSACTIONAL_VERSION
            fields["pending"] = None if self.pending is None else self.pending.as_data()
        else:
            del fields["transactional"], fields["pending"]
        return json.dumps(fields, separators=(",", ":")).encode()


def read_line(value: bytes) -> Line:
    """Parse a line from the value of a record. Raises SinkError."""
    try:
        found: dict[str, Any] = json.loads(value)
        version = found["version"]
        if version not in (VERSION, TRANSACTIONAL_VERSION):
            raise SinkError(f"the ledger has lines of version {version}; use a newer tidelog")
        ends = {
            topic: {int(partition): offset for partition, offset in partitions.items()}
            for topic, partitions in found["ends"].items()
        }
        line = Line(found["batch"], found["run"], ends, found["number"], found["time_ms"])
        if version == VERSION:
            return line
        pending = found["pending"]
        return line._replace(
            transactional=found["transactional"],
            pending=None if pending is None else Pending.of_data(pending),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SinkError(f"the ledger has an invalid line: {error!r}") from None


class Ledger:
    """Reads and writes the lines of queries, and caches what it has read."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self._read: dict[str, tuple[Offset, Line | None]] = {}

    def find(self, query: str) -> Line | None:
        """Return the last line of a query; None if the query has no line."""
        try:
            partition = self._partition(query)
        except NoSuchTopic:
            self._create()
            partition = self._partition(query)
        end = list_offset(self.cluster, self.topic, partition).offset
        known_to, line = self._read.get(query, (0, None))
        if end < known_to:  # the topic was recreated
            known_to, line = 0, None
        found = self._last_line(query, partition, known_to, end)
        self._read[query] = end, found or line
        return found or line

    def write(self, query: str, line: Line) -> bool:
        """Append a line; return False if another line has its number or a later number.

        A broker acknowledges a number that is in the log already, with a time. Then the line there
        may be another one.
        """
        partition = self._partition(query)
        record = Record(query.encode(), line.value(), line.time_ms)
        stamp = Producer(ledger_producer(query), 0, line.number & MAX_SEQUENCE)
        numbered = encode_batch([record], producer=stamp)

        def append(leader: KafkaConnection, _: PartitionMetadata) -> bool:
            topic = self.cluster.topic(self.topic)
            done = produce(leader, topic, partition, numbered)
            if done.error == ErrorCode.UNKNOWN_PRODUCER_ID:
                # Kafka before 2.5 has expired the producer; retry without it.
                done = produce(leader, topic, partition, encode_batch([record]))
            if done.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                return False
            if done.error:
                raise BrokerError(f"append to the ledger {self.topic}", done.error, done.message)
            if done.log_append_time_ms < 0 or done.base_offset < 0:
                return True
            key = TopicPartition(self.topic, partition)
            there = fetch_batch(self.cluster, key, done.base_offset)
            return next(iter(decode(there))).value == record.value

        return self.cluster.ask_leader(self.topic, partition, append)

    def _partition(self, query: str) -> int:
        return partition_of_key(query.encode(), len(self.cluster.topic(self.topic).partitions))

    def _create(self) -> None:
        # With ZooKeeper, Kafka fails for a moment if a broker has just died.
        retriable = retriable_codes([ErrorCode.INVALID_REPLICATION_FACTOR])
        Retry(self.cluster.timeout_s, retriable=retriable).call(self._create_once)

    def _create_once(self) -> None:
        self.cluster.refresh([])
        replicas = min(REPLICAS, len(registered_brokers(self.cluster)))
        configs = {
            "cleanup.policy": "compact",
            "min.insync.replicas": str(min(2, replicas)),
            "segment.bytes": str(_SEGMENT_BYTES),
        }
        create_topic(self.cluster, self.topic, PARTITIONS, replicas, configs, exist_ok=True)

    def _last_line(self, query: str, partition: int, start: Offset, end: Offset) -> Line | None:
        """Search backwards from the end, in growing steps."""
        reader = Reader(self.cluster)
        key = query.encode()
        step = _FIRST_STEP
        while end > start:
            low = max(start, end - step)
            values = [
                record.value
                for record in reader.read(self.topic, partition, low, end)
                if record.key == key and record.value is not None
            ]
            if values:
                return read_line(values[-1])
            end, step = low, step * _STEP_GROWTH
        return None
