"""Brokers that start, stop, hang, die and return, and their partitions."""

from dataclasses import replace

import pytest
from cluster_driver import KEY, TOPIC, Cluster

from tidelog.core.controller import events as on
from tidelog.core.controller.broker_liveness import deregistration_transaction
from tidelog.core.controller.effects import (
    ElectedUncleanly,
    HeartbeatAnswer,
    StoreTransaction,
)
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata import registrations as values
from tidelog.core.controller.metadata.metadata_store import (
    GUARDS_MAX,
    OPERATIONS_MAX,
    OutcomeUnknown,
    Put,
    TxnAnswer,
    Unavailable,
)
from tidelog.core.controller.metadata.registrations import (
    BrokerState,
    PartitionKey,
    UncleanElection,
)
from tidelog.core.errors import ErrorCode


def broker(cluster: Cluster, number: int) -> values.BrokerRegistration:
    return cluster.leader.image.brokers[number]


def heartbeat(cluster: Cluster, number: int, **wishes: bool) -> HeartbeatAnswer:
    answer = cluster.heartbeat(number, **wishes)
    assert isinstance(answer, HeartbeatAnswer)
    return answer


def test_a_broker_is_admitted_fenced_and_unfenced_by_its_heartbeat() -> None:
    cluster = Cluster(1)
    host = cluster.start(2)
    assert broker(cluster, 2).fenced
    assert broker(cluster, 2).admitted_epoch == host.epoch
    assert heartbeat(cluster, 2) == HeartbeatAnswer(ErrorCode.NONE, caught_up=True, fenced=True)
    assert broker(cluster, 2).active
    assert heartbeat(cluster, 2) == HeartbeatAnswer(ErrorCode.NONE, caught_up=True, fenced=False)


def test_a_broker_behind_its_own_registration_stays_fenced() -> None:
    cluster = Cluster(1)
    host = cluster.start(2)
    beat = on.HeartbeatReceived(50, 2, host.epoch, host.epoch - 1, cluster.now_ms)
    assert cluster.request(beat) == HeartbeatAnswer(ErrorCode.NONE, caught_up=False)
    assert broker(cluster, 2).fenced
    cluster.request(replace(beat, request=51, applied_revision=host.epoch))
    assert broker(cluster, 2).active


@pytest.mark.parametrize(
    ("number", "epoch", "error"),
    [
        pytest.param(3, 1, ErrorCode.BROKER_ID_NOT_REGISTERED, id="never seen"),
        pytest.param(2, 3, ErrorCode.STALE_BROKER_EPOCH, id="session over"),
        pytest.param(1, 0, ErrorCode.STALE_BROKER_EPOCH, id="older incarnation"),
    ],
)
def test_heartbeats_of_unknown_brokers_are_refused(
    number: int, epoch: int, error: ErrorCode
) -> None:
    cluster = Cluster(1, 2)
    cluster.crash(2)
    beat = on.HeartbeatReceived(50, number, epoch, 0, cluster.now_ms)
    assert cluster.request(beat) == HeartbeatAnswer(error)


def test_a_heartbeat_that_overtakes_the_watch_waits_for_it() -> None:
    cluster = Cluster(1)
    cluster.deaf.add(1)
    host = cluster.start(2)
    beat = on.HeartbeatReceived(50, 2, host.epoch, host.epoch, cluster.now_ms)
    assert cluster.step(1, beat) == []
    cluster.deaf.clear()
    cluster.run()
    assert cluster.hosts[1].answers[50] == HeartbeatAnswer(ErrorCode.NONE, caught_up=True)
    assert broker(cluster, 2).active


def test_a_silent_broker_is_fenced_and_loses_what_it_led() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((2, 3, 1))
    cluster.tick(8000, 2)
    assert cluster.partition().leader == 2
    cluster.tick(2500, 2)
    assert broker(cluster, 2).fenced
    assert (cluster.partition().leader, cluster.partition().isr) == (3, (3, 1))
    assert cluster.partition().leader_epoch == 1
    cluster.tick(3000)
    assert broker(cluster, 2).active


def test_suspension_of_the_controller_fences_no_broker() -> None:
    cluster = Cluster(1, 2)
    cluster.now_ms += 60_000
    cluster.step(1, on.Ticked(cluster.now_ms))
    cluster.run()
    assert broker(cluster, 2).active
    cluster.step(1, on.Ticked(cluster.now_ms - 30_000))
    cluster.tick(8500, 2)
    assert broker(cluster, 2).active
    cluster.tick(1500, 2)
    assert broker(cluster, 2).fenced


def test_a_new_controller_gives_every_broker_a_full_timeout() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.tick(5500, 3)
    cluster.crash(1)
    assert cluster.leader.broker == 2
    cluster.tick(5500, 3)
    assert broker(cluster, 3).active
    cluster.tick(5000, 3)
    assert broker(cluster, 3).fenced


def test_the_end_of_a_session_fences_at_once() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((2, 3, 1))
    cluster.crash(2)
    assert cluster.partition().leader == 3


def test_proof_of_death_fences_at_once_and_frees_the_id() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((2, 3, 1))
    epoch = cluster.hosts[2].epoch
    cluster.stop(2)
    cluster.step(1, on.BrokerDied(2, epoch))
    cluster.run()
    assert cluster.partition().leader == 3
    host = cluster.start(2)
    heartbeat(cluster, 2)
    assert broker(cluster, 2).active
    cluster.step(1, on.BrokerDied(2, epoch))
    cluster.run()
    assert broker(cluster, 2).epoch == host.epoch
    assert broker(cluster, 2).active


def test_a_broker_that_proves_its_former_process_dead_need_not_wait() -> None:
    cluster = Cluster(1)
    former = cluster.hosts[1].epoch
    cluster.stop(1)
    assert cluster.store.txn(*deregistration_transaction(1, former - 1)).ok is False  # type: ignore[union-attr]
    cluster.store.txn(*deregistration_transaction(1, former))
    cluster.start(1)
    cluster.step(1, on.BrokerDied(1, former))
    cluster.run()
    heartbeat(cluster, 1)
    assert broker(cluster, 1).active


def test_a_broker_may_request_to_be_fenced() -> None:
    cluster = Cluster(1, 2)
    cluster.create((2, 1))
    heartbeat(cluster, 2, want_fence=True)
    assert broker(cluster, 2).fenced
    assert cluster.partition().leader == 1
    heartbeat(cluster, 2, want_fence=True)
    assert broker(cluster, 2).fenced
    heartbeat(cluster, 2)
    assert broker(cluster, 2).active


def test_controlled_shutdown_moves_leadership_first() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((2, 3, 1))
    cluster.deaf.add(3)
    assert not heartbeat(cluster, 2, want_shut_down=True).should_shut_down
    assert broker(cluster, 2).shutting_down
    assert not broker(cluster, 2).fenced
    assert (cluster.partition().leader, cluster.partition().isr) == (3, (3, 1))
    cluster.heartbeat(1)
    cluster.heartbeat(3)
    assert not heartbeat(cluster, 2).should_shut_down, "3 does not know yet that it leads"
    cluster.deaf.clear()
    cluster.run()
    cluster.heartbeat(3)
    cluster.heartbeat(1)
    assert heartbeat(cluster, 2).should_shut_down
    cluster.restart(2, clean=True)
    assert broker(cluster, 2).active
    assert not heartbeat(cluster, 2).should_shut_down


def test_a_lone_broker_may_stop_and_leads_again_after_a_clean_start() -> None:
    cluster = Cluster(1)
    cluster.create((1,))
    heartbeat(cluster, 1, want_shut_down=True)
    assert heartbeat(cluster, 1).should_shut_down
    stopped = cluster.partition()
    assert (stopped.leader, stopped.isr, stopped.elr) == (None, (), (1,))
    cluster.restart(1, clean=True)
    assert cluster.partition().leader == 1
    assert cluster.partition().unclean_election is None


def test_a_fenced_broker_may_stop_at_once() -> None:
    cluster = Cluster(1)
    cluster.start(2)
    assert heartbeat(cluster, 2, want_shut_down=True).should_shut_down
    assert broker(cluster, 2).fenced


def test_a_restarted_broker_lost_everything_before_it_is_admitted() -> None:
    """So the broker can never lead in an epoch of its former process."""
    cluster = Cluster(1, 2, 3)
    cluster.create((2, 3, 1), min_insync_replicas="2")
    cluster.stop(2)
    cluster.store.txn((), ())
    cluster.deaf |= {1, 3}
    # The old session ends and the new one begins before the controller looks.
    cluster.store.expire(2)
    host = cluster.start(2)
    assert not host.image.may_lead(2, host.epoch)
    assert cluster.partition().leader == 2
    cluster.deaf.clear()
    cluster.run()
    revisions = {
        change.key: batch.rev
        for batch in cluster.store.watch("", host.epoch)  # type: ignore[union-attr]
        for change in batch.changes
    }
    assert revisions[keys.partition(*KEY)] <= revisions[keys.broker_state(2)]
    assert cluster.partition().leader == 3


@pytest.mark.parametrize(
    ("clean", "elr"), [(True, (2,)), (False, ())], ids=["kept its data", "may have lost data"]
)
def test_unclean_shutdown_costs_eligibility(clean: bool, elr: tuple[int, ...]) -> None:
    """Regression test for KAFKA-18635."""
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2, 3), min_insync_replicas="2")
    cluster.alter(1, 2)
    epoch = cluster.hosts[2].epoch
    cluster.crash(2)
    assert cluster.partition().elr == (2,)
    cluster.start(2, epoch if clean else -1)
    assert cluster.partition().elr == elr


def test_a_quick_unclean_restart_is_noticed() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2, 3), min_insync_replicas="3")
    cluster.deaf |= {1, 3}
    cluster.stop(2)
    cluster.store.expire(2)
    cluster.start(2)
    cluster.deaf.clear()
    cluster.run()
    assert cluster.partition().isr == (1, 3)
    assert cluster.partition().elr == ()


def test_the_last_leader_returns_and_that_is_recorded() -> None:
    cluster = Cluster(1, 2)
    cluster.create((2,))
    cluster.restart(2)
    expected = UncleanElection(2, 2, None, (), (), recovered=True)
    assert cluster.partition().unclean_election == expected
    assert ElectedUncleanly(KEY, expected) in cluster.leader.seen
    heartbeat(cluster, 2)
    assert cluster.leader.seen.count(ElectedUncleanly(KEY, expected)) == 1


def test_an_unclean_election_only_where_it_is_allowed() -> None:
    cluster = Cluster(1, 2)
    cluster.create((2, 1), min_insync_replicas="2")
    cluster.alter(2)
    cluster.restart(1)
    cluster.crash(2)
    assert cluster.partition().leader is None
    config = {"unclean.leader.election.enable": "true"}
    cluster.request(on.AlterConfigReceived(60, "t", {**config}))
    assert cluster.partition().leader == 1
    expected = UncleanElection(1, 2, None, (), (2,), recovered=False)
    assert cluster.partition().unclean_election == expected


def test_a_leaderless_partition_gets_a_leader_as_soon_as_possible() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((2, 3), min_insync_replicas="2")
    for number in (2, 3):
        cluster.restart(number, clean=True)
        assert cluster.partition().leader is not None


def test_a_guard_keeps_out_a_broker_whose_death_was_not_noticed() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2, 3))
    cluster.alter(1, 2)
    event = cluster.proposal(1, 2, 3)
    cluster.deaf.add(1)
    cluster.crash(3)
    cluster.step(1, event)
    cluster.carry_out(1)
    assert event.request not in cluster.hosts[1].answers
    cluster.deaf.clear()
    cluster.run()
    answer = cluster.hosts[1].answers[event.request]
    assert answer.results[KEY].error is ErrorCode.INELIGIBLE_REPLICA  # type: ignore[union-attr]
    assert cluster.partition().isr == (1, 2)


def many(cluster: Cluster, count: int, *assignments: tuple[int, ...]) -> list[PartitionKey]:
    cluster.create(*(assignments[n % len(assignments)] for n in range(count)))
    return [PartitionKey(TOPIC, n) for n in range(count)]


@pytest.mark.parametrize("clean", [True, False])
def test_more_partitions_than_a_transaction_holds(clean: bool) -> None:
    cluster = Cluster(1, 2, 3)
    named = many(cluster, 250, (2, 3), (3, 2), (2, 1))
    epoch = cluster.hosts[2].epoch
    cluster.stop(2)
    cluster.deaf.add(1)
    cluster.store.expire(2)
    cluster.start(2, epoch if clean else -1)
    cluster.deaf.clear()
    cluster.run()
    image = cluster.leader.image
    assert not image.brokers[2].awaits_admission
    assert all(2 not in image.partitions[key].isr for key in named)
    assert all(image.partitions[key].leader in (1, 3) for key in named)
    sent = [effect for effect in cluster.leader.seen if isinstance(effect, StoreTransaction)]
    assert max(len(t.guards) for t in sent) <= GUARDS_MAX
    assert max(len(t.ops) for t in sent) <= OPERATIONS_MAX
    admission = cluster.store.get(keys.broker_state(2))[0]
    assert admission is not None
    assert all(cluster.store.get(keys.partition(*k))[0].mod_rev <= admission.mod_rev for k in named)  # type: ignore[union-attr]


def test_what_an_earlier_controller_did_not_finish_is_finished() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((2, 3, 1))
    # It fenced 3 and died before it took it out of the ISR.
    state = values.encode_broker_state(BrokerState(cluster.hosts[3].epoch, fenced=True))
    cluster.deaf.add(1)
    cluster.store.txn((), (Put(keys.broker_state(3), state),))
    cluster.crash(1)
    assert cluster.leader.broker == 2
    assert cluster.partition().isr == (2,)


@pytest.mark.parametrize(
    ("stage", "answer"),
    [
        pytest.param("before", Unavailable(), id="not done"),
        pytest.param("before", OutcomeUnknown(), id="unclear, not done"),
        pytest.param("after", OutcomeUnknown(), id="unclear, done"),
    ],
)
def test_a_fencing_of_unknown_outcome_is_resent(stage: str, answer: TxnAnswer) -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((2, 3, 1))
    lost: list[StoreTransaction] = []

    def lose(at: str, transaction: StoreTransaction) -> TxnAnswer | None:
        if at == stage and len(lost) < 3:
            lost.append(transaction)
            return answer
        return None

    cluster.fault = lose
    cluster.crash(2)
    cluster.tick(3000)
    assert len({transaction.tag for transaction in lost}) == 1
    assert cluster.partition().leader == 3
    assert cluster.partition().partition_epoch == 1
    assert cluster.alter(3).error is ErrorCode.NONE


def test_a_broker_is_not_admitted_while_one_of_its_partitions_is_busy() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2, 3))
    event = cluster.proposal(1, 2)
    cluster.fault = lambda stage, _: Unavailable() if stage == "before" else None
    cluster.step(1, event)
    cluster.carry_out(1)
    cluster.fault = None
    cluster.store.expire(cluster.hosts[2].session)
    cluster.stop(2)
    cluster.start(2)
    assert broker(cluster, 2).awaits_admission
    assert 2 in cluster.partition().isr
    cluster.tick(500)
    assert not broker(cluster, 2).awaits_admission
    assert 2 not in cluster.partition().isr


def test_a_fencing_and_its_elections_are_one_revision() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((2, 3, 1))
    cluster.tick(10_500, 2)
    state = cluster.store.get(keys.broker_state(2))[0]
    partition = cluster.store.get(keys.partition(*KEY))[0]
    assert state is not None
    assert partition is not None
    assert state.mod_rev == partition.mod_rev
