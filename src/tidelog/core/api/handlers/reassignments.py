"""AlterPartitionReassignments 0-1 and ListPartitionReassignments 0: moving replicas."""

from collections.abc import Iterable

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.handlers.refusals import error_text
from tidelog.core.controller.events import AlterReassignmentsReceived, ListReassignmentsReceived
from tidelog.core.controller.metadata.registrations import PartitionKey, PartitionRegistration
from tidelog.core.errors import ErrorCode
from tidelog.core.types import BrokerId, TopicPartition

_MESSAGES = {
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "{name} is not being reassigned.",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: (
        "{name} cannot move to {replicas}: name registered brokers, each once, and keep one "
        "that is in sync."
    ),
    ErrorCode.INVALID_REPLICATION_FACTOR: (
        "{name} would have a different number of replicas on {replicas}, which the request forbids."
    ),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "Partition {name} does not exist.",
}


def alter_partition_reassignments(broker: BrokerContext, request: Struct) -> Handling:
    """Start moves of replicas, or cancel them where no replicas are given."""
    image = broker.node.image
    may_resize = request.get("allow_replication_factor_change", True)
    wanted = {
        TopicPartition(topic["name"], partition["partition_index"]): partition["replicas"]
        for topic in request["topics"]
        for partition in topic["partitions"]
    }
    results: dict[TopicPartition, ErrorCode] = {}
    keys: dict[TopicPartition, PartitionKey] = {}
    targets: dict[PartitionKey, tuple[BrokerId, ...] | None] = {}
    for name, replicas in wanted.items():
        partition = image.partition(name.topic, name.partition)
        if partition is None:
            results[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif replicas is not None and not may_resize and len(replicas) != _size(partition):
            results[name] = ErrorCode.INVALID_REPLICATION_FACTOR
        else:
            keys[name] = partition.key
            targets[partition.key] = None if replicas is None else tuple(replicas)
    [answer] = yield [AlterReassignmentsReceived(0, targets)]
    if answer.error is ErrorCode.NONE:
        results.update((name, answer.results[key]) for name, key in keys.items())
    return {
        "throttle_time_ms": 0,
        "allow_replication_factor_change": may_resize,
        "error_code": answer.error,
        "error_message": None,
        "responses": by_topic(
            {
                "name": name,
                "partition_index": name.partition,
                "error_code": error,
                "error_message": _message(error, name, wanted[name]),
            }
            for name, error in sorted(results.items())
        ),
    }


def _size(partition: PartitionRegistration) -> int:
    """The number of replicas after the ongoing move."""
    return len(partition.replicas) - len(partition.removing)


def _message(error: ErrorCode, name: TopicPartition, replicas: object) -> str | None:
    message = _MESSAGES.get(error)
    return None if message is None else error_text(message.format(name=name, replicas=replicas))


def list_partition_reassignments(broker: BrokerContext, request: Struct) -> Handling:
    """List the ongoing moves of all partitions, or of the named ones."""
    asked = request["topics"]
    wanted = None
    if asked is not None:
        wanted = {
            TopicPartition(topic["name"], partition)
            for topic in asked
            for partition in topic["partition_indexes"]
        }
    [answer] = yield [ListReassignmentsReceived(0)]
    image = broker.node.image
    named = [(image.name_of(partition.key), partition) for partition in answer.partitions]
    return {
        "throttle_time_ms": 0,
        "error_code": answer.error,
        "error_message": None,
        "topics": by_topic(
            {
                "name": name,
                "partition_index": partition.partition,
                "replicas": list(partition.replicas),
                "adding_replicas": list(partition.adding),
                "removing_replicas": list(partition.removing),
            }
            for name, partition in named
            if name is not None and (wanted is None or name in wanted)
        ),
    }


def by_topic(partitions: Iterable[Struct]) -> list[Struct]:
    """Group structs by topic; the `name` of each is its TopicPartition."""
    topics: dict[str, list[Struct]] = {}
    for partition in partitions:
        name: TopicPartition = partition.pop("name")
        topics.setdefault(name.topic, []).append(partition)
    return [{"name": topic, "partitions": listed} for topic, listed in topics.items()]
