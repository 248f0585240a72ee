"""The check of a listener's tokens: keys that are read again, and what holds up the loop."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from issuer import (
    AUDIENCE,
    ISSUER,
    Provider,
    jwks,
    key_of,
    public_jwk,
    running_provider,
    token,
    unsecured,
)
from no_threads import no_new_threads

from tidelog.core.sasl.access_token import TokenRules, UnsecuredRules
from tidelog.core.sasl.mechanism import SaslFailed
from tidelog.core.settings.oauth import OauthSettings
from tidelog.core.settings.setting import WrongValue
from tidelog.core.settings.tls import TlsSettings
from tidelog.shell.clock import Clock
from tidelog.shell.net.event_loop import EventLoop
from tidelog.shell.oauth.token_check import ListenerTokens

TURNS_MAX = 20_000
WITHOUT_USE = [
    jwks(),
    jwks({"kty": "oct", "kid": "first", "k": "c2VjcmV0"}),
    jwks({"kty": "EC", "kid": "first", "crv": "secp256k1", "x": "AA", "y": "AA"}),
]
"""Sets without a key that can check a signature."""
Begin: TypeAlias = "Callable[[OauthSettings], Stage]"


def settings(url: str, **changed: Any) -> OauthSettings:
    usual = OauthSettings(url, 3_600_000, 20, 50, TokenRules((AUDIENCE,), ISSUER), TlsSettings())
    return usual._replace(**changed)


class Stage:
    """A loop with the check of one listener."""

    def __init__(self, wanted: OauthSettings) -> None:
        self.loop = EventLoop(Clock())
        self.reports: list[str] = []
        try:
            self.tokens = ListenerTokens(self.loop, wanted, self.reports.append)
        except WrongValue:
            self.loop.close()
            raise

    def close(self) -> None:
        """Close the loop, to which a thread may still hand over what it read."""
        self.turn_until(lambda: not self.tokens._reading)
        self.loop.close()

    def user(self, text: str) -> str:
        """The user of a token, or why it is refused."""
        try:
            return self.tokens.check(text).user
        except SaslFailed as failed:
            return str(failed)

    def turn_until(self, is_so: Callable[[], bool]) -> None:
        for _ in range(TURNS_MAX):
            if is_so():
                return
            self.loop.after(5, lambda: None)
            self.loop.turn()
        raise AssertionError(f"it did not happen; reported: {self.reports}")


@pytest.fixture
def begin() -> Iterator[Callable[[OauthSettings], Stage]]:
    """Makes stages, which are closed at the end."""
    stages: list[Stage] = []

    def make(wanted: OauthSettings) -> Stage:
        stages.append(Stage(wanted))
        return stages[-1]

    yield make
    for stage in stages:
        stage.close()


@pytest.fixture
def provider() -> Iterator[Provider]:
    with running_provider() as found:
        yield found


def test_keys_in_a_file(begin: Begin, tmp_path: Path) -> None:
    path = tmp_path / "my keys.json"
    path.write_bytes(jwks(public_jwk(key_of("RS256"))))
    stage = begin(settings(f"file://{tmp_path}/my%20keys.json"))
    assert stage.user(token()) == "alice"
    assert "audience" in stage.user(token(aud="others"))
    assert "expired" in stage.user(token(exp=1_000_000_000, iat=1_000_000))
    assert "unsigned" not in stage.user(unsecured())
    assert "does not allow" in stage.user(unsecured())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        (b"{}", "not a JWKS"),
        (b"", "not a JWKS"),
        *((one, "no public key") for one in WITHOUT_USE),
    ],
)
def test_a_file_that_cant_be_used_is_an_error_at_the_start(
    begin: Begin, tmp_path: Path, content: bytes | None, reason: str
) -> None:
    path = tmp_path / "keys.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(WrongValue, match=reason) as wrong:
        begin(settings(f"file://{path}"))
    assert str(path) in str(wrong.value)


def test_new_keys_in_a_file_are_found_at_the_next_reading(begin: Begin, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(jwks(public_jwk(key_of("RS256"))))
    stage = begin(settings(f"file://{path}", refresh_ms=10))
    path.write_bytes(b"{")
    stage.turn_until(lambda: bool(stage.reports))
    assert "the old keys stay in use" in stage.reports[0]
    assert stage.user(token()) == "alice"
    path.write_bytes(jwks(public_jwk(key_of("RS256", 1), "second")))
    new = token(key=key_of("RS256", 1), header={"kid": "second"})
    stage.turn_until(lambda: stage.user(new) == "alice")
    assert "unknown key" in stage.user(token())
    assert len([one for one in stage.reports if "old keys" in one]) == 1


@pytest.mark.parametrize("withdrawn", WITHOUT_USE)
def test_keys_that_the_provider_withdraws_are_not_used_any_more(
    begin: Begin, provider: Provider, withdrawn: bytes
) -> None:
    """A provider whose keys were stolen removes them, perhaps before it has new ones."""
    provider.answers["/keys"] = (200, jwks(public_jwk(key_of("RS256"))))
    stage = begin(settings(provider.url("/keys"), refresh_ms=10))
    stage.turn_until(lambda: stage.user(token()) == "alice")
    provider.answers["/keys"] = (200, withdrawn)
    stage.turn_until(lambda: bool(stage.reports))
    assert "no public key" in stage.reports[0]
    assert "tokens are refused" in stage.reports[0]
    assert "no public key" in stage.user(token())
    provider.answers["/keys"] = (200, jwks(public_jwk(key_of("RS256", 1), "second")))
    new = token(key=key_of("RS256", 1), header={"kid": "second"})
    stage.turn_until(lambda: stage.user(new) == "alice")
    assert "again" in stage.reports[-1]


def test_keys_of_a_server_that_responds_later(begin: Begin, provider: Provider) -> None:
    provider.answers["/keys"] = (503, b"")
    stage = begin(settings(provider.url("/keys")))
    assert "no keys yet" in stage.user(token())
    stage.turn_until(lambda: bool(stage.reports))
    assert "HTTP status 503" in stage.reports[0]
    assert "HTTP status 503" in stage.user(token())
    provider.answers["/keys"] = (200, jwks(public_jwk(key_of("RS256"))))
    stage.turn_until(lambda: stage.user(token()) == "alice")
    assert "again" in stage.reports[-1]


def test_keys_are_read_again_after_a_thread_could_not_start(begin: Begin, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(jwks(public_jwk(key_of("RS256"))))
    stage = begin(settings(f"file://{path}", refresh_ms=10))
    with no_new_threads():
        stage.turn_until(lambda: bool(stage.reports))
        assert "can't start new thread" in stage.reports[0]
        assert "the old keys stay in use" in stage.reports[0]
        assert stage.user(token()) == "alice"
    path.write_bytes(jwks(public_jwk(key_of("RS256", 1), "second")))
    new = token(key=key_of("RS256", 1), header={"kid": "second"})
    stage.turn_until(lambda: stage.user(new) == "alice")


def test_a_token_with_a_new_key_makes_the_broker_read_the_keys(
    begin: Begin, provider: Provider
) -> None:
    provider.answers["/keys"] = (200, jwks(public_jwk(key_of("RS256"))))
    stage = begin(settings(provider.url("/keys"), retry_max_ms=500))
    stage.turn_until(lambda: stage.user(token()) == "alice")
    assert len(provider.requests) == 1
    for number in range(100):
        assert "unknown key" in stage.user(token(header={"kid": str(number)}))
    assert len(provider.requests) == 1, "not for each unknown key"
    second = public_jwk(key_of("RS256", 1), "second")
    provider.answers["/keys"] = (200, jwks(public_jwk(key_of("RS256")), second))
    new = token(key=key_of("RS256", 1), header={"kid": "second"})
    stage.turn_until(lambda: stage.user(new) == "alice")
    assert len(provider.requests) == 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((200, b"nothing"), "not a JWKS"),
        ((404, b""), "HTTP status 404"),
        ((302, b""), "HTTP status 302"),
        ((200, b" " * (2 << 20)), "exceeds"),
    ],
)
def test_answers_that_have_no_keys(
    begin: Begin, provider: Provider, answer: tuple[int, bytes], reason: str
) -> None:
    provider.answers["/keys"] = answer
    provider.answers["/elsewhere"] = (200, jwks(public_jwk(key_of("RS256"))))
    stage = begin(settings(provider.url("/keys")))
    stage.turn_until(lambda: bool(stage.reports))
    assert reason in stage.reports[0]
    assert "no keys yet" in stage.user(token())
    assert {path for path, _, _ in provider.requests} == {"/keys"}


def test_a_server_that_does_not_respond_does_not_hold_up_the_loop(begin: Begin) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        stage = begin(settings(f"http://127.0.0.1:{port}/keys"))
        connection, _ = silent.accept()  # so the request is under way
        with connection:
            began_ms = stage.loop.clock.now_ms()
            turns: list[int] = []
            stage.loop.after(20, lambda: turns.append(stage.loop.clock.now_ms()))
            stage.turn_until(lambda: bool(turns))
            assert turns[0] - began_ms < 5000, "the server's time limit is 10 s"
            assert "they are being read" in stage.user(token())
        stage.turn_until(lambda: bool(stage.reports))
        assert f"127.0.0.1:{port}" in stage.reports[0]


def test_a_port_without_server(begin: Begin) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    stage = begin(settings(f"http://127.0.0.1:{port}/keys"))
    stage.turn_until(lambda: bool(stage.reports))
    assert "Connection refused" in stage.reports[0]


def test_tokens_without_signature_need_no_keys_and_are_reported(begin: Begin) -> None:
    stage = begin(settings("", unsecured=UnsecuredRules()))
    assert stage.user(unsecured()) == "alice"
    assert "without signature only" in stage.user(token())
    assert "without signature" in stage.reports[0]
