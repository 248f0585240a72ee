"""Error responses: of requests that are refused as a whole, and of writes that failed."""

from collections.abc import Callable
from typing import Any

from tidelog.core.coordinator.shard import APPEND_ERRORS
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
"""Responses that begin with the error and need nothing else."""


def refused(request: Request, error: ErrorCode) -> Response:
    """Return the response to a request that failed as a whole."""
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


def error_of_group_append(error: ErrorCode) -> ErrorCode:
    """Return the error for a member whose group could not be written."""
    return _GROUP_APPEND_ERRORS.get(error, error)


def error_of_offset_append(error: ErrorCode) -> ErrorCode:
    """Return the error for a consumer whose offsets could not be written."""
    return _OFFSET_APPEND_ERRORS.get(error, error)


_GROUP_APPEND_ERRORS = {
    **APPEND_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
_OFFSET_APPEND_ERRORS = {
    **APPEND_ERRORS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
