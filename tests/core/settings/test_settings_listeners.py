"""Listeners in the format of Kafka's files."""

import pytest

from tidelog.core.settings.broker_settings import InvalidSettings, settings_of
from tidelog.core.settings.listeners import (
    Listener,
    client_listener,
    parse_listener,
    parse_protocols,
)
from tidelog.core.settings.setting import WrongValue

NODE = {"node.id": "1"}


@pytest.mark.parametrize(
    ("text", "listener"),
    [
        ("PLAINTEXT://localhost:9092", Listener("PLAINTEXT", "localhost", 9092)),
        ("plaintext://:0", Listener("PLAINTEXT", "", 0)),
        ("CLIENT://[::1]:65535", Listener("CLIENT", "::1", 65535)),
    ],
)
def test_a_listener(text: str, listener: Listener) -> None:
    assert parse_listener(text) == listener
    assert parse_listener(str(listener)) == listener


@pytest.mark.parametrize(
    "text",
    [
        "localhost:9092",
        "://a:1",
        "A://a",
        "A://a:",
        "A://a:x",
        "A://a:65536",
        "A://::1:9",
        "A://b/c:9",
    ],
)
def test_invalid_listeners_are_refused(text: str) -> None:
    with pytest.raises(WrongValue):
        parse_listener(text)


def test_kafkas_own_file_has_one_listener_for_clients() -> None:
    found = client_listener(
        ("PLAINTEXT://:9092", "CONTROLLER://:9093"),
        ("CONTROLLER",),
        ("CONTROLLER:PLAINTEXT", "PLAINTEXT:PLAINTEXT", "SSL:SSL"),
    )
    assert found == Listener("PLAINTEXT", "", 9092)


def test_several_client_listeners_are_refused() -> None:
    with pytest.raises(WrongValue, match="IN, OUT"):
        client_listener(("IN://:1", "OUT://:2"), (), ())


@pytest.mark.parametrize("protocols", [("OUT:SSL",), ("OUT:SASL_PLAINTEXT",)])
def test_secured_listeners_are_refused(protocols: tuple[str, ...]) -> None:
    with pytest.raises(WrongValue, match="PLAINTEXT so far"):
        client_listener(("OUT://:2",), (), protocols)
    assert client_listener(("OUT://:2",), (), ("out:plaintext",)).name == "OUT"


def test_protocols_must_be_kafkas() -> None:
    with pytest.raises(WrongValue, match="NAME:PROTOCOL"):
        parse_protocols(("A:TELNET",))


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        ({}, ("localhost", 40001)),
        ({"listeners": "PLAINTEXT://0.0.0.0:0"}, ("box", 40001)),
        ({"listeners": "PLAINTEXT://127.0.0.1:0"}, ("127.0.0.1", 40001)),
        ({"advertised.listeners": "PLAINTEXT://kafka.example:29092"}, ("kafka.example", 29092)),
        ({"advertised.listeners": "PLAINTEXT://kafka.example:0"}, ("kafka.example", 40001)),
        ({"advertised.listeners": "C://:1,PLAINTEXT://kafka.example:2"}, ("kafka.example", 2)),
    ],
)
def test_advertised_address(texts: dict[str, str], told: tuple[str, int]) -> None:
    assert settings_of({**NODE, **texts}).advertised(40001, "box")[1:] == told


def test_the_listener_for_brokers() -> None:
    assert settings_of(NODE).internal_listener == Listener("INTERNAL", "127.0.0.1", 0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("OTHER://kafka.example:9092", "must name the listener PLAINTEXT"),
        ("PLAINTEXT://0.0.0.0:9092", "must have a host that clients can reach"),
    ],
)
def test_invalid_advertised_listeners_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidSettings, match=reason):
        settings_of({**NODE, "advertised.listeners": text})
