"""Which replica leads when ISR and ELR are empty: the one with the most records (KIP-966)."""

import pytest

from tidelog.core.controller.election import (
    ElectionRules,
    Target,
    UncleanRecovery,
    next_registration,
)
from tidelog.core.controller.events import ElectionType, LogState
from tidelog.core.controller.metadata.registrations import PartitionRegistration
from tidelog.core.controller.partition_changes import damage_log

NONE, BALANCED, AGGRESSIVE = UncleanRecovery
LONG, SHORT, OLD = LogState(4, 100), LogState(4, 60), LogState(3, 500)
CUT = LogState(4, 100, cut=True)


def elect(
    logs: dict[int, LogState],
    active: tuple[int, ...] = (1, 2, 3),
    known: tuple[int, ...] = (1, 2, 3),
    recovery: UncleanRecovery = BALANCED,
    waited: bool = False,
    lost: tuple[int, ...] = (),
    election: ElectionType = ElectionType.ONLINE,
) -> int | None:
    """Elect a leader of replicas 1, 2 and 3 without ISR and ELR."""
    before = PartitionRegistration(
        bytes(16), 0, (1, 2, 3), (), None, 5, 9, last_known_elr=known, lost=lost
    )
    rules = ElectionRules(frozenset(active), 2, recovery, logs, waited)
    after = next_registration(before, Target(election=election), rules)
    if after.leader is not None:
        assert after.isr == (after.leader,)
        assert after.unclean_election is not None
        by_itself = election is ElectionType.ONLINE and recovery is BALANCED
        assert after.unclean_election.recovered is by_itself
    return after.leader


def test_the_longest_log_leads() -> None:
    assert elect({1: SHORT, 2: LONG, 3: SHORT}) == 2


def test_a_newer_leader_epoch_beats_a_longer_log() -> None:
    assert elect({1: OLD, 2: OLD, 3: SHORT}) == 3


def test_a_newer_epoch_out_of_sync_does_not_beat_a_log_in_sync() -> None:
    """Seed 51329: later leaders committed older records, and wrote none of their own."""
    logs = {1: OLD, 2: OLD, 3: SHORT}
    assert elect(logs, known=(1, 2)) == 1
    assert elect(logs, known=(1, 2), active=(1, 2)) == 1, "it waits for no log that can't win"
    assert elect({1: LONG, 2: SHORT, 3: SHORT}, known=(2, 3)) == 1, "a longer log of their epoch"
    assert elect(logs, known=(1, 2), recovery=AGGRESSIVE) == 3


def test_of_equal_logs_one_that_recovery_did_not_cut_leads() -> None:
    assert elect({1: CUT, 2: LONG, 3: LONG}) == 2


def test_of_equal_logs_one_that_was_in_sync_leads() -> None:
    assert elect({1: LONG, 2: LONG, 3: LONG}, known=(3,)) == 3


@pytest.mark.parametrize("recovery", [BALANCED, AGGRESSIVE])
def test_the_election_waits_for_the_report_of_an_active_replica(recovery: UncleanRecovery) -> None:
    logs = {1: SHORT, 2: LONG}
    assert elect(logs, recovery=recovery) is None
    assert elect(logs, recovery=recovery, waited=True) == 2


@pytest.mark.parametrize("recovery", [BALANCED, AGGRESSIVE])
def test_the_election_waits_for_a_longer_log_of_a_fenced_broker(recovery: UncleanRecovery) -> None:
    """KAFKA-19522: a fenced broker never leads, but it reports before it is unfenced."""
    logs = {1: SHORT, 2: LONG, 3: SHORT}
    assert elect(logs, active=(1, 3), recovery=recovery) is None
    assert elect(logs, active=(1, 3), recovery=recovery, waited=True) == 1


def test_balanced_waits_for_replicas_that_were_in_sync_and_aggressive_does_not() -> None:
    logs = {1: LONG, 2: SHORT}
    assert elect(logs, active=(1, 2)) is None
    assert elect(logs, active=(1, 2), waited=True) == 1
    assert elect(logs, active=(1, 2), recovery=AGGRESSIVE) == 1
    assert elect(logs, active=(1, 2), known=(1,)) == 1, "3 was not in sync"


def test_balanced_never_elects_a_replica_that_was_out_of_sync_alone() -> None:
    assert elect({3: LONG}, active=(3,), known=(1, 2), waited=True) is None
    assert elect({3: LONG}, active=(3,), known=(1, 2), recovery=AGGRESSIVE) == 3
    damaged = {1: LogState(4, 10, cut=True), 2: LONG, 3: SHORT}
    assert elect(damaged, known=(1,), waited=True) is None, "1 alone had all committed records"
    assert elect(damaged, known=(1,), recovery=AGGRESSIVE) == 2


def test_balanced_elects_a_cut_log_only_when_every_replica_has_reported() -> None:
    assert elect({1: CUT}, active=(1,), known=(1,), waited=True) is None
    assert elect({1: CUT, 2: SHORT}, active=(1, 2), known=(1,), waited=True) is None
    assert elect({1: CUT, 2: SHORT, 3: SHORT}, known=(1,)) == 1


def test_a_log_as_long_as_a_cut_one_leads_in_its_place() -> None:
    """Found by the simulator: only a checkpoint of 1 was damaged, and no leader was elected."""
    assert elect({1: CUT, 2: LONG, 3: SHORT}, known=(1,)) == 2


def test_damage_raises_the_leader_epoch_though_the_leader_stays() -> None:
    """The damaged replica truncates: a fetch that it sent before must not count for the ISR.
    Found by the simulator."""
    before = PartitionRegistration(bytes(16), 0, (1, 2, 3), (1, 2, 3), 1, 5, 9)
    after = damage_log(before, 3, ElectionRules(frozenset({1, 2, 3}), 2))
    assert (after.leader, after.isr, after.leader_epoch) == (1, (1, 2), 6)


def test_a_replica_without_its_log_leads_only_when_all_lost_theirs() -> None:
    assert elect({2: SHORT, 3: LONG}, lost=(1,)) == 3
    assert elect({3: SHORT}, active=(1, 2, 3), lost=(1, 2)) == 3
    assert elect({3: SHORT}, known=(1, 2), lost=(1, 2), waited=True) is None
    assert elect({}, active=(1, 2), lost=(1, 2), waited=True) is None, "3 may have records"
    assert elect({}, lost=(1, 2, 3)) == 1


def test_strategy_none_waits_for_an_administrator() -> None:
    logs = {1: SHORT, 2: LONG, 3: SHORT}
    assert elect(logs, recovery=NONE, waited=True) is None
    assert elect(logs, recovery=NONE, election=ElectionType.UNCLEAN) == 2


def test_an_administrator_gets_the_longest_log_that_is_known() -> None:
    assert elect({3: SHORT}, election=ElectionType.UNCLEAN) == 3
    assert elect({}, election=ElectionType.UNCLEAN, lost=(1,)) == 2
