"""CreateDelegationToken 1-3, RenewDelegationToken 1-2, ExpireDelegationToken 1-2 and
DescribeDelegationToken 1-3: a listener without authentication.

Kafka refuses all four on a PLAINTEXT listener with DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
"""

from tidelog.core.api.context import BrokerContext, Struct
from tidelog.core.errors import ErrorCode

_NOT_ALLOWED = {
    "error_code": ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    "throttle_time_ms": 0,
}
_NO_TIME = -1
_ANONYMOUS = ("User", "ANONYMOUS")


def create_delegation_token(_broker: BrokerContext, request: Struct) -> Struct:
    """Refuse; echo the requested owner, with an empty requester."""
    principal_type, principal_name = _ANONYMOUS
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
    return {**_NOT_ALLOWED, "expiry_timestamp_ms": _NO_TIME}


def expire_delegation_token(_broker: BrokerContext, _request: Struct) -> Struct:
    return {**_NOT_ALLOWED, "expiry_timestamp_ms": _NO_TIME}


def describe_delegation_token(_broker: BrokerContext, _request: Struct) -> Struct:
    return {**_NOT_ALLOWED, "tokens": []}
