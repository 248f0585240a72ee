"""Output of `tidelog sim`: faults, failures with their replay commands, speed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from tidelog.apps.cli import output
from tidelog.apps.cli.usage import write_file
from tidelog.lab.retelling.simulator_story import retell_run
from tidelog.lab.sim.runner import Summary
from tidelog.lab.sim.shrink import Shrunk, action_line, replay_command, shrink, shrunk_lines
from tidelog.lab.sim.simulation import Result, Violation
from tidelog.lab.sim.swarm import Plan, draw_plan

SHOWN_IN_FULL = 3
"""How many failures are shown with their last events; the others only by seed."""
FAULT_WIDTH = 40
"""Columns for one kind of fault and its count."""


def watcher(show_progress: output.ShowProgress) -> Callable[[Result], None]:
    """Return a callback that shows the progress of a run."""
    done = failed = 0

    def watch(result: Result) -> None:
        nonlocal done, failed
        done += 1
        failed += not result.clean
        show_progress(done, f"{done} seeds, {failed} failed")

    return watch


@dataclass(slots=True)
class Failure:
    """A failed run, shortened and written as a story on request."""

    result: Result
    plan: Plan
    shrunk: Shrunk | None
    story_file: str | None = None
    retold: bool = False
    """Whether the story violates the same invariant."""

    def write(self, path: str) -> None:
        """Write the failure as a story, and run it to see whether it shows the same violation."""
        result = self.shrunk.result if self.shrunk else self.result
        invariant = self.shrunk.invariant if self.shrunk else result.violations[0].invariant
        broken = next(v for v in result.violations if v.invariant == invariant)
        story = retell_run(self.plan, result.policy, broken)
        write_file(path, story.text)
        self.story_file, self.retold = path, story.shown

    def as_data(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        data: dict[str, Any] = {
            "seed": self.result.seed,
            "story": self.story_file,
            "story_shows_it": self.retold,
        }
        if self.shrunk:
            data |= {
                "invariant": self.shrunk.invariant,
                "runs": self.shrunk.runs,
                "actions_before": self.shrunk.actions_before,
                "actions": [action_line(action).strip() for action in self.plan.actions],
            }
        return data

    def show(self, screen: Console) -> None:
        """Print the shortened schedule, and the path of the story."""
        for line in shrunk_lines(self.shrunk) if self.shrunk else ():
            screen.print(Text(line), soft_wrap=True)
        if self.story_file:
            link = Text("story: ").append(f"tidelog story play {self.story_file}", output.NAME)
            if not self.retold:
                link.append(
                    "  (it does not reproduce the violation: the invariant holds in it)",
                    output.WARN,
                )
            screen.print(link, soft_wrap=True)
        screen.print()


def examine(result: Result, shorten: bool) -> Failure:
    """Prepare a failed run; with `shorten`, find a shorter schedule with the same violation."""
    plan = draw_plan(result.seed)
    if not shorten:
        return Failure(result, plan, None)
    with output.progress(f"shrinking seed {result.seed}"):
        shrunk = shrink(plan, result, result.policy)
    return Failure(result, shrunk.plan, shrunk)


def _violation_data(violation: Violation) -> dict[str, Any]:
    return {**violation._asdict(), "last_events": list(violation.last_events)}


def _result_data(result: Result) -> dict[str, Any]:
    return {
        "seed": result.seed,
        "policy": result.policy,
        "mix": result.mix,
        "replay": replay_command(result),
        "violations": [_violation_data(violation) for violation in result.violations],
    }


def _show_faults(screen: Console, faults: Mapping[str, int]) -> None:
    """Print fault counts, several in a row; kinds that never occurred are highlighted."""
    columns = min(max(screen.width // FAULT_WIDTH, 1), 3)
    table = output.table(("fault", "count") * columns, numbers=("count",))
    cells = [
        (Text(kind, "" if count else output.WARN), Text(f"{count:,}", "" if count else output.WARN))
        for kind, count in faults.items()
    ]
    rows = -(-len(cells) // columns)
    for row in range(rows):
        table.add_row(*(cell for pair in cells[row::rows] for cell in pair))
    screen.print(table)


def _show_failure(screen: Console, result: Result) -> None:
    for violation in result.violations:
        screen.print(
            Text("✗ ", output.BAD)
            .append(violation.invariant, output.BAD)
            .append(f"  seed {result.seed}, at {violation.at_ms / 1000:g} s, event ")
            .append(f"{violation.event:,}"),
            soft_wrap=True,
        )
        for line in violation.what.splitlines():
            screen.print(Text(f"  {line}"), soft_wrap=True)
    screen.print(output.faint(f"  mix: {result.mix}"), soft_wrap=True)
    for event in result.violations[0].last_events:
        screen.print(output.faint("  " + event), soft_wrap=True)
    screen.print(Text("  replay: ").append(replay_command(result), output.NAME), soft_wrap=True)
    screen.print()


@dataclass(frozen=True, slots=True)
class Run:
    """The results of many seeds."""

    summary: Summary
    first_failure: Failure | None = None

    def as_data(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        summary = self.summary
        return {
            "policy": summary.policy,
            "start": summary.start,
            "seeds": summary.seeds,
            "workers": summary.workers,
            "seconds": round(summary.wall_s, 3),
            "seeds_per_second": round(self._seeds_per_second, 2),
            "events": summary.events,
            "events_per_second": round(summary.events_per_second),
            "events_per_cpu_second": round(summary.events_per_cpu_second),
            "virtual_seconds": summary.virtual_ms / 1000,
            "acknowledged": summary.acked,
            "consumed": summary.consumed,
            "committed": summary.committed,
            "lost_where_allowed": summary.lost,
            "faults": summary.faults,
            "faults_never_seen": summary.faults_never_seen,
            "invariants_broken": summary.invariants,
            "failures": [_result_data(result) for result in summary.failures],
            "first_failure": self.first_failure.as_data() if self.first_failure else None,
        }

    @property
    def _seeds_per_second(self) -> float:
        return self.summary.seeds / self.summary.wall_s if self.summary.wall_s else 0.0

    def show(self, screen: Console) -> None:
        """Print faults, failures and speed."""
        summary = self.summary
        _show_faults(screen, summary.faults)
        for result in summary.failures[:SHOWN_IN_FULL]:
            _show_failure(screen, result)
        if self.first_failure:
            self.first_failure.show(screen)
        others = [str(result.seed) for result in summary.failures[SHOWN_IN_FULL:]]
        if others:
            screen.print(f"more failed seeds: {' '.join(others)}", soft_wrap=True)
        if summary.invariants:
            counts = ", ".join(f"{name} in {n}" for name, n in summary.invariants.items())
            screen.print(f"violated invariants: {counts}", soft_wrap=True)
        screen.print(
            f"{summary.acked:,} batches acknowledged, {summary.committed:,} records committed,"
            f" {summary.consumed:,} consumed; {summary.lost:,} lost where the configs allow it",
            soft_wrap=True,
        )
        screen.print(
            f"{summary.events:,} events, {summary.virtual_ms / 1000:,.0f} virtual seconds in"
            f" {summary.wall_s:.1f} s: {self._seeds_per_second:.1f} seeds/s,"
            f" {summary.events_per_second:,.0f} events/s with {summary.workers} workers,"
            f" {summary.events_per_cpu_second:,.0f} events per CPU second",
            soft_wrap=True,
        )
        last = summary.start + summary.seeds - 1
        text = f"seeds {summary.start} to {last} under {summary.policy}: "
        failed = len(summary.failures)
        text += f"{failed} of {summary.seeds} failed" if failed else "every invariant holds"
        screen.print(output.verdict_line(summary.clean, text))


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of one seed."""

    result: Result
    events: list[str]
    """Every event in a line, with --events."""
    failure: Failure | None = None

    def as_data(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        result = self.result
        return {
            **_result_data(result),
            "events": result.events,
            "virtual_seconds": result.virtual_ms / 1000,
            "settled_after_ms": result.settled_ms,
            "acknowledged": result.acked,
            "given_up": result.given_up,
            "consumed": result.consumed,
            "committed": result.committed,
            "lost_where_allowed": result.lost,
            "leader_epochs": result.epochs,
            "faults": result.faults,
            "fingerprint": f"{result.fingerprint:016x}",
            "all_events": self.events,
            "failure": self.failure.as_data() if self.failure else None,
        }

    def show(self, screen: Console) -> None:
        """Print the mix, the faults and the violation."""
        result = self.result
        screen.print(output.heading(f"seed {result.seed} under {result.policy}"))
        screen.print(output.faint(result.mix), soft_wrap=True)
        for event in self.events:
            screen.print(Text(event), soft_wrap=True)
        _show_faults(screen, result.faults)
        if not result.clean:
            _show_failure(screen, result)
        if self.failure:
            self.failure.show(screen)
        settled = "" if result.settled_ms is None else f", settled in {result.settled_ms} ms"
        screen.print(
            f"{result.events:,} events in {result.virtual_ms / 1000:g} virtual seconds{settled};"
            f" {result.acked:,} batches acknowledged, {result.committed:,} records committed,"
            f" {result.lost:,} lost where the configs allow it",
            soft_wrap=True,
        )
        screen.print(output.faint(f"fingerprint {result.fingerprint:016x}"))
        text = "every invariant holds" if result.clean else "an invariant is violated"
        screen.print(output.verdict_line(result.clean, text))
