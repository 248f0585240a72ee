"""One connection: versions, time-outs, and errors that say what to do."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from fake_broker import HANG_UP, METADATA, PATIENCE_S, SILENCE, FakeBroker, fake_brokers

from tidelog.shell.client.client_errors import (
    BrokerError,
    CannotConnect,
    Disconnected,
    NoAnswer,
    NotKafka,
    NotOffered,
    Unresolved,
)
from tidelog.shell.client.connection import KafkaConnection, format_address

DESCRIBE_STATE = 32000
API_VERSIONS = 18


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with fake_brokers(1) as (one,):
        one.tell_metadata([one], {"orders": [1]})
        yield one


def connect(broker: FakeBroker, timeout_s: float = PATIENCE_S) -> KafkaConnection:
    return KafkaConnection(broker.host, broker.port, timeout_s=timeout_s)


def test_the_newest_common_version_is_used(broker: FakeBroker) -> None:
    broker.offered[METADATA] = (0, 99)
    with connect(broker) as connection:
        assert connection.call(METADATA, {"topics": None})["cluster_id"] == "fake"
        connection.call(METADATA, {"topics": None}, max_version=5)
    assert broker.versions(METADATA) == [13, 5]
    assert broker.versions(API_VERSIONS) == [3], "asked once"


def test_an_older_broker_gets_versions_that_it_supports(broker: FakeBroker) -> None:
    """Kafka 2.1 has ApiVersions up to 2, and responds to a newer one in version 0."""
    broker.newest_api_versions = 2
    broker.offered[METADATA] = (0, 7)
    with connect(broker) as connection:
        connection.call(METADATA, {"topics": None})
    assert broker.versions(API_VERSIONS) == [3, 0]
    assert broker.versions(METADATA) == [7]


def test_an_api_that_is_not_offered_is_refused_before_it_is_sent(broker: FakeBroker) -> None:
    del broker.offered[METADATA]
    broker.offered[0] = (90, 99)
    with connect(broker) as connection:
        assert not connection.offers(METADATA)
        with pytest.raises(NotOffered, match="does not offer Metadata: the broker does not"):
            connection.call(METADATA, {"topics": None})
        with pytest.raises(
            NotOffered, match="the broker has versions 90 to 99, this client 3 to 13"
        ):
            connection.version(0)
    assert broker.requests(METADATA) == []


def test_ipv6(broker: FakeBroker) -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        with fake_brokers(1, "::1") as (one,):
            one.tell_metadata([one], {})
            with connect(one) as connection:
                assert connection.address == f"[::1]:{one.port}"
                connection.call(METADATA, {"topics": None})
    except OSError:
        pytest.skip("no IPv6 here")


def test_a_name_with_two_addresses_is_tried_at_both(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`localhost` is ::1 and 127.0.0.1; the broker may listen on only one of them."""
    unused = socket.socket()  # the port is taken, and nothing listens there
    unused.bind(("127.0.0.1", 0))
    refused = unused.getsockname()
    kind = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda *_, **__: [(*kind, refused), (*kind, ("127.0.0.1", broker.port))],
    )
    with unused, KafkaConnection("localhost", broker.port) as connection:
        connection.call(METADATA, {"topics": None})


# -- errors ----------------------------------------------------------------------------------


def test_connecting_to_a_port_without_listener_fails() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        check_refused(unused.getsockname()[1])


def check_refused(port: int) -> None:
    with pytest.raises(CannotConnect) as caught:
        KafkaConnection("127.0.0.1", port)
    assert str(caught.value) == (
        f"can't connect to 127.0.0.1:{port}: connection refused;"
        " is the cluster up? try tidelog status"
    )
    with pytest.raises(CannotConnect, match=r"this is the address that the broker advertises"):
        KafkaConnection("127.0.0.1", port, advertised=True)


def test_an_unknown_host_name_is_an_error() -> None:
    with pytest.raises(CannotConnect, match=r"nowhere\.invalid:9092: unknown host"):
        KafkaConnection("nowhere.invalid", 9092)


def test_no_answer_within_the_time(broker: FakeBroker) -> None:
    broker.answers[METADATA] = lambda *_: SILENCE
    with connect(broker) as connection:
        began = time.monotonic()
        with pytest.raises(NoAnswer, match=r"did not answer Metadata within 0\.2 s") as caught:
            connection.call(METADATA, {"topics": None}, timeout_s=0.2)
        assert time.monotonic() - began < 60
        assert isinstance(caught.value, Unresolved)
        assert connection.closed, "a late answer must not be taken for another's"
        with pytest.raises(CannotConnect, match="the connection was closed"):
            connection.call(METADATA, {"topics": None})


def test_the_time_is_for_the_whole_answer() -> None:
    """A broker that sends single bytes slowly does not extend the time limit."""
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def trickle() -> None:
        peer, _ = listener.accept()
        with peer, suppress(OSError):  # the client closes the connection first
            peer.recv(1000)
            peer.sendall(b"\0\0\4\0")
            while not stop.wait(0.05):
                peer.sendall(b"x")

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        port = listener.getsockname()[1]
        with KafkaConnection("127.0.0.1", port, timeout_s=0.4) as connection:
            began = time.monotonic()
            with pytest.raises(NoAnswer):
                connection.call(METADATA, {})
            assert time.monotonic() - began < 60
            stop.set()
    finally:
        stop.set()
        thread.join()
        listener.close()


def test_an_api_versions_request_that_times_out_had_no_effect() -> None:
    told = str(NoAnswer("localhost:9092", "ApiVersions", 1 / 3))
    assert told == (
        "localhost:9092 did not answer ApiVersions within 0.33 s; the broker may hang;"
        " try tidelog status"
    )


def test_a_closed_connection_is_reported_as_disconnected(broker: FakeBroker) -> None:
    broker.answers[METADATA] = lambda *_: HANG_UP
    with connect(broker) as connection, pytest.raises(Disconnected) as caught:
        connection.call(METADATA, {"topics": None})
    assert str(caught.value) == (
        f"lost the connection to {broker.address} before the response to Metadata:"
        " the connection was closed; the request may have been carried out"
    )


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x00\x00\x08\x7f\x00\x00\x00abcd", b"\0\0\0\1x"],
    ids=["http", "another's answer", "too short"],
)
def test_a_peer_that_does_not_speak_kafka_is_named(broker: FakeBroker, answer: bytes) -> None:
    broker.answers[METADATA] = lambda *_: answer
    with connect(broker) as connection, pytest.raises(NotKafka, match=r"plaintext listener\?"):
        connection.call(METADATA, {"topics": None})


def test_an_answer_that_is_cut_short_is_named(broker: FakeBroker) -> None:
    broker.answers[METADATA] = lambda *_: b"\0\0\0\x06\0\0\0\x02\0\0"
    with connect(broker) as connection, pytest.raises(NotKafka, match="Metadata version"):
        connection.call(METADATA, {"topics": None})


def test_a_broker_that_refuses_api_versions_is_an_error(broker: FakeBroker) -> None:
    broker.newest_api_versions = -1
    with connect(broker) as connection, pytest.raises(BrokerError, match="UNSUPPORTED_VERSION"):
        connection.call(METADATA, {"topics": None})


# -- our own APIs ----------------------------------------------------------------------------


def test_private_calls_are_json_each_way(broker: FakeBroker) -> None:
    def describe(_version: int, request: dict[str, bytes]) -> dict[str, bytes]:
        question = json.loads(bytes(request["document"]))
        return {"document": json.dumps({"asked": question}).encode()}

    broker.answers[DESCRIBE_STATE] = describe
    with connect(broker) as connection:
        assert connection.call_private(DESCRIBE_STATE, {"topic": "t"}) == {"asked": {"topic": "t"}}
    assert broker.versions(API_VERSIONS) == [], "never advertised, so not asked for"


def test_kafka_disconnects_on_private_calls(broker: FakeBroker) -> None:
    with connect(broker) as connection, pytest.raises(NotOffered, match="not a Tidelog broker"):
        connection.call_private(DESCRIBE_STATE, {})


def test_addresses_are_formatted_as_host_and_port() -> None:
    assert format_address("localhost", 9092) == "localhost:9092"
    assert format_address("::1", 9092) == "[::1]:9092"
