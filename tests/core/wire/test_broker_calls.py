"""Calls between brokers are decoded as they were encoded, with their types."""

import pytest

from tidelog.core.controller import effects, events
from tidelog.core.errors import ErrorCode
from tidelog.core.node import messages
from tidelog.core.types import EpochEnd, TopicPartition
from tidelog.core.wire.controller_calls import UnknownCall, decode_call, encode_call

ORDERS = TopicPartition("orders", 3)
CALLS = [
    messages.ListOffsets(2, [messages.ListOffsetsPartition(ORDERS, 5, messages.LATEST)]),
    messages.ListOffsetsResponse(
        [messages.ListOffsetsPartitionResponse(ORDERS, ErrorCode.NONE, 17, None, 5)]
    ),
    messages.OffsetForLeaderEpoch(2, [messages.EpochPartition(ORDERS, 5, 4)]),
    messages.OffsetForLeaderEpochResponse(
        [
            messages.EpochPartitionResponse(ORDERS, ErrorCode.NONE, EpochEnd(4, 10)),
            messages.EpochPartitionResponse(ORDERS, ErrorCode.FENCED_LEADER_EPOCH, None),
        ]
    ),
    messages.Forwarded(events.DeleteTopicReceived(0, "orders")),
    effects.TopicAnswer(ErrorCode.INVALID_CONFIG, "why", bytes(range(16)), 4),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: type(call).__name__)
def test_decoding_restores_the_call(call: object) -> None:
    assert decode_call(encode_call(call)) == call


def test_topic_partition_keeps_its_type() -> None:
    back = decode_call(encode_call(CALLS[0]))
    assert isinstance(back.partitions[0].topic_partition, TopicPartition)


@pytest.mark.parametrize(
    "data",
    [b"", b"[", b"\xff", b'{"class": "os"}', b'{"class": "Forwarded", "value": 1}', b"[" * 10**5],
)
def test_invalid_calls_are_refused(data: bytes) -> None:
    with pytest.raises(UnknownCall):
        decode_call(data)
