"""DescribeTopicPartitions 0: topics page by page, with who may lead when nobody in sync is left.

Always true: topics come in the order of their names, so that the cursor of one answer says
where the next one begins.
"""

from collections.abc import Container

from tidelog.core.api.context import BrokerContext, Struct
from tidelog.core.api.handlers.cluster.brokers import (
    NOT_ASKED_FOR,
    TOPIC_OPERATIONS,
    alive_brokers,
)
from tidelog.core.api.handlers.refusals import name_problem
from tidelog.core.controller.metadata.registrations import PartitionRegistration
from tidelog.core.errors import ErrorCode
from tidelog.core.types import INTERNAL_TOPICS, BrokerId, TopicId

_NO_LEADER = -1
_NO_TOPIC_ID: TopicId = bytes(16)


def describe_topic_partitions(broker: BrokerContext, request: Struct) -> Struct:
    """Those named, or all; so many partitions as the client takes, and where to go on."""
    image = broker.node.image
    cursor = request["cursor"]
    begin, first = ("", 0) if cursor is None else (cursor["topic_name"], cursor["partition_index"])
    asked = {topic["name"] for topic in request["topics"]}
    names = sorted(name for name in asked or image.topics if name >= begin)
    if first < 0 or (cursor is not None and asked and begin not in asked):
        invalid = ErrorCode.INVALID_REQUEST
        refused = [_topic(name, invalid) for name in sorted(asked)]
        for topic in refused:
            topic["topic_authorized_operations"] = NOT_ASKED_FOR
        return _answer(refused, None)
    most = broker.settings.get("max.request.partition.size.limit")
    room = max(1, min(most, request["response_partition_limit"]))
    alive = alive_brokers(image, broker.listener)
    topics: list[Struct] = []
    for name in names:
        if room == 0:
            return _answer(topics, _cursor(name, 0))
        known = image.topics.get(name)
        if known is None:
            topics.append(_topic(name, _error_of_missing(name)))
            continue
        start = first if name == begin else 0
        end = min(known.partition_count, start + room)
        found = [image.partition(name, index) for index in range(start, end)]
        partitions = [_partition(each, alive) for each in found if each is not None]
        topics.append(_topic(name, ErrorCode.NONE, known.topic_id, partitions))
        room -= len(partitions)
        if end < known.partition_count:
            return _answer(topics, _cursor(name, end))
    return _answer(topics, None)


def _error_of_missing(name: str) -> ErrorCode:
    if name_problem(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _answer(topics: list[Struct], cursor: Struct | None) -> Struct:
    return {"throttle_time_ms": 0, "topics": topics, "next_cursor": cursor}


def _cursor(name: str, partition: int) -> Struct:
    return {"topic_name": name, "partition_index": partition}


def _topic(
    name: str,
    error: ErrorCode,
    topic_id: TopicId = _NO_TOPIC_ID,
    partitions: list[Struct] | None = None,
) -> Struct:
    return {
        "error_code": error,
        "name": name,
        "topic_id": topic_id,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": partitions or [],
        "topic_authorized_operations": TOPIC_OPERATIONS,
    }


def _partition(partition: PartitionRegistration, alive: Container[BrokerId]) -> Struct:
    return {
        "error_code": ErrorCode.NONE,
        "partition_index": partition.partition,
        "leader_id": partition.leader if partition.leader in alive else _NO_LEADER,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": list(partition.replicas),
        "isr_nodes": list(partition.isr),
        "eligible_leader_replicas": list(partition.elr),
        "last_known_elr": list(partition.last_known_elr),
        "offline_replicas": [replica for replica in partition.replicas if replica not in alive],
    }
