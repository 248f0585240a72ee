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
from tidelog.lab.mutants.hunt import ESCAPED, MUTANTS, STATES_MAX, Report, hunt

REPORT_S = 0.2
"""Interval of progress reports, and of the parent's polls."""


@dataclass(frozen=True, slots=True)
class MutantCase:
    """A mutant to check."""

    name: str
    rule: str
    """The rule that the mutant removes."""
    source: str
    finder: str

    def as_data(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class MutantResult:
    """The result for one mutant."""

    case: MutantCase
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
        return {**data.pop("case"), **data}


def _published() -> dict[str, verdicts.Case]:
    cases = [*verdicts.mutants(), *verdicts.async_isr_cases()[1:]]
    return {case.model.replace(" ", "-"): case for case in cases}


def all_cases() -> list[MutantCase]:
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


def check_one(case: MutantCase) -> MutantResult:
    """Check one mutant; nothing else runs in this process."""
    report = _reporter(case.name)
    for mutant in MUTANTS:
        if mutant.name == case.name:
            end = hunt(mutant, report)
            steps = tuple(end.steps)
            return MutantResult(case, end.found, end.broke, end.where, end.seconds, steps)
    return _check_published(case, report)


def _reporter(name: str) -> Report:
    last_s = 0.0

    def report(done: int, most: int, what: str) -> None:
        nonlocal last_s
        if _send is not None and time.monotonic() - last_s >= REPORT_S:
            last_s = time.monotonic()
            _send(Running(name, done, most, what))

    return report


def _check_published(case: MutantCase, report: Report) -> MutantResult:
    model = _published()[case.name]
    most = (model.expected and model.expected.states) or STATES_MAX

    def watch(now: Progress) -> None:
        report(now.states, most, "states")

    row = next(verdicts.run([model], workers=1, progress=watch))
    found = row.exploration
    first = min(found.violations.values(), key=lambda v: v.depth, default=None)
    if first is None:
        missed = f"nothing in {found.states:,} states"
        return MutantResult(case, False, missed, "", found.seconds, ())
    where = f"{first.depth} steps, {found.states:,} states"
    steps = tuple(step.action for step in first.path[1:])
    return MutantResult(case, True, first.invariant, where, found.seconds, steps)


def _start_worker(send: Callable[[Running], None]) -> None:
    """Ignore SIGINT: the parent handles it, and ends its workers."""
    global _send
    _send = send
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def check_all(
    chosen: Sequence[MutantCase], workers: int | None, show_progress: output.ShowProgress
) -> list[MutantResult]:
    """Check mutants in parallel; return the results in their order."""
    workers = min(workers or os.cpu_count() or 1, len(chosen))
    finished: dict[str, MutantResult] = {}
    running: dict[str, Running] = {}
    context = get_context("spawn")
    reports = context.SimpleQueue()
    with context.Pool(workers, _start_worker, (reports.put,), maxtasksperchild=1) as pool:
        pending = pool.imap_unordered(check_one, chosen, chunksize=1)
        while len(finished) < len(chosen):
            while not reports.empty():
                report = reports.get()
                running[report.name] = report
            current = [each for name, each in running.items() if name not in finished]
            done = len(finished) + sum(each.share for each in current)
            show_progress(done, f"{len(finished)} of {len(chosen)}; {', '.join(map(str, current))}")
            try:
                result = pending.next(REPORT_S)
            except NothingYet:
                continue
            finished[result.case.name] = result
    return [finished[case.name] for case in chosen]


def show_list(screen: Console, chosen: Sequence[MutantCase]) -> None:
    """Print the rule that each mutant removes."""
    table = output.table(("mutant", "rule it removes", "checked by"))
    for case in chosen:
        table.add_row(Text(case.name, output.NAME), _rule(case), case.finder)
    output.show_table(screen, table)
    _show_unchecked(screen)


def _show_unchecked(screen: Console) -> None:
    names = ", ".join(mutant.name for mutant in ESCAPED)
    screen.print(
        Text(f"known, but not checked, because nothing here finds it: {names}", output.FAINT)
    )


def _rule(case: MutantCase) -> Text:
    """Return the rule, and below it its source."""
    return Text(case.rule).append(f"\n{case.source}", output.FAINT)


def show_results(screen: Console, results: Sequence[MutantResult]) -> None:
    """Print which mutants were found, and how."""
    columns = ("mutant", "rule it removes", "what broke", "found by", "s")
    table = output.table(columns, numbers=("s",))
    for result in results:
        finder = output.mark(result.found, result.case.finder, "NOT FOUND")
        if result.found:
            finder.append(f"\n{result.where}", output.FAINT)
        name = Text(result.case.name, output.NAME)
        table.add_row(name, _rule(result.case), result.broke, finder, f"{result.seconds:.1f}")
    output.show_table(screen, table)
    missed = [result.case.name for result in results if not result.found]
    text = f"{len(results) - len(missed)} of {len(results)} mutants found"
    if missed:
        text += f"; not found: {', '.join(missed)}"
    screen.print(output.verdict_line(not missed, text))
    _show_unchecked(screen)
