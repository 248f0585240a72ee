"""From a long failing run to a short one.

First everything after the failure goes, then the noise that is no action (bad weather, the
store's whims, readers), then actions, by delta debugging: halves, quarters, single ones, as
long as the same invariant still breaks. A run stops at its first violation, so trying costs
milliseconds. Links and disks draw from generators of their own, so what is left out changes
little else; where it does, another subset is tried.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tidelog.lab.sim.machine.network import Weather
from tidelog.lab.sim.machine.store import StoreFaults
from tidelog.lab.sim.runner import SHIPPED, run_plan, with_actions
from tidelog.lab.sim.simulation import Result
from tidelog.lab.sim.swarm import Action, Plan

RUNS_MAX = 400


@dataclass(slots=True)
class Shrunk:
    """A shorter plan that breaks the same invariant, and how it does."""

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
        """Whether it fails too; then it is the one to beat."""
        if self.runs >= RUNS_MAX:
            return False
        self.runs += 1
        result = run_plan(plan, self._policy)
        if all(found.invariant != self._invariant for found in result.violations):
            return False
        self.plan, self.result = plan, result
        return True

    def cut_end(self) -> None:
        """Stop soon after the failure, if it does not need the end to show."""
        first = next(v for v in self.result.violations if v.invariant == self._invariant)
        end = first.at_ms + 1
        if end < self.plan.duration_ms:
            kept = [action for action in self.plan.actions if action.at_ms < end]
            self.try_plan(replace(with_actions(self.plan, kept), duration_ms=end))

    def quieten(self) -> None:
        """Leave out what is not needed for it."""
        self.try_plan(replace(self.plan, weather=Weather(latency_max_ms=2)))
        self.try_plan(replace(self.plan, store=StoreFaults()))
        self.try_plan(replace(self.plan, consumers=[]))

    def drop_actions(self, wanted: Callable[[Action], bool]) -> None:
        """Delta debugging over the actions that `wanted` picks."""
        size = max(1, sum(map(wanted, self.plan.actions)) // 2)
        while True:
            dropped = False
            start = 0
            while self.runs < RUNS_MAX:
                candidates = [action for action in self.plan.actions if wanted(action)]
                piece = candidates[start : start + size]
                if not piece:
                    break
                gone = set(piece)
                kept = [action for action in self.plan.actions if action not in gone]
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
    """A shorter plan that breaks `invariant`, or the first that `result` broke."""
    invariant = invariant or result.violations[0].invariant
    search = _Search(plan, result, policy, invariant)
    before = len(plan.actions)
    search.cut_end()
    search.quieten()
    search.drop_actions(lambda action: action.kind != "produce")
    search.drop_actions(lambda action: action.kind == "produce")
    search.cut_end()
    search.drop_actions(lambda _: True)
    return Shrunk(search.plan, search.result, invariant, search.runs, before)
