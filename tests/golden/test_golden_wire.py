"""Recorded messages of Kafka 4.3.1 and its clients are decoded, and encoded to the same bytes."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tidelog.core.api_table import APIS, FETCH, PRODUCE
from tidelog.core.errors import ErrorCode
from tidelog.core.lineage.transaction_index import AbortedTransaction
from tidelog.core.node.messages import (
    Fetch,
    FetchPartition,
    FetchPartitionResponse,
    FetchResponse,
    ProducePartitionResponse,
    ProduceResponse,
    unresolved,
)
from tidelog.core.storage.disk import Region
from tidelog.core.types import EpochEnd, TopicPartition
from tidelog.core.wire.codec import decode_request, decode_response, encode_request, encode_response
from tidelog.core.wire.fetch_request import FOLLOWER_VERSION, decode_fetch
from tidelog.core.wire.fetch_response import encode_fetch_response
from tidelog.core.wire.follower_fetch import FollowerFetches
from tidelog.core.wire.frames import LENGTH_SIZE, parse_request_header
from tidelog.core.wire.produce import decode_produce, encode_produce_response

DATA = Path(__file__).parents[1] / "data" / "kafka-4.3.1"
EXCHANGES: list[dict[str, Any]] = [
    json.loads(line) for line in gzip.decompress((DATA / "wire.jsonl.gz").read_bytes()).splitlines()
]
API_KEYS = sorted({exchange["api_key"] for exchange in EXCHANGES})


def exchanges(api_key: int) -> list[tuple[int, bytes, bytes | None]]:
    """Return version, request and response (None for acks=0) of each exchange of one API."""
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


def topic_names(topics: list[dict[str, Any]], id_key: str, name_key: str) -> dict[bytes, str]:
    """Return a name for each id; topics that have names keep them."""
    return {
        topic[id_key]: topic.get(name_key) or f"topic-{topic[id_key].hex()[:4]}"
        for topic in topics
        if id_key in topic
    }


def test_produce_requests_by_hand() -> None:
    for version, request, _ in exchanges(PRODUCE):
        header = parse_request_header(request)
        struct = decode_request(PRODUCE, version, request, header.position)
        names = topic_names(struct["topic_data"], "topic_id", "name")
        frame = bytearray(request)
        decoded, transactional_id = decode_produce(version, frame, header.position, names)
        assert transactional_id == struct["transactional_id"]
        assert (decoded.acks, decoded.timeout_ms) == (struct["acks"], struct["timeout_ms"])
        assert decoded.version == version
        assert [(p.topic_partition, p.topic_id, bytes(p.records)) for p in decoded.partitions] == [
            (
                (topic.get("name") or names[topic["topic_id"]], partition["index"]),
                topic.get("topic_id"),
                partition["records"],
            )
            for topic in struct["topic_data"]
            for partition in topic["partition_data"]
        ]
        assert all(not p.records.readonly for p in decoded.partitions)  # type: ignore[union-attr]


def known(value: int) -> int | None:
    return None if value == -1 else value


def test_produce_responses_by_hand() -> None:
    for version, request, response in exchanges(PRODUCE):
        if response is None:
            continue
        asked, _ = decode_produce(version, request, parse_request_header(request).position, {})
        correlation_id, struct = decode_response(PRODUCE, version, response)
        answers = []
        for topic in struct["responses"]:
            for part in topic["partition_responses"]:
                name = topic.get("name") or unresolved(topic["topic_id"])
                answers.append(
                    ProducePartitionResponse(
                        TopicPartition(name, part["index"]),
                        ErrorCode(part["error_code"]),
                        known(part["base_offset"]),
                        known(part["log_append_time_ms"]),
                        known(part["log_start_offset"]),
                        tuple(
                            (e["batch_index"], e["batch_index_error_message"])
                            for e in part.get("record_errors", ())
                        ),
                        part.get("error_message"),
                    )
                )
        again = encode_produce_response(correlation_id, asked, ProduceResponse(answers))
        assert again == framed(response)


def test_fetch_requests_by_hand() -> None:
    followers = 0
    for version, request, _ in exchanges(FETCH):
        header = parse_request_header(request)
        struct = decode_request(FETCH, version, request, header.position)
        names = topic_names(struct["topics"], "topic_id", "topic")
        decoded = decode_fetch(version, request, header.position, names)
        state = struct.get("replica_state") or {}
        replica = known(struct["replica_id"] if version < 15 else state.get("replica_id", -1))
        followers += replica is not None
        assert decoded == Fetch(
            replica,
            known(state.get("replica_epoch", -1)),
            struct["max_wait_ms"],
            struct["min_bytes"],
            struct["max_bytes"],
            [
                FetchPartition(
                    TopicPartition(
                        topic.get("topic") or names[topic["topic_id"]], part["partition"]
                    ),
                    topic.get("topic_id"),
                    part["fetch_offset"],
                    part["partition_max_bytes"],
                    known(part["current_leader_epoch"]),
                    known(part.get("last_fetched_epoch", -1)),
                    part["log_start_offset"],
                )
                for topic in struct["topics"]
                for part in topic["partitions"]
            ],
            struct["session_id"],
            struct["session_epoch"],
            [
                TopicPartition(topic.get("topic") or unresolved(topic["topic_id"]), partition)
                for topic in struct["forgotten_topics_data"]
                for partition in topic["partitions"]
            ],
            struct["isolation_level"] == 1,
            version >= 11,
            struct["rack_id"],
        )
    assert followers


def fetch_response(struct: dict[str, Any]) -> FetchResponse:
    partitions = []
    for topic in struct["responses"]:
        for part in topic["partitions"]:
            name = topic.get("topic") or unresolved(topic["topic_id"])
            diverging = part.get("diverging_epoch")
            aborted = part["aborted_transactions"]
            partitions.append(
                FetchPartitionResponse(
                    TopicPartition(name, part["partition_index"]),
                    topic.get("topic_id"),
                    ErrorCode(part["error_code"]),
                    part["high_watermark"],
                    part["last_stable_offset"],
                    part["log_start_offset"],
                    diverging and EpochEnd(diverging["epoch"], diverging["end_offset"]),
                    part["records"] or None,
                    aborted
                    and [
                        AbortedTransaction(a["producer_id"], a["first_offset"], 0, 0)
                        for a in aborted
                    ],
                    known(part.get("preferred_read_replica", -1)),
                )
            )
    return FetchResponse(ErrorCode(struct["error_code"]), struct["session_id"], partitions)


@pytest.mark.parametrize("as_region", [False, True], ids=["bytes", "regions"])
def test_fetch_responses_by_hand(as_region: bool) -> None:
    records_seen = 0
    for version, _, response in exchanges(FETCH):
        assert response is not None
        correlation_id, struct = decode_response(FETCH, version, response)
        values = fetch_response(struct)
        files: dict[str, bytes] = {}
        for number, part in enumerate(values.partitions):
            if as_region and part.records is not None:
                assert isinstance(part.records, bytes)
                files[str(number)] = part.records
                part.records = Region(str(number), 0, len(part.records))
        chunks = encode_fetch_response(version, correlation_id, values)
        records_seen += sum(isinstance(chunk, Region) for chunk in chunks)
        sent = b"".join(files[c.path] if isinstance(c, Region) else c for c in chunks)
        assert sent == framed(response)
    assert records_seen > 0 or not as_region


def test_a_follower_reads_what_kafkas_leader_answered() -> None:
    followers = [
        (bytes.fromhex(exchange["request"]), bytes.fromhex(exchange["response"]))
        for exchange in EXCHANGES
        if exchange["api_key"] == FETCH
        and exchange["api_version"] == FOLLOWER_VERSION
        and exchange["client_id"].startswith("broker-")
    ]
    assert followers
    for request, response in followers:
        header = parse_request_header(request)
        fetches = FollowerFetches("broker-1-fetcher-0")
        names = topic_names(
            decode_request(FETCH, FOLLOWER_VERSION, request, header.position)["topics"],
            "topic_id",
            "topic",
        )
        asked = decode_fetch(FOLLOWER_VERSION, request, header.position, names)
        asked.forgotten = []  # of topics that were named in an earlier request
        again = fetches.encode(header.correlation_id, asked)[LENGTH_SIZE:]
        position = parse_request_header(again).position
        assert decode_fetch(FOLLOWER_VERSION, again, position, names) == asked
        correlation_id, answer = fetches.decode(memoryview(response))
        _, struct = decode_response(FETCH, FOLLOWER_VERSION, memoryview(response))
        expected = fetch_response(struct)
        for part in expected.partitions:
            assert part.topic_id is not None
            name = names.get(part.topic_id, part.topic_partition.topic)
            part.topic_partition = TopicPartition(name, part.topic_partition.partition)
            part.aborted = None
        assert correlation_id == header.correlation_id
        assert answer == expected
