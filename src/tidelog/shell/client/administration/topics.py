"""Create, describe and delete topics and add partitions, many in one request.

Invariant: the error of one topic is in its `Outcome`; an exception concerns the whole request.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tidelog.core.api_table import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_TOPIC_PARTITIONS,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.types import BrokerId
from tidelog.core.wire.codec import Struct
from tidelog.shell.client.client_errors import BrokerError, ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import TopicMetadata, read_topic
from tidelog.shell.client.connection import KafkaConnection

CLUSTER_DEFAULT = -1
"""As partition count or replication factor: use the default in the broker's configs."""
PAGE_PARTITIONS = 2000
_DEFAULTS_FROM = 4
"""The first version of CreateTopics in which a broker applies its defaults (KIP-464)."""


class NewTopic(NamedTuple):
    """A topic to create."""

    name: str
    partitions: int = CLUSTER_DEFAULT
    replication_factor: int = CLUSTER_DEFAULT
    assignment: Sequence[Sequence[BrokerId]] = ()
    """The brokers of each partition; if given, leave the two counts at their defaults."""
    configs: Mapping[str, str] = {}


class Outcome(NamedTuple):
    """The result of a request for one topic, partition or other resource."""

    name: str
    error: int = ErrorCode.NONE
    message: str | None = None

    @property
    def holds(self) -> bool:
        return not self.error


class Created(NamedTuple):
    """The result of creating or validating a topic; counts are -1 if the broker is too old."""

    outcome: Outcome
    partitions: int = CLUSTER_DEFAULT
    replication_factor: int = CLUSTER_DEFAULT


def create_topics(
    cluster: Cluster, topics: Sequence[NewTopic], *, validate_only: bool = False
) -> list[Created]:
    """Create topics; with `validate_only`, only check whether they can be created."""
    request = {
        "topics": [_new_topic(topic) for topic in topics],
        "timeout_ms": int(cluster.timeout_s * 1000),
        "validate_only": validate_only,
    }
    by_default = any(
        not topic.assignment and CLUSTER_DEFAULT in (topic.partitions, topic.replication_factor)
        for topic in topics
    )

    def ask(controller: KafkaConnection) -> list[Created]:
        if by_default and controller.version(CREATE_TOPICS) < _DEFAULTS_FROM:
            raise ClientError(
                f"can't create topics: {controller.address} has no defaults for new topics"
                " (Kafka has them from 2.4 on); give the number of partitions and of replicas"
            )
        answer = controller.call(CREATE_TOPICS, request)["topics"]
        return [_created(each) for each in _from_controller(answer, "creating topics")]

    return cluster.ask_controller(ask)


def _new_topic(topic: NewTopic) -> Struct:
    return {
        "name": topic.name,
        "num_partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "assignments": [
            {"partition_index": number, "broker_ids": list(brokers)}
            for number, brokers in enumerate(topic.assignment)
        ],
        "configs": [{"name": key, "value": value} for key, value in topic.configs.items()],
    }


def _created(answer: Struct) -> Created:
    partitions = answer.get("num_partitions", CLUSTER_DEFAULT)
    return Created(_outcome(answer), partitions, answer.get("replication_factor", CLUSTER_DEFAULT))


def _outcome(answer: Struct) -> Outcome:
    return Outcome(answer["name"], answer["error_code"], answer.get("error_message"))


def _from_controller(answers: list[Struct], what: str) -> list[Struct]:
    """Return the results, or raise NOT_CONTROLLER so that the caller retries."""
    if any(each["error_code"] == ErrorCode.NOT_CONTROLLER for each in answers):
        raise BrokerError(what, ErrorCode.NOT_CONTROLLER)
    return answers


def delete_topics(cluster: Cluster, names: Sequence[str]) -> list[Outcome]:
    """Delete topics; brokers may still list them for a moment."""
    request = {
        "topics": [{"name": name} for name in names],
        "topic_names": list(names),
        "timeout_ms": int(cluster.timeout_s * 1000),
    }

    def ask(controller: KafkaConnection) -> list[Outcome]:
        answer = controller.call(DELETE_TOPICS, request)["responses"]
        return [_outcome(each) for each in _from_controller(answer, "deleting topics")]

    return cluster.ask_controller(ask)


def create_partitions(
    cluster: Cluster,
    counts: Mapping[str, int],
    assignment: Sequence[Sequence[BrokerId]] | None = None,
    *,
    validate_only: bool = False,
) -> list[Outcome]:
    """Raise the partition count of each topic to `counts`.

    `assignment` gives the brokers of each new partition.
    """
    listed = None if assignment is None else [{"broker_ids": list(each)} for each in assignment]
    request = {
        "topics": [
            {"name": name, "count": count, "assignments": listed} for name, count in counts.items()
        ],
        "timeout_ms": int(cluster.timeout_s * 1000),
        "validate_only": validate_only,
    }

    def ask(controller: KafkaConnection) -> list[Outcome]:
        answer = controller.call(CREATE_PARTITIONS, request)["results"]
        return [_outcome(each) for each in _from_controller(answer, "adding partitions")]

    return cluster.ask_controller(ask)


def describe_topics(cluster: Cluster, names: Iterable[str]) -> dict[str, TopicMetadata]:
    """Return topics by name; a missing topic has an error code.

    Eligible leader replicas need a broker with DescribeTopicPartitions (Kafka 3.8 and newer).
    """
    wanted = sorted(names)

    def ask(broker: KafkaConnection) -> dict[str, TopicMetadata] | None:
        return _pages(broker, wanted) if broker.offers(DESCRIBE_TOPIC_PARTITIONS) else None

    found = cluster.ask_any(ask) if wanted else {}
    if found is None:
        topics = cluster.refresh(wanted).topics
        found = {name: topics[name] for name in wanted if name in topics}
    return found


def _pages(broker: KafkaConnection, names: list[str]) -> dict[str, TopicMetadata]:
    found: dict[str, TopicMetadata] = {}
    cursor: Struct | None = None
    while True:
        first = None if cursor is None else cursor["topic_name"]
        request = {
            "topics": [{"name": name} for name in names if first is None or name >= first],
            "response_partition_limit": PAGE_PARTITIONS,
            "cursor": cursor,
        }
        answer = broker.call(DESCRIBE_TOPIC_PARTITIONS, request)
        for each in answer["topics"]:
            topic = read_topic(each)
            if topic.name in found:
                found[topic.name].partitions.update(topic.partitions)
            else:
                found[topic.name] = topic
        cursor = answer["next_cursor"]
        if cursor is None:
            return found
