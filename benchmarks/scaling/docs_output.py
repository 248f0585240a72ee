"""Write results into the docs: the table of the page between two marks, and the plots.

Costs have different units, and only their growth is compared. So each line of a plot shows
multiples of the cost at its smallest size, beside a guide for linear growth. Everything is made
from the results alone, so old results can be written again.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from docs_figures import with_figures
from scaling.laws import Results, Row, short
from svg_plot import LINEAR, LOG, LineChart, Series, picture

GROWTH, OVERLOAD = "how-cost-grows.svg", "memory-under-overload.svg"

PANELS: tuple[tuple[str, str, Mapping[str, str]], ...] = (
    (
        "Partitions: what a request costs",
        "partitions",
        {
            "produce to one of them, CPU a request": "produce to one",
            "produce to each in turn, CPU a request": "produce to each in turn",
            "one record for a session on all, CPU": "a session on all reads one",
            "produce to all in one request, CPU a batch": "produce to all, a batch",
        },
    ),
    (
        "Partitions: what all of them cost",
        "partitions",
        {
            "create them all, CPU": "create",
            "Metadata of all, not cached, CPU": "Metadata of all",
            "start after kill -9, CPU": "start after kill -9",
            "idle, CPU a second": "idle, two brokers",
        },
    ),
    (
        "Connections",
        "connections",
        {
            "all connect at once: CPU for each": "connect at once, each",
            "all are busy, one in flight: CPU a request": "all busy, a request",
            "all wait for another partition: CPU a produce": "others wait, a produce",
            "idle: CPU a second": "idle",
        },
    ),
    (
        "Segments of a partition",
        "segments",
        {
            "fetch of the old record, CPU": "fetch of an old record",
            "ListOffsets, last time, CPU": "ListOffsets by time",
            "roll, CPU for each": "roll",
            "start after kill -9, CPU": "start after kill -9",
        },
    ),
    (
        "Consumer groups",
        "consumer groups",
        {
            "commit, CPU": "commit",
            "heartbeat, CPU": "heartbeat",
            "list, CPU": "list all",
            "idle, CPU a second": "idle",
        },
    ),
    (
        "Producers of a partition",
        "producers of a partition",
        {
            "append, CPU": "append",
            "roll with a snapshot, CPU": "roll with a snapshot",
            "start after kill -9, CPU": "start after kill -9",
        },
    ),
    (
        "Followers",
        "followers",
        {
            "bulk, acks=all, CPU a GB": "bulk, CPU a GB, all brokers",
            "small, acks=all, one in flight, CPU": "small, CPU, all brokers",
            "small, acks=all, one in flight, p50": "small, p50",
        },
    ),
)
MEMORY = {
    ("partitions", "memory, both brokers"): "partitions, two brokers",
    ("connections", "memory of all that are idle"): "idle connections",
    ("segments", "memory"): "segments",
    ("consumer groups", "memory"): "consumer groups",
    ("producers of a partition", "memory"): "producers of a partition",
}


def update_page(page: str, results: Mapping[str, Any]) -> str:
    """Return the page with these figures; the text outside the marks does not change."""
    return with_figures(page, _section(results))


def _section(results: Mapping[str, Any]) -> str:
    lines = [
        "",
        f"{results['date']}, {results['cores']} cores, CPython {results['python']}, "
        f"load of the machine {results['load']:.1f}.",
        "",
        "| size | cost | smallest size | largest size | power | growth |",
        "|---|---|---:|---:|---:|---|",
    ]
    axis = ""
    for row in Results.from_json(results["rows"]).rows:
        lines.append(_line(row, row.axis != axis))
        axis = row.axis
    return "\n".join([*lines, "", *_overload_table(results["overload"]), ""])


def _line(row: Row, begins: bool) -> str:
    (fewest, first), *_, (most, last) = row.points
    sizes = f"**{row.axis}**, {fewest:,.0f} to {most:,.0f}" if begins else ""
    power = "" if row.power is None else f"{row.power:.2f}"
    verdict = row.verdict if row.within_bound else f"**{row.verdict}**"
    costs = f"{short(first)} {row.unit} | {short(last)} {row.unit}"
    return f"| {sizes} | {row.name} | {costs} | {power} | {verdict} |"


def _overload_table(found: Sequence[Mapping[str, Any]]) -> list[str]:
    if not found:
        return []
    lines = [
        "| overload | sent or requested | memory before | peak | after | other client: p50, max |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for one in found:
        memory = " | ".join(f"{one[key]:.0f} MB" for key in ("before_mb", "peak_mb", "after_mb"))
        other = f"{one['other_client_p50_ms']:.1f} ms, {one['other_client_max_ms']:.0f} ms"
        lines.append(f"| {one['name']} | {one['sent_mb']:,.0f} MB | {memory} | {other} |")
    return [*lines, ""]


def draw(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw all charts for which there are results; return the paths of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = {(row.axis, row.name): row for row in Results.from_json(results.get("rows", [])).rows}
    charts = [_growth(title, axis, names, rows) for title, axis, names in PANELS]
    charts.append(_memory(rows))
    charts = [chart for chart in charts if chart.series]
    written = []
    if charts:
        description = (
            "How the cost of Tidelog's brokers grows with partitions, connections and so on"
        )
        written.append(folder / GROWTH)
        written[-1].write_text(picture(charts, description, "How cost grows"))
    if results.get("overload"):
        description = "A broker's memory stays below a bound while clients send without end"
        written.append(folder / OVERLOAD)
        charts = [_overload_chart(one) for one in results["overload"]]
        written[-1].write_text(picture(charts, description, "Memory under overload"))
    return written


def _growth(
    title: str, axis: str, names: Mapping[str, str], rows: Mapping[tuple[str, str], Row]
) -> LineChart:
    series = []
    for name, label in names.items():
        row = rows.get((axis, name))
        points = [] if row is None else [(x, y) for x, y in row.points if x > 0 and y > 0]
        if len(points) > 1:
            series.append(Series(label, [(x, y / points[0][1]) for x, y in points]))
    if series:
        xs = sorted({x for one in series for x, _ in one.points})
        series.append(Series("linear", [(xs[0], 1.0), (xs[-1], xs[-1] / xs[0])], dashed=True))
    return LineChart(title, axis, f"times the cost with the fewest {axis}", series)


def _memory(rows: Mapping[tuple[str, str], Row]) -> LineChart:
    series = [
        Series(label, [(x, y) for x, y in rows[key].points if y >= 0.1])
        for key, label in MEMORY.items()
        if key in rows
    ]
    return LineChart("Memory of all of them", "count", "MB more than before", series)


def _overload_chart(one: Mapping[str, Any]) -> LineChart:
    samples: Sequence[tuple[float, float, float]] = one["samples"]
    return LineChart(
        one["name"],
        "seconds",
        "MB",
        [
            Series("memory of the broker", [(at, memory) for at, _, memory in samples]),
            Series(one["what"], [(at, max(sent, 1.0)) for at, sent, _ in samples]),
        ],
        x_scale=LINEAR,
        y_scale=LOG,
    )
