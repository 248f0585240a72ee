"""The authentication of a client or a broker towards a broker: frames out, frames in."""

from tidelog.core.api_table import SASL_AUTHENTICATE, SASL_HANDSHAKE
from tidelog.core.errors import ErrorCode
from tidelog.core.sasl.mechanism import PLAIN, RandomBytes, SaslClient, SaslFailed
from tidelog.core.sasl.plain import PlainClient
from tidelog.core.sasl.scram import SERVER_ITERATIONS_MAX, ScramClient
from tidelog.core.wire.codec import decode_response, encode_request

HANDSHAKE_VERSION = 1
AUTHENTICATE_VERSION = 1
"""Every Kafka since 2.2 has it; version 2 only changes the encoding."""


class LoginRefused(SaslFailed):
    """The broker refused the mechanism or the credentials."""


def sasl_client(
    mechanism: str,
    user: str,
    password: str,
    random_bytes: RandomBytes,
    iterations_max: int = SERVER_ITERATIONS_MAX,
) -> SaslClient:
    """Return the client's side of a mechanism with passwords."""
    if mechanism == PLAIN:
        return PlainClient(user, password)
    return ScramClient(mechanism, user, password, random_bytes, iterations_max)


class SaslLogin:
    """One authentication. Invariant: it is complete only if the mechanism says so."""

    def __init__(
        self, mechanism: str, client: SaslClient, client_id: str, announced: str = ""
    ) -> None:
        """`announced`: the name of the mechanism in the handshake, if it is another one."""
        self._mechanism = announced or mechanism
        self._client = client
        self._client_id = client_id
        self._handshaken = False
        self.lifetime_ms = 0
        """How long the authentication is valid; 0: as long as the connection."""

    def first(self, correlation_id: int = 0) -> bytes:
        """Return the first frame."""
        body = {"mechanism": self._mechanism}
        return encode_request(
            SASL_HANDSHAKE, HANDSHAKE_VERSION, correlation_id, self._client_id, body
        )

    def receive(self, frame: memoryview, correlation_id: int = 0) -> bytes | None:
        """Return the next frame; None if the authentication is complete. Raises SaslFailed,
        MalformedRequest."""
        if not self._handshaken:
            answer = decode_response(SASL_HANDSHAKE, HANDSHAKE_VERSION, frame)[1]
            self._check_handshake(answer["error_code"], answer["mechanisms"])
            self._handshaken = True
            return self._encode(self._client.first(), correlation_id)
        answer = decode_response(SASL_AUTHENTICATE, AUTHENTICATE_VERSION, frame)[1]
        if answer["error_code"] != ErrorCode.NONE:
            raise LoginRefused(answer["error_message"] or "the broker refused the credentials")
        token = self._client.respond(bytes(answer["auth_bytes"]))
        if token is not None:
            return self._encode(token, correlation_id)
        if not self._client.complete:
            raise SaslFailed("the broker ended the authentication early")
        self.lifetime_ms = answer["session_lifetime_ms"]
        return None

    def _check_handshake(self, error: int, offered: list[str]) -> None:
        if error == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            names = ", ".join(sorted(offered)) or "none"
            raise LoginRefused(f"the broker does not enable {self._mechanism}, but {names}")
        if error == ErrorCode.ILLEGAL_SASL_STATE:
            raise LoginRefused(
                "this listener does not use SASL, or it is too early to authenticate again"
            )
        if error != ErrorCode.NONE:
            raise LoginRefused(f"the broker refused the handshake with error {error}")

    def _encode(self, token: bytes, correlation_id: int) -> bytes:
        body = {"auth_bytes": token}
        return encode_request(
            SASL_AUTHENTICATE, AUTHENTICATE_VERSION, correlation_id, self._client_id, body
        )
