"""Listeners in the format of Kafka's files."""

import pytest

from tidelog.core.settings.broker_settings import InvalidSettings, settings_of
from tidelog.core.settings.listeners import (
    PROTOCOLS,
    Listener,
    parse_listener,
    parse_protocols,
    protocol_of,
    split_listeners,
    uses_sasl,
    uses_tls,
    without_sasl,
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
    found = split_listeners(
        ("PLAINTEXT://:9092", "CONTROLLER://:9093"),
        ("CONTROLLER",),
        ("CONTROLLER:PLAINTEXT", "PLAINTEXT:PLAINTEXT", "SSL:SSL"),
        "PLAINTEXT",
    )
    assert found == ((Listener("PLAINTEXT", "", 9092),), None)


def test_one_of_several_listeners_is_for_brokers() -> None:
    texts = ("IN://10.0.0.1:1", "OUT://[::1]:2", "FAR://:3")
    clients, between_brokers = split_listeners(texts, (), (), "in")
    assert [one.name for one in clients] == ["OUT", "FAR"]
    assert between_brokers == Listener("IN", "10.0.0.1", 1)
    assert split_listeners(texts, (), (), None).between_brokers is None


@pytest.mark.parametrize(
    ("texts", "inter_broker", "reason"),
    [
        (("A://:1", "a://:2"), None, "two listeners named A"),
        (("A://h:1", "B://h:1"), None, "two listeners on port 1"),
        (("A://:1", "B://:2"), "C", "inter.broker.listener.name=C must be one of A, B"),
        (("A://:1", "X://:2"), "X", "inter.broker.listener.name=X must be one of A"),
        (("X://:2",), None, "has no listener for clients"),
    ],
)
def test_invalid_lists_of_listeners_are_refused(
    texts: tuple[str, ...], inter_broker: str | None, reason: str
) -> None:
    with pytest.raises(WrongValue, match=reason):
        split_listeners(texts, ("X",), (), inter_broker)


def test_one_port_on_two_addresses_is_possible() -> None:
    assert len(split_listeners(("A://127.0.0.1:1", "B://[::1]:1"), (), (), None).clients) == 2


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_listener_may_use_each_of_kafkas_protocols(protocol: str) -> None:
    protocols = (f"out:{protocol.lower()}",)
    assert split_listeners(("OUT://:2",), (), protocols, None).clients[0].name == "OUT"
    assert protocol_of("OUT", protocols) == protocol
    assert uses_tls(protocol) == protocol.endswith("SSL")
    assert uses_sasl(protocol) == protocol.startswith("SASL")
    assert without_sasl(protocol) == protocol.removeprefix("SASL_")


def test_a_listener_that_the_map_does_not_name_is_refused() -> None:
    """With a misspelt name in the map it would silently have no TLS."""
    with pytest.raises(WrongValue, match="OUT is not in listener"):
        split_listeners(("SSL://:1", "OUT://:2"), (), ("OTU:SSL",), None)


def test_protocols_must_be_kafkas() -> None:
    with pytest.raises(WrongValue, match="NAME:PROTOCOL"):
        parse_protocols(("A:TELNET",))


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        ({}, ("localhost", 40001)),
        ({"listeners": "PLAINTEXT://:0"}, ("box", 40001)),
        ({"listeners": "PLAINTEXT://127.0.0.1:0"}, ("127.0.0.1", 40001)),
        ({"advertised.listeners": "PLAINTEXT://kafka.example:29092"}, ("kafka.example", 29092)),
        ({"advertised.listeners": "PLAINTEXT://kafka.example:0"}, ("kafka.example", 40001)),
        ({"advertised.listeners": "C://:1,PLAINTEXT://kafka.example:2"}, ("kafka.example", 2)),
    ],
)
def test_advertised_address(texts: dict[str, str], told: tuple[str, int]) -> None:
    settings = settings_of({**NODE, **texts})
    assert settings.advertised(settings.listener, 40001, "box")[1:] == told


def test_each_listener_has_its_own_advertised_address() -> None:
    settings = settings_of(
        {
            **NODE,
            "listeners": "IN://[::]:1,OUT://0.0.0.0:2",
            "advertised.listeners": "OUT://kafka.example:29092,IN://10.0.0.1:0",
        }
    )
    found = [settings.advertised(one, 7, "box") for one in settings.listeners.clients]
    assert found == [("IN", "10.0.0.1", 7), ("OUT", "kafka.example", 29092)]


@pytest.mark.parametrize(
    ("texts", "bound", "told"),
    [
        pytest.param({}, "127.0.0.1", "127.0.0.1", id="default"),
        pytest.param({"listeners": "A://[::1]:1"}, "127.0.0.1", "127.0.0.1", id="loopback"),
        pytest.param({"listeners": "A://10.0.0.1:1"}, "10.0.0.1", "10.0.0.1", id="address"),
        pytest.param({"listeners": "A://:1"}, "", "box", id="everywhere"),
        pytest.param(
            {"listeners": "A://0.0.0.0:1", "advertised.listeners": "A://k.example:1"},
            "0.0.0.0",
            "k.example",
            id="everywhere, advertised",
        ),
        pytest.param(
            {"listeners": "A://:1", "advertised.listeners": "A://localhost:1"},
            "127.0.0.1",
            "127.0.0.1",
            id="advertised on this machine only",
        ),
        pytest.param(
            {"listeners": "A://10.0.0.1:1", "tidelog.internal.listener": "10.9.0.1:5"},
            "10.9.0.1",
            "10.9.0.1",
            id="own address",
        ),
        pytest.param(
            {"listeners": "A://10.0.0.1:1", "tidelog.internal.listener": "0.0.0.0:5"},
            "0.0.0.0",
            "10.0.0.1",
            id="own port everywhere",
        ),
    ],
)
def test_the_listener_for_brokers(texts: dict[str, str], bound: str, told: str) -> None:
    settings = settings_of({**NODE, **texts})
    listener = settings.internal_listener
    assert (listener.name, listener.host) == ("tidelog.internal", bound)
    assert settings.advertised_internal(bound, 7, "box") == (told, 7)


@pytest.mark.parametrize(
    ("advertised", "bound", "told"),
    [
        ("IN://k.internal:900,OUT://k.example:2", "10.0.0.1", ("k.internal", 900)),
        ("IN://localhost:0,OUT://k.example:2", "127.0.0.1", ("127.0.0.1", 7)),
        ("IN://localhost:0,OUT://k.example:2", "0.0.0.0", ("127.0.0.1", 7)),
    ],
)
def test_inter_broker_listener_name_chooses_the_listener_for_brokers(
    advertised: str, bound: str, told: tuple[str, int]
) -> None:
    settings = settings_of(
        {
            **NODE,
            "listeners": "IN://10.0.0.1:1,OUT://0.0.0.0:2",
            "inter.broker.listener.name": "IN",
            "advertised.listeners": advertised,
        }
    )
    assert settings.listener.name == "OUT"
    assert settings.internal_listener == Listener("IN", "10.0.0.1", 1)
    assert settings.advertised_internal(bound, 7, "box") == told


TWO = {"listeners": "IN://10.0.0.1:1,OUT://10.0.0.1:2"}


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({"advertised.listeners": "OTHER://k:1"}, "must name the listener PLAINTEXT"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "must have a host that clients can"),
        ({**TWO, "advertised.listeners": "IN://k:1"}, "must name the listener OUT: add OUT://"),
        ({"listeners": "A://0.0.0.0:9"}, "set advertised.listeners to A://HOST:9"),
        ({"listeners": "A://[::]:0"}, "set advertised.listeners to A://HOST:PORT"),
        (
            {**TWO, "inter.broker.listener.name": "IN", "tidelog.internal.listener": "h:1"},
            "brokers use the listener IN; remove tidelog.internal.listener",
        ),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": ""},
            "remove security.inter.broker.protocol",
        ),
        (
            {
                **TWO,
                "inter.broker.listener.name": "IN",
                "security.inter.broker.protocol": "PLAINTEXT",
            },
            "remove security.inter.broker.protocol",
        ),
        ({"tidelog.internal.listener": "0.0.0.0:5"}, "that the other brokers can reach"),
    ],
)
def test_listeners_that_nobody_can_reach_are_refused(texts: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidSettings, match=reason) as raised:
        settings_of({**NODE, **texts})
    assert len(str(raised.value).splitlines()) == 1


def test_a_client_listener_named_internal_keeps_its_own_protection() -> None:
    """The name of the listener for brokers is not one that users can give."""
    settings = settings_of(
        {
            **NODE,
            "listeners": "EXTERNAL://10.0.0.1:1,INTERNAL://10.0.0.1:0",
            "listener.security.protocol.map": "EXTERNAL:SSL,INTERNAL:SASL_SSL",
            "listener.name.internal.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": "broker.pem",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "ca.pem",
        }
    )
    own = settings.listeners.clients[1]
    assert settings.internal_listener.name != own.name
    assert settings.protocol(own) == "SASL_SSL"
    assert settings.protocol(own._replace(port=50123)) == "SASL_SSL", "the port that was free"
    assert settings.tls(own).client_auth == "required"
    assert settings.tls(settings.internal_listener).client_auth != "required"


RATE = "max.connection.creation.rate"


def test_a_listener_has_its_own_rate_of_new_connections() -> None:
    texts = {**TWO, **NODE, "inter.broker.listener.name": "IN", f"listener.name.out.{RATE}": "7"}
    settings = settings_of(texts)

    assert settings.connection_rate(settings.listener) == 7
    assert settings.connection_rate(settings.internal_listener) == 2**31 - 1


def test_a_rate_of_a_listener_that_does_not_exist_is_refused() -> None:
    texts = {**TWO, **NODE, "inter.broker.listener.name": "IN", f"listener.name.oout.{RATE}": "7"}

    with pytest.raises(InvalidSettings) as refused:
        settings_of(texts)

    assert f"did you mean listener.name.out.{RATE}" in str(refused.value)
