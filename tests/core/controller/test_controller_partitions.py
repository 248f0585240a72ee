"""ISR changes, reassignments and requested elections, through the controller."""

from dataclasses import replace

import pytest
from cluster_driver import KEY, TOPIC, Cluster

from tidelog.core.controller import events as on
from tidelog.core.controller.controller import ControllerSettings
from tidelog.core.controller.effects import (
    AlterPartitionAnswer,
    AlterPartitionResult,
    PartitionErrorsAnswer,
    ReassignmentsAnswer,
    StoreTransaction,
)
from tidelog.core.controller.events import ElectionType, IsrMember, IsrProposal
from tidelog.core.controller.metadata.metadata_store import OutcomeUnknown
from tidelog.core.controller.metadata.registrations import PartitionKey
from tidelog.core.controller.requests import narrowed
from tidelog.core.errors import ErrorCode

UNKNOWN = PartitionKey(b"?" * 16, 0)


def errors(cluster: Cluster, event: on.Request) -> dict[PartitionKey, ErrorCode]:
    answer = cluster.request(event)
    assert isinstance(answer, PartitionErrorsAnswer)
    assert answer.error is ErrorCode.NONE
    return answer.results


def move(cluster: Cluster, *replicas: int, key: PartitionKey = KEY) -> ErrorCode:
    targets = {key: replicas or None}
    return errors(cluster, on.AlterReassignmentsReceived(cluster.number(), targets))[key]


def elect(cluster: Cluster, election: ElectionType, *keys: PartitionKey) -> list[ErrorCode]:
    event = on.ElectLeadersReceived(cluster.number(), election, keys or None)
    return list(errors(cluster, event).values())


def test_an_isr_change_is_answered_when_it_is_committed() -> None:
    cluster = Cluster(1, 2)
    cluster.create((1, 2))
    result = cluster.alter(1)
    assert result.error is ErrorCode.NONE
    assert result.partition == cluster.partition()
    assert result.revision == cluster.store.revision
    again = cluster.alter(1)
    assert again == AlterPartitionResult(ErrorCode.NONE, cluster.partition(), again.revision)


@pytest.mark.parametrize("epoch", [1, 0], ids=["older incarnation", "no incarnation"])
def test_a_stale_sender_is_refused_as_a_whole(epoch: int) -> None:
    cluster = Cluster(1, 2)
    cluster.create((2, 1))
    event = replace(cluster.proposal(2), broker_epoch=epoch)
    assert cluster.request(event) == AlterPartitionAnswer(ErrorCode.STALE_BROKER_EPOCH)


def test_a_sender_ahead_of_the_image_is_waited_for() -> None:
    cluster = Cluster(1, 2)
    cluster.create((1, 2))
    event = replace(cluster.proposal(1), broker=2, broker_epoch=cluster.store.revision + 1)
    assert cluster.step(1, event) == []
    cluster.crash(2)
    cluster.start(2)
    assert event.request in cluster.leader.answers


def test_requests_without_partitions_are_answered() -> None:
    cluster = Cluster(1)
    assert cluster.request(on.AlterPartitionReceived(1000, 1, 1, ())) == AlterPartitionAnswer(
        ErrorCode.NONE
    )
    assert errors(cluster, on.AlterReassignmentsReceived(1001, {})) == {}
    assert elect(cluster, ElectionType.PREFERRED) == []


def test_a_second_change_waits_for_the_first() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2, 3))
    first, second = cluster.proposal(1, 2), cluster.proposal(1, 3)
    cluster.step(1, first, second)
    assert len(cluster.hosts[1].queue) == 1
    cluster.run()
    answer = cluster.leader.answers[second.request]
    assert isinstance(answer, AlterPartitionAnswer)
    assert answer.results[KEY].error is ErrorCode.INVALID_UPDATE_VERSION
    assert cluster.partition().isr == (1, 2)


def test_a_leader_ahead_of_the_image_is_not_refused() -> None:
    """It got the response to its first change before the controller's image changed."""
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2, 3))
    cluster.deaf.add(1)
    cluster.step(1, cluster.proposal(1, 2))
    cluster.carry_out(1)
    second = cluster.proposal(1, 2, 3)
    cluster.step(1, second)
    cluster.deaf.clear()
    cluster.run()
    answer = cluster.leader.answers[second.request]
    assert isinstance(answer, AlterPartitionAnswer)
    assert answer.results[KEY].error is ErrorCode.NONE


def test_one_request_for_more_partitions_than_a_transaction_holds() -> None:
    cluster = Cluster(1, 2)
    cluster.create(*[(1, 2)] * 150)
    named = [PartitionKey(TOPIC, n) for n in range(150)]
    proposals = tuple(IsrProposal(key, 0, 0, (IsrMember(1),)) for key in [*named, UNKNOWN])
    event = on.AlterPartitionReceived(1000, 1, cluster.hosts[1].epoch, proposals)
    answer = cluster.request(event)
    assert isinstance(answer, AlterPartitionAnswer)
    assert len(answer.results) == 151
    assert answer.results[UNKNOWN].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert all(cluster.leader.image.partitions[key].isr == (1,) for key in named)


def test_an_isr_change_whose_answer_was_lost_is_made_once() -> None:
    cluster = Cluster(1, 2)
    cluster.create((1, 2))
    cluster.fault = lambda stage, _: OutcomeUnknown() if stage == "after" else None
    event = cluster.proposal(1)
    cluster.step(1, event)
    cluster.run()
    assert event.request not in cluster.leader.answers
    cluster.fault = None
    cluster.tick(500)
    answer = cluster.leader.answers[event.request]
    assert isinstance(answer, AlterPartitionAnswer)
    assert answer.results[KEY].error is ErrorCode.NONE
    assert cluster.partition().partition_epoch == 1


def test_a_partition_is_reassigned() -> None:
    cluster = Cluster(1, 2, 3, 4)
    cluster.create((1, 2))
    assert move(cluster, 3, 4) is ErrorCode.NONE
    moving = cluster.partition()
    assert moving.replicas == (3, 4, 1, 2)
    assert (moving.adding, moving.removing) == ((3, 4), (1, 2))
    listed = cluster.request(on.ListReassignmentsReceived(1000))
    assert listed == ReassignmentsAnswer(ErrorCode.NONE, (moving,))
    assert cluster.alter(1, 2, 3).error is ErrorCode.NONE
    assert cluster.partition().reassigning
    done = cluster.alter(1, 2, 3, 4)
    assert done.error is ErrorCode.NEW_LEADER_ELECTED
    assert done.partition == cluster.partition()
    assert (cluster.partition().replicas, cluster.partition().leader) == ((3, 4), 3)
    assert cluster.request(on.ListReassignmentsReceived(1001)) == ReassignmentsAnswer(
        ErrorCode.NONE
    )


def test_a_reassignment_is_cancelled() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2))
    move(cluster, 3, 1)
    assert cluster.partition().reassigning
    assert move(cluster) is ErrorCode.NONE
    back = cluster.partition()
    assert not back.reassigning
    assert (set(back.replicas), set(back.isr), back.leader) == ({1, 2}, {1, 2}, 1)


def test_a_redirected_reassignment_drops_what_the_first_had_added() -> None:
    cluster = Cluster(1, 2, 3, 4)
    cluster.create((1, 2))
    move(cluster, 3, 1)
    assert move(cluster, 4, 1) is ErrorCode.NONE
    moving = cluster.partition()
    assert moving.replicas == (4, 1, 2)
    assert (moving.adding, moving.removing) == ((4,), (2,))
    assert moving.leader_epoch == 1


@pytest.mark.parametrize("target", [(), (5, 1)], ids=["taken back", "redirected"])
def test_a_reassignment_continues_with_new_replicas_in_sync(
    target: tuple[int, ...],
) -> None:
    cluster = Cluster(1, 2, 3, 4, 5)
    cluster.create((1, 2), min_insync_replicas="2")
    move(cluster, 3, 4)
    cluster.alter(1, 2, 3)
    for broker in (1, 2):
        cluster.crash(broker)
    assert cluster.partition().isr == (3,)
    if target:
        cluster.start(1)
    assert move(cluster, *target) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(
    ("replicas", "key", "error"),
    [
        pytest.param((1, 9), KEY, ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="unknown broker"),
        pytest.param((1, 1), KEY, ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="doubled"),
        pytest.param((), KEY, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, id="nothing to take back"),
        pytest.param((1,), UNKNOWN, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="unknown"),
        pytest.param((1, 2), KEY, ErrorCode.NONE, id="there already"),
    ],
)
def test_refused_reassignments(
    replicas: tuple[int, ...], key: PartitionKey, error: ErrorCode
) -> None:
    cluster = Cluster(1, 2)
    cluster.create((1, 2))
    before = cluster.partition()
    assert move(cluster, *replicas, key=key) is error
    assert cluster.partition() == before


def test_the_preferred_replica_is_elected_on_request() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((2, 3), (3, 2))
    cluster.restart(2, clean=True)
    assert cluster.partition().leader == 3
    preferred = ElectionType.PREFERRED
    assert elect(cluster, preferred, KEY) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    cluster.alter(2, 3)
    second = PartitionKey(TOPIC, 1)
    assert elect(cluster, preferred) == [ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.NONE]
    assert cluster.partition().leader == 2
    assert cluster.leader.image.partitions[second].leader == 3
    assert elect(cluster, preferred, UNKNOWN) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_an_unclean_election_on_request() -> None:
    cluster = Cluster(1, 2)
    cluster.create((2, 1), min_insync_replicas="2")
    unclean = ElectionType.UNCLEAN
    assert elect(cluster, unclean, KEY) == [ErrorCode.ELECTION_NOT_NEEDED]
    cluster.alter(2)
    cluster.restart(1)
    cluster.crash(2)
    assert elect(cluster, unclean, KEY) == [ErrorCode.NONE]
    assert cluster.partition().leader == 1
    assert cluster.partition().unclean_election is not None


def test_no_election_without_a_living_replica() -> None:
    cluster = Cluster(1, 2)
    cluster.create((2,))
    cluster.crash(2)
    assert elect(cluster, ElectionType.UNCLEAN, KEY) == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]


def test_preferred_leaders_are_elected_automatically() -> None:
    cluster = Cluster(1, 2, 3, settings=ControllerSettings(rebalance_interval_ms=20_000))
    cluster.create((2, 3), (3, 2))
    cluster.restart(2, clean=True)
    cluster.alter(2, 3)
    assert cluster.partition().leader == 3
    cluster.tick(21_000)
    assert cluster.partition().leader == 2
    sent = [e for e in cluster.leader.seen if isinstance(e, StoreTransaction)]
    cluster.tick(21_000)
    assert [e for e in cluster.leader.seen if isinstance(e, StoreTransaction)] == sent


def test_only_requests_about_partitions_can_be_narrowed() -> None:
    with pytest.raises(TypeError):
        narrowed(on.ListReassignmentsReceived(1), [])
