"""What Kafka 4.3.1 and its clients said to each other decodes, and encodes to the same bytes."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tidelog.core.wire.apis import APIS
from tidelog.core.wire.codec import decode_request, decode_response, encode_request, encode_response
from tidelog.core.wire.frames import LENGTH_SIZE, parse_request_header

DATA = Path(__file__).parents[1] / "data" / "kafka-4.3.1"
EXCHANGES: list[dict[str, Any]] = [
    json.loads(line) for line in gzip.decompress((DATA / "wire.jsonl.gz").read_bytes()).splitlines()
]
API_KEYS = sorted({exchange["api_key"] for exchange in EXCHANGES})


def exchanges(api_key: int) -> list[tuple[int, bytes, bytes | None]]:
    """Version, request and response (none for acks=0) of each exchange of one API."""
    return [
        (
            exchange["api_version"],
            bytes.fromhex(exchange["request"]),
            bytes.fromhex(exchange["response"]) if exchange["response"] else None,
        )
        for exchange in EXCHANGES
        if exchange["api_key"] == api_key
    ]


def test_every_api_is_known() -> None:
    assert len(EXCHANGES) == 301
    assert len(API_KEYS) == 41
    assert set(API_KEYS) <= set(APIS)


def test_headers() -> None:
    for exchange in EXCHANGES:
        header = parse_request_header(bytes.fromhex(exchange["request"]))
        assert header.api_key == exchange["api_key"]
        assert header.api_version == exchange["api_version"]
        assert header.client_id == exchange["client_id"]


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(LENGTH_SIZE) + body


@pytest.mark.parametrize("api_key", API_KEYS, ids=lambda key: APIS[key].name)
def test_requests(api_key: int) -> None:
    for version, request, _ in exchanges(api_key):
        header = parse_request_header(request)
        struct = decode_request(api_key, version, memoryview(request), header.position)
        again = encode_request(api_key, version, header.correlation_id, header.client_id, struct)
        assert again == framed(request)


@pytest.mark.parametrize("api_key", API_KEYS, ids=lambda key: APIS[key].name)
def test_responses(api_key: int) -> None:
    for version, request, response in exchanges(api_key):
        if response is None:
            continue
        correlation_id, struct = decode_response(api_key, version, memoryview(response))
        assert correlation_id == parse_request_header(request).correlation_id
        assert encode_response(api_key, version, correlation_id, struct) == framed(response)
