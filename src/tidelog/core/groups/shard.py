"""All groups of one partition of `__consumer_offsets`: the state machine of a group coordinator.

Invariants: see core/coordinator/shard.py. The cost of a call depends on the groups it is about,
not on the number of groups; clean-ups process a few groups at a time.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any

from tidelog.core.coordinator.shard import CoordinatorShard
from tidelog.core.errors import ErrorCode
from tidelog.core.groups import messages as on
from tidelog.core.groups.committing import Committing
from tidelog.core.groups.config import GroupConfig
from tidelog.core.groups.membership.group import Group, GroupState, restored
from tidelog.core.groups.membership.member import MemberMemory
from tidelog.core.groups.membership.rebalance import Rebalance, Timer, TimerKind
from tidelog.core.groups.membership.requests import Joining, Presence
from tidelog.core.groups.messages import (
    CLASSIC,
    DescribeGroup,
    DescribeGroupResponse,
    ListedGroup,
    ListGroups,
    error_of_offset_append,
    refused,
)
from tidelog.core.groups.offsets import IdOf
from tidelog.core.groups.records import (
    OffsetKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from tidelog.core.types import TopicPartition
from tidelog.core.wall_clock import WallClock

OFFSETS_AT_ONCE = 2_000
"""Offsets checked in one call for expiry or for deleted topics."""
GROUP_COST = 20
"""A group without offsets costs as much to check as this many offsets."""
_PAUSE_MS = 1
_GROUP_ID_NEEDED = (
    on.JoinGroup,
    on.SyncGroup,
    on.Heartbeat,
    on.LeaveGroup,
    on.OffsetDelete,
    on.TxnOffsetCommit,
)
_GROUP_ID_NOT_FOUND_SINCE = 9


class GroupShard(CoordinatorShard[Timer]):
    """The groups of a partition and their committed offsets."""

    def __init__(
        self,
        config: GroupConfig,
        now_ms: int,
        wall: WallClock | None = None,
        memory: MemberMemory | None = None,
    ) -> None:
        super().__init__(now_ms)
        self._config = config
        self._wall = wall or WallClock()
        self._memory = memory = memory or MemberMemory()
        """Shared by all shards of a broker."""
        self._groups: dict[str, Group] = {}
        self._rebalance = Rebalance(config, self._timers, self._outbox, self._wall)
        self._joining = Joining(config, self._timers, self._outbox, self._rebalance, memory)
        self._presence = Presence(self._outbox, self._rebalance, memory)
        self._committing = Committing(
            config, self._outbox, self._rebalance, self._groups, self._wall
        )
        self._to_expire: list[str] = []
        """Groups still to check in this round of expiry."""
        self._deleted: deque[tuple[str, Collection[str], IdOf]] = deque()
        """Groups, and deleted topics for which they have committed offsets."""
        self._expire_at(now_ms + config.offsets_retention_check_interval_ms)
        self._handlers: dict[type, Callable[[object, Any], None]] = {
            on.JoinGroup: self._join,
            on.SyncGroup: self._sync,
            on.Heartbeat: self._heartbeat,
            on.LeaveGroup: self._leave,
            on.OffsetCommit: self._commit,
            on.TxnOffsetCommit: self._commit_in_transaction,
            on.OffsetFetch: self._fetch,
            on.OffsetDelete: self._delete_offsets,
            on.DescribeGroup: self._describe,
            on.ListGroups: self._list,
            on.DeleteGroup: self._delete_group,
        }

    # -- loading and unloading ------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None) -> None:
        known = decode_key(key)
        if known is None:
            return
        group = self._groups.get(known.group) or self._empty_group(known.group)
        if isinstance(known, OffsetKey):
            if value is None:
                group.offsets.remove([(known.topic, known.partition)])
            else:
                group.offsets.put(known.topic, known.partition, decode_offset_value(value))
        else:
            offsets = group.offsets
            found = None if value is None else decode_group_value(value)
            group.release()
            if found is None:
                group = self._empty_group(known.group)
                group.offsets = offsets
            else:
                group = restored(known.group, found, offsets, self._memory)
        self._groups[known.group] = group
        self._committing.drop_if_unused(group)

    def replay_transactional(
        self, producer_id: int, _producer_epoch: int, key: bytes, value: bytes | None
    ) -> None:
        """Apply a record of a transaction. Only offsets wait for the marker."""
        known = decode_key(key)
        if value is None or not isinstance(known, OffsetKey):
            self.replay(key, value)
            return
        offset = decode_offset_value(value)
        group = self._groups.get(known.group) or self._new_group(known.group)
        partition = TopicPartition(known.topic, known.partition)
        self._committing.put_in_transaction(group, producer_id, partition, offset)

    def replay_marker(self, producer_id: int, _producer_epoch: int, *, committed: bool) -> None:
        self._committing.end_transaction(producer_id, committed=committed)

    def on_loaded(self) -> None:
        """Give every member a full session to send its next heartbeat."""
        now_ms = self._now_ms
        for group in self._groups.values():
            if len(group.members) > self._config.group_max_size:
                self._rebalance.prepare(group, now_ms)
            for member in group.members.values():
                self._rebalance.keep_alive(group, member, now_ms)

    def on_unload(self, error: ErrorCode) -> None:
        """Answer members that wait to join or sync."""
        for group in self._groups.values():
            group.state = GroupState.DEAD
            group.release()
            for member in group.members.values():
                refusal = on.JoinGroupResponse(error, member.member_id)
                self._rebalance.answer_join(group, member, refusal)
                self._rebalance.answer_sync(member, on.SyncGroupResponse(error))
        self._groups.clear()

    @property
    def groups(self) -> list[Group]:
        """All groups, for metrics and tests."""
        return list(self._groups.values())

    # -- requests and metadata ------------------------------------------------------------

    def serve(self, requester: object, request: Any) -> None:
        if isinstance(request, _GROUP_ID_NEEDED) and not request.group_id:
            self._outbox.answer(requester, refused(request, ErrorCode.INVALID_GROUP_ID))
        else:
            self._handlers[type(request)](requester, request)

    def topic_deleted(
        self, names: Collection[str], now_ms: int, id_of: IdOf = lambda _name: None
    ) -> None:
        """Delete the offsets committed for these topics, a few groups now, the rest by timer."""
        self._now_ms = now_ms
        for group in list(self._groups.values()):
            if group.offsets.has_unsettled_for(names):
                # Tombstones written now come after the pending commits in the log.
                self._committing.forget(group, group.offsets.known_of_topics(names), now_ms)
            elif group.offsets.has_any_of(names):
                self._deleted.append((group.group_id, names, id_of))
        self._delete_some(now_ms)

    def delete_old_topics(self, id_of: IdOf, now_ms: int) -> None:
        """Delete offsets of topics that were deleted while this shard was not loaded."""
        self._now_ms = now_ms
        for group in self._groups.values():
            names = group.offsets.topics_recreated(id_of)
            if names:
                self._deleted.append((group.group_id, names, id_of))
        self._delete_some(now_ms)

    def list_groups(self, request: on.ListGroups) -> list[on.ListedGroup]:
        """Return the groups of this shard that pass the filters."""
        return listed(self._groups.values(), request)

    # -- timers ---------------------------------------------------------------------------

    def on_timer(self, timer: Timer) -> None:
        now_ms = self._now_ms
        if timer.kind is TimerKind.EXPIRE:
            self._expire_some(now_ms)
            return
        if timer.kind is TimerKind.DELETED_TOPICS:
            self._delete_some(now_ms)
            return
        group = self._groups.get(timer.group_id)
        if group is None:
            return
        if timer.kind is TimerKind.SESSION:
            self._rebalance.session_timed_out(group, timer.member_id, now_ms)
        elif timer.kind is TimerKind.JOIN:
            self._rebalance.join_phase_ended(group, now_ms)
        elif timer.kind is TimerKind.SYNC:
            self._rebalance.sync_phase_ended(group, now_ms)
        else:
            self._give_up_pending(group, timer.member_id, now_ms)

    def _give_up_pending(self, group: Group, member_id: str, now_ms: int) -> None:
        self._rebalance.remove_pending(group, member_id, now_ms)
        self._committing.drop_if_unused(group)

    def _expire_some(self, now_ms: int) -> None:
        """Delete expired offsets of the next few groups."""
        if not self._to_expire:
            self._to_expire = list(self._groups)
        room = OFFSETS_AT_ONCE
        while self._to_expire and room > 0:
            group = self._groups.get(self._to_expire.pop())
            if group is not None:
                room -= GROUP_COST + len(group.offsets)
                self._committing.expire(group, now_ms)
        pause_ms = self._config.offsets_retention_check_interval_ms
        self._expire_at(now_ms + (_PAUSE_MS if self._to_expire else max(pause_ms, _PAUSE_MS)))

    def _delete_some(self, now_ms: int) -> None:
        """Delete offsets of deleted topics from the next few groups."""
        room = OFFSETS_AT_ONCE
        while self._deleted and room > 0:
            group_id, names, id_of = self._deleted.popleft()
            group = self._groups.get(group_id)
            if group is not None:
                removed = group.offsets.of_deleted_topics(names, id_of)
                room -= 1 + len(removed)
                self._committing.forget(group, removed, now_ms)
        if self._deleted:
            self._timers.arm(Timer(TimerKind.DELETED_TOPICS), now_ms + _PAUSE_MS)

    def _expire_at(self, at_ms: int) -> None:
        self._timers.arm(Timer(TimerKind.EXPIRE), at_ms)

    # -- members --------------------------------------------------------------------------

    def _join(self, requester: object, request: on.JoinGroup) -> None:
        config = self._config
        shortest, longest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not shortest <= request.session_timeout_ms <= longest:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
            self._outbox.answer(requester, refused(request, error))
            return
        group = self._groups.get(request.group_id)
        if group is None:
            if request.member_id != on.NO_MEMBER:
                self._outbox.answer(requester, refused(request, ErrorCode.UNKNOWN_MEMBER_ID))
                return
            group = self._new_group(request.group_id)
        self._joining.join(group, requester, request, self._now_ms)
        self._committing.drop_if_unused(group)
        oldest = self._joining.pop_oldest_pending()
        if oldest is not None:
            group_id, member_id = oldest
            waited_for = self._groups.get(group_id)
            if waited_for is not None and member_id in waited_for.pending_members:
                self._give_up_pending(waited_for, member_id, self._now_ms)

    def _sync(self, requester: object, request: on.SyncGroup) -> None:
        group = self._groups.get(request.group_id)
        if group is None:
            self._outbox.answer(requester, refused(request, ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            self._presence.sync(group, requester, request, self._now_ms)

    def _heartbeat(self, requester: object, request: on.Heartbeat) -> None:
        group = self._groups.get(request.group_id)
        error = ErrorCode.UNKNOWN_MEMBER_ID
        if group is not None:
            error = self._presence.beat(group, request, self._now_ms)
        self._outbox.answer(requester, on.HeartbeatResponse(error))

    def _leave(self, requester: object, request: on.LeaveGroup) -> None:
        group = self._groups.get(request.group_id)
        if group is not None:
            self._presence.leave(group, requester, request, self._now_ms)
            self._committing.drop_if_unused(group)
            return
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        members = (
            on.LeftMember(one.member_id, one.group_instance_id, unknown) for one in request.members
        )
        self._outbox.answer(requester, on.LeaveGroupResponse(ErrorCode.NONE, tuple(members)))

    # -- offsets --------------------------------------------------------------------------

    def _commit(self, requester: object, request: on.OffsetCommit) -> None:
        group = self._groups.get(request.group_id)
        if group is None:
            if request.generation_id >= 0:
                error = ErrorCode.ILLEGAL_GENERATION
                if request.version >= _GROUP_ID_NOT_FOUND_SINCE:
                    error = ErrorCode.GROUP_ID_NOT_FOUND
                self._outbox.answer(requester, refused(request, error))
                return
            group = self._new_group(request.group_id)
        self._committing.commit(group, requester, request, self._now_ms)
        self._committing.drop_if_unused(group)

    def _commit_in_transaction(self, requester: object, request: on.TxnOffsetCommit) -> None:
        group = self._groups.get(request.group_id)
        if group is None:
            if request.generation_id >= 0:
                error = ErrorCode.ILLEGAL_GENERATION
                self._outbox.answer(requester, refused(request, error))
                return
            group = self._new_group(request.group_id)
        self._committing.commit_in_transaction(group, requester, request, self._now_ms)
        self._committing.drop_if_unused(group)

    def _fetch(self, requester: object, request: on.OffsetFetch) -> None:
        offsets = self._committing.fetch(self._groups.get(request.group_id), request)
        self._outbox.answer(requester, on.OffsetFetchResponse(ErrorCode.NONE, offsets))

    def _delete_offsets(self, requester: object, request: on.OffsetDelete) -> None:
        group = self._groups.get(request.group_id)
        if group is None:
            self._outbox.answer(requester, refused(request, ErrorCode.GROUP_ID_NOT_FOUND))
        else:
            self._committing.delete(group, requester, request, self._now_ms)

    # -- groups ---------------------------------------------------------------------------

    def _new_group(self, group_id: str) -> Group:
        group = self._groups[group_id] = self._empty_group(group_id)
        return group

    def _empty_group(self, group_id: str) -> Group:
        return Group(group_id, self._wall.latest_ms(self._now_ms), self._memory)

    def _describe(self, requester: object, request: on.DescribeGroup) -> None:
        self._outbox.answer(requester, described(self._groups.get(request.group_id), request))

    def _list(self, requester: object, request: on.ListGroups) -> None:
        groups = tuple(self.list_groups(request))
        self._outbox.answer(requester, on.ListGroupsResponse(ErrorCode.NONE, groups))

    def _delete_group(self, requester: object, request: on.DeleteGroup) -> None:
        """Delete a group without members, and its offsets."""
        group = self._groups.get(request.group_id)
        if group is None or group.state is GroupState.DEAD:
            self._outbox.answer(requester, refused(request, ErrorCode.GROUP_ID_NOT_FOUND))
        elif group.state is not GroupState.EMPTY:
            self._outbox.answer(requester, refused(request, ErrorCode.NON_EMPTY_GROUP))
        else:
            self._committing.delete_all(
                group,
                lambda error, _now_ms: self._outbox.answer(
                    requester, on.DeleteGroupResponse(error_of_offset_append(error))
                ),
                self._now_ms,
            )


_UNKNOWN_IS_AN_ERROR_SINCE = 6


def listed(groups: Iterable[Group], request: ListGroups) -> list[ListedGroup]:
    """Return the groups that pass the filters. Dead groups are not listed."""
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
    """Describe a group. Metadata and assignments of members are known in Stable only."""
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
