"""Requests that real clients sent to Kafka 4.3.1: decoded, and answered in Kafka's form."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from api_cluster import METADATA, ApiCluster

from tidelog.core.api.handlers import HANDLERS
from tidelog.core.api_table import OFFERED, UPDATE_FEATURES
from tidelog.core.wire.codec import decode_request, decode_response
from tidelog.core.wire.frames import parse_request_header

DATA = Path(__file__).parents[2] / "data" / "kafka-4.3.1"
EXCHANGES: list[dict[str, Any]] = [
    exchange
    for file in ("wire.jsonl.gz", "admin.jsonl.gz")
    for line in gzip.decompress((DATA / file).read_bytes()).splitlines()
    if (exchange := json.loads(line))["api_key"] in HANDLERS
]
UNRECORDED = {UPDATE_FEATURES}
"""Kafka's own tool sends it to real brokers instead, in test_java_tools.py."""
TOPICS = ("ct", "kp", "ak", "jt", "jc", "codec", "a")


@pytest.fixture(scope="module")
def cluster() -> ApiCluster:
    return ApiCluster(texts={"num.partitions": "3"}).start_all()


def form(value: Any) -> Any:
    """Return the fields of a message without values; of a list, those of its first item."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {name: form(each) for name, each in value.items()}
    if isinstance(value, list):
        return [form(value[0])] if value else []
    return ...


def fits(ours: Any, kafkas: Any) -> bool:
    """Whether both have the same fields, wherever both have values."""
    if ours is None or kafkas is None:
        return True
    if isinstance(ours, dict) and isinstance(kafkas, dict):
        return ours.keys() == kafkas.keys() and all(fits(ours[k], kafkas[k]) for k in ours)
    if isinstance(ours, list) and isinstance(kafkas, list):
        return not ours or not kafkas or fits(ours[0], kafkas[0])
    return bool(ours == kafkas)


def test_every_api_that_is_handled_was_recorded() -> None:
    assert {exchange["api_key"] for exchange in EXCHANGES} == set(HANDLERS) - UNRECORDED
    offered = [e for e in EXCHANGES if OFFERED[e["api_key"]].serves(e["api_version"])]
    assert offered == EXCHANGES, "each version that real clients use is offered"


@pytest.mark.parametrize("api_key", sorted(HANDLERS), ids=lambda key: OFFERED[key].name)
def test_response_has_kafkas_form(cluster: ApiCluster, api_key: int) -> None:
    asked = {"topics": [{"name": name, "topic_id": bytes(16)} for name in TOPICS]}
    cluster.request(1, METADATA, asked)
    cluster.settle()
    for exchange in EXCHANGES:
        if exchange["api_key"] != api_key:
            continue
        version = exchange["api_version"]
        frame = memoryview(bytes.fromhex(exchange["request"]))
        header = parse_request_header(frame)
        request = decode_request(api_key, version, frame, header.position)
        ours = cluster.request(exchange["broker"] or 1, api_key, request, version)
        _, kafkas = decode_response(api_key, version, bytes.fromhex(exchange["response"]))
        assert fits(form(ours), form(kafkas)), (version, ours, kafkas)
        cluster.settle()
