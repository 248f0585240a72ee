"""Guards of InitProducerId and of the requests about transactions."""

from collections.abc import Callable

from tidelog.core.api.access_control import Access
from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.guards import Serve, run
from tidelog.core.authorization.acl import Operation, ResourceType
from tidelog.core.errors import ErrorCode
from tidelog.core.types import INTERNAL_TOPICS

_REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NONE = -1
_BY_BROKERS = 4
"""The first version of AddPartitionsToTxn that only brokers send."""


def _may(access: Access, operation: Operation, name: str) -> bool:
    return access.may(operation, ResourceType.TRANSACTIONAL_ID, name)


def init_producer_id(
    access: Access, _broker: BrokerContext, request: Struct, serve: Serve
) -> Handling:
    """WRITE the transactional id; without one, IDEMPOTENT_WRITE on the cluster or WRITE any
    topic."""
    name, error = request["transactional_id"], ErrorCode.NONE
    if name is not None:
        if not _may(access, Operation.WRITE, name):
            error = _REFUSED
    elif not access.may_on_cluster(Operation.IDEMPOTENT_WRITE, log=False) and not (
        access.may_on_any(Operation.WRITE, ResourceType.TOPIC)
    ):
        access.may_on_cluster(Operation.IDEMPOTENT_WRITE)  # writes the line of the log
        error = _CLUSTER
    if not error:
        return (yield from run(serve(request)))
    return {
        "throttle_time_ms": 0,
        "error_code": error,
        "producer_id": _NONE,
        "producer_epoch": _NONE,
    }


def add_partitions_to_txn(
    access: Access, broker: BrokerContext, request: Struct, serve: Serve
) -> Handling:
    """WRITE the transactional id, and WRITE each topic: all partitions are added or none. Brokers
    need CLUSTER_ACTION."""
    if broker.version >= _BY_BROKERS:
        if access.may_on_cluster(Operation.CLUSTER_ACTION):
            return (yield from run(serve(request)))
        return {"throttle_time_ms": 0, "error_code": _CLUSTER, "results_by_transaction": []}
    topics = request["v3_and_below_topics"]
    if not _may(access, Operation.WRITE, request["v3_and_below_transactional_id"]):
        return _added(topics, lambda _topic, _index: _REFUSED)
    names = [topic["name"] for topic in topics if topic["name"] not in INTERNAL_TOPICS]
    allowed = access.topics(Operation.WRITE, names)
    if all(topic["name"] in allowed for topic in topics):
        return (yield from run(serve(request)))
    image = broker.node.image

    def error_of(topic: str, index: int) -> ErrorCode:
        if topic not in allowed:
            return _TOPIC
        missing = image.partition(topic, index) is None
        return (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if missing else ErrorCode.OPERATION_NOT_ATTEMPTED
        )

    return _added(topics, error_of)


def _added(topics: list[Struct], error_of: Callable[[str, int], ErrorCode]) -> Struct:
    results = [
        {
            "name": topic["name"],
            "results_by_partition": [
                {"partition_index": at, "partition_error_code": error_of(topic["name"], at)}
                for at in topic["partitions"]
            ],
        }
        for topic in topics
    ]
    return {"throttle_time_ms": 0, "results_by_topic_v3_and_below": results}


def add_offsets_to_txn(
    access: Access, _broker: BrokerContext, request: Struct, serve: Serve
) -> Handling:
    """WRITE the transactional id, and READ the group."""
    error = ErrorCode.NONE
    if not _may(access, Operation.WRITE, request["transactional_id"]):
        error = _REFUSED
    elif not access.may(Operation.READ, ResourceType.GROUP, request["group_id"]):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if error:
        return {"throttle_time_ms": 0, "error_code": error}
    return (yield from run(serve(request)))


def end_txn(access: Access, _broker: BrokerContext, request: Struct, serve: Serve) -> Handling:
    """WRITE the transactional id."""
    if _may(access, Operation.WRITE, request["transactional_id"]):
        return (yield from run(serve(request)))
    return {
        "throttle_time_ms": 0,
        "error_code": _REFUSED,
        "producer_id": _NONE,
        "producer_epoch": _NONE,
    }


def write_txn_markers(
    access: Access, _broker: BrokerContext, request: Struct, serve: Serve
) -> Handling:
    """ALTER the cluster as administrators do, or CLUSTER_ACTION as brokers have it."""
    if access.may_on_cluster(Operation.ALTER, log=False) or (
        access.may_on_cluster(Operation.CLUSTER_ACTION)
    ):
        return (yield from run(serve(request)))
    return {
        "markers": [
            {
                "producer_id": marker["producer_id"],
                "topics": [
                    {
                        "name": topic["name"],
                        "partitions": [
                            {"partition_index": index, "error_code": _CLUSTER}
                            for index in topic["partition_indexes"]
                        ],
                    }
                    for topic in marker["topics"]
                ],
            }
            for marker in request["markers"]
        ]
    }


def describe_transactions(
    access: Access, _broker: BrokerContext, request: Struct, serve: Serve
) -> Handling:
    """DESCRIBE each transactional id; of its topics, those that the principal may describe are
    shown."""
    names = request["transactional_ids"]
    may = {name: _may(access, Operation.DESCRIBE, name) for name in dict.fromkeys(names)}
    allowed = [name for name in names if may[name]]
    response = yield from run(serve({**request, "transactional_ids": allowed}))
    described = iter(response["transaction_states"])
    response["transaction_states"] = states = [
        next(described)
        if may[name]
        else {"error_code": _REFUSED, "transactional_id": name, "topics": []}
        for name in names
    ]
    for state in states:
        shown = access.topics(Operation.DESCRIBE, (topic["topic"] for topic in state["topics"]))
        state["topics"] = [topic for topic in state["topics"] if topic["topic"] in shown]
    return response


def list_transactions(
    access: Access, _broker: BrokerContext, request: Struct, serve: Serve
) -> Handling:
    """DESCRIBE each transactional id to see it."""
    response = yield from run(serve(request))
    response["transaction_states"] = [
        state
        for state in response["transaction_states"]
        if _may(access, Operation.DESCRIBE, state["transactional_id"])
    ]
    return response
