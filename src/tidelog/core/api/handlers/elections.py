"""ElectLeaders 0-2: leadership back to the preferred replica, or to any at all."""

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.controller.events import ElectionType, ElectLeadersReceived
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition

_TYPES = {0: ElectionType.PREFERRED, 1: ElectionType.UNCLEAN}


def elect_leaders(broker: BrokerContext, request: Struct) -> Handling:
    """For the partitions named; or for all, and then only those are answered that needed it."""
    image = broker.node.image
    kind = request.get("election_type", 0)
    everywhere = request["topic_partitions"] is None
    wanted = [
        TopicPartition(topic["topic"], partition)
        for topic in request["topic_partitions"] or []
        for partition in topic["partitions"]
    ]
    if kind not in _TYPES:
        message = f"There is no election type {kind}: 0 is preferred, 1 is unclean."
        error = ErrorCode.INVALID_REQUEST
        return _response(error, dict.fromkeys(wanted, (error, message)))
    partitions = {name: image.partition(name.topic, name.partition) for name in wanted}
    known = tuple(partition.key for partition in partitions.values() if partition is not None)
    [answer] = yield [ElectLeadersReceived(0, _TYPES[kind], None if everywhere else known)]
    results: dict[TopicPartition, tuple[ErrorCode, str | None]] = {}
    for name, partition in partitions.items():
        if partition is None:
            results[name] = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no {name}.")
        else:
            results[name] = (answer.results.get(partition.key, answer.error), None)
    if everywhere:
        for key, error in answer.results.items():
            found = image.name_of(key)
            if found is not None and error is not ErrorCode.ELECTION_NOT_NEEDED:
                results[found] = (error, None)
    return _response(answer.error, results)


def _response(
    error: ErrorCode, results: dict[TopicPartition, tuple[ErrorCode, str | None]]
) -> Struct:
    topics: dict[str, list[Struct]] = {}
    for name, (code, message) in sorted(results.items()):
        topics.setdefault(name.topic, []).append(
            {"partition_id": name.partition, "error_code": code, "error_message": message}
        )
    return {
        "throttle_time_ms": 0,
        "error_code": error,
        "replica_election_results": [
            {"topic": topic, "partition_result": partitions} for topic, partitions in topics.items()
        ],
    }
