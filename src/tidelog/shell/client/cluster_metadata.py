"""The content of Metadata responses, independent of their version."""

from typing import NamedTuple

from tidelog.core.types import BrokerId, LeaderEpoch, TopicId
from tidelog.core.wire.codec import Struct
from tidelog.shell.client.connection import format_address

NO_LEADER = -1
NO_TOPIC_ID = bytes(16)


class BrokerAddress(NamedTuple):
    """A broker as it advertises itself."""

    id: BrokerId
    host: str
    port: int
    rack: str | None

    def __str__(self) -> str:
        return format_address(self.host, self.port)


class PartitionMetadata(NamedTuple):
    """The metadata of one partition."""

    partition: int
    error: int
    leader: BrokerId
    """-1: no leader."""
    leader_epoch: LeaderEpoch
    """-1: the broker is too old to report it."""
    replicas: list[BrokerId]
    isr: list[BrokerId]
    offline_replicas: list[BrokerId]
    elr: list[BrokerId] | None = None
    """Eligible leader replicas; None: the broker does not report them."""
    last_known_elr: list[BrokerId] | None = None


class TopicMetadata(NamedTuple):
    """The metadata of one topic."""

    name: str
    error: int
    id: TopicId
    internal: bool
    partitions: dict[int, PartitionMetadata]


class ClusterMetadata(NamedTuple):
    """A Metadata response."""

    cluster_id: str | None
    controller_id: BrokerId
    """-1: no controller."""
    brokers: dict[BrokerId, BrokerAddress]
    topics: dict[str, TopicMetadata]


def read_metadata(answer: Struct) -> ClusterMetadata:
    """Convert a Metadata response."""
    brokers = {
        broker["node_id"]: BrokerAddress(
            broker["node_id"], broker["host"], broker["port"], broker.get("rack")
        )
        for broker in answer["brokers"]
    }
    topics = {topic["name"]: read_topic(topic) for topic in answer["topics"] if topic["name"]}
    controller = answer.get("controller_id", NO_LEADER)
    return ClusterMetadata(answer.get("cluster_id"), controller, brokers, topics)


def read_topic(topic: Struct) -> TopicMetadata:
    """Convert one topic of a Metadata or DescribeTopicPartitions response."""
    partitions = {
        partition["partition_index"]: PartitionMetadata(
            partition["partition_index"],
            partition["error_code"],
            partition["leader_id"],
            partition.get("leader_epoch", -1),
            list(partition["replica_nodes"]),
            list(partition["isr_nodes"]),
            list(partition.get("offline_replicas", ())),
            _broker_list(partition, "eligible_leader_replicas"),
            _broker_list(partition, "last_known_elr"),
        )
        for partition in topic["partitions"]
    }
    return TopicMetadata(
        topic["name"],
        topic["error_code"],
        topic.get("topic_id", NO_TOPIC_ID),
        topic.get("is_internal", False),
        dict(sorted(partitions.items())),
    )


def _broker_list(partition: Struct, field: str) -> list[BrokerId] | None:
    found = partition.get(field)
    return None if found is None else list(found)
