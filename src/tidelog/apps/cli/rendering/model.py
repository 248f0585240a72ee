"""Output of `tidelog model table`, `check`, `lease` and `transactions`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from tidelog.apps.cli import output
from tidelog.lab.modelcheck import counterexample
from tidelog.lab.modelcheck.explorer import Exploration, Progress, ProgressCallback, Violation
from tidelog.lab.modelcheck.shipped.cluster_model import ClusterModel
from tidelog.lab.modelcheck.shipped.lease_model import LeaseModel
from tidelog.lab.modelcheck.transactions.model import TransactionModel
from tidelog.lab.modelcheck.verdicts import Row
from tidelog.lab.retelling.draft import Retelling


def watcher(show_progress: output.ShowProgress) -> ProgressCallback:
    """Return a callback that shows the progress of a search."""

    def watch(now: Progress) -> None:
        speed = f"{now.states_per_second:,.0f} states/s"
        show_progress(now.states, f"{now.states:,} states, depth {now.level}, {speed}")

    return watch


def show_rows(screen: Console, rows: Sequence[Row]) -> None:
    """Print the table of verdicts; invariants that hold in every row share one column.

    A narrow screen shows the verdicts without the figures.
    """
    split = [name for name in _invariants(rows) if any(row.verdicts.get(name) for row in rows)]
    others = "others" if split else "all"
    wide = screen.width >= output.WIDE
    numbers = ("states", "known", "s", "states/s") if wide else ("states",)
    size = rows[0].case.size
    screen.print(output.faint(f"size {size}: replicas, log size, records, largest leader epoch"))
    table = output.table(
        ("model", *split, others, *numbers, "" if wide else "known"), numbers=numbers
    )
    for row in rows:
        known = row.case.expected.states if row.case.expected else None
        rest = [depth for name, depth in row.verdicts.items() if name not in split]
        figures = (
            f"{row.exploration.states:,}",
            f"{known:,}" if known else "—",
            f"{row.exploration.seconds:.1f}",
            f"{row.exploration.states_per_second:,.0f}",
        )
        table.add_row(
            _name(row, size),
            *(_verdict(row, name) for name in split),
            output.mark(not any(rest)),
            *figures[: len(numbers)],
            _agreement(row, "as expected" if wide else "✓"),
        )
    output.show_table(screen, table)
    agreed = sum(row.reproduced for row in rows)
    seconds = sum(row.exploration.seconds for row in rows)
    text = f"{agreed} of {len(rows)} rows are as expected; {seconds:.1f} s"
    screen.print(output.verdict_line(agreed == len(rows), text))


def _invariants(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.verdicts))


def _name(row: Row, size: str) -> Text:
    """Return the model's name, with its size if that differs."""
    name = Text(row.case.model)
    if row.case.size != size:
        name.append("\n" + row.case.size.replace(", ", "\n", 1), output.FAINT)
    return name


def _verdict(row: Row, invariant: str) -> Text:
    if invariant not in row.verdicts:
        return output.faint("—")
    depth = row.verdicts[invariant]
    return output.mark(depth is None, bad=f"✗ depth {depth}")


def _agreement(row: Row, yes: str) -> Text:
    """Return whether the row is as expected, or what was expected."""
    expected = row.case.expected
    if expected is None:
        return Text("new size", output.WARN) if row.reproduced else Text("goals missed", output.BAD)
    if row.reproduced:
        return Text(yes, output.GOOD)
    wanted = ", ".join(f"{name} ✗ {depth}" for name, depth in expected.violations.items())
    return Text(f"expected {wanted or 'holds'}", output.BAD)


def shortest(found: Exploration) -> Violation | None:
    """Return the violation with the fewest steps."""
    return min(found.violations.values(), key=lambda violation: violation.depth, default=None)


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the broker's code."""

    model: ClusterModel | LeaseModel | TransactionModel
    found: Exploration
    shortest: Violation | None
    story_file: str | None = None
    retold: Retelling | None = None
    """The shortest counterexample as a story, with --story."""

    @property
    def holds(self) -> bool:
        """Whether all states were visited and no invariant is violated."""
        return self.found.complete and self.found.holds

    def as_data(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        found = self.found
        depths = {name: violation.depth for name, violation in found.violations.items()}
        return {
            "model": self.model.name,
            "bounds": asdict(self.model.bounds),
            "complete": found.complete,
            "states": found.states,
            "depth": found.depth,
            "seconds": round(found.seconds, 3),
            "states_per_second": round(found.states_per_second),
            "workers": found.workers,
            "goals": found.goals,
            "missed_goals": list(found.missed_goals),
            "verdicts": {name: depths.get(name) for name in self.model.invariants},
            "counterexample": (
                counterexample.as_data(self.model, self.shortest) if self.shortest else None
            ),
            "story": self.story_file,
            "story_shows_it": self.retold is not None and self.retold.shown,
        }

    def show(self, screen: Console) -> None:
        """Print bounds, verdicts, goals, and the shortest counterexample."""
        found = self.found
        screen.print(output.heading(self.model.name))
        bounds = asdict(self.model.bounds)
        line = " · ".join(f"{name.replace('_', ' ')} {n}" for name, n in bounds.items())
        screen.print(output.faint(f"bounds: {line}"), soft_wrap=True)
        verdicts = output.table(("verdict", "invariant"))
        for name in self.model.invariants:
            violation = found.violations.get(name)
            bad = f"✗ depth {violation.depth}" if violation else ""
            verdicts.add_row(output.mark(violation is None, bad=bad), name)
        screen.print(verdicts)
        self._show_goals(screen)
        if self.shortest:
            self._show_path(screen, self.shortest)
        if self.retold:
            self._show_story(screen, self.retold)
        screen.print(output.verdict_line(self.holds, self._summary()))

    def _show_goals(self, screen: Console) -> None:
        for goal in self.model.goals:
            depth = self.found.goals.get(goal)
            if depth is None:
                missed = f"not reached: {goal} (needs wider bounds)"
                screen.print(Text(missed, output.WARN))
            else:
                screen.print(output.faint(f"reached: {goal}, depth {depth}"))
        screen.print()

    def _show_path(self, screen: Console, violation: Violation) -> None:
        screen.print(
            output.heading(f"Shortest counterexample, {violation.depth} steps: ")
            + Text(violation.invariant, output.BAD)
        )
        before: list[str] = []
        for number, step in enumerate(violation.path):
            after = self.model.describe(step.state)
            screen.print(Text(f"{number:>3}  {step.action or 'start'}", output.NAME))
            for line in after:
                if line not in before or number == violation.depth:
                    screen.print(output.indented(Text(line), 6))
            before = after
        screen.print()

    def _show_story(self, screen: Console, retold: Retelling) -> None:
        line = Text("story: ").append(f"tidelog story play {self.story_file}", output.NAME)
        if retold.departure:
            line.append(f"  (it differs from the checker: {retold.departure})", output.WARN)
        elif not retold.shown:
            line.append("  (the invariants of stories do not show this violation)", output.WARN)
        screen.print(line, soft_wrap=True)

    def _summary(self) -> str:
        found = self.found
        speed = f"{found.states:,} states in {found.seconds:.1f} s"
        speed += f", {found.states_per_second:,.0f} states/s"
        if not found.holds:
            broken = len(found.violations)
            verb = "invariant is" if broken == 1 else "invariants are"
            return f"{broken} {verb} violated; {speed}"
        if not found.complete:
            return (
                f"no violation so far, but not all states were visited: raise --max-states; {speed}"
            )
        return f"every invariant holds in every state; {speed}"
