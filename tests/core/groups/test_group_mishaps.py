"""Groups under faults: crossing retries, clock jumps, wrong logs, clients that leak ids."""

import pytest
from group_talk import CONFIG, EVENTS, GROUP, Talk, subscription

from tidelog.core.coordinator.shard import Append, Timers
from tidelog.core.errors import ErrorCode
from tidelog.core.groups import messages as on
from tidelog.core.groups.membership import requests
from tidelog.core.groups.membership.rebalance import Timer, TimerKind
from tidelog.core.groups.records import (
    GroupKey,
    GroupValue,
    MemberValue,
    encode_group_value,
    encode_key,
)
from tidelog.core.types import TopicPartition


def test_of_two_assignments_the_first_counts() -> None:
    """The leader retried before the first was written. The last assignment in the log must be the
    one that members got, or the next coordinator returns another one."""
    talk = Talk()
    leader = talk.join().member_id
    second = talk.joining()
    again = talk.joining(leader)
    follower, generation = talk.joined(second).member_id, talk.joined(again).generation_id
    talk.holds = True
    waiting = talk.syncing(follower, generation)
    talk.syncing(leader, generation, {leader: b"0", follower: b"1"})
    talk.syncing(leader, generation, {leader: b"1", follower: b"0"})
    while talk.unwritten:
        talk.write()
    assert talk.synced(waiting).assignment == b"1"
    assert talk.reload().sync(follower, generation).assignment == b"1"


def test_a_second_assignment_counts_if_the_first_was_not_written() -> None:
    talk = Talk()
    leader = talk.join().member_id
    talk.holds = True
    first = talk.syncing(leader, 1, {leader: b"a"})
    talk.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert talk.synced(first).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    generation = talk.join(leader).generation_id
    second = talk.syncing(leader, generation, {leader: b"b"})
    talk.write()
    assert talk.synced(second).assignment == b"b"


@pytest.mark.parametrize("way", ["delete", "expire", "topic"])
def test_a_group_with_many_offsets_is_deleted_in_several_batches(way: str) -> None:
    talk = Talk(CONFIG._replace(offsets_retention_ms=500, offsets_retention_check_interval_ms=900))
    offsets = [on.OffsetToCommit("events", index, 1) for index in range(20_000)]
    for at in range(0, len(offsets), 5_000):
        assert talk.commit(1, offsets=offsets[at : at + 5_000]) is ErrorCode.NONE
    talk.holds = True
    deleted = 0
    if way == "delete":
        deleted = talk.ask(on.DeleteGroup(GROUP))
    elif way == "topic":
        talk.shard.topic_deleted({"events"}, talk.now)
        talk.settle()
    else:
        talk.pass_ms(
            talk.config.offsets_retention_ms + talk.config.offsets_retention_check_interval_ms
        )
    appends = [append for append in talk.unwritten if isinstance(append, Append)]
    sizes = [sum(len(key) for key, _ in append.records) for append in appends]
    assert max(sizes) < 256 * 1024
    while talk.unwritten:
        assert deleted not in talk.answers
        talk.write()
    if way == "delete":
        assert talk.answer(deleted, on.DeleteGroupResponse).error_code is ErrorCode.NONE
    assert talk.shard.groups == []
    assert talk.reload().shard.groups == []


def test_a_deletion_that_fails_in_part_returns_the_error_and_can_be_repeated() -> None:
    talk = Talk()
    offsets = [on.OffsetToCommit("events", index, 1) for index in range(9_000)]
    talk.commit(1, offsets=offsets)
    talk.holds = True
    deleted = talk.ask(on.DeleteGroup(GROUP))
    assert len(talk.unwritten) > 1
    talk.write()
    while talk.unwritten:
        talk.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    answer = talk.answer(deleted, on.DeleteGroupResponse)
    assert answer.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    talk.holds = False
    assert talk.fetch() == talk.reload().fetch()
    assert 0 < len(talk.fetch()) < 9_000
    assert talk.delete() is ErrorCode.NONE
    assert talk.reload().shard.groups == []


def test_a_suspended_coordinator_does_not_remove_members() -> None:
    """The members' heartbeats wait in its sockets."""
    talk = Talk()
    generation, members = talk.stable(2)
    talk.now += 12_000  # longer than a session, and no timer fired meanwhile
    talk.shard.postpone(12_000)
    for member in members:
        assert talk.beat(member, generation) is ErrorCode.NONE
    assert talk.state == "Stable"
    talk.pass_ms(9_000)  # but the other one is silent for good
    assert talk.beat(members[0], generation) is ErrorCode.NONE
    talk.pass_ms(9_000)
    assert talk.beat(members[0], generation) is ErrorCode.REBALANCE_IN_PROGRESS


def _written(*members: MemberValue, generation: int = 1) -> tuple[bytes, bytes]:
    value = GroupValue("consumer", generation, "range", "a", 0, list(members))
    return encode_key(GroupKey(GROUP)), encode_group_value(value)


def _member(member_id: str, instance: str | None = None) -> MemberValue:
    topics = subscription("events")
    return MemberValue(member_id, instance, "app", "/h", 30_000, 10_000, topics, b"")


@pytest.mark.parametrize(
    "members",
    [
        (_member("a"), _member("a")),
        (_member("a", "i"), _member("b", "i")),
        (_member("a", "i"), _member("a", "j")),
    ],
)
def test_a_member_that_is_twice_in_the_log_counts_once(members: tuple[MemberValue, ...]) -> None:
    talk = Talk()
    talk.shard.replay(*_written(*members))
    talk.shard.loaded(talk.now)
    talk.settle()
    assert talk.join("a", group_instance_id=members[0].group_instance_id)
    talk.pass_ms(100_000)
    assert talk.state == "Empty"
    assert talk.join().error_code is ErrorCode.NONE


def test_generations_wrap_around_at_the_largest_number() -> None:
    talk = Talk()
    talk.shard.replay(*_written(_member("a"), generation=0x7FFF_FFFF))
    talk.shard.loaded(talk.now)
    joined = talk.join("a")
    assert joined.error_code is ErrorCode.NONE
    assert 0 < joined.generation_id < 0x7FFF_FFFF
    assert talk.sync("a", joined.generation_id).error_code is ErrorCode.NONE


def test_cancelled_timers_leave_no_entries() -> None:
    timers: Timers[Timer] = Timers()
    for number in range(10_000):
        timer = Timer(TimerKind.JOIN, f"group-{number}")
        timers.arm(timer, 1_000_000_000)
        timers.cancel(timer)
    assert timers.entries < 1_000
    kept = Timer(TimerKind.JOIN, "kept")
    for at_ms in range(100_000, 50_000, -1):
        timers.arm(kept, at_ms)
    assert timers.entries < 1_000
    assert timers.next_ms() == 50_001


def test_the_oldest_unused_member_ids_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requests, "PENDING_MAX", 50)
    talk = Talk()
    given = [
        talk.join(version=4, group_id=f"group-{number}", session_timeout_ms=1_800_000).member_id
        for number in range(200)
    ]
    assert len(talk.shard.groups) == 50
    last = talk.join(given[-1], version=4, group_id="group-199")
    assert last.error_code is ErrorCode.NONE
    first = talk.join(given[0], version=4, group_id="group-0")
    assert first.error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_join_and_leave_leave_no_ids() -> None:
    """Otherwise a broker would keep one id for each join, up to PENDING_MAX."""
    talk = Talk()
    for _ in range(500):
        member = talk.join(version=4).member_id
        assert talk.join(member, version=4).error_code is ErrorCode.NONE
        talk.leave(member)
    assert len(talk.shard._joining._given) <= requests.GIVEN_MIN


def test_a_recreated_topic_does_not_get_offsets_of_the_old_one() -> None:
    """The topic was deleted while the group had no coordinator."""
    talk = Talk()
    old, kept = on.OffsetToCommit(*EVENTS, 5, topic_id=b"1" * 16), on.OffsetToCommit("k", 0, 6)
    unnamed = on.OffsetToCommit("other", 3, 7, topic_id=b"3" * 16)
    talk.commit(0, offsets=[old, kept, unnamed])
    other = talk.reload()
    other.shard.delete_old_topics({"events": b"2" * 16, "k": b"4" * 16}.get, other.now)
    other.settle()
    assert other.fetch() == {("k", 0): 6}
    assert other.reload().fetch() == {("k", 0): 6}
    same = talk.reload()
    same.shard.delete_old_topics({"events": b"1" * 16, "other": b"3" * 16}.get, same.now)
    same.settle()
    assert len(same.fetch()) == 3
    assert TopicPartition(*EVENTS) in same.fetch()


def _many_offsets(talk: Talk, groups: int) -> None:
    offsets = [on.OffsetToCommit("events", index, 1, topic_id=b"1" * 16) for index in range(1_000)]
    for number in range(groups):
        assert talk.commit(1, group_id=f"group-{number}", offsets=offsets) is ErrorCode.NONE


def test_offsets_of_a_deleted_topic_are_removed_in_steps() -> None:
    """One thread serves all clients: they must not wait for the whole deletion."""
    talk = Talk()
    _many_offsets(talk, 10)
    talk.shard.topic_deleted(["events"], talk.now, lambda _name: b"2" * 16)
    talk.settle()
    assert 0 < len(talk.shard.groups) < 10
    anew = [on.OffsetToCommit("events", 0, 7, topic_id=b"2" * 16)]
    assert talk.commit(7, group_id="group-9", offsets=anew) is ErrorCode.NONE
    talk.pass_ms(10)
    [group] = talk.reload().shard.groups
    assert (group.group_id, list(group.offsets)) == ("group-9", [("events", 0)])


def test_a_pending_commit_is_removed_with_its_topic() -> None:
    talk = Talk()
    _many_offsets(talk, 5)
    talk.holds = True
    late = talk.committing(5, group_id="group-4")
    talk.shard.topic_deleted(["events"], talk.now)
    talk.settle()
    while talk.unwritten:
        talk.write()
    assert talk.commit_error(late) is ErrorCode.NONE
    talk.holds = False
    talk.pass_ms(10)
    assert talk.shard.groups == []
    assert talk.reload().shard.groups == []


def test_old_offsets_expire_a_few_groups_at_a_time() -> None:
    talk = Talk()
    _many_offsets(talk, 10)
    talk.now += talk.config.offsets_retention_ms
    talk.shard.tick(talk.now)
    talk.settle()
    assert 0 < len(talk.shard.groups) < 10
    talk.pass_ms(20)
    assert talk.shard.groups == []


def _write_in_doubt(talk: Talk) -> None:
    """Time out the oldest append, although it is in the log."""
    append = talk.unwritten.pop(0)
    talk.store(append)
    talk.shard.written(append.token, ErrorCode.REQUEST_TIMED_OUT, talk.now)
    talk.settle()


def test_offsets_whose_removal_is_in_doubt_are_not_returned() -> None:
    """The next coordinator may not find them."""
    talk = Talk()
    talk.commit(5)
    talk.holds = True
    deleted = talk.ask(on.DeleteGroup(GROUP))
    _write_in_doubt(talk)
    assert talk.answer(deleted, on.DeleteGroupResponse).error_code is ErrorCode.REQUEST_TIMED_OUT
    assert talk.fetch(EVENTS) == talk.reload().fetch(EVENTS) == {EVENTS: -1}


@pytest.mark.parametrize("way", ["group", "offset", "topic"])
def test_a_commit_in_doubt_is_removed_with_its_group_offset_or_topic(way: str) -> None:
    talk = Talk()
    talk.commit(4, partition=("other", 3))
    talk.holds = True
    late = talk.committing(5)
    _write_in_doubt(talk)
    assert talk.commit_error(late) is ErrorCode.REQUEST_TIMED_OUT
    assert talk.fetch(EVENTS) == {EVENTS: -1}
    talk.holds = False
    if way == "group":
        assert talk.delete() is ErrorCode.NONE
    elif way == "topic":
        talk.shard.topic_deleted({"events"}, talk.now)
        talk.settle()
    else:
        talk.get(on.OffsetDelete(GROUP, [TopicPartition(*EVENTS)]), on.OffsetDeleteResponse)
    assert talk.reload().fetch(EVENTS) == {EVENTS: -1}
