"""InitProducerId 0-5 and DescribeProducers 0: ids of idempotent producers, and their state; and
AddPartitionsToTxn 0-5, AddOffsetsToTxn 0-4, EndTxn 0-5, DescribeTransactions 0 and ListTransactions
0-2 of a cluster without transactions.

InitProducerId with a transactional id is refused, so no transaction exists: the list is empty,
every id is unknown. A client that adds to a transaction or ends one anyway gets
UNSUPPORTED_VERSION, which no client retries.
"""

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.handlers.refusals import error_text, name_problem
from tidelog.core.errors import ErrorCode
from tidelog.core.lineage.producer_state import ProducerState
from tidelog.core.node.messages import InitProducerId
from tidelog.core.types import TopicPartition

_NONE = -1
_NO_TRANSACTION = -1


def init_producer_id(broker: BrokerContext, request: Struct) -> Handling:
    """Allocate a new producer id, whatever id the producer had before."""
    transactional_id = request["transactional_id"]
    producer_id = request.get("producer_id", _NONE)
    producer_epoch = request.get("producer_epoch", _NONE)
    if transactional_id == "" or (producer_id == _NONE) != (producer_epoch == _NONE):
        return _producer_id(ErrorCode.INVALID_REQUEST)
    if transactional_id is not None:
        return _producer_id(broker.no_transactions)
    [answer] = yield [InitProducerId()]
    return _producer_id(answer.error, answer.producer_id, answer.producer_epoch)


def _producer_id(error: ErrorCode, producer_id: int = _NONE, producer_epoch: int = _NONE) -> Struct:
    return {
        "throttle_time_ms": 0,
        "error_code": error,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
    }


def describe_producers(broker: BrokerContext, request: Struct) -> Struct:
    """List the idempotent producers of each partition, as a replica on this broker knows them.

    There may be thousands, so a partition is listed once, however often the request names it.
    """
    asked: dict[str, dict[int, None]] = {}
    for topic in request["topics"]:
        asked.setdefault(topic["name"], {}).update(dict.fromkeys(topic["partition_indexes"]))
    return {
        "throttle_time_ms": 0,
        "topics": [
            {
                "name": name,
                "partitions": [
                    _partition(broker, TopicPartition(name, index)) for index in indexes
                ],
            }
            for name, indexes in asked.items()
        ],
    }


def _partition(broker: BrokerContext, name: TopicPartition) -> Struct:
    error, message, producers = ErrorCode.NONE, None, []
    replica = broker.node.replicas.get(name)
    if (problem := name_problem(name.topic)) is not None:
        error, message = ErrorCode.INVALID_TOPIC_EXCEPTION, problem
    elif replica is not None:
        producers = _producers(replica.log.producers)
    elif broker.node.image.partition(*name) is None:
        error, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Partition {name} does not exist."
    else:
        error, message = ErrorCode.NOT_LEADER_OR_FOLLOWER, f"This broker has no replica of {name}."
    return {
        "partition_index": name.partition,
        "error_code": error,
        "error_message": error_text(message),
        "active_producers": producers,
    }


def _producers(state: ProducerState) -> list[Struct]:
    return [
        {
            "producer_id": producer_id,
            "producer_epoch": entry.epoch,
            "last_sequence": entry.last_sequence,
            "last_timestamp": entry.last_timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "current_txn_start_offset": state.open_transactions.get(producer_id, _NO_TRANSACTION),
        }
        for producer_id, entry in sorted(state.producers.items())
    ]


_NO_TRANSACTIONS = ErrorCode.UNSUPPORTED_VERSION
_MANY_TRANSACTIONS = 4
STATES = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "PrepareEpochFence",
        "Dead",
    }
)
"""The states of a transaction that Kafka knows."""


def add_partitions_to_txn(broker: BrokerContext, request: Struct) -> Struct:
    """Refuse every partition; from version 4 on the whole request has an error code."""
    if broker.version >= _MANY_TRANSACTIONS:
        return {"throttle_time_ms": 0, "error_code": _NO_TRANSACTIONS, "results_by_transaction": []}
    results = [
        {
            "name": topic["name"],
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": _NO_TRANSACTIONS}
                for index in topic["partitions"]
            ],
        }
        for topic in request["v3_and_below_topics"]
    ]
    return {"throttle_time_ms": 0, "results_by_topic_v3_and_below": results}


def add_offsets_to_txn(_broker: BrokerContext, _request: Struct) -> Struct:
    """Refuse: no transaction exists."""
    return {"throttle_time_ms": 0, "error_code": _NO_TRANSACTIONS}


def end_txn(_broker: BrokerContext, _request: Struct) -> Struct:
    """Refuse: no transaction exists."""
    return {"throttle_time_ms": 0, "error_code": _NO_TRANSACTIONS}


def describe_transactions(_broker: BrokerContext, request: Struct) -> Struct:
    """Report every transactional id as unknown."""
    states = [
        {
            "error_code": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            "transactional_id": transactional_id,
            "topics": [],
        }
        for transactional_id in request["transactional_ids"]
    ]
    return {"throttle_time_ms": 0, "transaction_states": states}


def list_transactions(_broker: BrokerContext, request: Struct) -> Struct:
    """Return an empty list, and the filter's states that Kafka does not know."""
    unknown = [state for state in request["state_filters"] if state not in STATES]
    return {
        "throttle_time_ms": 0,
        "error_code": ErrorCode.NONE,
        "unknown_state_filters": unknown,
        "transaction_states": [],
    }
