"""ElectLeaders 0-2, AlterPartitionReassignments 0-1, ListPartitionReassignments 0, DescribeLogDirs
1-5 and AlterReplicaLogDirs 1-2: which replicas partitions have, which one leads, and where they
are.

Kafka's tool names the directory of each replica when it cancels a move between the log directories
of a broker: a "move" to the directory where the replica already is succeeds.
"""

from collections.abc import Iterable, Sequence

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.handlers.refusals import error_text, name_problem
from tidelog.core.controller.events import (
    AlterReassignmentsReceived,
    ElectionType,
    ElectLeadersReceived,
    ListReassignmentsReceived,
)
from tidelog.core.controller.metadata.registrations import PartitionKey, PartitionRegistration
from tidelog.core.errors import ErrorCode
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.storage.log_directories import LogDirectories
from tidelog.core.types import BrokerId, TopicPartition

_ELECTION_MESSAGES = {
    ErrorCode.INVALID_REQUEST: "the election type must be 0 (preferred) or 1 (unclean).",
    ErrorCode.ELECTION_NOT_NEEDED: "the leader is already the right one.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "the preferred replica is not alive and in sync.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica is alive.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "this partition does not exist.",
}
_TYPES = {0: ElectionType.PREFERRED, 1: ElectionType.UNCLEAN}


def elect_leaders(broker: BrokerContext, request: Struct) -> Handling:
    """Elect leaders of the named partitions; or of all, and return those that needed it."""
    image = broker.node.image
    kind = request.get("election_type", 0)
    everywhere = request["topic_partitions"] is None
    wanted = [
        TopicPartition(topic["topic"], partition)
        for topic in request["topic_partitions"] or []
        for partition in topic["partitions"]
    ]
    if kind not in _TYPES:
        error = ErrorCode.INVALID_REQUEST
        return _election_response(error, dict.fromkeys(wanted, error))
    partitions = {name: image.partition(name.topic, name.partition) for name in wanted}
    known = tuple(partition.key for partition in partitions.values() if partition is not None)
    [answer] = yield [ElectLeadersReceived(0, _TYPES[kind], None if everywhere else known)]
    results: dict[TopicPartition, ErrorCode] = {}
    for name, partition in partitions.items():
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        results[name] = (
            unknown if partition is None else answer.results.get(partition.key, answer.error)
        )
    if everywhere:
        for key, error in answer.results.items():
            found = image.name_of(key)
            if found is not None and error is not ErrorCode.ELECTION_NOT_NEEDED:
                results[found] = error
    return _election_response(answer.error, results, sorted(image.topics) if everywhere else [])


def _election_response(
    error: ErrorCode, results: dict[TopicPartition, ErrorCode], checked: Sequence[str] = ()
) -> Struct:
    """The response. It lists all topics that were checked, even without an election."""
    topics: dict[str, list[Struct]] = {topic: [] for topic in checked}
    for name, code in sorted(results.items()):
        message = _ELECTION_MESSAGES.get(code)
        topics.setdefault(name.topic, []).append(
            {
                "partition_id": name.partition,
                "error_code": code,
                "error_message": None if message is None else error_text(f"{name}: {message}"),
            }
        )
    return {
        "throttle_time_ms": 0,
        "error_code": error,
        "replica_election_results": [
            {"topic": topic, "partition_result": partitions} for topic, partitions in topics.items()
        ],
    }


_REASSIGNMENT_MESSAGES = {
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
    message = _REASSIGNMENT_MESSAGES.get(error)
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
    """Group structs by topic; `name` of each struct is a TopicPartition."""
    topics: dict[str, list[Struct]] = {}
    for partition in partitions:
        name: TopicPartition = partition.pop("name")
        topics.setdefault(name.topic, []).append(partition)
    return [{"name": topic, "partitions": listed} for topic, listed in topics.items()]


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
    directory, paths = broker.node.directory, broker.settings.log_dirs
    places: dict[int, list[TopicPartition]] = {number: [] for number in range(len(paths))}
    for name in names:
        places[directory.place_of(name)].append(name)
    results = []
    for number, path in enumerate(paths):
        offline = number in directory.offline
        total, usable = (-1, -1) if offline else broker.broker.disk_space(path)
        shown = [] if offline else [_log_size(name, replicas[name]) for name in places[number]]
        if not offline:
            shown += _copies(broker, names, number)
        results.append(
            {
                "error_code": ErrorCode.KAFKA_STORAGE_ERROR if offline else ErrorCode.NONE,
                "log_dir": path,
                "topics": by_topic(shown),
                "total_bytes": total,
                "usable_bytes": usable,
                "is_cordoned": False,
            }
        )
    return {"throttle_time_ms": 0, "error_code": ErrorCode.NONE, "results": results}


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


def _copies(broker: BrokerContext, names: list[TopicPartition], number: int) -> list[Struct]:
    """The copies of replicas that are being moved to this directory."""
    directory = broker.node.directory
    found: list[Struct] = []
    if not isinstance(directory, LogDirectories):
        return found
    for name in names:
        move = directory.moves.get(name)
        if move is None or move.target != number:
            continue
        copy, log = move.copy, directory.logs[name]
        copied_upto = log.log_start_offset if copy is None else copy.end_offset
        found.append(
            {
                "name": name,
                "partition_index": name.partition,
                "partition_size": 0 if copy is None else copy.size,
                "offset_lag": max(0, log.log_end_offset - copied_upto),
                "is_future_key": True,
            }
        )
    return found


def alter_replica_log_dirs(broker: BrokerContext, request: Struct) -> Struct:
    """Start to move replicas between the log directories of this broker. A request with the current
    directory of a replica cancels its move."""
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
    paths = [folder.rstrip("/") for folder in broker.settings.log_dirs]
    if path.rstrip("/") not in paths:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if name in broker.node.replicas:
        return broker.node.move_log(name, paths.index(path.rstrip("/")))
    if broker.node.image.partition(*name) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.REPLICA_NOT_AVAILABLE
