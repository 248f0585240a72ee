"""Requests between brokers: only after the handshake, and only under the broker's own id."""

import json
from typing import Any

import pytest
from dispatch_cluster import SECRET, DispatchCluster, Line, address, member
from node_cluster import ORDERS

from tidelog.core.api.handshake import NONCE_BYTES, ConnectingHandshake
from tidelog.core.api_table import (
    ADD_PARTITIONS_TO_TXN,
    CONTROLLER_CALL,
    HELLO,
    HELLO_VERSION,
    SET_FAULTS,
    WRITE_TXN_MARKERS,
)
from tidelog.core.controller.effects import ReassignmentsAnswer
from tidelog.core.controller.events import ListReassignmentsReceived
from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import (
    AddPartitionsToTxn,
    AddPartitionsToTxnResponse,
    Fetch,
    FetchPartition,
    Forwarded,
    TxnMarker,
    TxnPartitions,
    WriteTxnMarkers,
)
from tidelog.core.types import TopicPartition
from tidelog.core.wire.codec import decode_response, encode_request
from tidelog.core.wire.controller_calls import decode_call, encode_call
from tidelog.core.wire.follower_fetch import FollowerFetches
from tidelog.core.wire.transaction_calls import (
    decode_markers_response,
    decode_partitions_response,
    encode_transaction_call,
)


@pytest.fixture
def cluster() -> DispatchCluster:
    cluster = DispatchCluster(brokers=(1, 2))
    cluster.start_all()
    cluster.create("orders", -1, -1, assignments={0: [1, 2]})
    return cluster


def say(cluster: DispatchCluster, line: Line, api_key: int, document: bytes) -> None:
    version = HELLO_VERSION if api_key == HELLO else 0
    frame = encode_request(api_key, version, 5, "broker-2", {"document": document})[4:]
    cluster.send(cluster.internal(1), line, frame)


def shake_hands(cluster: DispatchCluster, secret: str = SECRET) -> Line:
    """A connection on which broker 2 has proved itself, and no response is left."""
    line = Line()
    handshake = ConnectingHandshake(
        member(2)._replace(secret=secret), 1, address(1), b"n" * NONCE_BYTES
    )
    say(cluster, line, HELLO, handshake.hello())
    [challenge] = line.answers
    assert challenge.frame is not None
    number, struct = decode_response(HELLO, HELLO_VERSION, challenge.frame[4:])
    assert number == 5
    say(cluster, line, HELLO, handshake.prove(struct["document"]))
    line.answers.clear()
    return line


def follow(cluster: DispatchCluster, line: Line, replica: int) -> FollowerFetches:
    fetches = FollowerFetches("broker-2")
    topic_id = cluster.nodes[1].image.topics["orders"].topic_id
    epoch = cluster.nodes[2].broker_epoch
    asked = Fetch(
        replica, epoch, 50, 1, 1000, [FetchPartition(ORDERS, topic_id, 0, 1000, 0, None, 0)]
    )
    cluster.send(cluster.internal(1), line, fetches.encode(6, asked)[4:])
    return fetches


def test_a_fetch_after_the_handshake(cluster: DispatchCluster) -> None:
    line = shake_hands(cluster)
    assert (line.session.broker, line.closed, line.answers) == (2, None, [])
    fetches = follow(cluster, line, 2)
    cluster.run_until(lambda: bool(line.answers))
    [answer] = line.answers
    assert answer.frame is not None
    number, response = fetches.decode(answer.frame[4:])
    assert number == 6
    assert response.error is ErrorCode.NONE
    assert line.closed is None


def test_a_call_to_the_controller(cluster: DispatchCluster) -> None:
    line = shake_hands(cluster)
    assert cluster.controller() == 1
    say(cluster, line, CONTROLLER_CALL, encode_call(Forwarded(ListReassignmentsReceived(0))))
    cluster.run_until(lambda: bool(line.answers))
    [answer] = line.answers
    assert answer.frame is not None
    number, struct = decode_response(CONTROLLER_CALL, 0, answer.frame[4:])
    assert number == 5
    assert decode_call(struct["document"]) == ReassignmentsAnswer(ErrorCode.NONE, ())


def test_a_wrong_proof_closes_the_connection(cluster: DispatchCluster) -> None:
    line = Line()
    handshake = ConnectingHandshake(member(2), 1, address(1), b"n" * NONCE_BYTES)
    say(cluster, line, HELLO, handshake.hello())
    say(cluster, line, HELLO, json.dumps({"proof": "00" * 32}).encode())
    assert line.closed == (
        "failed handshake: wrong proof: the peer does not know the cluster's secret"
    )
    assert line.session.broker is None


def test_a_second_handshake_closes_the_connection(cluster: DispatchCluster) -> None:
    line = shake_hands(cluster)
    other = ConnectingHandshake(member(3), 1, address(1), b"n" * NONCE_BYTES)
    say(cluster, line, HELLO, other.hello())
    assert line.closed is not None
    assert (line.session.broker, line.answers) == (2, [])


def test_incomplete_handshake_allows_no_request(cluster: DispatchCluster) -> None:
    line = Line()
    handshake = ConnectingHandshake(member(2), 1, address(1), b"n" * NONCE_BYTES)
    say(cluster, line, HELLO, handshake.hello())
    line.answers.clear()
    follow(cluster, line, 2)
    assert line.closed == "request before the handshake"
    assert line.answers == []


def test_the_hello_that_carried_the_secret_is_refused(cluster: DispatchCluster) -> None:
    line = Line()
    frame = encode_request(HELLO, HELLO_VERSION, 5, "broker-2", {"document": b"{}"})[4:]
    old = frame[:2] + b"\0\0" + frame[4:]
    cluster.send(cluster.internal(1), line, old)
    assert line.closed == "failed handshake: handshake version 0 instead of 1"


def test_no_response_before_the_handshake(cluster: DispatchCluster) -> None:
    for say_it in (
        lambda line: follow(cluster, line, 2),
        lambda line: say(cluster, line, CONTROLLER_CALL, encode_call(ListReassignmentsReceived(0))),
    ):
        line = Line()
        say_it(line)
        assert line.closed is not None
        assert line.answers == []


def test_fetch_for_another_replica_closes_the_connection(cluster: DispatchCluster) -> None:
    line = shake_hands(cluster)
    follow(cluster, line, 3)
    assert line.closed is not None
    assert "3" in line.closed


@pytest.mark.parametrize(
    ("api_key", "document"),
    [
        (HELLO, b"{"),
        (HELLO, b"[]"),
        (CONTROLLER_CALL, b"{"),
        (CONTROLLER_CALL, b'{"class": "Node", "value": {}}'),
        (SET_FAULTS, b"{}"),
        (32000, b"{}"),
    ],
)
def test_malformed_internal_requests_close_the_connection(
    cluster: DispatchCluster, api_key: int, document: bytes
) -> None:
    line = shake_hands(cluster)
    say(cluster, line, api_key, document)
    assert line.closed
    assert line.answers == []


def test_fault_switches_where_they_are_allowed(cluster: DispatchCluster) -> None:
    cluster.set_faults = lambda document: {"set": document}
    line = shake_hands(cluster)
    say(cluster, line, SET_FAULTS, b'{"isolated": true}')
    [answer] = line.answers
    assert answer.frame is not None
    _, struct = decode_response(SET_FAULTS, 0, answer.frame[4:])
    assert json.loads(struct["document"]) == {"set": {"isolated": True}}


@pytest.mark.parametrize(
    "document",
    [b"{}", b"[" * 200_000, b"[" * 4000, b"[]", b"{"],
    ids=["empty", "too large", "nested JSON", "JSON of another kind", "broken JSON"],
)
def test_malformed_hello_closes_the_connection(cluster: DispatchCluster, document: bytes) -> None:
    line = Line()
    say(cluster, line, HELLO, document)
    assert line.closed is not None
    assert line.session.broker is None


def test_markers_of_another_broker(cluster: DispatchCluster) -> None:
    line = shake_hands(cluster)
    marker = TxnMarker(7, 0, True, 0, (ORDERS, TopicPartition("nowhere", 0)), 2)
    frame = encode_transaction_call(6, "broker-2", WriteTxnMarkers((marker,)))[4:]
    cluster.send(cluster.internal(1), line, frame)
    cluster.run_until(lambda: bool(line.answers))
    [answer] = line.answers
    assert answer.frame is not None
    [(producer_id, results)] = decode_markers_response(answer.frame[4:]).markers
    assert producer_id == 7
    assert list(results.values()) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert line.closed is None


def test_partitions_for_a_transaction_of_another_broker(cluster: DispatchCluster) -> None:
    line = shake_hands(cluster)
    received: list[AddPartitionsToTxn] = []

    def serve(peer: Any, number: int, request: AddPartitionsToTxn) -> None:
        received.append(request)
        results = tuple(dict.fromkeys(t.partitions, ErrorCode.NONE) for t in request.transactions)
        peer.respond(number, AddPartitionsToTxnResponse(results))

    cluster.nodes[1]._services[AddPartitionsToTxn] = serve
    asked = AddPartitionsToTxn((TxnPartitions("id", 7, 0, False, (ORDERS,)),))
    frame = encode_transaction_call(6, "broker-2", asked)[4:]
    cluster.send(cluster.internal(1), line, frame)
    [answer] = line.answers
    assert answer.frame is not None
    assert received == [asked]
    assert decode_partitions_response(answer.frame[4:]).results == ({ORDERS: ErrorCode.NONE},)


@pytest.mark.parametrize(("key", "version"), [(WRITE_TXN_MARKERS, 1), (ADD_PARTITIONS_TO_TXN, 3)])
def test_other_versions_of_requests_for_transactions_are_refused(
    cluster: DispatchCluster, key: int, version: int
) -> None:
    line = shake_hands(cluster)
    cluster.send(cluster.internal(1), line, encode_request(key, version, 6, "broker-2", {})[4:])
    assert line.closed is not None
