"""Rebalances: which members a generation waits for, and how long."""

from typing import Any

import pytest
from group_talk import CONFIG, GROUP, RANGE, REBALANCE_MS, SESSION_MS, Talk, subscription

from tidelog.core.errors import ErrorCode
from tidelog.core.groups import messages as on

DELAY_MS = 3_000


def patient() -> Talk:
    """A group that waits for its first members."""
    return Talk(CONFIG._replace(group_initial_rebalance_delay_ms=DELAY_MS))


def test_a_new_group_waits_for_further_members() -> None:
    talk = patient()
    first = talk.joining()
    assert talk.shard.next_ms() == talk.now + DELAY_MS
    talk.pass_ms(DELAY_MS - 1)
    assert first not in talk.answers
    talk.pass_ms(1)
    assert talk.joined(first).generation_id == 1


def test_each_new_member_extends_the_initial_delay() -> None:
    talk = patient()
    requesters = [talk.joining()]
    talk.pass_ms(DELAY_MS - 1)
    requesters.append(talk.joining())
    talk.pass_ms(DELAY_MS)
    assert not talk.answers.keys() & set(requesters)
    requesters.append(talk.joining())
    talk.pass_ms(DELAY_MS)
    assert not talk.answers.keys() & set(requesters)
    talk.pass_ms(DELAY_MS)
    assert [talk.joined(one).generation_id for one in requesters] == [1, 1, 1]


def test_the_initial_delay_ends_at_the_rebalance_timeout() -> None:
    talk = patient()
    begin = talk.now
    first = talk.joining(rebalance_timeout_ms=7_000)
    while first not in talk.answers:
        talk.pass_ms(1_000)
        talk.joining(rebalance_timeout_ms=7_000)
        assert talk.now - begin <= 7_000 + DELAY_MS
    assert talk.now - begin >= 7_000


def test_the_delay_applies_to_empty_groups_but_is_extended_only_for_new_ones() -> None:
    talk = patient()
    first = talk.joining()
    talk.pass_ms(DELAY_MS)
    talk.leave(talk.joined(first).member_id)
    assert talk.state == "Empty"
    one = talk.joining()
    talk.pass_ms(DELAY_MS - 1)
    two = talk.joining()
    talk.pass_ms(1)
    assert talk.joined(one).generation_id == talk.joined(two).generation_id == 3


def test_all_members_leave_during_the_initial_delay() -> None:
    talk = patient()
    requester = talk.joining(version=3)
    member = talk.describe().members[0].member_id
    assert talk.leave(member) == [ErrorCode.NONE]
    assert talk.joined(requester).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.state == "PreparingRebalance"
    talk.pass_ms(DELAY_MS)
    assert talk.state == "Empty"
    assert talk.join(member).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_member_makes_all_join_again() -> None:
    talk = Talk()
    generation, (leader,) = talk.stable()
    requester = talk.joining()
    assert requester not in talk.answers
    assert talk.beat(leader, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert talk.sync(leader, generation).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    again = talk.join(leader)
    assert again.generation_id == talk.joined(requester).generation_id == generation + 1
    assert again.leader == leader
    assert talk.beat(leader, generation) is ErrorCode.ILLEGAL_GENERATION


def test_a_member_that_does_not_join_in_time_is_removed() -> None:
    talk = Talk()
    generation, (leader, follower) = talk.stable(2)
    requester = talk.joining()
    for _ in range(REBALANCE_MS // 1_000 - 1):
        talk.pass_ms(1_000)
        assert talk.beat(leader, generation) is ErrorCode.REBALANCE_IN_PROGRESS
        assert talk.beat(follower, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    again = talk.joining(follower)
    talk.pass_ms(1_000)
    response = talk.joined(requester)
    assert response.generation_id == generation + 1
    assert response.leader == follower, "the leader was late, another one who joined takes over"
    assert {one.member_id for one in talk.joined(again).members} == {follower, response.member_id}
    assert talk.beat(leader, generation + 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.join(leader).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_longest_rebalance_time_out_counts() -> None:
    talk = Talk()
    talk.stable(1, session_timeout_ms=1_000_000, rebalance_timeout_ms=50_000)
    requester = talk.joining(rebalance_timeout_ms=1_000)
    talk.pass_ms(49_999)
    assert requester not in talk.answers
    talk.pass_ms(1)
    assert talk.joined(requester).error_code is ErrorCode.NONE


def test_a_silent_member_is_removed_after_its_session() -> None:
    talk = Talk()
    generation, (leader, follower) = talk.stable(2)
    talk.pass_ms(SESSION_MS - 1)
    assert talk.beat(leader, generation) is ErrorCode.NONE
    talk.pass_ms(1)
    assert talk.beat(leader, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert talk.beat(follower, generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.join(leader).generation_id == generation + 1


def test_the_last_silent_member_leaves_an_empty_group() -> None:
    talk = Talk()
    generation, (leader,) = talk.stable()
    talk.pass_ms(SESSION_MS)
    assert talk.state == "Empty"
    assert talk.beat(leader, generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.reload().describe().members == ()


def test_a_member_needs_no_heartbeats_while_it_waits_for_a_rebalance() -> None:
    talk = Talk()
    generation, (leader, follower) = talk.stable(2)
    waiting = talk.joining(leader)
    for _ in range(4):
        talk.pass_ms(SESSION_MS // 2)
        assert talk.beat(follower, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert waiting not in talk.answers
    done = talk.join(follower)
    assert done.generation_id == talk.joined(waiting).generation_id
    # From here on it must send heartbeats again.
    talk.pass_ms(SESSION_MS)
    assert talk.state == "Empty"


def test_a_new_member_that_waits_too_long_is_removed() -> None:
    talk = Talk()
    fields: dict[str, Any] = {"session_timeout_ms": 1_800_000, "rebalance_timeout_ms": 1_800_000}
    talk.stable(1, **fields)
    requester = talk.joining(**fields)
    talk.pass_ms(300_000)
    response = talk.joined(requester)
    assert response.error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert response.member_id == ""
    assert talk.state == "PreparingRebalance"


def test_a_leader_that_joins_again_causes_a_rebalance() -> None:
    talk = Talk()
    generation, (leader, follower) = talk.stable(2)
    requester = talk.joining(leader)
    assert requester not in talk.answers
    assert talk.beat(follower, generation) is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_unchanged_follower_that_joins_again_gets_the_generation() -> None:
    talk = Talk()
    generation, (leader, follower) = talk.stable(2)
    response = talk.join(follower)
    assert response.error_code is ErrorCode.NONE
    assert (response.generation_id, response.leader) == (generation, leader)
    assert (response.protocol_name, response.members) == ("range", ())
    assert talk.sync(follower, generation).assignment == follower.encode()
    assert talk.beat(leader, generation) is ErrorCode.NONE


@pytest.mark.parametrize(
    "protocols",
    [
        [("range", subscription("events", "more"))],
        [*RANGE, ("sticky", b"")],
    ],
)
def test_a_follower_that_has_changed_makes_all_join_again(
    protocols: list[tuple[str, bytes]],
) -> None:
    talk = Talk()
    generation, (leader, follower) = talk.stable(2)
    requester = talk.joining(follower, protocols=protocols)
    assert requester not in talk.answers
    assert talk.beat(leader, generation) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_missed_the_response_gets_it_again() -> None:
    talk = Talk()
    first = talk.join()
    assert talk.join(first.member_id) == first
    assert talk.state == "CompletingRebalance"


def test_a_member_that_changed_before_the_assignment_makes_all_join_again() -> None:
    talk = Talk()
    leader = talk.join().member_id
    second = talk.joining()
    talk.join(leader)
    follower = talk.joined(second)
    waiting = talk.syncing(follower.member_id, follower.generation_id)
    requester = talk.joining(leader, protocols=[("range", b"other")])
    assert talk.synced(waiting).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert requester not in talk.answers
    assert talk.state == "PreparingRebalance"


def test_a_member_that_sends_no_sync_is_removed() -> None:
    talk = Talk()
    leader = talk.join().member_id
    second = talk.joining()
    generation = talk.join(leader).generation_id
    follower = talk.joined(second).member_id
    assert talk.sync(leader, generation, {leader: b"all"}).assignment == b"all"
    for _ in range(REBALANCE_MS // 5_000):
        assert talk.beat(leader, generation) is ErrorCode.NONE
        assert talk.beat(follower, generation) is ErrorCode.NONE
        talk.pass_ms(5_000)
    assert talk.beat(follower, generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.beat(leader, generation) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_never_assigns_is_removed() -> None:
    talk = Talk()
    leader = talk.join().member_id
    second = talk.joining()
    generation = talk.join(leader).generation_id
    follower = talk.joined(second).member_id
    waiting = talk.syncing(follower, generation)
    for _ in range(REBALANCE_MS // 5_000):
        assert waiting not in talk.answers
        assert talk.beat(leader, generation) is ErrorCode.NONE
        talk.pass_ms(5_000)
    assert talk.synced(waiting).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    response = talk.join(follower)
    assert response.leader == follower
    assert response.generation_id == generation + 1


def test_no_member_is_removed_if_all_sent_a_sync() -> None:
    talk = Talk()
    generation, members = talk.stable(3)
    for _ in range(2 * REBALANCE_MS // 5_000):
        talk.pass_ms(5_000)
        assert {talk.beat(one, generation) for one in members} == {ErrorCode.NONE}


def test_many_rounds_of_cooperative_members() -> None:
    """Each round a member joins again with what it has given up; the leader may start rounds."""
    talk = Talk()
    generation, members = talk.stable(3)
    for number in range(5):
        metadata = [("range", subscription("events") + bytes([number]))]
        requesters = [talk.joining(one, protocols=metadata) for one in reversed(members)]
        assert {talk.joined(one).generation_id for one in requesters} == {generation + 1}
        assert {talk.joined(one).leader for one in requesters} == {members[0]}
        generation = talk.spread(members)
    assert generation == 8


def test_equal_member_ids_in_two_groups_are_separate() -> None:
    talk = Talk()
    _, (leader,) = talk.stable()
    response = talk.get(on.Heartbeat(GROUP + "-other", 1, leader, None), on.HeartbeatResponse)
    assert response.error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_timeout_of_zero_does_not_loop() -> None:
    talk = Talk()
    first = talk.join(rebalance_timeout_ms=-5)
    second = talk.join(rebalance_timeout_ms=0)
    assert second.generation_id == first.generation_id + 1
    assert [one.member_id for one in second.members] == [second.member_id]
    talk.pass_ms(100)
    assert talk.state == "Empty"
