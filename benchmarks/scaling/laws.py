"""How a cost grows: what was measured at each size, and the power of the size it goes with.

A cost is a fixed part and a part that grows. At small sizes the fixed part hides the other, so
the verdict goes by the upper half of the sizes. Always true: a row knows how it may grow, so a
row that grows faster says so by itself.
"""

from collections.abc import Sequence
from math import log
from typing import Any, NamedTuple

FLAT, LINEAR = "flat", "linear"
FLAT_MAX, LINEAR_MAX = 0.2, 1.15
"""The largest powers that are called so; between them a cost grows, but less than its size."""
POWERS = {FLAT: FLAT_MAX, LINEAR: LINEAR_MAX}
MEMORY_MB_MIN = 1.0
"""Less can't be told from what an allocator does anyway."""
NOTICEABLE = 1.5
"""A cost at the largest size that is less than so many times the least one is flat, whatever
the power of a few noisy points says."""


class Row(NamedTuple):
    """One cost over sizes of one thing."""

    axis: str
    """What grows."""
    name: str
    unit: str
    may_be: str
    """FLAT or LINEAR."""
    points: list[tuple[float, float]]

    @property
    def _seen(self) -> list[tuple[float, float]]:
        """What can be put on a scale of logarithms."""
        least = MEMORY_MB_MIN if self.unit == "MB" else 0.0
        return [point for point in self.points if point[0] > 0 and point[1] > least]

    @property
    def power(self) -> float | None:
        """Of the upper half of the sizes, three at least."""
        return slope(self._seen[-max(3, (len(self._seen) + 1) // 2) :])

    @property
    def verdict(self) -> str:
        power = self.power
        if power is None:
            return "-"
        costs = [cost for _, cost in self._seen]
        if power <= FLAT_MAX or costs[-1] < min(costs) * NOTICEABLE:
            return "flat"
        return "less than linear" if power < 0.85 else "linear" if power <= LINEAR_MAX else "worse"

    @property
    def as_it_should(self) -> bool:
        """Whether it grows no faster than it may."""
        flat = self.verdict == "flat"
        return flat or self.power is None or self.power <= POWERS[self.may_be]


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """The power of x that y goes with: least squares on logarithms."""
    if len(points) < 2:
        return None
    xs, ys = [log(x) for x, _ in points], [log(y) for _, y in points]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - x_mean) ** 2 for x in xs)
    return sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / spread


class Book:
    """All rows, in the order in which they were first noted."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Row] = {}

    def note(self, axis: str, name: str, size: float, cost: float, unit: str, may_be: str) -> None:
        row = self._rows.setdefault((axis, name), Row(axis, name, unit, may_be, []))
        row.points.append((size, cost))

    @property
    def rows(self) -> list[Row]:
        return list(self._rows.values())

    def table(self) -> str:
        """For people: one block for each thing that grows."""
        lines: list[str] = []
        axis, sizes = "", ()
        for row in self.rows:
            found = tuple(size for size, _ in row.points)
            if (axis, sizes) != (row.axis, found):
                axis, sizes = row.axis, found
                lines += ["", f"{axis:50}" + "".join(f"{size:>9,.0f}" for size in sizes)]
            costs = "".join(f"{short(cost):>9}" for _, cost in row.points)
            power = "" if row.power is None else f"  ^{row.power:5.2f}"
            mark = "" if row.as_it_should else f"  MORE THAN {row.may_be.upper()}"
            lines.append(f"  {row.name + ', ' + row.unit:48}{costs}{power}  {row.verdict}{mark}")
        return "\n".join(lines[1:])

    def as_json(self) -> list[dict[str, Any]]:
        return [
            {**row._asdict(), "power": row.power, "verdict": row.verdict, "fair": row.as_it_should}
            for row in self.rows
        ]

    @classmethod
    def from_json(cls, rows: Sequence[dict[str, Any]]) -> "Book":
        book = cls()
        for row in rows:
            for size, cost in row["points"]:
                book.note(row["axis"], row["name"], size, cost, row["unit"], row["may_be"])
        return book


def short(cost: float) -> str:
    """Three digits of it."""
    return f"{cost:,.0f}" if cost >= 1000 else f"{cost:.3g}"
