"""AddPartitionsToTxn 0-5, AddOffsetsToTxn 0-4, EndTxn 0-5, TxnOffsetCommit 0-5,
DescribeTransactions 0 and ListTransactions 0-2: a cluster without transactions.

No transactional producer gets a producer id here (find_coordinator.py, producers.py), so no
transaction exists: the list is empty, every id is unknown. A client that adds to a transaction or
ends one anyway gets UNSUPPORTED_VERSION, which no client retries.
"""

from tidelog.core.api.context import BrokerContext, Struct
from tidelog.core.errors import ErrorCode

_REFUSED = ErrorCode.UNSUPPORTED_VERSION
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
        return {"throttle_time_ms": 0, "error_code": _REFUSED, "results_by_transaction": []}
    results = [
        {
            "name": topic["name"],
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": _REFUSED}
                for index in topic["partitions"]
            ],
        }
        for topic in request["v3_and_below_topics"]
    ]
    return {"throttle_time_ms": 0, "results_by_topic_v3_and_below": results}


def add_offsets_to_txn(_broker: BrokerContext, _request: Struct) -> Struct:
    """Refuse."""
    return {"throttle_time_ms": 0, "error_code": _REFUSED}


def end_txn(_broker: BrokerContext, _request: Struct) -> Struct:
    """Refuse."""
    return {"throttle_time_ms": 0, "error_code": _REFUSED}


def txn_offset_commit(_broker: BrokerContext, request: Struct) -> Struct:
    """Refuse every partition."""
    topics = [
        {
            "name": topic["name"],
            "partitions": [
                {"partition_index": partition["partition_index"], "error_code": _REFUSED}
                for partition in topic["partitions"]
            ],
        }
        for topic in request["topics"]
    ]
    return {"throttle_time_ms": 0, "topics": topics}


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
