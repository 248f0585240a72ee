"""Guards of OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete.

Clients name topics by id from version 10 on. An unknown id has no name to ask for: the handler
refuses it.
"""

from tidelog.core.api.access_control import Access
from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.guards import Serve, run
from tidelog.core.api.handlers.committed_offsets import once_each
from tidelog.core.authorization.acl import Operation, ResourceType
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicId

NO_TOPIC_ID: TopicId = bytes(16)
_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TRANSACTION = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_BY_ID = 10
_MANY_GROUPS = 8
_GROUP_ERROR = 2
"""The first version of OffsetFetch whose response has an error code for the group."""


def _name_of(broker: BrokerContext, topic: Struct) -> str | None:
    """The name of a topic; None if its id is unknown."""
    name: str | None = topic.get("name")
    if name is None or broker.version >= _BY_ID:
        return broker.node.image.topic_names.get(topic.get("topic_id") or NO_TOPIC_ID)
    return name


def _split(
    access: Access, broker: BrokerContext, topics: list[Struct], operation: Operation
) -> tuple[list[Struct], list[Struct]]:
    """The topics that are allowed or unknown, and those that are refused."""
    names = [_name_of(broker, topic) for topic in topics]
    allowed = access.topics(operation, (name for name in names if name is not None))
    pairs = list(zip(names, topics, strict=True))
    rest = [topic for name, topic in pairs if name is None or name in allowed]
    refused = [topic for name, topic in pairs if name is not None and name not in allowed]
    return rest, refused


def _errors(topic: Struct, error: ErrorCode) -> Struct:
    return {
        "name": topic.get("name"),
        "topic_id": topic.get("topic_id"),
        "partitions": [
            {"partition_index": each["partition_index"], "error_code": error}
            for each in topic["partitions"]
        ],
    }


def offset_commit(access: Access, broker: BrokerContext, request: Struct, serve: Serve) -> Handling:
    """READ the group, and READ each topic."""
    topics = request["topics"]
    if not access.may(Operation.READ, ResourceType.GROUP, request["group_id"]):
        refused = [_errors(topic, _GROUP) for topic in topics]
        return {"throttle_time_ms": 0, "topics": refused}
    return (yield from _commit(access, broker, request, serve))


def txn_offset_commit(
    access: Access, broker: BrokerContext, request: Struct, serve: Serve
) -> Handling:
    """WRITE the transactional id, READ the group, and READ each topic."""
    topics, name = request["topics"], request["transactional_id"]
    error = ErrorCode.NONE
    if not access.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        error = _TRANSACTION
    elif not access.may(Operation.READ, ResourceType.GROUP, request["group_id"]):
        error = _GROUP
    if error:
        return {"throttle_time_ms": 0, "topics": [_errors(topic, error) for topic in topics]}
    return (yield from _commit(access, broker, request, serve))


def _commit(access: Access, broker: BrokerContext, request: Struct, serve: Serve) -> Handling:
    allowed, refused = _split(access, broker, request["topics"], Operation.READ)
    response = yield from run(serve({**request, "topics": allowed}))
    response["topics"] += [_errors(topic, _REFUSED) for topic in refused]
    return response


def offset_fetch(access: Access, broker: BrokerContext, request: Struct, serve: Serve) -> Handling:
    """DESCRIBE each group, and DESCRIBE each topic. A request for all offsets of a group gets those
    of the topics that the principal may describe."""
    many = broker.version >= _MANY_GROUPS
    groups = once_each(request["groups"]) if many else [request]
    served: list[Struct] = []
    refusals: list[Struct] = []
    hidden: list[list[Struct] | None] = []
    """For each served group: the refused topics; None if all its offsets were requested."""
    for group in groups:
        name = group["group_id"]
        if not access.may(Operation.DESCRIBE, ResourceType.GROUP, name):
            refusals.append(_refused_group(broker, group))
        elif group["topics"] is None:
            served.append(group)
            hidden.append(None)
        else:
            allowed, refused = _split(access, broker, group["topics"], Operation.DESCRIBE)
            served.append({**group, "topics": allowed})
            hidden.append(refused)
    if not many and refusals:
        return {"throttle_time_ms": 0, **refusals[0]}
    found: list[Struct] = []
    response: Struct = {"throttle_time_ms": 0}
    if served:
        asked = {**request, "groups": served} if many else served[0]
        response = yield from run(serve(asked))
        found = response["groups"] if many else [{**response, "group_id": request["group_id"]}]
    for group, refused_topics in zip(found, hidden, strict=True):
        _complete(access, group, refused_topics)
    if many:
        return {"throttle_time_ms": 0, "groups": found + refusals}
    response["topics"] = found[0]["topics"]
    return response


def _complete(access: Access, group: Struct, refused: list[Struct] | None) -> None:
    """Add the refused topics; of all offsets, remove those of topics that must be hidden."""
    if group["error_code"] is not ErrorCode.NONE:
        return
    if refused is None:
        names = [topic["name"] for topic in group["topics"]]
        allowed = access.topics(Operation.DESCRIBE, names)
        group["topics"] = [topic for topic in group["topics"] if topic["name"] in allowed]
        return
    group["topics"] = list(group["topics"])
    for topic in refused:
        no_offset = [_no_offset(index, _REFUSED) for index in topic["partition_indexes"]]
        group["topics"].append(
            {
                "name": topic.get("name"),
                "topic_id": topic.get("topic_id", NO_TOPIC_ID),
                "partitions": no_offset,
            }
        )


def _refused_group(broker: BrokerContext, group: Struct) -> Struct:
    topics: list[Struct] = []
    if broker.version < _GROUP_ERROR:
        for topic in group["topics"] or []:
            errors = [_no_offset(index, _GROUP) for index in topic["partition_indexes"]]
            topics.append({"name": topic["name"], "partitions": errors})
    return {"group_id": group["group_id"], "topics": topics, "error_code": _GROUP}


def _no_offset(index: int, error: ErrorCode) -> Struct:
    return {
        "partition_index": index,
        "committed_offset": -1,
        "committed_leader_epoch": -1,
        "metadata": "",
        "error_code": error,
    }


def offset_delete(access: Access, broker: BrokerContext, request: Struct, serve: Serve) -> Handling:
    """DELETE the group, and READ each topic."""
    if not access.may(Operation.DELETE, ResourceType.GROUP, request["group_id"]):
        return {"error_code": _GROUP, "throttle_time_ms": 0, "topics": []}
    allowed, refused = _split(access, broker, request["topics"], Operation.READ)
    response = yield from run(serve({**request, "topics": allowed}))
    if response["error_code"] is ErrorCode.NONE:
        response["topics"] += [_errors(topic, _REFUSED) for topic in refused]
    return response
