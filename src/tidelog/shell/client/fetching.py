"""The fetch pipeline: requests to leaders whose responses are received later.

    send_fetch        one request for any number of partitions of one leader
    PendingFetch      that request in flight; `receive` waits for the response
    PartitionFetcher  one partition over leader changes; the next request can be sent ahead
    fetch_partition   one partition, one request, retried
    fetch_batch       one batch, retried

`Consumer` keeps one `PendingFetch` for each leader. `Reader`, `verify` and Spark's source and
sink read one partition at a time, through `PartitionFetcher`.

Fetches stand alone (no fetch session), so a client may jump to another offset or stop at any
time. Invariants: a response is used only for the offset that was requested; a connection with
a response outstanding is closed before it is used for anything else.
"""

import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidelog.core.api_table import FETCH
from tidelog.core.errors import ErrorCode
from tidelog.core.record.crc32c import Buffer
from tidelog.core.record.record_batch import CorruptRecord, RecordBatch, batches
from tidelog.core.types import LeaderEpoch, Offset, TopicPartition
from tidelog.core.wire.codec import Struct
from tidelog.shell.client.client_errors import BrokerError, ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import NO_TOPIC_ID, TopicMetadata
from tidelog.shell.client.connection import KafkaConnection, ReceiveMemory, SentRequest
from tidelog.shell.client.retry import Retry

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
ANY_EPOCH = -1
"""A current leader epoch that the leader does not compare."""
CONSUMER = -1
MAX_BYTES = 1024 * 1024
MAX_WAIT_MS = 500
LAST_VERSION_WITH_NAMES = 12


class FetchFrom(NamedTuple):
    """Where to read a partition."""

    offset: Offset
    current_leader_epoch: LeaderEpoch = ANY_EPOCH
    max_bytes: int = MAX_BYTES


class FetchedPartition(NamedTuple):
    """A leader's response for one partition, not decoded."""

    error: int
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    records: Buffer
    """Whole batches; the last one may be incomplete."""
    aborted: list[tuple[int, Offset]]
    """(producer id, first offset) of aborted transactions; only for READ_COMMITTED."""
    throttled: bool = False
    """Whether the broker delayed the response because of a quota."""

    def readable_end(self, isolation: int) -> Offset:
        """The offset up to which a consumer with this isolation level may read."""
        return self.last_stable_offset if isolation == READ_COMMITTED else self.high_watermark


class PendingFetch(NamedTuple):
    """A Fetch request that was sent."""

    connection: KafkaConnection
    sent: SentRequest
    wanted: Mapping[TopicPartition, FetchFrom]
    topics: Mapping[str, TopicMetadata]
    wait_s: float
    deadline: float

    def receive(
        self, memory: ReceiveMemory | None = None
    ) -> dict[TopicPartition, FetchedPartition]:
        """Wait for the response; error codes are returned by partition.

        If `memory` is given, the records stay in it until the next response is received into it.
        Raises ClientError if no response arrives, or BrokerError if the broker refuses the request.
        """
        answer = self.connection.answer(self.sent, self.wait_s, memory)
        return _read_response(answer, self.topics, self.connection.address)


def send_fetch(
    leader: KafkaConnection,
    topics: Mapping[str, TopicMetadata],
    wanted: Mapping[TopicPartition, FetchFrom],
    isolation: int = READ_UNCOMMITTED,
    max_wait_ms: int = MAX_WAIT_MS,
    max_bytes: int | None = None,
) -> PendingFetch:
    """Send one request. `max_bytes` limits the whole response; default: no further limit."""
    by_topic: dict[str, list[dict[str, object]]] = {}
    for key, place in wanted.items():
        partition: dict[str, object] = {
            "partition": key.partition,
            "current_leader_epoch": place.current_leader_epoch,
            "fetch_offset": place.offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": place.max_bytes,
        }
        by_topic.setdefault(key.topic, []).append(partition)
    if max_bytes is None:
        max_bytes = sum(place.max_bytes for place in wanted.values())
    request = {
        "replica_id": CONSUMER,
        "max_wait_ms": max_wait_ms,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "isolation_level": isolation,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {"topic": name, "topic_id": topics[name].id, "partitions": partitions}
            for name, partitions in by_topic.items()
        ],
        "forgotten_topics_data": [],
    }
    nameless = any(topics[name].id == NO_TOPIC_ID for name in by_topic)
    sent = leader.ask(FETCH, request, LAST_VERSION_WITH_NAMES if nameless else None)
    wait_s = max_wait_ms / 1000 + leader.timeout_s
    return PendingFetch(leader, sent, wanted, topics, wait_s, time.monotonic() + wait_s)


def fetch(
    leader: KafkaConnection,
    topics: Mapping[str, TopicMetadata],
    wanted: Mapping[TopicPartition, FetchFrom],
    isolation: int = READ_UNCOMMITTED,
    max_wait_ms: int = MAX_WAIT_MS,
) -> dict[TopicPartition, FetchedPartition]:
    """Send one request and wait for its response, as `PendingFetch.receive` does."""
    return send_fetch(leader, topics, wanted, isolation, max_wait_ms).receive()


def _read_response(
    answer: Struct, topics: Mapping[str, TopicMetadata], address: str
) -> dict[TopicPartition, FetchedPartition]:
    if answer.get("error_code"):
        raise BrokerError(f"fetch from {address}", answer["error_code"])
    ids = {topic.id: name for name, topic in topics.items()}
    throttled = bool(answer.get("throttle_time_ms"))
    found = {}
    for topic in answer["responses"]:
        name = topic["topic"] if "topic" in topic else ids[topic["topic_id"]]
        for each in topic["partitions"]:
            aborted = each.get("aborted_transactions") or ()
            found[TopicPartition(name, each["partition_index"])] = FetchedPartition(
                each["error_code"],
                each["high_watermark"],
                each.get("last_stable_offset", -1),
                each.get("log_start_offset", -1),
                each["records"] or b"",
                [(one["producer_id"], one["first_offset"]) for one in aborted],
                throttled,
            )
    return found


class CheckedBatches:
    """The batches of a response with verified checksums, and the end of the last one.

    Iterating raises CorruptRecord.
    """

    def __init__(self, records: Buffer) -> None:
        self._records = records
        self.next_offset = 0
        self.leader_epoch = -1

    def __iter__(self) -> Iterator[RecordBatch]:
        for batch in batches(self._records):
            if not batch.crc_ok():
                raise CorruptRecord(f"checksum of the batch at offset {batch.base_offset} differs")
            yield batch
            self.next_offset, self.leader_epoch = batch.next_offset, batch.leader_epoch


class PartitionFetcher:
    """Fetches one partition from its current leader; close it at the end.

    It uses the connections of `cluster`: between `send_ahead` and the next `attempt` or `close`
    nothing else may use them.
    """

    def __init__(
        self,
        cluster: Cluster,
        key: TopicPartition,
        isolation: int = READ_UNCOMMITTED,
        max_wait_ms: int = MAX_WAIT_MS,
    ) -> None:
        self.cluster = cluster
        self.key = key
        self.isolation = isolation
        self.max_wait_ms = max_wait_ms
        self._memory = ReceiveMemory()
        self._pending: PendingFetch | None = None
        self._stale = False
        """The metadata must be refreshed before the next request."""

    def close(self) -> None:
        """Drop a request in flight: close its connection, because its response may still arrive."""
        if self._pending is not None:
            self._pending.connection.close()
            self._pending = None

    def send_ahead(self, offset: Offset, size: int, retry: Retry | None = None) -> None:
        """Send a request whose response the next `attempt` returns or whose error it raises."""
        try:
            self._send(offset, size, retry)
        except ClientError:
            self._failed()

    def attempt(self, offset: Offset, size: int, retry: Retry | None = None) -> FetchedPartition:
        """Return the leader's records at `offset`, from the request sent ahead or a new one.

        The records are valid until the next attempt. Raises ClientError, BrokerError also for
        the partition's error code; the next attempt begins with a refresh of the metadata.
        """
        try:
            if self._pending is None or self._pending.wanted[self.key].offset != offset:
                self.close()
                self._send(offset, size, retry)
            return self._receive(offset)
        except ClientError:
            self._failed()
            raise

    def planned_topic(self, offset: Offset) -> TopicMetadata:  # noqa: ARG002 - for subclasses
        """Return the topic to read. Subclasses check that it is still the expected one."""
        return self.cluster.topic(self.key.topic)

    def refused(self, offset: Offset, code: int) -> None:
        """Raise the error for a partition's error code."""
        raise BrokerError(f"fetch of {self.key} at offset {offset}", code)

    def _send(self, offset: Offset, size: int, retry: Retry | None) -> None:
        if self._stale:
            self.cluster.refresh([self.key.topic])
            self._stale = False
        topic = self.planned_topic(offset)
        leader = self.cluster.leader(*self.key, retry)
        wanted = {self.key: FetchFrom(offset, leader.leader_epoch, size)}
        self._pending = send_fetch(
            self.cluster.broker(leader.leader),
            {topic.name: topic},
            wanted,
            self.isolation,
            self.max_wait_ms,
        )

    def _receive(self, offset: Offset) -> FetchedPartition:
        assert self._pending is not None
        response = self._pending.receive(self._memory)
        self._pending = None
        found = response.get(self.key)
        if found is None:
            raise BrokerError(f"fetch of {self.key}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if found.error:
            self.refused(offset, found.error)
        return found

    def _failed(self) -> None:
        self.close()
        self._stale = True


def fetch_partition(
    cluster: Cluster,
    key: TopicPartition,
    offset: Offset,
    max_bytes: int = MAX_BYTES,
    isolation: int = READ_UNCOMMITTED,
    max_wait_ms: int = MAX_WAIT_MS,
) -> FetchedPartition:
    """Return the leader's records at `offset`; retry over leader changes. Raises ClientError."""
    retry = Retry(cluster.timeout_s)
    fetcher = PartitionFetcher(cluster, key, isolation, max_wait_ms)
    return retry.call(lambda: fetcher.attempt(offset, max_bytes, retry))


def fetch_batch(cluster: Cluster, key: TopicPartition, offset: Offset) -> RecordBatch:
    """Fetch the batch that contains an offset; wait until the high watermark has reached it."""

    def attempt() -> RecordBatch:
        found = fetch_partition(cluster, key, offset, max_bytes=1, max_wait_ms=1000)
        batch = next(batches(found.records), None)
        if batch is None:
            raise BrokerError(f"fetch of {key} at offset {offset}", ErrorCode.OFFSET_NOT_AVAILABLE)
        return batch

    return Retry(cluster.timeout_s).call(attempt)
