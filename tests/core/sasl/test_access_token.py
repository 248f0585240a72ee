"""The claims of access tokens: which tokens a broker accepts."""

import json
from base64 import urlsafe_b64encode
from typing import Any

import pytest

from tidelog.core.sasl.access_token import (
    AcceptedToken,
    TokenRules,
    UnsecuredRules,
    check_signed,
    check_unsecured,
    claims_of,
    expiry_of,
    split_token,
)
from tidelog.core.sasl.mechanism import SaslFailed

NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1000 + 999
RULES = TokenRules(("kafka", "other"), "https://issuer.example")
RIGHT = {
    "sub": "alice",
    "iat": NOW_S,
    "exp": NOW_S + 60,
    "aud": "kafka",
    "iss": "https://issuer.example",
}
INVALID = '{"status":"invalid_token"}'


def part(document: Any) -> str:
    return urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")


def unsecured(claims: Any, header: Any = None, signature: str = "") -> str:
    return f"{part(header or {'alg': 'none'})}.{part(claims)}.{signature}"


def signed(rules: TokenRules = RULES, **changed: Any) -> AcceptedToken:
    claims = {**RIGHT, **changed}
    return check_signed({k: v for k, v in claims.items() if v is not ...}, rules, NOW_MS)


def test_a_right_token_names_its_user_and_its_end() -> None:
    assert signed() == AcceptedToken("alice", (NOW_S + 60) * 1000)


@pytest.mark.parametrize(
    "changed",
    [
        {"sub": " alice "},
        {"sub": "\t\0alice\x1f\r\n"},
        {"aud": ["nobody", "other"]},
        {"exp": NOW_S + 60.5},
        {"exp": NOW_S - 29, "iat": NOW_S - 60},  # within the difference of the clocks
        {"iat": NOW_S + 50},
        {"nbf": NOW_S + 30},
        {"scope": "read write"},
        {"scope": ["read", "write"]},
        {"scope": 7},
        {"jti": "id"},
    ],
)
def test_tokens_that_are_accepted(changed: dict[str, Any]) -> None:
    assert signed(**changed).user == "alice"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"exp": NOW_S - 30}, "expired 30 seconds ago"),
        ({"exp": ...}, "no claim exp"),
        ({"exp": "soon"}, "claim exp is not a time"),
        ({"exp": True}, "claim exp is not a time"),
        ({"exp": float("inf")}, "claim exp is not a time"),
        ({"exp": 10**400}, "claim exp is not a time"),
        ({"exp": -1}, "negative"),
        ({"iat": ...}, "no claim iat"),
        ({"iat": -1}, "negative"),
        ({"iat": NOW_S + 61}, "expires before it is valid"),
        ({"nbf": NOW_S + 61}, "expires before it is valid"),
        ({"nbf": NOW_S + 31}, "not valid for another 31 seconds"),
        ({"iss": "https://issuer.example/"}, "issuer is"),
        ({"iss": ...}, "issuer is None"),
        ({"iss": 5}, "claim iss is not a text"),
        ({"aud": "Kafka"}, "audience is"),
        ({"aud": ...}, "no audience"),
        ({"aud": []}, "audience is"),
        ({"aud": [5]}, "nor a list of texts"),
        ({"aud": {"kafka": 1}}, "nor a list of texts"),
        ({"sub": ...}, "names the user"),
        ({"sub": ""}, "names the user"),
        ({"sub": "  "}, "names the user"),
        ({"sub": "\0\t\n"}, "names the user"),
        ({"sub": ["alice"]}, "claim sub is not a text"),
        ({"jti": 5}, "claim jti is not a text"),
        ({"scope": ""}, "scope"),
        ({"scope": ["read", " read "]}, "scope"),
        ({"scope": [5]}, "scope"),
    ],
)
def test_tokens_that_are_refused(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(SaslFailed, match=reason) as failed:
        signed(**changed)
    assert failed.value.public == INVALID
    assert failed.value.challenge == INVALID.encode()


@pytest.mark.parametrize("blank", ["\x85", "\xa0", "\u2003", "\u3000"])
def test_a_name_keeps_the_blanks_that_kafka_keeps(blank: str) -> None:
    """Else two names of the identity provider would be one user here."""
    for name in (f"{blank}alice", f"alice{blank}", blank):
        assert signed(sub=f" {name} ").user == name
        claims = {"sub": name, "exp": NOW_S + 60}
        assert check_unsecured(unsecured(claims), UnsecuredRules(), NOW_MS).user == name
    scopes = ["read", f"read{blank}"]
    assert signed(scope=scopes).user == "alice"
    token = unsecured({"sub": "alice", "exp": NOW_S + 60, "scope": scopes[1]})
    with pytest.raises(SaslFailed, match="lacks the scope"):
        check_unsecured(token, UnsecuredRules(required_scope=("read",)), NOW_MS)


def test_another_claim_can_name_the_user() -> None:
    assert signed(RULES._replace(subject_claim="mail"), mail="a@b", sub="x").user == "a@b"


def test_without_an_expected_audience_a_token_must_have_none() -> None:
    rules = TokenRules()
    assert signed(rules, aud=..., iss="any").user == "alice"
    with pytest.raises(SaslFailed, match=r"expected\.audience"):
        signed(rules)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a",
        "a.b",
        "a.b.c.d",
        "..",
        "e30..x",
        ".e30.x",
        "!!.e30.x",
        "e30=.e30.x",
        f"{part([])}.e30.x",
        f"{part({'alg': 'RS256', 'crit': ['b64']})}.e30.x",
        f"{'a' * 9000}.e30.x",
        f"{urlsafe_b64encode(b'[' * 6000).decode()}.e30.x",
        f"{urlsafe_b64encode(b'{' + bytes([255]) + b'}').decode().rstrip('=')}.e30.x",
    ],
)
def test_texts_that_are_no_tokens(token: str) -> None:
    with pytest.raises(SaslFailed) as failed:
        split_token(token)
    assert failed.value.public == INVALID


@pytest.mark.parametrize("payload", [b"", b"[]", b"null", b"[" * 100_000, b"\xff"])
def test_payloads_that_are_no_claims(payload: bytes) -> None:
    with pytest.raises(SaslFailed):
        claims_of(payload)


@pytest.mark.parametrize(
    "document",
    [
        '{"sub":"alice","sub":"bob"}',
        '{"sub":"alice","sub":"alice"}',
        '{"sub":"alice","s\\u0075b":"bob"}',
        '{"sub":"alice","realm":[{"role":"reader","role":"admin"}]}',
    ],
)
def test_a_name_that_occurs_twice_is_refused(document: str) -> None:
    """The identity provider and a broker could each read another one of the values."""
    with pytest.raises(SaslFailed, match="twice") as failed:
        claims_of(document.encode())
    assert failed.value.public == INVALID
    header = urlsafe_b64encode(document.encode()).decode().rstrip("=")
    with pytest.raises(SaslFailed, match="the token's header has"):
        split_token(f"{header}.e30.x")


def test_an_own_token_tells_when_it_expires() -> None:
    assert expiry_of(unsecured({"exp": NOW_S + 0.5}, {"alg": "RS256"}, "x")) == NOW_S * 1000 + 500
    with pytest.raises(SaslFailed, match="no claim exp"):
        expiry_of(unsecured({}, {"alg": "RS256"}, "x"))


# -- without signature ---------------------------------------------------------------------


def test_a_token_without_signature() -> None:
    claims = {"sub": "alice", "exp": NOW_S + 60}
    accepted = check_unsecured(unsecured(claims), UnsecuredRules(), NOW_MS)
    assert accepted == AcceptedToken("alice", (NOW_S + 60) * 1000)


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"sub": "alice"}, "no claim exp"),
        ({"exp": NOW_S + 60}, "names the user"),
        ({"sub": "alice", "exp": NOW_S}, "expired"),
        ({"sub": "alice", "exp": NOW_S + 60, "iat": NOW_S + 2}, "in the future"),
        ({"sub": "alice", "exp": NOW_S + 2, "iat": NOW_S + 2}, "in the future"),
    ],
)
def test_claims_without_signature_that_are_refused(claims: Any, reason: str) -> None:
    with pytest.raises(SaslFailed, match=reason):
        check_unsecured(unsecured(claims), UnsecuredRules(), NOW_MS)


def test_without_signature_the_clocks_may_differ() -> None:
    rules = UnsecuredRules(skew_ms=3000)
    claims = {"sub": "alice", "exp": NOW_S, "iat": NOW_S - 5}
    assert check_unsecured(unsecured(claims), rules, NOW_MS).user == "alice"
    with pytest.raises(SaslFailed, match="expires before it was issued"):
        check_unsecured(unsecured({**claims, "iat": NOW_S}), rules, NOW_MS)


def test_a_signed_token_is_refused_where_unsigned_ones_are_accepted() -> None:
    claims = {"sub": "alice", "exp": NOW_S + 60}
    for token in (unsecured(claims, {"alg": "RS256"}), unsecured(claims, None, "c2ln")):
        with pytest.raises(SaslFailed, match="without signature only"):
            check_unsecured(token, UnsecuredRules(), NOW_MS)


def test_a_required_scope() -> None:
    rules = UnsecuredRules(required_scope=("read", "write"))
    claims = {"sub": "alice", "exp": NOW_S + 60}
    for scope in (["write", "read", "more"], ["read", "write"]):
        token = unsecured({**claims, "scope": scope})
        assert check_unsecured(token, rules, NOW_MS).user == "alice"
    lacking: Any
    for lacking in ("read", "read write", [], 5, None):
        with pytest.raises(SaslFailed, match="lacks the scope") as failed:
            check_unsecured(unsecured({**claims, "scope": lacking}), rules, NOW_MS)
        assert failed.value.public == '{"status":"insufficient_scope", "scope":"[read, write]"}'
