"""What an operator sees of groups: lists and descriptions.

Always true: a group that is being removed is Dead, and on no list.
"""

from collections.abc import Iterable

from tidelog.core.errors import ErrorCode
from tidelog.core.groups.membership.group import Group, GroupState
from tidelog.core.groups.messages import (
    CLASSIC,
    DescribeGroup,
    DescribeGroupResponse,
    ListedGroup,
    ListGroups,
)

_UNKNOWN_IS_AN_ERROR_SINCE = 6


def listed(groups: Iterable[Group], request: ListGroups) -> list[ListedGroup]:
    """Those that pass the filters."""
    states = {name.lower() for name in request.states_filter}
    types = {name.lower() for name in request.types_filter}
    if types and CLASSIC not in types:
        return []
    return [
        ListedGroup(group.group_id, group.protocol_type or "", group.state, CLASSIC)
        for group in groups
        if group.state is not GroupState.DEAD and (not states or group.state.lower() in states)
    ]


def described(group: Group | None, request: DescribeGroup) -> DescribeGroupResponse:
    """Of the members' metadata and assignments there is something to tell in Stable alone."""
    group_id = request.group_id
    if group is None or group.state is GroupState.DEAD:
        if request.version < _UNKNOWN_IS_AN_ERROR_SINCE:
            return DescribeGroupResponse(ErrorCode.NONE, group_id, GroupState.DEAD)
        error, message = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found."
        return DescribeGroupResponse(error, group_id, GroupState.DEAD, error_message=message)
    protocol = group.protocol_name if group.state is GroupState.STABLE else None
    return DescribeGroupResponse(
        ErrorCode.NONE,
        group_id,
        group.state,
        group.protocol_type or "",
        protocol or "",
        tuple(member.described(protocol) for member in group.members.values()),
    )
