"""The role of controller: claimed, kept, lost and released."""

import pytest
from cluster_driver import KEY, Cluster, Host

from tidelog.core.controller import effects as do
from tidelog.core.controller import events as on
from tidelog.core.controller.effects import (
    AlterPartitionAnswer,
    Answer,
    BecameController,
    HeartbeatAnswer,
    PartitionErrorsAnswer,
    ReassignmentsAnswer,
    Resigned,
    Response,
    StoreTransaction,
    TopicAnswer,
)
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.metadata_store import (
    Guard,
    OutcomeUnknown,
    Put,
    SessionExpired,
    TxnAnswer,
    TxnResult,
    Unavailable,
)
from tidelog.core.errors import ErrorCode


def claim_of(transaction: StoreTransaction) -> bool:
    return any(op.key == keys.CONTROLLER and isinstance(op, Put) for op in transaction.ops)


def holder(cluster: Cluster) -> int | None:
    image = next(iter(cluster.hosts.values())).image
    return None if image.controller is None else image.controller.broker


def resignations(host: Host) -> list[str]:
    return [effect.reason for effect in host.seen if isinstance(effect, Resigned)]


def test_the_first_broker_becomes_controller_and_the_others_wait() -> None:
    cluster = Cluster(1, 2, 3)
    assert cluster.leader.broker == 1
    assert BecameController(1) in cluster.leader.seen
    assert not any(isinstance(e, StoreTransaction) for e in cluster.hosts[2].seen)


def test_another_broker_becomes_controller_when_the_session_ends() -> None:
    cluster = Cluster(1, 2)
    cluster.crash(1)
    assert cluster.leader.broker == 2
    assert BecameController(2) in cluster.leader.seen
    assert cluster.hosts[2].image.controller_epoch == 2


def test_nothing_is_decided_before_the_image_has_reached_the_token() -> None:
    cluster = Cluster(1)
    cluster.start(2)
    cluster.deaf.add(2)
    cluster.store.txn((), (Put("later", b""),))
    cluster.crash(1)
    assert cluster.hosts[2].token() is None
    cluster.watch(2)
    assert not cluster.hosts[2].is_active()
    cluster.carry_out(2)
    assert cluster.hosts[2].token() == cluster.store.revision
    assert not cluster.hosts[2].is_active()
    beat = on.HeartbeatReceived(1, 2, cluster.hosts[2].epoch, 99, cluster.now_ms)
    assert cluster.step(2, beat) == []
    cluster.watch(2)
    assert cluster.hosts[2].is_active()
    assert 1 in cluster.hosts[2].answers


def test_the_session_is_lost_between_the_claim_and_the_term() -> None:
    cluster = Cluster(1)
    cluster.start(2)
    cluster.deaf.add(2)
    cluster.crash(1)
    cluster.watch(2)
    cluster.carry_out(2)
    beat = on.HeartbeatReceived(1, 2, cluster.hosts[2].epoch, 99, cluster.now_ms)
    cluster.step(2, beat)
    cluster.step(2, on.SessionLost())
    assert cluster.hosts[2].answers[1] == HeartbeatAnswer(ErrorCode.NOT_CONTROLLER)
    assert resignations(cluster.hosts[2]) == []


@pytest.mark.parametrize(
    "refused",
    [
        HeartbeatAnswer(ErrorCode.NOT_CONTROLLER),
        AlterPartitionAnswer(ErrorCode.NOT_CONTROLLER),
        TopicAnswer(ErrorCode.NOT_CONTROLLER),
        PartitionErrorsAnswer(ErrorCode.NOT_CONTROLLER),
        ReassignmentsAnswer(ErrorCode.NOT_CONTROLLER),
    ],
    ids=lambda response: type(response).__name__,
)
def test_a_candidate_refuses_requests(refused: Response) -> None:
    cluster = Cluster(1, 2)
    asked: dict[type[Response], on.Request] = {
        HeartbeatAnswer: on.HeartbeatReceived(7, 1, 1, 1, 1),
        AlterPartitionAnswer: on.AlterPartitionReceived(7, 1, 1, ()),
        TopicAnswer: on.DeleteTopicReceived(7, "t"),
        PartitionErrorsAnswer: on.ElectLeadersReceived(7, on.ElectionType.PREFERRED),
        ReassignmentsAnswer: on.ListReassignmentsReceived(7),
    }
    assert cluster.step(2, asked[type(refused)]) == [Answer(7, refused)]


def test_a_lost_answer_to_a_claim_is_settled_by_sending_it_again() -> None:
    cluster = Cluster(1)
    cluster.start(2)

    def lose(stage: str, transaction: StoreTransaction) -> TxnAnswer | None:
        return OutcomeUnknown() if stage == "after" and claim_of(transaction) else None

    cluster.fault = lose
    cluster.crash(1)
    assert not cluster.hosts[2].is_active()
    assert cluster.hosts[2].image.controller is not None
    cluster.fault = None
    cluster.tick(500)
    assert cluster.leader.broker == 2
    sent = [e for e in cluster.hosts[2].seen if isinstance(e, StoreTransaction) and claim_of(e)]
    assert sent[0] == sent[1]


def test_a_claim_that_was_not_applied_is_sent_again() -> None:
    cluster = Cluster(1)
    cluster.start(2)
    cluster.fault = lambda stage, _: Unavailable() if stage == "before" else None
    cluster.crash(1)
    cluster.tick(1000, heartbeats=False)
    assert holder(cluster) is None
    cluster.fault = None
    cluster.tick(500)
    assert cluster.leader.broker == 2


def test_another_broker_may_win_after_a_claim_of_unknown_outcome() -> None:
    cluster = Cluster(1)
    cluster.start(2)
    cluster.start(3)
    cluster.fault = lambda _, t: OutcomeUnknown() if claim_of(t) and len(t.ops) == 2 else None
    cluster.deaf.add(3)
    cluster.crash(1)
    cluster.fault = None
    cluster.deaf.clear()
    cluster.run()
    assert cluster.leader.broker == 3
    cluster.tick(1000)
    assert cluster.leader.broker == 3


def test_a_claim_on_an_ended_session_waits_for_a_new_one() -> None:
    cluster = Cluster(1)
    host = cluster.start(2)
    cluster.fault = lambda _, t: SessionExpired() if claim_of(t) else None
    cluster.crash(1)
    cluster.fault = None
    cluster.tick(1000, heartbeats=False)
    assert holder(cluster) is None
    cluster.step(2, on.SessionOpened(host.session, host.epoch))
    cluster.run()
    assert cluster.leader.broker == 2


def test_a_session_that_was_assumed_lost_continues_its_term() -> None:
    cluster = Cluster(1, 2)
    host = cluster.hosts[1]
    token = host.controller.candidacy.token
    cluster.step(1, on.SessionLost())
    assert resignations(host) == ["session lost"]
    cluster.tick(1000, heartbeats=False)
    cluster.step(1, on.SessionOpened(host.session, host.epoch))
    assert host.controller.is_active
    assert host.controller.candidacy.token == token


def test_every_write_carries_the_token() -> None:
    cluster = Cluster(1, 2)
    cluster.create((1, 2))
    cluster.alter(1)
    cluster.restart(2)
    token = cluster.leader.controller.candidacy.token
    assert token is not None
    sent = [e for e in cluster.leader.seen if isinstance(e, StoreTransaction) and not claim_of(e)]
    assert sent
    assert all(t.guards[0] == Guard(keys.CONTROLLER, token, "create") for t in sent)


def test_a_controller_that_was_replaced_writes_nothing_and_resigns() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2, 3))
    old = cluster.hosts[1]
    cluster.deaf.add(1)
    cluster.store.expire(old.session)
    cluster.run()
    assert cluster.hosts[2].is_active()
    assert old.is_active()
    before = cluster.store.freeze()
    proposal = cluster.proposal(2, 3)
    cluster.step(1, proposal)
    cluster.step(1, on.CreateTopicReceived(901, "u", bytes(16), 1, 1))
    cluster.step(1, on.CreateTopicReceived(902, "w", b"w" * 16, 1, 1))
    cluster.carry_out(1)
    assert cluster.store.freeze() == before
    assert not old.is_active()
    assert resignations(old) == ["fenced by the store"]
    assert old.answers[901] == old.answers[902] == TopicAnswer(ErrorCode.NOT_CONTROLLER)
    told = old.answers[proposal.request]
    assert isinstance(told, AlterPartitionAnswer)
    assert told.results[KEY].error is ErrorCode.NOT_CONTROLLER
    cluster.carry_out(1)
    assert cluster.store.freeze() == before


def test_a_controller_that_sees_another_resigns() -> None:
    cluster = Cluster(1, 2)
    old = cluster.hosts[1]
    cluster.store.expire(old.session)
    cluster.run()
    assert resignations(old) == ["another broker became controller"]


def test_a_controller_without_heartbeats_of_a_majority_resigns() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((2, 3, 1))
    cluster.tick(7000, 2, 3)
    assert resignations(cluster.hosts[1]) == [
        "receives no heartbeats from a majority of the brokers"
    ]
    assert cluster.leader.broker != 1
    assert cluster.partition().isr == (2, 3, 1)


def test_brokers_dead_for_the_store_do_not_count_for_a_majority() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((2, 3, 1))
    for broker in (2, 3):
        cluster.crash(broker)
    cluster.tick(20_000)
    assert cluster.leader.broker == 1
    assert cluster.partition().leader == 1


def test_one_of_two_stays_and_fences_the_other() -> None:
    cluster = Cluster(1, 2)
    cluster.create((2, 1))
    cluster.tick(10_000, 2)
    assert cluster.leader.broker == 1
    assert cluster.partition().leader == 1


def test_a_release_that_got_lost_is_sent_again() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.fault = lambda stage, _: Unavailable() if stage == "before" else None
    cluster.tick(6500, 2, 3)
    assert holder(cluster) == 1
    cluster.fault = None
    cluster.tick(500, heartbeats=False)
    assert holder(cluster) in (2, 3)


def test_a_dead_controllers_key_is_freed_at_once() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2, 3))
    dead = cluster.hosts[1].epoch
    cluster.stop(1)
    for broker in (2, 3):
        cluster.step(broker, on.BrokerDied(1, dead))
    cluster.run()
    assert cluster.leader.broker in (2, 3)
    assert cluster.partition().leader == 2
    assert cluster.store.get(keys.broker_id(1))[0] is None


def test_answers_to_an_earlier_terms_transactions_are_ignored() -> None:
    cluster = Cluster(1, 2)
    cluster.create((1, 2))
    host = cluster.hosts[1]
    out = cluster.step(1, cluster.proposal(1))
    (sent,) = [effect for effect in out if isinstance(effect, StoreTransaction)]
    host.queue.clear()
    cluster.step(1, on.SessionLost())
    assert cluster.step(1, on.TransactionAnswered(sent.tag, TxnResult(True, 99))) == []


def test_partitions_of_an_unfinished_creation_are_deleted() -> None:
    cluster = Cluster(1, 2)
    cluster.create((1, 2), name="t")
    half = PartitionKeyed(cluster)
    cluster.crash(1)
    assert not half.left()
    assert KEY in cluster.leader.image.partitions


class PartitionKeyed:
    """Partitions of a topic without a name, and one beyond a topic's count."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        value = cluster.store.get(keys.partition(*KEY))[0]
        assert value is not None
        self.keys = [keys.partition(b"\x09" * 16, n) for n in range(3)]
        self.keys.append(keys.partition(KEY.topic_id, 1))
        cluster.store.txn((), tuple(Put(key, value.value) for key in self.keys))

    def left(self) -> list[str]:
        return [key for key in self.keys if self.cluster.store.get(key)[0] is not None]


def test_freeze_distinguishes_states_of_a_controller() -> None:
    one, other = Cluster(1, 2), Cluster(1, 2)
    assert one.leader.controller.freeze() == other.leader.controller.freeze()
    hash(one.leader.controller.freeze())
    assert one.leader.controller.freeze() != one.hosts[2].controller.freeze()
    one.step(1, on.DeleteTopicReceived(90, "t"), on.CreateTopicReceived(91, "t", bytes(16), 1, 1))
    assert one.leader.controller.freeze() != other.leader.controller.freeze()
    one.fault = lambda *_: OutcomeUnknown()
    one.step(2, on.SessionLost())
    one.crash(1)
    one.step(2, on.SessionOpened(one.hosts[2].session, one.hosts[2].epoch))
    hash(one.hosts[2].controller.freeze())
    assert do.BecameController(2) not in one.hosts[2].seen
