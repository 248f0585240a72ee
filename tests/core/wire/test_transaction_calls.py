"""Requests between transaction coordinators and leaders are the same after a trip over the wire."""

import pytest

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
from tidelog.core.types import TopicPartition
from tidelog.core.wire.codec import decode_request, encode_response
from tidelog.core.wire.frames import parse_request_header
from tidelog.core.wire.transaction_calls import (
    MARKERS,
    PARTITIONS,
    decode_markers_response,
    decode_partitions_response,
    encode_transaction_call,
    markers_from_struct,
    markers_response_to_struct,
    partitions_from_struct,
    partitions_response_to_struct,
)

A, B, C = TopicPartition("a", 0), TopicPartition("a", 7), TopicPartition("b", 1)
MARKER_REQUESTS = [
    WriteTxnMarkers(()),
    WriteTxnMarkers((TxnMarker(7, 1, True, 3, (A, B, C), 2), TxnMarker(8, 32767, False, 0, ()))),
]
PARTITION_REQUESTS = [
    AddPartitionsToTxn(()),
    AddPartitionsToTxn(
        (TxnPartitions("one", 7, 1, True, (A,)), TxnPartitions("one", 7, 2, False, (C, A, B)))
    ),
]


@pytest.mark.parametrize("request_", MARKER_REQUESTS)
def test_markers(request_: WriteTxnMarkers) -> None:
    frame = encode_transaction_call(5, "broker-1", request_)[4:]
    header = parse_request_header(frame)
    assert header[:4] == (WRITE_TXN_MARKERS, 2, 5, "broker-1")
    assert markers_from_struct(decode_request(*MARKERS, frame, header.position)) == request_


@pytest.mark.parametrize("request_", PARTITION_REQUESTS)
def test_partitions(request_: AddPartitionsToTxn) -> None:
    frame = encode_transaction_call(5, "broker-1", request_)[4:]
    header = parse_request_header(frame)
    assert header[:4] == (ADD_PARTITIONS_TO_TXN, 5, 5, "broker-1")
    decoded = partitions_from_struct(decode_request(*PARTITIONS, frame, header.position))
    assert [set(one.partitions) for one in decoded.transactions] == [
        set(one.partitions) for one in request_.transactions
    ]
    assert [one.transactional_id for one in decoded.transactions] == [
        one.transactional_id for one in request_.transactions
    ]


def test_results_of_markers() -> None:
    response = WriteTxnMarkersResponse(
        (
            (7, {A: ErrorCode.NONE, B: ErrorCode.INVALID_PRODUCER_EPOCH, C: ErrorCode.NONE}),
            (7, {A: ErrorCode.NOT_LEADER_OR_FOLLOWER}),
            (8, {}),
        )
    )
    frame = encode_response(*MARKERS, 5, markers_response_to_struct(response))[4:]
    assert decode_markers_response(frame) == response


def test_results_of_partitions() -> None:
    request = PARTITION_REQUESTS[1]
    response = AddPartitionsToTxnResponse(
        (
            {A: ErrorCode.TRANSACTION_ABORTABLE},
            {C: ErrorCode.NONE, A: ErrorCode.CONCURRENT_TRANSACTIONS, B: ErrorCode.NONE},
        )
    )
    struct = partitions_response_to_struct(request, response)
    frame = encode_response(*PARTITIONS, 5, struct)[4:]
    assert decode_partitions_response(frame) == response


def test_an_unknown_error_code_of_a_newer_broker() -> None:
    struct = markers_response_to_struct(WriteTxnMarkersResponse(((7, {A: ErrorCode.NONE}),)))
    struct["markers"][0]["topics"][0]["partitions"][0]["error_code"] = 9999
    frame = encode_response(*MARKERS, 5, struct)[4:]
    assert decode_markers_response(frame).markers[0][1] == {A: ErrorCode.UNKNOWN_SERVER_ERROR}
