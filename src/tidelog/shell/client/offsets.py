"""Look up offsets: by time, the ends of logs, and the ends of leader epochs.

`list_offsets` sends one ListOffsets request to each leader, for many partitions; `list_offset`
looks up one partition; `list_all_offsets` retries. Invariant: `list_offsets` returns an offset or
an error for each partition; a partition without a leader does not delay the others.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from tidelog.core.api_table import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from tidelog.core.errors import ErrorCode
from tidelog.core.types import BrokerId, LeaderEpoch, Offset, TopicPartition
from tidelog.shell.client.client_errors import (
    BrokerError,
    CannotConnect,
    ClientError,
    NoSuchTopic,
    NotOffered,
    NotReady,
    Unresolved,
)
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import NO_LEADER, PartitionMetadata
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.fetching import CONSUMER, READ_UNCOMMITTED
from tidelog.shell.client.retry import Retry

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
"""The first offset on the leader's own disk."""
_SINCE = {MAX_TIMESTAMP: (7, "by largest timestamp"), EARLIEST_LOCAL: (8, "of its own disk")}


class FoundOffset(NamedTuple):
    """A result of ListOffsets."""

    offset: Offset
    timestamp: int
    leader_epoch: LeaderEpoch


Found: TypeAlias = dict[TopicPartition, FoundOffset | ClientError]


def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: int = READ_UNCOMMITTED
) -> Found:
    """Return for each partition the first offset not older than its timestamp (-1: no such record).

    Timestamps may be LATEST, EARLIEST or MAX_TIMESTAMP. Partitions whose leader has changed are
    requested a second time.
    """
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


def list_all_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    retry: Retry,
    isolation: int = READ_UNCOMMITTED,
) -> dict[TopicPartition, FoundOffset]:
    """Return an offset for each partition, as `list_offsets` does; wait for those that have no
    leader or whose leader does not respond. Raises ClientError."""
    found: dict[TopicPartition, FoundOffset] = {}
    while True:
        left = {key: time for key, time in wanted.items() if key not in found}
        error: ClientError | None = None
        for key, result in list_offsets(cluster, left, isolation).items():
            if isinstance(result, FoundOffset):
                found[key] = result
            else:
                error = result
        if error is None:
            return found
        retry.failed(error)


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
            found[key] = NotReady(f"{key} has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
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
                found[key] = BrokerError(f"lookup of offsets of {key}", each["error_code"])
            else:
                epoch = each.get("leader_epoch", -1)
                found[key] = FoundOffset(each["offset"], each["timestamp"], epoch)
    return found


def list_offset(
    cluster: Cluster,
    topic: str,
    partition: int,
    timestamp: int = LATEST,
    isolation: int = READ_UNCOMMITTED,
) -> FoundOffset:
    """Return the first offset whose record is not older than `timestamp` (-1: no such record).

    `timestamp` may be LATEST, EARLIEST, MAX_TIMESTAMP or EARLIEST_LOCAL.
    """
    key = TopicPartition(topic, partition)

    def ask(leader: KafkaConnection, known: PartitionMetadata) -> FoundOffset:
        first_version, what = _SINCE.get(timestamp, (0, ""))
        if leader.version(LIST_OFFSETS) < first_version:
            raise NotOffered(leader.address, f"ListOffsets {what}", "the broker is too old")
        found = _ask(leader, {key: known}, {key: timestamp}, isolation)[key]
        if isinstance(found, ClientError):
            raise found
        return found

    return cluster.ask_leader(topic, partition, ask)


def epoch_end(
    cluster: Cluster, topic: str, partition: int, epoch: LeaderEpoch
) -> tuple[LeaderEpoch, Offset]:
    """Return the largest epoch in the leader's log up to `epoch`, and its end offset.

    (-1, -1): the log has no such epoch.
    """
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
            raise BrokerError(f"lookup of leader epochs of {key}", answer["error_code"])
        return answer.get("leader_epoch", -1), answer["end_offset"]

    return cluster.ask_leader(topic, partition, ask)
