"""Requests between transaction coordinators and partition leaders, in Kafka's encoding.

A coordinator sends WriteTxnMarkers to leaders, leaders send AddPartitionsToTxn to coordinators.
Each transaction writes a few of them, so they are binary, unlike the calls in controller_calls.py.
Results have the order of the request; an error code that this release does not know is
UNKNOWN_SERVER_ERROR.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

from tidelog.core.api_table import ADD_PARTITIONS_TO_TXN, WRITE_TXN_MARKERS
from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import (
    AddPartitionsToTxn,
    AddPartitionsToTxnResponse,
    TxnMarker,
    TxnPartitions,
    WriteTxnMarkers,
    WriteTxnMarkersResponse,
)
from tidelog.core.record.crc32c import Buffer
from tidelog.core.types import TopicPartition
from tidelog.core.wire.codec import decode_response, encode_request

Struct: TypeAlias = dict[str, Any]


class TransactionApi(NamedTuple):
    """The key and the version that brokers use among each other."""

    key: int
    version: int


MARKERS = TransactionApi(WRITE_TXN_MARKERS, 2)
PARTITIONS = TransactionApi(ADD_PARTITIONS_TO_TXN, 5)

_KNOWN = {int(error): error for error in ErrorCode}


def encode_transaction_call(
    number: int, client_id: str, request: WriteTxnMarkers | AddPartitionsToTxn
) -> bytes:
    """Encode a request to another broker, with its length in front."""
    if isinstance(request, WriteTxnMarkers):
        return encode_request(*MARKERS, number, client_id, markers_to_struct(request))
    return encode_request(*PARTITIONS, number, client_id, partitions_to_struct(request))


def decode_markers_response(frame: Buffer) -> WriteTxnMarkersResponse:
    """Decode the response to WriteTxnMarkers. Raises MalformedRequest."""
    _, struct = decode_response(*MARKERS, frame)
    return WriteTxnMarkersResponse(
        tuple(
            (marker["producer_id"], _results(marker["topics"], "partitions", "error_code"))
            for marker in struct["markers"]
        )
    )


def decode_partitions_response(frame: Buffer) -> AddPartitionsToTxnResponse:
    """Decode the response to AddPartitionsToTxn. Raises MalformedRequest."""
    _, struct = decode_response(*PARTITIONS, frame)
    return AddPartitionsToTxnResponse(
        tuple(
            _results(result["topic_results"], "results_by_partition", "partition_error_code")
            for result in struct["results_by_transaction"]
        )
    )


def _results(topics: list[Struct], partitions: str, error: str) -> dict[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic["name"], result["partition_index"]): _KNOWN.get(
            result[error], ErrorCode.UNKNOWN_SERVER_ERROR
        )
        for topic in topics
        for result in topic[partitions]
    }


# -- WriteTxnMarkers -----------------------------------------------------------------------


def markers_to_struct(request: WriteTxnMarkers) -> Struct:
    """Return the fields of a request."""
    return {
        "markers": [
            {
                "producer_id": marker.producer_id,
                "producer_epoch": marker.producer_epoch,
                "transaction_result": marker.committed,
                "topics": [
                    {"name": name, "partition_indexes": indexes}
                    for name, indexes in _by_topic(marker.partitions).items()
                ],
                "coordinator_epoch": marker.coordinator_epoch,
                "transaction_version": marker.transaction_version,
            }
            for marker in request.markers
        ]
    }


def markers_from_struct(struct: Struct) -> WriteTxnMarkers:
    """Return the request with these fields."""
    return WriteTxnMarkers(
        tuple(
            TxnMarker(
                marker["producer_id"],
                marker["producer_epoch"],
                marker["transaction_result"],
                marker["coordinator_epoch"],
                _partitions(marker["topics"], "partition_indexes"),
                marker.get("transaction_version", 0),
            )
            for marker in struct["markers"]
        )
    )


def markers_response_to_struct(response: WriteTxnMarkersResponse) -> Struct:
    """Return the fields of a response."""
    return {
        "markers": [
            {
                "producer_id": producer_id,
                "topics": _topics(results, "partitions", "error_code"),
            }
            for producer_id, results in response.markers
        ]
    }


# -- AddPartitionsToTxn --------------------------------------------------------------------


def partitions_to_struct(request: AddPartitionsToTxn) -> Struct:
    """Return the fields of a request."""
    return {
        "transactions": [
            {
                "transactional_id": asked.transactional_id,
                "producer_id": asked.producer_id,
                "producer_epoch": asked.producer_epoch,
                "verify_only": asked.verify_only,
                "topics": [
                    {"name": name, "partitions": indexes}
                    for name, indexes in _by_topic(asked.partitions).items()
                ],
            }
            for asked in request.transactions
        ]
    }


def partitions_from_struct(struct: Struct) -> AddPartitionsToTxn:
    """Return the request with these fields."""
    return AddPartitionsToTxn(
        tuple(
            TxnPartitions(
                asked["transactional_id"],
                asked["producer_id"],
                asked["producer_epoch"],
                asked["verify_only"],
                _partitions(asked["topics"], "partitions"),
            )
            for asked in struct["transactions"]
        )
    )


def partitions_response_to_struct(
    request: AddPartitionsToTxn, response: AddPartitionsToTxnResponse
) -> Struct:
    """Return the fields of a response, with the transactional ids of its request."""
    return {
        "throttle_time_ms": 0,
        "error_code": ErrorCode.NONE,
        "results_by_transaction": [
            {
                "transactional_id": asked.transactional_id,
                "topic_results": _topics(results, "results_by_partition", "partition_error_code"),
            }
            for asked, results in zip(request.transactions, response.results, strict=True)
        ],
    }


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    return topics


def _partitions(topics: list[Struct], indexes: str) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic["name"], index) for topic in topics for index in topic[indexes]
    )


def _topics(results: dict[TopicPartition, ErrorCode], partitions: str, error: str) -> list[Struct]:
    topics: dict[str, list[Struct]] = {}
    for (name, index), code in results.items():
        topics.setdefault(name, []).append({"partition_index": index, error: code})
    return [{"name": name, partitions: found} for name, found in topics.items()]
