"""The growth of a cost: its value at each size, and the exponent of the size that fits it.

A cost has a fixed part and a part that grows. At small sizes the fixed part hides the other, so the
verdict uses the upper half of the sizes.

Invariant: each row has a bound on its growth, and the table marks a row that exceeds it.
"""

from collections.abc import Sequence
from math import log
from typing import Any, NamedTuple

FLAT, LINEAR = "flat", "linear"
FLAT_MAX, LINEAR_MAX = 0.2, 1.15
"""The largest exponents of flat and of linear costs; between them a cost grows sublinearly."""
POWERS = {FLAT: FLAT_MAX, LINEAR: LINEAR_MAX}
MEMORY_MB_MIN = 1.0
"""Smaller values are within the noise of the memory allocator."""
NOTICEABLE = 1.5
"""A cost is flat if its value at the largest size is below this multiple of its minimum.

This holds whatever exponent fits a few noisy points.
"""


class Row(NamedTuple):
    """One cost over sizes of one dimension."""

    axis: str
    """The dimension that grows."""
    name: str
    unit: str
    bound: str
    """The allowed growth: FLAT or LINEAR."""
    points: list[tuple[float, float]]

    @property
    def _visible(self) -> list[tuple[float, float]]:
        """The points that a log scale can show."""
        least = MEMORY_MB_MIN if self.unit == "MB" else 0.0
        return [point for point in self.points if point[0] > 0 and point[1] > least]

    @property
    def power(self) -> float | None:
        """The exponent that fits the upper half of the sizes, at least three of them."""
        return slope(self._visible[-max(3, (len(self._visible) + 1) // 2) :])

    @property
    def verdict(self) -> str:
        power = self.power
        if power is None:
            return "-"
        costs = [cost for _, cost in self._visible]
        if power <= FLAT_MAX or costs[-1] < min(costs) * NOTICEABLE:
            return "flat"
        return "less than linear" if power < 0.85 else "linear" if power <= LINEAR_MAX else "worse"

    @property
    def within_bound(self) -> bool:
        """Whether the cost grows no faster than its bound."""
        flat = self.verdict == "flat"
        return flat or self.power is None or self.power <= POWERS[self.bound]


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Return the exponent of x that fits y: least squares on logarithms."""
    if len(points) < 2:
        return None
    xs, ys = [log(x) for x, _ in points], [log(y) for _, y in points]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - x_mean) ** 2 for x in xs)
    return sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / spread


class Results:
    """All rows, in the order of their first points."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Row] = {}

    def add(self, axis: str, name: str, size: float, cost: float, unit: str, bound: str) -> None:
        row = self._rows.setdefault((axis, name), Row(axis, name, unit, bound, []))
        row.points.append((size, cost))

    @property
    def rows(self) -> list[Row]:
        return list(self._rows.values())

    def table(self) -> str:
        """Return a readable table with one block for each dimension."""
        lines: list[str] = []
        axis, sizes = "", ()
        for row in self.rows:
            found = tuple(size for size, _ in row.points)
            if (axis, sizes) != (row.axis, found):
                axis, sizes = row.axis, found
                lines += ["", f"{axis:50}" + "".join(f"{size:>9,.0f}" for size in sizes)]
            costs = "".join(f"{short(cost):>9}" for _, cost in row.points)
            power = "" if row.power is None else f"  ^{row.power:5.2f}"
            mark = "" if row.within_bound else f"  MORE THAN {row.bound.upper()}"
            lines.append(f"  {row.name + ', ' + row.unit:48}{costs}{power}  {row.verdict}{mark}")
        return "\n".join(lines[1:])

    def as_json(self) -> list[dict[str, Any]]:
        return [
            {
                **row._asdict(),
                "power": row.power,
                "verdict": row.verdict,
                "within_bound": row.within_bound,
            }
            for row in self.rows
        ]

    @classmethod
    def from_json(cls, rows: Sequence[dict[str, Any]]) -> "Results":
        results = cls()
        for row in rows:
            for size, cost in row["points"]:
                results.add(row["axis"], row["name"], size, cost, row["unit"], row["bound"])
        return results


def short(cost: float) -> str:
    """Format a cost with three significant digits; from 1,000 on as a whole number."""
    return f"{cost:,.0f}" if cost >= 1000 else f"{cost:.3g}"
