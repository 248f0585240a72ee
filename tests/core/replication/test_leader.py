"""The leader: election, produce, acknowledgement, deletion (M08-M10, M17, M23)."""

import pytest
from playbook import (
    FETCHER,
    NONE,
    PRODUCER,
    A,
    B,
    C,
    D,
    Playbook,
    Span,
    answer,
    confirmed,
    elected,
    epochs_of,
    fetch,
    follower,
    leader,
    produce,
    proposal_of,
    replica,
    reply,
    span,
)

from tidelog.core.errors import ErrorCode
from tidelog.core.lineage.producer_state import ProducerState
from tidelog.core.record.encoder import Producer, encode_value
from tidelog.core.record.record_batch import RecordBatch, parse
from tidelog.core.replication import effects as do
from tidelog.core.replication import events as on
from tidelog.core.replication.events import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from tidelog.core.replication.isr import Committed
from tidelog.core.replication.log_end_offset import NEVER_MS, FollowerProgress
from tidelog.core.replication.partition import Partition, PartitionConfig

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE

# --- taking office --------------------------------------------------------------------------


def test_kafka_7415_the_epoch_is_cached_before_anything_is_written() -> None:
    partition = replica(epochs=[(0, 0)], log=(0, 5), hw=3)
    assert (
        Playbook(partition)
        >> elected(A, 2, isr=(A, B))
        << do.FailWaiters(NOT_LEADER)
        << do.WriteEpochs(before_append=True)
        << do.TakeLeadership(2, 5, (A, B), recovering=False)
    )
    assert epochs_of(partition) == [(0, 0), (2, 5)]
    assert partition.epoch_start_offset == 5


def test_a_new_leader_starts_from_its_own_high_watermark() -> None:
    """Records above it are kept, and must be confirmed again."""
    partition = leader(log=(0, 5), epochs=[(0, 0)], hw=3)
    assert (partition.high_watermark, partition.log_end_offset) == (3, 5)


def test_only_replica_commits_its_whole_log_when_it_becomes_leader() -> None:
    assert (
        Playbook(replica(log=(0, 5), epochs=[(0, 0)], hw=3))
        >> elected(A, 1, isr=(A,), replicas=(A,), recovering=True)
        << do.FailWaiters(NOT_LEADER)
        << do.WriteEpochs(before_append=True)
        << do.TakeLeadership(1, 5, (A,), recovering=True)
        << do.AdvanceHighWatermark(5)
    )


@pytest.mark.parametrize("led_before", [True, False], ids=["it led before", "it followed"])
@pytest.mark.parametrize("in_isr", [True, False], ids=["in the ISR", "outside"])
def test_every_new_epoch_forgets_follower_log_ends(led_before: bool, in_isr: bool) -> None:
    """Kafka keeps it when the same broker leads again; that is not safe (1.2)."""
    if led_before:
        partition = leader(isr=(A, B, C), log=(0, 5), epochs=[(0, 0)])
        partition.step(fetch(B, 5, start=2, incarnation=20, now=40))
        assert partition.followers[B].log_end_offset == 5
    else:
        partition = follower(A, of=B, log=(0, 5), epochs=[(0, 0)])
    partition.step(elected(A, 2, isr=(A, B, C) if in_isr else (A, C), now=50))
    caught_up = 50 if in_isr else NEVER_MS
    assert partition.followers[B] == FollowerProgress(None, 0, -1, NEVER_MS, caught_up, None)


def test_paused_follower_that_becomes_leader_does_not_wait() -> None:
    partition = follower(A, of=B)
    partition.step(reply(0, error=NOT_LEADER))
    assert partition.retry_at_ms == 10
    partition.step(elected(A, 2))
    assert partition.retry_at_ms is None


def test_within_an_epoch_nothing_is_forgotten() -> None:
    """testDoNotResetReplicaState / DoNotUpdateEpochStartOffset if the epoch is not bumped."""
    partition = leader(isr=(A, B), log=(0, 5), epochs=[(0, 0)])
    partition.step(fetch(B, 4, start=1, incarnation=20, now=40))
    partition.step(produce(2))
    known = partition.followers[B].copy()
    assert (
        Playbook(partition)
        >> elected(A, 1, partition_epoch=6, isr=(A, B, C), now=50)
        << do.AdvanceLowWatermark()
        >> elected(A, 1, partition_epoch=7, isr=(A, B), replicas=(A, B), now=60)
        << do.AdvanceLowWatermark()
    )
    assert partition.followers == {B: known}
    assert partition.epoch_start_offset == 5
    assert partition.isr == Committed(frozenset({A, B}))


def test_a_replica_added_within_an_epoch_begins_unknown() -> None:
    partition = leader(isr=(A, B), replicas=(A, B))
    partition.step(elected(A, 1, partition_epoch=6, isr=(A, B), replicas=(A, B, C), now=50))
    assert partition.followers[C].last_caught_up_ms == NEVER_MS
    partition.step(elected(A, 1, partition_epoch=7, isr=(A, B, D), replicas=(A, B, D), now=60))
    assert partition.followers[D].last_caught_up_ms == 60


def test_a_smaller_isr_from_the_controller_commits_more() -> None:
    partition = leader(isr=(A, B), replicas=(A, B), log=(0, 5), epochs=[(0, 0)])
    assert (
        Playbook(partition)
        >> elected(A, 1, partition_epoch=6, isr=(A,), replicas=(A,))
        << do.AdvanceLowWatermark()
        << do.AdvanceHighWatermark(5)
    )


# --- produce --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("acks", "effects"),
    [
        pytest.param(ACKS_NONE, [], id="acks=0: nobody is told"),
        pytest.param(
            ACKS_LEADER, [do.AnswerProduce(PRODUCER, NONE, 5)], id="acks=1: after the append"
        ),
        pytest.param(ACKS_ALL, [do.AwaitCommit(PRODUCER, 8, 5)], id="acks=all: at the HW"),
    ],
)
def test_m17_acks(acks: int, effects: list[do.Effect]) -> None:
    partition = leader(epoch=4, log=(0, 5), epochs=[(0, 0)])
    appended = do.AppendRecords((Span(5, 7, 4),))
    assert partition.step(produce(3, acks=acks)) == [appended, *effects]
    assert (partition.log_end_offset, partition.high_watermark) == (8, 0)


@pytest.mark.parametrize("acks", [2, -2, 100])
@pytest.mark.parametrize("role", ["leader", "follower"])
def test_other_acks_are_rejected_on_every_replica(role: str, acks: int) -> None:
    partition = leader() if role == "leader" else follower()
    before = partition.freeze()
    assert partition.step(produce(acks=acks)) == [
        do.AnswerProduce(PRODUCER, ErrorCode.INVALID_REQUIRED_ACKS, None)
    ]
    assert partition.freeze() == before


@pytest.mark.parametrize("acks", [ACKS_NONE, ACKS_LEADER, ACKS_ALL])
def test_only_a_leader_accepts_records(acks: int) -> None:
    partition = follower()
    before = partition.freeze()
    assert partition.step(produce(acks=acks)) == [do.AnswerProduce(PRODUCER, NOT_LEADER, None)]
    assert partition.freeze() == before


@pytest.mark.parametrize(
    ("acks", "taken"), [(ACKS_ALL, False), (ACKS_LEADER, True), (ACKS_NONE, True)]
)
def test_under_min_isr_only_acks_all_is_refused(acks: int, taken: bool) -> None:
    partition = leader(isr=(A,), config=PartitionConfig(min_insync_replicas=2))
    effects = partition.step(produce(acks=acks))
    assert partition.log_end_offset == int(taken)
    assert partition.high_watermark == 0
    if not taken:
        assert effects == [do.AnswerProduce(PRODUCER, ErrorCode.NOT_ENOUGH_REPLICAS, None)]


def test_min_isr_is_never_more_than_there_are_replicas() -> None:
    config = PartitionConfig(min_insync_replicas=2)
    partition = leader(isr=(A,), replicas=(A,), config=config)
    assert (
        Playbook(partition)
        >> produce(acks=ACKS_ALL)
        << do.AppendRecords([span(0)])
        << do.AwaitCommit(PRODUCER, offset=1, base_offset=0)
        << do.AdvanceHighWatermark(1)
    )


def test_m17_the_ack_waits_for_the_slowest_in_sync_replica() -> None:
    assert (
        Playbook(leader(isr=(A, B, C)))
        >> produce(acks=ACKS_ALL)
        << do.AppendRecords([span(0)])
        << do.AwaitCommit(PRODUCER, offset=1, base_offset=0)
        >> fetch(B, 1)
        << answer(FETCHER, 1)
        >> fetch(C, 0)
        << answer(FETCHER, 0, 1)
        >> fetch(C, 1)
        << do.AdvanceHighWatermark(1)
        << answer(FETCHER, 1, hw=1)
    )


def test_an_expected_member_does_not_count_for_min_isr_but_does_for_the_answer() -> None:
    """The check before the append uses the committed ISR, the acknowledgement the maximal one."""
    config = PartitionConfig(min_insync_replicas=2)
    partition = leader(isr=(A,), replicas=(A, B), config=config)
    assert partition.commit_error() is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    partition.step(fetch(B, 0))
    assert partition.step(produce(acks=ACKS_ALL)) == [
        do.AnswerProduce(PRODUCER, ErrorCode.NOT_ENOUGH_REPLICAS, None)
    ]
    assert partition.commit_error() is NONE


def test_an_admitted_batch_is_not_checked_again() -> None:
    partition = leader(isr=(A,), replicas=(A, B), config=PartitionConfig(min_insync_replicas=2))
    checked, admitted = produce(acks=ACKS_ALL), produce(acks=ACKS_ALL)
    admitted.admitted = True
    error = do.AnswerProduce(PRODUCER, ErrorCode.NOT_ENOUGH_REPLICAS, None)
    assert partition.step(checked) == [error]
    assert partition.step(admitted) == [
        do.AppendRecords((admitted.batch,)),
        do.AwaitCommit(PRODUCER, offset=1, base_offset=0),
    ]


def test_reasons_that_reject_every_batch() -> None:
    config = PartitionConfig(min_insync_replicas=2)
    partition = leader(isr=(A,), replicas=(A, B), config=config)
    assert partition.produce_error(ACKS_ALL) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.produce_error(1) is NONE
    partition.step(on.LogFailed())
    assert partition.produce_error(1) is ErrorCode.KAFKA_STORAGE_ERROR


def test_kafka_15583_the_high_watermark_is_frozen_under_min_isr() -> None:
    config = PartitionConfig(min_insync_replicas=2)
    partition = leader(isr=(A, B), replicas=(A, B), config=config)
    assert (
        Playbook(partition)
        >> produce(acks=ACKS_ALL)
        << ...
        >> elected(A, 1, partition_epoch=6, isr=(A,), replicas=(A, B))
        << do.AdvanceLowWatermark()
        >> fetch(B, 1, incarnation=20)
        << do.ProposeIsr(((A, 10), (B, 20)), 1, 6)
        << answer(FETCHER, 1)
    )
    assert partition.commit_error() is NONE
    partition.step(elected(A, 1, partition_epoch=7, isr=(A, B), replicas=(A, B)))
    assert partition.high_watermark == 1


# --- idempotent producers -------------------------------------------------------------------


def sequence(number: int, *, epoch: int = 0) -> RecordBatch:
    """Return a batch of producer 0, which is a valid producer id."""
    return parse(encode_value(b"x", producer=Producer(0, epoch, number)))


def idempotent(isr: tuple[int, ...] = (A,)) -> tuple[Partition, ProducerState]:
    """A leader that has appended sequences 0 and 1, as a host carries it out."""
    producers = ProducerState()
    partition = leader(isr=isr, replicas=isr, producers=producers)
    for number in (0, 1):
        (appended, *_) = partition.step(produce(batch=sequence(number)))
        assert isinstance(appended, do.AppendRecords)
        for batch in appended.batches:
            assert isinstance(batch, RecordBatch)
            producers.update(batch)
    return partition, producers


def test_a_real_batch_is_stamped_in_its_own_bytes() -> None:
    partition = leader(isr=(A,), replicas=(A,), epoch=6, log=(0, 40), epochs=[(0, 0)])
    (appended, *_) = partition.step(produce(batch=sequence(0)))
    assert isinstance(appended, do.AppendRecords)
    (batch,) = appended.batches
    assert isinstance(batch, RecordBatch)
    again = parse(batch.buffer)
    assert (again.base_offset, again.leader_epoch, again.crc_ok()) == (40, 6, True)


@pytest.mark.parametrize(
    ("acks", "told"),
    [
        pytest.param(ACKS_LEADER, [do.AnswerProduce(PRODUCER, NONE, 0)], id="acks=1: at once"),
        pytest.param(
            ACKS_ALL, [do.AwaitCommit(PRODUCER, 1, 0)], id="acks=all: when the first one commits"
        ),
        pytest.param(ACKS_NONE, [], id="acks=0: nobody is told"),
    ],
)
def test_a_batch_sent_twice_is_written_once(acks: int, told: list[do.Effect]) -> None:
    partition, _ = idempotent(isr=(A, B))
    before = partition.freeze()
    found = do.DuplicateFound(PRODUCER, -1)
    assert partition.step(produce(batch=sequence(0), acks=acks)) == [found, *told]
    assert partition.freeze() == before


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        pytest.param(sequence(3), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, id="a gap"),
        pytest.param(
            sequence(1, epoch=1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, id="new epoch not at 0"
        ),
    ],
)
def test_a_sequence_out_of_order_is_refused(batch: RecordBatch, error: ErrorCode) -> None:
    partition, _ = idempotent()
    before = partition.freeze()
    assert partition.step(produce(batch=batch)) == [do.AnswerProduce(PRODUCER, error, None)]
    assert partition.freeze() == before


def test_a_fenced_producer_is_refused() -> None:
    partition, producers = idempotent()
    newer = sequence(0, epoch=1)
    partition.step(produce(batch=newer))
    producers.update(newer)
    assert partition.step(produce(batch=sequence(2))) == [
        do.AnswerProduce(PRODUCER, ErrorCode.INVALID_PRODUCER_EPOCH, None)
    ]


def test_without_producer_state_nothing_is_deduplicated() -> None:
    """The model checker has no producer state, and sends batches without producers only."""
    partition = leader(isr=(A,), replicas=(A,))
    for _ in range(2):
        partition.step(produce(batch=sequence(0)))
    assert partition.log_end_offset == 2


# --- fetches of strangers -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "error"), [(1, ErrorCode.UNKNOWN_LEADER_EPOCH), (None, NOT_LEADER)]
)
def test_fetch_from_unrecognized_follower(epoch: int | None, error: ErrorCode) -> None:
    partition = leader(isr=(A, B), replicas=(A, B))
    before = partition.freeze()
    assert partition.step(fetch(C, 0, epoch=epoch)) == [answer(FETCHER, 0, error=error)]
    assert partition.freeze() == before


def test_m12_commit_takes_two_rounds_of_fetches() -> None:
    """The example of the documentation, with three replicas: the slowest decides."""
    assert (
        Playbook(leader(isr=(A, B, C)))
        >> fetch(B, 0)
        << answer(FETCHER, 0)
        >> fetch(C, 0)
        << answer(FETCHER, 0)
        >> produce()
        << ...
        >> fetch(B, 0)
        << answer(FETCHER, 0, 1, hw=0)
        >> fetch(B, 1)
        << answer(FETCHER, 1, hw=0)
        >> fetch(C, 0)
        << answer(FETCHER, 0, 1, hw=0)
        >> fetch(C, 1)
        << do.AdvanceHighWatermark(1)
        << answer(FETCHER, 1, hw=1)
        >> fetch(B, 1)
        << answer(FETCHER, 1, hw=1)
    )


def test_kafka_13091_a_granted_shrink_commits_at_once() -> None:
    partition = leader(isr=(A, B), replicas=(A, B), log=(0, 5), epochs=[(0, 0)])
    proposal = proposal_of(partition.step(on.Ticked(now_ms=30_001)))
    assert partition.high_watermark == 0
    granted = confirmed(proposal, now=30_002)
    assert Playbook(partition) >> granted << do.AdvanceHighWatermark(5)


def test_a_fetch_of_a_repair_does_not_count_as_progress() -> None:
    """The fetched records are not in the follower's log yet."""
    partition = leader(isr=(A,), log=(0, 4), epochs=[(0, 0)], hw=2)
    ordinary = fetch(B, 4, last=0, incarnation=20)
    repairs = fetch(B, 4, last=0, incarnation=20, start=on.NO_PROGRESS)
    partition.step(repairs)
    assert partition.followers[B].log_end_offset is None
    assert not [e for e in partition.step(repairs) if isinstance(e, do.ProposeIsr)]
    assert [e for e in partition.step(ordinary) if isinstance(e, do.ProposeIsr)]


@pytest.mark.parametrize(
    ("last", "start", "joins"),
    [(1, 0, False), (1, 5, True), (2, 0, True)],
    ids=["an unknown epoch", "the same log start", "a known epoch"],
)
def test_follower_with_records_before_the_log_start_joins_if_they_can_be_compared(
    last: int, start: int, joins: bool
) -> None:
    """The epochs of deleted records are deleted too: they may differ from the follower's."""
    partition = leader(isr=(A, C), log=(5, 5), hw=5, epoch=2)
    partition.step(fetch(B, 5, epoch=2, last=last, start=start, incarnation=20))
    assert (B in partition.isr.maximal) is joins
