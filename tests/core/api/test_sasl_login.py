"""The login of a client or a broker: what it accepts from the broker."""

from typing import Any

import pytest

from tidelog.core.api.sasl_login import LoginRefused, SaslLogin, sasl_client
from tidelog.core.api_table import SASL_AUTHENTICATE, SASL_HANDSHAKE
from tidelog.core.errors import ErrorCode
from tidelog.core.sasl.mechanism import PLAIN, SCRAM_SHA_256, SaslFailed
from tidelog.core.wire.codec import encode_response
from tidelog.core.wire.primitives import MalformedRequest


def login(mechanism: str = PLAIN) -> SaslLogin:
    made = SaslLogin(mechanism, sasl_client(mechanism, "alice", "hush", bytes), "test")
    made.first()
    return made


def handshake(error: int = 0, mechanisms: tuple[str, ...] = (PLAIN,)) -> memoryview:
    body = {"error_code": error, "mechanisms": list(mechanisms)}
    return memoryview(encode_response(SASL_HANDSHAKE, 1, 0, body))[4:]


def authenticate(**fields: Any) -> memoryview:
    body = {
        "error_code": 0,
        "error_message": None,
        "auth_bytes": b"",
        "session_lifetime_ms": 0,
        **fields,
    }
    return memoryview(encode_response(SASL_AUTHENTICATE, 1, 0, body))[4:]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "does not enable PLAIN, but A, B"),
        (ErrorCode.ILLEGAL_SASL_STATE, "this listener does not use SASL"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "refused the handshake with error -1"),
    ],
)
def test_a_refused_handshake_says_why(error: int, text: str) -> None:
    with pytest.raises(LoginRefused, match=text):
        login().receive(handshake(error, ("B", "A")))


def test_a_refused_password_has_the_text_of_the_broker() -> None:
    made = login()
    made.receive(handshake())
    with pytest.raises(LoginRefused, match="so it is"):
        made.receive(authenticate(error_code=58, error_message="so it is"))


def test_a_login_is_complete_after_the_response_to_the_password() -> None:
    made = login()
    made.receive(handshake())
    assert made.receive(authenticate(session_lifetime_ms=7)) is None
    assert made.lifetime_ms == 7


def test_a_broker_that_skips_its_proof_is_refused() -> None:
    """Without this check, a process that does not know the password could pose as the broker."""
    made = login(SCRAM_SHA_256)
    made.receive(handshake())
    with pytest.raises(SaslFailed, match="challenge"):
        made.receive(authenticate())


def test_a_malformed_response_is_reported() -> None:
    with pytest.raises(MalformedRequest):
        login().receive(memoryview(b"\0\0\0\0\0"))
