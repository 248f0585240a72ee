"""Elections when some replicas have lost their logs."""

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
    PartitionKey,
    PartitionRegistration,
    decode_partition,
    encode_partition,
)
from tidelog.core.controller.partition_changes import find_log, lose_log

TOPIC = bytes(16)
OFFLINE = PartitionRegistration(TOPIC, 0, (1, 2, 3), (), None, 5, 9, last_known_elr=(1,))


def rules(*active: int, min_isr: int = 1, unclean: bool = False) -> ElectionRules:
    """Every active broker has reported the same log."""
    recovery = UncleanRecovery.AGGRESSIVE if unclean else UncleanRecovery.BALANCED
    logs = dict.fromkeys(active, LogState(4, 100))
    return ElectionRules(frozenset(active), min_isr, recovery, logs)


@pytest.mark.parametrize(
    ("lost", "active", "unclean", "leader"),
    [
        pytest.param((), (1, 2, 3), False, 1, id="the last leader returns"),
        pytest.param((2,), (1, 2, 3), False, 1, id="and others' losses do not matter"),
        pytest.param((1,), (1, 2, 3), False, None, id="not without its log"),
        pytest.param((1, 2), (1, 2, 3), False, None, id="as long as one has one"),
        pytest.param((1, 2), (1, 2), False, None, id="be it away"),
        pytest.param((1, 2, 3), (1, 2, 3), False, 1, id="if all lost theirs it begins anew"),
        pytest.param((1, 2, 3), (2, 3), False, None, id="and nobody else"),
        pytest.param((1, 2), (1, 2, 3), True, 3, id="unclean takes who has a log"),
        pytest.param((1,), (1, 2, 3), True, 2, id="the first of them"),
        pytest.param((1, 2), (1, 2), True, 1, id="or anybody, if no other is alive"),
    ],
)
def test_leader_without_logs(
    lost: tuple[int, ...], active: tuple[int, ...], unclean: bool, leader: int | None
) -> None:
    before = replace(OFFLINE, lost=lost)
    after = next_registration(before, Target(), rules(*active, unclean=unclean))
    assert after.leader == leader
    if unclean:
        asked = next_registration(before, Target(election=ElectionType.UNCLEAN), rules(*active))
        assert asked.leader == leader
    if leader is None:
        assert after is before
    else:
        assert after.isr == (leader,)
        assert after.lost == (), "with somebody to follow they begin new logs"
        assert after.behind == tuple(broker for broker in lost if broker != leader)
        assert after.unclean_election is not None


def test_a_lost_log_removes_the_replica_from_isr_and_elr() -> None:
    before = PartitionRegistration(TOPIC, 0, (1, 2, 3), (1, 2), 1, 5, 9, elr=(3,))
    in_isr = lose_log(before, 2, rules(1, 2, 3, min_isr=3))
    assert (in_isr.isr, in_isr.elr, in_isr.behind, in_isr.leader) == ((1,), (3,), (2,), 1)
    in_elr = lose_log(before, 3, rules(1, 2, 3, min_isr=3))
    assert (in_elr.isr, in_elr.elr, in_elr.behind) == ((1, 2), (), (3,))
    assert in_elr.leader_epoch == before.leader_epoch
    assert in_elr.partition_epoch == before.partition_epoch + 1
    assert lose_log(in_elr, 3, rules(1, 2, 3, min_isr=3)) is in_elr, "told twice"
    assert lose_log(before, 4, rules(1, 2, 3)) is before, "not of its business"
    shrunk = next_registration(in_elr, Target(isr=(2,)), rules(2, min_isr=3))
    assert (shrunk.isr, shrunk.elr, shrunk.behind) == ((2,), (1,), (3,))


def test_a_replica_in_the_isr_again_is_not_lost() -> None:
    before = PartitionRegistration(TOPIC, 0, (1, 2, 3), (1,), 1, 5, 9, behind=(2, 3))
    after = next_registration(before, Target(isr=(1, 3)), rules(1, 2, 3))
    assert (after.isr, after.behind) == ((1, 3), (2,))
    gone = next_registration(after, Target(replicas=(1, 3)), rules(1, 2, 3))
    assert gone.behind == (), "who is no replica any more has nothing to lose"


def test_a_found_log_counts_while_there_is_no_leader() -> None:
    lost = replace(OFFLINE, lost=(1, 2))
    found = find_log(lost, 1, rules(1, 2, 3))
    assert (found.leader, found.lost, found.behind) == (1, (), (2,))
    fenced = find_log(lost, 1, rules(2, 3))
    assert (fenced.leader, fenced.lost) == (None, (2,))
    assert find_log(lost, 2, rules(1, 2, 3)) is lost, "its log may have been begun anew"
    led = replace(lost, leader=3, isr=(3,), last_known_elr=())
    assert find_log(led, 1, rules(1, 2, 3)) is led
    assert find_log(OFFLINE, 1, rules(2, 3)) is OFFLINE


def test_an_incomplete_new_log_is_better_than_none() -> None:
    before = replace(OFFLINE, lost=(1, 2), behind=(3,))
    assert next_registration(before, Target(), rules(1, 2, 3)) is before, "3 may have records"
    asked = next_registration(before, Target(election=ElectionType.UNCLEAN), rules(1, 2, 3))
    assert (asked.leader, asked.lost, asked.behind) == (3, (), (1, 2))
    full = replace(OFFLINE, last_known_elr=(), behind=(1, 3))
    assert next_registration(full, Target(), rules(1, 2, 3, unclean=True)).leader == 2
    again = lose_log(before, 3, rules(1, 2))
    assert (again.leader, again.behind) == (1, (2, 3)), "now nobody has any"


def test_a_new_log_does_not_stand_for_the_lost_one() -> None:
    """Seed 50463: brokers 1 and 2 of the ISR lost their folders. Broker 2 had begun a new, empty
    log before the controller noticed that the leader was down. Only broker 3 has records."""
    before = replace(OFFLINE, last_known_elr=(1, 2), lost=(1,), behind=(2,))
    empty = replace(rules(1, 2), logs={2: LogState(-1, 0)}, waited=True)
    assert next_registration(before, Target(), empty) is before, "broker 3 may have records"
    empty_everywhere = replace(empty, logs={2: LogState(-1, 0), 3: LogState(-1, 0)})
    assert next_registration(before, Target(), empty_everywhere).leader == 2


def test_lost_logs_are_stored() -> None:
    lost = replace(OFFLINE, lost=(1, 2), behind=(3,))
    assert decode_partition(PartitionKey(TOPIC, 0), encode_partition(lost)) == lost
    assert b"lost" not in encode_partition(OFFLINE)
