"""The plan of faults, and the waits it causes."""

from collections import Counter
from itertools import pairwise

import pytest

from tidelog.apps.verify.journals import Ack, Outcome
from tidelog.apps.verify.nemesis.failover import (
    Injected,
    failovers,
    first_acks,
    longest_pauses,
    summarize,
)
from tidelog.apps.verify.nemesis.plan import (
    DEFAULT_KINDS,
    DEFAULT_MACHINE_KINDS,
    KINDS,
    QUIET_S,
    QUORUM_S,
    SESSION_S,
    Fault,
    choose,
    choose_majority,
    make_plan,
)


def test_a_seed_gives_the_same_plan_again() -> None:
    assert make_plan(7, 120, DEFAULT_KINDS) == make_plan(7, 120, DEFAULT_KINDS)
    assert make_plan(7, 120, DEFAULT_KINDS) != make_plan(8, 120, DEFAULT_KINDS)


@pytest.mark.parametrize("seed", range(50))
def test_two_minutes_contain_ten_kills_and_every_other_kind(seed: int) -> None:
    plan = make_plan(seed, 120, DEFAULT_KINDS)
    kinds = Counter(fault.kind for fault in plan)
    assert kinds["kill"] >= 10
    assert set(kinds) == set(DEFAULT_KINDS)
    for fault, after in pairwise(plan):
        assert after.at_s >= fault.at_s + fault.duration_s + 0.2, "one at a time, with a gap"
    assert plan[-1].at_s + plan[-1].duration_s <= 120 - QUIET_S


def test_pauses_and_cuts_are_short_or_longer_than_the_session() -> None:
    for kind in ("pause", "isolate"):
        durations = [f.duration_s for s in range(20) for f in make_plan(s, 120, (kind,))]
        assert any(duration > SESSION_S for duration in durations)
        assert any(duration < SESSION_S for duration in durations)


@pytest.mark.parametrize("seed", range(20))
def test_five_minutes_contain_every_kind_of_machine_fault(seed: int) -> None:
    plan = make_plan(seed, 300, DEFAULT_MACHINE_KINDS)
    assert {fault.kind for fault in plan} == set(DEFAULT_MACHINE_KINDS)
    assert {fault.duration_s for fault in plan if fault.kind == "etcd-quorum"} == {QUORUM_S}


def test_plan_with_one_kind_no_kind_or_no_time() -> None:
    assert {fault.kind for fault in make_plan(1, 60, ("restart",))} == {"restart"}
    assert {fault.kind for fault in make_plan(1, 60, ("kill",))} == {"kill"}
    assert make_plan(1, 60, ()) == []
    assert make_plan(1, QUIET_S, ("kill",)) == []
    assert len(make_plan(1, 8, ("kill",))) >= 1


def fault(kind: str, role: str, draw: int = 0) -> Fault:
    return Fault(1.0, kind, role, draw, 1.0, 0.5)


def test_role_is_resolved_to_a_broker() -> None:
    leaders = {0: 3, 1: 1, 2: 3}
    assert choose(fault("kill", "leader", 0), leaders, 2, [1, 2, 3]) == [3]
    assert choose(fault("kill", "leader", 4), leaders, 2, [1, 2, 3]) == [1]
    assert choose(fault("pause", "controller"), leaders, 2, [1, 2, 3]) == [2]
    assert choose(fault("kill", "any", 5), leaders, 2, [1, 2, 3]) == [3]


def test_vacant_role_is_resolved_to_any_broker() -> None:
    assert choose(fault("kill", "leader", 1), {0: -1}, -1, [1, 2, 3]) == [2]
    assert choose(fault("kill", "controller", 1), {}, -1, [1, 2, 3]) == [2]


def test_some_kinds_affect_several_brokers() -> None:
    leaders = {0: 3, 1: 1, 2: 3}
    assert choose(fault("rolling", "leader"), leaders, 2, [3, 1, 2]) == [1, 2, 3]
    assert choose(fault("kill-all", "leader"), leaders, 2, [3, 1, 2]) == [1, 2, 3]
    for draw in range(6):
        two = choose(fault("kill-two", "leader", draw), leaders, 2, [1, 2, 3])
        assert len(set(two)) == 2
    assert choose(fault("kill-two", "any"), {}, -1, [1]) == [1]
    assert choose(fault("kill-ahead", "any", 1), leaders, 2, [1, 2, 3]) == [1], "always a leader"
    assert set(DEFAULT_KINDS) < set(KINDS)


def test_the_draw_selects_the_majority_of_etcd_that_is_lost() -> None:
    lost = [choose_majority(fault("etcd-quorum", "any", draw), [3, 1, 2]) for draw in range(4)]
    assert lost == [[1, 2], [1, 3], [2, 3], [1, 2]]
    assert len(choose_majority(fault("etcd-quorum", "any"), range(1, 6))) == 3
    draws = {f.draw for s in range(20) for f in make_plan(s, 60, ("etcd-quorum",))}
    assert {draw % 3 for draw in draws} == {0, 1, 2}


# -- how long writes stopped


def test_only_records_sent_after_the_fault_count() -> None:
    acks = [
        Ack(0, 0, 900, 100),
        Ack(1, 1, 1050, 100),  # sent before, acknowledged after
        Ack(2, Outcome.UNKNOWN, 1200, 10),
        Ack(3, Outcome.REFUSED, 1201, 10),
        Ack(4, 2, 1400, 300),
        Ack(5, 3, 1401, 1),
    ]
    assert first_acks([1000], [acks]) == [1400]
    assert first_acks([1000, 1100, 1300, 1400], [acks]) == [1400, 1400, 1401, 1401]
    assert first_acks([2000], [acks]) == [None]
    assert first_acks([], [acks]) == []


def test_the_earliest_of_several_producers_counts() -> None:
    slow = [Ack(0, 0, 1600, 10)]
    fast = [Ack(0, Outcome.NO_OFFSET, 1300, 10)]
    for order in ([slow, fast], [fast, slow]):
        assert first_acks([1000, 1500], order) == [1300, 1600]


def injected(begin: int, *led: int) -> Injected:
    return Injected("kill", "leader", (1,), begin, begin + 100, begin + 200, led)


def test_longest_pause_of_a_fault_ends_at_the_next_fault_at_most() -> None:
    faults = [injected(1000, 0), injected(3000, 0)]
    often = [Ack(0, 0, at, 1) for at in (900, 1100, 1150, 5000)]
    lost = [Ack(0, Outcome.UNKNOWN, 2000, 1)]
    assert longest_pauses(faults, [often, lost]) == [3000 - 1150, 5000 - 3000]
    assert longest_pauses(faults, [often, [Ack(0, 1, 3100, 1)]]) == [3000 - 1150, 5000 - 3100]
    assert longest_pauses([], [often]) == []


def test_a_pause_after_recovery_is_not_counted() -> None:
    acks = [Ack(0, 0, at, 1) for at in (990, 1050, 1190, 1250, 9000)]
    assert longest_pauses([injected(1000, 0)], [acks]) == [1190 - 1050]


def test_a_partition_waits_only_for_faults_of_its_leader() -> None:
    faults = [injected(1000, 0, 1), injected(30000, 1), injected(50000, 0)]
    acks = [Ack(0, 0, 5000, 10), Ack(1, 1, 31000, 10)]
    waits = failovers(faults, 0, [acks])
    assert [(wait.fault, wait.seconds) for wait in waits] == [(0, 0.4), (2, None)]
    assert [w.seconds for w in failovers(faults, 1, [acks])] == [0.4, 0.1]


def test_a_record_sent_before_the_fault_took_effect_does_not_count() -> None:
    fault = injected(1000, 0)._replace(effect=1200)
    acks = [Ack(0, 0, 1150, 50), Ack(1, 1, 1250, 100), Ack(2, 2, 6000, 10)]
    [wait] = failovers([fault], 0, [acks])
    assert wait.seconds == 0.5  # counted from the begin


def test_summary_of_failover_times() -> None:
    assert summarize([0.1, 0.4, None, 0.2]) == (4, 0.2, 0.4, 1)
    assert summarize([None]) == (1, None, None, 1)
    assert summarize([]) == (0, None, None, 0)
