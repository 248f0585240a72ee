"""Draw how many records each replica has above its own high watermark, one lane per replica.

In the offset panel, the lines of log end and high watermark overlap. The lanes show their
difference, with one needle per response (the highest one if several share a pixel). A replica
reports both values in one response, so the time between two requests adds no difference.
The scale is the square root: it shows a few records next to the hundred that wait during a
failover.

Invariant: all lanes have the same scale, which fits replicas in sync. A returning replica first
knows an old high watermark. Its needles are clipped at the top, with the largest value as text.
"""

from math import sqrt

from tidelog.apps.demo.report.plot import LETTER_PX, Panel, tag
from tidelog.apps.demo.timeline import IN_SYNC, Span, Timeline

TITLE = "log end − high watermark, in records (√ scale)"
TITLE_H = 22
LANE_H = 28


class GapLanes:
    """The lanes of one picture, on the time axis of its panel."""

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
        fits = self._panel.right - len(TITLE) * LETTER_PX
        at = {"x": min(self._panel.left, fits), "y": top + 12}
        return tag("text", TITLE, **at, class_="tl-name")

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
            parts.append(tag("text", f"{most:,}", **at, class_="tl-tick tl-said tl-end"))
        return "".join(parts)


def _within(point: tuple[float, int], panel: Panel) -> bool:
    return panel.from_s <= point[0] <= panel.to_s


def _in_sync(states: list[Span], at_s: float) -> bool:
    return any(s.what == IN_SYNC and s.from_s <= at_s < s.to_s for s in states)
