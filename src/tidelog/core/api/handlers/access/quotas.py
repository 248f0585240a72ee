"""DescribeClientQuotas and AlterClientQuotas 0-1: there are no quotas, and none can be set.

Describing is answered with what there is, which is nothing. Setting is refused entry by entry
with a text: clients show that, while all they know of an API that is missing is its name.
"""

from tidelog.core.api.context import BrokerContext, Struct
from tidelog.core.api.handlers.refusals import Refused, told
from tidelog.core.errors import ErrorCode

_ENTITIES = ("user", "client-id", "ip")
_EXACT, _DEFAULT, _SPECIFIED = range(3)
_DECLINED = "This cluster has no client quotas: nobody is slowed down, and no limit can be set."


def describe_client_quotas(_broker: BrokerContext, request: Struct) -> Struct:
    """Nothing, if the question makes sense."""
    error, message = ErrorCode.NONE, None
    try:
        _check_filter(request["components"])
    except Refused as refused:
        error, message = refused.error, refused.message
    return {
        "throttle_time_ms": 0,
        "error_code": error,
        "error_message": told(message),
        "entries": None if error else [],
    }


def _check_filter(components: list[Struct]) -> None:
    kinds = [component["entity_type"] for component in components]
    invalid = ErrorCode.INVALID_REQUEST
    for component in components:
        kind, match = component["entity_type"], component["match"]
        if kinds.count(kind) > 1:
            raise Refused(invalid, f"{kind} is in the filter more than once.")
        if kind not in _ENTITIES:
            error = ErrorCode.UNSUPPORTED_VERSION if kind else invalid
            raise Refused(error, f"Quotas are for {', '.join(_ENTITIES)}, not for {kind!r}.")
        if component["match_type"] not in (_EXACT, _DEFAULT, _SPECIFIED):
            raise Refused(invalid, f"There is no match type {component['match_type']}.")
        if (match is None) != (component["match_type"] != _EXACT):
            raise Refused(invalid, f"{kind}: a name belongs to an exact match, and only there.")
    if "ip" in kinds and len(kinds) > 1:
        raise Refused(invalid, "Addresses can't be combined with users or client ids.")


def alter_client_quotas(_broker: BrokerContext, request: Struct) -> Struct:
    """One refusal for each."""
    return {
        "throttle_time_ms": 0,
        "entries": [
            {
                "error_code": ErrorCode.UNSUPPORTED_VERSION,
                "error_message": _DECLINED,
                "entity": entry["entity"],
            }
            for entry in request["entries"]
        ],
    }
