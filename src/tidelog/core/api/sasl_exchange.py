"""The authentication of one client connection by SASL, as in Kafka (KIP-43, KIP-152, KIP-368).

    ApiVersions        at most once, optional
    SaslHandshake      the client names a mechanism
    SaslAuthenticate   one for each token; after SaslHandshake 0 the tokens have no header

Any other request before that closes the connection. After it, the connection's principal is fixed:
a client that authenticates again (KIP-368) must be the same user, by the same mechanism.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

from tidelog.core.api.exchange import Chunks
from tidelog.core.api_table import API_VERSIONS, APIS, SASL_AUTHENTICATE, SASL_HANDSHAKE, api_name
from tidelog.core.errors import ErrorCode
from tidelog.core.principal import Principal
from tidelog.core.sasl.mechanism import SaslFailed, SaslServer
from tidelog.core.wire.codec import decode_request, encode_response
from tidelog.core.wire.frames import RequestHeader, parse_request_header

REAUTHENTICATION_INTERVAL_MS = 1000
"""A connection may begin to authenticate again this long after the last time, as in Kafka."""


def _no_end() -> None:
    return None


class Login(NamedTuple):
    """An authentication that begins: the broker's side, and the principal of its user."""

    server: SaslServer
    principal_of: Callable[[str], Principal]
    remaining_ms: Callable[[], int | None] = _no_end
    """How long the accepted credentials are still valid; None: without end."""


class SaslRules(NamedTuple):
    """What the connections of one listener have in common."""

    mechanisms: tuple[str, ...]
    """The mechanisms in the response to SaslHandshake."""
    begin: Callable[[str], Login | None]
    """Begins an authentication by a mechanism; None if the mechanism is not enabled."""
    max_reauth_ms: Mapping[str, int]
    """How long an authentication is valid, by mechanism; 0: as long as its connection."""
    frame_max: int
    """The longest frame of an authentication, also of one on an authenticated connection."""
    failure_delay_ms: int = 0


class State(Enum):
    """The state of an exchange."""

    INITIAL = "waits for ApiVersions or SaslHandshake"
    HANDSHAKE = "waits for SaslHandshake"
    TOKENS = "waits for SaslAuthenticate"
    OTHER_MECHANISM = "named another mechanism than the first time"
    COMPLETE = "authenticated"
    FAILED = "failed"


class SaslRefused(Exception):
    """The connection must be closed without a response."""


class Outcome(NamedTuple):
    """What a frame leads to: a response, if there is one, and perhaps the end."""

    response: Chunks | None = None
    failure: str = ""
    """Why the authentication failed; the connection is closed after the response."""
    refused: str = ""
    """Why the authentication will fail: the mechanism has one more message of the client first."""
    is_recorded: bool = False
    """An earlier outcome had the reason of this failure in `refused`."""
    forward: bool = False
    """The frame is a request that is served as on other listeners."""


class SaslExchange:
    """The state of one connection.

    Invariant: `principal` is set once, when the first authentication is complete.
    """

    __slots__ = (
        "_again",
        "_began_ms",
        "_has_headers",
        "_login",
        "_refused",
        "_rules",
        "expires_ms",
        "mechanism",
        "principal",
        "state",
    )

    def __init__(self, rules: SaslRules) -> None:
        self._rules = rules
        self.state = State.INITIAL
        self.mechanism = ""
        """The mechanism of the exchange in progress, or of the last one."""
        self.principal: Principal | None = None
        self.expires_ms: int | None = None
        """When the client must have authenticated again; None: never."""
        self._login: Login | None = None
        self._has_headers = False
        self._refused = False
        """The client's credentials were refused, and it has to acknowledge that."""
        self._again = ""
        """The mechanism of the first authentication, if the client authenticates again."""
        self._began_ms: int | None = None

    def receive(self, frame: memoryview, now_ms: int) -> Outcome:
        """Handle a frame. Raises SaslRefused, MalformedRequest."""
        if len(frame) > self._rules.frame_max:
            # The connection's own limit is that of requests after the first authentication.
            self.state = State.FAILED
            raise SaslRefused(
                f"{self._kind} by a frame of {len(frame)} bytes, which exceeds the limit of"
                f" {self._rules.frame_max}"
            )
        if self.state is State.TOKENS:
            return self._token(frame, now_ms)
        if self.state is State.OTHER_MECHANISM:
            self.state = State.FAILED
            raise SaslRefused("the client authenticated again by another mechanism")
        header = parse_request_header(frame)
        key = header.api_key
        if key == API_VERSIONS and self.state is State.INITIAL:
            if APIS[key].serves(header.api_version):
                self.state = State.HANDSHAKE
            return Outcome(forward=True)
        if key != SASL_HANDSHAKE or not APIS[key].serves(header.api_version):
            self.state = State.FAILED
            raise SaslRefused(
                f"{api_name(key)} version {header.api_version} before the authentication; set"
                " security.protocol and sasl.mechanism in the client"
            )
        return self._handshake(header, frame)

    def begin_again(self, now_ms: int) -> bool:
        """Begin a new authentication with the next frame, a SaslHandshake; False if it is too
        early."""
        if self._began_ms is not None and now_ms - self._began_ms < REAUTHENTICATION_INTERVAL_MS:
            return False
        self._began_ms = now_ms
        self._again = self.mechanism
        self.state = State.HANDSHAKE
        return True

    def _handshake(self, header: RequestHeader, frame: memoryview) -> Outcome:
        version = header.api_version
        mechanism = decode_request(SASL_HANDSHAKE, version, frame, header.position)["mechanism"]
        self._has_headers = version >= 1
        self._login = self._rules.begin(mechanism)
        error = ErrorCode.NONE if self._login else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        body = {"error_code": error, "mechanisms": list(self._rules.mechanisms)}
        response = encode_response(SASL_HANDSHAKE, version, header.correlation_id, body)
        if self._login is None:
            self.state = State.FAILED
            return Outcome([response], f"SASL mechanism {mechanism!r:.80} is not enabled")
        same = self._again in ("", mechanism)
        self.mechanism = mechanism
        self.state = State.TOKENS if same else State.OTHER_MECHANISM
        return Outcome([response])

    def _token(self, frame: memoryview, now_ms: int) -> Outcome:
        if not self._has_headers:
            return self._bare_token(bytes(frame), now_ms)
        header = parse_request_header(frame)
        key, version = header.api_key, header.api_version
        if key != SASL_AUTHENTICATE or not APIS[key].serves(version):
            self.state = State.FAILED
            raise SaslRefused(f"{api_name(key)} version {version} during authentication")
        token = bytes(decode_request(key, version, frame, header.position)["auth_bytes"])
        error, message, answer, failure, refused = ErrorCode.NONE, "", b"", "", ""
        is_recorded = self._refused
        try:
            answer = self._respond(token, now_ms)
        except SaslFailed as failed:
            if self._has_challenge(failed):
                answer, refused = failed.challenge, self._reason(failed)
            else:
                error, failure = ErrorCode.SASL_AUTHENTICATION_FAILED, self._failure(failed)
                message = failed.public or (
                    f"Authentication failed during {self._kind} due to invalid credentials with"
                    f" SASL mechanism {self.mechanism}"
                )
        lifetime_ms = 0
        if self.state is State.COMPLETE and self.expires_ms is not None:
            lifetime_ms = self.expires_ms - now_ms
        body = {
            "error_code": error,
            "error_message": message,
            "auth_bytes": answer,
            "session_lifetime_ms": lifetime_ms,
        }
        response = encode_response(key, version, header.correlation_id, body)
        return Outcome([response], failure, refused, is_recorded)

    def _bare_token(self, token: bytes, now_ms: int) -> Outcome:
        is_recorded, refused = self._refused, ""
        try:
            answer = self._respond(token, now_ms)
        except SaslFailed as failed:
            if not self._has_challenge(failed):
                return Outcome(failure=self._failure(failed), is_recorded=is_recorded)
            answer, refused = failed.challenge, self._reason(failed)
        return Outcome([len(answer).to_bytes(4, "big") + answer], refused=refused)

    def _has_challenge(self, failed: SaslFailed) -> bool:
        """Return whether the client gets a message of the mechanism before the failure."""
        if self._refused or not failed.challenge:
            return False
        self._refused = True
        return True

    def _respond(self, token: bytes, now_ms: int) -> bytes:
        assert self._login is not None, "SaslHandshake began an authentication"
        server, principal_of, remaining_ms = self._login
        answer = server.respond(token)
        if server.user is not None:
            self._authenticated(principal_of(server.user), remaining_ms(), now_ms)
        return answer

    def _authenticated(self, principal: Principal, remaining_ms: int | None, now_ms: int) -> None:
        before = self.principal
        if before not in (None, principal):
            text = (
                "Cannot change principals during re-authentication from"
                f" {before.type}.{before.name}: {principal.type}.{principal.name}"
            )
            raise SaslFailed(text, text)
        self.principal = principal
        limit_ms = self._rules.max_reauth_ms.get(self.mechanism, 0) or None
        lifetimes = [one for one in (limit_ms, remaining_ms) if one is not None]
        self.expires_ms = now_ms + min(lifetimes) if lifetimes else None
        self._login = None
        self.state = State.COMPLETE

    def _failure(self, failed: SaslFailed) -> str:
        self.state = State.FAILED
        self._login = None
        return self._reason(failed)

    def _reason(self, failed: SaslFailed) -> str:
        return f"failed {self._kind} by {self.mechanism}: {failed}"

    @property
    def _kind(self) -> str:
        return "re-authentication" if self._again else "authentication"
