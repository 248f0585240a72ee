"""Guards of ListOffsets, OffsetForLeaderEpoch, DeleteRecords and DescribeProducers: each topic is
allowed or refused."""

from tidelog.core.api.access_control import Access
from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.guards import Serve, run
from tidelog.core.api.handlers.refusals import name_problem
from tidelog.core.authorization.acl import Operation, ResourceType
from tidelog.core.errors import ErrorCode

_UNKNOWN = -1
_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def list_offsets(access: Access, _broker: BrokerContext, request: Struct, serve: Serve) -> Handling:
    """DESCRIBE each topic."""
    topics = request["topics"]
    allowed = access.topics(Operation.DESCRIBE, (topic["name"] for topic in topics))
    response = yield from run(serve({**request, "topics": _of(topics, allowed)}))
    response["topics"] += [
        {
            "name": topic["name"],
            "partitions": [
                {
                    "partition_index": partition["partition_index"],
                    "error_code": _REFUSED,
                    "timestamp": _UNKNOWN,
                    "offset": _UNKNOWN,
                    "leader_epoch": _UNKNOWN,
                }
                for partition in topic["partitions"]
            ],
        }
        for topic in topics
        if topic["name"] not in allowed
    ]
    return response


def _of(topics: list[Struct], allowed: set[str], key: str = "name") -> list[Struct]:
    return [topic for topic in topics if topic[key] in allowed]


def offset_for_leader_epoch(
    access: Access, _broker: BrokerContext, request: Struct, serve: Serve
) -> Handling:
    """CLUSTER_ACTION on the cluster as brokers have it, or DESCRIBE each topic."""
    if access.may_on_cluster(Operation.CLUSTER_ACTION, log=False):
        return (yield from run(serve(request)))
    topics = request["topics"]
    allowed = access.topics(Operation.DESCRIBE, (topic["topic"] for topic in topics))
    response = yield from run(serve({**request, "topics": _of(topics, allowed, "topic")}))
    response["topics"] += [
        {
            "topic": topic["topic"],
            "partitions": [
                {
                    "partition": partition["partition"],
                    "error_code": _REFUSED,
                    "leader_epoch": _UNKNOWN,
                    "end_offset": _UNKNOWN,
                }
                for partition in topic["partitions"]
            ],
        }
        for topic in topics
        if topic["topic"] not in allowed
    ]
    return response


def delete_records(
    access: Access, _broker: BrokerContext, request: Struct, serve: Serve
) -> Handling:
    """DELETE each topic."""
    topics = request["topics"]
    allowed = access.topics(Operation.DELETE, (topic["name"] for topic in topics))
    response = yield from run(serve({**request, "topics": _of(topics, allowed)}))
    response["topics"] += [
        {
            "name": topic["name"],
            "partitions": [
                {
                    "partition_index": partition["partition_index"],
                    "low_watermark": _UNKNOWN,
                    "error_code": _REFUSED,
                }
                for partition in topic["partitions"]
            ],
        }
        for topic in topics
        if topic["name"] not in allowed
    ]
    return response


def describe_producers(
    access: Access, _broker: BrokerContext, request: Struct, serve: Serve
) -> Handling:
    """READ each topic; an invalid name is an error of its own."""
    topics = request["topics"]
    refused = {
        name
        for name in dict.fromkeys(topic["name"] for topic in topics)
        if name_problem(name) is None and not access.may(Operation.READ, ResourceType.TOPIC, name)
    }
    rest = [topic for topic in topics if topic["name"] not in refused]
    response = yield from run(serve({**request, "topics": rest}))
    response["topics"] += [
        {
            "name": topic["name"],
            "partitions": [
                {
                    "partition_index": index,
                    "error_code": _REFUSED,
                    "error_message": f"READ on topic {topic['name']} is needed.",
                    "active_producers": [],
                }
                for index in topic["partition_indexes"]
            ],
        }
        for topic in topics
        if topic["name"] in refused
    ]
    return response
