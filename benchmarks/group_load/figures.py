"""The best of several rounds of each job on each target, and a table of them."""

import statistics
from collections.abc import Sequence
from typing import Any

from group_load.targets import MOCK, TIDELOG, Stopwatch, Target

MORE_IS_BETTER = ("/s",)


class Figures:
    """Figures by job, in the order in which jobs first ran."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, list[dict[str, Any]]]] = {}
        self._units: dict[str, str] = {}

    def note(
        self, job: str, target: Target, figure: float, unit: str, watch: Stopwatch | None = None
    ) -> None:
        self._units[job] = unit
        found: dict[str, Any] = {"figure": figure}
        if watch is not None:
            found["broker_cpu_s"] = watch.broker_cpu
            found["foreign_load"] = watch.foreign_load
        self._found.setdefault(job, {}).setdefault(target.name, []).append(found)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row for each job, with the best and the worst round of each target."""
        rows = []
        for job, by_target in self._found.items():
            unit = self._units[job]
            more = unit.endswith(MORE_IS_BETTER)
            row: dict[str, Any] = {"job": job, "unit": unit}
            for name, rounds in by_target.items():
                ordered = sorted(rounds, key=lambda one: float(one["figure"]), reverse=more)
                row[name] = {**ordered[0], "worst": ordered[-1]["figure"], "rounds": len(rounds)}
            row["times_as_good_as_the_mock"] = _ratio(row, more)
            rows.append(row)
        return rows

    def table(self) -> str:
        heading = (
            f"{'job':64} {'tidelog':>16} {'worst':>8} {'mock':>16} {'ratio':>6}"
            f" {'CPU s':>7} {'mock CPU':>8} {'others':>6}"
        )
        return "\n".join([heading, *map(_line, self.rows())])


def _ratio(row: dict[str, Any], more: bool) -> float | None:
    if TIDELOG not in row or MOCK not in row:
        return None
    ours, theirs = row[TIDELOG]["figure"], row[MOCK]["figure"]
    if not ours or not theirs:
        return None
    return float(ours / theirs if more else theirs / ours)


def _line(row: dict[str, Any]) -> str:
    ours, theirs = row.get(TIDELOG, {}), row.get(MOCK, {})
    unit, ratio = row["unit"], row["times_as_good_as_the_mock"]
    return (
        f"{row['job']:64} {_format(ours.get('figure'), unit):>16} {_format(ours.get('worst')):>8}"
        f" {_format(theirs.get('figure'), unit):>16} {_format(ratio):>6}"
        f" {_format(ours.get('broker_cpu_s')):>7} {_format(theirs.get('broker_cpu_s')):>8}"
        f" {_format(ours.get('foreign_load')):>6}"
    )


def _format(figure: float | None, unit: str = "") -> str:
    if figure is None:
        return "-"
    digits = 0 if figure >= 1000 else 1 if figure >= 100 else 2 if figure >= 10 else 3
    return f"{figure:.{digits}f} {unit}".strip()


def percentile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
