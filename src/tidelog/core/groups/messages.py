"""The requests and responses of the group coordinator.

Field names are Kafka's. `None` stands for null, and for -1 where that means "unknown". A
generation of -1 stays -1: a consumer outside of any group sends it.

Invariant: a request gets exactly one response, of the class of the same name. Requests that name
many groups on the wire (OffsetFetch, DescribeGroups, DeleteGroups) are one request for each group
here.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from tidelog.core.coordinator.shard import APPEND_ERRORS
from tidelog.core.errors import ErrorCode
from tidelog.core.groups import messages as groups
from tidelog.core.slotted import slotted
from tidelog.core.types import LeaderEpoch, Offset, TopicId, TopicPartition

NO_GENERATION = -1
NO_OFFSET = -1
NO_MEMBER = ""
CONSUMER = "consumer"
"""The protocol type of consumers, whose metadata a broker may read."""
CLASSIC = "classic"
"""The type of all groups, as ListGroups returns it."""

# -- members ----------------------------------------------------------------------------------


@slotted(frozen=True)
class JoinGroup:
    """Join a group. A member without an id gets one: its name and `fresh_id`, a random text
    that the caller provides."""

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int | None
    """None (version 0): the session time-out."""
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: list[tuple[str, bytes]]
    client_id: str
    client_host: str
    fresh_id: str
    version: int
    """From 4 on a new member must join again with its id; from 9 on it may skip assigning."""
    reason: str | None = None


class JoinedMember(NamedTuple):
    """A member as the leader of the group sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@slotted(frozen=True)
class JoinGroupResponse:
    """The generation that a member joined. Only the leader gets the members. With an error,
    protocol and leader are None and empty; the handler encodes None as its version allows."""

    error_code: ErrorCode
    member_id: str = NO_MEMBER
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@slotted(frozen=True)
class SyncGroup:
    """Get the assignment of a member. The leader sends all assignments, by member id."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: list[tuple[str, bytes]]


@slotted(frozen=True)
class SyncGroupResponse:
    """The assignment of a member."""

    error_code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@slotted(frozen=True)
class Heartbeat:
    """Keep a member's session alive."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


@slotted(frozen=True)
class HeartbeatResponse:
    """REBALANCE_IN_PROGRESS tells the member to join again."""

    error_code: ErrorCode


class LeavingMember(NamedTuple):
    """A member that leaves: by member id, or by instance id with an empty member id."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


@slotted(frozen=True)
class LeaveGroup:
    """Remove members. Versions 0 to 2 name one member by its id: a list of one."""

    group_id: str
    members: list[LeavingMember]


class LeftMember(NamedTuple):
    """The outcome for one member."""

    member_id: str
    group_instance_id: str | None
    error_code: ErrorCode


@slotted(frozen=True)
class LeaveGroupResponse:
    """`error_code` is about the whole request. Versions 0 to 2 send `single_error`."""

    error_code: ErrorCode
    members: tuple[LeftMember, ...] = ()

    @property
    def single_error(self) -> ErrorCode:
        if self.error_code is not ErrorCode.NONE or not self.members:
            return self.error_code
        return self.members[0].error_code


# -- offsets ----------------------------------------------------------------------------------


class OffsetToCommit(NamedTuple):
    """The offset to commit for one partition."""

    topic: str
    partition: int
    committed_offset: Offset
    committed_leader_epoch: LeaderEpoch | None = None
    committed_metadata: str = ""
    topic_id: TopicId | None = None


@slotted(frozen=True)
class OffsetCommit:
    """Commit offsets. The handler has removed topics that do not exist. With
    `retention_time_ms` (versions 2 to 4) the offsets expire that long after their commit."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    offsets: list[OffsetToCommit]
    retention_time_ms: int | None = None
    version: int = 8
    """From 9 on the error for an unknown group is GROUP_ID_NOT_FOUND, before that
    ILLEGAL_GENERATION."""


class PartitionError(NamedTuple):
    """The outcome for one partition."""

    topic: str
    partition: int
    error_code: ErrorCode


@slotted(frozen=True)
class OffsetCommitResponse:
    """One entry for each entry of the request, in its order."""

    partitions: tuple[PartitionError, ...]


@slotted(frozen=True)
class OffsetFetch:
    """Get committed offsets. `partitions` None: all of the group."""

    group_id: str
    partitions: list[TopicPartition] | None
    require_stable: bool = False


@slotted(frozen=True)
class TxnOffsetCommit:
    """Commit offsets as part of a producer's transaction. They count when the transaction's marker
    commits them. The handler has removed topics that do not exist."""

    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id: int
    """-1 in versions 0 to 2, which do not name a member."""
    member_id: str
    group_instance_id: str | None
    offsets: list[OffsetToCommit]
    version: int = 4
    """From 4 on the client knows TRANSACTION_ABORTABLE; from 5 on the coordinator adds its
    partition to the transaction, without AddOffsetsToTxn."""


@slotted(frozen=True)
class TxnOffsetCommitResponse:
    """One entry for each entry of the request, in its order."""

    partitions: tuple[PartitionError, ...]


class FetchedOffset(NamedTuple):
    """A committed offset, or `NO_OFFSET`."""

    topic: str
    partition: int
    committed_offset: Offset
    committed_leader_epoch: LeaderEpoch | None
    metadata: str
    error_code: ErrorCode


@slotted(frozen=True)
class OffsetFetchResponse:
    """The committed offsets of a group."""

    error_code: ErrorCode
    partitions: tuple[FetchedOffset, ...] = ()


@slotted(frozen=True)
class OffsetDelete:
    """Delete committed offsets. The handler has removed topics that do not exist."""

    group_id: str
    partitions: list[TopicPartition]


@slotted(frozen=True)
class OffsetDeleteResponse:
    """The outcome for each partition; none with an error for the whole request."""

    error_code: ErrorCode
    partitions: tuple[PartitionError, ...] = ()


# -- groups -----------------------------------------------------------------------------------


@slotted(frozen=True)
class DescribeGroup:
    """Describe a group. An unknown group is Dead; from version 6 on it is also an error."""

    group_id: str
    version: int = 5


class DescribedMember(NamedTuple):
    """A member as an operator sees it; metadata is empty unless a protocol is chosen."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


@slotted(frozen=True)
class DescribeGroupResponse:
    """A group and its members."""

    error_code: ErrorCode
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: tuple[DescribedMember, ...] = ()
    error_message: str | None = None


@slotted(frozen=True)
class ListGroups:
    """List the groups in one of the states and of one of the types. An empty filter matches all
    groups. Names of states and types are matched without regard to case."""

    states_filter: list[str]
    types_filter: list[str]


class ListedGroup(NamedTuple):
    """One entry of a list of groups."""

    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


@slotted(frozen=True)
class ListGroupsResponse:
    """The groups that one broker coordinates."""

    error_code: ErrorCode
    groups: tuple[ListedGroup, ...] = ()


@slotted(frozen=True)
class DeleteGroup:
    """Delete a group without members, and its offsets."""

    group_id: str


@slotted(frozen=True)
class DeleteGroupResponse:
    """The outcome of DeleteGroup."""

    error_code: ErrorCode


GroupRequest: TypeAlias = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | TxnOffsetCommit
    | OffsetFetch
    | OffsetDelete
    | DescribeGroup
    | DeleteGroup
)
"""Requests about one group, which is in `group_id`."""
Request: TypeAlias = GroupRequest | ListGroups
Response: TypeAlias = (
    JoinGroupResponse
    | SyncGroupResponse
    | HeartbeatResponse
    | LeaveGroupResponse
    | OffsetCommitResponse
    | TxnOffsetCommitResponse
    | OffsetFetchResponse
    | OffsetDeleteResponse
    | DescribeGroupResponse
    | ListGroupsResponse
    | DeleteGroupResponse
)


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
    if isinstance(request, groups.TxnOffsetCommit):
        return groups.TxnOffsetCommitResponse(
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


def error_of_txn_offset_commit(error: ErrorCode, version: int) -> ErrorCode:
    """Return the error for a producer whose transaction could not be verified, or whose offsets
    could not be written. Clients of this version know the error."""
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return _TXN_OFFSET_ERRORS.get(error, error)


_ABORTABLE_SINCE = 4
"""The version of TxnOffsetCommit whose clients know TRANSACTION_ABORTABLE."""
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
_TXN_OFFSET_ERRORS = {
    **_OFFSET_APPEND_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    # The transaction's coordinator did not answer: clients retry without a new lookup of the group.
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
}
