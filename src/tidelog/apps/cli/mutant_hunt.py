"""All mutants, of the shipped code and of the published models, hunted on all cores.

A hunt runs in a process of its own: a mutant is a second copy of the whole package, and
two copies at once would only get in each other's way.
"""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from typing import Any

from rich.console import Console
from rich.text import Text

from tidelog.apps.cli import output
from tidelog.lab.modelcheck import verdicts
from tidelog.lab.mutants.catalogue import MUTANTS
from tidelog.lab.mutants.hunt import hunt_with_checker


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
    depth: int
    states: int
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


def hunt(prey: Prey) -> Caught:
    """Hunt one mutant, alone in this process."""
    for mutant in MUTANTS:
        if mutant.name == prey.name:
            caught = hunt_with_checker(mutant)
            return Caught(
                prey, caught.found, caught.broke, caught.depth, caught.states, caught.seconds,
                tuple(caught.steps),
            )  # fmt: skip
    return _check_published(prey)


def _check_published(prey: Prey) -> Caught:
    row = next(verdicts.run([_published()[prey.name]], workers=1))
    found = row.exploration
    first = min(found.violations.values(), key=lambda v: v.depth, default=None)
    broke = first.invariant if first else f"nothing in {found.states:,} states"
    steps = tuple(step.action for step in first.path[1:]) if first else ()
    depth = first.depth if first else 0
    return Caught(prey, first is not None, broke, depth, found.states, found.seconds, steps)


def hunt_all(chosen: Sequence[Prey], workers: int | None, tell: output.Tell) -> list[Caught]:
    """Hunt them all, several at once; results in the order asked for."""
    workers = min(workers or os.cpu_count() or 1, len(chosen))
    caught: list[Caught] = []
    with get_context("spawn").Pool(workers, maxtasksperchild=1) as pool:
        tell(0, chosen[0].name)
        for catch in pool.imap(hunt, chosen, chunksize=1):
            caught.append(catch)
            tell(len(caught), catch.prey.name)
    return caught


def show_list(screen: Console, chosen: Sequence[Prey]) -> None:
    """What each takes away."""
    table = output.table(("mutant", "rule it removes", "known from", "found by"))
    for prey in chosen:
        table.add_row(Text(prey.name, output.NAME), prey.rule, prey.source, prey.finder)
    screen.print(table)


def show_catches(screen: Console, catches: Sequence[Caught]) -> None:
    """Which were found, by whom, how far away."""
    columns = ("mutant", "rule removed", "known from", "found by", "broken", "depth", "states", "s")
    table = output.table(columns, numbers=("depth", "states", "s"))
    for catch in catches:
        table.add_row(
            Text(catch.prey.name, output.NAME),
            catch.prey.rule,
            catch.prey.source,
            output.mark(catch.found, catch.prey.finder, "NOT FOUND"),
            catch.broke,
            str(catch.depth) if catch.found else "—",
            f"{catch.states:,}",
            f"{catch.seconds:.1f}",
        )
    screen.print(table)
    missed = [catch.prey.name for catch in catches if not catch.found]
    text = f"{len(catches) - len(missed)} of {len(catches)} mutants found"
    if missed:
        text += f"; not found: {', '.join(missed)}"
    screen.print(output.verdict_line(not missed, text))
