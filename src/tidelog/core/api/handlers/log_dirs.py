"""DescribeLogDirs 1-5 and AlterReplicaLogDirs 1-2: the log directory of each replica.

A broker here has one directory. Kafka's tool requests the directories before it moves anything,
and names the directory of each replica when it cancels a move: a "move" to the directory where
the replica already is succeeds.
"""

from tidelog.core.api.context import BrokerContext, Struct
from tidelog.core.api.handlers.reassignments import by_topic
from tidelog.core.api.handlers.refusals import name_problem
from tidelog.core.errors import ErrorCode
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.types import TopicPartition


def describe_log_dirs(broker: BrokerContext, request: Struct) -> Struct:
    """List the replicas on this broker with their sizes: all, or those of named partitions."""
    asked = request["topics"]
    replicas = broker.node.replicas
    if asked is None:
        names = sorted(replicas)
    else:
        wanted = {
            TopicPartition(topic["topic"], partition)
            for topic in asked
            for partition in topic["partitions"]
        }
        names = sorted(name for name in wanted if name in replicas)
    total, usable = broker.broker.disk_space()
    return {
        "throttle_time_ms": 0,
        "error_code": ErrorCode.NONE,
        "results": [
            {
                "error_code": ErrorCode.NONE,
                "log_dir": broker.settings.log_dir,
                "topics": by_topic(_log_size(name, replicas[name]) for name in names),
                "total_bytes": total,
                "usable_bytes": usable,
                "is_cordoned": False,
            }
        ],
    }


def _log_size(name: TopicPartition, replica: HostedReplica) -> Struct:
    """Size in bytes, and the number of committed records that are missing in this replica."""
    partition = replica.partition
    return {
        "name": name,
        "partition_index": name.partition,
        "partition_size": replica.log.size,
        "offset_lag": max(0, partition.high_watermark - partition.log_end_offset),
        "is_future_key": False,
    }


def alter_replica_log_dirs(broker: BrokerContext, request: Struct) -> Struct:
    """Move nothing: succeed where a replica already is, refuse every other directory."""
    results: dict[TopicPartition, ErrorCode] = {}
    for folder in request["dirs"]:
        for topic in folder["topics"]:
            for partition in topic["partitions"]:
                name = TopicPartition(topic["name"], partition)
                results[name] = _moved(broker, name, folder["path"])
    topics = by_topic(
        {"name": name, "partition_index": name.partition, "error_code": error}
        for name, error in results.items()
    )
    for topic in topics:
        topic["topic_name"] = topic.pop("name")
    return {"throttle_time_ms": 0, "results": topics}


def _moved(broker: BrokerContext, name: TopicPartition, path: str) -> ErrorCode:
    if name_problem(name.topic) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if path.rstrip("/") != broker.settings.log_dir.rstrip("/"):
        return ErrorCode.LOG_DIR_NOT_FOUND
    if name in broker.node.replicas:
        return ErrorCode.NONE
    if broker.node.image.partition(*name) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.REPLICA_NOT_AVAILABLE
