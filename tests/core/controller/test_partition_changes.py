"""AlterPartition: each check, its error, and their order."""

from dataclasses import replace

import pytest

from tidelog.core.controller.election import ElectionRules
from tidelog.core.controller.events import IsrMember, IsrProposal
from tidelog.core.controller.metadata.registrations import (
    BrokerRegistration,
    LeaderRecovery,
    PartitionKey,
    PartitionRegistration,
)
from tidelog.core.controller.partition_changes import (
    Alteration,
    alter_partition,
    check_sender,
    replace_leader,
)
from tidelog.core.errors import ErrorCode

KEY = PartitionKey(bytes(16), 0)
PARTITION = PartitionRegistration(*KEY, (1, 2, 3), (1, 2), 1, leader_epoch=5, partition_epoch=9)
RECOVERING = replace(PARTITION, isr=(1,), recovery=LeaderRecovery.RECOVERING)
BROKERS = {n: BrokerRegistration(n, 10 * n, fenced=False, admitted_epoch=10 * n) for n in (1, 2, 3)}
RULES = ElectionRules(frozenset({1, 2, 3}), min_insync_replicas=2)


def propose(
    *isr: int | IsrMember,
    leader_epoch: int = 5,
    partition_epoch: int = 9,
    recovery: LeaderRecovery = LeaderRecovery.RECOVERED,
) -> IsrProposal:
    members = tuple(m if isinstance(m, IsrMember) else IsrMember(m, 10 * m) for m in isr)
    return IsrProposal(KEY, leader_epoch, partition_epoch, members, recovery)


def alter(
    proposal: IsrProposal,
    partition: PartitionRegistration | None = PARTITION,
    sender: int = 1,
    brokers: dict[int, BrokerRegistration] = BROKERS,
) -> Alteration:
    active = frozenset(b.id for b in brokers.values() if b.active)
    return alter_partition(partition, proposal, sender, brokers, replace(RULES, active=active))


def but(broker: int, **changes: object) -> dict[int, BrokerRegistration]:
    return {**BROKERS, broker: replace(BROKERS[broker], **changes)}  # type: ignore[arg-type]


OLD, NEW = 4, 6
R = LeaderRecovery.RECOVERING


@pytest.mark.parametrize(
    ("alteration", "error"),
    [
        pytest.param(
            alter(propose(1, leader_epoch=NEW), None),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            id="unknown partition, first of all",
        ),
        pytest.param(
            alter(propose(1, 2, 3, leader_epoch=NEW), sender=2),
            ErrorCode.NOT_CONTROLLER,
            id="newer leader epoch, before the sender",
        ),
        pytest.param(
            alter(propose(1, 2, 3, leader_epoch=OLD, partition_epoch=10)),
            ErrorCode.NOT_CONTROLLER,
            id="newer partition epoch, before an older leader epoch",
        ),
        pytest.param(
            alter(propose(1, 2, 3, leader_epoch=OLD), sender=2),
            ErrorCode.FENCED_LEADER_EPOCH,
            id="older leader epoch, before the sender",
        ),
        pytest.param(
            alter(propose(1, 2, 3, partition_epoch=8), sender=2),
            ErrorCode.INVALID_REQUEST,
            id="sender does not lead, before an older partition epoch",
        ),
        pytest.param(
            alter(propose(1, 9, partition_epoch=8)),
            ErrorCode.INVALID_UPDATE_VERSION,
            id="older partition epoch, before the ISR",
        ),
        pytest.param(alter(propose(1, 9)), ErrorCode.INVALID_REQUEST, id="not a replica"),
        pytest.param(alter(propose(2, 3)), ErrorCode.INVALID_REQUEST, id="without the leader"),
        pytest.param(alter(propose()), ErrorCode.INVALID_REQUEST, id="empty"),
        pytest.param(alter(propose(1, 2, 2)), ErrorCode.INVALID_REQUEST, id="doubled"),
        pytest.param(
            alter(propose(1, 2, recovery=R), RECOVERING, brokers=but(2, fenced=True)),
            ErrorCode.INVALID_REQUEST,
            id="recovering with two, before eligibility",
        ),
        pytest.param(
            alter(propose(1, recovery=R)), ErrorCode.INVALID_REQUEST, id="back to recovering"
        ),
        pytest.param(
            alter(propose(1, 2, 3), brokers={1: BROKERS[1], 2: BROKERS[2]}),
            ErrorCode.INELIGIBLE_REPLICA,
            id="member not registered",
        ),
        pytest.param(
            alter(propose(1, 2, 3), brokers=but(3, shutting_down=True)),
            ErrorCode.INELIGIBLE_REPLICA,
            id="KAFKA-14140 member in controlled shutdown",
        ),
        pytest.param(
            alter(propose(1, 2, 3), brokers=but(3, fenced=True)),
            ErrorCode.INELIGIBLE_REPLICA,
            id="KAFKA-13916 member fenced",
        ),
        pytest.param(
            alter(propose(1, 2, IsrMember(3, 29))),
            ErrorCode.INELIGIBLE_REPLICA,
            id="KAFKA-14139 member of an older incarnation",
        ),
        pytest.param(
            alter(propose(1, 2, 3), brokers=but(3, epoch=31, admitted_epoch=31)),
            ErrorCode.INELIGIBLE_REPLICA,
            id="KAFKA-14617 member rebooted since the leader heard it",
        ),
    ],
)
def test_refused_isr_changes(alteration: Alteration, error: ErrorCode) -> None:
    assert alteration == Alteration(error, None)


@pytest.mark.parametrize(
    ("alteration", "isr", "elr"),
    [
        pytest.param(alter(propose(1, 2, 3)), (1, 2, 3), (), id="expand"),
        pytest.param(alter(propose(1)), (1,), (2,), id="shrink"),
        pytest.param(alter(propose(1, 2, IsrMember(3))), (1, 2, 3), (), id="epoch not known"),
        pytest.param(alter(propose(3, 1)), (1, 3), (), id="kept in assignment order"),
    ],
)
def test_accepted_isr_changes(
    alteration: Alteration, isr: tuple[int, ...], elr: tuple[int, ...]
) -> None:
    assert alteration.error is ErrorCode.NONE
    assert alteration.changed is not None
    assert (alteration.changed.isr, alteration.changed.elr) == (isr, elr)
    assert alteration.changed.leader_epoch == 5
    assert alteration.changed.partition_epoch == 10


def test_a_proposal_of_the_current_state_changes_nothing() -> None:
    assert alter(propose(2, 1)) == Alteration(ErrorCode.NONE, None)


def test_a_leader_may_stay_in_recovery() -> None:
    assert alter(propose(1, recovery=R), RECOVERING) == Alteration(ErrorCode.NONE, None)


def test_a_leader_recovers_with_its_next_proposal() -> None:
    changed = alter(propose(1, 2), RECOVERING).changed
    assert changed is not None
    assert changed.recovery is LeaderRecovery.RECOVERED


def test_completing_a_move_away_from_the_sender_elects_another() -> None:
    moving = replace(PARTITION, replicas=(2, 3, 1), isr=(1, 2), adding=(3,), removing=(1,))
    done = alter(propose(1, 2, 3), moving)
    assert done.error is ErrorCode.NEW_LEADER_ELECTED
    assert done.changed is not None
    assert (done.changed.leader, done.changed.leader_epoch) == (2, 6)
    assert done.changed.isr == done.changed.replicas == (2, 3)


def test_completing_a_move_that_keeps_the_sender_raises_its_epoch() -> None:
    moving = replace(PARTITION, replicas=(1, 3, 2), adding=(3,), removing=(2,))
    done = alter(propose(1, 2, 3), moving)
    assert done.error is ErrorCode.NONE
    assert done.changed is not None
    assert (done.changed.leader, done.changed.leader_epoch) == (1, 6)


@pytest.mark.parametrize(
    ("broker", "epoch", "error"),
    [
        (1, 10, ErrorCode.NONE),
        (1, 9, ErrorCode.STALE_BROKER_EPOCH),
        (1, 11, ErrorCode.STALE_BROKER_EPOCH),
        (4, 40, ErrorCode.STALE_BROKER_EPOCH),
    ],
)
def test_sender_of_an_isr_change_is_checked(broker: int, epoch: int, error: ErrorCode) -> None:
    assert check_sender(broker, epoch, BROKERS) is error


# --- a follower reports that its leader lacks committed records (ADR 40) ---------------------

ALL = frozenset({1, 2, 3})


def replaced(
    reporter: int, *, isr: tuple[int, ...], elr: tuple[int, ...] = (), active: frozenset[int] = ALL
) -> tuple[int | None, tuple[int, ...], tuple[int, ...], int]:
    """Leader, ISR, ELR and leader epoch after a report about broker 1."""
    partition = replace(PARTITION, isr=isr, elr=elr)
    changed = replace_leader(partition, reporter, ElectionRules(active, 2), leader_epoch=5)
    assert changed.unclean_election is None
    return changed.leader, changed.isr, changed.elr, changed.leader_epoch


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(
            replaced(3, isr=(1, 2, 3)), (3, (2, 3), (), 6), id="the reporter, if it is in sync"
        ),
        pytest.param(replaced(3, isr=(1, 2)), (2, (2,), (), 6), id="else another replica in sync"),
        pytest.param(
            replaced(3, isr=(1,), elr=(2, 3)), (3, (3,), (2,), 6), id="else one of the ELR"
        ),
        pytest.param(
            replaced(3, isr=(1,), elr=(2,)), (2, (2,), (), 6), id="of the ELR, not the reporter"
        ),
        pytest.param(replaced(3, isr=(1,)), (1, (1,), (), 5), id="nobody else is in sync"),
        pytest.param(
            replaced(3, isr=(1,), elr=(2,), active=frozenset({1, 3})),
            (1, (1,), (2,), 5),
            id="nobody else in the ELR is active",
        ),
        pytest.param(replaced(1, isr=(1, 2)), (1, (1, 2), (), 5), id="a leader about itself"),
        pytest.param(replaced(4, isr=(1, 2)), (1, (1, 2), (), 5), id="a broker without a replica"),
    ],
)
def test_replacement_of_a_leader_that_lacks_committed_records(
    given: tuple[object, ...], expected: tuple[object, ...]
) -> None:
    assert given == expected


@pytest.mark.parametrize("leader_epoch", [4, 6])
def test_a_report_about_another_leader_epoch_changes_nothing(leader_epoch: int) -> None:
    assert replace_leader(PARTITION, 2, RULES, leader_epoch) is PARTITION


def test_a_partition_without_a_leader_has_no_leader_to_replace() -> None:
    leaderless = replace(PARTITION, leader=None, isr=(), elr=(1, 2))
    assert replace_leader(leaderless, 2, RULES, leaderless.leader_epoch) is leaderless
