"""Entry points of the simulator: run one seed, run many on all cores, replay one.

Results depend only on the seeds, not on the number of workers.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from typing import NamedTuple

from tidelog.core.history import HistoryEvent
from tidelog.core.replication.truncation import LEADER_EPOCH
from tidelog.lab.historical_truncation import POLICIES
from tidelog.lab.sim.faults import KINDS
from tidelog.lab.sim.simulation import Result, Simulation
from tidelog.lab.sim.swarm import Action, Plan, draw_plan
from tidelog.lab.sim.text import event_lines

SHIPPED = LEADER_EPOCH.name


def run_plan(plan: Plan, policy: str = SHIPPED) -> Result:
    """Run a plan: the plan of a seed, or a shortened one."""
    began = time.process_time()
    result = Simulation(plan, POLICIES[policy]).run()
    result.cpu_s = time.process_time() - began
    return result


def run_seed(seed: int, policy: str = SHIPPED) -> Result:
    """Draw the seed's plan and run it."""
    return run_plan(draw_plan(seed), policy)


class Replay(NamedTuple):
    """A repeated run of one seed."""

    result: Result
    lines: list[str]
    """Every event of the simulator, one line each."""
    history: list[HistoryEvent]
    """The events that the brokers logged, in virtual time."""


def replay(seed: int, policy: str = SHIPPED) -> Replay:
    """Repeat the run of a seed; return all its events."""
    simulation = Simulation(draw_plan(seed), POLICIES[policy], keep_events=True)
    history: list[HistoryEvent] = []
    simulation.site.history = history
    result = simulation.run()
    return Replay(result, event_lines(simulation.world.last), history)


def with_actions(plan: Plan, actions: Iterable[Action]) -> Plan:
    """Return a copy of the plan with these actions instead of its own."""
    return replace(plan, actions=sorted(actions))


@dataclass(slots=True)
class Summary:
    """Totals over many seeds: violations, injected faults, speed."""

    policy: str
    start: int
    seeds: int = 0
    events: int = 0
    virtual_ms: int = 0
    acked: int = 0
    consumed: int = 0
    committed: int = 0
    lost: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    """Processor time of all workers: measures speed also on a busy machine."""
    workers: int = 1
    faults: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    failures: list[Result] = field(default_factory=list)
    """Results with violations, by seed."""
    invariants: dict[str, int] = field(default_factory=dict)
    """In how many seeds each invariant was violated."""

    @property
    def clean(self) -> bool:
        return not self.failures

    @property
    def events_per_second(self) -> float:
        return self.events / self.wall_s if self.wall_s else 0.0

    @property
    def events_per_cpu_second(self) -> float:
        return self.events / self.cpu_s if self.cpu_s else 0.0

    @property
    def faults_never_seen(self) -> list[str]:
        return [kind for kind, count in self.faults.items() if not count]

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.events += result.events
        self.virtual_ms += result.virtual_ms
        self.cpu_s += result.cpu_s
        self.acked += result.acked
        self.consumed += result.consumed
        self.committed += result.committed
        self.lost += result.lost
        for kind, count in result.faults.items():
            self.faults[kind] = self.faults.get(kind, 0) + count
        if not result.clean:
            self.failures.append(result)
            for violation in result.violations:
                name = violation.invariant
                self.invariants[name] = self.invariants.get(name, 0) + 1


def _run(task: tuple[int, str]) -> Result:
    return run_seed(*task)


def results(seeds: Iterable[int], policy: str, workers: int) -> Iterator[Result]:
    """Run the seeds and yield their results in order."""
    tasks = [(seed, policy) for seed in seeds]
    if workers <= 1:
        yield from map(_run, tasks)
        return
    with get_context("spawn").Pool(workers) as pool:
        yield from pool.imap(_run, tasks, chunksize=4)


def run_seeds(
    count: int,
    start: int = 0,
    policy: str = SHIPPED,
    progress: Callable[[Result], None] | None = None,
    workers: int | None = None,
) -> Summary:
    """Run `count` seeds from `start` on; `progress` is called with each result in order."""
    workers = max(1, min(workers or os.cpu_count() or 1, count))
    summary = Summary(policy, start, workers=workers)
    began = time.perf_counter()
    for result in results(range(start, start + count), policy, workers):
        summary.add(result)
        if progress is not None:
            progress(result)
    summary.wall_s = time.perf_counter() - began
    return summary
