"""One panel of the picture: scales, axes, lines.

Invariants: all drawn points are inside the panel. A line has only points that make a visible
difference.
"""

from collections.abc import Iterable, Sequence
from html import escape
from math import floor, log10
from typing import NamedTuple

from tidelog.apps.demo.timeline import Piece

LETTER_PX = 6.7
"""The approximate width of a letter."""
NEAR_PX = 0.35
"""A point closer than this to the line between its neighbours is not drawn."""


def tag(name: str, text: str | None = None, /, **attributes: object) -> str:
    """Return an SVG element. In attribute names, `_` becomes `-`, and a trailing `_` is removed."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{written}/>" if text is None else f"<{name}{written}>{text}</{name}>"


def _number(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


class Panel(NamedTuple):
    """A rectangle of the picture, with the times and offsets at its edges."""

    left: float
    top: float
    width: float
    height: float
    from_s: float
    to_s: float
    low: float
    high: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def x(self, at_s: float) -> float:
        inside = min(max(at_s, self.from_s), self.to_s)
        return self.left + (inside - self.from_s) / (self.to_s - self.from_s) * self.width

    def y(self, offset: float) -> float:
        inside = min(max(offset, self.low), self.high)
        return self.bottom - (inside - self.low) / (self.high - self.low) * self.height

    def shows(self, from_s: float, to_s: float) -> bool:
        """Whether any part of this period is in the panel."""
        return to_s > self.from_s and from_s < self.to_s

    def line(self, pieces: Iterable[Piece], css: str) -> str:
        """Draw a line with gaps between its pieces."""
        drawn = []
        for piece in pieces:
            points = [(self.x(at_s), self.y(offset)) for at_s, offset in self._within(piece)]
            if len(points) == 1:
                points = [points[0], (points[0][0] + 1, points[0][1])]
            corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in simplified(points))
            if corners:
                drawn.append(tag("polyline", points=corners, class_=css))
        return "".join(drawn)

    def steps(self, points: Piece, css: str) -> str:
        """Draw a step line, which keeps its value until the next point."""
        corners: Piece = []
        for at_s, offset in points:
            if corners:
                corners.append((at_s, corners[-1][1]))
            corners.append((at_s, offset))
        return self.line([corners], css)

    def _within(self, piece: Piece) -> Piece:
        """Return the points of a piece inside the panel, cut at the edges."""
        kept: Piece = []
        for before, after in zip([None, *piece], piece, strict=False):
            if after[0] < self.from_s:
                continue
            if before is not None and before[0] < self.from_s:
                kept.append((self.from_s, _between(before, after, self.from_s)))
            if after[0] > self.to_s:
                if before is not None and before[0] < self.to_s:
                    kept.append((self.to_s, _between(before, after, self.to_s)))
                break
            kept.append(after)
        return kept

    def grid(self, seconds_unit: str = " s") -> str:
        """Draw the grid lines and the labels of both axes."""
        parts = []
        for offset in ticks(self.low, self.high, max(2, int(self.height / 45))):
            y = self.y(offset)
            parts.append(tag("line", x1=self.left, x2=self.right, y1=y, y2=y, class_="tl-grid"))
            parts.append(
                tag("text", f"{offset:,.0f}", x=self.left - 8, y=y + 4, class_="tl-tick tl-end")
            )
        for at_s in ticks(self.from_s, self.to_s, max(3, int(self.width / 90))):
            x = self.x(at_s)
            parts.append(
                tag("line", x1=x, x2=x, y1=self.top, y2=self.bottom, class_="tl-grid tl-faint")
            )
            parts.append(
                tag(
                    "text",
                    f"{at_s:g}{seconds_unit}",
                    x=x,
                    y=self.bottom + 17,
                    class_="tl-tick tl-mid",
                )
            )
        return "".join(parts)


def _between(before: tuple[float, int], after: tuple[float, int], at_s: float) -> int:
    share = (at_s - before[0]) / (after[0] - before[0])
    return round(before[1] + share * (after[1] - before[1]))


def ticks(low: float, high: float, about: int) -> list[float]:
    """Return round numbers between two values; `about` is the approximate count."""
    span = high - low
    if span <= 0:
        return [low]
    power = 10.0 ** floor(log10(span / about))
    step = next(m * power for m in (1, 2, 5, 10) if span / (m * power) <= about)
    first = floor(low / step)
    marks = [round((first + n) * step, 9) for n in range(about * 2 + 3)]
    return [mark for mark in marks if low <= mark <= high]


def simplified(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Remove the points that make no visible difference to the line."""
    if len(points) < 3:
        return list(points)
    kept = {0, len(points) - 1}
    open_ = [(0, len(points) - 1)]
    while open_:
        first, last = open_.pop()
        far, place = NEAR_PX, -1
        (x1, y1), (x2, y2) = points[first], points[last]
        for number in range(first + 1, last):
            x, y = points[number]
            on_line = y1 if x2 == x1 else y1 + (x - x1) / (x2 - x1) * (y2 - y1)
            if abs(y - on_line) > far:
                far, place = abs(y - on_line), number
        if place >= 0:
            kept.add(place)
            open_ += [(first, place), (place, last)]
    return [points[number] for number in sorted(kept)]
