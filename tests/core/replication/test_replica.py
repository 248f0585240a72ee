"""The state of a replica: invariants, durability, watermarks, freezing and copies."""

from collections.abc import Callable

import pytest
from playbook import (
    BROKERS,
    CLIENT,
    FETCHER,
    PRODUCER,
    A,
    B,
    C,
    Playbook,
    answer,
    elected,
    epochs_of,
    fetch,
    follower,
    leader,
    produce,
    replica,
    reply,
    span,
)

from tidelog.core.errors import ErrorCode
from tidelog.core.lineage.producer_state import EndedTransaction, ProducerState
from tidelog.core.replication import effects as do
from tidelog.core.replication import events as on
from tidelog.core.replication.events import ACKS_ALL, ACKS_LEADER
from tidelog.core.replication.isr import NO_ISR
from tidelog.core.replication.partition import Partition, PartitionConfig

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE

# --- loading --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("checkpoint", "loaded"),
    [
        pytest.param(0, 3, id="none, or older than the log: the log start"),
        pytest.param(5, 5, id="in the log: as it is"),
        pytest.param(12, 8, id="the log was cut by the crash: its end"),
    ],
)
def test_the_checkpoint_is_clamped_into_the_log(checkpoint: int, loaded: int) -> None:
    """testUseCheckpointToInitializeHighWatermark."""
    assert replica(log=(3, 8), hw=checkpoint).high_watermark == loaded


def test_before_the_first_registration_no_request_is_served_or_sent() -> None:
    partition = replica(log=(3, 8), hw=5)
    assert not partition.is_leader
    assert partition.leader is None
    assert partition.isr == NO_ISR
    assert partition.next_question(0) is None
    assert partition.step(on.Ticked(now_ms=0)) == []


def test_settings_default_to_kafkas() -> None:
    assert PartitionConfig() == PartitionConfig(1, 30_000, 1_000, False)


@pytest.mark.parametrize(
    ("configured", "replicas", "effective"), [(2, (A, B, C), 2), (2, (A,), 1), (1, (A, B), 1)]
)
def test_effective_min_isr(configured: int, replicas: tuple[int, ...], effective: int) -> None:
    config = PartitionConfig(min_insync_replicas=configured)
    assert leader(isr=(A,), replicas=replicas, config=config).min_isr == effective


@pytest.mark.parametrize(
    ("opened", "stable"),
    [
        pytest.param({700: 1}, 2, id="never below the log start"),
        pytest.param({}, 6, id="no transaction: the high watermark"),
        pytest.param({700: 4}, 4, id="the first open one"),
        pytest.param({700: 7}, 6, id="never above the high watermark"),
    ],
)
def test_m03_last_stable_offset(opened: dict[int, int], stable: int) -> None:
    partition = replica(log=(2, 8), hw=6, producers=ProducerState(8, open_transactions=opened))
    assert partition.last_stable_offset == stable


@pytest.mark.parametrize(("marker", "stable"), [(5, 7), (7, 3)])
def test_m03_an_ended_transaction_limits_no_reader_once_its_marker_is_committed(
    marker: int, stable: int
) -> None:
    partition = replica(
        log=(0, 10), hw=7, producers=ProducerState(ended=[EndedTransaction(3, marker)])
    )
    assert partition.last_stable_offset == stable


# --- pictures and copies --------------------------------------------------------------------


def busy_leader() -> Partition:
    """A leader with a value in every field: a pending ISR change, progress, epochs."""
    partition = leader(isr=(A, B), log=(1, 5), epochs=[(0, 1)], hw=2, now=7)
    partition.step(produce(2))
    partition.step(fetch(B, 6, last=1, start=1, incarnation=20, now=8))
    partition.step(fetch(C, 7, last=1, start=1, incarnation=30, now=9))
    return partition


def busy_follower() -> Partition:
    partition = follower(log=(1, 5), epochs=[(0, 1)], hw=2)
    partition.step(reply(5, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, now=40))
    return partition


def damaged_follower() -> Partition:
    partition = follower(log=(1, 5), epochs=[(0, 1)], hw=2)
    partition.step(on.RepairNeeded(2, 4))
    return partition


def shrinking_leader() -> Partition:
    partition = leader()
    partition.step(on.Ticked(now_ms=30_001))
    return partition


def offline() -> Partition:
    partition = leader()
    partition.step(on.LogFailed())
    return partition


Make = Callable[[], Partition]

STATES: dict[str, Make] = {
    "leader, a follower about to join": busy_leader,
    "leader, followers about to go": shrinking_leader,
    "follower that waits": busy_follower,
    "follower that is repaired": damaged_follower,
    "nothing known": replica,
    "offline": offline,
}
states = pytest.mark.parametrize("make", STATES.values(), ids=STATES.keys())


@states
def test_equal_states_have_equal_frozen_copies(make: Make) -> None:
    assert make().freeze() == make().freeze()
    assert hash(make().freeze()) == hash(make().freeze())


def test_different_states_have_different_frozen_copies() -> None:
    pictures = {make().freeze() for make in STATES.values()}
    assert len(pictures) == len(STATES)


@states
def test_thaw_restores_the_frozen_state(make: Make) -> None:
    partition, twin = make(), replica(log=(1, 2))
    twin.thaw(partition.freeze())
    assert twin.freeze() == partition.freeze()
    assert (twin.isr, twin.followers, twin.leader) == (
        partition.isr,
        partition.followers,
        partition.leader,
    )
    assert twin.next_question(99_999) == partition.next_question(99_999)


@states
def test_a_copy_is_equal_and_independent(make: Make) -> None:
    partition = make()
    before = partition.freeze()
    twin = partition.copy()
    assert twin.freeze() == before
    twin.step(elected(A, 9, replicas=(A,), isr=(A,)))
    twin.step(produce(3))
    twin.step(fetch(B, 1, epoch=9))
    assert partition.freeze() == before


def test_progress_of_a_copy_is_independent() -> None:
    partition = busy_leader()
    before = partition.freeze()
    twin = partition.copy()
    twin.step(fetch(B, 7, start=1, now=50))
    assert twin.freeze() != before
    assert partition.freeze() == before


# --- flush before ack -----------------------------------------------------------------------


def test_with_flush_before_ack_the_leader_counts_what_it_has_flushed() -> None:
    config = PartitionConfig(flush_before_ack=True)
    assert (
        Playbook(leader(isr=(A, B), replicas=(A, B), config=config))
        >> produce(3, acks=ACKS_ALL)
        << do.AppendRecords([span(0, 2)])
        << do.AwaitCommit(PRODUCER, offset=3, base_offset=0)
        >> fetch(B, 3)
        << answer(FETCHER, 3)
        >> on.RecordsFlushed(2, now_ms=0)
        << do.AdvanceFlushed(2)
        << do.AdvanceHighWatermark(2)
        >> on.RecordsFlushed(1, now_ms=0)
        << do.AdvanceFlushed(2)
        >> on.RecordsFlushed(9, now_ms=0)
        << do.AdvanceFlushed(3)
        << do.AdvanceHighWatermark(3)
    )


def test_with_flush_before_ack_acks_one_waits_for_the_leaders_disk() -> None:
    config = PartitionConfig(flush_before_ack=True)
    assert (
        Playbook(leader(isr=(A, B), replicas=(A, B), config=config))
        >> produce(3, acks=ACKS_LEADER)
        << do.AppendRecords([span(0, 2)])
        << do.AwaitFlush(PRODUCER, offset=3, base_offset=0)
        >> on.RecordsFlushed(3, now_ms=0)
        << do.AdvanceFlushed(3)
    )


def test_after_a_restart_everything_must_be_flushed_again() -> None:
    config = PartitionConfig(flush_before_ack=True)
    partition = leader(isr=(A,), replicas=(A,), log=(2, 5), epochs=[(0, 2)], config=config)
    assert (partition.flushed_offset, partition.high_watermark) == (2, 2)
    assert (
        Playbook(partition)
        >> on.RecordsFlushed(5, now_ms=0)
        << do.AdvanceFlushed(5)
        << do.AdvanceHighWatermark(5)
    )


def test_without_flush_before_ack_a_flush_changes_nothing_for_readers() -> None:
    partition = leader(isr=(A,), replicas=(A,), log=(0, 5), epochs=[(0, 0)])
    assert Playbook(partition) >> on.RecordsFlushed(5, now_ms=0) << None


def test_a_flush_before_a_truncation_does_not_cover_later_records() -> None:
    config = PartitionConfig(flush_before_ack=True)
    partition = follower(epoch=2, epochs=[(0, 0)], log=(0, 6), config=config)
    partition.step(on.RecordsFlushed(6, now_ms=0))
    partition.step(reply(6, diverging=(0, 4), epoch=2))
    assert partition.next_question(0) == do.FetchPosition(4, 2, 0, 0)
    partition.step(reply(4, span(4, epoch=2), epoch=2))
    assert partition.next_question(0) is None
    assert partition.flushed_offset == 4


# --- deleting records -----------------------------------------------------------------------


def committed_to(high_watermark: int) -> Partition:
    """Log end 9, epochs 0 and 2, B fully caught up to the HW."""
    partition = leader(isr=(A, B), replicas=(A, B), epoch=2, log=(0, 6), epochs=[(0, 0)], hw=0)
    partition.step(produce(3))
    partition.step(fetch(B, high_watermark, epoch=2))
    assert partition.high_watermark == high_watermark
    return partition


def test_delete_records_waits_for_the_followers_log_start() -> None:
    partition = committed_to(8)
    assert (
        Playbook(partition)
        >> on.DeleteRecordsRequested(CLIENT, 4)
        << do.WriteEpochs()
        << do.DropBefore(4)
        << do.AwaitLowWatermark(CLIENT, 4)
    )
    assert (partition.log_start_offset, partition.low_watermark) == (4, 0)
    assert epochs_of(partition) == [(0, 4), (2, 6)]
    assert (
        Playbook(partition)
        >> fetch(B, 8, epoch=2, start=4)
        << do.AdvanceLowWatermark()
        << answer(FETCHER, 8, 9, hw=8, start=4)
    )
    assert partition.low_watermark == 4


@pytest.mark.parametrize(
    ("asked", "effects"),
    [
        pytest.param(
            None,
            [do.WriteEpochs(), do.DropBefore(8), do.AwaitLowWatermark(CLIENT, 8)],
            id="up to the high watermark",
        ),
        pytest.param(
            8, [do.WriteEpochs(), do.DropBefore(8), do.AwaitLowWatermark(CLIENT, 8)], id="at it"
        ),
        pytest.param(0, [do.AwaitLowWatermark(CLIENT, 0)], id="nothing to drop"),
        pytest.param(
            9, [do.AnswerDeleteRecords(CLIENT, OUT_OF_RANGE)], id="KAFKA-5634: beyond the HW"
        ),
        pytest.param(-1, [do.AnswerDeleteRecords(CLIENT, OUT_OF_RANGE)], id="negative"),
    ],
)
def test_delete_records(asked: int | None, effects: list[do.Effect]) -> None:
    assert committed_to(8).step(on.DeleteRecordsRequested(CLIENT, asked)) == effects


def test_follower_refuses_delete_records() -> None:
    assert follower(log=(0, 5), hw=5).step(on.DeleteRecordsRequested(CLIENT, 3)) == [
        do.AnswerDeleteRecords(CLIENT, NOT_LEADER)
    ]


def test_a_dead_follower_does_not_hold_the_low_watermark_back() -> None:
    brokers = dict(BROKERS)
    partition = leader(isr=(A,), replicas=(A, B), log=(0, 5), epochs=[(0, 0)], brokers=brokers)
    partition.step(on.DeleteRecordsRequested(CLIENT, 3))
    assert partition.low_watermark == 0
    del brokers[B]
    assert partition.low_watermark == 3


def test_kafka_5634_retention_stops_at_the_high_watermark() -> None:
    partition = committed_to(8)
    assert (
        Playbook(partition)
        >> on.RetentionReached(9)
        << do.WriteEpochs()
        << do.DropBefore(8)
        >> on.RetentionReached(7)
        << None
    )
    assert epochs_of(partition) == [(2, 8)]


def test_log_start_at_an_epoch_start_keeps_the_epochs() -> None:
    partition = leader(isr=(A,), replicas=(A,), log=(0, 5), epochs=[])
    partition.step(produce())
    assert epochs_of(partition) == [(1, 5)]
    assert Playbook(partition) >> on.RetentionReached(3) << do.DropBefore(3)
