"""Write the figures of a run into the docs' page, between two marks."""

from collections.abc import Mapping, Sequence
from typing import Any

from docs_figures import with_figures
from scaling.laws import Book, Row, short


def renewed(page: str, results: Mapping[str, Any]) -> str:
    """Return the page with these figures; the text outside the marks does not change."""
    return with_figures(page, _section(results))


def _section(results: Mapping[str, Any]) -> str:
    lines = [
        "",
        f"{results['date']}, {results['cores']} cores, CPython {results['python']}, "
        f"load of the machine {results['load']:.1f}.",
        "",
        "| with so many | | fewest | most | power | grows |",
        "|---|---|---:|---:|---:|---|",
    ]
    axis = ""
    for row in Book.from_json(results["rows"]).rows:
        lines.append(_line(row, row.axis != axis))
        axis = row.axis
    return "\n".join([*lines, "", *_overload(results["overload"]), ""])


def _line(row: Row, begins: bool) -> str:
    (fewest, first), *_, (most, last) = row.points
    sizes = f"**{row.axis}**, {fewest:,.0f} to {most:,.0f}" if begins else ""
    power = "" if row.power is None else f"{row.power:.2f}"
    verdict = row.verdict if row.as_it_should else f"**{row.verdict}**"
    costs = f"{short(first)} {row.unit} | {short(last)} {row.unit}"
    return f"| {sizes} | {row.name} | {costs} | {power} | {verdict} |"


def _overload(found: Sequence[Mapping[str, Any]]) -> list[str]:
    if not found:
        return []
    lines = [
        "| overload | sent or asked for | memory before | most | after | polite one: p50, most |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for one in found:
        memory = " | ".join(f"{one[key]:.0f} MB" for key in ("before_mb", "peak_mb", "after_mb"))
        polite = f"{one['polite_p50_ms']:.1f} ms, {one['polite_max_ms']:.0f} ms"
        lines.append(f"| {one['name']} | {one['sent_mb']:,.0f} MB | {memory} | {polite} |")
    return [*lines, ""]
