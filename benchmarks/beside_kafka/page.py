"""Write the figures of a run into docs/explanation/beside-kafka.md, between two marks.

Invariant: the text outside the marks does not change.
"""

from typing import Any

from beside_kafka.figures import figure, goals_met, mark, ratio_of, shown, shown_cpu
from beside_kafka.rows import ROWS
from beside_kafka.sides import KAFKA, TIDELOG
from docs_figures import with_figures

CALM = 0.3
"""Load of other processes, in cores, up to which times can be compared."""
COLUMNS = ("", "Tidelog", "Kafka", "ratio (spread)", "goal", "CPU", "CPU, Kafka")
COLUMNS += ("by CPU", "goal", "RSS, MB", "others")


def renewed(page: str, found: dict[str, Any]) -> str:
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
        told = " and ".join(
            f"{figure(first, one):.0f} {first.unit} ({name})" for name, one in found["cold"].items()
        )
        lines += [f"Before the warm-up, {first.name}: {told}.", ""]
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
