"""All mutants, of the shipped code and of the published models, hunted on all cores.

A hunt runs in a process of its own: a mutant is a second copy of the whole package, and
two copies at once would only get in each other's way.
"""

import os
import signal
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from typing import Any

from rich.console import Console
from rich.text import Text

from tidelog.apps.cli import output
from tidelog.lab.modelcheck import verdicts
from tidelog.lab.mutants.catalogue import ESCAPED, MUTANTS
from tidelog.lab.mutants.hunt import hunt


@dataclass(frozen=True, slots=True)
class Prey:
    """A mutant to be hunted."""

    name: str
    rule: str
    """What it takes away."""
    source: str
    finder: str

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Caught:
    """How a hunt ended."""

    prey: Prey
    found: bool
    broke: str
    """What broke, or why it was not found."""
    where: str
    """How far away it broke: steps and states, or a seed."""
    seconds: float
    steps: tuple[str, ...]

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        data = asdict(self)
        return {**data.pop("prey"), **data}


def _published() -> dict[str, verdicts.Case]:
    cases = [*verdicts.mutants(), *verdicts.async_isr_cases()[1:]]
    return {case.model.replace(" ", "-"): case for case in cases}


def all_prey() -> list[Prey]:
    """Mutants of the shipped code first, then those of the published models."""
    shipped = [Prey(m.name, m.rule, m.source, m.finder) for m in MUTANTS]
    published = []
    for name, case in _published().items():
        model, _, rule = case.model.partition(" without ")
        source = f"published model of {model}, {case.size}"
        published.append(Prey(name, rule.replace("-", " "), source, "checker"))
    return shipped + published


def hunt_one(prey: Prey) -> Caught:
    """Hunt one mutant, alone in this process."""
    for mutant in MUTANTS:
        if mutant.name == prey.name:
            end = hunt(mutant)
            steps = tuple(end.steps)
            return Caught(prey, end.found, end.broke, end.where, end.seconds, steps)
    return _hunt_published(prey)


def _hunt_published(prey: Prey) -> Caught:
    row = next(verdicts.run([_published()[prey.name]], workers=1))
    found = row.exploration
    first = min(found.violations.values(), key=lambda v: v.depth, default=None)
    if first is None:
        missed = f"nothing in {found.states:,} states"
        return Caught(prey, False, missed, "", found.seconds, ())
    where = f"{first.depth} steps, {found.states:,} states"
    steps = tuple(step.action for step in first.path[1:])
    return Caught(prey, True, first.invariant, where, found.seconds, steps)


def _leave_interrupts() -> None:
    """An interrupt is for the parent, which ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def hunt_all(chosen: Sequence[Prey], workers: int | None, tell: output.Tell) -> list[Caught]:
    """Hunt them all, several at once; results in the order asked for."""
    workers = min(workers or os.cpu_count() or 1, len(chosen))
    caught: list[Caught] = []
    with get_context("spawn").Pool(workers, _leave_interrupts, maxtasksperchild=1) as pool:
        tell(0, chosen[0].name)
        for catch in pool.imap(hunt_one, chosen, chunksize=1):
            caught.append(catch)
            tell(len(caught), catch.prey.name)
    return caught


def show_list(screen: Console, chosen: Sequence[Prey]) -> None:
    """What each takes away."""
    table = output.table(("mutant", "rule it removes", "hunted by"))
    for prey in chosen:
        table.add_row(Text(prey.name, output.NAME), _rule(prey), prey.finder)
    output.show_table(screen, table)
    _name_escaped(screen)


def _name_escaped(screen: Console) -> None:
    names = ", ".join(mutant.name for mutant in ESCAPED)
    screen.print(Text(f"known, not hunted because nothing here finds it: {names}", output.FAINT))


def _rule(prey: Prey) -> Text:
    """The rule, and below it where it is known from."""
    return Text(prey.rule).append(f"\n{prey.source}", output.FAINT)


def show_catches(screen: Console, catches: Sequence[Caught]) -> None:
    """Which were found, by whom, how far away."""
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
