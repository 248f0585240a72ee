"""Look for a mutant until something breaks, and say what and how far away it was."""

import time
from dataclasses import dataclass

from tidelog.lab.mutants.catalogue import Mutant
from tidelog.lab.mutants.universe import Universe

STATES_MAX = 400_000
"""How far the checker goes before it calls a mutant not found."""


@dataclass(slots=True)
class Catch:
    """What became of one mutant."""

    mutant: Mutant
    found: bool
    broke: str
    """The invariant it broke, or why it was not found."""
    depth: int
    states: int
    seconds: float
    steps: list[str]


def hunt_with_checker(mutant: Mutant, states_max: int = STATES_MAX) -> Catch:
    """Run the model checker over the mutated package."""
    assert mutant.bounds is not None, "this one is the simulator's"
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
            )
        )
        broke, depth, steps = f"nothing within {states_max:,} states", 0, []
        states = 0
        try:
            search = explorer.explore(
                model, workers=1, max_states=states_max, stop_at_violation=True
            )
            states = search.states
            if search.violations:
                worst = min(search.violations.values(), key=lambda v: v.depth)
                broke, depth = worst.invariant, worst.depth
                steps = [step.action for step in worst.path[1:]]
        except AssertionError as assertion:
            # The core's own assertions are invariants too.
            broke, depth = f"assertion: {assertion}", 1
    return Catch(mutant, depth > 0, broke, depth, states, time.perf_counter() - started, steps)
