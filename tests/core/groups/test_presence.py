"""SyncGroup, Heartbeat and LeaveGroup."""

from group_talk import GROUP, SESSION_MS, Talk

from tidelog.core.errors import ErrorCode
from tidelog.core.groups import messages as on


def two() -> tuple[Talk, int, str, str]:
    """A group whose leader has not assigned yet."""
    talk = Talk()
    leader = talk.join().member_id
    second = talk.joining()
    generation = talk.join(leader).generation_id
    return talk, generation, leader, talk.joined(second).member_id


def test_followers_wait_for_the_leader() -> None:
    talk, generation, leader, follower = two()
    waiting = talk.syncing(follower, generation)
    assert waiting not in talk.answers
    response = talk.sync(leader, generation, {leader: b"L", follower: b"F"})
    assert (response.error_code, response.assignment) == (ErrorCode.NONE, b"L")
    assert (response.protocol_type, response.protocol_name) == ("consumer", "range")
    assert talk.synced(waiting).assignment == b"F"
    assert talk.state == "Stable"
    assert talk.sync(follower, generation).assignment == b"F"


def test_an_assignment_is_returned_when_it_is_written() -> None:
    talk, generation, leader, follower = two()
    talk.holds = True
    waiting = [talk.syncing(follower, generation), talk.syncing(leader, generation)]
    assert not talk.answers.keys() & set(waiting)
    assert talk.state == "CompletingRebalance"
    talk.write()
    assert talk.state == "Stable"
    assert [talk.synced(one).assignment for one in waiting] == [b"", b""]


def test_an_assignment_that_cannot_be_written() -> None:
    for error, told in {
        ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
        ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.CORRUPT_MESSAGE: ErrorCode.CORRUPT_MESSAGE,
    }.items():
        talk, generation, leader, follower = two()
        talk.holds = True
        waiting = [talk.syncing(follower, generation), talk.syncing(leader, generation)]
        talk.write(error)
        assert [talk.synced(one).error_code for one in waiting] == [told, told]
        assert talk.synced(waiting[0]).protocol_name is None
        assert talk.state == "PreparingRebalance"


def test_a_member_joins_before_the_assignment_is_written() -> None:
    talk, generation, leader, _ = two()
    talk.holds = True
    waiting = talk.syncing(leader, generation, {leader: b"L"})
    requester = talk.joining()
    assert talk.synced(waiting).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    talk.write()
    assert talk.state == "PreparingRebalance"
    assert requester not in talk.answers


def test_an_assignment_of_an_older_generation_is_not_returned() -> None:
    talk, generation, leader, follower = two()
    talk.holds = True
    talk.syncing(leader, generation, {leader: b"old"})
    again = talk.joining(follower, protocols=[("range", b"other")])
    assert talk.join(leader).generation_id == generation + 1
    assert talk.joined(again).generation_id == generation + 1
    waiting = talk.syncing(leader, generation + 1, {leader: b"new"})
    talk.write()
    assert waiting not in talk.answers
    talk.write()
    assert talk.synced(waiting).assignment == b"new"


def test_a_repeated_sync_is_answered_twice() -> None:
    talk, generation, leader, follower = two()
    first = talk.syncing(follower, generation)
    second = talk.syncing(follower, generation)
    assert talk.synced(first).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    talk.sync(leader, generation)
    assert talk.synced(second).error_code is ErrorCode.NONE


def test_a_sync_with_another_generation_or_protocol_is_refused() -> None:
    talk, generation, leader, _ = two()
    assert talk.sync("who", generation).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.sync("who", 77).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.sync(leader, generation - 1).error_code is ErrorCode.ILLEGAL_GENERATION
    unlike = talk.sync(leader, generation, protocol_type="connect")
    assert unlike.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    unlike = talk.sync(leader, generation, protocol_name="sticky")
    assert unlike.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    fine = talk.sync(leader, generation, protocol_type="consumer", protocol_name="range")
    assert fine.error_code is ErrorCode.NONE
    nobody = talk.sync(leader, generation, group_id="other")
    assert nobody.error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats() -> None:
    talk, generation, leader, follower = two()
    assert talk.beat(leader, generation) is ErrorCode.NONE, "before the assignment"
    assert talk.beat("who", generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.beat(leader, generation - 1) is ErrorCode.ILLEGAL_GENERATION
    assert talk.beat(leader, generation + 1) is ErrorCode.ILLEGAL_GENERATION
    assert talk.beat(leader, generation, "i") is ErrorCode.UNKNOWN_MEMBER_ID
    talk.sync(leader, generation)
    talk.sync(follower, generation)
    assert talk.beat(leader, generation) is ErrorCode.NONE
    talk.joining()
    assert talk.beat(leader, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert talk.beat(leader, generation - 1) is ErrorCode.ILLEGAL_GENERATION


def test_leaving_makes_the_others_join_again() -> None:
    talk = Talk()
    generation, (leader, follower) = talk.stable(2)
    assert talk.leave(leader) == [ErrorCode.NONE]
    assert talk.leave(leader) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert talk.beat(follower, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert talk.join(follower).leader == follower


def test_a_member_that_leaves_while_it_waits_is_answered() -> None:
    talk, generation, _, follower = two()
    waiting = talk.syncing(follower, generation)
    talk.leave(follower)
    assert talk.synced(waiting).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    joining = talk.joining()
    member = talk.describe().members[-1].member_id
    talk.leave(member)
    assert talk.joined(joining).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_leave_is_answered_when_the_empty_group_is_written() -> None:
    talk = Talk()
    generation, (leader, follower) = talk.stable(2)
    talk.holds = True
    members = [on.LeavingMember(leader), on.LeavingMember("who"), on.LeavingMember(follower)]
    requester = talk.ask(on.LeaveGroup(GROUP, members))
    assert requester not in talk.answers
    talk.write()
    response = talk.answer(requester, on.LeaveGroupResponse)
    assert response.error_code is ErrorCode.NONE
    assert [one.error_code for one in response.members] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    assert talk.describe().group_state == "Empty"
    assert talk.describe().protocol_type == "consumer"
    assert talk.reload().state == "Empty"
    assert talk.join().generation_id == generation + 2


def test_an_empty_group_that_cannot_be_written() -> None:
    talk = Talk()
    _, (leader,) = talk.stable()
    talk.holds = True
    requester = talk.ask(on.LeaveGroup(GROUP, [on.LeavingMember(leader)]))
    talk.write(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    response = talk.answer(requester, on.LeaveGroupResponse)
    assert response.error_code is response.single_error is ErrorCode.NOT_COORDINATOR


def test_old_versions_of_leave_group_return_one_error() -> None:
    talk = Talk()
    _, (leader,) = talk.stable()
    unknown = talk.get(on.LeaveGroup(GROUP, [on.LeavingMember("who")]), on.LeaveGroupResponse)
    assert (unknown.error_code, unknown.single_error) == (
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    )
    left = talk.get(on.LeaveGroup(GROUP, [on.LeavingMember(leader)]), on.LeaveGroupResponse)
    assert left.single_error is ErrorCode.NONE


def test_leaving_an_unknown_group() -> None:
    assert Talk().leave("a", "b") == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


def test_a_pending_member_can_leave() -> None:
    talk = Talk()
    generation, (leader,) = talk.stable()
    pending = talk.join(version=4).member_id
    again = talk.joining(leader)
    assert again not in talk.answers
    assert talk.leave(pending) == [ErrorCode.NONE]
    assert talk.joined(again).generation_id == generation + 1


def test_all_members_leave_and_a_pending_one_stays() -> None:
    talk = Talk()
    _, (leader,) = talk.stable()
    pending = talk.join(version=4).member_id
    assert talk.leave(leader) == [ErrorCode.NONE]
    assert talk.state == "Empty"
    assert talk.join(pending, version=4).error_code is ErrorCode.NONE


def test_a_member_needs_no_heartbeats_while_it_waits_for_its_assignment() -> None:
    talk, generation, leader, follower = two()
    waiting = talk.syncing(follower, generation)
    for _ in range(2):
        talk.pass_ms(SESSION_MS - 1)
        assert talk.beat(leader, generation) is ErrorCode.NONE
    talk.sync(leader, generation)
    assert talk.synced(waiting).error_code is ErrorCode.NONE
    talk.pass_ms(SESSION_MS - 1)
    assert talk.beat(leader, generation) is ErrorCode.NONE
    talk.pass_ms(1)
    assert talk.beat(follower, generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_restarts_the_session_of_a_waiting_member() -> None:
    talk, generation, leader, follower = two()
    waiting = talk.syncing(follower, generation)
    for _ in range(2):
        talk.pass_ms(SESSION_MS - 1)
        assert talk.beat(leader, generation) is ErrorCode.NONE
    talk.joining()
    assert talk.synced(waiting).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    talk.pass_ms(SESSION_MS)
    assert talk.beat(follower, generation) is ErrorCode.UNKNOWN_MEMBER_ID
