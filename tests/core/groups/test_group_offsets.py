"""OffsetCommit, OffsetFetch and OffsetDelete."""

import pytest
from group_talk import CONFIG, EVENTS, GROUP, OTHER, RANGE, SESSION_MS, Talk, subscription

from tidelog.core.errors import ErrorCode
from tidelog.core.groups import messages as on
from tidelog.core.types import TopicPartition


def delete(talk: Talk, *partitions: tuple[str, int]) -> on.OffsetDeleteResponse:
    wanted = [TopicPartition(*one) for one in partitions]
    return talk.get(on.OffsetDelete(GROUP, wanted), on.OffsetDeleteResponse)


# -- OffsetCommit --------------------------------------------------------------------------


def test_a_consumer_outside_of_any_group_may_commit() -> None:
    talk = Talk()
    assert talk.commit(5) is ErrorCode.NONE
    assert talk.fetch() == {EVENTS: 5}
    assert talk.describe().group_state == "Empty"
    assert talk.describe().protocol_type == ""


@pytest.mark.parametrize(
    ("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_commit_of_a_member_of_an_unknown_group(version: int, error: ErrorCode) -> None:
    talk = Talk()
    assert talk.commit(5, "m", 3, version=version) is error
    assert talk.state == "Dead"


def test_only_members_of_the_generation_may_commit() -> None:
    talk = Talk()
    generation, (leader, _) = talk.stable(2)
    assert talk.commit(1, leader, generation) is ErrorCode.NONE
    assert talk.commit(2, leader, generation - 1) is ErrorCode.ILLEGAL_GENERATION
    assert talk.commit(2, leader, -1) is ErrorCode.ILLEGAL_GENERATION
    assert talk.commit(2, "who", generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.commit(2, "", generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.commit(2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.commit(2, group_instance_id="i") is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.fetch() == {EVENTS: 1}


def test_an_empty_group_accepts_commits_without_a_generation() -> None:
    talk = Talk()
    generation, (leader,) = talk.stable()
    talk.leave(leader)
    assert talk.commit(7) is ErrorCode.NONE
    assert talk.commit(8, leader, generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.fetch() == {EVENTS: 7}


def test_commits_during_a_rebalance() -> None:
    talk = Talk()
    generation, (leader,) = talk.stable()
    new = talk.joining()
    assert talk.state == "PreparingRebalance"
    assert talk.commit(3, leader, generation) is ErrorCode.NONE
    talk.join(leader)
    assert talk.state == "CompletingRebalance"
    assert talk.commit(4, leader, generation + 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert talk.commit(4, leader, generation) is ErrorCode.ILLEGAL_GENERATION
    assert talk.fetch() == {EVENTS: 3}
    assert talk.joined(new).generation_id == generation + 1


def test_a_commit_keeps_the_session_alive() -> None:
    talk = Talk()
    generation, (leader,) = talk.stable()
    for offset in range(5):
        talk.pass_ms(SESSION_MS - 1)
        assert talk.commit(offset, leader, generation) is ErrorCode.NONE
    talk.pass_ms(SESSION_MS)
    assert talk.state == "Empty"


def test_a_commit_is_visible_when_it_is_written() -> None:
    talk = Talk()
    talk.commit(1)
    talk.holds = True
    requester = talk.committing(2)
    assert requester not in talk.answers
    assert talk.fetch() == {EVENTS: 1}
    assert talk.fetch(EVENTS) == {EVENTS: 1}
    unstable = talk.get(
        on.OffsetFetch(GROUP, [TopicPartition(*EVENTS), TopicPartition(*OTHER)], True),
        on.OffsetFetchResponse,
    )
    assert unstable.partitions == (
        on.FetchedOffset(*EVENTS, -1, None, "", ErrorCode.UNSTABLE_OFFSET_COMMIT),
        on.FetchedOffset(*OTHER, -1, None, "", ErrorCode.NONE),
    )
    talk.write()
    assert talk.commit_error(requester) is ErrorCode.NONE
    assert talk.fetch(EVENTS, stable=True) == {EVENTS: 2}


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_a_commit_that_cannot_be_written(error: ErrorCode, told: ErrorCode) -> None:
    talk = Talk()
    talk.commit(1)
    talk.holds = True
    requester = talk.committing(2)
    talk.write(error)
    assert talk.commit_error(requester) is told
    assert talk.fetch(EVENTS, stable=True) == {EVENTS: 1}


def test_a_group_whose_first_commit_fails_does_not_exist() -> None:
    talk = Talk()
    talk.holds = True
    talk.committing(2)
    assert talk.state == "Empty"
    talk.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert talk.state == "Dead"


def test_two_pending_commits_of_which_the_second_fails() -> None:
    talk = Talk()
    talk.holds = True
    talk.committing(1)
    talk.committing(2)
    talk.write()
    stable = talk.get(
        on.OffsetFetch(GROUP, [TopicPartition(*EVENTS)], True), on.OffsetFetchResponse
    )
    assert stable.partitions[0].error_code is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert talk.fetch() == {EVENTS: 1}
    talk.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert talk.fetch(EVENTS, stable=True) == {EVENTS: 1}


def test_metadata_that_is_too_large_fails_alone() -> None:
    talk = Talk()
    limit = CONFIG.offset_metadata_max_bytes
    offsets = [
        on.OffsetToCommit("events", 0, 1, None, "x" * limit),
        on.OffsetToCommit("events", 1, 2, None, "x" * (limit + 1)),
        on.OffsetToCommit("events", 2, 3, 9, "fine"),
    ]
    requester = talk.committing(0, offsets=offsets)
    response = talk.answer(requester, on.OffsetCommitResponse)
    assert response.partitions == (
        on.PartitionError("events", 0, ErrorCode.NONE),
        on.PartitionError("events", 1, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        on.PartitionError("events", 2, ErrorCode.NONE),
    )
    fetched = talk.get(
        on.OffsetFetch(GROUP, [TopicPartition("events", one) for one in range(3)]),
        on.OffsetFetchResponse,
    )
    assert fetched.partitions == (
        on.FetchedOffset("events", 0, 1, None, "x" * limit, ErrorCode.NONE),
        on.FetchedOffset("events", 1, -1, None, "", ErrorCode.NONE),
        on.FetchedOffset("events", 2, 3, 9, "fine", ErrorCode.NONE),
    )


def test_a_commit_with_only_too_large_metadata() -> None:
    talk = Talk()
    offsets = [on.OffsetToCommit("events", 0, 1, None, "x" * 5_000)]
    assert talk.commit(0, offsets=offsets) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert talk.log == []
    assert talk.state == "Dead"


def test_a_commit_without_offsets() -> None:
    talk = Talk()
    requester = talk.committing(0, offsets=[])
    assert talk.answer(requester, on.OffsetCommitResponse).partitions == ()
    assert talk.log == []


def test_an_offset_may_be_committed_backwards() -> None:
    talk = Talk()
    talk.commit(10)
    talk.commit(3)
    assert talk.fetch() == talk.reload().fetch() == {EVENTS: 3}


def test_a_retention_time_beyond_the_largest_timestamp() -> None:
    talk = Talk()
    assert talk.commit(1, retention_time_ms=(1 << 63) - 1) is ErrorCode.NONE
    assert talk.reload().fetch() == {EVENTS: 1}


# -- OffsetFetch ---------------------------------------------------------------------------


def test_an_unknown_group_has_no_committed_offsets() -> None:
    talk = Talk()
    assert talk.fetch(EVENTS, OTHER, stable=True) == {EVENTS: -1, OTHER: -1}
    assert talk.fetch() == {}
    assert talk.state == "Dead"


def test_fetch_all_offsets_of_a_group() -> None:
    talk = Talk()
    talk.commit(1)
    talk.commit(2, partition=("events", 1))
    talk.commit(3, partition=OTHER)
    assert talk.fetch() == {EVENTS: 1, ("events", 1): 2, OTHER: 3}
    assert talk.fetch(OTHER, ("events", 9)) == {OTHER: 3, ("events", 9): -1}


# -- OffsetDelete --------------------------------------------------------------------------


def test_delete_offsets_of_a_group_without_members() -> None:
    talk = Talk()
    talk.commit(1)
    talk.commit(2, partition=OTHER)
    response = delete(talk, EVENTS, ("nothing", 0))
    assert response.error_code is ErrorCode.NONE
    assert [one.error_code for one in response.partitions] == [ErrorCode.NONE] * 2
    assert talk.fetch() == talk.reload().fetch() == {OTHER: 2}


def test_an_empty_group_is_removed_with_its_last_offset() -> None:
    talk = Talk()
    talk.commit(1)
    delete(talk, EVENTS)
    assert talk.state == talk.reload().state == "Dead"


def test_offsets_of_subscribed_topics_are_not_deleted() -> None:
    talk = Talk()
    generation, (leader,) = talk.stable()
    talk.commit(1, leader, generation)
    talk.commit(2, leader, generation, partition=OTHER)
    response = delete(talk, EVENTS, OTHER)
    assert response.error_code is ErrorCode.NONE
    assert [one.error_code for one in response.partitions] == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
    ]
    assert talk.fetch() == {EVENTS: 1}


def test_an_unreadable_subscription_protects_all_topics() -> None:
    talk = Talk()
    generation, (leader,) = talk.stable(protocols=[("range", b"\x00\x01\x7f")])
    talk.commit(1, leader, generation)
    response = delete(talk, EVENTS)
    assert response.partitions[0].error_code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_offsets_of_a_group_of_another_type_are_deleted_only_if_it_is_empty() -> None:
    talk = Talk()
    generation, (leader,) = talk.stable(protocol_type="connect", protocols=[("eager", b"")])
    talk.commit(1, leader, generation)
    assert delete(talk, EVENTS) == on.OffsetDeleteResponse(ErrorCode.NON_EMPTY_GROUP)
    talk.leave(leader)
    assert delete(talk, EVENTS).error_code is ErrorCode.NONE


def test_delete_offsets_of_an_unknown_group() -> None:
    assert delete(Talk(), EVENTS).error_code is ErrorCode.GROUP_ID_NOT_FOUND
    request = on.OffsetDelete("", [])
    assert Talk().get(request, on.OffsetDeleteResponse).error_code is ErrorCode.INVALID_GROUP_ID


def test_offsets_are_deleted_when_their_tombstones_are_committed() -> None:
    talk = Talk()
    talk.commit(1)
    talk.commit(2, partition=OTHER)
    talk.holds = True
    requester = talk.ask(on.OffsetDelete(GROUP, [TopicPartition(*EVENTS)]))
    assert talk.fetch() == {EVENTS: 1, OTHER: 2}
    talk.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    refused = on.OffsetDeleteResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert talk.answers[requester] == refused
    assert talk.fetch() == {EVENTS: 1, OTHER: 2}


def test_a_pending_commit_is_deleted_too_but_not_a_later_one() -> None:
    talk = Talk()
    talk.commit(9, partition=OTHER)
    talk.holds = True
    talk.committing(1)
    talk.ask(on.OffsetDelete(GROUP, [TopicPartition(*EVENTS)]))
    talk.write()
    assert talk.fetch() == {EVENTS: 1, OTHER: 9}
    talk.committing(2)
    talk.write()
    assert talk.fetch() == {OTHER: 9}
    talk.write()
    assert talk.fetch() == talk.reload().fetch() == {EVENTS: 2, OTHER: 9}


# -- subscriptions -------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 3, 99])
def test_subscriptions_of_any_version(version: int) -> None:
    talk = Talk()
    metadata = subscription("a", "täglich", version=version)
    generation, (leader,) = talk.stable(protocols=[("range", metadata)])
    for topic in ("a", "täglich", "b"):
        talk.commit(1, leader, generation, partition=(topic, 0))
    response = delete(talk, ("a", 0), ("täglich", 0), ("b", 0))
    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    told = [one.error_code for one in response.partitions]
    assert told == [subscribed, subscribed, ErrorCode.NONE]


def test_subscriptions_of_all_members_count() -> None:
    talk = Talk()
    leader = talk.join(protocols=[("range", subscription("a"))]).member_id
    second = talk.joining(protocols=RANGE)
    talk.join(leader, protocols=[("range", subscription("a"))])
    generation = talk.spread([leader, talk.joined(second).member_id])
    for topic in ("a", "events", "b"):
        talk.commit(1, leader, generation, partition=(topic, 0))
    delete(talk, ("a", 0), ("events", 0), ("b", 0))
    assert talk.fetch().keys() == {("a", 0), ("events", 0)}
