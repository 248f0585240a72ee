"""Breadth-first search of a model: every state, and a shortest path to each broken invariant.

The search finishes one level before it starts the next. So no state that breaks an invariant is
closer to the start than the first one found. By default the search continues after a violation,
so the number of states is that of the whole space.

Counts, depths and counterexamples do not depend on the number of workers. If a state has several
parents in the previous level, the search keeps the smallest. If several states of a level break
an invariant, it reports the smallest. That is why states must be ordered.
"""

import gc
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from tidelog.lab.modelcheck.shards import Level, Shard, ShardPool

S = TypeVar("S")

FORK_FROM = 1_000
"""Level size from which parallel work saves more time than messages between processes cost."""


class Model(ABC, Generic[S]):
    """A state machine to explore, with its invariants and goals.

    A state is hashable, ordered and picklable: an int, bytes, or a tuple of these. `canonical`
    maps states that differ only in replica names to one of them. Actions, invariants and goals
    must treat such states alike.
    """

    name: str
    invariants: tuple[str, ...]
    goals: tuple[str, ...] = ()

    @abstractmethod
    def initial(self) -> Iterable[S]:
        """Return the states in which a run may start."""

    @abstractmethod
    def successors(self, state: S) -> Iterable[tuple[str, S]]:
        """Return each action possible in the state: its readable name and the next state."""

    @abstractmethod
    def violated(self, state: S) -> Collection[str]:
        """Return the invariants that do not hold in the state."""

    def reached(self, state: S) -> Collection[str]:  # noqa: ARG002
        """Return the goals met in the state. If no state meets a goal, the check is vacuous."""
        return ()

    def canonical(self, state: S) -> S:
        """Return the state that represents all states with other replica names."""
        return state

    def next_states(self, state: S) -> Iterable[S]:
        """Return the canonical successors without action names. Override it for speed."""
        canonical = self.canonical
        return [canonical(successor) for _, successor in self.successors(state)]

    def share(self, state: S) -> object:
        """Return the value that selects the worker: equal values go to the same worker."""
        return state

    def meaning(self, invariant: str) -> str:  # noqa: ARG002
        """Return what an invariant says, as a clause without a full stop."""
        return ""

    def describe(self, state: S) -> list[str]:
        """Return the state as lines of text."""
        return [repr(state)]


class Step(NamedTuple):
    """One step of a path; the first step of a path has no action."""

    action: str
    state: Any


@dataclass(slots=True)
class Violation:
    """A broken invariant, the number of steps to it, and one shortest path."""

    invariant: str
    depth: int
    path: list[Step]


@dataclass(slots=True)
class Progress:
    """The progress of a running search."""

    level: int
    states: int
    frontier: int
    seconds: float

    @property
    def states_per_second(self) -> float:
        return self.states / self.seconds if self.seconds else 0.0


ProgressCallback: TypeAlias = Callable[[Progress], None]


@dataclass(slots=True)
class Exploration:
    """The outcome of a search."""

    model: str
    states: int = 0
    levels: list[int] = field(default_factory=list)
    complete: bool = True
    violations: dict[str, Violation] = field(default_factory=dict)
    goals: dict[str, int] = field(default_factory=dict)
    missed_goals: tuple[str, ...] = ()
    workers: int = 1
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def holds(self) -> bool:
        return not self.violations

    @property
    def depth(self) -> int:
        """The number of steps to the farthest state."""
        return len(self.levels) - 1

    @property
    def states_per_second(self) -> float:
        return self.states / self.seconds if self.seconds else 0.0


def explore(
    model: Model[S],
    *,
    workers: int | None = None,
    max_states: int | None = None,
    progress: ProgressCallback | None = None,
    fork_from: int = FORK_FROM,
    stop_at_violation: bool = False,
) -> Exploration:
    """Visit every state; `workers` is the number of processes, by default one per core.

    With `max_states` the search stops after the level that reaches this number of states. With
    `stop_at_violation` it stops after the level that breaks an invariant. In both cases the
    outcome is not `complete`.
    """
    started, cpu_started = time.perf_counter(), time.process_time()
    search = _Search(model, workers or os.cpu_count() or 1, fork_from)
    outcome = search.outcome
    collecting = gc.isenabled()
    gc.disable()  # the tables grow by millions of small objects and contain no cycles
    try:
        level = search.first_level()
        while level.states:
            search.note(level)
            if progress:
                elapsed = time.perf_counter() - started
                progress(Progress(outcome.depth, outcome.states, level.states, elapsed))
            far_enough = max_states is not None and outcome.states >= max_states
            if far_enough or (stop_at_violation and search.broken):
                outcome.complete = False
                break
            level = search.next_level(level.states)
        for invariant, (depth, state) in search.broken.items():
            path = replay(model, search.lineage(state))
            outcome.violations[invariant] = Violation(invariant, depth, path)
        outcome.cpu_seconds = search.close()
    finally:
        search.abandon()
        if collecting:
            gc.enable()
    outcome.cpu_seconds += time.process_time() - cpu_started
    outcome.seconds = time.perf_counter() - started
    outcome.missed_goals = tuple(g for g in model.goals if g not in outcome.goals)
    return outcome


def replay(model: Model[S], lineage: list[S]) -> list[Step]:
    """Turn a path of canonical states into actions, with the same replica names in every step."""
    start = next(s for s in model.initial() if model.canonical(s) == lineage[0])
    path = [Step("", start)]
    state = start
    for target in lineage[1:]:
        action, state = next(
            (action, successor)
            for action, successor in model.successors(state)
            if model.canonical(successor) == target
        )
        path.append(Step(action, state))
    return path


class _Search(Generic[S]):
    """One search: in this process at first, in several processes once a level is large enough."""

    def __init__(self, model: Model[S], workers: int, fork_from: int) -> None:
        self.model = model
        self.outcome = Exploration(model.name)
        self.broken: dict[str, tuple[int, S]] = {}
        self._workers = workers
        self._fork_from = fork_from
        self._shard: Shard[S] = Shard(model)
        self._pool: ShardPool[S] | None = None

    def first_level(self) -> Level[S]:
        return self._shard.admit([{self.model.canonical(s): None for s in self.model.initial()}])

    def next_level(self, width: int) -> Level[S]:
        if self._pool is None and self._workers > 1 and width >= self._fork_from:
            self._pool = ShardPool(self._shard, self._workers)
            self.outcome.workers = self._workers
        if self._pool is not None:
            return self._pool.next_level()
        return self._shard.admit(self._shard.expand(1))

    def note(self, level: Level[S]) -> None:
        self.outcome.states += level.states
        self.outcome.levels.append(level.states)
        depth = self.outcome.depth
        for invariant in self.model.invariants:
            if invariant in level.broken and invariant not in self.broken:
                self.broken[invariant] = (depth, level.broken[invariant])
        for goal in self.model.goals:
            if goal in level.goals:
                self.outcome.goals.setdefault(goal, depth)

    def lineage(self, state: S) -> list[S]:
        """Return the path from an initial state to this state, both included."""
        path = [state]
        while (parent := self._parent(path[-1])) is not None:
            path.append(parent)
        return path[::-1]

    def _parent(self, state: S) -> S | None:
        if self._pool is None or state in self._shard.parents:
            return self._shard.parents[state]
        return self._pool.parent(state)

    def close(self) -> float:
        """Stop the workers; return the CPU seconds they used."""
        return self._pool.close() if self._pool else 0.0

    def abandon(self) -> None:
        if self._pool:
            self._pool.abandon()
