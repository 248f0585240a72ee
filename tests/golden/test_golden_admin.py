"""Recorded admin responses of Kafka 4.3.1 are decoded, and encoded to the same bytes.

These exchanges are of APIs and versions that Kafka's own tools rarely or never use. Tidelog's codec
wrote the requests, and Kafka accepted them; the responses are Kafka's.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tidelog.core.api_table import APIS
from tidelog.core.errors import ErrorCode
from tidelog.core.wire.codec import decode_request, decode_response, encode_request, encode_response
from tidelog.core.wire.frames import LENGTH_SIZE, parse_request_header

FILE = Path(__file__).parents[1] / "data" / "kafka-4.3.1" / "admin.jsonl.gz"
EXCHANGES: list[dict[str, Any]] = [
    json.loads(line) for line in gzip.decompress(FILE.read_bytes()).splitlines()
]
API_KEYS = sorted({exchange["api_key"] for exchange in EXCHANGES})
ALL_VERSIONS = {17, 29, 30, 31, 33, 34, 36, 48, 49, 50, 51, 64, 74}


def codes(value: Any) -> set[int]:
    if isinstance(value, list):
        return set().union(*(codes(each) for each in value))
    if not isinstance(value, dict):
        return set()
    own = {value["error_code"]} if "error_code" in value else set()
    return own.union(*(codes(each) for each in value.values()))


def test_every_version_of_rare_apis_is_recorded() -> None:
    seen = {(exchange["api_key"], exchange["api_version"]) for exchange in EXCHANGES}
    for key in ALL_VERSIONS:
        for version in range(APIS[key].first, APIS[key].last + 1):
            assert (key, version) in seen


@pytest.mark.parametrize("api_key", API_KEYS, ids=lambda key: APIS[key].name)
def test_decoded_responses_encode_to_the_same_bytes(api_key: int) -> None:
    for exchange in EXCHANGES:
        if exchange["api_key"] != api_key:
            continue
        version = exchange["api_version"]
        request, response = (bytes.fromhex(exchange[name]) for name in ("request", "response"))
        header = parse_request_header(request)
        struct = decode_request(api_key, version, memoryview(request), header.position)
        again = encode_request(api_key, version, header.correlation_id, header.client_id, struct)
        assert again[LENGTH_SIZE:] == request
        correlation_id, struct = decode_response(api_key, version, memoryview(response))
        assert correlation_id == header.correlation_id
        assert encode_response(api_key, version, correlation_id, struct)[LENGTH_SIZE:] == response


def test_kafkas_errors_are_known_here() -> None:
    seen: set[int] = set()
    for exchange in EXCHANGES:
        response = memoryview(bytes.fromhex(exchange["response"]))
        _, struct = decode_response(exchange["api_key"], exchange["api_version"], response)
        seen |= codes(struct)
    assert {ErrorCode(code) for code in seen} >= {
        ErrorCode.NONE,
        ErrorCode.ILLEGAL_SASL_STATE,
        ErrorCode.SECURITY_DISABLED,
        ErrorCode.LOG_DIR_NOT_FOUND,
        ErrorCode.RESOURCE_NOT_FOUND,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
    }
