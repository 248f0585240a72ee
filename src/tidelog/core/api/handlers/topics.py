"""CreateTopics 2-7, DeleteTopics 1-6 and CreatePartitions 0-3.

Each topic of a request succeeds or fails on its own. Checks that need only the request
are here, in the order of Kafka's; the controller does the others.
"""

from collections import Counter
from typing import TYPE_CHECKING

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.handlers.configs import effective_topic_configs
from tidelog.core.api.handlers.refusals import error_text, name_problem
from tidelog.core.controller.effects import TopicAnswer
from tidelog.core.controller.events import (
    CreatePartitionsReceived,
    CreateTopicReceived,
    DeleteTopicReceived,
)
from tidelog.core.coordinator.lookup import OFFSETS_TOPIC
from tidelog.core.errors import ErrorCode
from tidelog.core.settings.topic_values import normal, topic_problem
from tidelog.core.types import TopicId

if TYPE_CHECKING:
    from tidelog.core.api.charge import MutationQuota

NO_TOPIC_ID: TopicId = bytes(16)
DEFAULT = -1
"""Partition count or replication factor: use the broker's setting."""
PARTITIONS_MAX = 10_000
"""New partitions in one request, as in Kafka: a mistyped zero must not fill the cluster."""

_EXCEEDED = TopicAnswer(
    ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded."
)
_CLUSTER_METADATA = "__cluster_metadata"


def create_topics(broker: BrokerContext, request: Struct) -> Handling:
    """Create topics, or with `validate_only` only check them."""
    if request["timeout_ms"] <= 0:
        names = dict.fromkeys(topic["name"] for topic in request["topics"])
        topics = [_created(name, no_time_left(), []) for name in names]
        return {"throttle_time_ms": 0, "topics": topics}
    times = Counter(topic["name"] for topic in request["topics"])
    room = PARTITIONS_MAX
    quota = _mutation_quota(broker, strict_since=6)
    results: dict[str, Struct] = {}
    events: list[CreateTopicReceived] = []
    for topic in request["topics"]:
        name = topic["name"]
        planned = _refuse_duplicate(name) if times[name] > 1 else _plan(broker, topic)
        if isinstance(planned, CreateTopicReceived):
            room -= planned.partitions
            if room < 0:
                planned = TopicAnswer(
                    ErrorCode.POLICY_VIOLATION,
                    f"One request may create at most {PARTITIONS_MAX} partitions.",
                )
            elif name not in broker.node.image.topics and _refuses(quota, planned.partitions):
                planned = _EXCEEDED
        if isinstance(planned, TopicAnswer):
            results[name] = _created(name, planned, [])
            continue
        planned.validate_only = request["validate_only"]
        events.append(planned)
        results[name] = {}
    answers = yield list(events)
    for event, answer in zip(events, answers, strict=True):
        ours = answer.error is ErrorCode.NONE
        configs = effective_topic_configs(broker, event.configs) if ours else []
        results[event.name] = _created(event.name, answer, configs)
    return {"throttle_time_ms": _throttle_ms(quota), "topics": list(results.values())}


def _mutation_quota(broker: BrokerContext, *, strict_since: int) -> "MutationQuota | None":
    """Return the quota of the client's changes; clients that know THROTTLING_QUOTA_EXCEEDED get
    it from this version on (KIP-599)."""
    if broker.charge is None:
        return None
    return broker.charge.mutation_quota(strict=broker.version >= strict_since)


def _refuses(quota: "MutationQuota | None", partitions: int) -> bool:
    return quota is not None and quota.refuses(partitions)


def _throttle_ms(quota: "MutationQuota | None") -> int:
    return 0 if quota is None else quota.throttle_ms


def no_time_left() -> TopicAnswer:
    """The error for `timeout_ms` 0, as in Kafka."""
    return TopicAnswer(ErrorCode.REQUEST_TIMED_OUT, "timeout_ms is 0; use a larger value.")


_DUPLICATE_ID = TopicAnswer(
    ErrorCode.INVALID_REQUEST, "The topic id is given more than once in the request."
)
"""It names no topic: the principal may not be allowed to know the topic of this id."""


def _refuse_duplicate(name: str) -> TopicAnswer:
    return TopicAnswer(ErrorCode.INVALID_REQUEST, f"{name} is named more than once in the request.")


def _plan(broker: BrokerContext, topic: Struct) -> CreateTopicReceived | TopicAnswer:
    """The request to the controller, or the error that makes it unnecessary."""
    name = topic["name"]
    if name == _CLUSTER_METADATA:
        return TopicAnswer(ErrorCode.INVALID_REQUEST, f"The name {name} is reserved.")
    if (problem := name_problem(name)) is not None:
        return TopicAnswer(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    planned = _checked(broker, topic)
    # Only a valid request reaches the controller, which may know that the topic was deleted.
    if isinstance(planned, TopicAnswer) and name in broker.node.image.topics:
        return TopicAnswer(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {name} already exists.")
    return planned


def _checked(broker: BrokerContext, topic: Struct) -> CreateTopicReceived | TopicAnswer:
    """Validate configs, partition count and replication factor."""
    configs: dict[str, str] = {}
    for config in topic["configs"]:
        key, text = config["name"], config["value"]
        if text is None:
            return TopicAnswer(ErrorCode.INVALID_CONFIG, f"{key} has no value.")
        if (problem := topic_problem(key, text)) is not None:
            return TopicAnswer(ErrorCode.INVALID_CONFIG, problem)
        configs[key] = normal(key, text)
    size = _size(broker, topic)
    if isinstance(size, TopicAnswer):
        return size
    partitions, replication_factor, assignment = size
    return CreateTopicReceived(
        0,
        topic["name"],
        broker.new_topic_id(),
        partitions,
        replication_factor,
        configs,
        assignment,
        broker.start_index(),
    )


def _size(
    broker: BrokerContext, topic: Struct
) -> tuple[int, int, tuple[tuple[int, ...], ...]] | TopicAnswer:
    """Partition count, replication factor, and the replica assignment if one is given."""
    partitions, replication_factor = topic["num_partitions"], topic["replication_factor"]
    if topic["assignments"]:
        return _assigned(topic)
    if replication_factor < DEFAULT or replication_factor == 0:
        message = f"{replication_factor} replicas: give a number above 0, or -1 for the default."
        return TopicAnswer(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if partitions < DEFAULT or partitions == 0:
        message = f"{partitions} partitions: give a number above 0, or -1 for the default."
        return TopicAnswer(ErrorCode.INVALID_PARTITIONS, message)
    if partitions == DEFAULT:
        partitions = broker.settings.get("num.partitions")
    if replication_factor == DEFAULT:
        replication_factor = broker.settings.get("default.replication.factor")
    return partitions, replication_factor, ()


def _assigned(topic: Struct) -> tuple[int, int, tuple[tuple[int, ...], ...]] | TopicAnswer:
    if (topic["num_partitions"], topic["replication_factor"]) != (DEFAULT, DEFAULT):
        message = "With replicas assigned by hand, partitions and replication factor must be -1."
        return TopicAnswer(ErrorCode.INVALID_REQUEST, message)
    assigned = {given["partition_index"]: given["broker_ids"] for given in topic["assignments"]}
    count = len(topic["assignments"])
    if sorted(assigned) != list(range(count)):
        message = f"Assign replicas to the partitions 0 to {count - 1}, each once."
        return TopicAnswer(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    assignment = tuple(tuple(assigned[partition]) for partition in range(count))
    return count, len(assignment[0]), assignment


def _created(name: str, answer: TopicAnswer, configs: list[Struct]) -> Struct:
    return {
        "name": name,
        "topic_id": answer.topic_id or NO_TOPIC_ID,
        "error_code": answer.error,
        "error_message": error_text(answer.message),
        "topic_config_error_code": ErrorCode.NONE,
        "num_partitions": answer.partitions,
        "replication_factor": answer.replication_factor,
        "configs": configs,
    }


def delete_topics(broker: BrokerContext, request: Struct) -> Handling:
    """Delete topics by name, or from version 6 on by id."""
    asked = [(name, NO_TOPIC_ID) for name in request.get("topic_names", [])]
    asked += [(topic["name"], topic["topic_id"]) for topic in request.get("topics", [])]
    targets = [_deletable(broker, name, topic_id) for name, topic_id in asked]
    if request["timeout_ms"] <= 0:
        targets = [no_time_left() for _ in asked]
    # A new topic may not be in this broker's image yet: then it is identified by its id.
    times = Counter(
        target or topic_id
        for (_, topic_id), target in zip(asked, targets, strict=True)
        if isinstance(target, str)
    )
    quota = _mutation_quota(broker, strict_since=5)
    known = broker.node.image.topics
    results: dict[tuple[str | None, TopicId], Struct] = {}
    events: dict[tuple[str | None, TopicId], DeleteTopicReceived] = {}
    given = Counter(asked)
    for topic, target in zip(asked, targets, strict=True):
        if topic[0] is None and given[topic] > 1 and isinstance(target, str):
            target = _DUPLICATE_ID
        elif isinstance(target, str) and times[target or topic[1]] > 1:
            target = _refuse_duplicate(target or "A topic")
        if (
            isinstance(target, str)
            and target in known
            and _refuses(quota, known[target].partition_count)
        ):
            target = _EXCEEDED
        if isinstance(target, TopicAnswer):
            results[topic] = _deleted(*topic, target)
        else:
            topic_id = None if topic[1] == NO_TOPIC_ID else topic[1]
            events[topic] = DeleteTopicReceived(0, target, topic_id)
            results[topic] = {}
    answers = yield list(events.values())
    for (topic, event), answer in zip(events.items(), answers, strict=True):
        unknown = answer.error is ErrorCode.UNKNOWN_TOPIC_ID
        name = topic[0]
        if name is None:
            name = event.name or broker.node.image.topic_names.get(topic[1])
        results[topic] = _deleted(None if unknown else name, answer.topic_id or topic[1], answer)
    return {"throttle_time_ms": _throttle_ms(quota), "responses": list(results.values())}


def _deletable(broker: BrokerContext, name: str | None, topic_id: TopicId) -> str | TopicAnswer:
    """The name of the topic to delete (empty if only the controller can know it), or an error."""
    if not broker.settings.get("delete.topic.enable"):
        old = broker.version < 3
        error = ErrorCode.INVALID_REQUEST if old else ErrorCode.TOPIC_DELETION_DISABLED
        return TopicAnswer(error, "Topics cannot be deleted: delete.topic.enable is false.")
    if topic_id == NO_TOPIC_ID:
        if name is None:
            return TopicAnswer(ErrorCode.INVALID_REQUEST, "Give the topic's name or its id.")
        return name
    if name is not None:
        return TopicAnswer(ErrorCode.INVALID_REQUEST, "Give the topic's name or its id, not both.")
    return broker.node.image.topic_names.get(topic_id, "")


def _deleted(name: str | None, topic_id: TopicId, answer: TopicAnswer) -> Struct:
    return {
        "name": name,
        "topic_id": topic_id,
        "error_code": answer.error,
        "error_message": error_text(answer.message),
    }


def create_partitions(broker: BrokerContext, request: Struct) -> Handling:
    """Add partitions to topics, or with `validate_only` only check the request."""
    times = Counter(topic["name"] for topic in request["topics"])
    room = PARTITIONS_MAX
    quota = _mutation_quota(broker, strict_since=3)
    results: dict[str, TopicAnswer] = {}
    events: list[CreatePartitionsReceived] = []
    for topic in request["topics"]:
        name = topic["name"]
        known = broker.node.image.topics.get(name)
        added = max(0, topic["count"] - (0 if known is None else known.partition_count))
        room -= added
        results[name] = TopicAnswer(ErrorCode.NONE)
        if request["timeout_ms"] <= 0:
            results[name] = no_time_left()
        elif times[name] > 1:
            message = f"{name} is named more than once in the request."
            results[name] = TopicAnswer(ErrorCode.INVALID_REQUEST, message)
        elif name == OFFSETS_TOPIC and known is not None:
            # The partition of a group's offsets depends on the partition count.
            message = f"{name} cannot get more partitions: groups would lose their offsets."
            results[name] = TopicAnswer(ErrorCode.INVALID_PARTITIONS, message)
        elif room < 0:
            message = f"One request may create at most {PARTITIONS_MAX} partitions."
            results[name] = TopicAnswer(ErrorCode.POLICY_VIOLATION, message)
        elif known is not None and added and _refuses(quota, added):
            results[name] = _EXCEEDED
        else:
            given = topic["assignments"]
            events.append(
                CreatePartitionsReceived(
                    0,
                    name,
                    topic["count"],
                    None if given is None else tuple(tuple(each["broker_ids"]) for each in given),
                    broker.start_index(),
                    validate_only=request["validate_only"],
                )
            )
    answers = yield list(events)
    results.update((event.name, answer) for event, answer in zip(events, answers, strict=True))
    return {
        "throttle_time_ms": _throttle_ms(quota),
        "results": [
            {"name": name, "error_code": answer.error, "error_message": error_text(answer.message)}
            for name, answer in results.items()
        ],
    }
