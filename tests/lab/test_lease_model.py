"""The model checker over the shipped lease: a leader that can't reach the metadata store."""

from dataclasses import replace

import pytest

from tidelog.core.replication.events import ACKS_ALL
from tidelog.lab.modelcheck.explorer import explore
from tidelog.lab.modelcheck.shipped import lease_model
from tidelog.lab.modelcheck.shipped.lease_model import LeaseBounds, LeaseModel, State
from tidelog.lab.mutants.hunt import MUTANTS, hunt
from tidelog.lab.mutants.lease_rules import RULES
from tidelog.lab.mutants.mutant import Mutant, MutatedPackage

CONFIRMED = ("Fetch(B)", "Fetch(B)")


def after(model: LeaseModel, *actions: str, isr: int = 2, unclean: bool = False) -> State:
    """Play actions from the first state with this ISR size."""
    for start in model.initial():
        if len(start[2][3]) == isr and bool(start[-1][0]) == unclean:
            state = start
            for wanted in actions:
                state = dict(model.successors(state))[wanted]
            return state
    raise AssertionError("no such first state")


@pytest.mark.parametrize(
    ("bounds", "states"),
    [
        pytest.param(LeaseBounds(replicas=2), 3_718, id="requests in one step"),
        pytest.param(LeaseBounds(2, messages=1, renewals=1), 34_056, id="a message in flight"),
        pytest.param(LeaseBounds(2, losses=1, messages=1), 37_300, id="a lost message"),
    ],
)
def test_lease_holds_in_the_whole_state_space(bounds: LeaseBounds, states: int) -> None:
    found = explore(LeaseModel(bounds), workers=1)
    assert not found.violations
    assert found.complete
    assert found.missed_goals == ()
    assert found.states == states


@pytest.mark.ci
def test_lease_of_two_followers_holds_in_the_whole_state_space() -> None:
    found = explore(LeaseModel(LeaseBounds(replicas=3)), workers=1)
    assert not found.violations
    assert found.complete
    assert found.missed_goals == ()


@pytest.mark.parametrize("mutant", RULES, ids=lambda m: m.name)
def test_checker_finds_each_condition_that_is_taken_out(mutant: Mutant) -> None:
    assert mutant.finder == "checker"
    catch = hunt(mutant)
    assert catch.found, catch.broke
    assert catch.broke in lease_model.NAMES


@pytest.mark.parametrize(
    "name",
    [
        "lone-leader-serves-without-store",
        "lease-never-ends",
        "lease-of-one-follower",
        "lease-despite-unclean-elections",
        "detached-leader-accepts-acks-1",
    ],
)
def test_a_story_fails_without_a_condition(name: str) -> None:
    mutant = next(mutant for mutant in RULES if mutant.name == name)
    with MutatedPackage(mutant.name, mutant.changes) as package:
        library = package.load("tidelog.lab.story.library")
        verdicts = list(library.check([library.story_folder() / "fencing"]))
    assert len(verdicts) > 5
    assert not all(verdict.passed for verdict in verdicts)


def test_acknowledgement_before_the_followers_have_a_record_is_found() -> None:
    early = next(m for m in MUTANTS if m.name == "unknown-follower-does-not-hold-back")
    catch = hunt(replace(early, bounds=LeaseBounds(replicas=2)))
    assert catch.broke == lease_model.SURVIVES


def test_a_leader_serves_without_the_store_while_its_follower_fetches() -> None:
    model = LeaseModel(LeaseBounds(replicas=2))
    held = model.decision(after(model, "Tick", *CONFIRMED))
    assert (held.acting, held.serves, held.accepts) == (False, True, frozenset({ACKS_ALL}))
    assert not model.decision(after(model, "Tick", "Fetch(B)")).serves
    assert not model.decision(after(model, "Tick", *CONFIRMED, "Tick", "Tick")).serves
    assert not model.decision(after(model, "Tick", *CONFIRMED, isr=1)).serves
    assert not model.decision(after(model, "Tick", *CONFIRMED, unclean=True)).serves


def test_a_replaced_leader_answers_reads_for_one_lease() -> None:
    model = LeaseModel(LeaseBounds(replicas=2))
    actions = ("Tick", "Tick", *CONFIRMED, "Fence(A, elect B)", "Learn(B)", "Tick")
    state = after(model, *actions)
    assert model.decision(state).serves
    assert not model.decision(dict(model.successors(state))["Tick"]).serves


def test_search_starts_after_the_prologue_where_it_is_possible() -> None:
    model = LeaseModel(LeaseBounds(replicas=3), ("Tick", "Fence(B)"))
    assert [state[2][3] for state in model.initial()] == [(0,), (0, 2)] * 2


def test_describe_shows_replicas_store_and_leader() -> None:
    model = LeaseModel(LeaseBounds(replicas=2, messages=1))
    state = after(model, "Write(A, acks=all)", "Fetch(B)")
    assert model.describe(state) == [
        "A leader   epoch=0 LEO=1 HW=0 log=[m1@0]",
        "B follower epoch=0 LEO=0 HW=0 log=[] (its fetch is on the way)",
        "store: leader=A epoch=0 ISR={A B} fenced={} unclean elections off",
        "A serves, with a valid session; the store may end it in 2 ticks",
    ]
