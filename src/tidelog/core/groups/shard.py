"""All groups of one partition of `__consumer_offsets`: a group coordinator, without I/O.

A request goes in with its asker; out come answers and records to be written. Before a shard is
asked anything, all records of its partition have been replayed.

Always true: every request is answered once, now or later. A call costs what the groups it is
about cost, however many groups there are; clean-ups take a few groups at a time.
"""

from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from tidelog.core.errors import ErrorCode
from tidelog.core.groups import messages as on
from tidelog.core.groups.committing import Committing
from tidelog.core.groups.config import GroupConfig
from tidelog.core.groups.inspection import described, listed
from tidelog.core.groups.membership.group import Group, GroupState, restored
from tidelog.core.groups.membership.joining import Joining
from tidelog.core.groups.membership.member_memory import MemberMemory
from tidelog.core.groups.membership.presence import Presence
from tidelog.core.groups.membership.rebalance import Rebalance
from tidelog.core.groups.messages import Answer, Append, Request
from tidelog.core.groups.offsets import IdOf
from tidelog.core.groups.outbox import Outbox, error_of_offset_append
from tidelog.core.groups.records import (
    OffsetKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from tidelog.core.groups.refusals import refused
from tidelog.core.groups.timers import Timer, TimerKind, Timers
from tidelog.core.wall_clock import WallClock

OFFSETS_AT_ONCE = 2_000
"""Looked at in one call, to see whether they are too old, or of topics that are gone."""
GROUP_COST = 20
"""A group without offsets takes as long to look at as so many of them."""
_PAUSE_MS = 1
_GROUP_ID_NEEDED = (on.JoinGroup, on.SyncGroup, on.Heartbeat, on.LeaveGroup, on.OffsetDelete)
_GROUP_ID_NOT_FOUND_SINCE = 9


class GroupShard:
    """Groups, their timers, and what follows from what they are asked."""

    def __init__(
        self,
        config: GroupConfig,
        now_ms: int,
        wall: WallClock | None = None,
        memory: MemberMemory | None = None,
    ) -> None:
        self._config = config
        self._wall = wall or WallClock()
        self._memory = memory = memory or MemberMemory()
        """Shared by all shards of a broker."""
        self._groups: dict[str, Group] = {}
        self._timers = Timers()
        self._outbox = Outbox()
        self._rebalance = Rebalance(config, self._timers, self._outbox, self._wall)
        self._joining = Joining(config, self._timers, self._outbox, self._rebalance, memory)
        self._presence = Presence(self._outbox, self._rebalance, memory)
        self._committing = Committing(
            config, self._outbox, self._rebalance, self._groups, self._wall
        )
        self._to_sweep: list[str] = []
        self._to_forget: deque[tuple[str, Collection[str], IdOf]] = deque()
        """Groups, and topics of theirs that are gone."""
        self._now_ms = now_ms
        self._sweep_at(now_ms + config.offsets_retention_check_interval_ms)
        self._handlers: dict[type, Callable[[object, Any], None]] = {
            on.JoinGroup: self._join,
            on.SyncGroup: self._sync,
            on.Heartbeat: self._heartbeat,
            on.LeaveGroup: self._leave,
            on.OffsetCommit: self._commit,
            on.OffsetFetch: self._fetch,
            on.OffsetDelete: self._delete_offsets,
            on.DescribeGroup: self._describe,
            on.ListGroups: self._list,
            on.DeleteGroup: self._delete_group,
        }

    # -- loading and unloading ------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None) -> None:
        """One record of the log, in its order. One that can't be read is a DamagedRecord."""
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
        self._committing.forget_if_hollow(group)

    def loaded(self, now_ms: int) -> None:
        """All was replayed. Every member has a whole session to be heard of again."""
        self._now_ms = now_ms
        for group in self._groups.values():
            if len(group.members) > self._config.group_max_size:
                self._rebalance.prepare(group, now_ms)
            for member in group.members.values():
                self._rebalance.keep_alive(group, member, now_ms)

    def unload(self, error: ErrorCode) -> None:
        """The groups are coordinated elsewhere: whoever waits here is told so."""
        for group in self._groups.values():
            group.state = GroupState.DEAD
            group.release()
            for member in group.members.values():
                refusal = on.JoinGroupResponse(error, member.member_id)
                self._rebalance.answer_join(group, member, refusal)
                self._rebalance.answer_sync(member, on.SyncGroupResponse(error))
        self._outbox.fail_all(error, self._now_ms)
        self._groups.clear()

    @property
    def groups(self) -> list[Group]:
        """For those who look on."""
        return list(self._groups.values())

    # -- calls ----------------------------------------------------------------------------

    def handle(self, asker: object, request: Request, now_ms: int) -> None:
        """Any request. The asker may be anything but None."""
        self._now_ms = now_ms
        if isinstance(request, _GROUP_ID_NEEDED) and not request.group_id:
            self._outbox.answer(asker, refused(request, ErrorCode.INVALID_GROUP_ID))
            return
        self._handlers[type(request)](asker, request)
        self.tick(now_ms)

    def written(self, token: int, error: ErrorCode, now_ms: int) -> None:
        """The records of an append are committed, or it is not known that they will be."""
        self._now_ms = now_ms
        self._outbox.written(token, error, now_ms)
        self.tick(now_ms)

    def tick(self, now_ms: int) -> None:
        """Whatever is due by now."""
        self._now_ms = now_ms
        while (timer := self._timers.pop_due(now_ms)) is not None:
            self._ring(timer, now_ms)

    def next_ms(self) -> int | None:
        """When `tick` has something to do."""
        return self._timers.next_ms()

    def take(self) -> list[Answer | Append]:
        """What follows from the calls before, in order."""
        return self._outbox.take()

    def topic_deleted(
        self, names: Collection[str], now_ms: int, id_of: IdOf = lambda _name: None
    ) -> None:
        """What was committed for these topics goes, some of it now."""
        self._now_ms = now_ms
        for group in list(self._groups.values()):
            if group.offsets.is_unsure_of(names):
                # What is written now comes after what is under way.
                self._committing.forget(group, group.offsets.known_of_topics(names), now_ms)
            elif group.offsets.has_any_of(names):
                self._to_forget.append((group.group_id, names, id_of))
        self._forget_some(now_ms)

    def forget_old_topics(self, id_of: IdOf, now_ms: int) -> None:
        """What was committed for topics that went while nobody here could see it."""
        self._now_ms = now_ms
        for group in self._groups.values():
            names = group.offsets.topics_gone(id_of)
            if names:
                self._to_forget.append((group.group_id, names, id_of))
        self._forget_some(now_ms)

    def postpone(self, by_ms: int) -> None:
        """The broker was held up for so long: nobody could be heard, so nobody is late."""
        self._timers.postpone(by_ms)

    def list_groups(self, request: on.ListGroups) -> list[on.ListedGroup]:
        """The groups of this shard alone."""
        return listed(self._groups.values(), request)

    # -- timers ---------------------------------------------------------------------------

    def _ring(self, timer: Timer, now_ms: int) -> None:
        if timer.kind is TimerKind.SWEEP:
            self._sweep(now_ms)
            return
        if timer.kind is TimerKind.FORGET:
            self._forget_some(now_ms)
            return
        group = self._groups.get(timer.group_id)
        if group is None:
            return
        if timer.kind is TimerKind.SESSION:
            self._rebalance.session_over(group, timer.member_id, now_ms)
        elif timer.kind is TimerKind.JOIN:
            self._rebalance.joins_over(group, now_ms)
        elif timer.kind is TimerKind.SYNC:
            self._rebalance.syncs_over(group, now_ms)
        else:
            self._give_up_pending(group, timer.member_id, now_ms)

    def _give_up_pending(self, group: Group, member_id: str, now_ms: int) -> None:
        self._rebalance.remove_pending(group, member_id, now_ms)
        self._committing.forget_if_hollow(group)

    def _sweep(self, now_ms: int) -> None:
        """Old offsets go, a few groups at a time."""
        if not self._to_sweep:
            self._to_sweep = list(self._groups)
        room = OFFSETS_AT_ONCE
        while self._to_sweep and room > 0:
            group = self._groups.get(self._to_sweep.pop())
            if group is not None:
                room -= GROUP_COST + len(group.offsets)
                self._committing.expire(group, now_ms)
        pause_ms = self._config.offsets_retention_check_interval_ms
        self._sweep_at(now_ms + (_PAUSE_MS if self._to_sweep else max(pause_ms, _PAUSE_MS)))

    def _forget_some(self, now_ms: int) -> None:
        """Offsets of topics that are gone, a few groups at a time."""
        room = OFFSETS_AT_ONCE
        while self._to_forget and room > 0:
            group_id, names, id_of = self._to_forget.popleft()
            group = self._groups.get(group_id)
            if group is not None:
                gone = group.offsets.of_topics_gone(names, id_of)
                room -= 1 + len(gone)
                self._committing.forget(group, gone, now_ms)
        if self._to_forget:
            self._timers.arm(Timer(TimerKind.FORGET), now_ms + _PAUSE_MS)

    def _sweep_at(self, at_ms: int) -> None:
        self._timers.arm(Timer(TimerKind.SWEEP), at_ms)

    # -- members --------------------------------------------------------------------------

    def _join(self, asker: object, request: on.JoinGroup) -> None:
        config = self._config
        shortest, longest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not shortest <= request.session_timeout_ms <= longest:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
            self._outbox.answer(asker, refused(request, error))
            return
        group = self._groups.get(request.group_id)
        if group is None:
            if request.member_id != on.NO_MEMBER:
                self._outbox.answer(asker, refused(request, ErrorCode.UNKNOWN_MEMBER_ID))
                return
            group = self._new_group(request.group_id)
        self._joining.join(group, asker, request, self._now_ms)
        self._committing.forget_if_hollow(group)
        oldest = self._joining.take_oldest_pending()
        if oldest is not None:
            group_id, member_id = oldest
            waited_for = self._groups.get(group_id)
            if waited_for is not None and member_id in waited_for.pending_members:
                self._give_up_pending(waited_for, member_id, self._now_ms)

    def _sync(self, asker: object, request: on.SyncGroup) -> None:
        group = self._groups.get(request.group_id)
        if group is None:
            self._outbox.answer(asker, refused(request, ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            self._presence.sync(group, asker, request, self._now_ms)

    def _heartbeat(self, asker: object, request: on.Heartbeat) -> None:
        group = self._groups.get(request.group_id)
        error = ErrorCode.UNKNOWN_MEMBER_ID
        if group is not None:
            error = self._presence.beat(group, request, self._now_ms)
        self._outbox.answer(asker, on.HeartbeatResponse(error))

    def _leave(self, asker: object, request: on.LeaveGroup) -> None:
        group = self._groups.get(request.group_id)
        if group is not None:
            self._presence.leave(group, asker, request, self._now_ms)
            self._committing.forget_if_hollow(group)
            return
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        members = (
            on.LeftMember(one.member_id, one.group_instance_id, unknown) for one in request.members
        )
        self._outbox.answer(asker, on.LeaveGroupResponse(ErrorCode.NONE, tuple(members)))

    # -- offsets --------------------------------------------------------------------------

    def _commit(self, asker: object, request: on.OffsetCommit) -> None:
        group = self._groups.get(request.group_id)
        if group is None:
            if request.generation_id >= 0:
                error = ErrorCode.ILLEGAL_GENERATION
                if request.version >= _GROUP_ID_NOT_FOUND_SINCE:
                    error = ErrorCode.GROUP_ID_NOT_FOUND
                self._outbox.answer(asker, refused(request, error))
                return
            group = self._new_group(request.group_id)
        self._committing.commit(group, asker, request, self._now_ms)
        self._committing.forget_if_hollow(group)

    def _fetch(self, asker: object, request: on.OffsetFetch) -> None:
        offsets = self._committing.fetch(self._groups.get(request.group_id), request)
        self._outbox.answer(asker, on.OffsetFetchResponse(ErrorCode.NONE, offsets))

    def _delete_offsets(self, asker: object, request: on.OffsetDelete) -> None:
        group = self._groups.get(request.group_id)
        if group is None:
            self._outbox.answer(asker, refused(request, ErrorCode.GROUP_ID_NOT_FOUND))
        else:
            self._committing.delete(group, asker, request, self._now_ms)

    # -- groups ---------------------------------------------------------------------------

    def _new_group(self, group_id: str) -> Group:
        group = self._groups[group_id] = self._empty_group(group_id)
        return group

    def _empty_group(self, group_id: str) -> Group:
        return Group(group_id, self._wall.latest_ms(self._now_ms), self._memory)

    def _describe(self, asker: object, request: on.DescribeGroup) -> None:
        self._outbox.answer(asker, described(self._groups.get(request.group_id), request))

    def _list(self, asker: object, request: on.ListGroups) -> None:
        groups = tuple(self.list_groups(request))
        self._outbox.answer(asker, on.ListGroupsResponse(ErrorCode.NONE, groups))

    def _delete_group(self, asker: object, request: on.DeleteGroup) -> None:
        """Only a group without members; its offsets go with it."""
        group = self._groups.get(request.group_id)
        if group is None or group.state is GroupState.DEAD:
            self._outbox.answer(asker, refused(request, ErrorCode.GROUP_ID_NOT_FOUND))
        elif group.state is not GroupState.EMPTY:
            self._outbox.answer(asker, refused(request, ErrorCode.NON_EMPTY_GROUP))
        else:
            self._committing.delete_all(
                group,
                lambda error, _now_ms: self._outbox.answer(
                    asker, on.DeleteGroupResponse(error_of_offset_append(error))
                ),
                self._now_ms,
            )
