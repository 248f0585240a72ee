"""OAUTHBEARER: the messages of both sides."""

import pytest

from tidelog.core.sasl.access_token import AcceptedToken, refused
from tidelog.core.sasl.mechanism import SaslFailed
from tidelog.core.sasl.oauthbearer import (
    MESSAGE_MAX,
    OauthClient,
    OauthServer,
    check_extension,
)

INVALID = '{"status":"invalid_token"}'


def check(token: str) -> AcceptedToken:
    if token != "a.b.c":
        raise refused("the token is wrong")
    return AcceptedToken("al=i,ce", 5000)


@pytest.fixture
def server() -> OauthServer:
    return OauthServer(check, lambda: 4000)


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\1auth=Bearer a.b.c\1\1",
        b"n,,\1auth=bearer   a.b.c\1\1",
        b"n,a=al=3Di=2Cce,\1auth=BEARER a.b.c\1\1",
        b"n,,\1auth=Bearer wrong\1auth=Bearer a.b.c\1\1",
        b"n,,\1host=localhost\1auth=Bearer a.b.c\1traceId=1 2=3\1\1",
    ],
)
def test_a_right_token_is_accepted(server: OauthServer, message: bytes) -> None:
    assert server.respond(message) == b""
    assert server.user == "al=i,ce"
    assert server.remaining_ms() == 1000


def test_an_expired_token_within_the_clocks_difference_has_no_time_left() -> None:
    server = OauthServer(check, lambda: 6000)
    server.respond(b"n,,\1auth=Bearer a.b.c\1\1")
    assert server.remaining_ms() == 0


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\1",
        b"a.b.c",
        b"n,,\1\1",
        b"n,,\1auth=Bearer a.b.c\1",
        b"n,,auth=Bearer a.b.c\1\1",
        b"y,,\1auth=Bearer a.b.c\1\1",
        b"n,a=,\1auth=Bearer a.b.c\1\1",
        b"n,,\1auth=Bearer a.b.c\1\1\1",
        b"n,,\1auth=Bearer a.b.c\1x\1\1",
        b"n,,\1auth=Bearer a.b.c\1x=\1\1",
        b"n,,\1auth=Bearer a.b.c\1x1=y\1\1",
        b"n,,\1auth=Basic a.b.c\1\1",
        b"n,,\1auth=Bearer\1\1",
        b"n,,\1auth=Bearer a.b!c\1\1",
        b"n,,\1auth=Bearer a.b.c\xff\1\1",
        b"n,,\1other=Bearer a.b.c\1\1",
    ],
)
def test_an_invalid_message_fails_at_once(server: OauthServer, message: bytes) -> None:
    with pytest.raises(SaslFailed) as failed:
        server.respond(message)
    assert not failed.value.challenge
    assert server.user is None


def test_a_message_that_is_too_long_is_not_parsed(server: OauthServer) -> None:
    with pytest.raises(SaslFailed, match="exceeds the limit"):
        server.respond(b"n,,\1auth=Bearer a.b.c\1x=" + b"y" * MESSAGE_MAX + b"\1\1")
    assert server.user is None


def test_another_identity_fails(server: OauthServer) -> None:
    with pytest.raises(SaslFailed) as failed:
        server.respond(b"n,a=bob,\1auth=Bearer a.b.c\1\1")
    assert failed.value.public.endswith(
        "authorization id (bob) that is different from the token's principal name (al=i,ce)"
    )
    assert server.user is None


@pytest.mark.parametrize(
    ("second", "public"),
    [(b"\1", INVALID), (b"", ""), (b"n,,\1auth=Bearer a.b.c\1\1", "")],
)
def test_a_refused_token_fails_with_the_next_message(
    server: OauthServer, second: bytes, public: str
) -> None:
    with pytest.raises(SaslFailed) as first:
        server.respond(b"n,,\1auth=Bearer wrong\1\1")
    assert first.value.challenge == INVALID.encode()
    with pytest.raises(SaslFailed, match="the token is wrong") as failed:
        server.respond(second)
    assert not failed.value.challenge
    assert failed.value.public == public
    assert server.user is None


def test_a_client_sends_its_token_and_extensions(server: OauthServer) -> None:
    client = OauthClient("a.b.c", {"traceId": "7"})
    assert client.first() == b"n,,\1auth=Bearer a.b.c\1traceId=7\1\1"
    assert not client.complete
    assert client.respond(server.respond(client.first())) is None
    assert client.complete


def test_a_client_acknowledges_a_refusal() -> None:
    client = OauthClient("a.b.c", {})
    assert client.respond(INVALID.encode()) == b"\1"
    assert not client.complete
    with pytest.raises(SaslFailed, match="invalid_token"):
        client.respond(b"")


@pytest.mark.parametrize(
    ("name", "value", "is_right"),
    [
        ("traceId", "a b", True),
        ("auth", "x", False),
        ("trace1", "x", False),
        ("traceId", "", False),
        ("traceId", "a\1b", False),
    ],
)
def test_extensions_that_can_be_sent(name: str, value: str, is_right: bool) -> None:
    assert (check_extension(name, value) is None) == is_right
