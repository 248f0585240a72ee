"""ListOffsets 1-11, OffsetForLeaderEpoch 2-4 and DeleteRecords 0-2: start and end offsets of logs.

There is no tiered storage: the earliest offset on local disk is the earliest offset, and the
offsets of uploaded records are unknown (-1).
"""

from collections import Counter

from tidelog.core.api.context import PAUSE, BrokerContext, Handling, Struct
from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import (
    EARLIEST,
    MAX_TIMESTAMP,
    DeleteRecords,
    DeleteRecordsPartition,
    EpochPartition,
    ListOffsets,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    OffsetForLeaderEpoch,
)
from tidelog.core.types import INTERNAL_TOPICS, TopicPartition

EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_CONSUMER = -1
_UNKNOWN = -1
_FIRST_VERSION = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The first version in which a special timestamp is valid."""
_READ_COMMITTED = 1


def list_offsets(broker: BrokerContext, request: Struct) -> Handling:
    """Return the offset at a timestamp, or the first or last one, of each partition."""
    asked = [
        (TopicPartition(topic["name"], partition["partition_index"]), partition)
        for topic in request["topics"]
        for partition in topic["partitions"]
    ]
    times = Counter(name for name, _ in asked)
    found: dict[TopicPartition, Struct] = {}
    questions = []
    for name, partition in asked:
        timestamp = partition["timestamp"]
        if times[name] > 1:
            found[name] = _no_offset(name, ErrorCode.INVALID_REQUEST)
        elif broker.version < _FIRST_VERSION.get(timestamp, 0):
            found[name] = _no_offset(name, ErrorCode.UNSUPPORTED_VERSION)
        else:
            questions.append(ListOffsetsPartition(name, _epoch(partition), _local(timestamp)))
    replica = request["replica_id"]
    read_committed = request.get("isolation_level", 0) == _READ_COMMITTED
    results: list[ListOffsetsPartitionResponse] = []
    while len(results) < len(questions):
        if results:
            yield PAUSE
        rest = questions[len(results) :]
        [answer] = yield [
            ListOffsets(None if replica == _CONSUMER else replica, rest, read_committed)
        ]
        results += answer.partitions
    tiered = {n for n, p in asked if p["timestamp"] in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD)}
    for result in results:
        name = result.topic_partition
        if name in tiered and result.error is ErrorCode.NONE:
            found[name] = _no_offset(name, ErrorCode.NONE)
        else:
            found[name] = _offset(broker, result)
    return {"throttle_time_ms": 0, "topics": _by_topic(found, "name")}


def _local(timestamp: int) -> int:
    """Look up tiered offsets as EARLIEST, so that errors of the partition are reported."""
    special = (EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
    return EARLIEST if timestamp in special else timestamp


def _epoch(partition: Struct) -> int | None:
    epoch: int = partition.get("current_leader_epoch", _UNKNOWN)
    return None if epoch == _UNKNOWN else epoch


def _offset(broker: BrokerContext, result: ListOffsetsPartitionResponse) -> Struct:
    if result.error is ErrorCode.OFFSET_NOT_AVAILABLE and broker.version < 5:
        return _no_offset(result.topic_partition, ErrorCode.LEADER_NOT_AVAILABLE)
    offset = _no_offset(result.topic_partition, result.error)
    if result.offset is not None:
        offset["offset"] = result.offset
        offset["timestamp"] = _or_unknown(result.timestamp)
        offset["leader_epoch"] = _or_unknown(result.leader_epoch)
    return offset


def _or_unknown(value: int | None) -> int:
    return _UNKNOWN if value is None else value


def _no_offset(name: TopicPartition, error: ErrorCode) -> Struct:
    return {
        "partition_index": name.partition,
        "error_code": error,
        "timestamp": _UNKNOWN,
        "offset": _UNKNOWN,
        "leader_epoch": _UNKNOWN,
    }


def offset_for_leader_epoch(_broker: BrokerContext, request: Struct) -> Handling:
    """Return the end offsets of leader epochs, by which consumers detect a truncated log."""
    replica = request.get("replica_id", _CONSUMER)
    questions = [
        EpochPartition(
            TopicPartition(topic["topic"], partition["partition"]),
            _epoch(partition),
            None if partition["leader_epoch"] == _UNKNOWN else partition["leader_epoch"],
        )
        for topic in request["topics"]
        for partition in topic["partitions"]
    ]
    [answer] = yield [OffsetForLeaderEpoch(replica if replica >= 0 else None, questions)]
    found = {
        result.topic_partition: {
            "partition": result.topic_partition.partition,
            "error_code": result.error,
            "leader_epoch": _UNKNOWN if result.end is None else result.end.epoch,
            "end_offset": _UNKNOWN if result.end is None else result.end.end_offset,
        }
        for result in answer.partitions
    }
    return {"throttle_time_ms": 0, "topics": _by_topic(found, "topic")}


def delete_records(broker: BrokerContext, request: Struct) -> Handling:
    """Delete the records before an offset; respond when every live replica has done so."""
    offsets = {
        TopicPartition(topic["name"], partition["partition_index"]): partition["offset"]
        for topic in request["topics"]
        for partition in topic["partitions"]
    }
    found: dict[TopicPartition, Struct] = {}
    questions = []
    for name, offset in offsets.items():
        refused = _undeletable(broker, name)
        if refused is None:
            questions.append(DeleteRecordsPartition(name, offset))
        else:
            found[name] = _low_watermark(name, refused, None)
    [answer] = yield [DeleteRecords(request["timeout_ms"], questions)]
    for result in answer.partitions:
        name = result.topic_partition
        found[name] = _low_watermark(name, result.error, result.low_watermark)
    return {"throttle_time_ms": 0, "topics": _by_topic(found, "name")}


def _undeletable(broker: BrokerContext, name: TopicPartition) -> ErrorCode | None:
    """The error for internal topics and for topics that are compacted only."""
    if name.topic in INTERNAL_TOPICS:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    replica = broker.node.replicas.get(name)
    if replica is not None and replica.log.config.cleanup_compact:
        return None if replica.log.config.cleanup_delete else ErrorCode.POLICY_VIOLATION
    return None


def _low_watermark(name: TopicPartition, error: ErrorCode, low_watermark: int | None) -> Struct:
    return {
        "partition_index": name.partition,
        "low_watermark": _or_unknown(low_watermark),
        "error_code": error,
    }


def _by_topic(found: dict[TopicPartition, Struct], key: str) -> list[Struct]:
    topics: dict[str, list[Struct]] = {}
    for name, partition in found.items():
        topics.setdefault(name.topic, []).append(partition)
    return [{key: topic, "partitions": partitions} for topic, partitions in topics.items()]
