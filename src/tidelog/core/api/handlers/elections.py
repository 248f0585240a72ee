"""ElectLeaders 0-2: elect the preferred replicas, or run unclean elections."""

from collections.abc import Sequence

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.handlers.refusals import error_text
from tidelog.core.controller.events import ElectionType, ElectLeadersReceived
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition

_MESSAGES = {
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
        return _response(error, dict.fromkeys(wanted, error))
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
    return _response(answer.error, results, sorted(image.topics) if everywhere else [])


def _response(
    error: ErrorCode, results: dict[TopicPartition, ErrorCode], checked: Sequence[str] = ()
) -> Struct:
    """The response. It lists all topics that were checked, even without an election."""
    topics: dict[str, list[Struct]] = {topic: [] for topic in checked}
    for name, code in sorted(results.items()):
        message = _MESSAGES.get(code)
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
