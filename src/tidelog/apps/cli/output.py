"""Output that commands share: tables, JSON documents, results of changes, progress.

Results go to stdout; progress goes to stderr, and only on a terminal. rich and json are imported
when something is printed: every command imports this module, and `--help` every command.

Invariants: a JSON document is one object whose `holds` is true exactly when the exit code is 0; a
rejected change is reported on stderr and makes the exit code 1.
"""

import io
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

    from tidelog.apps.changes.outcome import Change

GOOD, BAD, WARN, FAINT, NAME, HEADING = "green", "bold red", "yellow", "dim", "cyan", "bold"
WIDE = 100
"""From this screen width on, a table with wrapped cells is still readable."""
PIPED_WIDTH = 120
"""The width if stdout is not a terminal."""
REFRESH_S = 0.1
KIBI = 1024
UNKNOWN = "–"
"""Printed for a value that is unknown."""

ShowProgress: TypeAlias = Callable[[float, str], None]
"""Called with the amount done and a note."""


def screen() -> "Console":
    """Return a console on stdout, without markup: logs are printed in square brackets."""
    from rich.console import Console

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # ASCII terminals get `?` for a tick
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPED_WIDTH
    return console


def conclude(
    form: str, holds: bool, data: Mapping[str, Any], show: Callable[["Console"], None]
) -> int:
    """Print the result as text or JSON; return the exit code."""
    if form == "json":
        import json

        json.dump({"holds": holds, **data}, sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        show(screen())
    return 0 if holds else 1


def conclude_changes(form: str, what: str, changes: Sequence["Change"], **more: Any) -> int:
    """Print the result of each change; return the exit code."""
    holds = all(change.holds for change in changes)
    data = {what: [change.as_data() for change in changes], **more}
    return conclude(form, holds, data, lambda screen: _show_changes(screen, changes))


def _show_changes(screen: "Console", changes: Sequence["Change"]) -> None:
    for change in changes:
        if change.holds:
            screen.print(verdict_line(True, change.done), soft_wrap=True)
        else:
            click.echo(f"tidelog: {change.message}", err=True)


def table(columns: Sequence[str], *, numbers: Sequence[str] = ()) -> "Table":
    """Return an empty table.

    Columns in `numbers` are right-aligned; they and the first column are not wrapped.
    """
    from rich import box
    from rich.table import Table

    empty = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style=HEADING)
    for place, column in enumerate(columns):
        right = column in numbers
        whole = right or place == 0
        empty.add_column(column, justify="right" if right else "left", no_wrap=whole)
    return empty


def print_columns(
    screen: "Console", heading: Sequence[str], rows: Iterable[Sequence[object]]
) -> None:
    """Print a table, at any screen width.

    Columns are separated by blanks and no cell is empty, so that scripts written for Kafka's tools
    can read the table.
    """
    table = [heading, *([_cell(cell) for cell in row] for row in rows)]
    widths = [max(len(line[place]) for line in table) for place in range(len(heading))]
    for line in table:
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        screen.print(text.rstrip(), soft_wrap=True)


def _cell(cell: object) -> str:
    return "-" if cell is None or cell == "" else str(cell)


def show_table(screen: "Console", table: "Table") -> None:
    """Print a table; on a screen too narrow for it, print a block for each row."""
    unbound = screen.options.update(max_width=10 * WIDE)
    if screen.width >= WIDE or screen.measure(table, options=unbound).maximum <= screen.width:
        screen.print(table)
        return
    for name, *cells in zip(*(column.cells for column in table.columns), strict=True):
        screen.print(_titled(table, name), soft_wrap=True)
        for column, cell in zip(table.columns[1:], cells, strict=True):
            if cell:
                screen.print(indented(styled(f"{column.header}: ").append(cell)))


def _titled(table: "Table", name: "RenderableType") -> "RenderableType":
    """Return the title of a row: a bare number gets the name of its column."""
    if str(name)[:1].isdigit():
        return styled(f"{table.columns[0].header} ").append(str(name))
    return name


def styled(text: str, style: str = "") -> "Text":
    """Return text with one style."""
    from rich.text import Text

    return Text(text, style)


def mark(holds: bool, good: str = "holds", bad: str = "VIOLATED") -> "Text":
    """Return a coloured word for a check."""
    return styled(good, GOOD) if holds else styled(bad, BAD)


def heading(text: str) -> "Text":
    """Return a heading."""
    return styled(text, HEADING)


def faint(text: str) -> "Text":
    """Return text of low importance."""
    return styled(text, FAINT)


def verdict_line(holds: bool, text: str) -> "Text":
    """Return the last line of a result: a tick or a cross, and a summary."""
    return styled("✓ " if holds else "✗ ", GOOD if holds else BAD).append(text)


def size(count: int) -> str:
    """Format a byte count with a unit."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < KIBI:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= KIBI
    return f"{value:.1f} TiB"


def brokers(ids: Iterable[int] | None) -> str:
    """Return `1,2,3`, or `N/A` if unknown."""
    return "N/A" if ids is None else ",".join(map(str, ids))


def indented(renderable: "RenderableType", by: int = 2) -> "RenderableType":
    """Indent a renderable."""
    from rich.padding import Padding

    return Padding(renderable, (0, 0, 0, by), expand=False)


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[ShowProgress]:
    """Show a progress bar on stderr while the block runs; nothing if stderr is not a terminal.

    The bar has no thread: the model checker forks, and a fork must not copy a lock that another
    thread holds.
    """
    if not sys.stderr.isatty():
        yield lambda _done, _note: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(30), TextColumn("{task.fields[note]}"))
    console = Console(stderr=True, markup=False, highlight=False)
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, auto_refresh=False
    ) as bar:
        task = bar.add_task(what, total=total, note="")
        shown = 0.0

        def show_progress(done: float, note: str) -> None:
            nonlocal shown
            bar.update(task, completed=done, note=note)
            if time.monotonic() - shown >= REFRESH_S:
                shown = time.monotonic()
                bar.refresh()

        yield show_progress
