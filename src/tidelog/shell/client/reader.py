"""Reading: batches as the leader has them, opened here; offsets by time; ends of epochs.

Fetches stand alone (no fetch session), so a reader may jump and be dropped at will. Always
true: records come in the order of their offsets, none before the offset asked for, and each
batch's checksum was right.
"""

import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidelog.core.errors import ErrorCode
from tidelog.core.record.crc32c import Buffer
from tidelog.core.record.decoder import LogRecord, decode
from tidelog.core.record.isolation import read_committed
from tidelog.core.record.record_batch import CorruptRecord, RecordBatch, batches
from tidelog.core.types import LeaderEpoch, Offset, TopicPartition
from tidelog.core.wire.codec import Struct
from tidelog.shell.client.api_keys import FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from tidelog.shell.client.client_errors import BrokerError, NothingMore, NotOffered
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import NO_TOPIC_ID, PartitionMetadata, TopicMetadata
from tidelog.shell.client.connection import KafkaConnection

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
"""The first offset that the leader has on its own disk."""
ANY_EPOCH = -1
"""As current leader epoch: do not compare."""
CONSUMER = -1
MAX_BYTES = 1024 * 1024
MAX_WAIT_MS = 500
LAST_VERSION_WITH_NAMES = 12
_SINCE = {MAX_TIMESTAMP: (7, "by largest timestamp"), EARLIEST_LOCAL: (8, "of its own disk")}


class FetchFrom(NamedTuple):
    """Where to read a partition."""

    offset: Offset
    current_leader_epoch: LeaderEpoch = ANY_EPOCH
    max_bytes: int = MAX_BYTES


class FetchedPartition(NamedTuple):
    """A leader's answer for one partition, unopened."""

    error: int
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    records: Buffer
    """Whole batches, maybe a cut-off one at the end."""
    aborted: list[tuple[int, Offset]]
    """(producer id, first offset) of aborted transactions; only for READ_COMMITTED."""


class Fetched(NamedTuple):
    """Records of one partition, opened, and how far the leader is."""

    records: list[LogRecord]
    next_offset: Offset
    """Where to go on."""
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset


class FoundOffset(NamedTuple):
    """An answer to ListOffsets."""

    offset: Offset
    timestamp: int
    leader_epoch: LeaderEpoch


def fetch(
    leader: KafkaConnection,
    topics: Mapping[str, TopicMetadata],
    wanted: Mapping[TopicPartition, FetchFrom],
    isolation: int = READ_UNCOMMITTED,
    max_wait_ms: int = MAX_WAIT_MS,
    min_bytes: int = 1,
) -> dict[TopicPartition, FetchedPartition]:
    """One request for any number of partitions; per partition what the broker says. Raises
    ClientError if it says nothing, or refuses the request as a whole."""
    max_bytes = sum(place.max_bytes for place in wanted.values())
    request, newest = fetch_request(topics, wanted, isolation, max_wait_ms, min_bytes, max_bytes)
    answer = leader.call(FETCH, request, newest, max_wait_ms / 1000 + leader.timeout_s)
    return read_fetched(answer, topics)


def fetch_request(
    topics: Mapping[str, TopicMetadata],
    wanted: Mapping[TopicPartition, FetchFrom],
    isolation: int,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
) -> tuple[Struct, int | None]:
    """The request, and the newest version in which it may be sent."""
    asked: dict[str, list[dict[str, object]]] = {}
    for key, place in wanted.items():
        partition: dict[str, object] = {
            "partition": key.partition,
            "current_leader_epoch": place.current_leader_epoch,
            "fetch_offset": place.offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": place.max_bytes,
        }
        asked.setdefault(key.topic, []).append(partition)
    request = {
        "replica_id": CONSUMER,
        "max_wait_ms": max_wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": isolation,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {"topic": name, "topic_id": topics[name].id, "partitions": partitions}
            for name, partitions in asked.items()
        ],
        "forgotten_topics_data": [],
    }
    nameless = any(topics[name].id == NO_TOPIC_ID for name in asked)
    return request, LAST_VERSION_WITH_NAMES if nameless else None


def read_fetched(
    answer: Struct, topics: Mapping[str, TopicMetadata]
) -> dict[TopicPartition, FetchedPartition]:
    """What a broker says, by partition. Raises BrokerError if it refuses the whole."""
    if answer.get("error_code"):
        raise BrokerError("fetch", answer["error_code"])
    ids = {topic.id: name for name, topic in topics.items()}
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
            )
    return found


class Reader:
    """Reads partitions from their leaders, whoever they are by then."""

    def __init__(
        self,
        cluster: Cluster,
        isolation: int = READ_UNCOMMITTED,
        max_wait_ms: int = MAX_WAIT_MS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.cluster = cluster
        self.isolation = isolation
        self.max_wait_ms = max_wait_ms
        self.max_bytes = max_bytes

    def fetch(self, topic: str, partition: int, offset: Offset) -> Fetched:
        """What lies at `offset`; waits up to `max_wait_ms` for something to be there."""
        key = TopicPartition(topic, partition)

        def ask(leader: KafkaConnection, known: PartitionMetadata) -> FetchedPartition:
            place = FetchFrom(offset, known.leader_epoch, self.max_bytes)
            topics = {topic: self.cluster.topic(topic)}
            answer = fetch(leader, topics, {key: place}, self.isolation, self.max_wait_ms)
            if answer[key].error:
                raise BrokerError(f"fetch of {key} at offset {offset}", answer[key].error)
            return answer[key]

        found = self.cluster.ask_leader(topic, partition, ask)
        records, next_offset = open_batches(found, offset, self.isolation)
        return Fetched(records, next_offset, *found[1:4])

    def read(
        self, topic: str, partition: int, start: Offset, end: Offset | None = None
    ) -> Iterator[LogRecord]:
        """Records from `start` up to, not including, `end`; without it, up to what readers may
        see now. Raises NothingMore if the log does not reach `end` while one waits."""
        offset = start
        waited_from = time.monotonic()
        while end is None or offset < end:
            found = self.fetch(topic, partition, offset)
            if found.next_offset > offset:
                waited_from = time.monotonic()
            elif end is not None and time.monotonic() - waited_from > self.cluster.timeout_s:
                key = TopicPartition(topic, partition)
                raise NothingMore(str(key), offset, end, self.cluster.timeout_s)
            for record in found.records:
                if end is not None and record.offset >= end:
                    return
                yield record
            if end is None:
                committed = self.isolation == READ_COMMITTED
                end = found.last_stable_offset if committed else found.high_watermark
            offset = found.next_offset


def open_batches(
    found: FetchedPartition, offset: Offset, isolation: int = READ_UNCOMMITTED
) -> tuple[list[LogRecord], Offset]:
    """The records from `offset` on, and where the next ones begin. Raises CorruptRecord."""
    next_offset = offset

    def checked() -> Iterator[RecordBatch]:
        nonlocal next_offset
        for batch in batches(found.records):
            if not batch.crc_ok():
                raise CorruptRecord(f"checksum of the batch at offset {batch.base_offset} differs")
            next_offset = max(next_offset, batch.next_offset)
            yield batch

    if isolation == READ_COMMITTED:
        wanted = read_committed(checked(), found.aborted)
    else:
        wanted = (batch for batch in checked() if not batch.is_control)
    records = [record for batch in wanted for record in decode(batch) if record.offset >= offset]
    return records, next_offset


def list_offset(
    cluster: Cluster,
    topic: str,
    partition: int,
    timestamp: int = LATEST,
    isolation: int = READ_UNCOMMITTED,
) -> FoundOffset:
    """The first offset whose record is not older than `timestamp` (-1 if there is none), or
    LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL."""
    key = TopicPartition(topic, partition)

    def ask(leader: KafkaConnection, known: PartitionMetadata) -> FoundOffset:
        first_version, what = _SINCE.get(timestamp, (0, ""))
        if leader.version(LIST_OFFSETS) < first_version:
            raise NotOffered(leader.address, f"ListOffsets {what}", "it is too old")
        wanted = {
            "partition_index": partition,
            "current_leader_epoch": known.leader_epoch,
            "timestamp": timestamp,
        }
        request = {
            "replica_id": CONSUMER,
            "isolation_level": isolation,
            "topics": [{"name": topic, "partitions": [wanted]}],
            "timeout_ms": int(leader.timeout_s * 1000),
        }
        answer = leader.call(LIST_OFFSETS, request)["topics"][0]["partitions"][0]
        if answer["error_code"]:
            raise BrokerError(f"offsets of {key}", answer["error_code"])
        return FoundOffset(answer["offset"], answer["timestamp"], answer.get("leader_epoch", -1))

    return cluster.ask_leader(topic, partition, ask)


def epoch_end(
    cluster: Cluster, topic: str, partition: int, epoch: LeaderEpoch
) -> tuple[LeaderEpoch, Offset]:
    """The largest epoch of the leader's log that is not above `epoch`, and where it ends;
    (-1, -1) if there is none."""
    key = TopicPartition(topic, partition)

    def ask(leader: KafkaConnection, known: PartitionMetadata) -> tuple[LeaderEpoch, Offset]:
        wanted = {
            "partition": partition,
            "current_leader_epoch": known.leader_epoch,
            "leader_epoch": epoch,
        }
        request = {
            "replica_id": CONSUMER,
            "topics": [{"topic": topic, "partitions": [wanted]}],
        }
        answer = leader.call(OFFSET_FOR_LEADER_EPOCH, request)["topics"][0]["partitions"][0]
        if answer["error_code"] != ErrorCode.NONE:
            raise BrokerError(f"epochs of {key}", answer["error_code"])
        return answer.get("leader_epoch", -1), answer["end_offset"]

    return cluster.ask_leader(topic, partition, ask)
