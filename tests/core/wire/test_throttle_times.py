"""The throttle time in responses that are encoded by hand, in every version."""

import pytest

from tidelog.core.api_table import APIS, FETCH, PRODUCE
from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import (
    FetchPartitionResponse,
    FetchResponse,
    Produce,
    ProducePartition,
    ProducePartitionResponse,
    ProduceResponse,
)
from tidelog.core.types import TopicPartition
from tidelog.core.wire.codec import decode_response
from tidelog.core.wire.fetch_response import encode_fetch_response
from tidelog.core.wire.produce import encode_produce_response

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = bytes(range(16))


@pytest.mark.parametrize("throttle_ms", [0, 1234])
@pytest.mark.parametrize("version", range(3, APIS[PRODUCE].last + 1))
def test_a_produce_response_has_the_throttle_time(version: int, throttle_ms: int) -> None:
    partition = ProducePartition(ORDERS, bytearray(), TOPIC_ID)
    request = Produce(1, 1000, [partition], version)
    answer = ProducePartitionResponse(ORDERS, ErrorCode.NONE, 7)

    frame = encode_produce_response(5, request, ProduceResponse([answer]), None, throttle_ms)
    _, decoded = decode_response(PRODUCE, version, frame[4:])

    assert decoded["throttle_time_ms"] == throttle_ms
    [partition_response] = decoded["responses"][0]["partition_responses"]
    assert partition_response["base_offset"] == 7


@pytest.mark.parametrize("throttle_ms", [0, 1234])
@pytest.mark.parametrize("partitions", [0, 1])
@pytest.mark.parametrize("version", range(4, APIS[FETCH].last + 1))
def test_a_fetch_response_has_the_throttle_time(
    version: int, partitions: int, throttle_ms: int
) -> None:
    part = FetchPartitionResponse(ORDERS, TOPIC_ID, ErrorCode.NONE, 9, 9, 0, None, None)
    response = FetchResponse(ErrorCode.NONE, 0, [part] * partitions)

    chunks = encode_fetch_response(version, 5, response, None, throttle_ms)
    frame = b"".join(bytes(chunk) for chunk in chunks)  # type: ignore[arg-type]
    _, decoded = decode_response(FETCH, version, frame[4:])

    assert decoded["throttle_time_ms"] == throttle_ms
    assert len(decoded["responses"]) == partitions
