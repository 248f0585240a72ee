"""The verdict table of the published models: run each model, compare it with known results.

The known results come from an independent checker (breadth-first, complete). A row is reproduced
when every verdict, the depth of every first violation and the number of states agree. A size
without known results still runs; its row is reproduced if the search reaches all its goals.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from tidelog.lab.modelcheck.explorer import Exploration, Model, ProgressCallback, explore
from tidelog.lab.modelcheck.published import async_isr, truncation_rules
from tidelog.lab.modelcheck.published.async_isr import AsyncIsr
from tidelog.lab.modelcheck.published.invariants import STRONG_ISR, WEAK_ISR
from tidelog.lab.modelcheck.published.packed_model import PackedModel
from tidelog.lab.modelcheck.published.replication import KafkaReplication, Size
from tidelog.lab.modelcheck.published.truncation_rules import (
    Kip101,
    Kip279,
    Kip320,
    Kip320FirstTry,
    TruncateToHighWatermark,
)

TWO_REPLICAS = Size(2, 2, 2, 2)
THREE_REPLICAS = Size(3, 2, 2, 2)
ASYNC_ISR_SIZE = "3 replicas, offsets<=2, versions<=3"

RULES: tuple[Callable[[], KafkaReplication], ...] = (
    TruncateToHighWatermark,
    Kip101,
    Kip279,
    Kip320FirstTry,
    Kip320,
)


class Expected(NamedTuple):
    """The number of states if known, and the depth of each broken invariant's first violation."""

    states: int | None
    violations: Mapping[str, int]


def _isr(states: int, weak: int | None = None, strong: int | None = None) -> Expected:
    depths = {WEAK_ISR: weak, STRONG_ISR: strong}
    return Expected(states, {name: depth for name, depth in depths.items() if depth is not None})


KNOWN: dict[tuple[str, Size], Expected] = {
    ("truncate-to-high-watermark", TWO_REPLICAS): _isr(5_066, weak=8, strong=9),
    ("kip-101", TWO_REPLICAS): _isr(4_523, weak=11, strong=11),
    ("kip-279", TWO_REPLICAS): _isr(4_514),
    ("kip-320-first-try", TWO_REPLICAS): _isr(4_215),
    ("kip-320", TWO_REPLICAS): _isr(2_987),
    ("truncate-to-high-watermark", THREE_REPLICAS): _isr(332_037, weak=8, strong=8),
    ("kip-101", THREE_REPLICAS): _isr(269_488, weak=10, strong=10),
    ("kip-279", THREE_REPLICAS): _isr(270_050, weak=10, strong=10),
    ("kip-320-first-try", THREE_REPLICAS): _isr(240_028, weak=11, strong=12),
    ("kip-320", THREE_REPLICAS): _isr(123_311),
    ("kip-279", Size(2, 2, 2, 3)): _isr(26_550),
    ("kip-320-first-try", Size(2, 2, 2, 3)): _isr(23_233),
    ("kip-320", Size(2, 2, 2, 3)): _isr(14_470),
    ("kip-279", Size(2, 3, 3, 3)): _isr(112_881),
    ("kip-320-first-try", Size(2, 3, 3, 3)): _isr(98_487),
    ("kip-320", Size(2, 3, 3, 3)): _isr(60_440),
    ("kip-320", Size(3, 2, 2, 3)): _isr(1_665_204),
}

KNOWN_UNREDUCED: dict[tuple[str, Size], Expected] = {
    ("truncate-to-high-watermark", TWO_REPLICAS): _isr(10_131, weak=8, strong=9),
    ("kip-101", TWO_REPLICAS): _isr(9_045, weak=11, strong=11),
    ("kip-279", TWO_REPLICAS): _isr(9_027),
    ("kip-320-first-try", TWO_REPLICAS): _isr(8_429),
    ("kip-320", TWO_REPLICAS): _isr(5_973),
    ("kip-320", THREE_REPLICAS): _isr(737_794),
}

KNOWN_MUTANTS: dict[str, Expected] = {
    truncation_rules.EPOCH_IN_COMMIT: _isr(124_073, weak=12, strong=12),
    truncation_rules.EPOCH_IN_FETCH: _isr(144_225, weak=12),
    truncation_rules.EPOCH_IN_EXPAND: _isr(134_589, weak=14, strong=14),
    truncation_rules.OWN_EPOCH_IN_EXPAND: _isr(150_577, weak=13, strong=11),
    truncation_rules.EPOCH_IN_TRUNCATION: _isr(145_899, weak=13, strong=13),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One row to run: a model at a size, and its known results."""

    model: str
    size: str
    build: Callable[[], Model[Any]]
    expected: Expected | None


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table."""

    case: Case
    exploration: Exploration
    verdicts: dict[str, int | None]
    """For each invariant, the depth of its first violation, or None if it holds."""

    @property
    def reproduced(self) -> bool:
        outcome, expected = self.exploration, self.case.expected
        if not outcome.complete or outcome.missed_goals:
            return False
        if expected is None:
            return True
        broken = {name: depth for name, depth in self.verdicts.items() if depth is not None}
        return broken == dict(expected.violations) and expected.states in (None, outcome.states)

    def as_data(self) -> dict[str, Any]:
        outcome, expected = self.exploration, self.case.expected
        return {
            "model": self.case.model,
            "size": self.case.size,
            "holds": outcome.holds,
            "verdicts": self.verdicts,
            "states": outcome.states,
            "depth": outcome.depth,
            "goals": outcome.goals,
            "missed_goals": list(outcome.missed_goals),
            "workers": outcome.workers,
            "seconds": round(outcome.seconds, 3),
            "cpu_seconds": round(outcome.cpu_seconds, 3),
            "states_per_second": round(outcome.states_per_second),
            "expected_states": expected.states if expected else None,
            "expected_violations": dict(expected.violations) if expected else None,
            "reproduced": self.reproduced,
        }


def table(size: Size, *, symmetric: bool = True) -> list[Case]:
    """Return the five rules at one size."""
    known = KNOWN if symmetric else KNOWN_UNREDUCED
    cases = []
    for rule in RULES:
        rules = rule()
        build = partial(PackedModel, rules, size, symmetric=symmetric)
        cases.append(Case(rules.name, str(size), build, known.get((rules.name, size))))
    return cases


def mutants(size: Size = THREE_REPLICAS) -> list[Case]:
    """Return KIP-320 without each of its five rules in turn. Two replicas need none of them."""
    cases = []
    for rule in truncation_rules.RULES:
        rules = Kip320(without=rule)
        expected = KNOWN_MUTANTS[rule] if size == THREE_REPLICAS else None
        cases.append(Case(rules.name, str(size), partial(PackedModel, rules, size), expected))
    return cases


def async_isr_cases() -> list[Case]:
    """Return AsyncIsr and its two mutants. The known count is that without symmetry reduction."""
    whole = partial(AsyncIsr, symmetric=False)
    cases = [Case("async-isr", ASYNC_ISR_SIZE, whole, Expected(22_456, {}))]
    for rule in async_isr.RULES:
        build = partial(AsyncIsr, without=rule)
        expected = Expected(None, {async_isr.VALID_HIGH_WATERMARK: 6})
        cases.append(Case(f"async-isr without {rule}", ASYNC_ISR_SIZE, build, expected))
    return cases


def run(
    cases: Iterable[Case], *, workers: int | None = None, progress: ProgressCallback | None = None
) -> Iterator[Row]:
    """Run the cases; yield each row when its search ends."""
    for case in cases:
        model = case.build()
        outcome = explore(model, workers=workers, progress=progress)
        depths = {name: violation.depth for name, violation in outcome.violations.items()}
        yield Row(case, outcome, {name: depths.get(name) for name in model.invariants})


def exit_status(rows: Collection[Row]) -> int:
    """Return 0 if every row is reproduced, otherwise 1."""
    return 0 if all(row.reproduced for row in rows) else 1
