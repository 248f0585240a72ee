"""No request keeps a broker busy for long: tests count its function calls and measure no time."""

from random import Random
from typing import Any

import pytest

from tidelog.core.record import compression, work_budget
from tidelog.core.record.compression import Codec
from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import CRC_FROM
from tidelog.core.wire.codec import decode_response, encode_request
from tidelog.lab.fuzz.campaign import begin
from tidelog.lab.fuzz.effort import Effort
from tidelog.lab.fuzz.memory_broker import Line, MemoryBroker
from tidelog.lab.fuzz.requests import RequestMaker, World, large_requests

PRODUCE, FETCH, LIST_OFFSETS, METADATA, JOIN_GROUP, CREATE_TOPICS = 0, 1, 2, 3, 11, 19
HEAVY = "heavy"
HEAVY_PARTITIONS = 200
ENTRIES = 500
CALLS_PER_ENTRY = 160
"""The most is a whole step of the controller, for each topic of a CreatePartitions. What grows
with other entries too makes hundreds of times as many."""
CALLS_BASE = 30_000
MIB = 1 << 20


def ask(broker: MemoryBroker, key: int, version: int, request: Any) -> Line:
    line = Line()
    broker.take(line, encode_request(key, version, 1, "test", request)[4:])
    return line


def answer_of(line: Line, key: int, version: int) -> Any:
    assert line.refused is None, line.refused
    [frame] = line.answer
    assert isinstance(frame, bytes)
    return decode_response(key, version, frame[4:])[1]


def create(broker: MemoryBroker, name: str, partitions: int, **configs: str) -> bytes:
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "configs": [
            {"name": key.replace("_", "."), "value": value} for key, value in configs.items()
        ],
    }
    request = {"topics": [topic], "timeout_ms": 10_000, "validate_only": False}
    line = ask(broker, CREATE_TOPICS, 7, request)
    broker.pass_time(2000)
    [made] = answer_of(line, CREATE_TOPICS, 7)["topics"]
    assert made["error_code"] == 0
    topic_id: bytes = made["topic_id"]
    return topic_id


def heavy_broker() -> tuple[MemoryBroker, RequestMaker]:
    broker, _ = begin()
    heavy_id = create(broker, HEAVY, HEAVY_PARTITIONS)
    return broker, RequestMaker(Random(1), World((HEAVY,) * 30, (heavy_id,) * 30))


def effort_of(broker: MemoryBroker, frame: bytes) -> Effort:
    effort = Effort()
    broker.turn_ends = effort.turn_ends
    with effort:
        broker.take(Line(), frame)
    return effort


def test_no_request_does_more_than_its_entries_need() -> None:
    """Regression test: Metadata named a topic of 200 partitions a thousand times."""
    broker, maker = heavy_broker()
    found: dict[str, int] = {}
    for large in large_requests(maker, ENTRIES):
        calls = effort_of(broker, large.frame).calls_in_a_turn
        if calls > CALLS_BASE + CALLS_PER_ENTRY * large.entries:
            found[large.name] = calls
        broker.pass_time(100)
    assert found == {}


def test_work_is_counted_by_turns() -> None:
    """Work that a handler does in later turns delays no other request."""
    broker, _ = heavy_broker()
    groups = {"groups": [f"g-{n}" for n in range(2000)], "include_authorized_operations": False}
    frame = encode_request(15, 5, 1, "test", groups)[4:]
    effort = effort_of(broker, frame)
    assert effort.calls_in_a_turn < effort.calls * 2 / 3


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the decompressed size of each batch; -1 if it was refused."""
    seen: list[int] = []

    def counted(codec: int, data: Any, limit: int) -> Any:
        seen.append(-1)
        records = compression.decompress(codec, data, limit)
        seen[-1] = len(records)
        return records

    monkeypatch.setattr(work_budget, "decompress", counted)
    return seen


def bomb(size: int, codec: Codec = Codec.ZSTD) -> bytes:
    return bytes(encode_batch([Record(b"k", bytes(size), 1000)], attributes=codec))


def produce(topic: str, batches: list[bytes]) -> dict[str, Any]:
    data = [{"index": n, "records": batch} for n, batch in enumerate(batches)]
    topics = [{"name": topic, "partition_data": data}]
    return {"transactional_id": None, "acks": 1, "timeout_ms": 1000, "topic_data": topics}


@pytest.mark.parametrize("size", [10 * MIB, 70 * MIB], ids=["fits", "too large"])
def test_a_produce_of_many_bombs_unpacks_one_budget(unpacked: list[int], size: int) -> None:
    """Regression test: 300 batches that decompress to 60 MB each took 48 seconds."""
    broker, _ = begin()
    create(broker, "keyed", 40, cleanup_policy="compact")
    line = ask(broker, PRODUCE, 12, produce("keyed", [bomb(size)] * 40))
    [topic] = answer_of(line, PRODUCE, 12)["responses"]
    errors = {partition["error_code"] for partition in topic["partition_responses"]}
    assert sum(max(size, 0) for size in unpacked) <= 64 * MIB
    assert unpacked.count(-1) <= 2
    assert errors <= {0, 7, 10}, "taken, to be sent again, or too large"
    again = ask(broker, PRODUCE, 12, produce("keyed", [bomb(100)]))
    [topic] = answer_of(again, PRODUCE, 12)["responses"]
    assert topic["partition_responses"][0]["error_code"] == 0


def test_a_search_by_time_pauses_and_finds_everything(unpacked: list[int]) -> None:
    """Regression test: 200 partitions with such a batch each took 58 seconds."""
    broker, _ = begin()
    create(broker, "timed", 12)
    for number in range(12):
        data = [{"index": number, "records": bomb(6 * MIB)}]
        topics = [{"name": "timed", "partition_data": data}]
        request = {"transactional_id": None, "acks": 1, "timeout_ms": 1000, "topic_data": topics}
        ask(broker, PRODUCE, 12, request)
    assert unpacked == []
    turns = []
    broker.turn_ends = lambda: turns.append(len(unpacked))
    partitions = [
        {"partition_index": n, "current_leader_epoch": -1, "timestamp": 5} for n in range(12)
    ]
    topics = [{"name": "timed", "partitions": partitions}]
    request = {"replica_id": -1, "isolation_level": 0, "topics": topics, "timeout_ms": 100}
    [topic] = answer_of(ask(broker, LIST_OFFSETS, 9, request), LIST_OFFSETS, 9)["topics"]
    found = [(one["error_code"], one["offset"], one["timestamp"]) for one in topic["partitions"]]
    assert found == [(0, 0, 1000)] * 12
    assert turns == [2, 4, 6, 8, 10], "others are served after each two"


def test_false_timestamps_in_headers_do_not_open_the_whole_log(
    unpacked: list[int],
) -> None:
    """Each header claims a record of the requested time, but no batch has one."""
    broker, _ = begin()
    create(broker, "timed", 1)
    lying = bytearray(encode_batch([Record(b"k", b"v", 1000)] * 20_000, attributes=Codec.ZSTD))
    lying[35:43] = (5000).to_bytes(8, "big")
    lying[17:21] = compression_crc(lying)
    for _ in range(15):
        ask(broker, PRODUCE, 12, produce("timed", [bytes(lying)]))
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": 4000}
    topics = [{"name": "timed", "partitions": [partition]}]
    request = {"replica_id": -1, "isolation_level": 0, "topics": topics, "timeout_ms": 100}
    [topic] = answer_of(ask(broker, LIST_OFFSETS, 9, request), LIST_OFFSETS, 9)["topics"]
    assert len(unpacked) <= 10
    assert topic["partitions"][0]["timestamp"] == 5000, "the header's word"


def compression_crc(batch: bytearray) -> bytes:
    return crc32c(memoryview(batch)[CRC_FROM:]).to_bytes(4, "big")


def test_a_fetch_names_ten_thousand_partitions_at_most() -> None:
    broker, _ = begin()
    partition = {
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1,
    }

    def fetch(count: int) -> Line:
        partitions = [{"partition": n, **partition} for n in range(count)]
        request = {
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": 1,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": "orders", "partitions": partitions}],
            "forgotten_topics_data": [],
            "rack_id": "",
            "replica_id": -1,
            "cluster_id": None,
            "replica_state": None,
        }
        return ask(broker, FETCH, 12, request)

    assert fetch(10_000).refused is None
    assert "the limit of 10000" in str(fetch(10_001).refused)


def test_metadata_creates_a_limited_number_of_topics() -> None:
    """99,000 names in one Metadata request created as many topics."""
    broker, _ = begin()
    names = [{"topic_id": bytes(16), "name": f"new-{n}"} for n in range(700)]
    request = {
        "topics": names,
        "allow_auto_topic_creation": True,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    line = ask(broker, METADATA, 12, request)
    broker.pass_time(1000)
    assert len(answer_of(line, METADATA, 12)["topics"]) == 700
    made = [name for name in broker.node.image.topics if name.startswith("new-")]
    assert len(made) == 500


def test_search_by_time_stops_when_its_client_disconnects(unpacked: list[int]) -> None:
    broker, _ = begin()
    create(broker, "timed", 8)
    for number in range(8):
        data = [{"index": number, "records": bomb(9 * MIB)}]
        topics = [{"name": "timed", "partition_data": data}]
        request = {"transactional_id": None, "acks": 1, "timeout_ms": 1000, "topic_data": topics}
        ask(broker, PRODUCE, 12, request)
    line = Line()
    broker.turn_ends = lambda: line.refuse("the peer closed it")
    partitions = [
        {"partition_index": n, "current_leader_epoch": -1, "timestamp": 5} for n in range(8)
    ]
    topics = [{"name": "timed", "partitions": partitions}]
    asked = {"replica_id": -1, "isolation_level": 0, "topics": topics, "timeout_ms": 100}
    broker.take(line, encode_request(LIST_OFFSETS, 9, 1, "test", asked)[4:])
    assert (line.filled, len(unpacked)) == (False, 1)
