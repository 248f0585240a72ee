"""Any bytes give a value or MalformedRequest, with work limited by their number."""

import gzip
import json
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_structs import MESSAGES

from tidelog.core.api_table import APIS, FETCH, PRODUCE
from tidelog.core.wire.codec import REQUEST, decode_request, decode_response, encode_request
from tidelog.core.wire.fetch_request import FOLLOWER_VERSION, decode_fetch
from tidelog.core.wire.follower_fetch import FollowerFetches
from tidelog.core.wire.frames import parse_request_header
from tidelog.core.wire.primitives import MalformedRequest
from tidelog.core.wire.produce import decode_produce

DATA = Path(__file__).parents[2] / "data" / "kafka-4.3.1" / "wire.jsonl.gz"
EXCHANGES = [json.loads(line) for line in gzip.decompress(DATA.read_bytes()).splitlines()]
SHORT = [exchange for exchange in EXCHANGES if len(exchange["request"]) < 4000]


def read_request(frame: bytes) -> None:
    """Decode as a broker does: first the header, then the body."""
    header = parse_request_header(frame)
    api = APIS.get(header.api_key)
    if api is None or not api.first <= header.api_version <= api.last:
        return
    decode_request(header.api_key, header.api_version, frame, header.position)
    if header.api_key == PRODUCE:
        decode_produce(header.api_version, frame, header.position, {})
    if header.api_key == FETCH:
        decode_fetch(header.api_version, frame, header.position, {})


def survives(read: Callable[[], object]) -> None:
    with suppress(MalformedRequest):
        read()


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(MESSAGES), st.binary(max_size=200))
def test_random_bytes(message: tuple[int, int, str], body: bytes) -> None:
    api_key, version, kind = message
    if kind == REQUEST:
        survives(lambda: decode_request(api_key, version, body, 0))
        if api_key == PRODUCE:
            survives(lambda: decode_produce(version, body, 0, {}))
        if api_key == FETCH:
            survives(lambda: decode_fetch(version, body, 0, {}))
    else:
        survives(lambda: decode_response(api_key, version, body))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([PRODUCE, FETCH]), st.data(), st.binary(max_size=200))
def test_random_bytes_for_the_codecs_by_hand(
    api_key: int, data: st.DataObject, body: bytes
) -> None:
    api = APIS[api_key]
    version = data.draw(st.integers(api.first, api.last))
    decode = decode_produce if api_key == PRODUCE else decode_fetch
    survives(lambda: decode(version, body, 0, {}))
    survives(lambda: FollowerFetches("x").decode(body))


@st.composite
def damaged(draw: st.DrawFn, frame: bytes) -> bytes:
    """Change, remove or insert some bytes, or cut the end off."""
    raw = bytearray(frame)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(raw)))
        how = draw(st.sampled_from(["change", "remove", "insert", "cut"]))
        if how == "change":
            raw[at : at + 1] = draw(st.sampled_from([b"\0", b"\x01", b"\x7f", b"\x80", b"\xff"]))
        elif how == "remove":
            del raw[at : at + draw(st.integers(1, 8))]
        elif how == "insert":
            raw[at:at] = draw(st.binary(min_size=1, max_size=8))
        else:
            del raw[at:]
    return bytes(raw)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_requests_of_real_clients(data: st.DataObject) -> None:
    exchange = data.draw(st.sampled_from(SHORT))
    frame = data.draw(damaged(bytes.fromhex(exchange["request"])))
    survives(lambda: read_request(frame))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_responses_of_real_brokers(data: st.DataObject) -> None:
    exchange = data.draw(st.sampled_from([e for e in SHORT if e["response"]]))
    frame = data.draw(damaged(bytes.fromhex(exchange["response"])))
    api_key, version = exchange["api_key"], exchange["api_version"]
    survives(lambda: decode_response(api_key, version, frame))
    if (api_key, version) == (FETCH, FOLLOWER_VERSION):
        survives(lambda: FollowerFetches("x").decode(frame))


@pytest.mark.parametrize("byte", ["7f", "ff", "00", "01", "02"])
def test_memory_is_bounded_by_the_frame(byte: str) -> None:
    """The worst frame has many tiny structs: each of its bytes costs a fixed amount of memory."""
    body = bytes.fromhex(byte) * 20_000
    for api_key, version, kind in MESSAGES:
        tracemalloc.start()
        if kind == REQUEST:
            survives(lambda k=api_key, v=version: decode_request(k, v, body, 0))  # type: ignore[misc]
        else:
            survives(lambda k=api_key, v=version: decode_response(k, v, body))  # type: ignore[misc]
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 300 * len(body)


def test_strings_are_limited_to_the_oldest_versions_length() -> None:
    """Compact lengths allow more, but a string received in one version is sent in another."""
    heartbeat = 12
    asked = {"group_id": "g" * 0x7FFF, "generation_id": 1, "member_id": "m"}
    frame = encode_request(heartbeat, 4, 1, "test", asked)[4:]
    position = parse_request_header(frame).position
    assert decode_request(heartbeat, 4, frame, position)["group_id"] == asked["group_id"]
    frame = encode_request(heartbeat, 4, 1, "test", {**asked, "group_id": "g" * 0x8000})[4:]
    with pytest.raises(MalformedRequest, match="32768"):
        decode_request(heartbeat, 4, frame, position)
