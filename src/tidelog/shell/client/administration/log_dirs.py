"""Administer the log directories of a broker: describe them, move replicas between them."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.core.api_table import ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS
from tidelog.core.errors import ErrorCode
from tidelog.core.types import BrokerId, TopicPartition
from tidelog.core.wire.codec import Struct
from tidelog.shell.client.client_errors import BrokerError
from tidelog.shell.client.cluster import Cluster

_UNKNOWN = -1


class ReplicaInDir(NamedTuple):
    """A replica in a log directory, or the copy of one that moves there."""

    key: TopicPartition
    size: int
    offset_lag: int
    """Records that are missing: of a replica committed ones, of a copy those of its source."""
    is_copy: bool


class LogDir(NamedTuple):
    """A log directory of a broker."""

    broker: BrokerId
    path: str
    error: int
    """KAFKA_STORAGE_ERROR after its disk failed."""
    total_bytes: int | None
    usable_bytes: int | None
    """Size and free space of its disk; None if the broker does not know them."""
    replicas: list[ReplicaInDir]


def describe_log_dirs(
    cluster: Cluster, broker: BrokerId, keys: Iterable[TopicPartition] | None = None
) -> list[LogDir]:
    """Return the log directories of a broker, with some or all (None) of its replicas.

    Raises ClientError.
    """
    topics = None
    if keys is not None:
        topics = [{"topic": name, "partitions": listed} for name, listed in _by_topic(keys).items()]
    answer = cluster.broker(broker).call(DESCRIBE_LOG_DIRS, {"topics": topics})
    if answer.get("error_code"):
        raise BrokerError(
            f"describing the log directories of broker {broker}", answer["error_code"]
        )
    return [_log_dir(broker, found) for found in answer["results"]]


def _log_dir(broker: BrokerId, found: Struct) -> LogDir:
    replicas = [
        ReplicaInDir(
            TopicPartition(topic["name"], each["partition_index"]),
            each["partition_size"],
            each["offset_lag"],
            each["is_future_key"],
        )
        for topic in found["topics"]
        for each in topic["partitions"]
    ]
    total, usable = found["total_bytes"], found["usable_bytes"]
    return LogDir(
        broker,
        found["log_dir"],
        found["error_code"],
        None if total == _UNKNOWN else total,
        None if usable == _UNKNOWN else usable,
        sorted(replicas),
    )


def move_replicas(
    cluster: Cluster, broker: BrokerId, path: str, keys: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Start to move replicas of a broker to one of its log directories. Raises ClientError."""
    topics = [{"name": name, "partitions": listed} for name, listed in _by_topic(keys).items()]
    request = {"dirs": [{"path": path, "topics": topics}]}
    answer = cluster.broker(broker).call(ALTER_REPLICA_LOG_DIRS, request)
    return {
        TopicPartition(topic["topic_name"], each["partition_index"]): ErrorCode(each["error_code"])
        for topic in answer["results"]
        for each in topic["partitions"]
    }


def _by_topic(keys: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for key in keys:
        topics.setdefault(key.topic, []).append(key.partition)
    return topics
