"""The access token of a client, or of a broker towards other brokers.

It comes from a token endpoint, by OAuth's client credentials, or from a file.
"""

import threading
import time
from base64 import b64encode
from collections.abc import Callable
from json import loads
from typing import NamedTuple

from tidelog.core.sasl.access_token import expiry_of
from tidelog.core.sasl.mechanism import SaslFailed
from tidelog.core.settings.oauth import TokenSource, file_of
from tidelog.shell.net.event_loop import EventLoop
from tidelog.shell.oauth.document import CannotRead, Form, read_document

REFRESH_AT = 0.8
"""A new token is fetched after this part of a token's lifetime, as by Kafka's clients."""
REFRESH_MIN_MS = 1000
RETRY_MAX_MS = 10_000


class OwnToken(NamedTuple):
    """A token of this side; secret."""

    text: str
    expires_ms: int

    def __repr__(self) -> str:
        return f"OwnToken(expires_ms={self.expires_ms})"


def fetch_token(source: TokenSource) -> OwnToken:
    """Fetch a token. Raises SaslFailed, whose text has no secret."""
    try:
        data = read_document(source.url, source.tls, _form(source))
    except CannotRead as error:
        raise SaslFailed(f"no access token: {error}") from None
    if file_of(source.url) is not None:
        text = data.decode(errors="replace").strip()
    else:
        try:
            text = loads(data)["access_token"].strip()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise SaslFailed(
                f"no access token: the response of {source.url} has no access_token"
            ) from None
    try:
        return OwnToken(text, expiry_of(text))
    except SaslFailed as failed:
        raise SaslFailed(f"no access token: {source.url}: {failed}") from None


def _form(source: TokenSource) -> Form | None:
    if file_of(source.url) is not None:
        return None
    from urllib.parse import quote_plus

    pair = source.client_id, source.client_secret
    if source.urlencode:
        pair = quote_plus(pair[0]), quote_plus(pair[1])
    body = "grant_type=client_credentials"
    if source.scope:
        body += f"&scope={quote_plus(source.scope)}"
    basic = b64encode(":".join(pair).encode()).decode()
    return Form(f"Basic {basic}", body.encode())


class ClientToken:
    """The token of a client, which may use it in several threads."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._token: OwnToken | None = None
        self._refresh_at_ms = 0

    def get(self) -> str:
        """Return a token that is valid for some time; fetch it if necessary. Raises SaslFailed."""
        with self._lock:
            now_ms = _wall_ms()
            if self._token is None or now_ms >= self._refresh_at_ms:
                try:
                    self._token = fetch_token(self._source)
                except SaslFailed:
                    if self._token is None or now_ms >= self._token.expires_ms:
                        raise
                self._refresh_at_ms = now_ms + _refresh_after_ms(self._token, now_ms)
            return self._token.text


class BrokerToken:
    """The token of a broker, which is fetched in a thread before it is needed."""

    def __init__(self, loop: EventLoop, source: TokenSource, report: Callable[[str], None]) -> None:
        self._loop = loop
        self._source = source
        self._report = report
        self._token: OwnToken | None = None
        self._trouble = ""
        self._retry_ms = REFRESH_MIN_MS
        self._begin()

    def get(self) -> str:
        """Return the last token that was fetched. Raises SaslFailed if there is none."""
        if self._token is None:
            raise SaslFailed(self._trouble or "there is no access token yet")
        return self._token.text

    def _begin(self) -> None:
        def run() -> None:
            try:
                found: OwnToken | str = fetch_token(self._source)
            except SaslFailed as failed:
                found = str(failed)
            except Exception as error:  # noqa: BLE001 - a thread that ends silently would end all logins
                found = f"no access token: {type(error).__name__}: {error}"
            self._loop.call_from_thread(lambda: self._fetched(found))

        try:
            threading.Thread(target=run, name="access token", daemon=True).start()
        except RuntimeError as error:  # the system allows no more threads
            self._fetched(f"no access token: {error}")

    def _fetched(self, found: OwnToken | str) -> None:
        if isinstance(found, str):
            if found != self._trouble:
                self._report(found)
            self._trouble = found
            delay_ms = self._retry_ms
            self._retry_ms = min(2 * self._retry_ms, RETRY_MAX_MS)
        else:
            self._token, self._trouble, self._retry_ms = found, "", REFRESH_MIN_MS
            delay_ms = _refresh_after_ms(found, self._loop.clock.wall_ms())
        self._loop.after(delay_ms, self._begin)


def _refresh_after_ms(token: OwnToken, now_ms: int) -> int:
    return max(REFRESH_MIN_MS, int((token.expires_ms - now_ms) * REFRESH_AT))


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
