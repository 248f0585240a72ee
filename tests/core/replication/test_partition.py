"""Which role a registration assigns, and that invalid events change nothing."""

from dataclasses import dataclass
from typing import Any

import pytest
from playbook import (
    CLIENT,
    FETCHER,
    NONE,
    A,
    B,
    C,
    Playbook,
    answer,
    consume,
    elected,
    epochs_of,
    fetch,
    follower,
    leader,
    produce,
    replica,
    reply,
)

from tidelog.core.errors import ErrorCode
from tidelog.core.replication import effects as do
from tidelog.core.replication import events as on
from tidelog.core.replication.partition import _HANDLERS, Partition, PartitionConfig

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_every_event_has_a_handler() -> None:
    assert set(_HANDLERS) == set(on.Event.__args__)


@pytest.mark.parametrize(
    ("before", "who", "epoch", "first"),
    [
        pytest.param("replica", A, 2, do.WriteEpochs(before_append=True), id="nothing -> leader"),
        pytest.param("replica", B, 2, do.FollowLeader(B, 2), id="nothing -> follower"),
        pytest.param("replica", None, 2, do.StopFollowing(), id="nothing -> no leader"),
        pytest.param(
            "leader", A, 2, do.WriteEpochs(before_append=True), id="leader -> leader again"
        ),
        pytest.param("leader", B, 2, do.FollowLeader(B, 2), id="leader -> follower"),
        pytest.param("leader", None, 2, do.StopFollowing(), id="leader -> no leader"),
        pytest.param("follower", A, 2, do.WriteEpochs(before_append=True), id="follower -> leader"),
        pytest.param("follower", C, 2, do.FollowLeader(C, 2), id="follower -> of another"),
    ],
)
def test_roles(before: str, who: int | None, epoch: int, first: do.Effect) -> None:
    partition = {"replica": replica(), "leader": leader(), "follower": follower(A, of=B)}[before]
    effects = partition.step(elected(who, epoch))
    assert effects[:2] == [do.FailWaiters(NOT_LEADER), first]
    assert (partition.leader, partition.leader_epoch) == (who, epoch)
    assert partition.is_leader is (who == A)
    assert (partition.next_question(0) is None) is (who in (A, None))


def test_m19_replaced_leader_fails_waiting_requests_before_it_follows() -> None:
    partition = leader(log=(0, 5), epochs=[(0, 0)])
    assert (
        Playbook(partition)
        >> elected(B, 2)
        << do.FailWaiters(NOT_LEADER)
        << do.FollowLeader(B, 2)
        >> produce(acks=on.ACKS_ALL)
        << do.AnswerProduce("producer", NOT_LEADER, None)
    )


def test_a_leader_again_in_the_epoch_it_had_before_a_restart_writes_no_new_entry() -> None:
    partition = replica(epochs=[(2, 3)], log=(0, 5), hw=3)
    assert (
        Playbook(partition)
        >> elected(A, 2, isr=(A, B))
        << do.FailWaiters(NOT_LEADER)
        << do.TakeLeadership(2, 5, (A, B), recovering=False)
    )
    assert epochs_of(partition) == [(2, 3)]


@pytest.mark.parametrize("partition_epoch", [4, 5])
@pytest.mark.parametrize("who", [A, B, None])
def test_an_older_registration_is_ignored(partition_epoch: int, who: int | None) -> None:
    partition = leader(isr=(A, B))
    before = partition.freeze()
    old = elected(who, 1, partition_epoch=partition_epoch, isr=(A,), replicas=(A,))
    assert Playbook(partition) >> old << None
    assert partition.freeze() == before


def test_a_leader_epoch_that_goes_back_is_an_error() -> None:
    partition = leader(epoch=3)
    before = partition.freeze()
    with pytest.raises(AssertionError, match="epochs only grow"):
        partition.step(elected(B, 2, partition_epoch=99))
    assert partition.freeze() == before


def test_an_unknown_event_is_an_error() -> None:
    @dataclass(slots=True)
    class Nonsense:
        """A class that is not an event."""

    partition = leader()
    before = partition.freeze()
    nonsense: Any = Nonsense()
    with pytest.raises(KeyError):
        partition.step(nonsense)
    assert partition.freeze() == before


def test_commit_succeeds_only_with_enough_replicas() -> None:
    config = PartitionConfig(min_insync_replicas=2)
    partition = leader(isr=(A, B), config=config)
    assert partition.commit_error() is NONE
    partition.step(elected(A, 1, partition_epoch=6, isr=(A,)))
    assert partition.commit_error() is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


# --- what the log itself reports ------------------------------------------------------------


def test_log_cut_at_a_batch_boundary_ends_earlier_than_requested() -> None:
    partition = follower(epoch=5, epochs=[(0, 0), (4, 5)], log=(0, 9), hw=7)
    partition.step(reply(9, diverging=(4, 6), epoch=5))
    assert Playbook(partition) >> on.LogEndMoved(5) << do.WriteEpochs()
    assert epochs_of(partition) == [(0, 0)]
    assert (partition.log_end_offset, partition.high_watermark) == (5, 5)
    assert Playbook(partition) >> on.LogEndMoved(4) << None


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_kafka_10778_no_acknowledgement_after_a_disk_error(role: str) -> None:
    config = PartitionConfig(flush_before_ack=True)
    partition = leader(config=config, log=(0, 5), hw=4, epochs=[(0, 0)])
    if role == "follower":
        partition = follower(A, of=B, config=config, log=(0, 5), hw=4, epochs=[(0, 0)])
    assert (
        Playbook(partition)
        >> on.LogFailed()
        << do.FailWaiters(ErrorCode.KAFKA_STORAGE_ERROR)
        << do.StopFollowing()
    )
    before = partition.freeze()
    assert partition.next_question(99_999) is None
    silent: list[on.Event] = [
        on.Ticked(now_ms=99_999),
        on.BrokersChanged(now_ms=99_999),
        on.RecordsFlushed(3, now_ms=99_999),
        on.RetentionReached(3),
        elected(A, 9),
        elected(B, 9),
        reply(0),
    ]
    for event in silent:
        assert partition.step(event) == []
    for request in (produce(), consume(0, any_replica=True), fetch(B, 0)):
        (effect,) = partition.step(request)
        assert isinstance(effect, do.AnswerProduce | do.AnswerFetch)
        assert effect.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.freeze() == before


def test_follower_with_a_failed_disk_sends_no_request() -> None:
    partition = follower(log=(0, 5), epochs=[(0, 0)])
    assert partition.next_question(0) is not None
    partition.step(on.LogFailed())
    assert partition.next_question(0) is None
    assert partition.step(reply(5)) == []


def test_only_a_leader_reacts_to_broker_changes_and_ticks() -> None:
    partition: Partition = follower(log=(0, 5), epochs=[(0, 0)])
    assert Playbook(partition) >> on.BrokersChanged(now_ms=0) << None
    assert Playbook(partition) >> on.Ticked(now_ms=99_999) << None


def test_consumer_gets_a_response_from_an_empty_leader() -> None:
    assert Playbook(leader()) >> consume(0) << answer(CLIENT, 0)
    assert Playbook(leader()) >> fetch(B, 0) << answer(FETCHER, 0)
