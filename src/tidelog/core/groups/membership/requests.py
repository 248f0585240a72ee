"""The requests of members: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Invariants: a static instance is one member at a time; its former member id is fenced at once.
A member that joins again unchanged causes no rebalance. No member gets an assignment before it is
committed.
"""

from collections import deque

from tidelog.core.coordinator.shard import Outbox, Timers
from tidelog.core.errors import ErrorCode
from tidelog.core.groups.config import GroupConfig
from tidelog.core.groups.membership.group import Group, GroupState
from tidelog.core.groups.membership.member import (
    JOIN_BYTES_MAX,
    Member,
    MemberMemory,
    by_name,
    size_of_protocols,
)
from tidelog.core.groups.membership.rebalance import Rebalance, Timer, TimerKind
from tidelog.core.groups.messages import (
    NO_MEMBER,
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    LeftMember,
    SyncGroup,
    SyncGroupResponse,
    error_of_group_append,
)
from tidelog.core.slotted import replace

_MEMBER_ID_REQUIRED_SINCE = 4
_SKIP_ASSIGNMENT_SINCE = 9
_MEMBER_ID_BYTES_MAX = 0x7FFF
"""The longest string that can be written."""
PENDING_MAX = 10_000
"""The limit of member ids that were assigned and not used yet."""
GIVEN_MIN = 64


class Joining:
    """Serves JoinGroup."""

    def __init__(
        self,
        config: GroupConfig,
        timers: Timers[Timer],
        outbox: Outbox,
        rebalance: Rebalance,
        memory: MemberMemory,
    ) -> None:
        self._config = config
        self._memory = memory
        self._timers = timers
        self._outbox = outbox
        self._rebalance = rebalance
        self._given: deque[tuple[Group, str]] = deque()
        """Groups and assigned member ids, oldest first; some are members by now."""
        self._drop_joined_at = GIVEN_MIN

    def pop_oldest_pending(self) -> tuple[str, str] | None:
        """Remove and return the oldest group and unused member id, if there are too many."""
        if len(self._given) <= PENDING_MAX:
            return None
        group, member_id = self._given.popleft()
        return group.group_id, member_id

    def _drop_joined(self) -> None:
        """Drop ids whose members joined or left, whenever the list has doubled."""
        if len(self._given) < self._drop_joined_at:
            return
        self._given = deque(
            (group, member_id)
            for group, member_id in self._given
            if member_id in group.pending_members and group.state is not GroupState.DEAD
        )
        self._drop_joined_at = 2 * len(self._given) + GIVEN_MIN

    def join(self, group: Group, requester: object, request: JoinGroup, now_ms: int) -> None:
        """Serve a join. The caller has checked the group id and the session time-out."""
        protocols = by_name(request.protocols)
        size = size_of_protocols(protocols)
        if size > JOIN_BYTES_MAX:
            self._refuse(requester, request.member_id, ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif not self._memory.has_room_for(size):
            self._refuse(requester, request.member_id, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        elif not self._has_room(group, request.member_id):
            member = group.members.get(request.member_id)
            if member is not None:
                self._rebalance.discard(group, member)
            self._refuse(requester, NO_MEMBER, ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif group.state is GroupState.DEAD:
            self._refuse(requester, request.member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif not group.supports(request.protocol_type, protocols):
            self._refuse(requester, request.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif request.member_id == NO_MEMBER:
            self._join_new(group, requester, request, now_ms)
        elif request.member_id in group.pending_members and request.group_instance_id is None:
            self._timers.cancel(Timer(TimerKind.PENDING, group.group_id, request.member_id))
            self._add(group, requester, request, request.member_id, now_ms)
        else:
            self._join_again(group, requester, request, now_ms)
        self._rebalance.try_to_complete(group, now_ms)

    def _has_room(self, group: Group, member_id: str) -> bool:
        """Whether the group is below `group.max.size`.

        In PreparingRebalance members that wait are counted: the last ones to join are refused,
        even if they were members before.
        """
        member = group.members.get(member_id)
        if group.state in (GroupState.EMPTY, GroupState.DEAD):
            return True
        if group.state is GroupState.PREPARING_REBALANCE:
            waits = member is not None and member.join_requester is not None
            return waits or group.awaiting_join < self._config.group_max_size
        return member is not None or len(group.members) < self._config.group_max_size

    def _refuse(self, requester: object, member_id: str, error: ErrorCode) -> None:
        self._outbox.answer(requester, JoinGroupResponse(error, member_id))

    # -- without a member id --------------------------------------------------------------

    def _join_new(self, group: Group, requester: object, request: JoinGroup, now_ms: int) -> None:
        instance = request.group_instance_id
        member_id = f"{request.client_id if instance is None else instance}-{request.fresh_id}"
        if len(member_id.encode()) > _MEMBER_ID_BYTES_MAX:
            self._refuse(requester, NO_MEMBER, ErrorCode.INVALID_REQUEST)
            return
        if instance is not None:
            known = group.static_members.get(instance)
            if known is not None:
                member = group.members[known]
                self._replace_static(group, member, requester, request, member_id, now_ms)
                return
        elif request.version >= _MEMBER_ID_REQUIRED_SINCE:
            # A client that gives up and retries must not leave a member behind each time.
            group.pending_members.add(member_id)
            self._drop_joined()
            self._given.append((group, member_id))
            timer = Timer(TimerKind.PENDING, group.group_id, member_id)
            self._timers.arm(timer, now_ms + request.session_timeout_ms)
            self._refuse(requester, member_id, ErrorCode.MEMBER_ID_REQUIRED)
            return
        self._add(group, requester, request, member_id, now_ms)

    def _add(
        self, group: Group, requester: object, request: JoinGroup, member_id: str, now_ms: int
    ) -> None:
        member = Member(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            _rebalance_timeout_ms(request),
            request.session_timeout_ms,
            by_name(request.protocols),
            is_new=True,
        )
        if group.state is GroupState.PREPARING_REBALANCE and group.generation_id == 0:
            group.new_member_added = True
        group.add(member, request.protocol_type)
        group.await_join(member, requester)
        self._rebalance.await_new_member(group, member, now_ms)
        self._rebalance.maybe_prepare(group, now_ms)

    # -- static members -------------------------------------------------------------------

    def _replace_static(
        self,
        group: Group,
        member: Member,
        requester: object,
        request: JoinGroup,
        member_id: str,
        now_ms: int,
    ) -> None:
        """Continue a restarted static member under its new member id."""
        before = _Before(group, member)
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self._rebalance.answer_join(group, member, JoinGroupResponse(fenced, before.member_id))
        self._rebalance.answer_sync(member, SyncGroupResponse(fenced))
        self._rebalance.end_session(group, before.member_id)
        group.rename_static(member, member_id)
        self._change(group, member, request)
        group.await_join(member, requester)
        self._rebalance.keep_alive(group, member, now_ms)
        if group.state is GroupState.COMPLETING_REBALANCE:
            # The leader may be assigning to the former member id.
            self._rebalance.prepare(group, now_ms)
        elif group.state is GroupState.STABLE:
            if group.select_protocol() == group.protocol_name:
                skips = request.version >= _SKIP_ASSIGNMENT_SINCE
                self._store_replaced(group, member, before, skips)
            else:
                self._rebalance.prepare(group, now_ms)

    def _store_replaced(self, group: Group, member: Member, before: "_Before", skips: bool) -> None:
        """Write the member's new id without a rebalance; answer its join when it is committed.

        It must not assign as a leader, because a stable group accepts no assignment. Since
        version 9 the response can say so. For older versions the response names the leader from
        before: if that was the member itself, under its former id, so that it acts as a follower.
        """
        group.find_subscribed_topics()
        generation_id, member_id = group.generation_id, member.member_id

        def written(error: ErrorCode, now_ms: int) -> None:
            undisturbed = (
                group.state is GroupState.STABLE
                and group.generation_id == generation_id
                and group.members.get(member_id) is member
            )
            if not undisturbed:
                return  # It is part of a rebalance by now, or was answered.
            if error is not ErrorCode.NONE:
                self._undo_replacement(group, member, before, error, now_ms)
                return
            response = self._rebalance.generation_of(group, member)
            if skips:
                leads = member_id == group.leader_id
                response = replace(response, skip_assignment=leads)
            else:
                response = replace(response, leader=before.leader_id, members=())
            self._rebalance.answer_join(group, member, response)
            # Its session may have timed out while it waited.
            self._rebalance.keep_alive(group, member, now_ms)

        assignments = {one.member_id: one.assignment for one in group.members.values()}
        self._rebalance.store(group, assignments, written)

    def _undo_replacement(
        self, group: Group, member: Member, before: "_Before", error: ErrorCode, now_ms: int
    ) -> None:
        """Restore the former member id: the new one could not be written."""
        response = replace(
            self._rebalance.generation_of(group, member),
            error_code=error,
            member_id=NO_MEMBER,
            leader=before.leader_id,
            members=(),
        )
        self._rebalance.answer_join(group, member, response)
        self._rebalance.end_session(group, member.member_id)
        group.rename_static(member, before.member_id)
        group.change(
            member, before.protocols, before.session_timeout_ms, before.rebalance_timeout_ms
        )
        group.find_subscribed_topics()
        self._rebalance.keep_alive(group, member, now_ms)

    # -- with a member id -----------------------------------------------------------------

    def _join_again(self, group: Group, requester: object, request: JoinGroup, now_ms: int) -> None:
        error = group.check_member(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            self._refuse(requester, request.member_id, error)
            return
        member = group.members[request.member_id]
        if self._changes_nothing(group, member, request):
            # It may not have received the response.
            self._outbox.answer(requester, self._rebalance.generation_of(group, member))
            return
        self._change(group, member, request)
        superseded = group.await_join(member, requester)
        if superseded is not None:
            self._refuse(superseded, member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)
        self._rebalance.maybe_prepare(group, now_ms)

    def _changes_nothing(self, group: Group, member: Member, request: JoinGroup) -> bool:
        if group.state is GroupState.COMPLETING_REBALANCE:
            return member.matches(request.protocols)
        if group.state is GroupState.STABLE:
            # A leader that joins again wants to assign again: it may have seen new partitions.
            return member.member_id != group.leader_id and member.matches(request.protocols)
        return False

    def _change(self, group: Group, member: Member, request: JoinGroup) -> None:
        protocols = by_name(request.protocols)
        rebalance_ms = _rebalance_timeout_ms(request)
        group.change(member, protocols, request.session_timeout_ms, rebalance_ms)


class _Before:
    """The state of a static member before it was restarted."""

    __slots__ = (
        "leader_id",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(self, group: Group, member: Member) -> None:
        self.leader_id = group.leader_id or NO_MEMBER
        self.member_id = member.member_id
        self.protocols = member.protocols
        self.rebalance_timeout_ms = member.rebalance_timeout_ms
        self.session_timeout_ms = member.session_timeout_ms


def _rebalance_timeout_ms(request: JoinGroup) -> int:
    """Return the rebalance time-out. Version 0 has only the session time-out."""
    timeout = request.rebalance_timeout_ms
    return request.session_timeout_ms if timeout is None else timeout


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
