"""Shrink a failing plan to a shorter one that violates the same invariant, and describe it.

First remove everything after the failure, then network faults, store faults and consumers, then
actions by delta debugging: halves, quarters, single ones, as long as the same invariant is
violated. A run stops at its first violation, so a try takes milliseconds. Links and disks have
random generators of their own, so an action that is left out changes little else; where it
does, another subset is tried.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tidelog.lab.sim.machine.network import LinkConditions
from tidelog.lab.sim.machine.store import StoreFaults
from tidelog.lab.sim.runner import SHIPPED, run_plan, with_actions
from tidelog.lab.sim.simulation import Result
from tidelog.lab.sim.swarm import Action, Plan
from tidelog.lab.sim.text import describe_action

RUNS_MAX = 400


@dataclass(slots=True)
class Shrunk:
    """A shorter plan that violates the same invariant, with its result."""

    plan: Plan
    result: Result
    invariant: str
    runs: int
    actions_before: int


class _Search:
    """Keeps the shortest plan that still fails."""

    def __init__(self, plan: Plan, result: Result, policy: str, invariant: str) -> None:
        self.plan = plan
        self.result = result
        self.runs = 0
        self._policy = policy
        self._invariant = invariant

    def try_plan(self, plan: Plan) -> bool:
        """Run a plan; keep it if it fails too. Return whether it does."""
        if self.runs >= RUNS_MAX:
            return False
        self.runs += 1
        result = run_plan(plan, self._policy)
        if all(found.invariant != self._invariant for found in result.violations):
            return False
        self.plan, self.result = plan, result
        return True

    def cut_end(self) -> None:
        """End the plan right after the failure, if it still fails then."""
        first = next(v for v in self.result.violations if v.invariant == self._invariant)
        end = first.at_ms + 1
        if end < self.plan.duration_ms:
            kept = [action for action in self.plan.actions if action.at_ms < end]
            self.try_plan(replace(with_actions(self.plan, kept), duration_ms=end))

    def remove_background(self) -> None:
        """Remove network faults, store faults, consumers and restarts at the end where the plan
        still fails."""
        for restarts in self.plan.idle_restarts:
            kept = tuple(one for one in self.plan.idle_restarts if one is not restarts)
            self.try_plan(replace(self.plan, idle_restarts=kept))
        self.try_plan(replace(self.plan, conditions=LinkConditions(latency_max_ms=2)))
        self.try_plan(replace(self.plan, store=StoreFaults()))
        self.try_plan(replace(self.plan, consumers=[]))

    def drop_actions(self, wanted: Callable[[Action], bool]) -> None:
        """Remove actions that `wanted` selects, by delta debugging."""
        size = max(1, sum(map(wanted, self.plan.actions)) // 2)
        while True:
            dropped = False
            start = 0
            while self.runs < RUNS_MAX:
                candidates = [action for action in self.plan.actions if wanted(action)]
                piece = candidates[start : start + size]
                if not piece:
                    break
                removed = set(piece)
                kept = [action for action in self.plan.actions if action not in removed]
                if self.try_plan(with_actions(self.plan, kept)):
                    dropped = True
                else:
                    start += size
            if size == 1 and not dropped:
                return
            if self.runs >= RUNS_MAX:
                return
            size = max(1, size // 2)


def shrink(plan: Plan, result: Result, policy: str = SHIPPED, invariant: str = "") -> Shrunk:
    """Return a shorter plan that violates `invariant`, or the first one violated in `result`."""
    invariant = invariant or result.violations[0].invariant
    search = _Search(plan, result, policy, invariant)
    before = len(plan.actions)
    search.cut_end()
    search.remove_background()
    search.drop_actions(lambda action: action.kind != "produce")
    search.drop_actions(lambda action: action.kind == "produce")
    search.cut_end()
    search.drop_actions(lambda _: True)
    return Shrunk(search.plan, search.result, invariant, search.runs, before)


def replay_command(result: Result) -> str:
    """Return the command that repeats a run."""
    policy = "" if result.policy == SHIPPED else f" --policy {result.policy}"
    return f"tidelog sim replay {result.seed}{policy}"


def action_line(action: Action) -> str:
    """Describe one action of a plan, with its time."""
    return f"{action.at_ms / 1000:9.3f}  {describe_action(action)}"


def shrunk_lines(shrunk: Shrunk) -> Iterator[str]:
    """Describe the shorter schedule that fails too."""
    actions = shrunk.plan.actions
    yield f"shrunk from {shrunk.actions_before} to {len(actions)} actions in {shrunk.runs} runs:"
    for action in actions:
        yield f"  {action_line(action)}"
    yield from (
        f"  {shrunk.invariant}: {found.what}"
        for found in shrunk.result.violations
        if found.invariant == shrunk.invariant
    )
