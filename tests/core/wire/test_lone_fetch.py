"""Fetches of one partition have their own codec, which must agree with the general one."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import Fetch, FetchPartition, FetchPartitionResponse, FetchResponse
from tidelog.core.storage.disk import Region
from tidelog.core.types import TopicPartition
from tidelog.core.wire import fetch_request, fetch_response, follower_fetch
from tidelog.core.wire.codec import decode_request
from tidelog.core.wire.fetch_request import FOLLOWER_VERSION, decode_fetch
from tidelog.core.wire.fetch_response import encode_fetch_response
from tidelog.core.wire.frames import LENGTH_SIZE, parse_request_header, parse_response_header
from tidelog.core.wire.primitives import UNREADABLE, MalformedRequest

ID = bytes(range(16))
NAMES = {ID: "a"}
numbers = st.integers(-1, 2**31 - 1)
offsets = st.integers(-1, 2**62)


def lone(offset: int = 12, **fields: Any) -> Fetch:
    asked = FetchPartition(TopicPartition("a", 3), ID, offset, 1000, 3, 2, 5)
    return Fetch(2, 55, 500, 1, 10_000, [asked], **fields)


def outcome(decode: Callable[..., Any], *given: Any) -> Any:
    try:
        return decode(*given)
    except (MalformedRequest, *UNREADABLE):
        return "refused"


def body_of(frame: bytes) -> tuple[bytes, int]:
    return frame[LENGTH_SIZE:], parse_request_header(frame[LENGTH_SIZE:]).position


@given(st.integers(0, 99), offsets, numbers, numbers, st.none() | st.integers(0, 2**31 - 1))
def test_leader_decodes_a_follower_fetch(
    index: int, offset: int, size: int, session: int, epoch: int | None
) -> None:
    asked = FetchPartition(TopicPartition("a", index), ID, offset, size, epoch, epoch, offset)
    request = Fetch(2, epoch, 500, 1, 10_000, [asked], session, 4)
    frame = follower_fetch.FollowerFetches("broker-2").encode(7, request)
    assert int.from_bytes(frame[:LENGTH_SIZE]) == len(frame) - LENGTH_SIZE
    body, position = body_of(frame)
    assert parse_request_header(body)[:4] == (1, FOLLOWER_VERSION, 7, "broker-2")
    assert decode_fetch(FOLLOWER_VERSION, body, position, NAMES) == request
    struct = decode_request(1, FOLLOWER_VERSION, body, position)
    assert struct["topics"][0]["partitions"][0]["fetch_offset"] == offset
    assert struct["replica_state"]["replica_id"] == 2


def test_damaged_request_is_decoded_as_by_the_general_codec() -> None:
    frame = follower_fetch.FollowerFetches("x").encode(7, lone(session_id=9, session_epoch=4))
    body, position = body_of(frame)
    assert fetch_request._decode_lone(body, position, NAMES) is not None
    for at in range(position, len(body)):
        for byte in (0, 1, 2, 3, 0x7F, 0x80, 0xFF):
            damaged = body[:at] + bytes([byte]) + body[at + 1 :]
            there = outcome(decode_fetch, 18, damaged, position, NAMES)
            usual = outcome(fetch_request._decode_flexible, 18, damaged, position, NAMES, 9)
            assert there == usual, (at, byte)


def test_unknown_topic_id_is_not_mapped_to_a_topic() -> None:
    frame = follower_fetch.FollowerFetches("x").encode(7, lone())
    body, position = body_of(frame)
    heard = decode_fetch(FOLLOWER_VERSION, body, position, {})
    assert heard.partitions[0].topic_partition.topic.startswith("?")


def answer(records: Any, **fields: Any) -> FetchResponse:
    part = FetchPartitionResponse(
        TopicPartition("a", 3), ID, ErrorCode.NONE, 100, 90, 10, None, records, **fields
    )
    return FetchResponse(ErrorCode.NONE, 77, [part])


ANSWERS = {
    "records": answer(b"R" * 300),
    "few records": answer(b"R"),
    "no records": answer(None),
    "empty records": answer(b""),
    "elsewhere": answer(None, preferred_read_replica=5),
    "in a file": answer(Region("x", 7, 40)),
}


@pytest.mark.parametrize("version", [13, 15, 16, 18])
@pytest.mark.parametrize("name", ANSWERS)
def test_response_is_encoded_as_by_the_general_codec(version: int, name: str) -> None:
    def flat(chunks: list[Any]) -> bytes:
        return b"".join(bytes(c.length) if isinstance(c, Region) else bytes(c) for c in chunks)

    response = ANSWERS[name]
    short = encode_fetch_response(version, 9, response)
    assert flat(short) == flat(fetch_response._encode_all(version, 9, response, None))
    regions = [chunk for chunk in short if isinstance(chunk, Region)]
    assert regions == ([response.partitions[0].records] if name == "in a file" else [])


@pytest.mark.parametrize("name", ["records", "few records", "no records", "elsewhere"])
def test_damaged_response_is_decoded_as_by_the_general_codec(name: str) -> None:
    chunks: list[Any] = list(encode_fetch_response(18, 9, ANSWERS[name]))
    frame = b"".join(map(bytes, chunks))[LENGTH_SIZE:]
    _, position = parse_response_header(1, 18, frame)
    assert fetch_response._decode_lone(frame, position, NAMES) is not None
    for at in range(position, len(frame)):
        for byte in (0, 1, 2, 3, 0x7F, 0x80, 0xFF):
            damaged = frame[:at] + bytes([byte]) + frame[at + 1 :]
            there = outcome(fetch_response.decode_fetch_response, damaged, position, NAMES)
            usual = outcome(fetch_response._decode, damaged, position, NAMES)
            assert there == usual, (at, byte)
