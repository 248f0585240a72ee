"""DescribeGroups, ListGroups and DeleteGroups."""

import pytest
from group_talk import GROUP, RANGE, Talk

from tidelog.core.errors import ErrorCode
from tidelog.core.groups import messages as on


def names(talk: Talk, states: list[str] | None = None, types: list[str] | None = None) -> set[str]:
    request = on.ListGroups(states or [], types or [])
    response = talk.get(request, on.ListGroupsResponse)
    assert response.error_code is ErrorCode.NONE
    return {one.group_id for one in response.groups}


def test_describe_a_stable_group() -> None:
    talk = Talk()
    _, (leader,) = talk.stable()
    described = talk.describe()
    assert (described.error_code, described.group_id) == (ErrorCode.NONE, GROUP)
    assert (described.group_state, described.protocol_type) == ("Stable", "consumer")
    assert described.protocol_data == "range"
    assert described.members == (
        on.DescribedMember(leader, None, "app", "/127.0.0.1", RANGE[0][1], leader.encode()),
    )


def test_describe_hides_assignments_during_a_rebalance() -> None:
    talk = Talk()
    _, (leader,) = talk.stable(group_instance_id="i")
    talk.joining()
    described = talk.describe()
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert described.members[0] == on.DescribedMember(leader, "i", "app", "/127.0.0.1", b"", b"")


def test_describe_an_unknown_group() -> None:
    talk = Talk()
    assert talk.describe(5) == on.DescribeGroupResponse(ErrorCode.NONE, GROUP, "Dead")
    described = talk.describe(6)
    assert described.error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert described.group_state == "Dead"
    assert described.error_message == f"Group {GROUP} not found."


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        ([], [], {GROUP, "simple"}),
        (["Stable"], [], {GROUP}),
        (["sTABLE", "eMPTY"], [], {GROUP, "simple"}),
        (["Empty"], ["CLASSIC"], {"simple"}),
        ([], ["Consumer"], set()),
        (["no such state"], [], set()),
        ([], ["classic", "share"], {GROUP, "simple"}),
    ],
)
def test_lists_by_state_and_type(states: list[str], types: list[str], found: set[str]) -> None:
    talk = Talk()
    talk.stable()
    talk.committing(1, group_id="simple")
    assert names(talk, states, types) == found


def test_entry_of_a_group_list() -> None:
    talk = Talk()
    talk.stable()
    assert talk.shard.list_groups(on.ListGroups([], [])) == [
        on.ListedGroup(GROUP, "consumer", "Stable", "classic")
    ]


def test_delete_group() -> None:
    talk = Talk()
    generation, (leader,) = talk.stable()
    talk.commit(1, leader, generation)
    assert talk.delete() is ErrorCode.NON_EMPTY_GROUP
    talk.joining()
    assert talk.delete() is ErrorCode.NON_EMPTY_GROUP
    talk.join(leader)
    assert talk.delete() is ErrorCode.NON_EMPTY_GROUP
    talk.leave(*(one.member_id for one in talk.describe().members))
    assert talk.delete() is ErrorCode.NONE
    assert talk.delete() is ErrorCode.GROUP_ID_NOT_FOUND
    assert talk.fetch() == {}
    assert names(talk) == set()
    assert names(talk.reload()) == set()


def test_a_deleted_group_starts_again_from_nothing() -> None:
    talk = Talk()
    _, (leader,) = talk.stable()
    talk.leave(leader)
    talk.delete()
    assert talk.join().generation_id == 1


def test_a_group_with_offsets_only() -> None:
    talk = Talk()
    talk.commit(1)
    assert talk.delete() is ErrorCode.NONE
    assert len(talk.log) == 2, "it had no record of its own, so it needs no tombstone"
    assert talk.state == "Dead"


def test_a_group_is_deleted_when_its_tombstones_are_committed() -> None:
    talk = Talk()
    talk.commit(1)
    talk.holds = True
    requester = talk.ask(on.DeleteGroup(GROUP))
    assert requester not in talk.answers
    assert talk.fetch() == {("events", 0): 1}
    assert talk.delete() is ErrorCode.GROUP_ID_NOT_FOUND
    assert talk.commit(2) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert names(talk) == set()
    talk.write(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    response = talk.answer(requester, on.DeleteGroupResponse)
    assert response.error_code is ErrorCode.NOT_COORDINATOR
    assert talk.state == "Empty"
    again = talk.ask(on.DeleteGroup(GROUP))
    talk.write()
    assert talk.answer(again, on.DeleteGroupResponse).error_code is ErrorCode.NONE
    assert talk.fetch() == {}


def test_members_must_retry_while_their_group_is_removed() -> None:
    talk = Talk()
    _, (leader,) = talk.stable()
    talk.leave(leader)
    talk.holds = True
    talk.ask(on.DeleteGroup(GROUP))
    unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.join().error_code is unavailable
    assert talk.join(leader).error_code is unavailable
    assert talk.sync(leader, 1).error_code is unavailable
    assert talk.beat(leader, 1) is unavailable
    response = talk.get(on.LeaveGroup(GROUP, []), on.LeaveGroupResponse)
    assert response.error_code is unavailable
