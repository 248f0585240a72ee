"""SASL on listeners without it, and delegation tokens.

Each API responds as Kafka does where the feature is off. Clients and tools understand these
errors; they treat a missing API as a broker that is too old.
"""

from tidelog.core.api.context import BrokerContext, Struct
from tidelog.core.errors import ErrorCode
from tidelog.core.principal import ANONYMOUS

# -- SASL: of connections that need none -----------------------------------------------------


def sasl_handshake(_broker: BrokerContext, _request: Struct) -> Struct:
    """SaslHandshake 0-1: refuse with ILLEGAL_SASL_STATE, as Kafka on a PLAINTEXT listener and on
    an authenticated connection (core/api/sasl_gate.py handles the others).

    A client that is configured to authenticate then fails at once. If the connection were
    closed instead, it would retry forever.
    """
    return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "mechanisms": []}


def sasl_authenticate(broker: BrokerContext, _request: Struct) -> Struct:
    """SaslAuthenticate 0-2: refuse, as `sasl_handshake`."""
    is_known = broker.principal is not ANONYMOUS
    return {
        "error_code": ErrorCode.ILLEGAL_SASL_STATE,
        "error_message": "SaslAuthenticate request received after successful authentication"
        if is_known
        else "Clients are not authenticated here; set security.protocol to PLAINTEXT or SSL.",
        "auth_bytes": b"",
        "session_lifetime_ms": 0,
    }


# -- delegation tokens: not allowed on a PLAINTEXT listener ----------------------------------

_NOT_ALLOWED = {
    "error_code": ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    "throttle_time_ms": 0,
}
_NO_TIME = -1


def create_delegation_token(broker: BrokerContext, request: Struct) -> Struct:
    """CreateDelegationToken 1-3: refuse; return the requested owner and the requester."""
    principal_type, principal_name = broker.principal
    return {
        **_NOT_ALLOWED,
        "principal_type": request.get("owner_principal_type") or principal_type,
        "principal_name": request.get("owner_principal_name") or principal_name,
        "token_requester_principal_type": principal_type,
        "token_requester_principal_name": principal_name,
        "issue_timestamp_ms": _NO_TIME,
        "expiry_timestamp_ms": _NO_TIME,
        "max_timestamp_ms": _NO_TIME,
        "token_id": "",
        "hmac": b"",
    }


def renew_delegation_token(_broker: BrokerContext, _request: Struct) -> Struct:
    """RenewDelegationToken 1-2: refuse."""
    return {**_NOT_ALLOWED, "expiry_timestamp_ms": _NO_TIME}


def expire_delegation_token(_broker: BrokerContext, _request: Struct) -> Struct:
    """ExpireDelegationToken 1-2: refuse."""
    return {**_NOT_ALLOWED, "expiry_timestamp_ms": _NO_TIME}


def describe_delegation_token(_broker: BrokerContext, _request: Struct) -> Struct:
    """DescribeDelegationToken 1-3: refuse."""
    return {**_NOT_ALLOWED, "tokens": []}
