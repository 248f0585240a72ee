"""The hand-written codec of Fetch agrees with the schema."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_structs import encoded, fields_of, structs

from tidelog.core.api_table import FETCH
from tidelog.core.errors import ErrorCode
from tidelog.core.lineage.transaction_index import AbortedTransaction
from tidelog.core.node.messages import (
    Fetch,
    FetchPartition,
    FetchPartitionResponse,
    FetchResponse,
    unresolved,
)
from tidelog.core.storage.disk import Region
from tidelog.core.types import EpochEnd, TopicPartition
from tidelog.core.wire.codec import REQUEST, RESPONSE, decode_request, decode_response
from tidelog.core.wire.fetch_request import FOLLOWER_VERSION, decode_fetch
from tidelog.core.wire.fetch_response import encode_fetch_response
from tidelog.core.wire.follower_fetch import FollowerFetches
from tidelog.core.wire.frames import LENGTH_SIZE, parse_request_header
from tidelog.core.wire.leader_hints import CurrentLeader, NodeEndpoint
from tidelog.core.wire.primitives import NO_ID, MalformedRequest

VERSIONS = range(4, 19)
ID, OTHER_ID = b"i" * 16, b"o" * 16


def known(value: int) -> int | None:
    return None if value < 0 else value


def topic_name(topic: dict[str, Any]) -> str:
    return str(topic["topic"]) if "topic" in topic else unresolved(topic["topic_id"])


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_requests_decode_as_by_schema(version: int, data: st.DataObject) -> None:
    struct = data.draw(structs(fields_of(FETCH, version, REQUEST), version))
    frame = encoded(FETCH, version, REQUEST, struct)[LENGTH_SIZE:]
    state = struct.get("replica_state") or {"replica_id": -1, "replica_epoch": -1}
    assert decode_fetch(version, frame, parse_request_header(frame).position, {}) == Fetch(
        known(struct["replica_id"] if version < 15 else state["replica_id"]),
        known(state["replica_epoch"]),
        struct["max_wait_ms"],
        struct["min_bytes"],
        struct["max_bytes"],
        [
            FetchPartition(
                TopicPartition(topic_name(topic), part["partition"]),
                topic.get("topic_id"),
                part["fetch_offset"],
                part["partition_max_bytes"],
                known(part.get("current_leader_epoch", -1)),
                known(part.get("last_fetched_epoch", -1)),
                part.get("log_start_offset", -1),
            )
            for topic in struct["topics"]
            for part in topic["partitions"]
        ],
        struct.get("session_id", 0),
        struct.get("session_epoch", -1),
        [
            TopicPartition(topic_name(topic), partition)
            for topic in struct.get("forgotten_topics_data", [])
            for partition in topic["partitions"]
        ],
        struct["isolation_level"] == 1,
        version >= 11,
        struct.get("rack_id", ""),
    )


def test_ids_become_names() -> None:
    topics = [{"topic_id": i, "partitions": [{"partition": 5}]} for i in (ID, OTHER_ID)]
    forgotten = [{"topic_id": ID, "partitions": [6]}]
    struct = {"topics": topics, "forgotten_topics_data": forgotten}
    frame = encoded(FETCH, 13, REQUEST, struct)[LENGTH_SIZE:]
    fetch = decode_fetch(13, frame, parse_request_header(frame).position, {ID: "orders"})
    assert [(p.topic_partition, p.topic_id) for p in fetch.partitions] == [
        (TopicPartition("orders", 5), ID),
        (TopicPartition("?" + "6f" * 16, 5), OTHER_ID),
    ]
    assert fetch.forgotten == [TopicPartition("orders", 6)]


@pytest.mark.parametrize("version", VERSIONS)
def test_truncated_request_is_refused(version: int) -> None:
    struct = {
        "replica_state": {"replica_id": 1, "replica_epoch": 2},
        "topics": [{"topic": "t", "topic_id": ID, "partitions": [{"partition": 0}]}],
        "forgotten_topics_data": [{"topic": "t", "topic_id": ID, "partitions": [1]}],
        "rack_id": "r",
    }
    frame = encoded(FETCH, version, REQUEST, struct)[LENGTH_SIZE:]
    position = parse_request_header(frame).position
    decode_fetch(version, frame, position, {})
    for end in range(position, len(frame)):
        with pytest.raises(MalformedRequest):
            decode_fetch(version, frame[:end], position, {})


def test_replica_state_is_not_a_tagged_field_before_version_15() -> None:
    state = {"replica_state": {"replica_id": 1, "replica_epoch": 2}}
    frame = bytearray(encoded(FETCH, 15, REQUEST, state)[LENGTH_SIZE:])
    tags = frame[-16:]
    older = encoded(FETCH, 14, REQUEST, {"replica_id": -1})[LENGTH_SIZE:-1] + tags
    assert decode_fetch(15, frame, parse_request_header(frame).position, {}).replica == 1
    assert decode_fetch(14, older, parse_request_header(older).position, {}).replica is None


# -- answers -----------------------------------------------------------------------------------


def part(
    topic: str,
    topic_id: bytes | None,
    index: int,
    records: Region | bytes | None = None,
    error: ErrorCode = ErrorCode.NONE,
    **fields: Any,
) -> FetchPartitionResponse:
    diverging = fields.pop("diverging", None)
    place = TopicPartition(topic, index)
    return FetchPartitionResponse(
        place, topic_id, error, 100 + index, 90, 10, diverging, records, **fields
    )


RICH = FetchResponse(
    ErrorCode.NONE,
    77,
    [
        part("a", ID, 0, b"first" * 50, aborted=[AbortedTransaction(5, 6, 7, 8)]),
        part("a", ID, 1, preferred_read_replica=3, aborted=[]),
        part("a", ID, 2, Region("a-2/0.log", 40, 300)),
        part("b", OTHER_ID, 0, diverging=EpochEnd(4, 44)),
        part("a", ID, 3, memoryview(b"last").tobytes()),
    ],
)
"""Two topics, one of them twice; everything that a partition can say."""


def joined(chunks: list[Any]) -> bytes:
    """Return the frame without its length, which must be correct."""
    sent = b"".join(b"R" * c.length if isinstance(c, Region) else bytes(c) for c in chunks)
    assert int.from_bytes(sent[:LENGTH_SIZE]) == len(sent) - LENGTH_SIZE
    return sent[LENGTH_SIZE:]


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_decode_as_by_schema(version: int) -> None:
    chunks = encode_fetch_response(version, 9, RICH)
    assert Region("a-2/0.log", 40, 300) in chunks
    correlation_id, struct = decode_response(FETCH, version, joined(chunks))
    assert (correlation_id, struct["throttle_time_ms"]) == (9, 0)
    if version >= 7:
        assert (struct["error_code"], struct["session_id"]) == (0, 77)
    topics = struct["responses"]
    expected: list[object] = ["a", "b", "a"] if version < 13 else [ID, OTHER_ID, ID]
    assert [topic.get("topic") or topic.get("topic_id") for topic in topics] == expected
    parts = [p for topic in topics for p in topic["partitions"]]
    assert [p["partition_index"] for p in parts] == [0, 1, 2, 0, 3]
    assert [p["high_watermark"] for p in parts] == [100, 101, 102, 100, 103]
    assert {(p["error_code"], p["last_stable_offset"]) for p in parts} == {(0, 90)}
    assert [p["records"] for p in parts] == [b"first" * 50, b"", b"R" * 300, b"", b"last"]
    aborted = [{"producer_id": 5, "first_offset": 6}]
    assert [p["aborted_transactions"] for p in parts] == [aborted, [], None, None, None]
    if version >= 5:
        assert {p["log_start_offset"] for p in parts} == {10}
    if version >= 11:
        assert [p["preferred_read_replica"] for p in parts] == [-1, 3, -1, -1, -1]
    if version >= 12:
        diverging = {"epoch": 4, "end_offset": 44}
        assert [p["diverging_epoch"] for p in parts] == [None, None, None, diverging, None]
        assert {p["current_leader"] for p in parts} == {None}


@pytest.mark.parametrize("version", VERSIONS)
def test_response_that_ends_with_records(version: int) -> None:
    response = FetchResponse(ErrorCode.NONE, 0, [part("a", ID, 0, Region("f", 0, 5))])
    chunks = encode_fetch_response(version, 9, response)
    assert len(chunks) == (3 if version >= 12 else 2)
    struct = decode_response(FETCH, version, joined(chunks))[1]
    assert struct["responses"][0]["partitions"][0]["records"] == b"RRRRR"


@pytest.mark.parametrize("version", VERSIONS)
def test_response_without_partitions_is_one_chunk(version: int) -> None:
    response = FetchResponse(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, [])
    (chunk,) = encode_fetch_response(version, 9, response)
    struct = decode_response(FETCH, version, joined([chunk]))[1]
    assert struct["responses"] == []
    assert struct.get("error_code", 70) == 70


def test_missing_topic_id_is_encoded_as_zero() -> None:
    response = FetchResponse(ErrorCode.NONE, 0, [part("a", None, 0)])
    struct = decode_response(FETCH, 13, joined(encode_fetch_response(13, 9, response)))[1]
    assert struct["responses"][0]["topic_id"] == NO_ID


@pytest.mark.parametrize("version", VERSIONS)
def test_leader_hints(version: int) -> None:
    """KIP-951: from version 16 on."""
    moved, fenced = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH
    errors = [moved, fenced, moved, ErrorCode.NONE]
    response = FetchResponse(
        ErrorCode.NONE, 0, [part("a", ID, i, error=error) for i, error in enumerate(errors)]
    )
    leaders = [
        CurrentLeader(2, 7, NodeEndpoint(2, "two", 9093)),
        CurrentLeader(4, 9),
        None,
        CurrentLeader(5, 1, NodeEndpoint(5, "five", 9096)),
    ]
    chunks = encode_fetch_response(version, 9, response, lambda tp: leaders[tp.partition])
    struct = decode_response(FETCH, version, joined(chunks))[1]
    told = [p.get("current_leader") for p in struct["responses"][0]["partitions"]]
    if version < 16:
        assert told == [None] * 4
        return
    two, four = {"leader_id": 2, "leader_epoch": 7}, {"leader_id": 4, "leader_epoch": 9}
    assert told == [two, four, None, None]
    assert struct["node_endpoints"] == [{"node_id": 2, "host": "two", "port": 9093, "rack": None}]


# -- as a follower -----------------------------------------------------------------------------


def question(topic: str, topic_id: bytes, index: int, **fields: Any) -> FetchPartition:
    return FetchPartition(TopicPartition(topic, index), topic_id, 12, 1000, 3, **fields)


def follower_fetch(*partitions: FetchPartition, **fields: Any) -> Fetch:
    return Fetch(2, 55, 500, 1, 10_000, list(partitions), **fields)


def test_leader_decodes_the_request_of_a_follower() -> None:
    fetches = FollowerFetches("broker-2")
    first = follower_fetch(
        question("a", ID, 0, last_fetched_epoch=2, log_start_offset=5),
        question("b", OTHER_ID, 0),
        question("a", ID, 1),
        session_epoch=0,
    )
    later = follower_fetch(
        session_id=8,
        session_epoch=1,
        forgotten=[TopicPartition("a", 1), TopicPartition("b", 0), TopicPartition("a", 0)],
    )
    names = {ID: "a", OTHER_ID: "b"}
    for request in (first, later):
        frame = fetches.encode(7, request)
        assert int.from_bytes(frame[:LENGTH_SIZE]) == len(frame) - LENGTH_SIZE
        header = parse_request_header(frame[LENGTH_SIZE:])
        assert header[:4] == (FETCH, FOLLOWER_VERSION, 7, "broker-2")
        heard = decode_fetch(FOLLOWER_VERSION, frame[LENGTH_SIZE:], header.position, names)
        by_topic = sorted(request.partitions, key=lambda p: p.topic_partition)
        request.partitions = by_topic  # partitions of one topic go together on the wire
        request.forgotten.sort()
        heard.forgotten.sort()
        assert heard == request
        struct = decode_request(FETCH, FOLLOWER_VERSION, frame[LENGTH_SIZE:], header.position)
        assert struct["replica_state"] == {"replica_id": 2, "replica_epoch": 55}


def test_a_follower_without_broker_epoch() -> None:
    request = Fetch(2, None, 500, 1, 10_000, [])
    frame = FollowerFetches("x").encode(7, request)[LENGTH_SIZE:]
    position = parse_request_header(frame).position
    assert decode_fetch(FOLLOWER_VERSION, frame, position, {}).broker_epoch is None


def test_follower_decodes_responses_without_copying() -> None:
    fetches = FollowerFetches("broker-2")
    fetches.encode(7, follower_fetch(question("a", ID, 0)))
    frame = memoryview(joined(encode_fetch_response(FOLLOWER_VERSION, 9, RICH)))
    correlation_id, answer = fetches.decode(frame)
    assert (correlation_id, answer.error, answer.session_id) == (9, ErrorCode.NONE, 77)
    stranger = unresolved(OTHER_ID)  # never asked about: the node will not know it either
    assert [(p.topic_partition, p.topic_id) for p in answer.partitions] == [
        (("a", 0), ID),
        (("a", 1), ID),
        (("a", 2), ID),
        ((stranger, 0), OTHER_ID),
        (("a", 3), ID),
    ]
    assert [p.high_watermark for p in answer.partitions] == [100, 101, 102, 100, 103]
    assert {(p.last_stable_offset, p.log_start_offset) for p in answer.partitions} == {(90, 10)}
    assert [p.diverging for p in answer.partitions] == [None, None, None, EpochEnd(4, 44), None]
    assert [p.preferred_read_replica for p in answer.partitions] == [None, 3, None, None, None]
    records = [p.records for p in answer.partitions]
    assert records == [b"first" * 50, None, b"R" * 300, None, b"last"]
    assert all(isinstance(r, memoryview) and r.obj is frame.obj for r in records if r is not None)


def test_unknown_error_codes_become_unknown_server_error() -> None:
    struct = {
        "error_code": 9999,
        "responses": [
            {
                "topic_id": ID,
                "partitions": [
                    {"error_code": 6, "current_leader": {"leader_id": 1, "leader_epoch": 1}}
                ],
            }
        ],
    }
    frame = encoded(FETCH, FOLLOWER_VERSION, RESPONSE, struct)[LENGTH_SIZE:]
    _, answer = FollowerFetches("x").decode(frame)
    assert answer.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert answer.partitions[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.partitions[0].diverging is None


def test_truncated_response_is_refused() -> None:
    frame = joined(encode_fetch_response(FOLLOWER_VERSION, 9, RICH))
    fetches = FollowerFetches("broker-2")
    fetches.decode(frame)
    for end in range(len(frame)):
        with pytest.raises(MalformedRequest):
            fetches.decode(frame[:end])
