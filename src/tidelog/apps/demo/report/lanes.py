"""The replicas' logs, moment by moment, drawn by the code that draws them in the console.

The folder `drawing` has that code, built from web/src/report (`make console`). The report contains
it and its data, so it still loads no other file. Without JavaScript, the pictures remain.
"""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tidelog.apps.demo.timeline import Moment, Timeline

FOLDER = Path(__file__).with_name("drawing")
MOMENTS_MAX = 900
"""Moments with a new leader, ISR or broker are always kept; of the others an even part."""


@cache
def style() -> str:
    """Return the style sheet of the drawing."""
    return FOLDER.joinpath("drawing.css").read_text(encoding="utf-8")


def section(timeline: Timeline) -> str:
    """Return the HTML of this section."""
    script = FOLDER.joinpath("drawing.js").read_text(encoding="utf-8")
    data = json.dumps(as_data(timeline), separators=(",", ":")).replace("<", "\\u003c")
    return (
        "<h2>The replicas, moment by moment</h2>\n"
        '<div id="replicas"><p class="soft">This drawing needs JavaScript.</p></div>\n'
        f'<script type="application/json" id="replicas-data">{data}</script>\n'
        f"<script>{script}</script>"
    )


def as_data(timeline: Timeline) -> dict[str, Any]:
    """Return what the drawing reads (web/src/report/types.ts)."""
    return {
        "brokers": timeline.brokers,
        "moments": [_moment(each, timeline.brokers) for each in _thinned(timeline.moments)],
        "marks": [mark._asdict() for mark in timeline.marks],
    }


def _moment(moment: Moment, brokers: Sequence[int]) -> dict[str, Any]:
    return {
        "at_s": round(moment.at_s, 3),
        "leader": moment.leader,
        "epoch": moment.leader_epoch,
        "isr": moment.isr,
        "logs": [moment.logs.get(broker) for broker in brokers],
    }


def _thinned(moments: Sequence[Moment]) -> list[Moment]:
    """Return at most about MOMENTS_MAX moments."""
    every = max(1, -(-len(moments) // MOMENTS_MAX))
    kept = []
    for number, moment in enumerate(moments):
        before = moments[number - 1] if number else None
        if number % every == 0 or before is None or _standing(moment) != _standing(before):
            kept.append(moment)
    return kept


def _standing(moment: Moment) -> tuple[object, ...]:
    return moment.leader, moment.leader_epoch, moment.isr, tuple(moment.logs)
