"""Guards of Metadata and DescribeTopicPartitions: the existence of a topic that the principal may
not describe is hidden."""

from tidelog.core.api.access_control import Access
from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.guards import Serve, run
from tidelog.core.api.handlers.brokers import NOT_REQUESTED
from tidelog.core.authorization.acl import Operation, ResourceType
from tidelog.core.errors import ErrorCode
from tidelog.core.types import INTERNAL_TOPICS, TopicId

NO_TOPIC_ID: TopicId = bytes(16)
_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_BY_ID = 12
"""The first version of Metadata in which requests may name topics by id."""


def metadata(access: Access, broker: BrokerContext, request: Struct, serve: Serve) -> Handling:
    """DESCRIBE each topic; to create a missing one, CREATE the cluster or that topic."""
    asked = request["topics"]
    if asked is None or (broker.version == 0 and not asked):
        response = yield from _all_topics(access, request, serve)
    elif any(_has_id(topic) for topic in asked) and broker.version >= _BY_ID:
        response = yield from _by_id(access, broker, request, serve)
    else:
        response = yield from _by_name(access, broker, request, serve)
    if request.get("include_cluster_authorized_operations", False):
        response["cluster_authorized_operations"] = access.cluster_operations()
    return response


def _has_id(topic: Struct) -> bool:
    return bool(topic.get("topic_id", b"").strip(b"\0"))


def _all_topics(access: Access, request: Struct, serve: Serve) -> Handling:
    response = yield from run(serve(request))
    names = [topic["name"] for topic in response["topics"]]
    allowed = access.topics(Operation.DESCRIBE, names, log=False)
    response["topics"] = [topic for topic in response["topics"] if topic["name"] in allowed]
    _set_operations(access, response["topics"])
    return response


def _by_id(access: Access, broker: BrokerContext, request: Struct, serve: Serve) -> Handling:
    names = broker.node.image.topic_names
    ids = dict.fromkeys(topic["topic_id"] for topic in request["topics"] if _has_id(topic))
    known = {topic_id: names[topic_id] for topic_id in ids if topic_id in names}
    allowed = access.topics(Operation.DESCRIBE, known.values())
    refused = [topic_id for topic_id, name in known.items() if name not in allowed]
    rest = [topic for topic in request["topics"] if topic["topic_id"] not in refused]
    response = yield from _served(request, rest, serve)
    _set_operations(access, response["topics"])
    response["topics"] += [_hidden(None, topic_id) for topic_id in refused]
    return response


def _by_name(access: Access, broker: BrokerContext, request: Struct, serve: Serve) -> Handling:
    image = broker.node.image
    names = [topic["name"] for topic in request["topics"] if topic["name"] is not None]
    described = access.topics(Operation.DESCRIBE, names)
    not_created: list[str] = []
    if request.get("allow_auto_topic_creation", True) and (
        broker.settings.get("auto.create.topics.enable")
    ):
        missing = [n for n in dict.fromkeys(names) if n in described and n not in image.topics]
        if missing and not access.may_on_cluster(Operation.CREATE, log=False):
            created = access.topics(Operation.CREATE, missing)
            not_created = [name for name in missing if name not in created]
    allowed = described.difference(not_created)
    rest = [t for t in request["topics"] if t["name"] is None or t["name"] in allowed]
    response = yield from _served(request, rest, serve)
    _set_operations(access, response["topics"])
    for name in not_created:
        response["topics"].append({**_hidden(name), "is_internal": name in INTERNAL_TOPICS})
    response["topics"] += [_hidden(n) for n in dict.fromkeys(names) if n not in described]
    return response


def _served(request: Struct, topics: list[Struct], serve: Serve) -> Handling:
    """Serve some topics of a request. In version 0, none would mean all."""
    response = yield from run(serve({**request, "topics": topics}))
    if not topics:
        response["topics"] = []
    return response


def _set_operations(access: Access, topics: list[Struct]) -> None:
    for topic in topics:
        if topic["topic_authorized_operations"] != NOT_REQUESTED and topic["name"] is not None:
            operations = access.operations(ResourceType.TOPIC, topic["name"])
            topic["topic_authorized_operations"] = operations


def _hidden(name: str | None, topic_id: TopicId = NO_TOPIC_ID) -> Struct:
    return {
        "error_code": _REFUSED,
        "name": name,
        "topic_id": topic_id,
        "is_internal": False,
        "partitions": [],
        "topic_authorized_operations": NOT_REQUESTED,
    }


def describe_topic_partitions(
    access: Access, broker: BrokerContext, request: Struct, serve: Serve
) -> Handling:
    """DESCRIBE each topic. Pages of all topics have only those that the principal may describe."""
    cursor, asked = request["cursor"], [topic["name"] for topic in request["topics"]]
    begin = "" if cursor is None else cursor["topic_name"]
    names = [name for name in asked or sorted(broker.node.image.topics) if name >= begin]
    if cursor is not None and (cursor["partition_index"] < 0 or (asked and begin not in asked)):
        return (yield from run(serve(request)))  # invalid
    allowed = access.topics(Operation.DESCRIBE, names)
    if allowed:
        topics = [{"name": name} for name in sorted(allowed)]
        kept = cursor if begin in allowed else None
        response = yield from run(serve({**request, "topics": topics, "cursor": kept}))
    else:
        response = {"throttle_time_ms": 0, "topics": [], "next_cursor": None}
    _set_operations(access, response["topics"])
    if asked:
        refused = sorted(set(names).difference(allowed))
        response["topics"] = [*response["topics"], *map(_hidden, refused)]
    return response
