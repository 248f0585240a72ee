"""A whole shard: loading, unloading, timers, many groups."""

from time import perf_counter
from typing import Any, get_args

import pytest
from group_talk import CONFIG, EVENTS, GROUP, OTHER, REBALANCE_MS, SESSION_MS, Talk

from tidelog.core.coordinator.shard import DamagedRecord, Timers
from tidelog.core.errors import ErrorCode
from tidelog.core.groups import messages as on
from tidelog.core.groups.membership.rebalance import Timer, TimerKind
from tidelog.core.groups.records import GroupKey, OffsetKey, encode_key
from tidelog.core.groups.shard import GroupShard
from tidelog.core.types import TopicPartition


def test_a_loaded_group_has_its_members_and_assignments() -> None:
    talk = Talk()
    generation, (leader, follower) = talk.stable(2)
    talk.commit(5, follower, generation)
    other = talk.reload()
    assert other.describe() == talk.describe()
    assert other.fetch() == {EVENTS: 5}
    assert other.beat(leader, generation) is ErrorCode.NONE
    assert other.sync(follower, generation).assignment == follower.encode()
    assert other.commit(6, follower, generation) is ErrorCode.NONE
    again = other.joining(leader)
    assert again not in other.answers, "the leader wants a rebalance"
    other.join(follower)
    assert other.joined(again).generation_id == generation + 1
    assert other.joined(again).leader == leader


def test_a_loaded_group_knows_who_leads_and_what_is_subscribed_to() -> None:
    talk = Talk()
    fields: dict[str, Any] = {"group_instance_id": "a", "session_timeout_ms": 100_000}
    _, (first,) = talk.stable(**fields)
    requester = talk.joining(session_timeout_ms=100_000)
    talk.pass_ms(REBALANCE_MS)
    second = talk.joined(requester)
    assert second.leader == second.member_id, "though another is the first of the members"
    talk.sync(second.member_id, second.generation_id)
    talk.sync(first, second.generation_id)
    talk.commit(1, second.member_id, second.generation_id)
    talk.commit(2, second.member_id, second.generation_id, partition=OTHER)
    other = talk.reload()
    assert other.join(first, **fields).leader == second.member_id
    request = on.OffsetDelete(GROUP, [TopicPartition(*EVENTS), TopicPartition(*OTHER)])
    deleted = other.get(request, on.OffsetDeleteResponse)
    told = [one.error_code for one in deleted.partitions]
    assert told == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]


def test_every_member_has_a_whole_session_after_loading() -> None:
    talk = Talk()
    generation, (leader,) = talk.stable()
    talk.pass_ms(SESSION_MS - 1)
    other = talk.reload()
    other.pass_ms(SESSION_MS - 1)
    assert other.beat(leader, generation) is ErrorCode.NONE
    other.pass_ms(SESSION_MS)
    assert other.state == "Empty"


def test_a_loaded_group_with_too_many_members_rebalances() -> None:
    talk = Talk()
    generation, members = talk.stable(3)
    talk.config = CONFIG._replace(group_max_size=2)
    other = talk.reload()
    assert other.state == "PreparingRebalance"
    requesters = [other.joining(one) for one in members]
    errors = [other.joined(one).error_code for one in requesters]
    assert errors == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert other.joined(requesters[0]).generation_id == generation + 1


def test_tombstones_are_replayed() -> None:
    talk = Talk()
    _, (leader,) = talk.stable()
    talk.leave(leader)
    talk.commit(1)
    other = talk.reload()
    other.shard.replay(encode_key(GroupKey(GROUP)), None)
    other.shard.loaded(other.now)
    assert other.describe().protocol_type == "", "offsets alone are left"
    assert other.fetch() == {EVENTS: 1}
    other.shard.replay(encode_key(OffsetKey(GROUP, *EVENTS)), None)
    assert other.state == "Dead"
    other.shard.replay(encode_key(OffsetKey("unknown", *EVENTS)), None)
    assert other.shard.list_groups(on.ListGroups([], [])) == []


def test_replay_skips_keys_of_unknown_kinds() -> None:
    shard = GroupShard(CONFIG, 0)
    shard.replay(b"\x00\x09whatever", b"")
    assert shard.list_groups(on.ListGroups([], [])) == []


def test_a_damaged_record_changes_nothing() -> None:
    talk = Talk()
    talk.commit(1)
    other = talk.reload()
    for key in (OffsetKey(GROUP, *EVENTS), GroupKey(GROUP), GroupKey("new")):
        with pytest.raises(DamagedRecord):
            other.shard.replay(encode_key(key), b"\x00\x01")
    assert other.fetch() == {EVENTS: 1}
    assert len(other.shard.list_groups(on.ListGroups([], []))) == 1


def test_waiting_requests_fail_when_the_shard_is_unloaded() -> None:
    talk = Talk()
    generation, (leader, _) = talk.stable(2)
    talk.holds = True
    commit = talk.committing(1, leader, generation)
    joins = [talk.joining(leader), talk.joining()]
    simple = talk.committing(1, group_id="simple")
    syncing = talk.joining(group_id="other")
    member = talk.joined(syncing).member_id
    sync = talk.syncing(member, 1, group_id="other")
    talk.shard.unload(ErrorCode.NOT_COORDINATOR)
    talk.settle()
    moved = ErrorCode.NOT_COORDINATOR
    assert [talk.joined(one).error_code for one in joins] == [moved, moved]
    assert talk.joined(joins[0]).member_id == leader
    assert talk.synced(sync).error_code is moved
    assert talk.commit_error(commit) is talk.commit_error(simple) is moved
    for append in talk.unwritten:
        talk.shard.written(append.token, ErrorCode.NONE, talk.now)
    talk.pass_ms(10 * REBALANCE_MS)
    assert talk.shard.take() == []


def test_pending_deletions_fail_when_the_shard_is_unloaded() -> None:
    talk = Talk()
    _, (leader,) = talk.stable()
    talk.holds = True
    leave = talk.ask(on.LeaveGroup(GROUP, [on.LeavingMember(leader)]))
    delete = talk.ask(on.DeleteGroup(GROUP))
    talk.shard.unload(ErrorCode.NOT_COORDINATOR)
    talk.settle()
    left = talk.answer(leave, on.LeaveGroupResponse)
    deleted = talk.answer(delete, on.DeleteGroupResponse)
    assert left.error_code is deleted.error_code is ErrorCode.NOT_COORDINATOR


def test_every_request_has_a_handler() -> None:
    assert set(GroupShard(CONFIG, 0)._handlers) == set(get_args(on.Request))


def test_appends_have_tokens_of_their_own() -> None:
    talk = Talk()
    talk.holds = True
    for offset in range(3):
        talk.committing(offset)
    assert len({one.token for one in talk.unwritten}) == 3


# -- timers --------------------------------------------------------------------------------


def test_a_timer_that_is_set_again_fires_once_at_its_new_time() -> None:
    timers: Timers[Timer] = Timers()
    timer, other = Timer(TimerKind.SESSION, "g", "m"), Timer(TimerKind.JOIN, "g")
    for at in (100, 50, 200, 150):
        timers.arm(timer, at)
    timers.arm(other, 120)
    assert timers.next_ms() == 120
    assert timers.pop_due(119) is None
    assert timers.pop_due(120) == other
    assert timers.next_ms() == 150
    assert timers.pop_due(149) is None
    assert timers.pop_due(1_000) == timer
    assert timers.pop_due(1_000) is None
    assert timers.next_ms() is None


def test_a_cancelled_timer_does_not_fire_and_can_be_set_again() -> None:
    timers: Timers[Timer] = Timers()
    timer = Timer(TimerKind.SYNC, "g")
    timers.cancel(timer)
    timers.arm(timer, 10)
    timers.cancel(timer)
    assert timers.next_ms() is None
    timers.arm(timer, 30)
    timers.cancel(timer)
    timers.arm(timer, 20)
    assert timers.pop_due(19) is None
    assert timers.pop_due(20) == timer
    assert timers.pop_due(99) is None


def test_heartbeats_do_not_grow_the_heap() -> None:
    talk = Talk()
    generation, (leader,) = talk.stable()
    for _ in range(1_000):
        talk.pass_ms(100)
        assert talk.beat(leader, generation) is ErrorCode.NONE
    assert len(talk.shard._timers._heap) < 10


# -- many groups ---------------------------------------------------------------------------


def test_the_cost_of_a_call_does_not_grow_with_the_number_of_groups() -> None:
    talk = Talk()
    members = []
    for number in range(1_000):
        name = f"group-{number}"
        requester = talk.joining(group_id=name)
        member = talk.joined(requester).member_id
        talk.syncing(member, 1, group_id=name)
        members.append((name, member))
    begin = perf_counter()
    for _ in range(5):
        talk.pass_ms(SESSION_MS // 2)
        for name, member in members:
            talk.ask(on.Heartbeat(name, 1, member, None))
    per_call_us = (perf_counter() - begin) / 5_000 * 1e6
    assert per_call_us < 500, "a heartbeat takes some five microseconds on a quiet machine"
    assert len(talk.shard.list_groups(on.ListGroups(["Stable"], []))) == 1_000


def test_a_group_of_thousands_rebalances_in_one_pass() -> None:
    talk = Talk(CONFIG._replace(group_initial_rebalance_delay_ms=3_000))
    requesters = [talk.joining() for _ in range(3_000)]
    talk.pass_ms(REBALANCE_MS)
    responses = [talk.joined(one) for one in requesters]
    assert {one.generation_id for one in responses} == {1}
    assert sum(1 for one in responses if one.members) == 1
    assert len(next(one.members for one in responses if one.members)) == 3_000
