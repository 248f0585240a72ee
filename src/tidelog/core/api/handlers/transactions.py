"""The requests to a transaction coordinator: InitProducerId 0-5, AddPartitionsToTxn 0-5,
AddOffsetsToTxn 0-4, EndTxn 0-5, DescribeTransactions 0 and ListTransactions 0-2.

The coordinator's error for a fenced producer is PRODUCER_FENCED. Older versions of a request do not
know it and get INVALID_PRODUCER_EPOCH (KIP-588).
"""

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.handlers.coordinators import internal_topic
from tidelog.core.coordinator.lookup import OFFSETS_TOPIC, partition_for
from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import InitProducerId
from tidelog.core.transactions import messages as on
from tidelog.core.transactions.id_pattern import InvalidPattern, matcher
from tidelog.core.transactions.transaction import (
    EPOCH_BUMPS,
    STATES_BY_LABEL,
    ProducerIdentity,
)
from tidelog.core.types import INTERNAL_TOPICS, TopicPartition

_NONE = -1
ID_BYTES_MAX = 0x7FFF
"""Longest transactional id: the key of its records has a length of 16 bits."""
_INIT_KNOWS_FENCED = 4
_KNOWS_FENCED = 2
"""The first version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn with PRODUCER_FENCED."""
_MANY_TRANSACTIONS = 4
_END_BUMPS = 5
"""The first version of EndTxn that belongs to transaction version 2."""


def _fenced(broker: BrokerContext, error: ErrorCode, since: int = _KNOWS_FENCED) -> ErrorCode:
    """Return the error that this version of the request knows."""
    if error is ErrorCode.PRODUCER_FENCED and broker.version < since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def _producer(request: Struct, prefix: str = "") -> ProducerIdentity:
    return ProducerIdentity(request[f"{prefix}producer_id"], request[f"{prefix}producer_epoch"])


# -- InitProducerId ------------------------------------------------------------------------


def init_producer_id(broker: BrokerContext, request: Struct) -> Handling:
    """Allocate a producer id; with a transactional id, the one of that id with a new epoch."""
    transactional_id = request["transactional_id"]
    producer_id = request.get("producer_id", _NONE)
    producer_epoch = request.get("producer_epoch", _NONE)
    if transactional_id == "" or (producer_id == _NONE) != (producer_epoch == _NONE):
        return _producer_id(ErrorCode.INVALID_REQUEST)
    if transactional_id is not None and len(transactional_id.encode()) > ID_BYTES_MAX:
        return _producer_id(ErrorCode.INVALID_REQUEST)
    if transactional_id is None:
        [answer] = yield [InitProducerId()]
        return _producer_id(answer.error, answer.producer_id, answer.producer_epoch)
    expected = None if producer_id == _NONE else ProducerIdentity(producer_id, producer_epoch)
    timeout_ms = request["transaction_timeout_ms"]
    [answer] = yield [on.InitTransactionalId(transactional_id, timeout_ms, expected)]
    error = _fenced(broker, answer.error_code, _INIT_KNOWS_FENCED)
    return _producer_id(error, answer.producer_id, answer.producer_epoch)


def _producer_id(error: ErrorCode, producer_id: int = _NONE, producer_epoch: int = _NONE) -> Struct:
    return {
        "throttle_time_ms": 0,
        "error_code": error,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
    }


# -- AddPartitionsToTxn --------------------------------------------------------------------


def add_partitions_to_txn(broker: BrokerContext, request: Struct) -> Handling:
    """Add partitions to a transaction, up to version 3 as a client and from version 4 on as the
    leader of the partitions, which may also only verify them."""
    if broker.version < _MANY_TRANSACTIONS:
        prefix = "v3_and_below_"
        topics = request[f"{prefix}topics"]
        refusals = _refusals(broker, topics, by_client=True)
        error = ErrorCode.OPERATION_NOT_ATTEMPTED
        if not refusals:
            name = request[f"{prefix}transactional_id"]
            error = ErrorCode.INVALID_REQUEST
            if name:
                identity = _producer(request, prefix)
                [answer] = yield [on.AddPartitions(name, identity, _partitions(topics))]
                error = _fenced(broker, answer.error_code)
        results = _topic_results(topics, refusals, error)
        return {"throttle_time_ms": 0, "results_by_topic_v3_and_below": results}
    found, asked = [], []
    for each in request["transactions"]:
        refusals = _refusals(broker, each["topics"])
        if refusals:
            found.append(_result_of(each, refusals, ErrorCode.OPERATION_NOT_ATTEMPTED))
        elif not each["transactional_id"]:
            found.append(_result_of(each, {}, ErrorCode.INVALID_REQUEST))
        else:
            asked.append(each)
    answers = (yield [_request_of(each) for each in asked]) if asked else []
    for each, answer in zip(asked, answers, strict=True):
        missing = getattr(answer, "missing", ())
        refusals = dict.fromkeys(missing, ErrorCode.TRANSACTION_ABORTABLE)
        found.append(_result_of(each, refusals, answer.error_code))
    return {"throttle_time_ms": 0, "error_code": ErrorCode.NONE, "results_by_transaction": found}


def _result_of(
    each: Struct, refusals: dict[TopicPartition, ErrorCode], otherwise: ErrorCode
) -> Struct:
    return {
        "transactional_id": each["transactional_id"],
        "topic_results": _topic_results(each["topics"], refusals, otherwise),
    }


def _request_of(each: Struct) -> on.AddPartitions | on.VerifyPartitions:
    name, partitions = each["transactional_id"], _partitions(each["topics"])
    if each["verify_only"]:
        return on.VerifyPartitions(name, _producer(each), partitions)
    return on.AddPartitions(name, _producer(each), partitions, EPOCH_BUMPS)


def _partitions(topics: list[Struct]) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic["name"], index) for topic in topics for index in topic["partitions"]
    )


def _refusals(
    broker: BrokerContext, topics: list[Struct], *, by_client: bool = False
) -> dict[TopicPartition, ErrorCode]:
    """Return an error for each partition that does not exist, or that clients can't write to: then
    none is added."""
    image = broker.node.image
    refusals = {}
    for name in _partitions(topics):
        if by_client and name.topic in INTERNAL_TOPICS:
            refusals[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif image.partition(*name) is None:
            refusals[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refusals


def _topic_results(
    topics: list[Struct], refusals: dict[TopicPartition, ErrorCode], otherwise: ErrorCode
) -> list[Struct]:
    return [
        {
            "name": topic["name"],
            "results_by_partition": [
                {
                    "partition_index": index,
                    "partition_error_code": refusals.get(
                        TopicPartition(topic["name"], index), otherwise
                    ),
                }
                for index in topic["partitions"]
            ],
        }
        for topic in topics
    ]


def add_offsets_to_txn(broker: BrokerContext, request: Struct) -> Handling:
    """Add the partition of `__consumer_offsets` that has a group's offsets to a transaction."""
    name = request["transactional_id"]
    if not name:
        return {"throttle_time_ms": 0, "error_code": ErrorCode.INVALID_REQUEST}
    yield from internal_topic(broker, OFFSETS_TOPIC)
    offsets = broker.node.image.topics.get(OFFSETS_TOPIC)
    if offsets is None:
        return {"throttle_time_ms": 0, "error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    index = partition_for(request["group_id"], offsets.partition_count)
    partitions = frozenset({TopicPartition(OFFSETS_TOPIC, index)})
    [answer] = yield [on.AddPartitions(name, _producer(request), partitions)]
    return {"throttle_time_ms": 0, "error_code": _fenced(broker, answer.error_code)}


# -- EndTxn --------------------------------------------------------------------------------


def end_txn(broker: BrokerContext, request: Struct) -> Handling:
    """Commit or abort a transaction."""
    name = request["transactional_id"]
    if not name:
        return {"throttle_time_ms": 0, "error_code": ErrorCode.INVALID_REQUEST}
    version = EPOCH_BUMPS if broker.version >= _END_BUMPS else 0
    [answer] = yield [on.EndTransaction(name, _producer(request), request["committed"], version)]
    return {
        "throttle_time_ms": 0,
        "error_code": _fenced(broker, answer.error_code),
        "producer_id": answer.producer_id,
        "producer_epoch": answer.producer_epoch,
    }


# -- descriptions --------------------------------------------------------------------------


def describe_transactions(_broker: BrokerContext, request: Struct) -> Handling:
    """Describe transactional ids that this broker coordinates."""
    names = request["transactional_ids"]
    known = [name for name in names if name]
    found = (yield [on.DescribeTransaction(name) for name in known]) if known else []
    answers = dict(zip(known, found, strict=True))
    unnamed = on.DescribeTransactionResponse(ErrorCode.INVALID_REQUEST, "")
    states = [_described(answers.get(name, unnamed)) for name in names]
    return {"throttle_time_ms": 0, "transaction_states": states}


def _described(answer: on.DescribeTransactionResponse) -> Struct:
    topics: dict[str, list[int]] = {}
    for topic, index in answer.partitions:
        topics.setdefault(topic, []).append(index)
    state: Struct = {"error_code": answer.error_code, "transactional_id": answer.transactional_id}
    if answer.error_code is ErrorCode.NONE:
        state |= {
            "transaction_state": answer.state,
            "transaction_timeout_ms": answer.timeout_ms,
            "transaction_start_time_ms": answer.start_ms,
            "producer_id": answer.producer_id,
            "producer_epoch": answer.producer_epoch,
        }
    state["topics"] = [{"topic": topic, "partitions": found} for topic, found in topics.items()]
    return state


def list_transactions(_broker: BrokerContext, request: Struct) -> Handling:
    """List the transactional ids that this broker coordinates and that pass the filters."""
    labels = request["state_filters"]
    unknown = [label for label in labels if label not in STATES_BY_LABEL]
    pattern, matches = request.get("transactional_id_pattern"), None
    if pattern:
        try:
            matches = matcher(pattern)
        except InvalidPattern:
            return _listed(ErrorCode.INVALID_REGULAR_EXPRESSION, [])
    [answer] = yield [
        on.ListTransactions(
            frozenset(STATES_BY_LABEL[label] for label in labels if label in STATES_BY_LABEL),
            bool(unknown),
            frozenset(request["producer_id_filters"]),
            request.get("duration_filter", _NONE),
            matches,
        )
    ]
    return _listed(answer.error_code, unknown, answer.transactions)


def _listed(
    error: ErrorCode, unknown: list[str], transactions: tuple[on.ListedTransaction, ...] = ()
) -> Struct:
    return {
        "throttle_time_ms": 0,
        "error_code": error,
        "unknown_state_filters": unknown,
        "transaction_states": [
            {
                "transactional_id": each.transactional_id,
                "producer_id": each.producer_id,
                "transaction_state": each.state,
            }
            for each in transactions
        ],
    }
