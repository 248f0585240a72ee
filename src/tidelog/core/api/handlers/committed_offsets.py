"""OffsetCommit 2-10, TxnOffsetCommit 0-5, OffsetFetch 1-10 and OffsetDelete 0: the committed
offsets of groups.

This broker's image knows the topics, so unknown topics are refused here, partition by partition;
the coordinator gets the rest. Clients name topics by id from version 10 on; a topic with an
unknown id has no name.
"""

from collections.abc import Sequence

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.errors import ErrorCode
from tidelog.core.groups.messages import (
    NO_MEMBER,
    NO_OFFSET,
    FetchedOffset,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
    TxnOffsetCommit,
)
from tidelog.core.types import TopicId, TopicPartition

NO_TOPIC_ID: TopicId = bytes(16)
_UNKNOWN = -1
_BY_ID = 10
_MANY_GROUPS = 8
_KNOWS_LOADING = 2
"""The first version of TxnOffsetCommit whose clients may get COORDINATOR_LOAD_IN_PROGRESS
(KAFKA-7296)."""
_GROUP_ERROR = 2
"""The first version of OffsetFetch whose response has an error code for the group."""


# -- commit --------------------------------------------------------------------------------


def offset_commit(broker: BrokerContext, request: Struct) -> Handling:
    """Commit offsets; respond when all in-sync replicas have them."""
    offsets: list[OffsetToCommit] = []
    refusals: list[list[ErrorCode]] = []
    for topic in request["topics"]:
        accepted, refused = _to_commit(broker, topic)
        offsets += accepted
        refusals.append(refused)
    errors: Sequence[ErrorCode] = ()
    if offsets:
        retention_ms = request.get("retention_time_ms", _UNKNOWN)
        [answer] = yield [
            OffsetCommit(
                request["group_id"],
                request["generation_id_or_member_epoch"],
                request["member_id"],
                request.get("group_instance_id"),
                offsets,
                None if retention_ms == _UNKNOWN else retention_ms,
                broker.version,
            )
        ]
        errors = [partition.error_code for partition in answer.partitions]
    return {"throttle_time_ms": 0, "topics": _answers(request["topics"], refusals, errors)}


def _to_commit(
    broker: BrokerContext, topic: Struct
) -> tuple[list[OffsetToCommit], list[ErrorCode]]:
    """The offsets to commit; and for each partition the reason for a refusal, or NONE."""
    image = broker.node.image
    if broker.version >= _BY_ID:
        name = image.topic_names.get(topic["topic_id"])
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        name = topic["name"]
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    known = None if name is None else image.topics.get(name)
    if name is None or known is None:
        return [], [unknown] * len(topic["partitions"])
    offsets: list[OffsetToCommit] = []
    refusals: list[ErrorCode] = []
    for asked in topic["partitions"]:
        index = asked["partition_index"]
        if image.partition(name, index) is None:
            refusals.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            continue
        epoch = asked.get("committed_leader_epoch", _UNKNOWN)
        refusals.append(ErrorCode.NONE)
        offsets.append(
            OffsetToCommit(
                name,
                index,
                asked["committed_offset"],
                None if epoch == _UNKNOWN else epoch,
                asked["committed_metadata"] or "",
                known.topic_id,
            )
        )
    return offsets, refusals


def _answers(
    topics: list[Struct], refusals: list[list[ErrorCode]], errors: Sequence[ErrorCode]
) -> list[Struct]:
    """The results in the request's order: refused here, or the coordinator's result."""
    results = iter(errors)
    return [
        {
            "name": topic.get("name"),
            "topic_id": topic.get("topic_id"),
            "partitions": [
                {
                    "partition_index": asked["partition_index"],
                    "error_code": next(results) if refusal is ErrorCode.NONE else refusal,
                }
                for asked, refusal in zip(topic["partitions"], refused, strict=True)
            ],
        }
        for topic, refused in zip(topics, refusals, strict=True)
    ]


# -- commit in a transaction ---------------------------------------------------------------


def txn_offset_commit(broker: BrokerContext, request: Struct) -> Handling:
    """Commit offsets in a producer's transaction; respond when all in-sync replicas have them."""
    offsets: list[OffsetToCommit] = []
    refusals: list[list[ErrorCode]] = []
    for topic in request["topics"]:
        accepted, refused = _to_commit(broker, topic)
        offsets += accepted
        refusals.append(refused)
    errors: Sequence[ErrorCode] = ()
    if offsets:
        [answer] = yield [
            TxnOffsetCommit(
                request["transactional_id"],
                request["group_id"],
                request["producer_id"],
                request["producer_epoch"],
                request.get("generation_id", _UNKNOWN),
                request.get("member_id", NO_MEMBER),
                request.get("group_instance_id"),
                offsets,
                broker.version,
            )
        ]
        errors = [_txn_error(broker, partition.error_code) for partition in answer.partitions]
    return {"throttle_time_ms": 0, "topics": _answers(request["topics"], refusals, errors)}


def _txn_error(broker: BrokerContext, error: ErrorCode) -> ErrorCode:
    if broker.version < _KNOWS_LOADING and error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error


# -- fetch ---------------------------------------------------------------------------------


def offset_fetch(broker: BrokerContext, request: Struct) -> Handling:
    """Return offsets of one group up to version 7, of many from version 8 on."""
    groups = once_each(request["groups"]) if broker.version >= _MANY_GROUPS else [request]
    stable = request.get("require_stable", False)
    named = [_named(broker, group["topics"]) for group in groups]
    answers = yield [
        OffsetFetch(group["group_id"], None if names is None else names.partitions, stable)
        for group, names in zip(groups, named, strict=True)
    ]
    fetched = [
        _fetched(broker, group, names, answer)
        for group, names, answer in zip(groups, named, answers, strict=True)
    ]
    if broker.version >= _MANY_GROUPS:
        return {"throttle_time_ms": 0, "groups": fetched}
    return {"throttle_time_ms": 0, **fetched[0]}


def once_each(groups: list[Struct]) -> list[Struct]:
    """Drop repeated requests for all offsets of the same group."""
    everything = {group["group_id"]: group for group in groups if group["topics"] is None}
    return [
        group
        for group in groups
        if group["topics"] is not None or everything[group["group_id"]] is group
    ]


class _Named:
    """The requested partitions by topic name; and topics whose id is unknown."""

    __slots__ = ("ids", "nameless", "partitions")

    def __init__(self) -> None:
        self.partitions: list[TopicPartition] = []
        self.ids: dict[str, TopicId] = {}
        self.nameless: list[Struct] = []


def _named(broker: BrokerContext, topics: list[Struct] | None) -> _Named | None:
    """The requested partitions; None if the request is for all offsets of the group."""
    if topics is None:
        return None
    named = _Named()
    names = broker.node.image.topic_names
    for topic in topics:
        name = topic["name"] if broker.version < _BY_ID else names.get(topic["topic_id"])
        if name is None:
            named.nameless.append(topic)
        else:
            named.ids[name] = topic.get("topic_id", NO_TOPIC_ID)
            named.partitions += [TopicPartition(name, at) for at in topic["partition_indexes"]]
    return named


def _fetched(
    broker: BrokerContext, group: Struct, named: _Named | None, answer: OffsetFetchResponse
) -> Struct:
    error = answer.error_code
    offsets = answer.partitions
    nameless = named.nameless if named is not None else []
    if error is not ErrorCode.NONE:
        nameless, offsets = [], ()
        if broker.version < _GROUP_ERROR and named is not None:
            offsets = tuple(
                FetchedOffset(topic, index, NO_OFFSET, None, "", error)
                for topic, index in named.partitions
            )
    by_topic: dict[str, list[Struct]] = {}
    for offset in offsets:
        by_topic.setdefault(offset.topic, []).append(_offset(offset))
    topics: list[Struct] = []
    for name, partitions in by_topic.items():
        topic_id = _topic_id(broker, named, name)
        if topic_id is not None:
            topics.append({"name": name, "topic_id": topic_id, "partitions": partitions})
    for topic in nameless:
        partitions = [
            _offset(FetchedOffset("", index, NO_OFFSET, None, "", ErrorCode.UNKNOWN_TOPIC_ID))
            for index in topic["partition_indexes"]
        ]
        topics.append({"topic_id": topic["topic_id"], "partitions": partitions})
    return {"group_id": group["group_id"], "topics": topics, "error_code": error}


def _topic_id(broker: BrokerContext, named: _Named | None, name: str) -> TopicId | None:
    """The id as requested. If all offsets were requested, a deleted topic has no id, and is left
    out of responses that name topics by id only."""
    if named is not None:
        return named.ids.get(name, NO_TOPIC_ID)
    known = broker.node.image.topics.get(name)
    if known is not None:
        return known.topic_id
    return NO_TOPIC_ID if broker.version < _BY_ID else None


def _offset(offset: FetchedOffset) -> Struct:
    epoch = offset.committed_leader_epoch
    return {
        "partition_index": offset.partition,
        "committed_offset": offset.committed_offset,
        "committed_leader_epoch": _UNKNOWN if epoch is None else epoch,
        "metadata": offset.metadata,
        "error_code": offset.error_code,
    }


# -- delete --------------------------------------------------------------------------------


def offset_delete(broker: BrokerContext, request: Struct) -> Handling:
    """Delete offsets. The coordinator gets the request even if no partition is left: an unknown
    group is reported first."""
    if not request["group_id"]:
        return {"error_code": ErrorCode.INVALID_GROUP_ID, "throttle_time_ms": 0, "topics": []}
    image = broker.node.image
    partitions: list[TopicPartition] = []
    refusals: list[list[ErrorCode]] = []
    for topic in request["topics"]:
        refused: list[ErrorCode] = []
        for asked in topic["partitions"]:
            at = TopicPartition(topic["name"], asked["partition_index"])
            if image.partition(*at) is None:
                refused.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                refused.append(ErrorCode.NONE)
                partitions.append(at)
        refusals.append(refused)
    [answer] = yield [OffsetDelete(request["group_id"], partitions)]
    topics: list[Struct] = []
    if answer.error_code is ErrorCode.NONE:
        errors = [partition.error_code for partition in answer.partitions]
        topics = _answers(request["topics"], refusals, errors)
    return {"error_code": answer.error_code, "throttle_time_ms": 0, "topics": topics}
