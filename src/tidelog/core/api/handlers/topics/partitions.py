"""CreatePartitions 0-3: more partitions for topics that are there."""

from collections import Counter

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.handlers.refusals import told
from tidelog.core.api.handlers.topics.topics import PARTITIONS_MAX, no_time_left
from tidelog.core.controller.effects import TopicAnswer
from tidelog.core.controller.events import CreatePartitionsReceived
from tidelog.core.errors import ErrorCode
from tidelog.core.groups.partitioning import OFFSETS_TOPIC


def create_partitions(broker: BrokerContext, request: Struct) -> Handling:
    """Raise the counts, or with `validate_only` say what would come of it."""
    times = Counter(topic["name"] for topic in request["topics"])
    room = PARTITIONS_MAX
    results: dict[str, TopicAnswer] = {}
    events: list[CreatePartitionsReceived] = []
    for topic in request["topics"]:
        name = topic["name"]
        known = broker.node.image.topics.get(name)
        room -= max(0, topic["count"] - (0 if known is None else known.partition_count))
        results[name] = TopicAnswer(ErrorCode.NONE)
        if request["timeout_ms"] <= 0:
            results[name] = no_time_left()
        elif times[name] > 1:
            message = f"{name} is in the request more than once."
            results[name] = TopicAnswer(ErrorCode.INVALID_REQUEST, message)
        elif name == OFFSETS_TOPIC and known is not None:
            # A group's offsets are in the partition that its name falls on, one of all there are.
            message = f"With more partitions of {name} groups would lose their offsets."
            results[name] = TopicAnswer(ErrorCode.INVALID_PARTITIONS, message)
        elif room < 0:
            message = f"One request may make {PARTITIONS_MAX} partitions at most."
            results[name] = TopicAnswer(ErrorCode.POLICY_VIOLATION, message)
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
        "throttle_time_ms": 0,
        "results": [
            {"name": name, "error_code": answer.error, "error_message": told(answer.message)}
            for name, answer in results.items()
        ],
    }
