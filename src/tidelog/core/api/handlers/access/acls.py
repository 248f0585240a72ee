"""DescribeAcls, CreateAcls and DeleteAcls 1-3: a broker without an authoriser.

Everybody who reaches a broker may do everything. Kafka's answer to that state is
SECURITY_DISABLED, and its tools say what it means; an API that is missing they take for a
broker that is too old.
"""

from tidelog.core.api.context import BrokerContext, Struct
from tidelog.core.errors import ErrorCode

_DISABLED = {
    "error_code": ErrorCode.SECURITY_DISABLED,
    "error_message": "This cluster has no access control: whoever connects may do everything.",
}


def describe_acls(_broker: BrokerContext, _request: Struct) -> Struct:
    return {"throttle_time_ms": 0, **_DISABLED, "resources": []}


def create_acls(_broker: BrokerContext, request: Struct) -> Struct:
    """One refusal for each."""
    return {"throttle_time_ms": 0, "results": [_DISABLED for _ in request["creations"]]}


def delete_acls(_broker: BrokerContext, request: Struct) -> Struct:
    """One refusal for each."""
    refused = {**_DISABLED, "matching_acls": []}
    return {"throttle_time_ms": 0, "filter_results": [refused for _ in request["filters"]]}
