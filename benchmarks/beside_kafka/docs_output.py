"""Write results into the docs: the table of beside-kafka.md between two marks, and the plot.

The plot has two bars for each row, for time and for CPU, on a log scale. A bar to the right of the
line at 1 means that Tidelog is better. A goal is a tick across its bar.

Invariants: the text outside the marks does not change. The plot has its own background, follows
the reader's light or dark theme, and is written without a library.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any
from xml.sax.saxutils import escape

from beside_kafka.figures import figure, goals_met, mark, ratio_of, shown, shown_cpu
from beside_kafka.rows import ROWS
from beside_kafka.sides import KAFKA, TIDELOG
from docs_figures import with_figures

CALM = 0.3
"""Load of other processes, in cores, up to which times can be compared."""
COLUMNS = ("", "Tidelog", "Kafka", "ratio (spread)", "goal", "CPU", "CPU, Kafka")
COLUMNS += ("by CPU", "goal", "RSS, MB", "others")
WIDTH, LABELS, RIGHT, TOP, ROW, FOOT = 980, 290, 120, 84, 25, 76
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #1f2328 }
  .title { font-size: 16px; font-weight: 600 }
  .small { font-size: 11px; fill: #59636e }
  .back { fill: #ffffff } .grid { stroke: #d8dee4 } .one { stroke: #1f2328; stroke-width: 1.5 }
  .time { fill: #0969da } .cpu { fill: #80b8f5 }
  .time.below { fill: #cf222e } .cpu.below { fill: #f0a3a7 }
  .goal { stroke: #bc4c00; stroke-width: 2.5 } .spread { stroke: #1f2328 }
  .missed { fill: #cf222e; font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9198a1 }
    .back { fill: #0d1117 } .grid { stroke: #2a313a } .one { stroke: #e6edf3 }
    .time { fill: #4493f8 } .cpu { fill: #26518f }
    .time.below { fill: #f85149 } .cpu.below { fill: #8e3a3d }
    .goal { stroke: #f0b72f } .spread { stroke: #e6edf3 }
    .missed { fill: #ff7b72 }
  }
"""


# -- the table ----------------------------------------------------------------------------


def update_page(page: str, found: dict[str, Any]) -> str:
    """Return the page with these figures; ValueError if it has no marks for them."""
    return with_figures(page, section(found))


def section(found: dict[str, Any]) -> str:
    kind = "a quick run" if found.get("quick") else "a full run"
    lines = [
        "",
        f"{found['date']}, {kind}. {found['machine']}. {found['ours']}; {found['theirs']}.",
        *([f"**{found['remark']}**"] if "remark" in found else []),
        *busy(found["rows"]),
        f"{found['touched']}. Kafka warmed up {found['warm_up']} times."
        f" {goals_met(found['rows'])}.",
        "",
    ]
    if found["cold"]:
        first = ROWS[0]
        cold = " and ".join(
            f"{figure(first, one):.0f} {first.unit} ({name})" for name, one in found["cold"].items()
        )
        lines += [f"Before the warm-up, {first.name}: {cold}.", ""]
    lines += [f"| {' | '.join(COLUMNS)} |", "|---" + "|---:" * (len(COLUMNS) - 1) + "|"]
    lines += [*map(row_of_table, found["rows"]), "", ""]
    return "\n".join(lines)


def busy(rows: list[dict[str, Any]]) -> list[str]:
    """Return a warning if other processes used too much CPU to compare times."""
    most = max((row["foreign_load"] for row in rows if "error" not in row), default=0)
    if most <= CALM:
        return []
    return [f"**Other processes used up to {most:.1f} cores: compare CPU, not time.**"]


def row_of_table(result: dict[str, Any]) -> str:
    if "error" in result:
        return f"| {result['row']} | failed: {result['error']} |" + " |" * (len(COLUMNS) - 2)
    ours, theirs = result[TIDELOG], result[KAFKA]
    low, high = map(ratio_of, result["spread"])
    by_cpu = f"**{ratio_of(result['ratio_cpu'])}**" if result["goal_cpu"] else ""
    cells = [
        f"{result['row']}: {result['note']}" if result["note"] else result["row"],
        shown(result, ours),
        shown(result, theirs),
        f"**{ratio_of(result['ratio'])}** ({low}–{high})",
        mark(result["goal"], result["ratio"]),
        shown_cpu(result, ours),
        shown_cpu(result, theirs),
        by_cpu,
        mark(result["goal_cpu"], result.get("ratio_cpu", 0)),
        f"{ours['rss_mb']:.0f} / {theirs['rss_mb']:.0f}",
        f"{result['foreign_load']:.2f}",
    ]
    return "| " + " | ".join(cell.replace(" us", " µs") for cell in cells) + " |"


# -- the plot -----------------------------------------------------------------------------


def plot(found: dict[str, Any]) -> str:
    """Return the whole SVG file."""
    rows = [row for row in found["rows"] if "error" not in row]
    scale = Scale([value for row in rows for value in reach(row)])
    height = TOP + ROW * len(rows) + FOOT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        f' viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Tidelog beside Kafka">',
        f"<style>{STYLE}</style>",
        f'<rect class="back" width="{WIDTH}" height="{height}"/>',
        *head(),
        *grid(scale, TOP + ROW * len(rows)),
    ]
    for number, row in enumerate(rows):
        parts += bars(row, scale, TOP + ROW * number)
    one = scale(1)
    parts.append(line("one", one, TOP - 6, one, TOP + ROW * len(rows)))
    parts += foot(found, TOP + ROW * len(rows) + 24)
    return "\n".join([*parts, "</svg>", ""])


class Scale:
    """Maps a ratio to its x position."""

    def __init__(self, values: Sequence[float]) -> None:
        low, high = min([0.5, *values]), max([4.0, *values])
        self.ticks = [tick for tick in TICKS if low * 0.99 <= tick <= high * 1.01]
        self._low, self._high = math.log(low * 0.95), math.log(high * 1.05)

    def __call__(self, ratio: float) -> float:
        share = (math.log(ratio) - self._low) / (self._high - self._low)
        return LABELS + share * (WIDTH - LABELS - RIGHT)


def reach(row: dict[str, Any]) -> list[float]:
    """Return all values that must fit on the scale."""
    found = [row["ratio"], *row["spread"], row["goal"], row["goal_cpu"], row.get("ratio_cpu", 0)]
    return [value for value in found if value > 0]


def head() -> Iterator[str]:
    yield text(
        "title", 16, 26, "How much better Tidelog is than Apache Kafka, on one machine, in turns"
    )
    x = 16
    for shape, label, step in (
        ("time", "by time", 90),
        ("cpu", "by the brokers' CPU", 150),
        ("time below", "Kafka is better", 130),
    ):
        yield f'<rect class="{shape}" x="{x}" y="40" width="12" height="10"/>'
        yield text("small", x + 18, 49, label)
        x += step
    yield line("goal", x + 6, 38, x + 6, 52)
    yield text("small", x + 18, 49, "goal")
    yield line("spread", x + 66, 45, x + 90, 45)
    yield text("small", x + 96, 49, "spread of the rounds")
    yield text("missed", x + 226, 49, "0.9")
    yield text("small", x + 254, 49, "goal missed")
    yield text("small", WIDTH - RIGHT + 12, TOP - 12, "time")
    yield text("small", WIDTH - RIGHT + 68, TOP - 12, "CPU")


def grid(scale: Scale, bottom: float) -> Iterator[str]:
    for tick in scale.ticks:
        x = scale(tick)
        yield line("grid", x, TOP - 6, x, bottom)
        yield text("small", x, TOP - 12, f"{tick:g}×", "middle")


def bars(row: dict[str, Any], scale: Scale, y: float) -> Iterator[str]:
    yield text("", LABELS - 10, y + 15, row["row"], "end")
    yield bar("time", scale, row["ratio"], y + 3, 10)
    low, high = map(scale, row["spread"])
    yield line("spread", low, y + 8, high, y + 8)
    yield goal_tick(scale, row["goal"], y + 1, 14)
    yield value(WIDTH - RIGHT + 12, y + 15, row["ratio"], row["goal"])
    if row["goal_cpu"]:
        yield bar("cpu", scale, row["ratio_cpu"], y + 14, 7)
        yield goal_tick(scale, row["goal_cpu"], y + 13, 9)
        yield value(WIDTH - RIGHT + 68, y + 15, row["ratio_cpu"], row["goal_cpu"])


def bar(kind: str, scale: Scale, ratio: float, y: float, height: float) -> str:
    one, end = scale(1), scale(max(ratio, 1e-3))
    below = " below" if ratio < 1 else ""
    where = f'x="{min(one, end):.1f}" y="{y:.1f}" width="{abs(end - one):.1f}"'
    return f'<rect class="{kind}{below}" {where} height="{height}"/>'


def goal_tick(scale: Scale, goal: float, y: float, height: float) -> str:
    return line("goal", scale(goal), y, scale(goal), y + height) if goal > 0 else ""


def value(x: float, y: float, ratio: float, goal: float) -> str:
    return text("missed" if ratio < goal else "", x, y, ratio_of(ratio))


def foot(found: dict[str, Any], y: float) -> Iterator[str]:
    kind = "a quick run" if found.get("quick") else "a full run"
    yield text("small", 16, y, f"{found['date']}, {kind}: {found['machine']}")
    yield text("small", 16, y + 16, f"{found['ours']}; {found['theirs']}")
    if "remark" in found:
        yield text("missed", 16, y + 36, found["remark"].partition(". ")[0])


def line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def text(kind: str, x: float, y: float, words: str, anchor: str = "start") -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {where}>{escape(words)}</text>'
