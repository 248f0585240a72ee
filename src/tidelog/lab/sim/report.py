"""Text of reports: one failure in detail, many runs as a table."""

from collections.abc import Iterator

from tidelog.lab.sim.plain_values import action_words
from tidelog.lab.sim.runner import SHIPPED, Summary
from tidelog.lab.sim.shrink import Shrunk
from tidelog.lab.sim.simulation import Result
from tidelog.lab.sim.swarm import Action


def replay_command(result: Result) -> str:
    """Return the command that repeats a run."""
    policy = "" if result.policy == SHIPPED else f" --policy {result.policy}"
    return f"tidelog sim replay {result.seed}{policy}"


def failure_lines(result: Result) -> Iterator[str]:
    """Describe a failure: invariant, seed, last events, command that repeats it."""
    for violation in result.violations:
        yield f"{violation.invariant} does not hold ({violation.at_ms / 1000:.3f} s)"
        yield f"  {violation.what}"
    yield f"seed {result.seed}, policy {result.policy}: {result.mix}"
    yield "last events:"
    for line in result.violations[0].last_events:
        yield f"  {line}"
    yield f"replay: {replay_command(result)}"


def action_line(action: Action) -> str:
    """Describe one action of a plan, with its time."""
    return f"{action.at_ms / 1000:9.3f}  {action_words(action)}"


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


def fault_rows(summary: Summary) -> list[tuple[str, int]]:
    """Return every kind of fault with the number of injections."""
    return list(summary.faults.items())


def summary_line(summary: Summary) -> str:
    """Summarise all runs in one line."""
    verdict = "clean" if summary.clean else f"{len(summary.failures)} with violations"
    return (
        f"{summary.seeds} seeds, {summary.events} events, "
        f"{summary.virtual_ms / 60_000:.0f} virtual minutes: {verdict}; "
        f"{summary.events_per_second:,.0f} events/s on {summary.workers} workers, "
        f"{summary.events_per_cpu_second:,.0f} a core"
    )
