"""Static members: they may restart without a rebalance."""

from typing import Any

from group_talk import GROUP, RANGE, REBALANCE_MS, SESSION_MS, Talk, static

from tidelog.core.errors import ErrorCode
from tidelog.core.groups import messages as on

TWO = [("range", b"r"), ("sticky", b"s")]


def pair(**fields: Any) -> tuple[Talk, int, str, str]:
    """A stable group of the instances "a", which leads, and "b"."""
    talk = Talk()
    first = talk.join(group_instance_id="a", **fields).member_id
    second = talk.joining(group_instance_id="b", **fields)
    talk.joining(first, group_instance_id="a", **fields)
    follower = talk.joined(second).member_id
    generation = talk.spread([first, follower])
    return talk, generation, first, follower


def test_a_restarted_follower_keeps_its_assignment() -> None:
    talk, generation, leader, follower = pair()
    response = static("b", talk)(version=5)
    assert response.error_code is ErrorCode.NONE
    assert response.generation_id == generation
    assert response.member_id != follower
    assert (response.leader, response.members) == (leader, ())
    assert talk.sync(response.member_id, generation).assignment == follower.encode()
    assert talk.beat(leader, generation, "a") is ErrorCode.NONE
    assert talk.beat(follower, generation, "b") is ErrorCode.FENCED_INSTANCE_ID
    assert talk.beat(follower, generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_restarted_leader_does_not_assign_before_version_9() -> None:
    talk, generation, leader, follower = pair()
    response = static("a", talk)(version=8)
    assert response.member_id != leader
    assert response.leader == leader, "its former id: so it takes itself for a follower"
    assert (response.skip_assignment, response.members) == (False, ())
    assert talk.sync(response.member_id, generation).assignment == leader.encode()
    # It leads all the same: if it joins again there is a rebalance.
    static_again = talk.joining(response.member_id, group_instance_id="a")
    assert static_again not in talk.answers
    done = talk.join(follower, group_instance_id="b")
    assert done.leader == talk.joined(static_again).member_id == response.member_id


def test_restarted_leader_gets_skip_assignment() -> None:
    talk, generation, _, follower = pair()
    response = static("a", talk)(version=9)
    assert response.leader == response.member_id
    assert response.skip_assignment
    assert {one.group_instance_id for one in response.members} == {"a", "b"}
    other = static("b", talk)(version=9)
    assert (other.skip_assignment, other.members) == (False, ())
    assert other.leader == response.member_id
    assert talk.beat(follower, generation, "b") is ErrorCode.FENCED_INSTANCE_ID


def test_the_new_id_is_returned_when_it_is_written() -> None:
    talk, generation, _, follower = pair()
    talk.holds = True
    requester = talk.joining(group_instance_id="b")
    assert requester not in talk.answers
    talk.write()
    assert talk.joined(requester).generation_id == generation
    after = talk.reload().describe()
    assert after.group_state == "Stable"
    assert {one.member_id for one in after.members} >= {talk.joined(requester).member_id}
    assert follower not in {one.member_id for one in after.members}


def test_a_new_id_that_cannot_be_written() -> None:
    talk, generation, leader, follower = pair(protocols=TWO)
    talk.holds = True
    requester = talk.joining(group_instance_id="b", protocols=[*TWO, ("third", b"")])
    talk.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    response = talk.joined(requester)
    assert response.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (response.member_id, response.generation_id) == ("", generation)
    assert response.leader == leader
    assert talk.beat(follower, generation, "b") is ErrorCode.NONE, "it is again who it was"
    again = talk.join(follower, group_instance_id="b", protocols=TWO)
    assert again.generation_id == generation
    talk.pass_ms(SESSION_MS)
    assert talk.beat(follower, generation, "b") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leaders_new_id_that_cannot_be_written() -> None:
    talk, generation, leader, _ = pair()
    talk.holds = True
    requester = talk.joining(group_instance_id="a", version=9)
    talk.write(ErrorCode.REQUEST_TIMED_OUT)
    response = talk.joined(requester)
    assert response.error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert response.leader == leader
    assert talk.beat(leader, generation, "a") is ErrorCode.NONE


def test_a_rebalance_begins_before_the_new_id_is_written() -> None:
    talk, generation, leader, follower = pair()
    talk.holds = True
    requester = talk.joining(group_instance_id="b")
    new = talk.joining()
    talk.write()
    assert requester not in talk.answers, "it has joined already, and waits for the others"
    talk.join(leader, group_instance_id="a")
    assert talk.joined(requester).generation_id == talk.joined(new).generation_id == generation + 1
    assert talk.beat(follower, generation, "b") is ErrorCode.FENCED_INSTANCE_ID


def test_a_restart_that_changes_the_protocol_causes_a_rebalance() -> None:
    talk, generation, leader, follower = pair(protocols=TWO)
    assert talk.describe().protocol_data == "range"
    requester = talk.joining(group_instance_id="b", protocols=[("sticky", b"s")])
    assert requester not in talk.answers
    assert talk.beat(leader, generation, "a") is ErrorCode.REBALANCE_IN_PROGRESS
    assert talk.beat(follower, generation, "b") is ErrorCode.FENCED_INSTANCE_ID
    talk.join(leader, group_instance_id="a", protocols=TWO)
    assert talk.joined(requester).protocol_name == "sticky"


def test_a_restart_before_the_assignment_makes_all_join_again() -> None:
    talk, generation, leader, follower = pair()
    talk.joining(leader, group_instance_id="a")
    talk.join(follower, group_instance_id="b")
    waiting = talk.syncing(follower, generation + 1, group_instance_id="b")
    requester = talk.joining(group_instance_id="b")
    assert talk.synced(waiting).error_code is ErrorCode.FENCED_INSTANCE_ID
    assert requester not in talk.answers
    assert talk.state == "PreparingRebalance"


def test_a_restart_while_it_joins() -> None:
    talk, generation, leader, follower = pair()
    first = talk.joining(follower, group_instance_id="b", protocols=[("range", b"new")])
    second = talk.joining(group_instance_id="b")
    assert talk.joined(first).error_code is ErrorCode.FENCED_INSTANCE_ID
    assert talk.joined(first).member_id == follower
    done = talk.join(leader, group_instance_id="a")
    assert done.generation_id == talk.joined(second).generation_id == generation + 1
    assert talk.joined(second).member_id != follower


def test_the_former_member_is_fenced_everywhere() -> None:
    talk, generation, _, follower = pair()
    static("b", talk)()
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert talk.join(follower, group_instance_id="b").error_code is fenced
    assert talk.sync(follower, generation, group_instance_id="b").error_code is fenced
    assert talk.beat(follower, generation, "b") is fenced
    assert talk.commit(1, follower, generation, group_instance_id="b") is fenced
    assert talk.leave(on.LeavingMember(follower, "b")) == [fenced]


def test_an_unknown_instance() -> None:
    talk, generation, leader, _ = pair()
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.join(leader, group_instance_id="c").error_code is unknown
    assert talk.beat(leader, generation, "c") is unknown
    assert talk.leave(on.LeavingMember(leader, "c")) == [unknown]
    assert talk.leave(on.LeavingMember("", "c")) == [unknown]
    assert talk.leave(on.LeavingMember("")) == [unknown]


def test_an_operator_removes_instances_by_name() -> None:
    talk, _, _, _ = pair()
    left = talk.get(
        on.LeaveGroup(GROUP, [on.LeavingMember("", "a"), on.LeavingMember("", "b")]),
        on.LeaveGroupResponse,
    )
    assert left.members == (
        on.LeftMember("", "a", ErrorCode.NONE),
        on.LeftMember("", "b", ErrorCode.NONE),
    )
    assert talk.state == "Empty"


def test_an_instance_is_removed_when_its_session_times_out() -> None:
    talk, generation, leader, follower = pair()
    talk.pass_ms(SESSION_MS - 1)
    talk.beat(leader, generation, "a")
    talk.pass_ms(1)
    assert talk.beat(follower, generation, "b") is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.beat(leader, generation, "a") is ErrorCode.REBALANCE_IN_PROGRESS


def test_the_session_of_the_new_id_is_what_counts() -> None:
    talk, generation, leader, follower = pair()
    talk.pass_ms(SESSION_MS // 2)
    talk.beat(leader, generation, "a")
    response = static("b", talk)()
    talk.pass_ms(SESSION_MS // 2)
    assert talk.beat(response.member_id, generation, "b") is ErrorCode.NONE
    assert talk.beat(follower, generation, "b") is ErrorCode.FENCED_INSTANCE_ID


def test_a_generation_begins_without_an_absent_instance() -> None:
    """A static member that does not join stays in the group as long as its session lasts."""
    talk = Talk()
    fields: dict[str, Any] = {"session_timeout_ms": 100_000}
    generation, (leader,) = talk.stable(1, group_instance_id="a", **fields)
    requester = talk.joining(**fields)
    talk.pass_ms(REBALANCE_MS)
    response = talk.joined(requester)
    assert response.generation_id == generation + 1
    assert response.leader == response.member_id, "the leader has to be one who joined"
    assert {one.member_id for one in response.members} == {leader, response.member_id}


def test_no_instance_returns_in_time() -> None:
    talk = Talk()
    fields: dict[str, Any] = {"session_timeout_ms": 100_000}
    generation, (leader,) = talk.stable(1, group_instance_id="a", **fields)
    requester = talk.joining(**fields)
    new = talk.describe().members[-1].member_id
    talk.leave(new)
    assert talk.joined(requester).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    talk.pass_ms(2 * REBALANCE_MS)
    assert talk.state == "PreparingRebalance"
    response = talk.join(leader, group_instance_id="a", **fields)
    assert response.generation_id == generation + 1


def test_a_rebuilt_group_knows_its_instances() -> None:
    talk, generation, _, follower = pair()
    other = talk.reload()
    response = other.join(group_instance_id="b", protocols=RANGE, fresh_id="new")
    assert (response.error_code, response.generation_id) == (ErrorCode.NONE, generation)
    assert other.beat(follower, generation, "b") is ErrorCode.FENCED_INSTANCE_ID


def test_a_session_continues_after_a_slow_write() -> None:
    """The session needs no heartbeats until the new id is written."""
    talk, generation, leader, _ = pair()
    talk.holds = True
    requester = talk.joining(group_instance_id="b")
    for _ in range(3):
        talk.pass_ms(SESSION_MS - 1)
        assert talk.beat(leader, generation, "a") is ErrorCode.NONE
    talk.write()
    member = talk.joined(requester).member_id
    assert talk.beat(member, generation, "b") is ErrorCode.NONE
    talk.pass_ms(SESSION_MS)
    assert talk.beat(member, generation, "b") is ErrorCode.UNKNOWN_MEMBER_ID
