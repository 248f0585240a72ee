"""One group: its members, its state and its generation.

    Empty --------------> PreparingRebalance     a member joins
    PreparingRebalance -> CompletingRebalance    all members have joined, or the time is over
    CompletingRebalance -> Stable                the leader's assignment is written
    Stable, CompletingRebalance -> PreparingRebalance   a member joins, leaves or changes
    PreparingRebalance -> Empty                  no member is left
    Empty -> Dead                                the group is being removed

Invariants: a generation is never used twice. The leader of a group with members is one of them.
All members have a protocol in common.
"""

from collections.abc import Collection, Mapping
from enum import StrEnum

from tidelog.core.errors import ErrorCode
from tidelog.core.groups.membership.member import Member, MemberMemory, size_of_protocols
from tidelog.core.groups.membership.subscription import subscribed_topics
from tidelog.core.groups.messages import CONSUMER, JoinedMember
from tidelog.core.groups.offsets import Offsets
from tidelog.core.groups.records import GroupValue, MemberValue

_GENERATION_MAX = 0x7FFF_FFFF
"""The largest number that can be written; the next generation is 1 again."""


class GroupState(StrEnum):
    """The states, with the names that DescribeGroups returns."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Group:
    """The state of a group, without its timers."""

    def __init__(self, group_id: str, wall_ms: int, memory: MemberMemory | None = None) -> None:
        self.group_id = group_id
        self._memory = memory or MemberMemory()
        self._assigned_bytes = 0
        self.state = GroupState.EMPTY
        self.state_since_ms: int | None = wall_ms
        """Wall clock. None: not in the log."""
        self.protocol_type: str | None = None
        """None: the group never had members, only offsets."""
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.leader_id: str | None = None
        self.subscribed_topics: frozenset[str] | None = None
        """The topics of a consumer group; None if unknown."""
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by instance id."""
        self.pending_members: set[str] = set()
        """Member ids that were assigned and have not been used to join yet."""
        self.pending_sync: set[str] = set()
        """Members of this generation that have not sent SyncGroup."""
        self.assigned_generation = 0
        """The latest generation with an assignment; its record may not be committed yet."""
        self.awaiting_join = 0
        """The number of members that wait for the end of PreparingRebalance."""
        self.initial_delay_ms: int | None = None
        """The present delay that lets further members join a new group; None: no delay."""
        self.initial_remaining_ms = 0
        self.new_member_added = False
        """A member joined during the initial delay."""
        self.offsets = Offsets()
        self._supporters: dict[str, int] = {}
        """The number of members that support each protocol."""

    # -- members --------------------------------------------------------------------------

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self.members[member.member_id] = member
        self.pending_members.discard(member.member_id)
        self._count(member, 1)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending member id. A waiting join must have been answered."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            self._memory.held -= len(member.assignment)
            self._assigned_bytes -= len(member.assignment)
            if member.group_instance_id is not None:
                del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_members.discard(member_id)
        self.pending_sync.discard(member_id)

    def rename_static(self, member: Member, member_id: str) -> None:
        """Give a static member, which was restarted, its new member id."""
        assert member.group_instance_id is not None
        if self.leader_id == member.member_id:
            self.leader_id = member_id
        del self.members[member.member_id]
        if member.member_id in self.pending_sync:
            self.pending_sync.remove(member.member_id)
            self.pending_sync.add(member_id)
        member.member_id = member_id
        self.members[member_id] = member
        self.static_members[member.group_instance_id] = member_id

    def change(
        self, member: Member, protocols: dict[str, bytes], session_ms: int, rebalance_ms: int
    ) -> None:
        """Update a member that joins again, maybe with other metadata and time-outs."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)
        member.session_timeout_ms = session_ms
        member.rebalance_timeout_ms = rebalance_ms

    def await_join(self, member: Member, requester: object) -> object | None:
        """Let a requester wait for the join. Return the requester that waited before."""
        before, member.join_requester = member.join_requester, requester
        if before is None:
            self.awaiting_join += 1
        return before

    def end_join(self, member: Member) -> object | None:
        """End the wait for the join. Return the requester to answer."""
        requester, member.join_requester = member.join_requester, None
        if requester is not None:
            self.awaiting_join -= 1
        return requester

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Check that this is a member, and the current one of its instance."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    @property
    def all_joined(self) -> bool:
        return self.awaiting_join == len(self.members) and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance time-out of any member."""
        return max((one.rebalance_timeout_ms for one in self.members.values()), default=0)

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """Return all members with their metadata for the chosen protocol."""
        name = self.protocol_name or ""
        return tuple(
            JoinedMember(one.member_id, one.group_instance_id, one.protocols[name])
            for one in self.members.values()
        )

    # -- protocols ------------------------------------------------------------------------

    def supports(self, protocol_type: str, names: Collection[str]) -> bool:
        """Whether a member with these protocols can join."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(names)
        members = len(self.members)
        return protocol_type == self.protocol_type and any(
            self._supporters.get(name, 0) == members for name in names
        )

    def select_protocol(self) -> str:
        """Return the protocol with the most votes: each member votes among those that all
        support."""
        members = len(self.members)
        candidates = {name for name, count in self._supporters.items() if count == members}
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Set each member's assignment; members that are not named get an empty one."""
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self.count_assignments()

    def count_assignments(self) -> None:
        """Update the memory count by the size of the members' assignments."""
        size = sum(len(member.assignment) for member in self.members.values())
        self._memory.held += size - self._assigned_bytes
        self._assigned_bytes = size

    def release(self) -> None:
        """Free the members' memory: this broker no longer keeps the group."""
        for member in self.members.values():
            self._memory.held -= size_of_protocols(member.protocols)
        self._memory.held -= self._assigned_bytes
        self._memory = MemberMemory()

    def _count(self, member: Member, change: int) -> None:
        self._memory.held += change * size_of_protocols(member.protocols)
        for name in member.protocols:
            count = self._supporters.get(name, 0) + change
            if count:
                self._supporters[name] = count
            else:
                del self._supporters[name]

    # -- states and generations -----------------------------------------------------------

    def enter(self, state: GroupState, wall_ms: int) -> None:
        self.state = state
        self.state_since_ms = wall_ms

    def elect_joined_leader(self) -> bool:
        """Make a member that has joined the leader. Return False if no member has."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_requester is not None:
            return True
        for member in self.members.values():
            if member.join_requester is not None:
                self.leader_id = member.member_id
                return True
        return False

    def begin_generation(self, wall_ms: int) -> None:
        """Begin a generation with the members that joined; without any the group is Empty."""
        self.generation_id = self.generation_id % _GENERATION_MAX + 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.find_subscribed_topics()
        empty = not self.members
        self.enter(GroupState.EMPTY if empty else GroupState.COMPLETING_REBALANCE, wall_ms)

    def find_subscribed_topics(self) -> None:
        """Read the topics from the members' metadata, if they are consumers."""
        if self.protocol_type != CONSUMER:
            self.subscribed_topics = None
        else:
            self.subscribed_topics = subscribed_topics(
                one.metadata for one in self.joined_members()
            )

    @property
    def is_unused(self) -> bool:
        """Whether the group has no state worth keeping."""
        return (
            self.state is GroupState.EMPTY
            and self.generation_id == 0
            and not self.pending_members
            and self.offsets.is_empty
        )

    # -- records --------------------------------------------------------------------------

    def to_value(self, assignments: dict[str, bytes]) -> GroupValue:
        """Return the record of the generation, with an assignment for each member."""
        name = self.protocol_name or ""
        members = [
            MemberValue(
                one.member_id,
                one.group_instance_id,
                one.client_id,
                one.client_host,
                one.rebalance_timeout_ms,
                one.session_timeout_ms,
                one.protocols[name],
                assignments.get(one.member_id, b""),
            )
            for one in self.members.values()
        ]
        return GroupValue(
            self.protocol_type or "",
            self.generation_id,
            self.protocol_name,
            self.leader_id,
            self.state_since_ms,
            members,
        )


def restored(
    group_id: str, value: GroupValue, offsets: Offsets, memory: MemberMemory | None = None
) -> Group:
    """Return the group of a record. Of a member's protocols only the chosen one is known. Of two
    members with the same id or instance, the first counts."""
    group = Group(group_id, 0, memory)
    group.offsets = offsets
    group.generation_id = max(value.generation, 0)
    name = value.protocol or ""
    for one in value.members:
        if one.member_id in group.members or one.group_instance_id in group.static_members:
            continue
        member = Member(
            one.member_id,
            one.group_instance_id,
            one.client_id,
            one.client_host,
            one.rebalance_timeout,
            one.session_timeout,
            {name: one.subscription},
            one.assignment,
        )
        group.add(member, value.protocol_type)
    group.count_assignments()
    group.protocol_type = value.protocol_type or None
    group.protocol_name = name if group.members else value.protocol
    if value.leader in group.members:
        group.leader_id = value.leader
    group.state = GroupState.STABLE if group.members else GroupState.EMPTY
    group.state_since_ms = value.current_state_timestamp
    group.find_subscribed_topics()
    return group
