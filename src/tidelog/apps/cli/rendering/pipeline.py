"""Output of `tidelog pipeline`: the plan, a line for each batch, row counts at the end."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.text import Text

from tidelog.apps.cli import output
from tidelog.apps.pipeline.plan import Plan
from tidelog.apps.pipeline.report import Progress, Report, Tell
from tidelog.apps.views.pipeline import plan_as_data


@contextmanager
def live(plan: Plan) -> Iterator[Tell]:
    """Show a line about the last batch on stderr, if it is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _progress: None
        return
    from rich.live import Live

    console = Console(stderr=True, markup=False, highlight=False)
    sums = Report(plan.name, plan.kind)
    # Without a thread: Spark forks its Java process, and a fork must not copy a held lock.
    with Live(
        Text(f"{plan.name}: starting Spark"), console=console, auto_refresh=False, transient=True
    ) as line:
        line.refresh()

        def tell(progress: Progress) -> None:
            sums.add(progress)
            line.update(Text(batch_line(plan.name, progress, sums)), refresh=True)

        yield tell


def batch_line(name: str, progress: Progress, sums: Report) -> str:
    """Return the line about a batch."""
    words = [
        f"{name}: batch {progress.batch}",
        f"in {sums.rows_in:,}",
        f"out {sums.rows_out:,}",
        f"late {sums.late:,}",
        f"rejected {sums.rejected:,}",
        f"{progress.rows_per_s:,.0f} rows/s",
    ]
    if progress.lag is not None:
        words.append(f"lag {progress.lag:,}")
    return "  ".join([*words, time.strftime("%H:%M:%S")])


def show_report(screen: Console, plan: Plan, report: Report) -> None:
    """Print the row counts of this run and of all runs."""
    table = output.table(["", "rows in", "out", "late", "rejected"], numbers=["rows in", "out"])
    table.add_row("this run", *_numbers(report.as_data()))
    if report.totals:
        table.add_row("all runs", *_numbers(report.totals))
    output.show_table(screen, table)
    if report.lost:
        screen.print(f"{report.lost:,} offsets were lost in the topics and skipped")
    for note in report.notes:
        screen.print(note)
    how = "stopped; run it again to continue" if report.stopped else "all available records done"
    batches = "1 batch" if report.batches == 1 else f"{report.batches:,} batches"
    screen.print(
        output.verdict_line(True, f"{plan.name}: {how}; {batches} in {report.seconds:.1f} s")
    )


def _numbers(data: Mapping[str, Any]) -> list[str]:
    return [f"{data.get(key, 0):,}" for key in ("rows_in", "rows_out", "late", "rejected")]


def show_plan(screen: Console, plan: Plan) -> None:
    """Print every value of the plan, set or default."""
    table = output.table(["key", "value"])
    for key, value in plan_as_data(plan).items():
        for name, part in value.items() if isinstance(value, dict) else [("", value)]:
            if part not in (None, (), {}):
                table.add_row(f"{key}.{name}".rstrip("."), _shown(part))
    output.show_table(screen, table)
    screen.print(output.verdict_line(True, f"{plan.name}: the file is valid"))


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
