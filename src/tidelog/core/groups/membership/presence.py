"""SyncGroup, Heartbeat and LeaveGroup: the requests of a member of a generation.

Invariant: no member gets an assignment before it is committed.
"""

from tidelog.core.coordinator.shard import Outbox
from tidelog.core.errors import ErrorCode
from tidelog.core.groups.membership.group import Group, GroupState
from tidelog.core.groups.membership.member import Member, MemberMemory
from tidelog.core.groups.membership.rebalance import Rebalance
from tidelog.core.groups.messages import (
    NO_MEMBER,
    Heartbeat,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    LeftMember,
    SyncGroup,
    SyncGroupResponse,
)
from tidelog.core.groups.refusals import error_of_group_append


class Presence:
    """Serves the members of a generation."""

    def __init__(self, outbox: Outbox, rebalance: Rebalance, memory: MemberMemory) -> None:
        self._outbox = outbox
        self._memory = memory
        self._rebalance = rebalance

    # -- SyncGroup ------------------------------------------------------------------------

    def sync(self, group: Group, requester: object, request: SyncGroup, now_ms: int) -> None:
        error = self._check_sync(group, request)
        if error is not ErrorCode.NONE:
            self._outbox.answer(requester, SyncGroupResponse(error))
            return
        member = group.members[request.member_id]
        size = sum(len(assignment) for _, assignment in request.assignments)
        if member.member_id == group.leader_id and not self._memory.has_room_for(size):
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            self._outbox.answer(requester, SyncGroupResponse(error))
            return
        self._rebalance.sync_received(group, member.member_id)
        if group.state is GroupState.STABLE:
            response = self._rebalance.assignment_of(group, member, ErrorCode.NONE)
            self._outbox.answer(requester, response)
            self._rebalance.keep_alive(group, member, now_ms)
            return
        superseded = SyncGroupResponse(ErrorCode.REBALANCE_IN_PROGRESS)
        self._rebalance.answer_sync(member, superseded)
        member.sync_requester = requester
        if member.member_id == group.leader_id and group.assigned_generation != group.generation_id:
            # Only once: the last assignment in the log must be the one that members get.
            group.assigned_generation = group.generation_id
            self._store_assignments(group, dict(request.assignments))

    def _check_sync(self, group: Group, request: SyncGroup) -> ErrorCode:
        if group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = group.check_member(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if request.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type not in (None, group.protocol_type):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name not in (None, group.protocol_name):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _store_assignments(self, group: Group, assignments: dict[str, bytes]) -> None:
        generation_id = group.generation_id

        def written(error: ErrorCode, now_ms: int) -> None:
            completing = group.state is GroupState.COMPLETING_REBALANCE
            if not completing or group.generation_id != generation_id:
                return  # A member joined meanwhile: there will be another assignment.
            if error is ErrorCode.NONE:
                self._rebalance.assign(group, assignments, now_ms)
            else:
                self._rebalance.refuse_syncs(group, error, now_ms)
                self._rebalance.prepare(group, now_ms)

        self._rebalance.store(group, assignments, written)

    # -- Heartbeat ------------------------------------------------------------------------

    def beat(self, group: Group, request: Heartbeat, now_ms: int) -> ErrorCode:
        """Keep a member's session alive. Heartbeats before the assignment count too."""
        if group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = group.check_member(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if request.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        self._rebalance.keep_alive(group, group.members[request.member_id], now_ms)
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    # -- LeaveGroup -----------------------------------------------------------------------

    def leave(self, group: Group, requester: object, request: LeaveGroup, now_ms: int) -> None:
        """Remove members. If none is left, answer when the empty group is committed."""
        if group.state is GroupState.DEAD:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            self._outbox.answer(requester, LeaveGroupResponse(error))
            return
        token = self._outbox.next_token
        left = tuple(
            LeftMember(one.member_id, one.group_instance_id, self._leave(group, one, now_ms))
            for one in request.members
        )
        response = LeaveGroupResponse(ErrorCode.NONE, left)
        if self._outbox.next_token == token:
            self._outbox.answer(requester, response)
            return

        def written(error: ErrorCode, _now_ms: int) -> None:
            failed = LeaveGroupResponse(error_of_group_append(error))
            self._outbox.answer(requester, response if error is ErrorCode.NONE else failed)

        self._outbox.also_when_written(token, written)

    def _leave(self, group: Group, leaving: LeavingMember, now_ms: int) -> ErrorCode:
        if leaving.member_id in group.pending_members:
            self._rebalance.remove_pending(group, leaving.member_id, now_ms)
            return ErrorCode.NONE
        member = self._who_leaves(group, leaving)
        if isinstance(member, ErrorCode):
            return member
        self._rebalance.remove(group, member, now_ms)
        return ErrorCode.NONE

    def _who_leaves(self, group: Group, leaving: LeavingMember) -> Member | ErrorCode:
        """Find the member. An operator may name a static member by its instance alone."""
        instance = leaving.group_instance_id
        if leaving.member_id == NO_MEMBER:
            member_id = None if instance is None else group.static_members.get(instance)
            return ErrorCode.UNKNOWN_MEMBER_ID if member_id is None else group.members[member_id]
        error = group.check_member(leaving.member_id, instance)
        return group.members[leaving.member_id] if error is ErrorCode.NONE else error
