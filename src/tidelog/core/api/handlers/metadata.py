"""Metadata 0-13 and DescribeTopicPartitions 0: topics, partitions and brokers for clients.

Both respond from this broker's image, which may be a moment behind the controller. Metadata may
create a missing topic (`auto.create.topics.enable`); the client gets the topic at once if the
image already has it, else LEADER_NOT_AVAILABLE, on which it retries.
"""

from collections.abc import Container, Generator
from typing import Any

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.handlers.brokers import (
    CLUSTER_OPERATIONS,
    NOT_REQUESTED,
    TOPIC_OPERATIONS,
    alive_brokers,
    controller_id,
)
from tidelog.core.api.handlers.refusals import name_problem
from tidelog.core.controller.events import CreateTopicReceived
from tidelog.core.controller.metadata.cluster_image import partitions_of
from tidelog.core.controller.metadata.registrations import PartitionRegistration
from tidelog.core.errors import ErrorCode
from tidelog.core.types import INTERNAL_TOPICS, BrokerId, TopicId

NO_TOPIC_ID: TopicId = bytes(16)
_NO_LEADER = -1
_LISTENER_NOT_FOUND = 6
"""The first version of Metadata with this error."""
CREATED_MAX = 500
"""Topics that one Metadata request may create."""


def metadata(broker: BrokerContext, request: Struct) -> Handling:
    """Describe all topics, the named ones, or those with the given ids."""
    asked = request["topics"]
    if asked is None or (broker.version == 0 and not asked):
        view = _View(broker, request)
        return view.response([view.topic(name) for name in sorted(view.image.topics)])
    by_id = [topic["topic_id"] for topic in asked if topic.get("topic_id", b"").strip(b"\0")]
    if broker.version < 12 and (by_id or any(topic["name"] is None for topic in asked)):
        # Versions 10 and 11 have the fields, but requests by id are valid from version 12 on.
        view = _View(broker, request)
        invalid = ErrorCode.INVALID_REQUEST
        return view.response([view.no_topic(invalid, topic["name"] or "") for topic in asked])
    if by_id:
        view = _View(broker, request)
        return view.response([view.topic_with(topic_id) for topic_id in dict.fromkeys(by_id)])
    names = dict.fromkeys(topic["name"] for topic in asked)
    missing = [name for name in names if name not in broker.node.image.topics]
    errors = {name: _error_of_missing(name) for name in missing}
    if request.get("allow_auto_topic_creation", True):
        errors.update((yield from _create(broker, missing)))
    view = _View(broker, request)
    topics = []
    for name in names:
        if name in view.image.topics:
            topics.append(view.topic(name))
        else:
            topics.append(view.no_topic(errors.get(name) or _error_of_missing(name), name))
    return view.response(topics)


def _error_of_missing(name: str | None) -> ErrorCode:
    if name is None:
        return ErrorCode.INVALID_REQUEST
    if name_problem(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _create(
    broker: BrokerContext, missing: list[str]
) -> Generator[list[object], list[Any], dict[str, ErrorCode]]:
    """Create missing topics; return the error of each until this broker's image has it.

    Internal topics are not created here: the component that needs one creates it.
    """
    names = [
        name
        for name in missing
        if name not in INTERNAL_TOPICS
        and _error_of_missing(name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]
    if not names or not broker.settings.get("auto.create.topics.enable"):
        return {}
    names = names[:CREATED_MAX]  # a client retries those that are still missing
    partitions = broker.settings.get("num.partitions")
    factor = broker.settings.get("default.replication.factor")
    if broker.charge is not None:
        # As in Kafka, a topic beyond the quota stays missing, in every version: the error of the
        # quota is none of Metadata, and clients retry.
        quota = broker.charge.mutation_quota(strict=True)
        if quota is not None:
            names = [name for name in names if not quota.refuses(partitions)]
    answers = yield [
        CreateTopicReceived(
            0, name, broker.new_topic_id(), partitions, factor, start_index=broker.start_index()
        )
        for name in names
    ]
    return {
        name: _error_of_created(answer.error) for name, answer in zip(names, answers, strict=True)
    }


def _error_of_created(error: ErrorCode) -> ErrorCode:
    if error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        return ErrorCode.LEADER_NOT_AVAILABLE
    if error in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return error


class _View:
    """Builds the parts of one Metadata response from the image."""

    __slots__ = ("_alive", "_broker", "_request", "image")

    def __init__(self, broker: BrokerContext, request: Struct) -> None:
        self.image = broker.node.image
        self._broker = broker
        self._request = request
        self._alive = alive_brokers(self.image, broker.listener)

    def response(self, topics: list[Struct]) -> Struct:
        cluster_operations = self._request.get("include_cluster_authorized_operations", False)
        return {
            "throttle_time_ms": 0,
            "brokers": self._brokers(),
            "cluster_id": self._broker.cluster_id,
            "controller_id": controller_id(self.image, self._alive),
            "topics": topics,
            "cluster_authorized_operations": (
                CLUSTER_OPERATIONS if cluster_operations else NOT_REQUESTED
            ),
            "error_code": ErrorCode.NONE,
        }

    def _brokers(self) -> list[Struct]:
        """The live brokers, and those that left a moment ago (`DepartedBrokers`)."""
        broker = self._broker
        departed = broker.broker.departed.lately(broker.now_ms)
        known = [*departed, *(self.image.brokers[id] for id in self._alive)]
        named = {}
        for one in known:
            endpoint = one.endpoint(broker.listener)
            if endpoint is not None:
                named[one.id] = {
                    "node_id": one.id,
                    "host": endpoint.host,
                    "port": endpoint.port,
                    "rack": one.rack,
                }
        return [named[id] for id in sorted(named)]

    def topic(self, name: str) -> Struct:
        topic = self.image.topics[name]
        found = self.no_topic(ErrorCode.NONE, name, topic.topic_id)
        found["partitions"] = [self._partition(p) for p in partitions_of(self.image, topic)]
        return found

    def topic_with(self, topic_id: TopicId) -> Struct:
        name = self.image.topic_names.get(topic_id)
        if name is None:
            unknown = self.no_topic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
            return {**unknown, "topic_authorized_operations": NOT_REQUESTED}
        return self.topic(name)

    def no_topic(
        self, error: ErrorCode, name: str | None, topic_id: TopicId = NO_TOPIC_ID
    ) -> Struct:
        operations = self._request.get("include_topic_authorized_operations", False)
        return {
            "error_code": error,
            "name": name,
            "topic_id": topic_id,
            "is_internal": name in INTERNAL_TOPICS,
            "partitions": [],
            "topic_authorized_operations": TOPIC_OPERATIONS if operations else NOT_REQUESTED,
        }

    def _partition(self, partition: PartitionRegistration) -> Struct:
        alive = self._alive
        replicas, isr = list(partition.replicas), list(partition.isr)
        offline = _offline(partition, alive)
        error = ErrorCode.NONE
        leader = partition.leader
        if self._broker.version == 0 and offline:
            # Version 0 names no broker that is not in its list of brokers.
            replicas = [replica for replica in replicas if replica in alive]
            isr = [replica for replica in isr if replica in alive]
            error = ErrorCode.REPLICA_NOT_AVAILABLE
        if leader is None or leader not in alive:
            error = self._error_without_leader(leader)
            leader = _NO_LEADER
        return {
            "error_code": error,
            "partition_index": partition.partition,
            "leader_id": leader,
            "leader_epoch": partition.leader_epoch,
            "replica_nodes": replicas,
            "isr_nodes": isr,
            "offline_replicas": offline,
        }

    def _error_without_leader(self, leader: BrokerId | None) -> ErrorCode:
        """As in Kafka: a live leader without the client's listener has an error of its own."""
        known = None if leader is None else self.image.brokers.get(leader)
        if known is None or known.fenced or self._broker.version < _LISTENER_NOT_FOUND:
            return ErrorCode.LEADER_NOT_AVAILABLE
        return ErrorCode.LISTENER_NOT_FOUND


# -- DescribeTopicPartitions ------------------------------------------------------------------
# Invariant: topics are sorted by name, so that the cursor of one response says where the next
# one starts.


def describe_topic_partitions(broker: BrokerContext, request: Struct) -> Struct:
    """Describe the named topics or all; at most `response_partition_limit` partitions a page."""
    image = broker.node.image
    cursor = request["cursor"]
    begin, first = ("", 0) if cursor is None else (cursor["topic_name"], cursor["partition_index"])
    asked = {topic["name"] for topic in request["topics"]}
    names = sorted(name for name in asked or image.topics if name >= begin)
    if first < 0 or (cursor is not None and asked and begin not in asked):
        invalid = ErrorCode.INVALID_REQUEST
        refused = [_topic(name, invalid) for name in sorted(asked)]
        for topic in refused:
            topic["topic_authorized_operations"] = NOT_REQUESTED
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


def _answer(topics: list[Struct], cursor: Struct | None) -> Struct:
    return {"throttle_time_ms": 0, "topics": topics, "next_cursor": cursor}


def _cursor(name: str, partition: int) -> Struct:
    return {"topic_name": name, "partition_index": partition}


def _topic(
    name: str,
    error: ErrorCode,
    topic_id: TopicId = NO_TOPIC_ID,
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
        "offline_replicas": _offline(partition, alive),
    }


def _offline(partition: PartitionRegistration, alive: Container[BrokerId]) -> list[BrokerId]:
    """The replicas whose broker is down or whose log directory failed."""
    failed = partition.offline
    return [r for r in partition.replicas if r not in alive or r in failed]
