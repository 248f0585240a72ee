"""The follower: truncation, responses, errors, out of range."""

import pytest
from playbook import (
    NONE,
    A,
    B,
    C,
    Playbook,
    elected,
    epochs_of,
    follower,
    position,
    replica,
    reply,
    span,
)

from tidelog.core.errors import ErrorCode
from tidelog.core.replication import effects as do
from tidelog.core.replication import events as on
from tidelog.core.replication.partition import Partition, PartitionConfig
from tidelog.core.replication.truncation import TruncationPolicy
from tidelog.core.types import EpochEnd, EpochEntry
from tidelog.lab.historical_truncation import POLICIES

OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE
FENCED = do.FailWaiters(ErrorCode.NOT_LEADER_OR_FOLLOWER)


# --- given a leader -------------------------------------------------------------------------


def test_m23_new_follower_keeps_its_log_and_fetches_with_its_epoch() -> None:
    partition = replica(B, epochs=[(0, 0), (2, 4)], log=(1, 7), hw=3)
    assert Playbook(partition) >> elected(A, 3) << FENCED << do.FollowLeader(A, 3)
    assert partition.next_question(0) == position(7, epoch=3, last=2, start=1)
    assert (partition.log_end_offset, partition.high_watermark) == (7, 3)


def test_m23_a_log_without_epochs_falls_back_to_its_high_watermark() -> None:
    partition = replica(B, log=(0, 7), hw=3)
    assert (
        Playbook(partition)
        >> elected(A, 3)
        << FENCED
        << do.TruncateTo(3, log_end_offset=7, high_watermark=3)
        << do.FollowLeader(A, 3)
    )
    assert partition.next_question(0) == position(3, epoch=3)


def test_a_truncation_names_the_epochs_of_the_removed_records() -> None:
    partition = follower(epochs=[(0, 0), (1, 3), (2, 6)], log=(0, 8), hw=3)
    [truncated, _] = partition.step(reply(8, diverging=EpochEnd(0, 4)))
    assert isinstance(truncated, do.TruncateTo)
    assert (truncated.offset, truncated.epochs) == (3, [EpochEntry(1, 3), EpochEntry(2, 6)])


def test_kafka_7164_a_new_epoch_of_the_same_leader_starts_over() -> None:
    """testMakeFollowerWithNoLeaderIdChange."""
    partition = follower(epochs=[(0, 0)], log=(0, 5))
    partition.step(reply(5, error=ErrorCode.UNKNOWN_LEADER_EPOCH))
    assert partition.next_question(0) is None
    assert Playbook(partition) >> elected(A, 2) << FENCED << do.FollowLeader(A, 2)
    assert partition.next_question(0) == position(5, epoch=2, last=0)


def test_a_change_within_the_epoch_does_not_disturb_a_follower() -> None:
    partition = follower(epochs=[(0, 0)], log=(0, 5))
    assert Playbook(partition) >> elected(A, 1, partition_epoch=6, replicas=(A, B)) << None
    assert partition.replicas == (A, B)
    assert partition.next_question(0) == position(5, last=0)


def test_without_a_leader_no_request_is_sent() -> None:
    partition = follower(epochs=[(0, 0)], log=(0, 5))
    assert Playbook(partition) >> elected(None, 2) << FENCED << do.StopFollowing()
    assert partition.next_question(99) is None
    assert partition.step(reply(5, span(5), epoch=2)) == []


def test_leader_that_becomes_a_follower_forgets_its_followers() -> None:
    """Followers hold no remote replica state."""
    partition = follower(A, of=B, epoch=2)
    partition.step(elected(A, 3))
    partition.step(elected(C, 4))
    assert partition.followers == {}
    assert partition.isr.maximal == frozenset()
    assert partition.epoch_start_offset is None


# --- replies --------------------------------------------------------------------------------


def test_m11_follower_appends_then_sets_high_watermark_then_log_start() -> None:
    partition = follower(epochs=[(0, 0)], log=(0, 3), hw=1)
    batches = [span(3, 4, epoch=0), span(5, epoch=1)]
    assert (
        Playbook(partition)
        >> reply(3, *batches, hw=5, start=2)
        << do.WriteEpochs()
        << do.AppendRecords(batches)
        << do.AdvanceHighWatermark(5)
        << do.WriteEpochs()
        << do.DropBefore(2)
    )
    assert epochs_of(partition) == [(0, 2), (1, 5)]
    assert partition.next_question(0) == position(6, last=1, start=2)


def test_m21_epochs_are_replicated_with_the_records() -> None:
    partition = follower(epoch=5)
    partition.step(reply(0, span(0, epoch=0), span(1, epoch=0), span(2, epoch=3), epoch=5))
    assert epochs_of(partition) == [(0, 0), (3, 2)]


def test_m12_high_watermark_arrives_one_fetch_late() -> None:
    partition = follower()
    batch = span(0)
    assert (
        Playbook(partition)
        >> reply(0, batch, hw=0)
        << do.WriteEpochs()
        << do.AppendRecords([batch])
        >> reply(1, hw=1)
        << do.AdvanceHighWatermark(1)
    )


def test_a_followers_high_watermark_may_go_back_without_an_effect() -> None:
    partition = follower(epochs=[(0, 0)], log=(2, 8), hw=6)
    assert Playbook(partition) >> reply(8, hw=4) << None
    assert partition.high_watermark == 4
    assert Playbook(partition) >> reply(8, hw=1) << None
    assert partition.high_watermark == 2


def test_kafka_5634_the_log_start_follows_the_leaders_only_to_the_high_watermark() -> None:
    partition = follower(epochs=[(0, 0)], log=(0, 5), hw=2)
    partition.step(reply(5, hw=3, start=4))
    assert (partition.log_start_offset, partition.high_watermark) == (3, 3)


@pytest.mark.parametrize(
    "late",
    [
        pytest.param(reply(5, span(5), hw=5, epoch=2), id="KAFKA-7786: of an older epoch"),
        pytest.param(reply(5, span(5), hw=5, epoch=4), id="of a newer one"),
        pytest.param(reply(4, span(4), hw=5, epoch=3), id="to another offset"),
        pytest.param(
            reply(5, diverging=(0, 1), epoch=2), id="KAFKA-18991: a divergence of an older epoch"
        ),
        pytest.param(reply(5, epoch=2, error=OUT_OF_RANGE), id="an error of an older epoch"),
        pytest.param(
            reply(5, epoch=2, error=ErrorCode.FENCED_LEADER_EPOCH), id="fenced under an older epoch"
        ),
    ],
)
def test_a_response_to_an_outdated_request_is_ignored(late: on.FetchAnswered) -> None:
    partition = follower(epoch=3, epochs=[(0, 0)], log=(0, 5), hw=4)
    before = partition.freeze()
    assert Playbook(partition) >> late << None
    assert partition.freeze() == before


def test_leader_ignores_responses_to_its_requests_as_a_follower() -> None:
    partition = follower(epochs=[(0, 0)], log=(0, 5))
    partition.step(elected(B, 2))
    before = partition.freeze()
    replies: list[on.Event] = [
        reply(5, span(5), epoch=2),
        on.EpochEndAnswered(2, 2, NONE, EpochEnd(0, 1), 0),
        on.OffsetsAnswered(2, NONE, 3, 4, 0),
    ]
    for event in replies:
        assert partition.step(event) == []
    assert partition.freeze() == before


def test_kafka_18723_batches_of_a_newer_epoch_and_all_after_them_are_ignored() -> None:
    partition = follower(epochs=[(1, 0)], log=(0, 3))
    assert (
        Playbook(partition)
        >> reply(3, span(3), span(4, epoch=2), span(5), hw=9)
        << do.AppendRecords([span(3)])
        << do.AdvanceHighWatermark(4)
    )
    assert partition.log_end_offset == 4


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(span(3, epoch=2), id="KAFKA-18723: of an epoch newer than asked under"),
        pytest.param(span(2, 4, epoch=2), id="KAFKA-18723: around the end of the log"),
        pytest.param(span(1, 2), id="lies before the end of the log"),
        pytest.param(span(4, 3), id="ends before it begins"),
    ],
)
def test_response_without_a_usable_batch_is_fetched_again_later(batch: on.Batch) -> None:
    partition = follower(epochs=[(1, 0)], log=(0, 3), hw=1)
    assert Playbook(partition) >> reply(3, batch, hw=9, now=50) << None
    assert (partition.log_end_offset, partition.high_watermark) == (3, 1)
    assert partition.next_question(1_049) is None
    assert partition.next_question(1_050) == position(3, last=1)


def test_offsets_must_increase_within_a_reply() -> None:
    partition = follower(epochs=[(1, 0)], log=(0, 3))
    partition.step(reply(3, span(3, 5), span(5), span(6)))
    assert partition.log_end_offset == 6


def test_a_gap_that_compaction_left_is_accepted() -> None:
    partition = follower(epochs=[(1, 0)], log=(0, 3))
    partition.step(reply(3, span(5, 6)))
    assert partition.log_end_offset == 7


# --- diverging logs -------------------------------------------------------------------------


def test_m25_records_that_the_leader_lacks_are_truncated() -> None:
    partition = follower(epoch=2, epochs=[(0, 0)], log=(0, 2), hw=1)
    assert (
        Playbook(partition)
        >> reply(2, diverging=(0, 1), epoch=2)
        << do.TruncateTo(1, log_end_offset=2, high_watermark=1)
    )
    assert partition.next_question(0) == position(1, epoch=2, last=0)


def test_kafka_14704_a_diverging_reply_moves_no_high_watermark_and_no_log_start() -> None:
    partition = follower(epoch=2, epochs=[(0, 0)], log=(0, 6), hw=1)
    partition.step(reply(6, span(6), diverging=(0, 4), epoch=2, hw=4, start=3))
    assert (partition.log_start_offset, partition.high_watermark) == (0, 1)
    assert partition.log_end_offset == 4


def test_truncation_below_the_high_watermark_lowers_it() -> None:
    """Only after an unclean election; the effect has the values from before."""
    partition = follower(epoch=2, epochs=[(0, 3)], log=(3, 6), hw=5, unclean=1)
    assert (
        Playbook(partition)
        >> reply(6, diverging=(0, 2), epoch=2)
        << do.TruncateTo(2, log_end_offset=6, high_watermark=5)
        << do.WriteEpochs()
    )
    assert (partition.log_start_offset, partition.high_watermark) == (2, 2)


# --- leaders that lack committed records (ADR 40) --------------------------------------------


def refusing(*, of: int = A, epoch: int = 3) -> Partition:
    """A follower that refused to drop records that it knows to be committed."""
    partition = follower(of=of, epoch=epoch, epochs=[(0, 0), (1, 4)], log=(0, 8), hw=6)
    assert (
        Playbook(partition)
        >> reply(8, diverging=(1, 5), epoch=epoch)
        << do.StopFollowing()
        << do.RefuseTruncation(of, epoch, offset=5, high_watermark=6)
    )
    return partition


def test_a_leader_that_lacks_committed_records_is_refused() -> None:
    """The log stays unchanged, and the leader gets no more requests."""
    partition = refusing()
    assert (partition.log_end_offset, partition.high_watermark) == (8, 6)
    assert epochs_of(partition) == [(0, 0), (1, 4)]
    assert partition.next_question(99_999) is None
    assert Playbook(partition) >> reply(8, diverging=(1, 5), epoch=3) << None
    assert Playbook(partition) >> elected(A, 3, partition_epoch=99) << None
    assert partition.next_question(99_999) is None


def test_only_records_above_the_high_watermark_are_dropped_for_a_leader() -> None:
    partition = follower(epoch=3, epochs=[(0, 0), (1, 4)], log=(0, 8), hw=6)
    assert (
        Playbook(partition)
        >> reply(8, diverging=(1, 6), epoch=3)
        << do.TruncateTo(6, log_end_offset=8, high_watermark=6)
        >> reply(6, diverging=(1, 5), epoch=3)
        << do.StopFollowing()
        << do.RefuseTruncation(A, 3, offset=5, high_watermark=6)
    )


@pytest.mark.parametrize(("unclean", "truncates"), [(0, False), (1, False), (2, True), (3, True)])
def test_an_unclean_election_after_the_last_record_explains_the_truncation(
    unclean: int, truncates: bool
) -> None:
    partition = follower(epoch=3, epochs=[(0, 0), (1, 4)], log=(0, 8), hw=6, unclean=unclean)
    partition.step(reply(8, diverging=(1, 5), epoch=3))
    assert partition.log_end_offset == (5 if truncates else 8)


@pytest.mark.parametrize(("unclean", "end"), [(-1, 6), (0, 5)])
def test_a_log_without_epochs_is_truncated_after_any_unclean_election(
    unclean: int, end: int
) -> None:
    partition = follower(epoch=1, log=(0, 8), hw=6, unclean=unclean)
    partition.step(reply(6, error=OUT_OF_RANGE))
    partition.step(on.OffsetsAnswered(1, NONE, 0, 5, 0))
    assert partition.log_end_offset == end


def test_a_doubted_high_watermark_does_not_prevent_a_truncation() -> None:
    partition = follower(epoch=3, epochs=[(1, 0)], log=(0, 8), hw=8, hw_doubted=True)
    partition.step(reply(8, diverging=(1, 5), epoch=3))
    assert partition.log_end_offset == 5


def test_a_high_watermark_from_a_leader_is_not_doubted_any_more() -> None:
    partition = follower(epoch=3, epochs=[(1, 0)], log=(0, 8), hw=8, hw_doubted=True)
    partition.step(reply(8, hw=7, epoch=3))
    partition.step(elected(C, 4))
    assert (
        Playbook(partition)
        >> reply(8, diverging=(1, 5), epoch=4)
        << do.StopFollowing()
        << do.RefuseTruncation(C, 4, offset=5, high_watermark=7)
    )


def test_the_log_is_truncated_for_a_second_leader_that_lacks_the_same_records() -> None:
    partition = refusing()
    assert (
        Playbook(partition)
        >> elected(C, 4)
        << FENCED
        << do.FollowLeader(C, 4)
        >> reply(8, diverging=(1, 5), epoch=4)
        << do.TruncateTo(5, log_end_offset=8, high_watermark=6)
    )


def test_a_refused_leader_is_refused_in_a_later_epoch_too() -> None:
    """The leader was alone in the ISR, and returned after a time without a leader."""
    partition = refusing()
    assert (
        Playbook(partition)
        >> elected(None, 4)
        << FENCED
        << do.StopFollowing()
        >> elected(A, 5)
        << FENCED
        << do.FollowLeader(A, 5)
        >> reply(8, diverging=(1, 5), epoch=5)
        << do.StopFollowing()
        << do.RefuseTruncation(A, 5, offset=5, high_watermark=6)
    )


@pytest.mark.parametrize("agreed", ["as its follower", "as the leader"])
def test_a_refusal_is_forgotten_once_a_leader_has_the_records(agreed: str) -> None:
    """A later leader that lacks the records counts as the first one, not the second."""
    partition = refusing()
    if agreed == "as its follower":
        partition.step(elected(A, 4))
        partition.step(reply(8, hw=6, epoch=4))
    else:
        partition.step(elected(B, 4))
        assert partition.is_leader
    partition.step(elected(C, 5))
    partition.step(reply(8, diverging=(1, 5), epoch=5))
    assert partition.log_end_offset == 8


def test_a_leader_whose_log_starts_later_is_not_refused() -> None:
    """Retention deleted the records of this replica, so the leader lacks nothing."""
    partition = astray(hw=8)
    assert (
        Playbook(partition)
        >> on.OffsetsAnswered(1, NONE, 20, 30, 0)
        << do.RestartAt(20, log_end_offset=8, high_watermark=8)
        << do.WriteEpochs()
    )


@pytest.mark.parametrize("policy", list(POLICIES.values())[1:], ids=list(POLICIES)[1:])
def test_historical_rules_drop_committed_records(policy: TruncationPolicy) -> None:
    """As in older Kafka; stories compare the shipped rule with these."""
    partition = follower(epochs=[(0, 0)], log=(0, 8), hw=8, policy=policy)
    partition.step(on.EpochEndAnswered(1, 0, NONE, EpochEnd(0, 8), 0))
    partition.step(reply(8, error=OUT_OF_RANGE))
    partition.step(on.OffsetsAnswered(1, NONE, 0, 5, 0))
    assert partition.log_end_offset == 5


def test_kafka_10706_an_epoch_without_records_is_removed_though_no_record_is() -> None:
    partition = follower(epoch=2, epochs=[(0, 0), (1, 5)], log=(0, 5))
    assert Playbook(partition) >> reply(5, diverging=(0, 5), epoch=2) << do.WriteEpochs()
    assert epochs_of(partition) == [(0, 0)]
    assert partition.next_question(0) == position(5, epoch=2, last=0)


def test_kip_279_epochs_of_one_side_are_truncated_one_by_one() -> None:
    """The follower has 0, 2 and 4, the leader 1, 3 and 5: the log is truncated step by step."""
    partition = follower(epoch=5, epochs=[(0, 0), (2, 2), (4, 4)], log=(0, 6))
    steps = [((3, 6), 4, 2), ((1, 3), 2, 0), ((0, 0), 0, None)]
    for diverging, end, last in steps:
        partition.step(reply(partition.log_end_offset, diverging=diverging, epoch=5))
        assert partition.next_question(0) == position(end, epoch=5, last=last)


# --- errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_follower_pauses_after_an_error(error: ErrorCode) -> None:
    """Ten milliseconds at first, because a new leader soon learns of its election; then twice as
    long each time, up to the backoff. A response resets it."""
    config = PartitionConfig(replica_fetch_backoff_ms=50)
    partition = follower(epochs=[(0, 0)], log=(0, 5), config=config)
    for pause_ms in (10, 20, 40, 50, 50):
        assert Playbook(partition) >> reply(5, error=error, now=1_000) << None
        assert partition.next_question(999 + pause_ms) is None
        assert partition.next_question(1_000 + pause_ms) == position(5, last=0)
    partition.step(reply(5, now=1_300))
    assert partition.retry_at_ms is None
    partition.step(reply(5, error=error, now=2_000))
    assert partition.retry_at_ms == 2_010


def test_a_fenced_follower_stops_until_the_next_registration() -> None:
    partition = follower(epochs=[(0, 0)], log=(0, 5))
    fenced = reply(5, error=ErrorCode.FENCED_LEADER_EPOCH)
    assert Playbook(partition) >> fenced << do.StopFollowing()
    assert partition.next_question(99_999) is None
    assert Playbook(partition) >> elected(C, 2) << FENCED << do.FollowLeader(C, 2)
    assert partition.next_question(0) == position(5, epoch=2, last=0)


# --- out of range ---------------------------------------------------------------------------


def astray(*, log: tuple[int, int] = (2, 8), hw: int = 6) -> Partition:
    """A follower that received OFFSET_OUT_OF_RANGE."""
    partition = follower(epochs=[(0, log[0])], log=log, hw=hw)
    assert Playbook(partition) >> reply(log[1], error=OUT_OF_RANGE) << None
    assert partition.next_question(0) == do.OffsetsQuestion(1)
    return partition


def test_log_is_truncated_to_the_end_of_a_shorter_leader() -> None:
    partition = astray(hw=5)
    assert (
        Playbook(partition)
        >> on.OffsetsAnswered(1, NONE, 0, 5, 0)
        << do.TruncateTo(5, log_end_offset=8, high_watermark=5)
    )
    assert partition.next_question(0) == position(5, last=0, start=2)


def test_a_leader_whose_log_ends_below_the_high_watermark_is_refused() -> None:
    partition = astray(hw=6)
    assert (
        Playbook(partition)
        >> on.OffsetsAnswered(1, NONE, 0, 5, 0)
        << do.StopFollowing()
        << do.RefuseTruncation(A, 1, 5, 6)
    )
    assert partition.next_question(99_999) is None
    assert partition.log_end_offset == 8


def test_kafka_9491_a_follower_restarts_at_the_start_of_a_leader_that_starts_later() -> None:
    """The high watermark moves with it."""
    partition = astray()
    assert (
        Playbook(partition)
        >> on.OffsetsAnswered(1, NONE, 20, 30, 0)
        << do.RestartAt(20, log_end_offset=8, high_watermark=6)
        << do.WriteEpochs()
    )
    assert (partition.log_start_offset, partition.high_watermark) == (20, 20)
    assert epochs_of(partition) == []
    assert partition.next_question(0) == position(20, start=20)


@pytest.mark.parametrize(("start", "end"), [(0, 8), (8, 8), (3, 12)])
def test_out_of_range_follower_retries_if_the_leader_has_its_offset(start: int, end: int) -> None:
    partition = astray()
    assert Playbook(partition) >> on.OffsetsAnswered(1, NONE, start, end, now_ms=70) << None
    assert partition.next_question(1_069) is None
    assert partition.next_question(1_070) == position(8, last=0, start=2)


def test_error_of_list_offsets_is_retried_after_a_pause() -> None:
    partition = astray()
    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert Playbook(partition) >> on.OffsetsAnswered(1, error, -1, -1, now_ms=70) << None
    assert partition.next_question(79) is None
    assert partition.next_question(80) == do.OffsetsQuestion(1)


def test_offsets_of_another_epoch_are_ignored() -> None:
    partition = astray()
    before = partition.freeze()
    assert Playbook(partition) >> on.OffsetsAnswered(0, NONE, 20, 30, 0) << None
    assert partition.freeze() == before


@pytest.mark.parametrize(
    ("log", "batch", "restarts"),
    [
        pytest.param((5, 5), span(3, 6), True, id="empty, and begins inside the first batch"),
        pytest.param((5, 5), span(5, 6), False, id="empty, and the batch begins where it does"),
        pytest.param((5, 5), span(3, 4), False, id="empty, and the batch lies before it"),
        pytest.param((5, 5), span(3, 6, epoch=2), False, id="empty, but KAFKA-18723 comes first"),
        pytest.param((2, 5), span(3, 6), True, id="all it has is gone from the leader's log"),
        pytest.param((2, 6), span(3, 7), False, id="it has a record that the leader keeps"),
    ],
)
def test_kafka_6975_an_empty_log_that_starts_inside_a_batch(
    log: tuple[int, int], batch: on.Batch, restarts: bool
) -> None:
    partition = follower(epochs=[(0, log[0])], log=log, hw=5)
    effects = partition.step(reply(log[1], batch, hw=7, start=5))
    epochs = [EpochEntry(0, log[0])]
    restart = do.RestartAt(batch.base_offset, 5, high_watermark=5, epochs=epochs)
    assert (restart in effects) is restarts
    if restarts:
        assert effects == [
            restart,
            do.WriteEpochs(),
            do.WriteEpochs(),
            do.AppendRecords([batch]),
            do.AdvanceHighWatermark(7),
            do.WriteEpochs(),
            do.DropBefore(5),
        ]
        assert (partition.log_start_offset, partition.log_end_offset) == (5, 7)


# --- flush before ack -----------------------------------------------------------------------


def test_with_flush_before_ack_the_next_fetch_waits_for_the_flush() -> None:
    """A fetch offset shows the leader which records this replica has on stable storage."""
    partition = follower(config=PartitionConfig(flush_before_ack=True))
    assert partition.next_question(0) == position(0)
    partition.step(reply(0, span(0, 2)))
    assert partition.next_question(0) is None
    assert Playbook(partition) >> on.RecordsFlushed(2, now_ms=0) << None
    assert partition.next_question(0) is None
    partition.step(on.RecordsFlushed(3, now_ms=0))
    assert partition.next_question(0) == position(3, last=1)


def test_damaged_log_is_truncated_to_its_sound_part() -> None:
    partition = replica(B, log=(0, 8), hw=6, epochs=[(0, 0), (1, 5)])
    assert Playbook(partition) >> on.DamageFound(3) << do.TruncateTo(3, 8, 3) << do.WriteEpochs()
    assert (partition.log_end_offset, partition.high_watermark) == (3, 3)


def test_a_log_that_ends_inside_a_batch_of_the_leader_drops_its_last_batch() -> None:
    """A damaged header made the log end there; fetches would never make progress."""
    partition = follower(log=(0, 8), hw=2, epochs=[(1, 0)])
    assert Playbook(partition) >> reply(8, span(5, 9)) << do.TruncateTo(5, 8, 2)
    assert partition.next_question(0) == position(5, last=1)
    committed = follower(log=(0, 8), hw=8, epochs=[(1, 0)])
    refused = do.RefuseTruncation(A, 1, 5, 8)
    assert Playbook(committed) >> reply(8, span(5, 9)) << do.StopFollowing() << refused
    old_rule = POLICIES["high-watermark"]
    historical = follower(log=(0, 8), hw=8, epochs=[(1, 0)], policy=old_rule)
    assert Playbook(historical) >> reply(8, span(5, 9)) << None
    assert historical.log_end_offset == 8
