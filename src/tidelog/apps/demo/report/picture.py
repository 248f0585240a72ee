"""Draw log end offsets (LEO), high watermark, ISR and leader epochs over time, as one SVG.

The upper panel shows offsets. Each replica's log end is a line with its own width, widest first, so
that overlapping lines are all visible. The dotted line is the high watermark. The stripes in the
background are leader epochs.

Below, each replica has a lane and a strip. The lane shows how far its log end is above its high
watermark. The strip shows when it is in sync, out of sync, down, or the leader.

Invariant: the picture needs no external resource, and its text describes its content.

`python -m tidelog.apps.demo.report.picture HISTORY FILE` draws the history of a run to a file. Use
it with a run of `tidelog demo --no-spark` to update docs/tutorial/killed-leader.svg.
"""

import sys
from html import escape
from itertools import pairwise
from math import sqrt
from typing import NamedTuple

from tidelog.apps.demo.history import read_history
from tidelog.apps.demo.report import style
from tidelog.apps.demo.report.plot import LETTER_PX, Panel, tag
from tidelog.apps.demo.timeline import (
    DOWN,
    IN_SYNC,
    LeaderPeriod,
    Piece,
    Span,
    Timeline,
    build_timeline,
)

LANE_H, BAR_H = 28, 15
ROW_H = LANE_H + BAR_H + 12
LANES_TITLE = "log end − high watermark, in records (√ scale)"
LANES_TITLE_H = 22
MARK_ROW_H = 17
MARK_ROWS = 4
SHORT_MARKS = {"start": "restarts", "whole": "in sync again"}
"""Labels for a narrow picture, by kind of mark."""
LEGEND_H = 22
_AROUND_S = 1.5
"""How much time the picture shows before the kill and after the restart."""
TOGETHER_S = 9.0
"""If the broker was down for longer, a second picture shows its restart."""


class Shape(NamedTuple):
    """The size of a picture, and its name within the page."""

    width: int
    plot_height: int
    name: str

    @property
    def narrow(self) -> bool:
        return self.width < 600


class Window(NamedTuple):
    """The period to draw."""

    from_s: float
    to_s: float


def whole(timeline: Timeline) -> Window:
    """Return the window of the whole run."""
    return Window(0.0, max(timeline.seconds, 1.0))


def around_the_kill(timeline: Timeline) -> list[tuple[str, Window]]:
    """Return titled windows from before the kill until all replicas are in sync again.

    One window, or two if the broker was down for long. The list is empty if no broker was killed.
    """
    at = {mark.kind: mark.at_s for mark in timeline.marks}
    if "kill" not in at:
        return []
    killed, started = at["kill"], at.get("start", at["kill"])
    whole_s = max(at.get("whole", started), started)
    if whole_s - killed <= TOGETHER_S:
        window = _clipped(timeline, killed, whole_s)
        return [(f"Around the kill: {window.to_s - window.from_s:.1f} seconds", window)]
    kill = _clipped(timeline, killed, killed + _AROUND_S)
    back = _clipped(timeline, started, whole_s)
    return [
        (f"The kill: {kill.to_s - kill.from_s:.1f} seconds", kill),
        (f"The restart: {back.to_s - back.from_s:.1f} seconds", back),
    ]


def _clipped(timeline: Timeline, from_s: float, to_s: float) -> Window:
    return Window(max(0.0, from_s - _AROUND_S), min(to_s + _AROUND_S, timeline.seconds))


def draw(timeline: Timeline, window: Window, shape: Shape, title: str) -> str:
    """Return the SVG for use inside the page."""
    legend, legend_h = _legend(timeline, shape)
    left = 70 if shape.narrow else 78
    top = legend_h + 38
    low, high = _range(timeline, window)
    width = shape.width - left - 12
    panel = Panel(left, top, width, shape.plot_height, *window, low, high)
    below = panel.bottom + 28
    rows_top = below + LANES_TITLE_H
    height = rows_top + ROW_H * len(timeline.brokers) - 2
    lanes = GapLanes(timeline, panel)
    parts = [
        tag("title", escape(title), id=f"{shape.name}-title"),
        tag("desc", escape(description(timeline)), id=f"{shape.name}-desc"),
        _definitions(timeline, panel, shape),
        legend,
        _bands(timeline, panel),
        panel.grid(),
        _lines(timeline, panel, shape),
        tag(
            "rect",
            x=panel.left,
            y=panel.top,
            width=panel.width,
            height=panel.height,
            class_="tl-frame",
        ),
        lanes.title(below),
        *(
            lanes.draw(broker, place, rows_top + place * ROW_H)
            for place, broker in enumerate(timeline.brokers)
        ),
        _strips(timeline, panel, shape, rows_top + LANE_H + 1),
        _marks(timeline, panel, shape, rows_top, height - 6),
    ]
    return tag(
        "svg",
        "".join(parts),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {shape.width} {height:.0f}",
        role="img",
        aria_labelledby=f"{shape.name}-title {shape.name}-desc",
        class_="tl",
    )


def alone(timeline: Timeline, window: Window, shape: Shape, title: str) -> str:
    """Return the SVG as a separate file, with its colours and a background."""
    drawn = draw(timeline, window, shape, title)
    head, _, rest = drawn.partition(">")
    css = style.COLOURS.replace(":root", ".tl") + style.PICTURE
    ground = tag("rect", width="100%", height="100%", class_="tl-plain")
    return f"{head}>{tag('style', css)}{ground}{rest}\n"


def description(timeline: Timeline) -> str:
    """Return a text description of the picture."""
    leader_periods = "; ".join(
        f"epoch {r.epoch}: broker {r.leader} leads from {r.from_s:.1f} s to {r.to_s:.1f} s"
        for r in timeline.leader_periods
    )
    marks = "; ".join(f"{mark.text} at {mark.at_s:.1f} s" for mark in timeline.marks)
    return (
        f"Log end offsets of {len(timeline.brokers)} replicas and their high watermark grow from 0"
        f" to {timeline.newest:,} in {timeline.seconds:.0f} s. {leader_periods}. {marks}."
    )


# -- parts -----------------------------------------------------------------------------------


def _range(timeline: Timeline, window: Window) -> tuple[float, float]:
    lines = [*timeline.log_ends.values(), timeline.committed]
    seen = [
        offset
        for line in lines
        for piece in line
        for at_s, offset in piece
        if window.from_s <= at_s <= window.to_s
    ]
    low, high = min(seen, default=0), max(seen, default=1)
    if window.from_s <= 0:
        return 0.0, max(high, 1) * 1.04
    room = max(high - low, 10) * 0.06
    return max(0.0, low - room), high + room


def _definitions(timeline: Timeline, panel: Panel, shape: Shape) -> str:
    clip = tag(
        "clipPath",
        tag("rect", x=panel.left, y=panel.top, width=panel.width, height=panel.height),
        id=f"{shape.name}-clip",
    )
    hatches = "".join(
        tag(
            "pattern",
            tag("path", d="M0 6L6 0", class_=f"tl-s{place}", stroke_width=2),
            id=f"{shape.name}-out{place}",
            width=6,
            height=6,
            patternUnits="userSpaceOnUse",
        )
        for place in range(len(timeline.brokers))
    )
    return tag("defs", clip + hatches)


def _legend(timeline: Timeline, shape: Shape) -> tuple[str, float]:
    """Return the legend of the lines, and its height."""
    entries = [(f"tl-r{n}", f"broker {b}: log end") for n, b in enumerate(timeline.brokers)]
    entries.append(("tl-hw", "high watermark"))
    if timeline.landed:
        entries.append(("tl-lake", "landed in the lake"))
    parts = []
    x, y = 6.0, 12.0
    for css, text in entries:
        wide = 34 + len(text) * LETTER_PX + 18
        if x > 6 and x + wide > shape.width:
            x, y = 6.0, y + LEGEND_H
        parts.append(tag("polyline", points=f"{x},{y} {x + 26},{y}", class_=css))
        parts.append(tag("text", text, x=x + 34, y=y + 4))
        x += wide
    return "".join(parts), y + 8


def _bands(timeline: Timeline, panel: Panel) -> str:
    parts = []
    for number, period in enumerate(timeline.leader_periods):
        later = timeline.leader_periods[number + 1 :]
        until_s = later[0].from_s if later else panel.to_s
        if not panel.shows(period.from_s, until_s):
            continue
        x, end = panel.x(period.from_s), panel.x(until_s)
        css = "tl-plain" if number % 2 == 0 else "tl-band"
        size = {"x": x, "y": panel.top, "width": end - x, "height": panel.height}
        parts.append(tag("rect", tag("title", _period_label(period)), **size, class_=css))
        label = _fitting(
            end - x, [_period_label(period), f"epoch {period.epoch}", f"{period.epoch}"]
        )
        parts.append(tag("text", label, x=x + 6, y=panel.top - 7, class_="tl-name"))
        parts.append(tag("line", x1=x, x2=x, y1=panel.top - 20, y2=panel.top, class_="tl-frame"))
    return "".join(parts)


def _period_label(period: LeaderPeriod) -> str:
    return f"epoch {period.epoch}: broker {period.leader} leads"


def _fitting(room: float, texts: list[str]) -> str:
    """Return the first text that fits; `texts` starts with the longest."""
    return next((t for t in texts if len(t) * LETTER_PX + 10 <= room), "")


def _lines(timeline: Timeline, panel: Panel, shape: Shape) -> str:
    parts = []
    for place, pieces in enumerate(timeline.log_ends.values()):
        parts.append(panel.line(pieces, f"tl-r{place}"))
        parts.append(panel.line(_while_down(pieces), f"tl-r{place} tl-gone"))
    parts.append(panel.line(timeline.committed, "tl-hw"))
    if timeline.landed:
        parts.append(panel.steps(_extended(timeline.landed, panel.to_s), "tl-lake"))
    return tag("g", "".join(parts), clip_path=f"url(#{shape.name}-clip)")


def _while_down(pieces: list[Piece]) -> list[Piece]:
    """Return lines that keep the last known log end while a broker is down."""
    return [[before[-1], (after[0][0], before[-1][1])] for before, after in pairwise(pieces)]


def _extended(points: Piece, end_s: float) -> Piece:
    """Extend a step line to `end_s` at its last value."""
    return [*points, (max(end_s, points[-1][0]), points[-1][1])]


def _strips(timeline: Timeline, panel: Panel, shape: Shape, top: float) -> str:
    parts = []
    for place, (broker, spans) in enumerate(timeline.states.items()):
        y = top + place * ROW_H
        parts.append(
            tag("text", f"broker {broker}", x=panel.left - 8, y=y + 12, class_="tl-end tl-name")
        )
        for span in spans:
            if not panel.shows(span.from_s, span.to_s):
                continue
            x, end = panel.x(span.from_s), panel.x(span.to_s)
            size = {"x": x, "y": y, "width": max(end - x, 1.0), "height": BAR_H, "rx": 2}
            tooltip = tag(
                "title",
                f"broker {broker}: {span.what}, {span.from_s:.1f} s to {span.to_s:.1f} s",
            )
            if span.what == IN_SYNC:
                parts.append(tag("rect", tooltip, **size, class_=f"tl-f{place} tl-in"))
            elif span.what == DOWN:
                parts.append(tag("rect", tooltip, **size, class_="tl-down"))
            else:
                hatch = f"url(#{shape.name}-out{place})"
                parts.append(tag("rect", tooltip, **size, fill=hatch, class_=f"tl-s{place}"))
            if span.what != IN_SYNC:
                text = _fitting(end - x, [span.what, span.what.split()[0]])
                middle = x + (end - x) / 2
                parts.append(tag("text", text, x=middle, y=y + 12, class_="tl-tick tl-mid"))
        parts.append(_leader_strip(timeline, panel, place, broker, y))
    return "".join(parts)


def _leader_strip(timeline: Timeline, panel: Panel, place: int, broker: int, y: float) -> str:
    """Draw the parts of a strip where the replica leads, in full colour."""
    parts = []
    for period in timeline.leader_periods:
        if period.leader == broker and panel.shows(period.from_s, period.to_s):
            x, end = panel.x(period.from_s), panel.x(period.to_s)
            bar = {"x": x, "y": y, "width": max(end - x, 1.0), "height": BAR_H, "rx": 2}
            parts.append(tag("rect", **bar, class_=f"tl-f{place}"))
            text = _fitting(end - x, [f"leads, epoch {period.epoch}", "leads"])
            parts.append(tag("text", text, x=x + 5, y=y + 11.5, class_="tl-on"))
    return "".join(parts)


def _marks(timeline: Timeline, panel: Panel, shape: Shape, below: float, bottom: float) -> str:
    parts = []
    taken: list[_Place] = []
    for mark in timeline.marks:
        if not panel.shows(mark.at_s - 0.001, mark.at_s + 0.001):
            continue
        x = panel.x(mark.at_s)
        for top, end in ((panel.top, panel.bottom), (below, bottom)):
            parts.append(tag("line", x1=x, x2=x, y1=top, y2=end, class_=f"tl-{mark.kind}"))
        text = SHORT_MARKS.get(mark.kind, mark.text) if shape.narrow else mark.text
        place = _free_place(text, x, panel, taken, right=shape.narrow or mark.kind == "whole")
        taken.append(place)
        css = f"tl-halo tl-{mark.kind}" + (" tl-end" if place.left else "")
        at = {"x": place.to_x if place.left else place.from_x, "y": place.y(panel)}
        parts.append(tag("text", escape(text), **at, class_=css))
    return "".join(parts)


class _Place(NamedTuple):
    """The position of a mark's text: low in the panel, where rising lines leave space."""

    row: int
    from_x: float
    to_x: float
    left: bool
    """Whether the text is left of the mark's line, and right-aligned."""

    def y(self, panel: Panel) -> float:
        return panel.bottom - 8 - self.row * MARK_ROW_H

    def free(self, taken: list["_Place"], panel: Panel) -> bool:
        inside = self.from_x >= panel.left and self.to_x <= panel.right
        return inside and not any(
            self.row == other.row and self.from_x < other.to_x and other.from_x < self.to_x
            for other in taken
        )


def _free_place(text: str, x: float, panel: Panel, taken: list[_Place], *, right: bool) -> _Place:
    """Return a free place, lowest row first. With `right`, try the right side of the line first."""
    wide = len(text) * LETTER_PX + 4
    places = [
        _Place(row, x - 6 - wide if left else x + 6, x - 6 if left else x + 6 + wide, left)
        for row in range(MARK_ROWS)
        for left in (not right, right)
    ]
    return next((place for place in places if place.free(taken, panel)), places[-1])


# -- lanes: records above the high watermark ------------------------------------------------------


class GapLanes:
    """The lanes of one picture: how many records each replica has above its own high watermark.

    In the offset panel, the lines of log end and high watermark overlap. The lanes show their
    difference, with one needle per response (the highest one if several share a pixel). A replica
    reports both values in one response, so the time between two requests adds no difference.
    The scale is the square root: it shows a few records next to the hundred that wait during a
    failover.

    Invariant: all lanes have the same scale, which fits replicas in sync. A restarted replica first
    knows an old high watermark. Its needles are clipped at the top, with the largest value as text.
    """

    def __init__(self, timeline: Timeline, panel: Panel) -> None:
        self._panel = panel
        self._gaps = {
            broker: [point for piece in pieces for point in piece if _within(point, panel)]
            for broker, pieces in timeline.gaps.items()
        }
        in_sync = [
            gap
            for broker, points in self._gaps.items()
            for at_s, gap in points
            if _in_sync(timeline.states[broker], at_s)
        ]
        self._high = max([1, *in_sync])

    def title(self, top: float) -> str:
        fits = self._panel.right - len(LANES_TITLE) * LETTER_PX
        at = {"x": min(self._panel.left, fits), "y": top + 12}
        return tag("text", LANES_TITLE, **at, class_="tl-name")

    def draw(self, broker: int, place: int, top: float) -> str:
        """Draw the lane of one replica."""
        lane = self._panel._replace(top=top, height=LANE_H, low=0, high=sqrt(self._high))
        points = self._gaps[broker]
        highest: dict[int, int] = {}
        for at_s, gap in points:
            x = round(lane.x(at_s))
            highest[x] = max(gap, highest.get(x, 0))
        foot = f"{lane.bottom:.1f}"
        needles = (f"M{x} {foot}V{lane.y(sqrt(gap)):.1f}" for x, gap in highest.items() if gap)
        parts = [
            tag("path", d="".join(needles), class_=f"tl-g tl-s{place}"),
            tag("text", f"{self._high:,}", x=lane.left - 8, y=top + 9, class_="tl-tick tl-end"),
        ]
        at_s, most = max(points, key=lambda point: point[1], default=(0.0, 0))
        if most > self._high:
            at = {"x": max(lane.x(at_s) - 5, lane.left + 50), "y": top + 10}
            parts.append(tag("text", f"{most:,}", **at, class_="tl-tick tl-halo tl-end"))
        return "".join(parts)


def _within(point: tuple[float, int], panel: Panel) -> bool:
    return panel.from_s <= point[0] <= panel.to_s


def _in_sync(states: list[Span], at_s: float) -> bool:
    return any(s.what == IN_SYNC and s.from_s <= at_s < s.to_s for s in states)


# -- a picture as a separate file -----------------------------------------------------------------


SEPARATE = Shape(860, 240, "killed-leader")


def write(timeline: Timeline, path: str) -> None:
    """Write the part of the picture around the kill to a file."""
    (title, window), *_ = around_the_kill(timeline)
    with open(path, "w", encoding="utf-8") as file:
        file.write(alone(timeline, window, SEPARATE, title))


if __name__ == "__main__":
    write(build_timeline(read_history(sys.argv[1])), sys.argv[2])
