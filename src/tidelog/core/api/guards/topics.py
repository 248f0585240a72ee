"""Guards of CreateTopics, DeleteTopics and CreatePartitions.

Kafka refuses names that are invalid or given twice before it asks the authoriser; here the handler
does it, so such names pass the guard.
"""

from collections import Counter

from tidelog.core.api.access_control import Access
from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.guards import Serve, run
from tidelog.core.authorization.acl import Operation
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicId

NO_TOPIC_ID: TopicId = bytes(16)
_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_CLUSTER_METADATA = "__cluster_metadata"
_BY_ID = 6
_UNKNOWN = -1


def _once(names: list[str]) -> list[str]:
    return [name for name, times in Counter(names).items() if times == 1]


def create_topics(
    access: Access, _broker: BrokerContext, request: Struct, serve: Serve
) -> Handling:
    """CREATE the cluster, or CREATE each topic. Its settings are returned to a principal with
    DESCRIBE_CONFIGS on the topic only."""
    names = _once([topic["name"] for topic in request["topics"]])
    asked = [name for name in names if name != _CLUSTER_METADATA]
    allowed = set(asked)
    if not access.may_on_cluster(Operation.CREATE, log=False):
        allowed = access.topics(Operation.CREATE, asked)
    refused = set(asked).difference(allowed)
    described = access.topics(Operation.DESCRIBE_CONFIGS, asked, log=False)
    rest = [topic for topic in request["topics"] if topic["name"] not in refused]
    response = yield from run(serve({**request, "topics": rest}))
    for topic in response["topics"]:
        if topic["error_code"] is ErrorCode.NONE and topic["name"] not in described:
            topic["topic_config_error_code"] = _REFUSED
            topic["num_partitions"] = topic["replication_factor"] = _UNKNOWN
            topic["configs"] = []
    response["topics"] += [
        {
            "name": name,
            "topic_id": NO_TOPIC_ID,
            "error_code": _REFUSED,
            "error_message": "CREATE on the topic or on the cluster is needed.",
            "topic_config_error_code": ErrorCode.NONE,
            "num_partitions": _UNKNOWN,
            "replication_factor": _UNKNOWN,
            "configs": [],
        }
        for name in asked
        if name in refused
    ]
    return response


def create_partitions(
    access: Access, _broker: BrokerContext, request: Struct, serve: Serve
) -> Handling:
    """ALTER each topic."""
    asked = _once([topic["name"] for topic in request["topics"]])
    refused = set(asked).difference(access.topics(Operation.ALTER, asked))
    rest = [topic for topic in request["topics"] if topic["name"] not in refused]
    response = yield from run(serve({**request, "topics": rest}))
    response["results"] += [
        {"name": name, "error_code": _REFUSED, "error_message": None}
        for name in asked
        if name in refused
    ]
    return response


def delete_topics(access: Access, broker: BrokerContext, request: Struct, serve: Serve) -> Handling:
    """DELETE the cluster, or DELETE each topic; without DESCRIBE, its existence is hidden.

    The image of this broker may lack a topic that the controller knows. So a topic that the image
    does not know is deleted only for a principal that may delete it whatever it is called.
    """
    if not broker.settings.get("delete.topic.enable") or (
        access.may_on_cluster(Operation.DELETE, log=False)
    ):
        return (yield from run(serve(request)))
    by_id = broker.version >= _BY_ID
    asked: list[tuple[str | None, TopicId]]
    if by_id:
        asked = [(topic["name"], topic["topic_id"]) for topic in request["topics"]]
    else:
        asked = [(name, NO_TOPIC_ID) for name in request["topic_names"]]
    names = broker.node.image.topic_names
    resolved = [names.get(topic_id) if name is None else name for name, topic_id in asked]
    known = [name for name in resolved if name is not None]
    described = access.topics(Operation.DESCRIBE, known)
    deletable = access.topics(Operation.DELETE, known)
    times = Counter(asked)
    refusals: list[Struct] = []
    rest: list[int] = []
    for place, (topic, name) in enumerate(zip(asked, resolved, strict=True)):
        invalid = times[topic] > 1 or (topic[0] is None) == (topic[1] == NO_TOPIC_ID)
        if invalid or (name is not None and name in deletable):
            rest.append(place)
        else:
            refusals.append(_not_deleted(broker, topic, name, described))
    if by_id:
        request = {**request, "topics": [request["topics"][place] for place in rest]}
    else:
        request = {**request, "topic_names": [request["topic_names"][place] for place in rest]}
    response = yield from run(serve(request))
    response["responses"] += refusals
    return response


def _not_deleted(
    broker: BrokerContext, topic: tuple[str | None, TopicId], name: str | None, described: set[str]
) -> Struct:
    given, topic_id = topic
    error = _REFUSED
    if name is None:
        error = ErrorCode.UNKNOWN_TOPIC_ID
    elif given is not None and given in described and given not in broker.node.image.topics:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return {
        "name": name if given is not None or name in described else None,
        "topic_id": topic_id,
        "error_code": error,
        "error_message": None,
    }
