"""DescribeGroups 0-6, ListGroups 0-5 and DeleteGroups 0-2: groups as an operator sees them.

Each group of a request has its own fate. A broker lists the groups that it coordinates; tools
ask all brokers.
"""

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.handlers.cluster.brokers import NOT_ASKED_FOR
from tidelog.core.api.handlers.refusals import told
from tidelog.core.errors import ErrorCode
from tidelog.core.groups.messages import (
    DeleteGroup,
    DescribeGroup,
    DescribeGroupResponse,
    ListGroups,
)

GROUP_OPERATIONS = 0b1101_0100_1000
"""Read, delete, describe, describe and alter configs."""


def describe_groups(broker: BrokerContext, request: Struct) -> Handling:
    """State, protocol and members of each. A name that is there twice is one: members may take
    a megabyte."""
    operations = request.get("include_authorized_operations", False)
    names = list(dict.fromkeys(request["groups"]))
    answers = yield [DescribeGroup(name, broker.version) for name in names]
    described = [
        _described(name, answer, operations) for name, answer in zip(names, answers, strict=True)
    ]
    return {"throttle_time_ms": 0, "groups": described}


def _described(name: str, answer: DescribeGroupResponse, operations: bool) -> Struct:
    allowed = operations and answer.error_code is ErrorCode.NONE
    return {
        "error_code": answer.error_code,
        "error_message": told(answer.error_message),
        "group_id": name,
        "group_state": answer.group_state,
        "protocol_type": answer.protocol_type,
        "protocol_data": answer.protocol_data,
        "members": [member._asdict() for member in answer.members],
        "authorized_operations": GROUP_OPERATIONS if allowed else NOT_ASKED_FOR,
    }


def list_groups(_broker: BrokerContext, request: Struct) -> Handling:
    """Those of this broker, in some states or of some types only if that is asked for."""
    states, types = request.get("states_filter", []), request.get("types_filter", [])
    [answer] = yield [ListGroups(states, types)]
    return {
        "throttle_time_ms": 0,
        "error_code": answer.error_code,
        "groups": [group._asdict() for group in answer.groups],
    }


def delete_groups(_broker: BrokerContext, request: Struct) -> Handling:
    """Groups without members, and their offsets with them. A name that is there twice is one."""
    names = list(dict.fromkeys(request["groups_names"]))
    answers = yield [DeleteGroup(name) for name in names]
    results = [
        {"group_id": name, "error_code": answer.error_code}
        for name, answer in zip(names, answers, strict=True)
    ]
    return {"throttle_time_ms": 0, "results": results}
