"""Elections: the next leader, ISR, ELR and epochs."""

from dataclasses import replace

import pytest

from tidelog.core.controller.election import (
    ElectionRules,
    Target,
    UncleanRecovery,
    next_registration,
)
from tidelog.core.controller.events import ElectionType, LogState
from tidelog.core.controller.metadata.registrations import (
    LeaderRecovery,
    PartitionRegistration,
    UncleanElection,
)

TOPIC = bytes(16)


def partition(
    isr: tuple[int, ...] = (1, 2, 3),
    leader: int | None = 1,
    elr: tuple[int, ...] = (),
    last: tuple[int, ...] = (),
    replicas: tuple[int, ...] = (1, 2, 3),
) -> PartitionRegistration:
    return PartitionRegistration(
        TOPIC, 0, replicas, isr, leader, 5, 9, elr=elr, last_known_elr=last
    )


def rules(
    *active: int,
    min_isr: int = 1,
    recovery: UncleanRecovery = UncleanRecovery.BALANCED,
    logs: dict[int, LogState] | None = None,
    waited: bool = False,
) -> ElectionRules:
    """Without `logs` every active broker has reported the same log."""
    if logs is None:
        logs = dict.fromkeys(active, LogState(4, 100))
    return ElectionRules(frozenset(active), min_isr, recovery, logs, waited)


AGGRESSIVE, NONE = UncleanRecovery.AGGRESSIVE, UncleanRecovery.NONE
OFFLINE_LAST_1 = partition((), None, (), (1,))


@pytest.mark.parametrize(
    ("before", "target", "given", "leader"),
    [
        pytest.param(partition(), Target(), rules(1, 2, 3), 1, id="leader stays"),
        pytest.param(
            partition(leader=2), Target(), rules(1, 2, 3), 2, id="valid leader beats assignment"
        ),
        pytest.param(partition(), Target(), rules(2, 3), 2, id="first valid in assignment order"),
        pytest.param(
            partition((2, 3, 1), 1, replicas=(3, 2, 1)), Target(), rules(2, 3), 3, id="its order"
        ),
        pytest.param(partition((1, 3)), Target(), rules(2, 3), 3, id="not from outside the ISR"),
        pytest.param(partition((1,)), Target(), rules(2, 3), None, id="nobody valid"),
        pytest.param(
            partition(leader=2),
            Target(election=ElectionType.PREFERRED),
            rules(1, 2, 3),
            1,
            id="preferred beats leader",
        ),
        pytest.param(
            partition((2, 3), 2),
            Target(election=ElectionType.PREFERRED),
            rules(1, 2, 3),
            2,
            id="preferred not in sync, leader stays",
        ),
        pytest.param(
            partition((1, 3), 3),
            Target(election=ElectionType.PREFERRED),
            rules(2, 3),
            3,
            id="preferred not alive, leader stays",
        ),
        pytest.param(
            partition(), Target(candidate=3), rules(1, 2, 3), 3, id="candidate beats leader"
        ),
        pytest.param(
            partition((1, 2)), Target(candidate=3), rules(1, 2, 3), 1, id="invalid candidate"
        ),
        pytest.param(
            partition((), None, (2, 3)), Target(), rules(2, 3), 2, id="from ELR when ISR is empty"
        ),
        pytest.param(
            partition((1,), None, (2,)), Target(), rules(2), None, id="not from ELR beside an ISR"
        ),
        pytest.param(OFFLINE_LAST_1, Target(), rules(1, 2), 1, id="last known leader returns"),
        pytest.param(
            OFFLINE_LAST_1, Target(), rules(2, 3), None, id="KAFKA-19522 not while it is fenced"
        ),
        pytest.param(OFFLINE_LAST_1, Target(), rules(1, recovery=NONE), None, id="not under none"),
        pytest.param(
            partition((), None, (), (1, 2)), Target(), rules(1, 2), 1, id="first of equal logs"
        ),
        pytest.param(
            partition((), None, (3,), (1,)), Target(), rules(1), None, id="not beside an ELR"
        ),
        pytest.param(
            partition((3,), None),
            Target(),
            rules(1, 2, recovery=AGGRESSIVE),
            1,
            id="unclean if allowed",
        ),
        pytest.param(
            partition((3,), None),
            Target(election=ElectionType.UNCLEAN),
            rules(2),
            2,
            id="unclean on request",
        ),
        pytest.param(
            partition((3,), None),
            Target(election=ElectionType.UNCLEAN),
            rules(4),
            None,
            id="unclean, but no replica is alive",
        ),
        pytest.param(
            partition((2,), None),
            Target(election=ElectionType.UNCLEAN),
            rules(1, 2),
            2,
            id="clean where it is possible",
        ),
    ],
)
def test_elected_leader(
    before: PartitionRegistration, target: Target, given: ElectionRules, leader: int | None
) -> None:
    assert next_registration(before, target, given).leader == leader


@pytest.mark.parametrize(
    ("before", "target", "given", "isr", "elr", "last"),
    [
        pytest.param(
            partition(), Target(isr=(1, 2)), rules(1, 2, 3, min_isr=2), (1, 2), (), (),
            id="at min ISR nobody is eligible",
        ),
        pytest.param(
            partition((1, 2)), Target(isr=(1,)), rules(1, 2, min_isr=2), (1,), (2,), (),
            id="below it who left is",
        ),
        pytest.param(
            partition((1,), elr=(2,)), Target(isr=(1, 2)), rules(1, 2, min_isr=2), (1, 2), (), (),
            id="back at min ISR it is cleared",
        ),
        pytest.param(
            partition((1,), elr=(2,)), Target(isr=(1, 3)), rules(1, 3, min_isr=3), (1, 3), (2,), (),
            id="still below it is kept",
        ),
        pytest.param(
            partition((1,), elr=(2,)), Target(isr=(1, 2)), rules(1, 2, min_isr=3), (1, 2), (), (),
            id="who joins the ISR leaves the ELR",
        ),
        pytest.param(
            partition((1, 2)), Target(isr=()), rules(min_isr=2), (), (1, 2), (),
            id="an ISR may become empty",
        ),
        pytest.param(
            partition((1,), elr=(2,)),
            Target(isr=(), unclean_shutdown=frozenset({1})),
            rules(min_isr=2), (), (2,), (1,),
            id="KAFKA-18635 unclean shutdown leaves ISR and ELR",
        ),
        pytest.param(
            partition((1,), elr=(2,)),
            Target(unclean_shutdown=frozenset({2})),
            rules(1, min_isr=2), (1,), (), (2,),
            id="unclean shutdown of an ELR member",
        ),
        pytest.param(
            partition((), None, (2, 3), (1,)), Target(), rules(2, min_isr=2), (2,), (3,), (1,),
            id="elected from ELR: alone in the ISR",
        ),
        pytest.param(
            partition((), None, (2, 3), (1,)), Target(), rules(2, min_isr=1), (2,), (), (),
            id="elected from ELR and able to commit alone: no ELR",
        ),
        pytest.param(
            partition((), None, (2,), (1,)), Target(), rules(3, min_isr=2), (), (2,), (1,),
            id="nothing to elect: it is kept",
        ),
        pytest.param(
            partition((1,), elr=(2, 3)), Target(isr=()), rules(3, min_isr=2, recovery=AGGRESSIVE),
            (3,), (1, 2), (), id="an ELR member is no unclean choice",
        ),
        pytest.param(
            partition((1,), elr=(2,)), Target(isr=()), rules(3, min_isr=2, recovery=AGGRESSIVE),
            (3,), (), (), id="unclean election clears both",
        ),
        pytest.param(
            partition((1, 2, 3)), Target(isr=()), rules(min_isr=5), (), (1, 2, 3), (),
            id="min ISR above the replication factor",
        ),
        pytest.param(
            partition((1, 2, 3)), Target(isr=(3, 2, 1)), rules(1, 2, 3, min_isr=5), (1, 2, 3), (),
            (), id="effective min ISR is the replication factor; order is the assignment's",
        ),
        pytest.param(
            partition((1, 2), elr=(3,)),
            Target(isr=(2,), unclean_shutdown=frozenset({1})),
            rules(2, min_isr=3), (2,), (3,), (1,),
            id="last known ELR holds replicas that were eligible",
        ),
        pytest.param(
            partition((2,), 2, (3,), (1,)), Target(isr=(1, 2)),
            rules(1, 2, min_isr=3), (1, 2), (3,), (),
            id="minus members of the ISR",
        ),
    ],
)  # fmt: skip
def test_eligible_leader_replicas(
    before: PartitionRegistration,
    target: Target,
    given: ElectionRules,
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    last: tuple[int, ...],
) -> None:
    after = next_registration(before, target, given)
    assert (after.isr, after.elr, after.last_known_elr) == (isr, elr, last)


@pytest.mark.parametrize(
    ("target", "given", "leader_epoch", "partition_epoch"),
    [
        pytest.param(Target(), rules(1, 2, 3), 5, 9, id="no change"),
        pytest.param(Target(isr=(1, 2)), rules(1, 2, 3), 5, 10, id="KAFKA-15021 shrink"),
        pytest.param(Target(), rules(2, 3), 6, 10, id="new leader"),
        pytest.param(Target(isr=()), rules(), 6, 10, id="no leader"),
        pytest.param(
            Target(replicas=(1, 2, 3, 4), adding=(4,)), rules(1, 2, 3, 4), 5, 10, id="adding"
        ),
        pytest.param(
            Target(replicas=(1, 2, 3), removing=(3,)), rules(1, 2, 3), 6, 10, id="replica removed"
        ),
        pytest.param(Target(replicas=(3, 2, 1)), rules(1, 2, 3), 5, 10, id="other order only"),
    ],
)
def test_epochs_after_an_election(
    target: Target, given: ElectionRules, leader_epoch: int, partition_epoch: int
) -> None:
    after = next_registration(partition(), target, given)
    assert (after.leader_epoch, after.partition_epoch) == (leader_epoch, partition_epoch)


def test_nothing_to_change_is_the_same_object() -> None:
    before = partition()
    assert next_registration(before, Target(isr=(3, 2, 1)), rules(1, 2, 3)) is before


def test_an_unclean_election_is_recorded() -> None:
    before = partition((1,), 1, (2,))
    after = next_registration(before, Target(isr=()), rules(3, min_isr=2, recovery=AGGRESSIVE))
    assert after.unclean_election == UncleanElection(3, 6, 1, (1,), (2,), False)
    assert after.recovery is LeaderRecovery.RECOVERING
    assert after.isr == (3,)
    later = next_registration(
        after, Target(isr=(3,), recovery=LeaderRecovery.RECOVERED), rules(3, min_isr=2)
    )
    assert later.recovery is LeaderRecovery.RECOVERED
    assert later.unclean_election == after.unclean_election


def test_recovery_by_the_controller_is_recorded_as_such() -> None:
    after = next_registration(OFFLINE_LAST_1, Target(), rules(1))
    assert after.unclean_election == UncleanElection(1, 6, None, (), (), True)


@pytest.mark.parametrize(
    ("isr", "min_isr", "done"),
    [
        pytest.param((1, 2, 3), 2, False, id="4 is not in sync yet"),
        pytest.param((1, 2, 4), 2, True, id="4 is, 3 goes"),
        pytest.param((3, 4), 2, False, id="too few would remain"),
        pytest.param((1, 4), 2, True, id="a target replica may be away"),
    ],
)
def test_a_reassignment_completes_when_all_added_are_in_sync(
    isr: tuple[int, ...], min_isr: int, done: bool
) -> None:
    moving = replace(
        partition((1, 2, 3), replicas=(1, 2, 4, 3)), adding=(4,), removing=(3,), leader=isr[0]
    )
    after = next_registration(moving, Target(isr=isr), rules(1, 2, 3, 4, min_isr=min_isr))
    assert after.reassigning is not done
    if done:
        assert after.replicas == (1, 2, 4)
        assert 3 not in after.isr + after.elr
        assert after.leader_epoch == 6


def test_a_removed_leader_hands_over() -> None:
    moving = replace(partition((1, 2), replicas=(2, 3, 1)), adding=(3,), removing=(1,))
    after = next_registration(moving, Target(isr=(1, 2, 3)), rules(1, 2, 3))
    assert (after.leader, after.isr, after.replicas) == (2, (2, 3), (2, 3))
