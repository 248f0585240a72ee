"""The hand-written codec of Produce agrees with the schema."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_structs import TEXT, encoded, fields_of, structs

from tidelog.core.api_table import PRODUCE
from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import (
    Produce,
    ProducePartition,
    ProducePartitionResponse,
    ProduceResponse,
    unresolved,
)
from tidelog.core.types import TopicPartition
from tidelog.core.wire.codec import REQUEST, decode_response
from tidelog.core.wire.frames import LENGTH_SIZE, parse_request_header
from tidelog.core.wire.leader_hints import CurrentLeader, NodeEndpoint
from tidelog.core.wire.primitives import NO_ID, MalformedRequest
from tidelog.core.wire.produce import decode_produce, encode_produce_response

VERSIONS = range(3, 14)
ID, OTHER_ID = b"i" * 16, b"o" * 16


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_requests_decode_as_by_schema(version: int, data: st.DataObject) -> None:
    struct = data.draw(structs(fields_of(PRODUCE, version, REQUEST), version))
    frame = encoded(PRODUCE, version, REQUEST, struct)[LENGTH_SIZE:]
    request, transactional_id = decode_produce(
        version, frame, parse_request_header(frame).position, {ID: "known"}
    )
    assert transactional_id == struct["transactional_id"]
    assert (request.acks, request.timeout_ms) == (struct["acks"], struct["timeout_ms"])
    assert [(p.topic_partition, p.topic_id, bytes(p.records)) for p in request.partitions] == [
        (
            (topic["name"] if version < 13 else unresolved(topic["topic_id"]), part["index"]),
            topic.get("topic_id"),
            part["records"] or b"",
        )
        for topic in struct["topic_data"]
        for part in topic["partition_data"]
    ]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [1, 2, 200])
def test_short_and_long_records(version: int, count: int) -> None:
    for size in (1, 126, 127, 500, 20_000 // count):
        parts = [{"index": index, "records": bytes([index]) * size} for index in range(count)]
        topic = {"name": "t", "topic_id": ID, "partition_data": parts}
        frame = encoded(PRODUCE, version, REQUEST, {"acks": -1, "topic_data": [topic]})
        frame = frame[LENGTH_SIZE:]
        position = parse_request_header(frame).position
        request, _ = decode_produce(version, frame, position, {ID: "t"})
        assert request.acks == -1
        assert [(p.topic_partition, bytes(p.records)) for p in request.partitions] == [
            (("t", part["index"]), part["records"]) for part in parts
        ]
        # One more byte is not looked at.
        assert decode_produce(version, frame + b"x", position, {ID: "t"})[0] == request


@pytest.mark.parametrize("version", range(3, 13))
def test_names_of_any_length_but_not_null(version: int) -> None:
    for name in ("", "n" * 126, "n" * 127, "n" * 249):
        topic = {"name": name, "partition_data": [{"index": 1, "records": b"abc"}]}
        frame = encoded(PRODUCE, version, REQUEST, {"topic_data": [topic]})[LENGTH_SIZE:]
        position = parse_request_header(frame).position
        request, _ = decode_produce(version, frame, position, {})
        assert request.partitions[0].topic_partition == (name, 1)
    if version >= 9:
        nameless = encoded(PRODUCE, version, REQUEST, {"topic_data": [{"name": ""}]})[LENGTH_SIZE:]
        position = parse_request_header(nameless).position
        at = position + 8
        assert nameless[at] == 1
        with pytest.raises(MalformedRequest, match="null"):
            decode_produce(version, nameless[:at] + b"\0" + nameless[at + 1 :], position, {})


def test_ids_become_names() -> None:
    topics = [{"topic_id": i, "partition_data": [{"index": 5}]} for i in (ID, OTHER_ID)]
    frame = encoded(PRODUCE, 13, REQUEST, {"topic_data": topics})[LENGTH_SIZE:]
    position = parse_request_header(frame).position
    request, _ = decode_produce(13, frame, position, {ID: "orders"})
    assert [(p.topic_partition, p.topic_id) for p in request.partitions] == [
        (TopicPartition("orders", 5), ID),
        (TopicPartition("?" + "6f" * 16, 5), OTHER_ID),
    ]


def test_records_can_be_patched_in_place() -> None:
    parts = [{"index": 0, "records": b"abc"}]
    struct = {"topic_data": [{"name": "t", "partition_data": parts}]}
    for version in (8, 9):
        frame = bytearray(encoded(PRODUCE, version, REQUEST, struct)[LENGTH_SIZE:])
        position = parse_request_header(frame).position
        request, _ = decode_produce(version, frame, position, {})
        request.partitions[0].records[0] = ord("z")
        assert b"zbc" in frame


@pytest.mark.parametrize("version", VERSIONS)
def test_truncated_request_is_refused(version: int) -> None:
    parts = [{"index": 0, "records": b"abc"}, {"index": 1, "records": None}]
    struct = {"topic_data": [{"name": "t", "topic_id": ID, "partition_data": parts}]}
    frame = encoded(PRODUCE, version, REQUEST, struct)[LENGTH_SIZE:]
    position = parse_request_header(frame).position
    decode_produce(version, frame, position, {})
    for end in range(position, len(frame)):
        with pytest.raises(MalformedRequest):
            decode_produce(version, frame[:end], position, {})


def test_records_of_impossible_length_are_refused() -> None:
    struct = {"topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": b"abc"}]}]}
    frame = bytearray(encoded(PRODUCE, 8, REQUEST, struct)[LENGTH_SIZE:])
    for length in (4, -2):
        frame[-7:-3] = length.to_bytes(4, signed=True)
        with pytest.raises(MalformedRequest, match=f"invalid length {length}"):
            decode_produce(8, bytes(frame), parse_request_header(frame).position, {})


def test_no_leader_hint_unless_the_leader_moved() -> None:
    response = ProduceResponse([answer("a", 0, ErrorCode.NONE), answer("a", 1, ErrorCode.NONE)])
    request = asked(10, ("a", ID, 0), ("a", ID, 1))
    frame = encode_produce_response(9, request, response, lambda _: CurrentLeader(1, 1))
    assert frame == encode_produce_response(9, request, response)


# -- answers -----------------------------------------------------------------------------------


def asked(version: int, *places: tuple[str, bytes, int]) -> Produce:
    return Produce(
        1,
        1000,
        [
            ProducePartition(TopicPartition(topic, index), bytearray(), topic_id)
            for topic, topic_id, index in places
        ],
        version,
    )


def answer(topic: str, index: int, error: ErrorCode, **fields: Any) -> ProducePartitionResponse:
    return ProducePartitionResponse(TopicPartition(topic, index), error, **fields)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=20, deadline=None)
@given(offset=st.integers(0, 2**63 - 1), message=st.none() | TEXT, refused=st.lists(TEXT))
def test_responses_decode_as_by_schema(
    version: int, offset: int, message: str | None, refused: list[str]
) -> None:
    request = asked(version, ("a", ID, 0), ("a", ID, 3), ("b", OTHER_ID, 0))
    errors = tuple(enumerate(refused))
    response = ProduceResponse(
        [
            answer("a", 0, ErrorCode.NONE, base_offset=offset, log_append_time_ms=5),
            answer("a", 3, ErrorCode.NONE, base_offset=0, log_start_offset=offset),
            answer("b", 0, ErrorCode.INVALID_RECORD, record_errors=errors, error_message=message),
        ]
    )
    frame = encode_produce_response(9, request, response)
    assert int.from_bytes(frame[:LENGTH_SIZE]) == len(frame) - LENGTH_SIZE
    correlation_id, struct = decode_response(PRODUCE, version, frame[LENGTH_SIZE:])
    assert correlation_id == 9
    assert struct["throttle_time_ms"] == 0
    a, b = struct["responses"]
    names = (a.get("name"), b.get("name"), a.get("topic_id"), b.get("topic_id"))
    assert names == (("a", "b", None, None) if version < 13 else (None, None, ID, OTHER_ID))
    parts = [*a["partition_responses"], *b["partition_responses"]]
    assert [(p["index"], p["error_code"]) for p in parts] == [(0, 0), (3, 0), (0, 87)]
    assert [p["base_offset"] for p in parts] == [offset, 0, -1]
    assert [p["log_append_time_ms"] for p in parts] == [5, -1, -1]
    if version >= 5:
        assert [p["log_start_offset"] for p in parts] == [-1, offset, -1]
    if version >= 8:
        assert [p["error_message"] for p in parts] == [None, None, message]
        told = [
            (e["batch_index"], e["batch_index_error_message"]) for e in parts[2]["record_errors"]
        ]
        assert tuple(told) == errors
        assert parts[0]["record_errors"] == []


def test_response_without_partitions_has_no_topics() -> None:
    for version in VERSIONS:
        frame = encode_produce_response(9, asked(version), ProduceResponse([]))
        assert decode_response(PRODUCE, version, frame[LENGTH_SIZE:])[1]["responses"] == []


def test_missing_topic_id_is_encoded_as_zero() -> None:
    request = Produce(1, 0, [ProducePartition(TopicPartition("a", 0), bytearray())], 13)
    frame = encode_produce_response(
        9, request, ProduceResponse([answer("a", 0, ErrorCode.UNKNOWN_TOPIC_ID)])
    )
    struct = decode_response(PRODUCE, 13, frame[LENGTH_SIZE:])[1]
    assert struct["responses"][0]["topic_id"] == NO_ID


@pytest.mark.parametrize("version", VERSIONS)
def test_leader_hints(version: int) -> None:
    """KIP-951: from version 10 on, where the leader is now; only where the leader moved."""
    request = asked(version, *(("a", ID, index) for index in range(5)))
    moved, fine = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE
    errors = [moved, moved, moved, moved, fine]
    response = ProduceResponse([answer("a", i, error) for i, error in enumerate(errors)])
    leaders = [
        CurrentLeader(2, 7, NodeEndpoint(2, "two", 9093, "rack")),
        CurrentLeader(3, 8, NodeEndpoint(3, "three", 9094)),
        CurrentLeader(4, 9),
        None,
        CurrentLeader(5, 1, NodeEndpoint(5, "five", 9096)),
    ]
    frame = encode_produce_response(9, request, response, lambda tp: leaders[tp.partition])
    struct = decode_response(PRODUCE, version, frame[LENGTH_SIZE:])[1]
    told = [p.get("current_leader") for p in struct["responses"][0]["partition_responses"]]
    if version < 10:
        assert told == [None] * 5
        return
    assert told == [
        {"leader_id": 2, "leader_epoch": 7},
        {"leader_id": 3, "leader_epoch": 8},
        {"leader_id": 4, "leader_epoch": 9},
        None,
        None,
    ]
    assert struct["node_endpoints"] == [
        {"node_id": 2, "host": "two", "port": 9093, "rack": "rack"},
        {"node_id": 3, "host": "three", "port": 9094, "rack": None},
    ]
