"""Find the rows that an earlier attempt of a task has written, so that they are not written again.

The log is read from the end offset before this micro-batch. Batches with this task's producer id
and epoch are decoded. Rows are compared by content, not by position, so a replay may have them in
another order (as Spark does after a shuffle) or in other batches.

Invariant: each row found matches at most one row of the replay. Rows found that the replay does not
have are `left`: the replay has other rows than the earlier attempt. Sequence numbers begin at 0, so
the next sequence number is the number of rows written; fewer rows found means that some are
missing.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from tidelog.apps.spark.sink.identity import Identity, task_of
from tidelog.apps.spark.sink.sink_errors import NotReadable
from tidelog.core.api_table import DESCRIBE_PRODUCERS
from tidelog.core.record.decoder import decode
from tidelog.core.record.record_batch import MAX_SEQUENCE, CorruptRecord, RecordBatch, batches
from tidelog.core.slotted import field, slotted
from tidelog.core.types import Offset, TopicPartition
from tidelog.shell.client.admin import broker_configs
from tidelog.shell.client.client_errors import BrokerError, ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import PartitionMetadata
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.fetching import fetch_partition
from tidelog.shell.client.offsets import EARLIEST, epoch_end, list_offset
from tidelog.shell.client.retry import Retry

FETCH_BYTES = 4 * 1024 * 1024
REPLICATION_S = 30.0
"""How long to wait until rows that only the leader has are replicated."""
_DIGEST_BYTES = 16

EXPIRATION = "producer.id.expiration.ms"
REMEMBERED_PART = 0.5
"""The part of the expiration time in which brokers surely remember a producer; clocks differ."""

RowHeaders = Sequence[tuple[str, bytes | None]]

Ends = dict[str, dict[int, Offset]]
"""End offsets by topic and partition."""


class Starts(NamedTuple):
    """The offsets from which rows of a micro-batch are searched, and their age.

    These are the ends of the topics before the micro-batch. A partition that is missing is read
    from its beginning.
    """

    offsets: Ends
    age_ms: int
    planned: Ends | None = None
    """The ends when this run was planned; rows of earlier runs are before these offsets."""


@slotted
class FoundRows:
    """The rows of one task found in one topic."""

    rows: Counter[bytes] = field(default_factory=Counter)
    next_sequence: dict[int, int] = field(default_factory=dict)
    """The sequence number of the next row, by partition."""
    ends: dict[int, Offset] = field(default_factory=dict)
    """The offset after the last row of this task, by partition."""
    tasks: set[int] = field(default_factory=set)
    """The tasks of the micro-batch that have written rows, including this task."""
    total: int = 0
    compacted: dict[int, int] = field(default_factory=dict)
    """The number of rows that compaction removed, by partition; `rows` then has none of them."""
    added: set[Offset] = field(default_factory=set)
    """The base offsets of the batches of one partition, so that no batch is counted twice."""

    def remove(self, row: bytes) -> bool:
        """Remove a row from the rows found; return whether it was found."""
        count = self.rows.get(row, 0)
        if not count:
            return False
        if count == 1:
            del self.rows[row]
        else:
            self.rows[row] = count - 1
        return True

    @property
    def left(self) -> int:
        """The number of rows found that no row of the replay matched."""
        return self.rows.total()

    def missing(self, partition: int) -> int:
        """Return the number of rows written but not found, if only that partition was read."""
        return max(self.next_sequence.get(partition, 0) - self.total, 0)

    def merge(self, other: "FoundRows") -> None:
        """Add the rows found in another partition."""
        self.rows.update(other.rows)
        self.next_sequence.update(other.next_sequence)
        self.ends.update(other.ends)
        self.tasks |= other.tasks
        self.compacted.update(other.compacted)
        self.total += other.total

    def add(self, batch: RecordBatch, partition: int) -> None:
        """Add a batch of this task. Raises CorruptRecord."""
        if batch.base_offset in self.added:
            return
        self.added.add(batch.base_offset)
        if not batch.crc_ok():
            raise CorruptRecord(f"checksum of the batch at offset {batch.base_offset} differs")
        for record in decode(batch):
            headers = [(header.key, header.value) for header in record.headers]
            self.rows[row_digest(record.key, record.value, headers)] += 1
            self.total += 1
        if batch.next_offset > self.ends.get(partition, 0):
            self.next_sequence[partition] = (batch.last_sequence + 1) & MAX_SEQUENCE
            self.ends[partition] = batch.next_offset


def row_digest(key: bytes | None, value: bytes | None, headers: RowHeaders) -> bytes:
    """Return a digest of a row without its timestamp, because a topic may replace the timestamp."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for part in (key, value):
        digest.update(_framed(part))
    for name, content in headers:
        digest.update(_framed(name.encode(errors="surrogateescape")))
        digest.update(_framed(content))
    return digest.digest()


def _framed(part: bytes | None) -> bytes:
    return b"-" if part is None else b"%d:%b" % (len(part), part)


def find_rows(
    cluster: Cluster,
    topic: str,
    partitions: Iterable[int],
    identity: Identity,
    starts: Starts,
    *,
    own_times: bool,
) -> FoundRows:
    """Find the rows that this task has written in this micro-batch.

    `own_times`: the rows have timestamps. Brokers expire producers by these timestamps, so a
    producer that writes old timestamps may expire at once.
    """
    found = FoundRows()
    may_be_expired = own_times or starts.age_ms > _remembered_ms(cluster) * REMEMBERED_PART
    for partition in partitions:
        key = TopicPartition(topic, partition)
        state = _producer_state(cluster, key, identity)
        found.tasks |= state.tasks
        # A leader that remembers this producer from the previous batch, or can't have expired it
        # yet, reports reliably that the producer wrote nothing in this batch.
        if state.supported and state.next_sequence is None and (state.known or not may_be_expired):
            continue
        found.merge(_find_in_partition(cluster, key, identity, starts))
    return found


def _find_in_partition(
    cluster: Cluster, key: TopicPartition, identity: Identity, starts: Starts
) -> FoundRows:
    """Find this task's rows in a partition, including rows that are not replicated yet."""
    found = FoundRows()
    low = list_offset(cluster, *key, EARLIEST).offset
    start = starts.offsets.get(key.topic, {}).get(key.partition, 0)
    planned = (starts.planned or {}).get(key.topic, {}).get(key.partition)
    position = max(start, low)
    retry = Retry(REPLICATION_S)
    while True:
        written = _producer_state(cluster, key, identity).next_sequence
        log_end = -1 if written is None else _log_end(cluster, key)
        end = list_offset(cluster, *key).offset
        if start > end:  # the topic was recreated
            start, position = 0, low
        if written is None and planned is not None:
            end = min(end, planned)  # after that offset are rows of this run
        position = _search_batches(cluster, key, position, end, identity, found)
        if written is None or written <= found.next_sequence.get(key.partition, 0):
            break
        if (
            0 <= log_end <= end
        ):  # the whole log was read: the other rows are before `start` or deleted
            found.next_sequence[key.partition] = written
            break
        retry.wait(NotReadable(key, written))
    if (
        found.missing(key.partition) and low < start
    ):  # the topic was recreated and is longer than before
        _search_batches(cluster, key, low, start, identity, found)
    if found.missing(key.partition) and low <= start:  # retention has deleted nothing
        found.compacted[key.partition] = found.missing(key.partition)
        found.rows.clear()
        found.total = 0
    return found


def _log_end(cluster: Cluster, key: TopicPartition) -> Offset:
    """Return the end of the leader's log, replicated or not; -1 if unknown."""
    epoch = cluster.leader(*key).leader_epoch
    return epoch_end(cluster, *key, epoch)[1]


class ProducerState(NamedTuple):
    """The state of this task's producer at a leader, including unreplicated batches."""

    supported: bool = False
    """Whether the leader supports DescribeProducers."""
    known: bool = False
    """Whether the leader remembers this producer."""
    next_sequence: int | None = None
    """The next sequence number in this micro-batch; None if the task wrote nothing."""
    tasks: frozenset[int] = frozenset()
    """The tasks that have written rows in this micro-batch."""


def _producer_state(cluster: Cluster, key: TopicPartition, identity: Identity) -> ProducerState:
    def describe(leader: KafkaConnection, _: PartitionMetadata) -> ProducerState:
        if not leader.offers(DESCRIBE_PRODUCERS):
            return ProducerState()
        request = {"topics": [{"name": key.topic, "partition_indexes": [key.partition]}]}
        partition = leader.call(DESCRIBE_PRODUCERS, request)["topics"][0]["partitions"][0]
        if partition["error_code"]:
            raise BrokerError(f"request for the producers of {key}", partition["error_code"])
        siblings = {
            each["producer_id"]: each
            for each in partition["active_producers"]
            if identity.is_sibling(each["producer_id"])
        }
        now = {
            producer: each["last_sequence"]
            for producer, each in siblings.items()
            if each["producer_epoch"] == identity.epoch
        }
        last = now.get(identity.producer_id)
        return ProducerState(
            True,
            identity.producer_id in siblings,
            None if last is None else (last + 1) & MAX_SEQUENCE,
            frozenset(map(task_of, now)),
        )

    return cluster.ask_leader(*key, describe)


def _remembered_ms(cluster: Cluster) -> int:
    """Return how long brokers remember an idle producer; 0 if unknown."""
    try:
        broker = min(cluster.metadata.brokers)
        found = broker_configs(cluster, broker, [EXPIRATION])[EXPIRATION]
        return int(found or 0)
    except (ClientError, KeyError, ValueError):
        return 0


def _search_batches(
    cluster: Cluster,
    key: TopicPartition,
    position: Offset,
    end: Offset,
    identity: Identity,
    found: FoundRows,
) -> Offset:
    """Search the batches from `position` to `end`; return the offset to continue at."""
    while position < end:
        for batch in batches(fetch_partition(cluster, key, position, FETCH_BYTES).records):
            if position >= end:
                break
            position = max(position, batch.next_offset)
            ours = batch.producer_epoch == identity.epoch and batch.producer_id >= 0
            if ours and identity.is_sibling(batch.producer_id):
                found.tasks.add(task_of(batch.producer_id))
                if batch.producer_id == identity.producer_id:
                    found.add(batch, key.partition)
    return position
