"""What a group coordinator is asked and what it answers.

Field names are Kafka's. `None` stands for null, and for -1 where that means "not known". A
generation of -1 stays -1: it is what a consumer outside of any group says.

Always true: one request gets exactly one response, of the class of the same name. Requests that
name many groups on the wire (OffsetFetch, DescribeGroups, DeleteGroups) are one request for each
group here.
"""

from typing import NamedTuple, TypeAlias

from tidelog.core.errors import ErrorCode
from tidelog.core.slotted import slotted
from tidelog.core.types import LeaderEpoch, Offset, TopicId, TopicPartition

NO_GENERATION = -1
NO_OFFSET = -1
NO_MEMBER = ""
CONSUMER = "consumer"
"""The protocol type of consumers, whose metadata a broker may read."""
CLASSIC = "classic"
"""The type of all groups here, as ListGroups tells it."""

# -- members ----------------------------------------------------------------------------------


@slotted(frozen=True)
class JoinGroup:
    """Take me into the group. Without a member id it gets one: of its name and `fresh_id`, a
    random text that whoever asks has to bring."""

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int | None
    """None (version 0): the session's."""
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: list[tuple[str, bytes]]
    client_id: str
    client_host: str
    fresh_id: str
    version: int
    """From 4 on a new member has to come back with its id; from 9 on it may skip assigning."""
    reason: str | None = None


class JoinedMember(NamedTuple):
    """A member as the leader gets to know it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@slotted(frozen=True)
class JoinGroupResponse:
    """Only the leader is told of the members. On errors protocol and leader are None and empty;
    the handler spells None as its version can."""

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
    """What is assigned to me? The leader brings everybody's assignments, by member id."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: list[tuple[str, bytes]]


@slotted(frozen=True)
class SyncGroupResponse:
    error_code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@slotted(frozen=True)
class Heartbeat:
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


@slotted(frozen=True)
class HeartbeatResponse:
    error_code: ErrorCode


class LeavingMember(NamedTuple):
    """Who leaves: by member id, or by instance id with an empty member id."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


@slotted(frozen=True)
class LeaveGroup:
    """Versions 0 to 2 name one member by its id: a list of one."""

    group_id: str
    members: list[LeavingMember]


class LeftMember(NamedTuple):
    """How it went for one of the members."""

    member_id: str
    group_instance_id: str | None
    error_code: ErrorCode


@slotted(frozen=True)
class LeaveGroupResponse:
    """`error_code` is about the whole request. `single_error` is what versions 0 to 2 say."""

    error_code: ErrorCode
    members: tuple[LeftMember, ...] = ()

    @property
    def single_error(self) -> ErrorCode:
        if self.error_code is not ErrorCode.NONE or not self.members:
            return self.error_code
        return self.members[0].error_code


# -- offsets ----------------------------------------------------------------------------------


class OffsetToCommit(NamedTuple):
    """Where a group has got to in one partition."""

    topic: str
    partition: int
    committed_offset: Offset
    committed_leader_epoch: LeaderEpoch | None = None
    committed_metadata: str = ""
    topic_id: TopicId | None = None


@slotted(frozen=True)
class OffsetCommit:
    """Topics that the cluster does not have were sorted out by the handler. `retention_time_ms`
    (versions 2 to 4) lets the offsets expire that long after their commit."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    offsets: list[OffsetToCommit]
    retention_time_ms: int | None = None
    version: int = 8
    """From 9 on a member of a group that is not there hears GROUP_ID_NOT_FOUND, before that
    ILLEGAL_GENERATION."""


class PartitionError(NamedTuple):
    """How it went for one of the partitions."""

    topic: str
    partition: int
    error_code: ErrorCode


@slotted(frozen=True)
class OffsetCommitResponse:
    """One entry for each entry of the request, in its order."""

    partitions: tuple[PartitionError, ...]


@slotted(frozen=True)
class OffsetFetch:
    """Where has the group got to? `partitions` None: wherever it committed anything."""

    group_id: str
    partitions: list[TopicPartition] | None
    require_stable: bool = False


class FetchedOffset(NamedTuple):
    """A committed offset, or `NO_OFFSET` where there is none."""

    topic: str
    partition: int
    committed_offset: Offset
    committed_leader_epoch: LeaderEpoch | None
    metadata: str
    error_code: ErrorCode


@slotted(frozen=True)
class OffsetFetchResponse:
    error_code: ErrorCode
    partitions: tuple[FetchedOffset, ...] = ()


@slotted(frozen=True)
class OffsetDelete:
    """Forget committed offsets. Topics that do not exist were sorted out by the handler."""

    group_id: str
    partitions: list[TopicPartition]


@slotted(frozen=True)
class OffsetDeleteResponse:
    """With an error for the whole request there are no partitions."""

    error_code: ErrorCode
    partitions: tuple[PartitionError, ...] = ()


# -- groups -----------------------------------------------------------------------------------


@slotted(frozen=True)
class DescribeGroup:
    """Up to version 5 an unknown group is Dead and no error; from 6 on it is one as well."""

    group_id: str
    version: int = 5


class DescribedMember(NamedTuple):
    """A member as an operator sees it; metadata is empty unless a protocol was chosen."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


@slotted(frozen=True)
class DescribeGroupResponse:
    error_code: ErrorCode
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: tuple[DescribedMember, ...] = ()
    error_message: str | None = None


@slotted(frozen=True)
class ListGroups:
    """All groups of this shard in one of the states and types; no filter lets all pass. Names of
    states and types are matched without regard to case."""

    states_filter: list[str]
    types_filter: list[str]


class ListedGroup(NamedTuple):
    """One line of a list of groups."""

    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


@slotted(frozen=True)
class ListGroupsResponse:
    error_code: ErrorCode
    groups: tuple[ListedGroup, ...] = ()


@slotted(frozen=True)
class DeleteGroup:
    group_id: str


@slotted(frozen=True)
class DeleteGroupResponse:
    error_code: ErrorCode


GroupRequest: TypeAlias = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
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
    | OffsetFetchResponse
    | OffsetDeleteResponse
    | DescribeGroupResponse
    | ListGroupsResponse
    | DeleteGroupResponse
)
