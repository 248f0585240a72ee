"""SASL OAUTHBEARER (RFC 7628): the client sends an access token that an identity provider issued.

    client                                     broker
    n,,^Aauth=Bearer TOKEN^A^A             ->
                                           <-  (empty), or {"status":"invalid_token"}
    ^A                                     ->  after a refusal only
                                           <-  failure

Whoever can read the token can use it until it expires, so use OAUTHBEARER over TLS.
"""

import re
from collections.abc import Callable, Mapping

from tidelog.core.sasl.access_token import CheckToken
from tidelog.core.sasl.mechanism import SaslFailed

MESSAGE_MAX = 512 * 1024
"""The longest message of a client: Kafka's default for `sasl.server.max.receive.size`, in case that
is set higher here. Tokens have some kilobytes."""
_SEPARATOR = "\1"
_ACKNOWLEDGED = b"\1"
_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_FIRST = re.compile(rf"n,(?:a=(?P<acts_as>{_NAME}))?,\x01(?P<pairs>.*)\x01", re.DOTALL)
_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_AUTH = re.compile(r"bearer +(?P<token>[-_~+/.A-Za-z0-9]+=*)", re.IGNORECASE)


class OauthServer:
    """The broker's side: one token, and one more message after a refusal."""

    __slots__ = ("_check", "_expires_ms", "_refused", "_wall_ms", "user")

    def __init__(self, check: CheckToken, wall_ms: Callable[[], int]) -> None:
        self._check = check
        self._wall_ms = wall_ms
        self._expires_ms = 0
        self._refused: SaslFailed | None = None
        self.user: str | None = None

    def respond(self, token: bytes) -> bytes:
        """Check the client's token. Raises SaslFailed, with Kafka's texts."""
        if self._refused is not None:
            # Kafka lets a client try further tokens here. One attempt a connection is enough.
            public = self._refused.public if token == _ACKNOWLEDGED else ""
            raise SaslFailed(str(self._refused), public)
        acts_as, access_token = _parse(token)
        try:
            accepted = self._check(access_token)
        except SaslFailed as failed:
            self._refused = failed
            raise
        if acts_as not in ("", accepted.user):
            raise SaslFailed(
                f"user {accepted.user!r:.80} requested to act as {acts_as!r:.80}",
                f"Authentication failed: Client requested an authorization id ({acts_as}) that is"
                f" different from the token's principal name ({accepted.user})",
            )
        self._expires_ms = accepted.expires_ms
        self.user = accepted.user
        return b""

    def remaining_ms(self) -> int:
        """How long the accepted token is still valid."""
        return max(0, self._expires_ms - self._wall_ms())


class OauthClient:
    """The client's side."""

    __slots__ = ("_extensions", "_refused", "_token", "complete")

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        self._token = token
        self._extensions = extensions
        self._refused = ""
        self.complete = False

    def first(self) -> bytes:
        """Return the message with the token."""
        pairs = {"auth": f"Bearer {self._token}", **self._extensions}
        text = "".join(f"{name}={value}{_SEPARATOR}" for name, value in pairs.items())
        return f"n,,{_SEPARATOR}{text}{_SEPARATOR}".encode()

    def respond(self, token: bytes) -> bytes | None:
        """Acknowledge the broker's refusal, if there is one. Raises SaslFailed."""
        if self._refused:
            raise SaslFailed(f"the broker refused the token: {self._refused}")
        if token:
            self._refused = token.decode(errors="replace")[:200]
            return _ACKNOWLEDGED
        self.complete = True
        return None


def check_extension(name: str, value: str) -> str | None:
    """Return why a client can't send this extension; None if it can."""
    if name == "auth" or not _KEY.fullmatch(name):
        return "has a name that is not made of letters, or is auth"
    return None if _VALUE.fullmatch(value) else "has an empty value or one with invalid characters"


def _parse(message: bytes) -> tuple[str, str]:
    """Return the name that the client wants to act as, and its access token. Raises SaslFailed."""
    if len(message) > MESSAGE_MAX:
        raise SaslFailed(
            f"OAUTHBEARER message of {len(message)} bytes exceeds the limit of {MESSAGE_MAX}"
        )
    match = _FIRST.fullmatch(message.decode(errors="replace"))
    if match is None or (match["pairs"] and not match["pairs"].endswith(_SEPARATOR)):
        raise SaslFailed("invalid first OAUTHBEARER message")
    found = {}
    for pair in match["pairs"].split(_SEPARATOR)[:-1]:
        name, separator, value = pair.partition("=")
        if not separator or not _KEY.fullmatch(name) or not _VALUE.fullmatch(value):
            raise SaslFailed("invalid first OAUTHBEARER message")
        found[name] = value
    authorization = _AUTH.fullmatch(found.get("auth", ""))
    if authorization is None:
        raise SaslFailed("the first OAUTHBEARER message has no bearer token")
    acts_as = (match["acts_as"] or "").replace("=2C", ",").replace("=3D", "=")
    return acts_as, authorization["token"]
