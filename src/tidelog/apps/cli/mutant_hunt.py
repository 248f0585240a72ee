"""Check all mutants, of the broker's code and of the published models, on all cores.

Each mutant runs in a process of its own: it is a second copy of the whole package, and two copies
in one process would interfere.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import TimeoutError as NothingYet
from multiprocessing import get_context
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from tidelog.apps.cli import output
from tidelog.lab.modelcheck import verdicts
from tidelog.lab.modelcheck.explorer import Progress
from tidelog.lab.mutants.catalogue import ESCAPED, MUTANTS
from tidelog.lab.mutants.hunt import STATES_MAX, Report, hunt

REPORT_S = 0.2
"""Interval of progress reports, and of the parent's polls."""


@dataclass(frozen=True, slots=True)
class MutantCase:
    """A mutant to check."""

    name: str
    rule: str
    """The rule that it removes."""
    source: str
    finder: str

    def as_data(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Caught:
    """The result for one mutant."""

    prey: MutantCase
    found: bool
    broke: str
    """The violated invariant, or why the mutant was not found."""
    where: str
    """Where it was found: steps and states, or a seed."""
    seconds: float
    steps: tuple[str, ...]

    def as_data(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        data = asdict(self)
        return {**data.pop("prey"), **data}


def _published() -> dict[str, verdicts.Case]:
    cases = [*verdicts.mutants(), *verdicts.async_isr_cases()[1:]]
    return {case.model.replace(" ", "-"): case for case in cases}


def all_prey() -> list[MutantCase]:
    """Return the mutants of the broker's code, then those of the published models."""
    shipped = [MutantCase(m.name, m.rule, m.source, m.finder) for m in MUTANTS]
    published = []
    for name, case in _published().items():
        model, _, rule = case.model.partition(" without ")
        source = f"published model of {model}, {case.size}"
        published.append(MutantCase(name, rule.replace("-", " "), source, "checker"))
    return shipped + published


class Running(NamedTuple):
    """The progress of one mutant."""

    name: str
    done: int
    most: int
    what: str

    @property
    def share(self) -> float:
        """The share of the maximum number of states or seeds."""
        return min(self.done / self.most, 1.0)

    def __str__(self) -> str:
        return f"{self.name}: {self.done:,} {self.what}"


_send: Callable[[Running], None] | None = None
"""Sends progress to the parent; set in a worker process."""


def hunt_one(prey: MutantCase) -> Caught:
    """Check one mutant; nothing else runs in this process."""
    report = _reporter(prey.name)
    for mutant in MUTANTS:
        if mutant.name == prey.name:
            end = hunt(mutant, report)
            steps = tuple(end.steps)
            return Caught(prey, end.found, end.broke, end.where, end.seconds, steps)
    return _hunt_published(prey, report)


def _reporter(name: str) -> Report:
    last_s = 0.0

    def report(done: int, most: int, what: str) -> None:
        nonlocal last_s
        if _send is not None and time.monotonic() - last_s >= REPORT_S:
            last_s = time.monotonic()
            _send(Running(name, done, most, what))

    return report


def _hunt_published(prey: MutantCase, report: Report) -> Caught:
    case = _published()[prey.name]
    most = (case.expected and case.expected.states) or STATES_MAX

    def watch(now: Progress) -> None:
        report(now.states, most, "states")

    row = next(verdicts.run([case], workers=1, progress=watch))
    found = row.exploration
    first = min(found.violations.values(), key=lambda v: v.depth, default=None)
    if first is None:
        missed = f"nothing in {found.states:,} states"
        return Caught(prey, False, missed, "", found.seconds, ())
    where = f"{first.depth} steps, {found.states:,} states"
    steps = tuple(step.action for step in first.path[1:])
    return Caught(prey, True, first.invariant, where, found.seconds, steps)


def _start_worker(send: Callable[[Running], None]) -> None:
    """Ignore SIGINT: the parent handles it, and ends its workers."""
    global _send
    _send = send
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def hunt_all(
    chosen: Sequence[MutantCase], workers: int | None, tell: output.ShowProgress
) -> list[Caught]:
    """Check mutants in parallel; return the results in their order."""
    workers = min(workers or os.cpu_count() or 1, len(chosen))
    caught: dict[str, Caught] = {}
    running: dict[str, Running] = {}
    context = get_context("spawn")
    reports = context.SimpleQueue()
    with context.Pool(workers, _start_worker, (reports.put,), maxtasksperchild=1) as pool:
        results = pool.imap_unordered(hunt_one, chosen, chunksize=1)
        while len(caught) < len(chosen):
            while not reports.empty():
                report = reports.get()
                running[report.name] = report
            current = [each for name, each in running.items() if name not in caught]
            far = len(caught) + sum(each.share for each in current)
            tell(far, f"{len(caught)} of {len(chosen)}; {', '.join(map(str, current))}")
            try:
                catch = results.next(REPORT_S)
            except NothingYet:
                continue
            caught[catch.prey.name] = catch
    return [caught[prey.name] for prey in chosen]


def show_list(screen: Console, chosen: Sequence[MutantCase]) -> None:
    """Print the rule that each mutant removes."""
    table = output.table(("mutant", "rule it removes", "checked by"))
    for prey in chosen:
        table.add_row(Text(prey.name, output.NAME), _rule(prey), prey.finder)
    output.show_table(screen, table)
    _name_escaped(screen)


def _name_escaped(screen: Console) -> None:
    names = ", ".join(mutant.name for mutant in ESCAPED)
    screen.print(
        Text(f"known, but not checked, because nothing here finds it: {names}", output.FAINT)
    )


def _rule(prey: MutantCase) -> Text:
    """Return the rule, and below it its source."""
    return Text(prey.rule).append(f"\n{prey.source}", output.FAINT)


def show_catches(screen: Console, catches: Sequence[Caught]) -> None:
    """Print which mutants were found, and how."""
    columns = ("mutant", "rule it removes", "what broke", "found by", "s")
    table = output.table(columns, numbers=("s",))
    for catch in catches:
        finder = output.mark(catch.found, catch.prey.finder, "NOT FOUND")
        if catch.found:
            finder.append(f"\n{catch.where}", output.FAINT)
        name = Text(catch.prey.name, output.NAME)
        table.add_row(name, _rule(catch.prey), catch.broke, finder, f"{catch.seconds:.1f}")
    output.show_table(screen, table)
    missed = [catch.prey.name for catch in catches if not catch.found]
    text = f"{len(catches) - len(missed)} of {len(catches)} mutants found"
    if missed:
        text += f"; not found: {', '.join(missed)}"
    screen.print(output.verdict_line(not missed, text))
    _name_escaped(screen)
