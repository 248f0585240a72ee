"""All mutants, and the search for one until an invariant breaks.

Each mutant removes one rule, and names the bug or the model behind the rule.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tidelog.lab.modelcheck.shipped.lease_model import LeaseBounds
from tidelog.lab.modelcheck.transactions.model import TransactionBounds
from tidelog.lab.mutants import (
    broker_rules,
    damage_rules,
    directory_rules,
    feature_rules,
    lease_rules,
    replication_rules,
    transaction_rules,
)
from tidelog.lab.mutants.mutant import Mutant, MutatedPackage

MUTANTS: tuple[Mutant, ...] = (
    *replication_rules.RULES,
    *broker_rules.RULES,
    *damage_rules.RULES,
    *directory_rules.RULES,
    *lease_rules.RULES,
    *feature_rules.RULES,
    *transaction_rules.RULES,
)

ESCAPED: tuple[Mutant, ...] = (
    *broker_rules.ESCAPED,
    *damage_rules.ESCAPED,
    *directory_rules.ESCAPED,
)
"""Mutants that the lab does not find. They are listed, but not searched for."""


STATES_MAX = 600_000
"""The most states that the checker explores before it reports a mutant as not found."""
SEEDS_MAX = 2_000
"""The most seeds that the simulator runs before it reports a mutant as not found."""

Report: TypeAlias = Callable[[int, int, str], None]
"""Called with the progress of a hunt: the number done, the maximum, and the unit."""


def silent(_done: int, _most: int, _what: str) -> None:
    """Ignore progress."""


@dataclass(slots=True)
class Catch:
    """The result of the hunt for one mutant."""

    mutant: Mutant
    found: bool
    broke: str
    """The invariant it broke, or why it was not found."""
    where: str
    """Steps and states for the checker, a seed for the simulator, a story's name for stories."""
    seconds: float
    steps: list[str]
    """Actions of the checker, the last events of the simulator, or the problems of a story."""


def hunt(mutant: Mutant, report: Report = silent) -> Catch:
    """Search with the tool that is expected to find the mutant."""
    match mutant.finder:
        case "checker":
            return hunt_with_checker(mutant, report=report)
        case "simulator":
            return hunt_with_simulator(mutant, report=report)
        case _:
            return hunt_with_stories(mutant, report)


def hunt_with_stories(mutant: Mutant, report: Report = silent) -> Catch:
    """Play every story on the mutated package until one fails."""
    started = time.perf_counter()
    with MutatedPackage(mutant.name, mutant.changes) as package:
        library = package.load("tidelog.lab.story.library")
        stories = sum(1 for _ in library.story_folder().rglob("*.txt"))
        for number, verdict in enumerate(library.check([library.story_folder()]), 1):
            report(min(number, stories), stories, "stories")
            if not verdict.passed:
                seconds = time.perf_counter() - started
                where = f"story {Path(verdict.path).stem}"
                return Catch(mutant, True, verdict.title, where, seconds, list(verdict.problems))
    seconds = time.perf_counter() - started
    return Catch(mutant, False, "every story passes", "", seconds, [])


def hunt_with_simulator(
    mutant: Mutant, seeds_max: int = SEEDS_MAX, *, report: Report = silent
) -> Catch:
    """Run seeds of the simulator on the mutated package until one breaks an invariant."""
    started = time.perf_counter()
    with MutatedPackage(mutant.name, mutant.changes) as package:
        runner = package.load("tidelog.lab.sim.runner")
        for number in range(seeds_max):
            report(number, seeds_max, "seeds")
            seed = mutant.first_seed + number
            result = runner.run_seed(seed)
            if not result.clean:
                violation = result.violations[0]
                return Catch(
                    mutant,
                    True,
                    violation.invariant,
                    f"seed {seed}",
                    time.perf_counter() - started,
                    [violation.what, *violation.last_events],
                )
    seconds = time.perf_counter() - started
    return Catch(mutant, False, f"nothing in {seeds_max} seeds", "", seconds, [])


def _model(package: MutatedPackage, mutant: Mutant) -> Any:
    """Return the mutated package's model for the mutant's bounds."""
    bounds = mutant.bounds
    assert bounds is not None, "only mutants with bounds are searched by the checker"
    values = {name: getattr(bounds, name) for name in type(bounds).__slots__}
    if isinstance(bounds, LeaseBounds):
        lease = package.load("tidelog.lab.modelcheck.shipped.lease_model")
        return lease.LeaseModel(lease.LeaseBounds(**values), mutant.prologue)
    if isinstance(bounds, TransactionBounds):
        transactions = package.load("tidelog.lab.modelcheck.transactions.model")
        return transactions.TransactionModel(
            transactions.TransactionBounds(**values), mutant.prologue
        )
    cluster = package.load("tidelog.lab.modelcheck.shipped.cluster_model")
    return cluster.ClusterModel(cluster.Bounds(**values), prologue=mutant.prologue)


def hunt_with_checker(
    mutant: Mutant, states_max: int = STATES_MAX, *, report: Report = silent
) -> Catch:
    """Run the model checker on the mutated package."""

    def watch(now: Any) -> None:
        report(now.states, states_max, "states")

    started = time.perf_counter()
    with MutatedPackage(mutant.name, mutant.changes) as package:
        explorer = package.load("tidelog.lab.modelcheck.explorer")
        model = _model(package, mutant)
        broke, where, steps = f"nothing within {states_max:,} states", "", []
        try:
            search = explorer.explore(
                model, workers=1, max_states=states_max, stop_at_violation=True, progress=watch
            )
            if search.violations:
                first = min(search.violations.values(), key=lambda v: v.depth)
                broke, where = first.invariant, f"{first.depth} steps, {search.states:,} states"
                steps = [step.action for step in first.path[1:]]
        except AssertionError as assertion:
            # The core's own assertions are invariants too.
            broke, where = f"assertion: {assertion}", "during the search"
    return Catch(mutant, bool(where), broke, where, time.perf_counter() - started, steps)
