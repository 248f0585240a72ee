"""The model checker over the shipped transactions: coordinator, markers and partition leaders."""

from typing import Any

import pytest

from tidelog.lab.modelcheck.explorer import Exploration, explore
from tidelog.lab.modelcheck.transactions import model as transactions
from tidelog.lab.modelcheck.transactions.model import State, TransactionBounds, TransactionModel
from tidelog.lab.mutants.hunt import hunt
from tidelog.lab.mutants.mutant import Mutant
from tidelog.lab.mutants.transaction_rules import CHECKED

QUIET: dict[str, int] = {"late_requests": 0, "failures": 0, "time_outs": 0}


def bounds(**limits: int) -> TransactionBounds:
    """Return bounds that are 0 unless given."""
    return TransactionBounds(**{**QUIET, **limits})


def checked(**limits: int) -> Exploration:
    return explore(TransactionModel(bounds(**limits)), workers=1)


def after(model: TransactionModel, *actions: str) -> State:
    """Play actions from the first state."""
    [state] = model.initial()
    for wanted in actions:
        state = dict(model.successors(state))[wanted]
    return state


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"transactions": 2}, id="two transactions"),
        pytest.param({"late_requests": 1}, id="a late request"),
        pytest.param({"late_markers": 1}, id="a late marker", marks=pytest.mark.ci),
        pytest.param({"failures": 1}, id="a coordinator fails"),
        pytest.param(
            {"time_outs": 1, "failures": 1}, id="a transaction times out", marks=pytest.mark.ci
        ),
        pytest.param({"elections": 1}, id="a partition gets another leader"),
        pytest.param({"transactions": 2, "epochs_left": 1}, id="the epochs are used up"),
        pytest.param(
            {"client_version": 1, "cluster_version": 1, "late_requests": 1}, id="version 1"
        ),
        pytest.param(
            {"client_version": 1, "time_outs": 1, "failures": 1},
            id="old clients",
            marks=pytest.mark.ci,
        ),
    ],
)
def test_transactions_hold_in_the_whole_state_space(limits: dict[str, int]) -> None:
    found = checked(**limits)
    assert not found.violations
    assert found.complete
    assert {"a commit is acknowledged", "a reader skips an aborted record"} <= set(found.goals)


@pytest.mark.ci
def test_the_default_bounds_hold_and_reach_all_goals() -> None:
    found = explore(TransactionModel(), workers=1)
    assert not found.violations
    assert found.complete
    assert found.missed_goals == ()


def counterexample(**limits: int) -> tuple[str, list[str], list[str]]:
    """Return the broken invariant, the steps and the last state of the shortest path to it."""
    model = TransactionModel(bounds(**limits))
    found = explore(model, workers=1, stop_at_violation=True)
    first = min(found.violations.values(), key=lambda violation: violation.depth)
    steps = [step.action for step in first.path[1:]]
    return first.invariant, steps, model.describe(first.path[-1].state)


def test_version_1_without_verification_leaves_a_hanging_transaction() -> None:
    limits = {"client_version": 1, "verification": 0, "late_requests": 1}
    broken, steps, end = counterexample(**limits)
    assert broken == transactions.NOT_STUCK
    assert steps == [
        "A sends AddPartitionsToTxn(P, epoch 0)",
        "A sends Produce(P, t1, epoch 0), and gives up",
        "A sends EndTxn(abort t1, epoch 0)",
        "the abort marker(P, epoch 0) arrives",
        "a late Produce(P, t1, epoch 0) arrives",
    ]
    assert end == [
        "coordinator 0: CompleteAbort() producer 7 epoch 0",
        "P LSO=1 HW=2 log=[abort@0 t1@0] readers see []",
        "Q LSO=0 HW=0 log=[] readers see []",
        "A (producer 7 epoch 0) needs a new epoch",
        "B has not started",
    ]


@pytest.mark.parametrize(
    ("late", "last"),
    [
        ({"late_requests": 1}, "a late EndTxn(commit t1, epoch 0) arrives"),
        ({"late_markers": 1}, "a late abort marker(P, epoch 0) arrives"),
    ],
    ids=["EndTxn", "marker"],
)
def test_version_1_confuses_a_transaction_with_the_next_one(
    late: dict[str, int], last: str
) -> None:
    """Verification can't prevent this: both transactions have the same epoch."""
    _, steps, _ = counterexample(client_version=1, transactions=2, **late)
    assert last in steps
    assert not checked(transactions=2, **late).violations


# `make mutants` hunts all of them.
@pytest.mark.parametrize("mutant", CHECKED[::6], ids=lambda m: m.name)
def test_checker_finds_a_rule_that_is_taken_out(mutant: Mutant) -> None:
    assert all(each.finder == "checker" for each in CHECKED)
    catch = hunt(mutant)
    assert catch.found, catch.broke
    assert catch.broke in transactions.NAMES


def test_search_starts_after_the_prologue() -> None:
    actions = ("A sends Produce(P, t1, epoch 0)", "B sends InitProducerId()")
    model = TransactionModel(bounds(), actions)
    assert list(model.initial()) == [after(TransactionModel(bounds()), *actions)]


def test_describe_shows_the_coordinator_partitions_producers_and_late_requests() -> None:
    model = TransactionModel(bounds(late_requests=1, failures=1))
    state = after(
        model,
        "A sends Produce(P, t1, epoch 0)",
        "the coordinator's record is committed: Ongoing(P) producer 7 epoch 0",
        "the coordinator's consent arrives at the leader of P",
        "A sends EndTxn(commit t1, epoch 0), twice",
    )
    assert model.describe(state) == [
        "coordinator 0: Ongoing(P) producer 7 epoch 0,"
        " not committed: PrepareCommit(P) producer 7 epoch 1",
        "P LSO=0 HW=1 log=[t1@0] readers see []",
        "Q LSO=0 HW=0 log=[] readers see []",
        "A (producer 7 epoch 0) is in a transaction, waits for EndTxn(commit t1, epoch 0)",
        "B has not started",
        "late: EndTxn(commit t1, epoch 0)",
    ]


def test_a_state_is_restored_as_it_was() -> None:
    """Parts are thawed for each step: what they keep must be in the frozen state."""
    model: Any = TransactionModel(bounds(late_requests=1, failures=1, time_outs=1))
    [state] = model.initial()
    seen, level = {state}, [state]
    for _ in range(7):
        level = sorted({s for each in level for _, s in model.successors(each)} - seen)
        seen.update(level)
    for state in seen:
        assert model._coordinator(state.coordinator).freeze() == state.coordinator
        for index, partition in enumerate(state.partitions):
            assert model._leader(index, partition).freeze() == partition
