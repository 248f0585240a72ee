"""The story of a mutant's counterexample fails under the mutant, not under the shipped code."""

import pytest

from tidelog.lab.mutants.hunt import MUTANTS
from tidelog.lab.mutants.mutant import MutatedPackage
from tidelog.lab.story.grammar import parse
from tidelog.lab.story.runner import play

CAUGHT = {
    "shrink-taken-for-granted": "isr-holds-committed",
    "diverging-fetch-counts": "isr-holds-committed",
    "leader-sees-no-divergence": "isr-holds-committed",
    "follower-trusts-the-leaders-high-watermark": "hw-below-leo",
}
"""Mutants, and the invariant of the stories that shows them."""


@pytest.mark.parametrize("name", CAUGHT)
def test_counterexample_of_a_mutant_passes_with_the_shipped_code(name: str) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    assert mutant.bounds is not None
    with MutatedPackage(mutant.name, mutant.changes) as package:
        explorer = package.load("tidelog.lab.modelcheck.explorer")
        cluster = package.load("tidelog.lab.modelcheck.shipped.cluster_model")
        retelling = package.load("tidelog.lab.retelling.checker_story")
        bounds = {key: getattr(mutant.bounds, key) for key in type(mutant.bounds).__slots__}
        model = cluster.ClusterModel(cluster.Bounds(**bounds), prologue=mutant.prologue)
        found = explorer.explore(model, workers=1, max_states=30_000, stop_at_violation=True)
        shortest = min(found.violations.values(), key=lambda violation: violation.depth)
        told = retelling.retell(model, shortest, "leader-epoch", mutant.prologue)
    assert (told.faithful, told.broken) == (True, CAUGHT[name])
    last = play(parse(told.text), "leader-epoch").frames[-1]
    assert last.step.text == f"check {CAUGHT[name]}"
    assert last.output == ("holds",)
