"""Expired offsets, unused groups, offsets of deleted topics."""

import pytest
from group_talk import CONFIG, EVENTS, GROUP, OTHER, SESSION_MS, Talk

from tidelog.core.errors import ErrorCode
from tidelog.core.groups import messages as on
from tidelog.core.groups.shard import GROUP_COST, OFFSETS_AT_ONCE

RETENTION_MS = 1_000_000
CHECK_MS = 60_000

SWEPT = -(-OFFSETS_AT_ONCE // (GROUP_COST + 1))
"""Groups of one offset that are checked in one call."""


def forgetful() -> Talk:
    return Talk(
        CONFIG._replace(
            offsets_retention_ms=RETENTION_MS, offsets_retention_check_interval_ms=CHECK_MS
        )
    )


def keep_alive(talk: Talk, member: str, generation: int, ms: int) -> None:
    for _ in range(ms // (SESSION_MS // 2)):
        talk.pass_ms(SESSION_MS // 2)
        assert talk.beat(member, generation) is ErrorCode.NONE


def test_without_a_group_retention_begins_at_the_commit() -> None:
    talk = forgetful()
    talk.commit(1)
    talk.pass_ms(RETENTION_MS // 2)
    talk.commit(2, partition=OTHER)
    talk.pass_ms(RETENTION_MS // 2 - 1)
    assert talk.fetch() == {EVENTS: 1, OTHER: 2}
    talk.pass_ms(CHECK_MS + 1)
    assert talk.fetch() == talk.reload().fetch() == {OTHER: 2}
    talk.pass_ms(RETENTION_MS // 2)
    assert talk.state == talk.reload().state == "Dead"


def test_retention_begins_when_the_last_member_leaves() -> None:
    talk = forgetful()
    generation, (leader,) = talk.stable()
    talk.commit(1, leader, generation)
    keep_alive(talk, leader, generation, RETENTION_MS + CHECK_MS)
    talk.leave(leader)
    talk.pass_ms(RETENTION_MS - 1)
    assert talk.fetch() == {EVENTS: 1}
    talk.pass_ms(CHECK_MS + 1)
    assert talk.fetch() == {}
    other = talk.reload()
    assert talk.state == other.state == "Dead"
    assert talk.log[-1][1] is None, "the group itself has a tombstone"


def test_retention_continues_when_the_coordinator_moves() -> None:
    talk = forgetful()
    generation, (leader,) = talk.stable()
    talk.commit(1, leader, generation)
    talk.leave(leader)
    talk.pass_ms(RETENTION_MS // 2)
    other = talk.reload()
    other.pass_ms(RETENTION_MS // 2 - 1)
    assert other.fetch() == {EVENTS: 1}
    other.pass_ms(CHECK_MS + 1)
    assert other.fetch() == {}


def test_with_live_consumers_only_unsubscribed_topics_expire() -> None:
    talk = forgetful()
    generation, (leader,) = talk.stable()
    talk.commit(1, leader, generation)
    talk.commit(2, leader, generation, partition=OTHER)
    keep_alive(talk, leader, generation, RETENTION_MS - CHECK_MS)
    assert talk.fetch() == {EVENTS: 1, OTHER: 2}
    keep_alive(talk, leader, generation, 2 * CHECK_MS)
    assert talk.fetch() == talk.reload().fetch() == {EVENTS: 1}
    assert talk.state == "Stable"


def test_offsets_of_other_live_groups_do_not_expire() -> None:
    talk = forgetful()
    generation, (leader,) = talk.stable(protocol_type="connect", protocols=[("eager", b"")])
    talk.commit(1, leader, generation)
    keep_alive(talk, leader, generation, RETENTION_MS + 2 * CHECK_MS)
    assert talk.fetch() == {EVENTS: 1}


def test_a_commit_may_have_its_own_retention() -> None:
    talk = forgetful()
    talk.commit(1, retention_time_ms=2 * CHECK_MS)
    talk.commit(2, partition=OTHER)
    talk.pass_ms(2 * CHECK_MS - 1)
    assert talk.reload().fetch() == {EVENTS: 1, OTHER: 2}
    talk.pass_ms(CHECK_MS)
    assert talk.fetch() == {OTHER: 2}


def test_an_offset_with_a_pending_commit_does_not_expire() -> None:
    talk = forgetful()
    talk.commit(1)
    talk.pass_ms(RETENTION_MS - 1)
    talk.holds = True
    talk.committing(2)
    talk.pass_ms(2 * CHECK_MS)
    talk.write()
    assert talk.unwritten == []
    assert talk.fetch() == {EVENTS: 2}


def test_an_empty_group_without_offsets_is_removed() -> None:
    talk = forgetful()
    _, (leader,) = talk.stable()
    talk.leave(leader)
    assert talk.reload().state == "Empty"
    talk.pass_ms(CHECK_MS)
    assert talk.state == talk.reload().state == "Dead"


def test_tombstones_that_cannot_be_written_are_retried() -> None:
    talk = forgetful()
    talk.commit(1)
    talk.holds = True
    talk.pass_ms(RETENTION_MS + CHECK_MS)
    assert talk.fetch() == {EVENTS: 1}
    assert talk.commit(9, "m", 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.join().error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    talk.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert talk.fetch() == {EVENTS: 1}
    assert talk.state == "Empty"
    talk.pass_ms(CHECK_MS)
    talk.write()
    assert talk.fetch() == {}


def test_a_group_is_not_removed_twice() -> None:
    talk = forgetful()
    talk.commit(1)
    talk.holds = True
    talk.pass_ms(RETENTION_MS + 3 * CHECK_MS)
    talk.shard.topic_deleted({"events"}, talk.now)
    talk.settle()
    assert len(talk.unwritten) == 1
    talk.write()
    assert talk.state == "Dead"


def test_expiry_checks_a_few_groups_at_a_time() -> None:
    talk = forgetful()
    for number in range(3 * SWEPT):
        talk.committing(1, group_id=f"{GROUP}-{number}")
    talk.now += RETENTION_MS + CHECK_MS
    counts = []
    while True:
        talk.shard.tick(talk.now)
        talk.settle()
        counts.append(len(talk.shard.list_groups(on.ListGroups([], []))))
        if not counts[-1]:
            break
        talk.now += 1
    assert counts == [2 * SWEPT, SWEPT, 0]
    due = talk.shard.next_ms()
    assert due is not None
    assert due >= talk.now + CHECK_MS


# -- topics that are deleted ---------------------------------------------------------------


def test_offsets_of_deleted_topics_are_removed() -> None:
    talk = Talk()
    generation, (leader,) = talk.stable()
    talk.commit(1, leader, generation)
    talk.commit(2, leader, generation, partition=OTHER)
    talk.commit(3, group_id="simple")
    talk.shard.topic_deleted({"events", "unheard-of"}, talk.now)
    talk.settle()
    assert talk.fetch() == talk.reload().fetch() == {OTHER: 2}
    assert [one.group_id for one in talk.shard.list_groups(on.ListGroups([], []))] == [GROUP]


def test_a_pending_commit_for_a_deleted_topic_is_removed() -> None:
    talk = Talk()
    talk.commit(2, partition=OTHER)
    talk.holds = True
    talk.committing(1)
    talk.shard.topic_deleted({"events"}, talk.now)
    talk.settle()
    talk.write()
    talk.write()
    assert talk.fetch() == talk.reload().fetch() == {OTHER: 2}


def test_a_group_whose_commits_fail_or_are_deleted_is_removed() -> None:
    talk = Talk()
    talk.holds = True
    talk.committing(1)
    talk.ask(on.DeleteGroup(GROUP))
    talk.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    talk.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert talk.state == "Dead"
    talk.committing(1)
    talk.committing(2, partition=OTHER)
    talk.shard.topic_deleted({"events"}, talk.now)
    talk.settle()
    talk.write()
    talk.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    talk.write()
    assert talk.state == "Dead"


@pytest.mark.parametrize("ahead_ms", [10 * RETENTION_MS, -10 * RETENTION_MS], ids=["on", "back"])
@pytest.mark.parametrize("members", [False, True], ids=["without members", "of a group"])
def test_a_clock_that_jumps_and_returns_lets_nothing_expire(ahead_ms: int, members: bool) -> None:
    """Neither offsets committed before the jump nor those committed during it."""
    talk = forgetful()

    def use(offset: int, partition: tuple[str, int]) -> None:
        if not members:
            assert talk.commit(offset, partition=partition) is ErrorCode.NONE
            return
        generation, (leader,) = talk.stable()
        assert talk.commit(offset, leader, generation, partition=partition) is ErrorCode.NONE
        talk.leave(leader)

    use(1, EVENTS)
    talk.wall.read(talk.now, talk.now + ahead_ms)
    talk.pass_ms(2 * CHECK_MS)
    use(2, OTHER)
    talk.pass_ms(2 * CHECK_MS)
    talk.wall.read(talk.now, talk.now)
    talk.pass_ms(2 * CHECK_MS)
    assert talk.fetch() == {EVENTS: 1, OTHER: 2}
