"""The answer to a request that no coordinator here takes on: it is refused as a whole."""

from collections.abc import Callable
from typing import Any

from tidelog.core.errors import ErrorCode
from tidelog.core.groups import messages as groups
from tidelog.core.groups.messages import PartitionError, Request, Response

_RESPONSES: dict[type, Callable[..., Any]] = {
    groups.SyncGroup: groups.SyncGroupResponse,
    groups.Heartbeat: groups.HeartbeatResponse,
    groups.LeaveGroup: groups.LeaveGroupResponse,
    groups.OffsetFetch: groups.OffsetFetchResponse,
    groups.OffsetDelete: groups.OffsetDeleteResponse,
    groups.ListGroups: groups.ListGroupsResponse,
    groups.DeleteGroup: groups.DeleteGroupResponse,
}
"""Those whose response begins with the error and needs nothing else."""


def refused(request: Request, error: ErrorCode) -> Response:
    """The response that says so."""
    if isinstance(request, groups.OffsetCommit):
        return groups.OffsetCommitResponse(
            tuple(PartitionError(at.topic, at.partition, error) for at in request.offsets)
        )
    if isinstance(request, groups.DescribeGroup):
        return groups.DescribeGroupResponse(error, request.group_id)
    if isinstance(request, groups.JoinGroup):
        return groups.JoinGroupResponse(error, request.member_id)
    response: Response = _RESPONSES[type(request)](error)
    return response
