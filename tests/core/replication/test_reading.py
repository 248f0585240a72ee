"""Requests that read a log: test vectors of Kafka, consumers, epochs, offsets."""

import pytest
from playbook import (
    CLIENT,
    FETCHER,
    NONE,
    A,
    B,
    Playbook,
    answer,
    consume,
    elected,
    fetch,
    follower,
    leader,
    produce,
    reply,
)

from tidelog.core.errors import ErrorCode
from tidelog.core.lineage.producer_state import ProducerState
from tidelog.core.replication import effects as do
from tidelog.core.replication import events as on
from tidelog.core.replication.partition import Partition
from tidelog.core.types import EpochEnd

OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
OK, OUT = "fine", "out of range"
Verdict = tuple[int, int] | str


def many_epochs(log_start: int = 0) -> Partition:
    """Epoch 0 at 0-1, 3 at 2-7, 4 at 8-12, 7 at 13, 9 at 14-16; 10 leads from 17 on."""
    earlier = [(0, 0), (3, 2), (4, 8), (7, 13), (9, 14)]
    partition = leader(isr=(A, B), epoch=10, epochs=earlier, log=(0, 17), hw=17)
    partition.step(on.RetentionReached(log_start))
    assert partition.log_start_offset == log_start
    return partition


VECTORS = [
    (0, 2, 5, (0, 2)),
    (0, 0, 4, (0, 2)),
    (0, 6, 6, (4, 13)),
    (0, 5, 9, (4, 13)),
    (0, 10, 18, (10, 17)),
    (0, 0, 2, OK),
    (0, 7, 14, OK),
    (0, 9, 17, OK),
    (0, 10, 17, OK),
    (0, 11, 5, OUT),
    (0, None, 17, OK),
    (0, None, 18, OUT),
    (0, None, -1, OUT),
    (5, 2, 8, (2, 5)),
    (5, 0, 5, OK),
    (5, 3, 5, OK),
    (5, 0, 0, OUT),
    (5, None, 4, OUT),
]
"""Log start, last fetched epoch, fetch offset: what a leader says."""


@pytest.mark.parametrize("asker", ["follower", "consumer"])
@pytest.mark.parametrize(("log_start", "last", "offset", "verdict"), VECTORS)
def test_last_fetched_offset_validation(
    log_start: int, last: int | None, offset: int, verdict: Verdict, asker: str
) -> None:
    partition = many_epochs(log_start)
    event: on.Event = consume(offset, last=last)
    if asker == "follower":
        event = fetch(B, offset, epoch=10, last=last)
    (effect,) = [e for e in partition.step(event) if isinstance(e, do.AnswerFetch)]
    told: Verdict = OK
    if effect.error is not NONE:
        assert effect.error is OUT_OF_RANGE
        told = OUT
    elif effect.diverging is not None:
        told = (effect.diverging.epoch, effect.diverging.end_offset)
    assert told == verdict
    assert effect.upto == (17 if verdict == OK else offset)
    assert (effect.high_watermark, effect.log_start_offset) == (17, log_start)


@pytest.mark.parametrize(
    ("log_start", "last", "offset"),
    [(start, last, offset) for start, last, offset, verdict in VECTORS if verdict != OK],
)
def test_kafka_13141_failed_or_diverging_fetch_changes_no_progress(
    log_start: int, last: int | None, offset: int
) -> None:
    partition = many_epochs(log_start)
    before = partition.freeze()
    partition.step(fetch(B, offset, epoch=10, last=last, start=3, incarnation=20, now=99))
    assert partition.freeze() == before


def test_kafka_12996_below_the_log_start_it_is_out_of_range_even_if_it_diverges() -> None:
    partition = many_epochs(log_start=5)
    assert partition.step(consume(4, last=2)) == [
        answer(CLIENT, 4, hw=17, start=5, error=OUT_OF_RANGE)
    ]


# --- consumers ------------------------------------------------------------------------------


def half_committed() -> Partition:
    """Log start 2, HW 5, LEO 8."""
    partition = leader(isr=(A, B), replicas=(A, B), log=(2, 8), epochs=[(0, 2)], hw=5)
    assert partition.high_watermark == 5
    return partition


@pytest.mark.parametrize(
    ("offset", "upto", "error"),
    [
        pytest.param(1, 1, OUT_OF_RANGE, id="before the log start"),
        pytest.param(2, 5, NONE, id="from the start to the HW"),
        pytest.param(4, 5, NONE, id="the last committed one"),
        pytest.param(5, 5, NONE, id="M02: the record at the HW is not committed"),
        pytest.param(7, 7, NONE, id="between HW and end: nothing yet, no error"),
        pytest.param(8, 8, NONE, id="at the end"),
        pytest.param(9, 9, OUT_OF_RANGE, id="beyond the end"),
    ],
)
def test_m03_consumers_read_below_the_high_watermark(
    offset: int, upto: int, error: ErrorCode
) -> None:
    assert half_committed().step(consume(offset)) == [
        answer(CLIENT, offset, upto, hw=5, start=2, error=error)
    ]


def test_followers_read_to_the_end() -> None:
    """M02: this lets the high watermark advance."""
    assert Playbook(half_committed()) >> fetch(B, 5) << answer(FETCHER, 5, 8, hw=5, start=2)


def open_transaction(at: int) -> ProducerState:
    return ProducerState(end_offset=8, open_transactions={700: at})


def test_m03_read_committed_stops_at_the_last_stable_offset() -> None:
    partition = leader(isr=(A,), replicas=(A,), log=(0, 8), producers=open_transaction(3))
    assert (
        Playbook(partition)
        >> consume(0, read_committed=True)
        << answer(CLIENT, 0, 3, hw=8, stable=3)
        >> consume(0)
        << answer(CLIENT, 0, 8, hw=8, stable=3)
        >> consume(5, read_committed=True)
        << answer(CLIENT, 5, 5, hw=8, stable=3)
    )


@pytest.mark.parametrize(
    ("any_replica", "error", "upto"),
    [
        pytest.param(True, NONE, 5, id="KIP-392: up to the follower's own HW"),
        pytest.param(False, NOT_LEADER, 2, id="KAFKA-9004: an old client must go to the leader"),
    ],
)
def test_kip_392_followers_serve_consumers_that_allow_it(
    any_replica: bool, error: ErrorCode, upto: int
) -> None:
    partition = follower(log=(0, 8), epochs=[(0, 0)], hw=5)
    assert partition.step(consume(2, any_replica=any_replica)) == [
        answer(CLIENT, 2, upto, hw=5, error=error)
    ]


def test_kip_392_follower_refuses_offsets_beyond_its_own_end() -> None:
    partition = follower(log=(0, 8), epochs=[(0, 0)], hw=5)
    assert partition.step(consume(9, any_replica=True)) == [
        answer(CLIENT, 9, hw=5, error=OUT_OF_RANGE)
    ]


def test_without_a_leader_a_replica_serves_no_request() -> None:
    partition = follower(log=(0, 8), epochs=[(0, 0)], hw=5)
    partition.step(elected(None, 2))
    assert partition.step(consume(2, any_replica=True)) == [
        answer(CLIENT, 2, hw=5, error=NOT_LEADER)
    ]


# --- OffsetForLeaderEpoch and ListOffsets ---------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "end"),
    [
        pytest.param(10, EpochEnd(10, 17), id="the leader's own: its log end"),
        pytest.param(3, EpochEnd(3, 8), id="an earlier one: the start of the next"),
        pytest.param(5, EpochEnd(4, 13), id="KIP-279: one it lacks: the neighbour before"),
        pytest.param(11, None, id="newer than all: nothing can be said"),
        pytest.param(None, None, id="KAFKA-6857: no epoch asked: nothing can be said"),
    ],
)
def test_m22_where_an_epoch_ends(asked: int | None, end: EpochEnd | None) -> None:
    assert many_epochs().step(on.EpochEndRequested(CLIENT, 10, asked)) == [
        do.AnswerEpochEnd(CLIENT, NONE, end)
    ]


def test_a_rejected_request_gets_no_end_offset() -> None:
    fenced = do.AnswerEpochEnd(CLIENT, ErrorCode.FENCED_LEADER_EPOCH, None)
    assert many_epochs().step(on.EpochEndRequested(CLIENT, 9, 3)) == [fenced]


def test_kafka_7415_a_leader_that_wrote_nothing_knows_its_own_epoch() -> None:
    partition = leader(epoch=3, log=(0, 5), epochs=[(1, 0)])
    assert partition.step(on.EpochEndRequested(CLIENT, 3, 3)) == [
        do.AnswerEpochEnd(CLIENT, NONE, EpochEnd(3, 5))
    ]
    assert partition.step(on.EpochEndRequested(CLIENT, 3, 1)) == [
        do.AnswerEpochEnd(CLIENT, NONE, EpochEnd(1, 5))
    ]


def offsets(*, from_client: bool = True, read_committed: bool = False) -> on.OffsetsRequested:
    return on.OffsetsRequested(CLIENT, None, from_client, read_committed)


def listed(start: int, end: int, *, known: bool = True) -> do.AnswerOffsets:
    return do.AnswerOffsets(CLIENT, NONE, start, end, known)


def test_kip_207_a_new_leader_does_not_know_the_end_until_its_epoch_commits() -> None:
    """testMonotonicOffsetsAfterLeaderChange: requests for the log start always succeed."""
    assert (
        Playbook(half_committed())
        >> offsets()
        << listed(2, 5, known=False)
        >> offsets(from_client=False)
        << listed(2, 8)
        >> fetch(B, 7)
        << ...
        >> offsets()
        << listed(2, 7, known=False)
        >> fetch(B, 8)
        << ...
        >> offsets()
        << listed(2, 8)
        >> produce()
        << ...
        >> offsets()
        << listed(2, 8)
    )


def test_list_offset_isolation_levels() -> None:
    partition = leader(isr=(A,), replicas=(A,), log=(0, 8), producers=open_transaction(3))
    assert (
        Playbook(partition)
        >> offsets(read_committed=True)
        << listed(0, 3)
        >> offsets()
        << listed(0, 8)
    )


def test_a_follower_lists_no_offsets() -> None:
    (effect,) = follower(log=(0, 8)).step(offsets())
    assert isinstance(effect, do.AnswerOffsets)
    assert effect.error is NOT_LEADER


# --- a parked fetch -------------------------------------------------------------------------


def test_waiting_fetch_is_repeated_without_noting_progress_again() -> None:
    partition = half_committed()
    (parked,) = partition.step(consume(5))
    assert isinstance(parked, do.AnswerFetch)
    partition.step(fetch(B, 7))
    before = partition.freeze()
    assert partition.fetch_again(parked, None) == answer(CLIENT, 5, 7, hw=7, start=2)
    assert partition.fetch_again(parked, B) == answer(CLIENT, 5, 8, hw=7, start=2)
    assert partition.freeze() == before


def test_waiting_read_committed_fetch_stays_below_the_last_stable_offset() -> None:
    producers = open_transaction(3)
    partition = leader(isr=(A,), replicas=(A,), log=(0, 8), producers=producers)
    (parked,) = partition.step(consume(3, read_committed=True))
    assert isinstance(parked, do.AnswerFetch)
    producers.open_transactions[701] = producers.open_transactions.pop(700) + 3
    renewed = partition.fetch_again(parked, None, read_committed=True)
    assert renewed == answer(CLIENT, 3, 6, hw=8, stable=6)


@pytest.mark.parametrize(
    ("offset", "upto", "error"),
    [
        pytest.param(3, 3, OUT_OF_RANGE, id="its head was deleted meanwhile"),
        pytest.param(4, 6, NONE, id="its head is the log start now"),
        pytest.param(5, 6, NONE, id="there is something now"),
        pytest.param(7, 7, NONE, id="still nothing for it"),
    ],
)
def test_waiting_fetch_whose_range_has_moved(offset: int, upto: int, error: ErrorCode) -> None:
    partition = half_committed()
    parked = answer(CLIENT, offset, hw=5, start=2)
    partition.step(fetch(B, 6))
    partition.step(on.RetentionReached(4))
    assert partition.fetch_again(parked, None) == answer(
        CLIENT, offset, upto, hw=6, start=4, error=error
    )


def test_waiting_fetch_on_a_truncated_follower_is_out_of_range() -> None:
    partition = follower(epoch=2, log=(0, 8), epochs=[(0, 0)], hw=8, unclean=2)
    (parked,) = partition.step(consume(8, any_replica=True))
    assert isinstance(parked, do.AnswerFetch)
    partition.step(reply(8, epoch=2, diverging=(0, 5)))
    assert partition.fetch_again(parked, None) == answer(CLIENT, 8, hw=5, error=OUT_OF_RANGE)


def test_waiting_fetch_on_a_failed_disk() -> None:
    partition = half_committed()
    parked = answer(CLIENT, 5, hw=5, start=2)
    partition.step(on.LogFailed())
    storage_error = ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.fetch_again(parked, None).error is storage_error
    assert partition.fetch_again(parked, B).error is storage_error
