"""Charts as SVG, without a library: lines over sizes or time, and bars on both sides of a line.

Several charts form a grid in one picture.

Invariant: a picture needs no other file, and is readable on light and on dark background. Every
line has its own marks besides its colour, and a text describes the picture.

    picture([LineChart("Metadata", "partitions", "CPU ms", [Series("tidelog", points)])], "All")
"""

from collections.abc import Sequence
from html import escape
from math import floor, log10
from typing import NamedTuple

WIDTH, HEIGHT = 420, 290
"""The size of a line chart."""
LEFT, RIGHT, TOP = 58, 14, 48
LEGEND_H, AXIS_H = 17, 40
BAR_H, BAR_GAP = 15, 7
LETTER_PX = 6.4
COLOURS = 6
LOG, LINEAR = "log", "linear"

_STYLE = """
.pl{color-scheme:light dark;--ink:#17212b;--soft:#54616e;--paper:#ffffff;--grid:#e4e9ee;
--edge:#c3ccd5;--c0:#0b6fb8;--c1:#a85f00;--c2:#0b7a65;--c3:#7b4bb8;--c4:#b3261e;--c5:#54616e}
@media (prefers-color-scheme:dark){.pl{--ink:#e6edf3;--soft:#9fb0c0;--paper:#10161c;--grid:#222d37;
--edge:#3b4a58;--c0:#57b2f2;--c1:#f0a840;--c2:#3fcfae;--c3:#bd97f5;--c4:#ff8078;--c5:#9fb0c0}}
.pl text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;
fill:var(--ink)}
.pl .paper{fill:var(--paper)} .pl .title{font-size:13px;font-weight:600}
.pl .head{font-size:15px;font-weight:600}
.pl .soft,.pl .tick{fill:var(--soft)} .pl .tick{font-size:11px;font-variant-numeric:tabular-nums}
.pl .end{text-anchor:end} .pl .mid{text-anchor:middle}
.pl .grid{stroke:var(--grid)} .pl .frame{fill:none;stroke:var(--edge)}
.pl line.s0,.pl line.s1,.pl line.s2,.pl line.s3,.pl line.s4,.pl line.s5{stroke-width:2}
.pl .same{stroke:var(--ink);stroke-dasharray:4 3} .pl .span{stroke:var(--ink);stroke-width:1.4}
.pl .guide{stroke:var(--soft);stroke-dasharray:2 4;fill:none}
.pl polyline{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
""" + "".join(
    f".pl .s{n}{{stroke:var(--c{n})}} .pl .f{n}{{fill:var(--c{n})}}\n" for n in range(COLOURS)
)


class Series(NamedTuple):
    """One line; a `dashed` one is a bound or a guide, without marks."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


class LineChart(NamedTuple):
    """Lines over one axis. A log scale shows only values above 0."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    x_scale: str = LOG
    y_scale: str = LOG


class Bar(NamedTuple):
    """A value, the range of its rounds, and the note after its bar."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    note: str = ""
    colour: int = 0


class BarChart(NamedTuple):
    """Bars from `same_at` to their value; for ratios, right is better."""

    title: str
    axis: str
    bars: Sequence[Bar]
    same_at: float = 1.0
    scale: str = LOG
    label_px: int = 300


def picture(
    charts: Sequence[LineChart | BarChart], says: str, head: str = "", columns: int = 2
) -> str:
    """Return all charts in one SVG; `says` is its text for readers who can't see it."""
    columns = min(columns, len(charts))
    drawn = [
        _bars(chart) if isinstance(chart, BarChart) else _lines(chart, _legend_rows(charts))
        for chart in charts
    ]
    wide = max(width for _, width, _ in drawn)
    top = 32 if head else 6
    parts = []
    for first in range(0, len(drawn), columns):
        row = drawn[first : first + columns]
        for number, (body, _, _) in enumerate(row):
            parts.append(f'<g transform="translate({number * wide:.0f} {top:.0f})">{body}</g>')
        top += max(height for _, _, height in row)
    width, height = wide * columns, top + 6
    if head:
        parts.insert(0, _text(head, 12, 22, "head"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'role="img" class="pl"><title>{escape(says)}</title><style>{_STYLE}</style>'
        f'<rect width="100%" height="100%" class="paper"/>{"".join(parts)}</svg>\n'
    )


def ticks(low: float, high: float, scale: str, about: int = 5) -> list[float]:
    """Return round numbers between `low` and `high`."""
    if scale == LOG:
        powers = range(floor(log10(low)), floor(log10(high)) + 1)
        steps = (1,) if len(powers) > 3 else (1, 2, 5) if len(powers) < 3 else (1, 3)
        if len(powers) > 6:
            powers = powers[:: len(powers) // 5]
        marks = [step * 10.0**power for power in powers for step in steps]
    else:
        rough = (high - low) / about or 1.0
        power = 10.0 ** floor(log10(rough))
        step = next(m * power for m in (1, 2, 5, 10) if rough <= m * power)
        marks = [round((floor(low / step) + n) * step, 9) for n in range(about * 2 + 2)]
    return [mark for mark in marks if low * 0.999 <= mark <= high * 1.001]


def short(value: float) -> str:
    """Format a number for an axis."""
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{sign}"
    return f"{value:g}"


class _Scale(NamedTuple):
    """Maps values to pixels."""

    low: float
    high: float
    kind: str
    from_px: float
    to_px: float

    def at(self, value: float) -> float:
        low, high = self.low, self.high
        if self.kind == LOG:
            value, low, high = log10(max(value, low)), log10(low), log10(high)
        share = (value - low) / (high - low)
        return self.from_px + share * (self.to_px - self.from_px)


def _scale(values: Sequence[float], kind: str, from_px: float, to_px: float) -> _Scale:
    """Return a scale for all values: with a margin of 1.25 times if logarithmic, else with 0."""
    if kind == LOG:
        low, high = min(values, default=1.0) / 1.25, max(values, default=10.0) * 1.25
    else:
        low, high = min(0.0, *values, 0.0), max(values, default=1.0) * 1.05 or 1.0
    return _Scale(low, high, kind, from_px, to_px)


def _legend_rows(charts: Sequence[LineChart | BarChart]) -> int:
    """Return the rows of the longest legend, so that the axes of all panels align."""
    return max((len(c.series) + 1) // 2 for c in charts if isinstance(c, LineChart))


def _lines(chart: LineChart, legend_rows: int) -> tuple[str, float, float]:
    height = HEIGHT + legend_rows * LEGEND_H
    top, bottom = TOP + legend_rows * LEGEND_H, height - AXIS_H
    shown = [
        Series(one.name, [p for p in one.points if _can_be_seen(chart, p)], one.dashed)
        for one in chart.series
    ]
    xs = [x for one in shown for x, _ in one.points]
    ys = [y for one in shown for _, y in one.points]
    x = _scale(xs, chart.x_scale, LEFT, WIDTH - RIGHT)
    y = _scale(ys, chart.y_scale, bottom, top)
    parts = [_text(chart.title, 12, 18, "title"), _text(chart.y_label, 12, 34, "soft")]
    parts += [_grid(x, y, top, bottom), _text(chart.x_label, WIDTH - RIGHT, height - 8, "soft end")]
    for number, one in enumerate(shown):
        parts.append(_legend(one, number, 12 + number % 2 * 200, TOP + 9 + number // 2 * LEGEND_H))
        at = [(x.at(a), y.at(b)) for a, b in one.points]
        words = " ".join(f"{a:.1f},{b:.1f}" for a, b in at)
        css = "guide" if one.dashed else f"s{number % COLOURS}"
        parts.append(f'<polyline points="{words}" class="{css}"/>')
        if not one.dashed and len(at) <= 20:
            parts += [_mark(a, b, number) for a, b in at]
    return "".join(parts), WIDTH, height


def _can_be_seen(chart: LineChart, point: tuple[float, float]) -> bool:
    x, y = point
    return (chart.x_scale != LOG or x > 0) and (chart.y_scale != LOG or y > 0)


def _grid(x: _Scale, y: _Scale, top: float, bottom: float) -> str:
    parts = []
    for value in ticks(y.low, y.high, y.kind):
        at = y.at(value)
        parts.append(_line(x.from_px, x.to_px, at, at, "grid"))
        parts.append(_text(short(value), LEFT - 7, at + 4, "tick end"))
    for value in ticks(x.low, x.high, x.kind):
        at = x.at(value)
        parts.append(_line(at, at, top, bottom, "grid"))
        parts.append(_text(short(value), at, bottom + 15, "tick mid"))
    width, height = x.to_px - x.from_px, bottom - top
    parts.append(
        f'<rect x="{x.from_px}" y="{top}" width="{width}" height="{height}" class="frame"/>'
    )
    return "".join(parts)


def _legend(one: Series, number: int, left: float, top: float) -> str:
    css = "guide" if one.dashed else f"s{number % COLOURS}"
    line = _line(left, left + 22, top - 4, top - 4, css)
    mark = "" if one.dashed or len(one.points) > 20 else _mark(left + 11, top - 4, number)
    return line + mark + _text(one.name, left + 28, top, "")


def _mark(x: float, y: float, number: int) -> str:
    """Return a mark; lines have different shapes."""
    css = f"f{number % COLOURS}"
    shape = number % 4
    if shape == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.4" class="{css}"/>'
    if shape == 1:
        return f'<rect x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6" class="{css}"/>'
    if shape == 2:
        return f'<path d="M{x:.1f} {y - 4.2:.1f}l4 7h-8z" class="{css}"/>'
    return f'<path d="M{x:.1f} {y - 4.5:.1f}l4.5 4.5l-4.5 4.5l-4.5 -4.5z" class="{css}"/>'


def _bars(chart: BarChart) -> tuple[str, float, float]:
    left = chart.label_px
    note_px = max((len(bar.note) for bar in chart.bars), default=0) * LETTER_PX
    right = left + 400
    width, bottom = right + 14 + note_px, 34 + len(chart.bars) * (BAR_H + BAR_GAP)
    ends = [v for bar in chart.bars for v in (bar.value, bar.low, bar.high) if v is not None]
    x = _scale([*ends, chart.same_at], chart.scale, left, right)
    parts = [_text(chart.title, 12, 18, "title")]
    for value in ticks(x.low, x.high, x.kind):
        parts.append(_line(x.at(value), x.at(value), 28, bottom, "grid"))
        parts.append(_text(f"{value:g}", x.at(value), bottom + 15, "tick mid"))
    for number, bar in enumerate(chart.bars):
        top = 32 + number * (BAR_H + BAR_GAP)
        start, end = sorted((x.at(chart.same_at), x.at(bar.value)))
        parts.append(_text(bar.label, left - 8, top + 12, "end"))
        parts.append(
            f'<rect x="{start:.1f}" y="{top}" width="{max(end - start, 1):.1f}" '
            f'height="{BAR_H}" class="f{bar.colour % COLOURS}"/>'
        )
        if bar.low is not None and bar.high is not None:
            middle = top + BAR_H / 2
            parts.append(_line(x.at(bar.low), x.at(bar.high), middle, middle, "span"))
        parts.append(_text(bar.note, right + 8, top + 12, "tick"))
    parts.append(_line(x.at(chart.same_at), x.at(chart.same_at), 26, bottom, "same"))
    parts.append(_text(chart.axis, right, bottom + 31, "soft end"))
    return "".join(parts), width, bottom + AXIS_H


def _line(x1: float, x2: float, y1: float, y2: float, css: str) -> str:
    return f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" class="{css}"/>'


def _text(text: str, x: float, y: float, css: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{css}">{escape(text)}</text>' if text else ""
