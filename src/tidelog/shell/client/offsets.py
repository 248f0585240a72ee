"""Offsets of many partitions at once: one ListOffsets request for each leader.

Always true: each partition asked for has an answer, an offset or the error that stood in its
way; one partition without a leader takes nothing from the others.
"""

from collections.abc import Mapping
from typing import TypeAlias

from tidelog.core.errors import ErrorCode
from tidelog.core.types import BrokerId, TopicPartition
from tidelog.shell.client.api_keys import LIST_OFFSETS
from tidelog.shell.client.client_errors import (
    BrokerError,
    CannotConnect,
    ClientError,
    NoSuchTopic,
    Unresolved,
)
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import NO_LEADER, PartitionMetadata
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.reader import CONSUMER, READ_UNCOMMITTED, FoundOffset

Found: TypeAlias = dict[TopicPartition, FoundOffset | ClientError]


def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: int = READ_UNCOMMITTED
) -> Found:
    """For each partition the first offset not older than its timestamp (-1 if there is none),
    or LATEST, EARLIEST, MAX_TIMESTAMP. Asked once more where leaders have changed."""
    found = _ask_leaders(cluster, wanted, isolation)
    again = {
        key: wanted[key]
        for key, answer in found.items()
        if isinstance(answer, ClientError) and answer.retriable
    }
    if again:
        cluster.refresh(sorted({key.topic for key in again}))
        found.update(_ask_leaders(cluster, again, isolation))
    return found


def _ask_leaders(cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: int) -> Found:
    found: Found = {}
    led: dict[BrokerId, dict[TopicPartition, PartitionMetadata]] = {}
    for key in wanted:
        try:
            partition = cluster.partition(*key)
        except (BrokerError, NoSuchTopic) as error:
            found[key] = error
            continue
        if partition.leader == NO_LEADER:
            found[key] = BrokerError(f"{key} has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
        else:
            led.setdefault(partition.leader, {})[key] = partition
    for leader, partitions in led.items():
        try:
            broker = cluster.broker(leader)
            found.update(_ask(broker, partitions, wanted, isolation))
        except (CannotConnect, Unresolved) as error:
            found.update(dict.fromkeys(partitions, error))
    return found


def _ask(
    leader: KafkaConnection,
    partitions: Mapping[TopicPartition, PartitionMetadata],
    wanted: Mapping[TopicPartition, int],
    isolation: int,
) -> Found:
    topics: dict[str, list[dict[str, int]]] = {}
    for key, partition in partitions.items():
        asked = {
            "partition_index": key.partition,
            "current_leader_epoch": partition.leader_epoch,
            "timestamp": wanted[key],
        }
        topics.setdefault(key.topic, []).append(asked)
    request = {
        "replica_id": CONSUMER,
        "isolation_level": isolation,
        "topics": [{"name": name, "partitions": listed} for name, listed in topics.items()],
        "timeout_ms": int(leader.timeout_s * 1000),
    }
    found: Found = {}
    for topic in leader.call(LIST_OFFSETS, request)["topics"]:
        for each in topic["partitions"]:
            key = TopicPartition(topic["name"], each["partition_index"])
            if each["error_code"]:
                found[key] = BrokerError(f"offsets of {key}", each["error_code"])
            else:
                epoch = each.get("leader_epoch", -1)
                found[key] = FoundOffset(each["offset"], each["timestamp"], epoch)
    return found
