"""JoinGroup: which members may join, and with which id."""

from typing import Any

import pytest
from group_talk import CONFIG, GROUP, RANGE, SESSION_MS, Talk

from tidelog.core.errors import ErrorCode
from tidelog.core.groups import messages as on


def test_the_first_member_leads_generation_one() -> None:
    talk = Talk()
    response = talk.join()
    assert response.error_code is ErrorCode.NONE
    assert response.generation_id == 1
    assert response.member_id == response.leader == "app-id1"
    assert (response.protocol_type, response.protocol_name) == ("consumer", "range")
    assert response.members == (on.JoinedMember("app-id1", None, RANGE[0][1]),)
    assert not response.skip_assignment
    assert talk.state == "CompletingRebalance"


def test_since_version_4_a_member_must_join_again_with_its_id() -> None:
    talk = Talk()
    first = talk.join(version=4)
    assert first.error_code is ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id == "app-id1"
    assert first.generation_id == -1
    assert first.protocol_name is None
    assert talk.state == "Empty"
    second = talk.join(first.member_id, version=4)
    assert second.error_code is ErrorCode.NONE
    assert second.member_id == first.member_id
    assert second.generation_id == 1


def test_a_static_member_joins_at_once() -> None:
    response = Talk().join(version=9, group_instance_id="one")
    assert response.error_code is ErrorCode.NONE
    assert response.member_id == "one-id1"


def test_a_pending_member_delays_a_rebalance_until_its_session_times_out() -> None:
    talk = Talk()
    generation, (leader,) = talk.stable()
    pending = talk.join(version=4)
    assert talk.beat(leader, generation) is ErrorCode.NONE
    again = talk.joining(leader)
    assert again not in talk.answers
    assert talk.state == "PreparingRebalance"
    talk.pass_ms(SESSION_MS)
    assert talk.joined(again).generation_id == generation + 1
    late = talk.join(pending.member_id, version=4)
    assert late.error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_of_pending_members_only_is_removed() -> None:
    talk = Talk()
    talk.join(version=4)
    assert talk.state == "Empty"
    talk.pass_ms(SESSION_MS - 1)
    assert talk.state == "Empty"
    talk.pass_ms(1)
    assert talk.state == "Dead"


@pytest.mark.parametrize("session", [5_999, 1_800_001])
def test_session_timeouts_beyond_the_limits_are_refused(session: int) -> None:
    talk = Talk()
    response = talk.join("x", session_timeout_ms=session)
    assert response.error_code is ErrorCode.INVALID_SESSION_TIMEOUT
    assert response.member_id == "x"
    assert talk.state == "Dead"


@pytest.mark.parametrize("session", [6_000, 1_800_000])
def test_session_timeouts_at_the_limits(session: int) -> None:
    assert Talk().join(session_timeout_ms=session).error_code is ErrorCode.NONE


def test_a_join_with_a_member_id_to_an_unknown_group() -> None:
    response = Talk().join("who")
    assert response.error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert response.member_id == "who"


def test_a_join_with_an_unknown_member_id() -> None:
    talk = Talk()
    talk.stable()
    assert talk.join("who").error_code is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("request_type", [on.JoinGroup, on.SyncGroup, on.Heartbeat, on.LeaveGroup])
def test_requests_without_a_group_id_are_refused(request_type: type) -> None:
    talk = Talk()
    requester = {
        on.JoinGroup: lambda: talk.joining(group_id=""),
        on.SyncGroup: lambda: talk.syncing("m", 1, group_id=""),
        on.Heartbeat: lambda: talk.ask(on.Heartbeat("", 1, "m", None)),
        on.LeaveGroup: lambda: talk.ask(on.LeaveGroup("", [on.LeavingMember("m")])),
    }[request_type]()
    response = talk.answers[requester]
    assert response.error_code is ErrorCode.INVALID_GROUP_ID  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "fields",
    [
        {"protocol_type": ""},
        {"protocols": []},
    ],
)
def test_a_first_member_without_protocols_leaves_no_group(fields: dict[str, Any]) -> None:
    talk = Talk()
    assert talk.join(**fields).error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert talk.state == "Dead"


@pytest.mark.parametrize(
    "fields",
    [
        {"protocol_type": "connect"},
        {"protocols": [("sticky", b"")]},
        {"protocols": []},
    ],
)
def test_a_member_with_other_protocols_is_refused(
    fields: dict[str, Any],
) -> None:
    talk = Talk()
    generation, (leader,) = talk.stable()
    assert talk.join(**fields).error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other = talk.join(leader, **fields)
    assert other.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert other.member_id == leader
    assert talk.beat(leader, generation) is ErrorCode.NONE


def test_an_empty_group_may_change_its_protocol_type() -> None:
    talk = Talk()
    _, (leader,) = talk.stable()
    talk.leave(leader)
    response = talk.join(protocol_type="connect", protocols=[("eager", b"")])
    assert response.error_code is ErrorCode.NONE
    assert response.protocol_type == "connect"


def test_members_vote_among_the_protocols_that_all_support() -> None:
    talk = Talk()
    likes_c = [("a", b"1"), ("c", b"1"), ("b", b"1")]
    one = talk.join(protocols=likes_c)
    assert one.protocol_name == "a"
    second = talk.joining(protocols=[("b", b"2"), ("c", b"2")])
    third = talk.joining(protocols=[("b", b"3"), ("c", b"3"), ("d", b"3")])
    again = talk.joining(one.member_id, protocols=likes_c)
    # Not all support "a", so the first votes for "c"; but two vote for "b".
    assert {talk.joined(requester).protocol_name for requester in (second, third, again)} == {"b"}
    assert {member.metadata for member in talk.joined(again).members} == {b"1", b"2", b"3"}


def test_a_protocol_named_twice_counts_once() -> None:
    talk = Talk()
    response = talk.join(protocols=[("range", b"first"), ("range", b"second")])
    assert [member.metadata for member in response.members] == [b"first"]
    twice = talk.joining(protocols=[("range", b"x"), ("range", b"y")])
    again = talk.joining(response.member_id)
    assert talk.joined(twice).protocol_name == talk.joined(again).protocol_name == "range"


def test_only_the_leader_gets_the_members() -> None:
    talk = Talk()
    leader = talk.join().member_id
    second = talk.joining()
    again = talk.joining(leader)
    follower = talk.joined(second)
    assert follower.members == ()
    assert follower.leader == leader
    assert {one.member_id for one in talk.joined(again).members} == {leader, follower.member_id}


def test_group_max_size_limits_members() -> None:
    talk = Talk(CONFIG._replace(group_max_size=2))
    generation, (leader, follower) = talk.stable(2)
    refused = talk.join()
    assert refused.error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused.member_id == ""
    assert talk.beat(leader, generation) is ErrorCode.NONE
    assert talk.beat(follower, generation) is ErrorCode.NONE
    again = talk.join(follower)
    assert again.error_code is ErrorCode.NONE


def test_in_a_rebalance_the_last_to_join_is_refused() -> None:
    talk = Talk(CONFIG._replace(group_max_size=2))
    _, (leader, follower) = talk.stable(2)
    again = talk.joining(leader)
    new = talk.joining()
    assert new not in talk.answers
    last = talk.join(follower)
    assert last.error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert talk.joined(again).error_code is talk.joined(new).error_code is ErrorCode.NONE
    assert len(talk.joined(again).members) == 2


def test_a_member_id_that_is_too_long_is_refused() -> None:
    talk = Talk()
    assert talk.join(client_id="x" * 32_767).error_code is ErrorCode.INVALID_REQUEST
    assert talk.state == "Dead"


def test_a_repeated_join_supersedes_the_first() -> None:
    talk = Talk()
    _, (leader, _) = talk.stable(2)
    first = talk.joining(leader)
    second = talk.joining(leader)
    assert talk.joined(first).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert second not in talk.answers


def test_version_0_has_one_timeout_for_session_and_rebalance() -> None:
    talk = Talk()
    _, (leader,) = talk.stable(1, rebalance_timeout_ms=None, version=0)
    requester = talk.joining(version=0, rebalance_timeout_ms=None)
    talk.pass_ms(SESSION_MS)
    assert talk.joined(requester).leader != leader
    assert talk.describe().group_id == GROUP
