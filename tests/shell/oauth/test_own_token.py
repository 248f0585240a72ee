"""Where clients and brokers get their access tokens."""

import json
import ssl
import time
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import authority, certificate
from issuer import Provider, running_provider, token
from no_threads import no_new_threads

from tidelog.core.sasl.mechanism import SaslFailed
from tidelog.core.settings.oauth import TokenSource
from tidelog.core.settings.tls import TlsSettings
from tidelog.shell.clock import Clock
from tidelog.shell.net.event_loop import EventLoop
from tidelog.shell.oauth.own_token import BrokerToken, ClientToken, fetch_token

SECRET = "hush:+ü"


def source(url: str, **changed: Any) -> TokenSource:
    return TokenSource(url, "client", SECRET, "", False, (), TlsSettings())._replace(**changed)


@pytest.fixture
def provider() -> Iterator[Provider]:
    with running_provider() as found:
        yield found


def answer(text: str) -> tuple[int, bytes]:
    return 200, json.dumps({"access_token": text, "token_type": "Bearer"}).encode()


def test_a_token_of_a_token_endpoint(provider: Provider) -> None:
    text = token(exp=2_000_000_000)
    provider.answers["/token"] = answer(text)
    found = fetch_token(source(provider.url("/token"), scope="a b"))
    assert found == (text, 2_000_000_000_000)
    assert text not in repr(found)
    [(_, headers, body)] = provider.requests
    kind, _, pair = headers["Authorization"].partition(" ")
    assert (kind, b64decode(pair).decode()) == ("Basic", f"client:{SECRET}")
    assert headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert body == b"grant_type=client_credentials&scope=a+b"


def test_client_id_and_secret_can_be_encoded(provider: Provider) -> None:
    provider.answers["/token"] = answer(token())
    fetch_token(source(provider.url("/token"), urlencode=True))
    [(_, headers, body)] = provider.requests
    assert b64decode(headers["Authorization"].split()[1]) == b"client:hush%3A%2B%C3%BC"
    assert body == b"grant_type=client_credentials"


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ((401, b'{"error": "invalid_client"}'), "HTTP status 401, 'invalid_client'"),
        ((500, b"\xff"), "HTTP status 500"),
        ((302, b""), "HTTP status 302"),
        ((200, b"{}"), "has no access_token"),
        ((200, b'{"access_token": 5}'), "has no access_token"),
        ((200, b"[]"), "has no access_token"),
        ((200, b'{"access_token": "opaque"}'), "not a JWT"),
    ],
)
def test_answers_without_a_token(provider: Provider, found: tuple[int, bytes], reason: str) -> None:
    provider.answers["/token"] = found
    with pytest.raises(SaslFailed, match="no access token: ") as failed:
        fetch_token(source(provider.url("/token")))
    assert reason in str(failed.value)
    assert "hush" not in str(failed.value)
    assert len(provider.requests) == 1


def test_a_token_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(SaslFailed, match="No such file"):
        fetch_token(source(f"file://{path}"))
    path.write_text(f"\n{token(exp=2_000_000_000)}\n")
    assert fetch_token(source(f"file://{path}")).expires_ms == 2_000_000_000_000


def test_a_client_fetches_a_token_once_and_again_before_it_expires(provider: Provider) -> None:
    now_s = int(time.time())
    provider.answers["/token"] = answer(token(exp=now_s + 3600))
    client = ClientToken(source(provider.url("/token")))
    first = client.get()
    provider.answers["/token"] = answer(token(exp=now_s + 7200))
    assert client.get() == first
    assert len(provider.requests) == 1
    client._refresh_at_ms = 0
    second = client.get()
    assert second != first
    provider.answers["/token"] = (503, b"")
    client._refresh_at_ms = 0
    assert client.get() == second, "it is still valid"


def test_a_broker_fetches_its_token_in_a_thread_and_retries(provider: Provider) -> None:
    reports: list[str] = []
    loop = EventLoop(Clock())
    provider.answers["/token"] = (503, b"")
    broker = BrokerToken(loop, source(provider.url("/token")), reports.append)
    with pytest.raises(SaslFailed, match="no access token yet"):
        broker.get()
    for _ in range(20_000):
        if reports:
            break
        loop.after(5, lambda: None)
        loop.turn()
    assert "HTTP status 503" in reports[0]
    with pytest.raises(SaslFailed, match="HTTP status 503"):
        broker.get()
    text = token()
    provider.answers["/token"] = answer(text)
    for _ in range(20_000):
        try:
            found = broker.get()
            break
        except SaslFailed:
            loop.after(5, lambda: None)
            loop.turn()
    else:
        raise AssertionError("no token")
    assert found == text
    assert len(reports) == 1
    loop.close()


def test_a_broker_retries_after_a_thread_could_not_start(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(token())
    reports: list[str] = []
    loop = EventLoop(Clock())
    try:
        with no_new_threads():
            broker = BrokerToken(loop, source(f"file://{path}"), reports.append)
        assert "can't start new thread" in reports[0]
        with pytest.raises(SaslFailed, match="can't start new thread"):
            broker.get()
        for _ in range(20_000):
            if broker._token is not None:
                break
            loop.after(5, lambda: None)
            loop.turn()
        assert broker.get() == path.read_text()
    finally:
        loop.close()


def test_a_token_endpoint_by_https_is_verified(tmp_path: Path) -> None:
    """The certificate of the provider must be of an authority that the settings name."""
    authority(tmp_path)
    authority(tmp_path, "other")
    store = certificate(tmp_path, "provider", "/O=provider")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(store)
    text = token()
    with running_provider(context) as provider:
        provider.answers["/token"] = answer(text)
        url = provider.url("/token")
        trusted = TlsSettings(truststore=str(tmp_path / "ca.pem"))
        assert fetch_token(source(url, tls=trusted)).text == text
        for tls in (TlsSettings(), TlsSettings(truststore=str(tmp_path / "other.pem"))):
            with pytest.raises(SaslFailed, match="certificate verify failed"):
                fetch_token(source(url, tls=tls))
        assert len(provider.requests) == 1
