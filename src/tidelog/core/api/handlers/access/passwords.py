"""DescribeUserScramCredentials and AlterUserScramCredentials 0: nobody has a password here.

Kafka's tool asks for passwords whenever users are described, so that question has an answer;
a password that nobody would ever ask for is not taken.
"""

from collections import Counter

from tidelog.core.api.context import BrokerContext, Struct
from tidelog.core.api.handlers.refusals import told
from tidelog.core.errors import ErrorCode


def describe_user_scram_credentials(_broker: BrokerContext, request: Struct) -> Struct:
    """All there are, which is none; a user who is named is not there."""
    times = Counter(user["name"] for user in request["users"] or [])
    return {
        "throttle_time_ms": 0,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "results": [
            {**_missing(name, more=times[name] > 1), "credential_infos": []} for name in times
        ],
    }


def alter_user_scram_credentials(_broker: BrokerContext, request: Struct) -> Struct:
    """One refusal for each user."""
    deleted = [deletion["name"] for deletion in request["deletions"]]
    wanted = [upsertion["name"] for upsertion in request["upsertions"]]
    message = "Nobody is authenticated here: a password would have no effect."
    refused = ErrorCode.UNSUPPORTED_SASL_MECHANISM
    results = {name: _result(name, refused, message) for name in wanted}
    results.update((name, _missing(name, more=False)) for name in deleted)
    return {"throttle_time_ms": 0, "results": list(results.values())}


def _missing(name: str, *, more: bool) -> Struct:
    if more:
        message = f"{name} is in the request more than once."
        return _result(name, ErrorCode.DUPLICATE_RESOURCE, message)
    return _result(name, ErrorCode.RESOURCE_NOT_FOUND, f"{name} has no password.")


def _result(name: str, error: ErrorCode, message: str) -> Struct:
    return {"user": name, "error_code": error, "error_message": told(message)}
