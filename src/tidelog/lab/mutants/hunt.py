"""Look for a mutant until something breaks, and say what and how far away it was."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tidelog.lab.mutants.mutant import Mutant
from tidelog.lab.mutants.universe import Universe

STATES_MAX = 600_000
"""How far the checker goes before it calls a mutant not found."""
SEEDS_MAX = 2_000
"""How many runs the simulator makes before it calls a mutant not found."""

Report: TypeAlias = Callable[[int, int, str], None]
"""Called in the course of a hunt: how many were looked at, of how many at most, and what."""


def silent(_done: int, _most: int, _what: str) -> None:
    """Report to nobody."""


@dataclass(slots=True)
class Catch:
    """What became of one mutant."""

    mutant: Mutant
    found: bool
    broke: str
    """The invariant it broke, or why it was not found."""
    where: str
    """How far away: steps for the checker, a seed for the simulator."""
    seconds: float
    steps: list[str]
    """The way there: actions of the checker, the last events of the simulator."""


def hunt(mutant: Mutant, report: Report = silent) -> Catch:
    """Let whoever is expected to find it look for it."""
    match mutant.finder:
        case "checker":
            return hunt_with_checker(mutant, report=report)
        case "simulator":
            return hunt_with_simulator(mutant, report=report)
        case _:
            return hunt_with_stories(mutant, report)


def hunt_with_stories(mutant: Mutant, report: Report = silent) -> Catch:
    """Play every story on the mutated package until one does not go as it should."""
    started = time.perf_counter()
    with Universe(mutant.name, mutant.changes) as universe:
        library = universe.load("tidelog.lab.story.library")
        stories = sum(1 for _ in library.story_folder().rglob("*.txt"))
        for number, verdict in enumerate(library.check([library.story_folder()]), 1):
            report(min(number, stories), stories, "stories")
            if not verdict.passed:
                seconds = time.perf_counter() - started
                where = f"story {Path(verdict.path).stem}"
                return Catch(mutant, True, verdict.title, where, seconds, list(verdict.problems))
    seconds = time.perf_counter() - started
    return Catch(mutant, False, "every story goes as before", "", seconds, [])


def hunt_with_simulator(
    mutant: Mutant, seeds_max: int = SEEDS_MAX, *, report: Report = silent
) -> Catch:
    """Run seeds of the simulator over the mutated package until one breaks."""
    started = time.perf_counter()
    with Universe(mutant.name, mutant.changes) as universe:
        runner = universe.load("tidelog.lab.sim.runner")
        for seed in range(seeds_max):
            report(seed, seeds_max, "seeds")
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


def hunt_with_checker(
    mutant: Mutant, states_max: int = STATES_MAX, *, report: Report = silent
) -> Catch:
    """Run the model checker over the mutated package."""
    assert mutant.bounds is not None, "this one is the simulator's"

    def watch(now: Any) -> None:
        report(now.states, states_max, "states")

    started = time.perf_counter()
    with Universe(mutant.name, mutant.changes) as universe:
        explorer = universe.load("tidelog.lab.modelcheck.explorer")
        cluster = universe.load("tidelog.lab.modelcheck.shipped.cluster_model")
        bounds = mutant.bounds
        model = cluster.ClusterModel(
            cluster.Bounds(
                bounds.replicas,
                bounds.records,
                bounds.leader_epoch,
                bounds.partition_epoch,
                bounds.messages,
                bounds.restarts,
                bounds.min_insync_replicas,
                bounds.damages,
            ),
            prologue=mutant.prologue,
        )
        broke, where, steps = f"nothing within {states_max:,} states", "", []
        try:
            search = explorer.explore(
                model,
                workers=1,
                max_states=states_max,
                stop_at_violation=True,
                progress=watch,
            )
            if search.violations:
                worst = min(search.violations.values(), key=lambda v: v.depth)
                broke, where = worst.invariant, f"{worst.depth} steps, {search.states:,} states"
                steps = [step.action for step in worst.path[1:]]
        except AssertionError as assertion:
            # The core's own assertions are invariants too.
            broke, where = f"assertion: {assertion}", "on the way"
    return Catch(mutant, bool(where), broke, where, time.perf_counter() - started, steps)
