"""Text of reports: one failure in detail, many runs as a table."""

from collections.abc import Iterator

from tidelog.lab.sim.plain_values import describe_action
from tidelog.lab.sim.runner import SHIPPED
from tidelog.lab.sim.shrink import Shrunk
from tidelog.lab.sim.simulation import Result
from tidelog.lab.sim.swarm import Action


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
