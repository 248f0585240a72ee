"""Offsets committed in transactions: TxnOffsetCommit, markers, and OffsetFetch meanwhile."""

import pytest
from group_talk import CONFIG, EVENTS, GROUP, OTHER, Talk

from tidelog.core.errors import ErrorCode
from tidelog.core.groups import messages as on
from tidelog.core.groups.messages import error_of_txn_offset_commit
from tidelog.core.groups.records import OffsetKey, encode_key
from tidelog.core.types import TopicPartition

UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.mark.parametrize("moved", [False, True], ids=["same coordinator", "next coordinator"])
@pytest.mark.parametrize(("committed", "offset"), [(True, 9), (False, 5)])
def test_offset_of_a_transaction_counts_once_the_marker_commits_it(
    moved: bool, committed: bool, offset: int
) -> None:
    talk = Talk()
    talk.commit(5)
    assert talk.commit_in_transaction(9) is ErrorCode.NONE
    if moved:
        talk = talk.reload()
    assert talk.fetch(EVENTS) == {EVENTS: 5}
    assert talk.stable_fetch(EVENTS) == {EVENTS: UNSTABLE}
    end = talk.end_transaction(committed=committed)
    assert talk.completions[end] is ErrorCode.NONE
    assert talk.stable_fetch(EVENTS) == talk.fetch(EVENTS) == {EVENTS: offset}
    assert talk.reload().fetch() == {EVENTS: offset}


def test_marker_of_another_producer_ends_nothing() -> None:
    talk = Talk()
    talk.commit_in_transaction(9, producer_id=1)
    talk.end_transaction(2, committed=True)
    assert talk.stable_fetch(EVENTS) == {EVENTS: UNSTABLE}
    talk.end_transaction(1, committed=True)
    assert talk.stable_fetch(EVENTS) == {EVENTS: 9}


def test_marker_ends_the_transaction_in_all_groups_of_the_partition() -> None:
    talk = Talk()
    talk.commit_in_transaction(9)
    talk.commit_in_transaction(3, group_id="second")
    talk.end_transaction(committed=True)
    assert talk.fetch() == {EVENTS: 9}
    second = talk.get(on.OffsetFetch("second", None), on.OffsetFetchResponse).partitions
    assert [one.committed_offset for one in second] == [3]


def test_offset_is_unstable_while_it_is_written() -> None:
    talk = Talk()
    talk.holds = True
    late = talk.committing_in_transaction(9)
    assert talk.stable_fetch(EVENTS) == {EVENTS: UNSTABLE}
    assert late not in talk.answers
    talk.write()
    assert talk.txn_commit_error(late) is ErrorCode.NONE
    end = talk.end_transaction(committed=True)
    assert talk.stable_fetch(EVENTS) == {EVENTS: UNSTABLE}
    assert end not in talk.completions
    talk.write()
    assert talk.stable_fetch(EVENTS) == {EVENTS: 9}


def test_offset_that_was_not_written_is_not_in_the_transaction() -> None:
    talk = Talk()
    talk.holds = True
    late = talk.committing_in_transaction(9)
    talk.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert talk.txn_commit_error(late) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.shard.groups == []
    talk.holds = False
    talk.end_transaction(committed=True)
    assert talk.fetch(EVENTS) == {EVENTS: -1}


def test_offset_in_doubt_is_in_the_transaction() -> None:
    """It is in the log before the marker, so it is committed if the marker is."""
    talk = Talk()
    talk.holds = True
    late = talk.committing_in_transaction(9)
    append = talk.unwritten.pop()
    talk.store(append)
    talk.shard.written(append.token, ErrorCode.REQUEST_TIMED_OUT, talk.now)
    talk.settle()
    assert talk.txn_commit_error(late) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    talk.holds = False
    talk.end_transaction(committed=True)
    assert talk.fetch(EVENTS) == talk.reload().fetch(EVENTS) == {EVENTS: 9}


def test_marker_in_doubt_is_sent_again() -> None:
    talk = Talk()
    talk.commit_in_transaction(9)
    talk.holds = True
    end = talk.end_transaction(committed=True)
    append = talk.unwritten.pop()
    talk.store(append)
    talk.shard.written(append.token, ErrorCode.REQUEST_TIMED_OUT, talk.now)
    assert talk.completions[end] is ErrorCode.REQUEST_TIMED_OUT
    assert talk.stable_fetch(EVENTS) == {EVENTS: UNSTABLE}
    talk.holds = False
    talk.end_transaction(committed=True)
    assert talk.stable_fetch(EVENTS) == talk.reload().stable_fetch(EVENTS) == {EVENTS: 9}


def test_marker_fails_when_the_coordinator_moves() -> None:
    talk = Talk()
    talk.commit_in_transaction(9)
    talk.holds = True
    end = talk.end_transaction(committed=True)
    talk.shard.unload(ErrorCode.NOT_COORDINATOR)
    assert talk.completions[end] is ErrorCode.NOT_COORDINATOR
    assert talk.reload().stable_fetch(EVENTS) == {EVENTS: UNSTABLE}


# -- several commits of one partition ------------------------------------------------------


def test_later_commit_of_a_transaction_replaces_its_earlier_one() -> None:
    talk = Talk()
    talk.commit_in_transaction(9)
    talk.commit_in_transaction(4)
    talk.end_transaction(committed=True)
    assert talk.fetch(EVENTS) == talk.reload().fetch(EVENTS) == {EVENTS: 4}


@pytest.mark.parametrize("moved", [False, True], ids=["same coordinator", "next coordinator"])
def test_the_latest_commit_in_the_log_counts(moved: bool) -> None:
    """A consumer outside of the transaction commits after the transaction did, before its end."""
    talk = Talk()
    talk.commit_in_transaction(9)
    talk.commit(7)
    if moved:
        talk = talk.reload()
    assert talk.stable_fetch(EVENTS) == {EVENTS: UNSTABLE}
    talk.end_transaction(committed=True)
    assert talk.stable_fetch(EVENTS) == talk.reload().fetch(EVENTS) == {EVENTS: 7}


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_the_latest_of_two_transactions_counts_whichever_ends_first(order: tuple[int, int]) -> None:
    talk = Talk()
    talk.commit_in_transaction(10, 1)
    talk.commit_in_transaction(20, 2)
    talk.end_transaction(order[0], committed=True)
    assert talk.stable_fetch(EVENTS) == {EVENTS: UNSTABLE}
    talk.end_transaction(order[1], committed=True)
    assert talk.stable_fetch(EVENTS) == talk.reload().fetch(EVENTS) == {EVENTS: 20}


def test_aborted_transaction_replaces_no_other() -> None:
    talk = Talk()
    talk.commit_in_transaction(10, 1)
    talk.commit_in_transaction(20, 2)
    talk.end_transaction(2, committed=False)
    talk.end_transaction(1, committed=True)
    assert talk.stable_fetch(EVENTS) == talk.reload().fetch(EVENTS) == {EVENTS: 10}


# -- who may commit ------------------------------------------------------------------------


def test_only_members_of_the_generation_may_commit() -> None:
    talk = Talk()
    generation, (leader, _) = talk.stable(2)
    assert talk.commit_in_transaction(1, 1, leader, generation) is ErrorCode.NONE
    stale = talk.commit_in_transaction(2, 1, leader, generation - 1)
    assert stale is ErrorCode.ILLEGAL_GENERATION
    assert talk.commit_in_transaction(2, 1, leader, -1) is ErrorCode.ILLEGAL_GENERATION
    assert talk.commit_in_transaction(2, 1, "who", generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.commit_in_transaction(2, 1, "", generation) is ErrorCode.UNKNOWN_MEMBER_ID
    unknown = talk.commit_in_transaction(2, group_instance_id="i")
    assert unknown is ErrorCode.UNKNOWN_MEMBER_ID
    talk.end_transaction(committed=True)
    assert talk.fetch() == {EVENTS: 1}


def test_older_client_without_a_member_may_commit() -> None:
    talk = Talk()
    talk.stable()
    assert talk.commit_in_transaction(1) is ErrorCode.NONE


def test_restarted_static_member_fences_its_former_self() -> None:
    talk = Talk()
    generation, (member,) = talk.stable(group_instance_id="i")
    talk.join(group_instance_id="i")
    error = talk.commit_in_transaction(1, 1, member, generation, group_instance_id="i")
    assert error is ErrorCode.FENCED_INSTANCE_ID


def test_transactions_commit_during_a_rebalance() -> None:
    talk = Talk()
    generation, (leader,) = talk.stable()
    new = talk.joining()
    talk.join(leader)
    assert talk.joined(new).error_code is ErrorCode.NONE
    assert talk.state == "CompletingRebalance"
    assert talk.commit_in_transaction(4, 1, leader, generation + 1) is ErrorCode.NONE


def test_commit_of_a_member_of_an_unknown_group_is_refused() -> None:
    talk = Talk()
    assert talk.commit_in_transaction(5, 1, "m", 3) is ErrorCode.ILLEGAL_GENERATION
    assert talk.state == "Dead"
    assert talk.commit_in_transaction(5, group_id="") is ErrorCode.INVALID_GROUP_ID


def test_too_large_metadata_is_refused_alone() -> None:
    talk = Talk()
    long = "m" * (CONFIG.offset_metadata_max_bytes + 1)
    offsets = [on.OffsetToCommit(*EVENTS, 1, None, long), on.OffsetToCommit(*OTHER, 2)]
    asked = talk.committing_in_transaction(0, offsets=offsets)
    answer = talk.answer(asked, on.TxnOffsetCommitResponse)
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert [one.error_code for one in answer.partitions] == [too_large, ErrorCode.NONE]
    asked = talk.committing_in_transaction(0, offsets=offsets[:1])
    assert talk.txn_commit_error(asked) is too_large


@pytest.mark.parametrize(
    ("error", "version", "seen"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.NETWORK_EXCEPTION, 4, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.PRODUCER_FENCED, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 5, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 5, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
def test_errors_of_the_verification_are_those_a_client_knows(
    error: ErrorCode, version: int, seen: ErrorCode
) -> None:
    assert error_of_txn_offset_commit(error, version) is seen


# -- groups that are deleted or expire -----------------------------------------------------


def test_deleted_group_takes_its_open_transactions_with_it() -> None:
    talk = Talk()
    talk.commit(1, partition=OTHER)
    talk.commit_in_transaction(9)
    assert talk.delete() is ErrorCode.NONE
    assert talk.shard.groups == []
    key = encode_key(OffsetKey(GROUP, *EVENTS))
    assert (key, None) in talk.log, "the next coordinator must not commit the offset either"
    talk.end_transaction(committed=True)
    assert talk.fetch() == talk.reload().fetch() == {}


@pytest.mark.parametrize("way", ["offset", "topic"])
def test_deleted_offset_leaves_its_transaction(way: str) -> None:
    talk = Talk()
    talk.commit_in_transaction(9)
    talk.commit_in_transaction(3, partition=OTHER)
    if way == "offset":
        talk.get(on.OffsetDelete(GROUP, [TopicPartition(*EVENTS)]), on.OffsetDeleteResponse)
    else:
        talk.shard.topic_deleted({EVENTS[0]}, talk.now)
        talk.settle()
    talk.end_transaction(committed=True)
    assert talk.fetch() == talk.reload().fetch() == {OTHER: 3}


def test_offset_does_not_expire_while_a_transaction_is_open() -> None:
    talk = Talk()
    talk.commit(5)
    talk.commit_in_transaction(9)
    talk.pass_ms(2 * CONFIG.offsets_retention_ms)
    assert talk.fetch(EVENTS) == {EVENTS: 5}
    talk.end_transaction(committed=False)
    talk.pass_ms(2 * CONFIG.offsets_retention_check_interval_ms)
    assert talk.shard.groups == []


def test_group_with_only_an_open_transaction_stays() -> None:
    talk = Talk()
    talk.commit_in_transaction(9)
    talk.pass_ms(2 * CONFIG.offsets_retention_ms)
    assert [group.group_id for group in talk.reload().shard.groups] == [GROUP]
    talk.end_transaction(committed=False)
    assert talk.shard.groups == talk.reload().shard.groups == []


def test_tombstone_in_a_transaction_removes_at_once() -> None:
    """No broker writes one; a client that writes to the topic itself may."""
    talk = Talk()
    talk.commit(5)
    key = encode_key(OffsetKey(GROUP, *EVENTS))
    talk.shard.replay_transactional(1, 0, key, None)
    assert talk.shard.groups == []
