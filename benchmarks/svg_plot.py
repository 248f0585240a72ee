"""Line charts as SVG, without a library: lines over sizes or time.

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


def picture(charts: Sequence[LineChart], description: str, head: str = "", columns: int = 2) -> str:
    """Return all charts in one SVG; `description` is for readers who can't see it."""
    columns = min(columns, len(charts))
    legend_rows = max((len(chart.series) + 1) // 2 for chart in charts)  # aligns all axes
    top = 32 if head else 6
    parts = []
    for number, chart in enumerate(charts):
        column = number % columns
        if number and not column:
            top += HEIGHT + legend_rows * LEGEND_H
        body = _lines(chart, legend_rows)
        parts.append(f'<g transform="translate({column * WIDTH} {top})">{body}</g>')
    width, height = WIDTH * columns, top + HEIGHT + legend_rows * LEGEND_H + 6
    if head:
        parts.insert(0, _text(head, 12, 22, "head"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'role="img" class="pl"><title>{escape(description)}</title><style>{_STYLE}</style>'
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


def _lines(chart: LineChart, legend_rows: int) -> str:
    height = HEIGHT + legend_rows * LEGEND_H
    top, bottom = TOP + legend_rows * LEGEND_H, height - AXIS_H
    shown = [
        Series(one.name, [p for p in one.points if _is_visible(chart, p)], one.dashed)
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
        corners = " ".join(f"{a:.1f},{b:.1f}" for a, b in at)
        css = "guide" if one.dashed else f"s{number % COLOURS}"
        parts.append(f'<polyline points="{corners}" class="{css}"/>')
        if not one.dashed and len(at) <= 20:
            parts += [_mark(a, b, number) for a, b in at]
    return "".join(parts)


def _is_visible(chart: LineChart, point: tuple[float, float]) -> bool:
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


def _line(x1: float, x2: float, y1: float, y2: float, css: str) -> str:
    return f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" class="{css}"/>'


def _text(text: str, x: float, y: float, css: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{css}">{escape(text)}</text>' if text else ""
