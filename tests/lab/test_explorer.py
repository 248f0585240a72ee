"""The explorer on models that are small enough to enumerate by hand."""

from collections.abc import Iterable
from itertools import pairwise

import pytest

from tidelog.lab.modelcheck.counterexample import as_data, render
from tidelog.lab.modelcheck.explorer import Model, Progress, explore

Pair = tuple[int, int]


class TwoCounters(Model[Pair]):
    """Two counters from 0 to 2; each step increments one of them: nine states in a diamond.

    By level: 00 | 01 10 | 02 11 20 | 12 21 | 22. With the counters interchangeable: 00 | 01 |
    02 11 | 12 | 22.
    """

    name = "two counters"
    invariants = ("small", "sum is not three", "not negative")
    goals = ("one is full", "both are full", "one is beyond")

    def __init__(self, *, symmetric: bool) -> None:
        self._symmetric = symmetric

    def initial(self) -> Iterable[Pair]:
        return [(0, 0)]

    def successors(self, state: Pair) -> Iterable[tuple[str, Pair]]:
        left, right = state
        if left < 2:
            yield "left", (left + 1, right)
        if right < 2:
            yield "right", (left, right + 1)

    def violated(self, state: Pair) -> list[str]:
        broken = ["small"] if sum(state) > 3 else []
        return [*broken, "sum is not three"] if sum(state) == 3 else broken

    def reached(self, state: Pair) -> list[str]:
        return ["one is full"] * (2 in state) + ["both are full"] * (state == (2, 2))

    def canonical(self, state: Pair) -> Pair:
        return min(state, state[::-1]) if self._symmetric else state

    def meaning(self, invariant: str) -> str:
        return "the sum is not three" if invariant == "sum is not three" else ""


class Ring(Model[int]):
    """Five places in a ring, a step in either direction: every state is reached twice."""

    name = "ring"
    invariants = ("not opposite",)

    def initial(self) -> Iterable[int]:
        return [0]

    def successors(self, state: int) -> Iterable[tuple[str, int]]:
        return [("back", (state - 1) % 5), ("on", (state + 1) % 5)]

    def violated(self, state: int) -> list[str]:
        return ["not opposite"] if state in (2, 3) else []


class Failing(Ring):
    def successors(self, state: int) -> Iterable[tuple[str, int]]:
        if state == 1:
            raise ZeroDivisionError("a mistake in the model")
        return super().successors(state)


EVERY_NUMBER_OF_WORKERS = pytest.mark.parametrize("workers", [1, 2, 3])


@EVERY_NUMBER_OF_WORKERS
@pytest.mark.parametrize(
    ("symmetric", "levels"),
    [(False, [1, 2, 3, 2, 1]), (True, [1, 1, 2, 1, 1])],
    ids=["every name counts", "names interchangeable"],
)
def test_counts_every_state_of_the_diamond(
    symmetric: bool, levels: list[int], workers: int
) -> None:
    outcome = explore(TwoCounters(symmetric=symmetric), workers=workers, fork_from=1)
    assert outcome.levels == levels
    assert outcome.states == sum(levels)
    assert outcome.depth == 4
    assert outcome.complete
    assert not outcome.holds
    assert {v.invariant: v.depth for v in outcome.violations.values()} == {
        "small": 4,
        "sum is not three": 3,
    }
    assert outcome.goals == {"one is full": 2, "both are full": 4}
    assert outcome.missed_goals == ("one is beyond",)
    assert outcome.workers == workers
    assert outcome.states_per_second > 0


@EVERY_NUMBER_OF_WORKERS
def test_shortest_path_is_the_same_for_any_number_of_workers(workers: int) -> None:
    outcome = explore(TwoCounters(symmetric=False), workers=workers, fork_from=1)
    path = outcome.violations["sum is not three"].path
    assert path == [("", (0, 0)), ("right", (0, 1)), ("right", (0, 2)), ("left", (1, 2))]


@EVERY_NUMBER_OF_WORKERS
def test_path_under_symmetry_is_a_run_of_the_model_itself(workers: int) -> None:
    model = TwoCounters(symmetric=True)
    path = explore(model, workers=workers, fork_from=1).violations["small"].path
    assert path[0].state == (0, 0)
    assert path[-1].state == (2, 2)
    for before, step in pairwise(path):
        assert (step.action, step.state) in list(model.successors(before.state))


@EVERY_NUMBER_OF_WORKERS
def test_repeated_states_are_counted_once(workers: int) -> None:
    outcome = explore(Ring(), workers=workers, fork_from=1)
    assert outcome.levels == [1, 2, 2]
    assert outcome.violations["not opposite"].path == [("", 0), ("on", 1), ("on", 2)]


def test_forks_only_when_a_level_is_wide_enough() -> None:
    assert explore(Ring(), workers=2, fork_from=3).workers == 1
    assert explore(Ring(), workers=2, fork_from=2).workers == 2


def test_stops_after_the_level_that_passes_the_limit_and_says_so() -> None:
    outcome = explore(TwoCounters(symmetric=False), workers=1, max_states=4)
    assert outcome.levels == [1, 2, 3]
    assert not outcome.complete


def test_progress_is_reported_at_every_level() -> None:
    seen: list[Progress] = []
    explore(TwoCounters(symmetric=False), workers=1, progress=seen.append)
    assert [(p.level, p.states, p.frontier) for p in seen] == [
        (0, 1, 1),
        (1, 3, 2),
        (2, 6, 3),
        (3, 8, 2),
        (4, 9, 1),
    ]
    assert all(p.states_per_second > 0 for p in seen)


def test_exception_in_the_model_ends_the_search() -> None:
    with pytest.raises(ZeroDivisionError):
        explore(Failing(), workers=1)
    with pytest.raises(RuntimeError, match="worker"):
        explore(Failing(), workers=2, fork_from=1)


def test_counterexample_is_formatted_as_a_story() -> None:
    model = TwoCounters(symmetric=False)
    outcome = explore(model, workers=1)
    violation = outcome.violations["sum is not three"]
    assert render(model, violation).splitlines() == [
        "# two counters breaks sum is not three",
        "#",
        "# Invariant: the sum is not three.",
        "#",
        "# This is a shortest path: 3 steps.",
        "",
        "state",
        "----",
        "(0, 0)",
        "",
        "right",
        "----",
        "(0, 1)",
        "",
        "right",
        "----",
        "(0, 2)",
        "",
        "left",
        "----",
        "(1, 2)",
        "",
        "check sum is not three",
        "----",
        "VIOLATED",
        "(1, 2)",
    ]
    data = as_data(model, violation)
    assert data["depth"] == 3
    assert [step["action"] for step in data["steps"]] == ["", "right", "right", "left"]


def test_counterexample_without_a_meaning_omits_it() -> None:
    model = TwoCounters(symmetric=False)
    text = render(model, explore(model, workers=1).violations["small"])
    assert "Invariant:" not in text
