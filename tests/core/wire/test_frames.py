import pytest

from tidelog.core.wire.frames import (
    RequestHeader,
    begin_request,
    begin_response,
    finish,
    parse_request_header,
    parse_response_header,
)
from tidelog.core.wire.primitives import MalformedRequest

METADATA, API_VERSIONS, PRIVATE, NOBODYS = 3, 18, 32000, 999

REQUESTS = {
    "header 1": (METADATA, 8, "0003 0008 00000007 0001 63", 11),
    "header 2": (METADATA, 9, "0003 0009 00000007 0001 63 00", 12),
    "header 2 before anything is agreed": (API_VERSIONS, 3, "0012 0003 00000007 0001 63 00", 12),
    "too new a version": (API_VERSIONS, 99, "0012 0063 00000007 0001 63 00", 12),
    "private": (PRIVATE, 0, "7d00 0000 00000007 0001 63", 11),
    "nobody's": (NOBODYS, 9, "03e7 0009 00000007 0001 63", 11),
}


@pytest.mark.parametrize(
    ("api_key", "version", "frame", "position"), REQUESTS.values(), ids=REQUESTS
)
def test_request_headers(api_key: int, version: int, frame: str, position: int) -> None:
    raw = bytes.fromhex(frame)
    assert parse_request_header(raw) == RequestHeader(api_key, version, 7, "c", position)
    assert finish(begin_request(api_key, version, 7, "c")) == len(raw).to_bytes(4) + raw


def test_no_client_id() -> None:
    raw = finish(begin_request(METADATA, 9, 7, None))[4:]
    assert parse_request_header(raw).client_id is None


def test_tagged_fields_in_a_header_are_skipped() -> None:
    request = bytes.fromhex("0003 0009 00000007 ffff 01 05 02 aabb") + b"body"
    assert request[parse_request_header(request).position :] == b"body"
    response = bytes.fromhex("00000007 01 05 02 aabb") + b"body"
    correlation_id, position = parse_response_header(METADATA, 9, response)
    assert (correlation_id, response[position:]) == (7, b"body")


RESPONSES = {
    "header 0": (METADATA, 8, "00000007"),
    "header 1": (METADATA, 9, "00000007 00"),
    "ApiVersions has header 0 for ever": (API_VERSIONS, 4, "00000007"),
    "private": (PRIVATE, 0, "00000007"),
}


@pytest.mark.parametrize(("api_key", "version", "frame"), RESPONSES.values(), ids=RESPONSES)
def test_response_headers(api_key: int, version: int, frame: str) -> None:
    raw = bytes.fromhex(frame)
    assert finish(begin_response(api_key, version, 7)) == len(raw).to_bytes(4) + raw
    assert parse_response_header(api_key, version, raw) == (7, len(raw))


def test_length_includes_bytes_sent_separately() -> None:
    assert finish(begin_response(METADATA, 8, 7), 1000) == (1004).to_bytes(4) + b"\0\0\0\7"


BAD = ["", "0003", "0003 0008 00000007", "0003 0008 00000007 0002 63", "0003 0009 00000007 0001 63"]


@pytest.mark.parametrize(
    "frame", [*BAD, "0003 0008 00000007 0001 ff", "0003 0009 00000007 ffff 01"]
)
def test_damaged_request_headers(frame: str) -> None:
    with pytest.raises(MalformedRequest):
        parse_request_header(bytes.fromhex(frame))


@pytest.mark.parametrize("frame", ["", "000007", "00000007", "00000007 01 01 05"])
def test_damaged_response_headers(frame: str) -> None:
    with pytest.raises(MalformedRequest):
        parse_response_header(METADATA, 9, bytes.fromhex(frame))
