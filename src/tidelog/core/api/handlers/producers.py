"""DescribeProducers 0: the producers that wrote to a partition."""

from tidelog.core.api.context import BrokerContext, Struct
from tidelog.core.api.handlers.refusals import error_text, name_problem
from tidelog.core.errors import ErrorCode
from tidelog.core.lineage.producer_state import ProducerState
from tidelog.core.types import TopicPartition

_NO_TRANSACTION = -1


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
