"""SaslHandshake 0-1 and SaslAuthenticate 0-2 on a listener without authentication.

Kafka's answer there is ILLEGAL_SASL_STATE. A client that is set to authenticate fails with it
at once; where the connection is only closed it tries for ever.
"""

from tidelog.core.api.context import BrokerContext, Struct
from tidelog.core.errors import ErrorCode


def sasl_handshake(_broker: BrokerContext, _request: Struct) -> Struct:
    return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "mechanisms": []}


def sasl_authenticate(_broker: BrokerContext, _request: Struct) -> Struct:
    return {
        "error_code": ErrorCode.ILLEGAL_SASL_STATE,
        "error_message": "Nobody is authenticated here; set security.protocol to PLAINTEXT.",
        "auth_bytes": b"",
        "session_lifetime_ms": 0,
    }
