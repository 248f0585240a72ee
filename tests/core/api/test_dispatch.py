"""A client's frames: answered, refused, or without response with acks=0."""

import json
import struct
from typing import Any

import pytest
from api_cluster import API_VERSIONS, CLUSTER_ID, CREATE_TOPICS, DELETE_TOPICS, METADATA, creatable
from dispatch_cluster import DispatchCluster, Line

from tidelog.core.api.dispatch import FETCH_WAIT_MAX_MS
from tidelog.core.api.exchange import CloseCode
from tidelog.core.api.settling import names_a_dead_leader
from tidelog.core.api_table import ENTRIES_MAX, FEW
from tidelog.core.errors import ErrorCode
from tidelog.core.history import HistoryEvent
from tidelog.core.record.encoder import encode_value
from tidelog.core.types import TopicPartition
from tidelog.core.wire.codec import decode_response, encode_request

PRODUCE, FETCH, LIST_OFFSETS, DESCRIBE_STATE, DESCRIBE_LOSSES = 0, 1, 2, 32000, 32004
ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def cluster() -> DispatchCluster:
    cluster = DispatchCluster(brokers=(1, 2))
    cluster.start_all()
    cluster.create("orders", -1, -1, assignments={0: [1, 2]})
    return cluster


def topic_id(cluster: DispatchCluster) -> bytes:
    return cluster.nodes[1].image.topics["orders"].topic_id


def produce(cluster: DispatchCluster, acks: int = -1, records: Any = None) -> dict[str, Any]:
    records = bytes(encode_value(b"x")) if records is None else records
    partition = {"index": 0, "records": records}
    topic = {"topic_id": topic_id(cluster), "name": "orders", "partition_data": [partition]}
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout_ms": 1000,
        "topic_data": [topic],
    }


def fetch(cluster: DispatchCluster, replica_id: int = -1) -> dict[str, Any]:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1_000_000,
    }
    topic = {"topic": "orders", "topic_id": topic_id(cluster), "partitions": [partition]}
    return {
        "replica_id": replica_id,
        "replica_state": {"replica_id": replica_id, "replica_epoch": -1},
        "max_wait_ms": 100,
        "min_bytes": 1,
        "max_bytes": 1_000_000,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [topic],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


# -- what is answered ----------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_produce_and_fetch(cluster: DispatchCluster, version: int) -> None:
    dispatch = cluster.dispatch(1)
    answer = cluster.exchange(dispatch, PRODUCE, version, produce(cluster))
    [partition] = answer["responses"][0]["partition_responses"]
    assert (partition["error_code"], partition["base_offset"]) == (ErrorCode.NONE, 0)
    for fetch_version in (4, 12, 13, 18):
        answer = cluster.exchange(dispatch, FETCH, fetch_version, fetch(cluster))
        [partition] = answer["responses"][0]["partitions"]
        assert (partition["error_code"], partition["high_watermark"]) == (ErrorCode.NONE, 1)
        assert bytes(partition["records"])


def test_wait_time_of_a_fetch_is_limited(cluster: DispatchCluster) -> None:
    """Its client may have disconnected: a waiting fetch takes memory."""
    dispatch, line = cluster.dispatch(1), Line()
    patient = {**fetch(cluster), "max_wait_ms": 2**31 - 1}
    cluster.send(dispatch, line, encode_request(FETCH, 12, 1, "test", patient)[4:])
    [answer] = line.answers
    began = cluster.now_ms
    cluster.run_until(lambda: answer.frame is not None)
    assert FETCH_WAIT_MAX_MS <= cluster.now_ms - began < FETCH_WAIT_MAX_MS + 1000


@pytest.mark.parametrize(
    ("key", "version", "request_"),
    [
        (METADATA, 12, {"topics": [{"name": "n" * 249}] * 20_000}),
        (METADATA, 9, {"topics": [{"name": ""}] * (ENTRIES_MAX + 1)}),
        (
            LIST_OFFSETS,
            6,
            {"topics": [{"name": "t", "partitions": [{}] * (ENTRIES_MAX // 2)}] * 2},
        ),
        (DELETE_TOPICS, 5, {"topic_names": [""] * (FEW + 1), "timeout_ms": 1}),
    ],
    ids=["bytes", "entries", "entries in entries", "entries that cost more"],
)
def test_request_with_too_many_entries_closes_the_connection(
    cluster: DispatchCluster, key: int, version: int, request_: dict[str, Any]
) -> None:
    dispatch, line = cluster.dispatch(1), Line()
    cluster.send(dispatch, line, encode_request(key, version, 1, "test", request_)[4:])
    assert line.closed is not None
    assert "exceed" in line.closed


@pytest.mark.parametrize("version", [3, 9])
def test_a_produce_of_very_many_partitions_is_refused(
    cluster: DispatchCluster, version: int
) -> None:
    dispatch, line = cluster.dispatch(1), Line()
    request = produce(cluster)
    request["topic_data"] = [
        {"name": "orders", "partition_data": [{"index": 0, "records": None}] * 60_000}
    ] * 2
    cluster.send(dispatch, line, encode_request(PRODUCE, version, 1, "test", request)[4:])
    assert line.closed is not None
    assert "exceed" in line.closed


def test_follower_names_the_leader(cluster: DispatchCluster) -> None:
    answer = cluster.exchange(cluster.dispatch(2), PRODUCE, 13, produce(cluster))
    [partition] = answer["responses"][0]["partition_responses"]
    assert partition["error_code"] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition["current_leader"] == {"leader_id": 1, "leader_epoch": 0}
    [endpoint] = answer["node_endpoints"]
    assert (endpoint["node_id"], endpoint["host"], endpoint["port"]) == (1, "localhost", 9091)


def test_offline_partition_gets_no_leader_hint(cluster: DispatchCluster) -> None:
    cluster.create("lonely", -1, -1, assignments={0: [1]})
    lonely = cluster.nodes[2].image.topics["lonely"].topic_id
    cluster.crash(1, proof=True)
    cluster.run_until(lambda: cluster.nodes[2].image.partition("lonely", 0).leader is None)  # type: ignore[union-attr]
    request = produce(cluster_of(cluster, 2))
    request["topic_data"][0]["topic_id"] = lonely
    answer = cluster.exchange(cluster.dispatch(2), PRODUCE, 13, request)
    [partition] = answer["responses"][0]["partition_responses"]
    assert partition["error_code"] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer["node_endpoints"] == []


def cluster_of(cluster: DispatchCluster, broker: int) -> DispatchCluster:
    """The same cluster; broker 1 is only a name for the remaining broker."""
    cluster.nodes.setdefault(1, cluster.nodes[broker])
    return cluster


def test_handlers_that_do_not_call_the_node(cluster: DispatchCluster) -> None:
    """One that responds at once, and one that has no request for the node."""
    dispatch = cluster.dispatch(1)
    named = {"client_software_name": "test", "client_software_version": "1"}
    answer = cluster.exchange(dispatch, API_VERSIONS, 4, named)
    assert answer["error_code"] == ErrorCode.NONE
    unknown = {"topics": [{"name": None, "topic_id": b"u" * 16}], "timeout_ms": 1000}
    answer = cluster.exchange(dispatch, DELETE_TOPICS, 6, unknown)
    assert answer["responses"][0]["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("broken", ["at once", "later", "in its answer"])
def test_a_fault_in_a_handler_costs_one_connection(
    cluster: DispatchCluster, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def handler(_broker: object, _request: object) -> Any:
        if broken == "at once":
            raise RuntimeError(broken)
        if broken == "in its answer":
            return {"error_code": "no number", "api_keys": []}
        return going_on()

    def going_on() -> Any:
        yield []
        raise RuntimeError(broken)

    monkeypatch.setattr("tidelog.core.api.dispatch.handler_of", lambda _key: handler)
    frame = encode_request(API_VERSIONS, 0, 5, "test", {})[4:]
    with pytest.raises((RuntimeError, struct.error)):  # where nobody listens
        cluster.send(cluster.dispatch(1), Line(), frame)
    told: list[Exception] = []
    cluster.fault = told.append
    line = Line()
    cluster.send(cluster.dispatch(1), line, frame)
    assert (len(told), "internal error" in (line.closed or "")) == (1, True)
    monkeypatch.undo()
    assert cluster.exchange(cluster.dispatch(1), API_VERSIONS, 0, {})["error_code"] == 0


def test_responses_are_sent_in_the_order_of_requests(cluster: DispatchCluster) -> None:
    dispatch, line = cluster.dispatch(2), Line()
    created = {"topics": [creatable("new")], "timeout_ms": 1000, "validate_only": False}
    cluster.send(dispatch, line, encode_request(CREATE_TOPICS, 7, 1, "test", created)[4:])
    cluster.send(dispatch, line, encode_request(METADATA, 12, 2, "test", {"topics": []})[4:])
    first, second = line.answers
    assert [first.frame is None, second.frame is None] == [True, False], "asked elsewhere"
    cluster.run_until(lambda: first.frame is not None)
    assert first.frame is not None
    number, answer = decode_response(CREATE_TOPICS, 7, first.frame[4:])
    assert number == 1
    assert answer["topics"][0]["error_code"] == ErrorCode.NONE


def test_metadata_waits_for_the_election_after_a_dead_leader(cluster: DispatchCluster) -> None:
    """A request at that moment is delayed, then gets the current state."""
    image = cluster.nodes[2].image
    asked: list[Any] = [
        None,
        [{"name": "orders"}],
        [{"name": None, "topic_id": topic_id(cluster)}, {"name": "nowhere"}],
    ]

    def dead() -> list[bool]:
        return [names_a_dead_leader(image, {"topics": topics}) for topics in asked]

    assert dead() == [False] * 3
    cluster.crash(1)
    cluster.run_until(lambda: not image.brokers[1].online)
    assert dead() == [True] * 3
    assert not names_a_dead_leader(image, {"topics": [{"name": "nowhere"}]})
    request = {"topics": [{"name": "orders", "topic_id": bytes(16)}]}
    answer = cluster.exchange(cluster.dispatch(2), METADATA, 13, request)
    [partition] = answer["topics"][0]["partitions"]
    assert partition["leader_id"] != 1
    cluster.run_until(lambda: not any(dead()))
    assert cluster.leader() == 2


def test_too_new_api_versions_request_is_answered_in_version_0(cluster: DispatchCluster) -> None:
    line = Line()
    # Key 18, version 9, number 66, no client id, and what no broker of today can read.
    frame = bytes.fromhex("0012 0009 00000042 ffff 00 0102030405")
    cluster.send(cluster.dispatch(1), line, frame)
    [answer] = line.answers
    assert answer.frame is not None
    number, struct = decode_response(API_VERSIONS, 0, answer.frame[4:])
    assert number == 0x42
    assert struct["error_code"] == ErrorCode.UNSUPPORTED_VERSION
    assert struct["api_keys"] == [{"api_key": 18, "min_version": 0, "max_version": 4}]


def test_describe_state(cluster: DispatchCluster) -> None:
    for document in (b"", b"{}", b'{"topic": "orders", "partition": 0}'):
        request = {"document": document}
        answer = cluster.exchange(cluster.dispatch(2), DESCRIBE_STATE, 0, request)
        state = json.loads(answer["document"])
        assert state["broker_id"] == 2
        assert state["cluster_id"] == CLUSTER_ID
        assert [partition["topic"] for partition in state["partitions"]] == ["orders"]


def losses(cluster: DispatchCluster, **request: object) -> dict[str, Any]:
    document = {"document": json.dumps(request).encode()}
    answer = cluster.exchange(cluster.dispatch(2), DESCRIBE_LOSSES, 0, document)
    found: dict[str, Any] = json.loads(answer["document"])
    return found


def test_losses_are_described_page_by_page(cluster: DispatchCluster) -> None:
    assert losses(cluster) == {"broker_id": 2, "losses": [], "next": [0, 1, 0]}
    directory = cluster.nodes[2].directory
    entries = []
    for number in range(2000):
        fields = {"id": str(number), "topic": ("orders", "payments")[number % 2]}
        event = HistoryEvent(number, 2, "loss", fields)
        entries.append(event.as_data())
        directory.record_loss(ORDERS, json.dumps(event.as_data()).encode())
    directory.record_loss(ORDERS, b'{"id": "cut o')
    found, pages = [], 0
    following: list[int] | None = [0, 0, 0]
    while following is not None:
        page = losses(cluster, next=following)
        found += page["losses"]
        following = page["next"]
        pages += 1
    assert (found, pages > 3) == (entries, True)
    page = losses(cluster, topic="orders", since_ms=50, next=[0, 1, 0])
    assert page["losses"][:2] == [entries[50], entries[52]]


def test_a_page_behind_the_last_one_is_empty(cluster: DispatchCluster) -> None:
    for following in ([0, 1, 99], [0, 9, 0], [9, 0, 0], [0, -1, -1]):
        assert losses(cluster, next=following)["losses"] == []


def test_describe_state_of_many_replicas_pauses_for_other_clients(
    cluster: DispatchCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("many", -1, -1, assignments={number: [1, 2] for number in range(5)})
    monkeypatch.setattr("tidelog.core.api.dispatch.REPLICAS_PER_TURN", 2)
    line = Line()
    frame = encode_request(DESCRIBE_STATE, 0, 5, "test", {"document": b"{}"})[4:]
    cluster.send(cluster.dispatch(1), line, frame)
    [answer] = line.answers
    answered_at_once = answer.frame is not None
    assert not answered_at_once
    cluster.run_until(lambda: answer.frame is not None)
    _, response = decode_response(DESCRIBE_STATE, 0, (answer.frame or b"")[4:])
    state = json.loads(response["document"])
    names = [(each["topic"], each["partition"]) for each in state["partitions"]]
    assert names == [*(("many", number) for number in range(5)), ("orders", 0)]
    assert state["broker_id"] == 1


# -- what is not ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0",
        bytes.fromhex("0003 000e 00000001 0000 00"),
        bytes.fromhex("0000 0002 00000001 0000"),
        bytes.fromhex("0063 0000 00000001 0000"),
        bytes.fromhex("7d02 0000 00000001 0000"),
        bytes.fromhex("0003 0001 00000001 0000 7fffffff"),
        bytes.fromhex("0003 0001"),
        encode_request(DESCRIBE_STATE, 0, 1, "test", {"document": b"{"})[4:],
        encode_request(DESCRIBE_STATE, 0, 1, "test", {"document": b"[]"})[4:],
        encode_request(DESCRIBE_STATE, 0, 1, "test", {"document": b"[" * 200_000})[4:],
        encode_request(DESCRIBE_LOSSES, 0, 1, "test", {"document": b'{"next": [1]}'})[4:],
        encode_request(DESCRIBE_LOSSES, 0, 1, "test", {"document": b'{"since_ms": 1e999}'})[4:],
        encode_request(DESCRIBE_STATE, 0, 1, "test", {"document": b'{"topic": []}'})[4:],
        encode_request(DESCRIBE_STATE, 0, 1, "test", {"document": b'{"partition": "0"}'})[4:],
    ],
    ids=[
        "empty",
        "one byte",
        "a version too new",
        "a version too old",
        "an API nobody has",
        "an API for brokers",
        "more topics than bytes",
        "half a header",
        "broken JSON",
        "JSON of another kind",
        "JSON without a bottom",
        "half a cursor",
        "a time without end",
        "a list as topic",
        "a string as partition",
    ],
)
def test_nonsense_closes_the_connection(cluster: DispatchCluster, frame: bytes) -> None:
    line = Line()
    cluster.send(cluster.dispatch(1), line, frame)
    assert line.closed
    assert all(answer.frame is None for answer in line.answers)


@pytest.mark.parametrize("version", [12, 18])
def test_client_listener_rejects_replica_fetches(cluster: DispatchCluster, version: int) -> None:
    line = Line()
    frame = encode_request(FETCH, version, 1, "test", fetch(cluster, replica_id=2))[4:]
    cluster.send(cluster.dispatch(1), line, frame)
    assert line.closed is not None
    assert "replica" in line.closed


def test_produce_with_acks_0_gets_no_response(cluster: DispatchCluster) -> None:
    dispatch, line = cluster.dispatch(1), Line()
    frame = encode_request(PRODUCE, 13, 1, "test", produce(cluster, acks=0))[4:]
    cluster.send(dispatch, line, frame)
    assert (line.answers, line.closed) == ([], None)
    cluster.run(1000)
    assert cluster.replica(1).log.log_end_offset == 1


def test_errors_of_produce_with_acks_0_close_the_connection(cluster: DispatchCluster) -> None:
    line = Line()
    frame = encode_request(PRODUCE, 13, 1, "test", produce(cluster, acks=0))[4:]
    cluster.send(cluster.dispatch(2), line, frame)
    assert line.answers == []
    assert line.closed == "by the node"


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\0", CloseCode.MALFORMED),
        (struct.pack(">hhih", 3, 9, 1, -5), CloseCode.MALFORMED),
        (struct.pack(">hhih", 99, 0, 1, -1), CloseCode.NOT_OFFERED),
        (struct.pack(">hhih", 3, 9, 1, -1) + bytes(5 * 1024 * 1024), CloseCode.TOO_LARGE),
    ],
    ids=["too short", "malformed", "not offered", "too large"],
)
def test_a_closed_connection_has_a_code(
    cluster: DispatchCluster, frame: bytes, code: CloseCode
) -> None:
    line = Line()
    cluster.send(cluster.dispatch(1), line, frame)
    assert line.close_code is code


def test_a_client_that_fetches_as_a_replica_is_not_a_broker(cluster: DispatchCluster) -> None:
    line = Line()
    request = encode_request(FETCH, 12, 1, "test", fetch(cluster, replica_id=2))[4:]
    cluster.send(cluster.dispatch(1), line, request)
    assert line.close_code is CloseCode.NOT_A_BROKER
