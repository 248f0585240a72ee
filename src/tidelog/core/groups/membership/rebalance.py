"""The transition of a group from one generation to the next.

When a member joins, leaves or changes, all members must join again. When all have, or the time is
over, a generation begins; its leader assigns, and every member requests its assignment.

Invariants: a member that is removed from a group is answered first, if it waits. A group in
PreparingRebalance has a timer that ends this state.
"""

from enum import IntEnum
from typing import NamedTuple

from tidelog.core.coordinator.shard import OnWritten, Outbox, Timers
from tidelog.core.errors import ErrorCode
from tidelog.core.groups.config import GroupConfig
from tidelog.core.groups.membership.group import Group, GroupState
from tidelog.core.groups.membership.member import Member
from tidelog.core.groups.messages import (
    NO_MEMBER,
    JoinGroupResponse,
    SyncGroupResponse,
    error_of_group_append,
)
from tidelog.core.groups.records import GroupKey, encode_group_value, encode_key
from tidelog.core.wall_clock import WallClock


class TimerKind(IntEnum):
    """The action of a timer. Timers of the same millisecond fire in this order."""

    SESSION = 0
    """Remove a member that sent no heartbeat."""
    PENDING = 1
    """Forget a member id that was assigned and never used."""
    JOIN = 2
    """End the join phase of a rebalance."""
    SYNC = 3
    """Remove members that joined but sent no SyncGroup."""
    EXPIRE = 4
    """Delete expired offsets and empty groups."""
    DELETED_TOPICS = 5
    """Delete offsets of deleted topics."""


class Timer(NamedTuple):
    """The action, and the group and member it is about. There is at most one timer for each key."""

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a new member may wait to join: it can't send heartbeats until then."""


class Rebalance:
    """Moves groups from state to state."""

    def __init__(
        self, config: GroupConfig, timers: Timers[Timer], outbox: Outbox, wall: WallClock
    ) -> None:
        self._config = config
        self._timers = timers
        self._outbox = outbox
        self._wall = wall
        """For the time when a group entered its state, by which offsets expire."""

    # -- sessions -------------------------------------------------------------------------

    def keep_alive(self, group: Group, member: Member, now_ms: int) -> None:
        """Restart a member's session: it sent a request."""
        self._session(group, member.member_id, now_ms + member.session_timeout_ms)

    def await_new_member(self, group: Group, member: Member, now_ms: int) -> None:
        self._session(group, member.member_id, now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)

    def end_session(self, group: Group, member_id: str) -> None:
        self._timers.cancel(Timer(TimerKind.SESSION, group.group_id, member_id))

    def session_timed_out(self, group: Group, member_id: str, now_ms: int) -> None:
        """Remove a member whose session timed out, unless it waits for a rebalance."""
        member = group.members.get(member_id)
        if member is not None and not member.is_excused:
            self.remove(group, member, now_ms)

    def _session(self, group: Group, member_id: str, until_ms: int) -> None:
        self._timers.arm(Timer(TimerKind.SESSION, group.group_id, member_id), until_ms)

    # -- removal --------------------------------------------------------------------------

    def remove(self, group: Group, member: Member, now_ms: int) -> None:
        """Remove a member that left or timed out, and rebalance the others."""
        self.discard(group, member)
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.prepare(group, now_ms)
        else:
            self.try_to_complete(group, now_ms)

    def remove_pending(self, group: Group, member_id: str, now_ms: int) -> None:
        """Forget a member id that was assigned and never used."""
        self._timers.cancel(Timer(TimerKind.PENDING, group.group_id, member_id))
        group.remove(member_id)
        self.try_to_complete(group, now_ms)

    def discard(self, group: Group, member: Member) -> None:
        """Remove a member, and answer its waiting requests with an error."""
        error = ErrorCode.UNKNOWN_MEMBER_ID
        self.answer_join(group, member, JoinGroupResponse(error, NO_MEMBER))
        self.answer_sync(member, SyncGroupResponse(error))
        group.remove(member.member_id)
        self.end_session(group, member.member_id)

    # -- PreparingRebalance ---------------------------------------------------------------

    def maybe_prepare(self, group: Group, now_ms: int) -> None:
        """Begin a rebalance, unless one has begun."""
        if group.state not in (GroupState.PREPARING_REBALANCE, GroupState.DEAD):
            self.prepare(group, now_ms)

    def prepare(self, group: Group, now_ms: int) -> None:
        """Begin a rebalance: all members must join, also those that wait for an assignment."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.refuse_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        group.pending_sync.clear()
        self._timers.cancel(Timer(TimerKind.SYNC, group.group_id))
        timeout_ms = max(group.rebalance_timeout_ms, 0)
        if group.state is GroupState.EMPTY:
            delay_ms = self._config.group_initial_rebalance_delay_ms
            group.initial_delay_ms = delay_ms
            group.initial_remaining_ms = max(timeout_ms - delay_ms, 0)
            self._await_joins(group, now_ms + delay_ms)
        else:
            group.initial_delay_ms = None
            self._await_joins(group, now_ms + timeout_ms)
        group.enter(GroupState.PREPARING_REBALANCE, self._wall.latest_ms(now_ms))
        self.try_to_complete(group, now_ms)

    def try_to_complete(self, group: Group, now_ms: int) -> None:
        """Begin the generation if all members have joined. The first one waits for its delay."""
        preparing = group.state is GroupState.PREPARING_REBALANCE
        if preparing and group.initial_delay_ms is None and group.all_joined:
            self._complete(group, now_ms)

    def join_phase_ended(self, group: Group, now_ms: int) -> None:
        """End the join phase. In a new group, members that just joined extend it."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        if group.initial_delay_ms is None or not (
            group.new_member_added and group.initial_remaining_ms
        ):
            self._complete(group, now_ms)
            return
        group.new_member_added = False
        delay_ms = min(self._config.group_initial_rebalance_delay_ms, group.initial_remaining_ms)
        group.initial_remaining_ms = max(group.initial_remaining_ms - group.initial_delay_ms, 0)
        group.initial_delay_ms = delay_ms
        self._await_joins(group, now_ms + delay_ms)

    def _await_joins(self, group: Group, until_ms: int) -> None:
        self._timers.arm(Timer(TimerKind.JOIN, group.group_id), until_ms)

    def _complete(self, group: Group, now_ms: int) -> None:
        """Begin the generation with the members that have joined. Static members may be absent
        for a while, so they stay until their session times out."""
        self._timers.cancel(Timer(TimerKind.JOIN, group.group_id))
        group.initial_delay_ms = None
        for member in list(group.members.values()):
            if member.join_requester is None and not member.is_static:
                self.discard(group, member)
        if not group.elect_joined_leader() and group.members:
            # Only static members are left, and none has joined. Their sessions end this state.
            self._await_joins(group, now_ms + max(group.rebalance_timeout_ms, 1))
            return
        group.begin_generation(self._wall.latest_ms(now_ms))
        if group.state is GroupState.EMPTY:
            self.store(group, {}, _ignore_outcome)
        else:
            self._begin(group, now_ms)

    def _begin(self, group: Group, now_ms: int) -> None:
        for member in group.members.values():
            self.answer_join(group, member, self.generation_of(group, member))
            self.keep_alive(group, member, now_ms)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        until_ms = now_ms + max(group.rebalance_timeout_ms, 1)
        self._timers.arm(Timer(TimerKind.SYNC, group.group_id), until_ms)

    def generation_of(self, group: Group, member: Member) -> JoinGroupResponse:
        """Return the response to a join; the leader's response has all members."""
        leads = member.member_id == group.leader_id
        return JoinGroupResponse(
            ErrorCode.NONE,
            member.member_id,
            group.generation_id,
            group.protocol_type,
            group.protocol_name,
            group.leader_id or NO_MEMBER,
            members=group.joined_members() if leads else (),
        )

    def answer_join(self, group: Group, member: Member, response: JoinGroupResponse) -> None:
        """Answer a member's join, if it waits for that."""
        requester = group.end_join(member)
        if requester is not None:
            self._outbox.answer(requester, response)

    # -- CompletingRebalance --------------------------------------------------------------

    def sync_phase_ended(self, group: Group, now_ms: int) -> None:
        """Remove members that joined but sent no SyncGroup in time."""
        if group.pending_sync:
            for member_id in sorted(group.pending_sync):
                self.discard(group, group.members[member_id])
            self.prepare(group, now_ms)

    def sync_received(self, group: Group, member_id: str) -> None:
        """Note that a member sent SyncGroup."""
        group.pending_sync.discard(member_id)
        if not group.pending_sync:
            self._timers.cancel(Timer(TimerKind.SYNC, group.group_id))

    def assign(self, group: Group, assignments: dict[str, bytes], now_ms: int) -> None:
        """Answer every member with its part of the leader's assignment, which is committed."""
        group.assign(assignments)
        self._answer_syncs(group, ErrorCode.NONE, now_ms)
        group.enter(GroupState.STABLE, self._wall.latest_ms(now_ms))

    def refuse_syncs(self, group: Group, error: ErrorCode, now_ms: int) -> None:
        """Answer every waiting SyncGroup with an error."""
        group.assign({})
        self._answer_syncs(group, error, now_ms)

    def _answer_syncs(self, group: Group, error: ErrorCode, now_ms: int) -> None:
        for member in group.members.values():
            if self.answer_sync(member, self.assignment_of(group, member, error)):
                # Its session may have timed out while it waited for the rebalance.
                self.keep_alive(group, member, now_ms)

    def assignment_of(self, group: Group, member: Member, error: ErrorCode) -> SyncGroupResponse:
        if error is not ErrorCode.NONE:
            return SyncGroupResponse(error)
        return SyncGroupResponse(error, group.protocol_type, group.protocol_name, member.assignment)

    def answer_sync(self, member: Member, response: SyncGroupResponse) -> bool:
        """Answer a member's sync. Return whether it waited for that."""
        requester, member.sync_requester = member.sync_requester, None
        if requester is None:
            return False
        self._outbox.answer(requester, response)
        return True

    # -- records --------------------------------------------------------------------------

    def store(self, group: Group, assignments: dict[str, bytes], on_written: OnWritten) -> None:
        """Write the generation. `on_written` gets the error for the members."""
        key, value = encode_key(GroupKey(group.group_id)), group.to_value(assignments)
        self._outbox.append(
            [(key, encode_group_value(value))],
            lambda error, now_ms: on_written(error_of_group_append(error), now_ms),
        )


def _ignore_outcome(_error: ErrorCode, _now_ms: int) -> None:
    """If the record of an empty group can't be written, its last generation returns when the
    groups are loaded again. Its members do not, so their sessions time out."""
