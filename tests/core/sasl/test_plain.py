"""PLAIN: one token with user name and password."""

import pytest

from tidelog.core.sasl.mechanism import SaslFailed
from tidelog.core.sasl.plain import PlainClient, PlainServer, PlainUsers

USERS = PlainUsers({"alice": "wonderland", "名前": "密码"})


@pytest.mark.parametrize(("user", "password"), [("alice", "wonderland"), ("名前", "密码")])
def test_a_password_is_accepted(user: str, password: str) -> None:
    server, client = PlainServer(USERS), PlainClient(user, password)
    assert client.respond(server.respond(client.first())) is None
    assert client.complete
    assert server.user == user


def test_a_user_may_name_itself_to_act_as() -> None:
    server = PlainServer(USERS)
    assert server.respond(b"alice\0alice\0wonderland") == b""
    assert server.user == "alice"


@pytest.mark.parametrize(
    ("token", "public"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0wonderland", "Authentication failed: Invalid username or password"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0\0wonderland", "Authentication failed: username not specified"),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0alice\0won\0der\0land", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\xff\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (
            b"admin\0alice\0wonderland",
            "Authentication failed: Client requested an authorization id that is different"
            " from username",
        ),
    ],
)
def test_refusals_have_the_texts_of_kafka_and_no_password(token: bytes, public: str) -> None:
    server = PlainServer(USERS)
    with pytest.raises(SaslFailed) as failed:
        server.respond(token)
    assert failed.value.public == public
    assert server.user is None
    assert "wonderland" not in str(failed.value)
    assert "wrong" not in str(failed.value).replace("wrong password", "")


def test_users_keep_no_readable_password() -> None:
    assert b"wonderland" not in b"".join(USERS._digests.values())
