"""All that commands print: tables, JSON, progress.

Results go to stdout; progress goes to stderr, and only on a terminal. Always true: a JSON
document is one object whose `holds` is true exactly when the exit code is 0.
"""

import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

GOOD, BAD, WARN, FAINT, NAME, HEADING = "green", "bold red", "yellow", "dim", "cyan", "bold"
WIDE = 100
"""Columns from which on a table may break its cells and still be read."""
PIPED_WIDTH = 120
"""Columns where there is no terminal to ask."""
REFRESH_S = 0.1

Tell: TypeAlias = Callable[[float, str], None]
"""Hears how much is done, and a word on it."""


def screen() -> Console:
    """Stdout. Nothing in a text is markup: logs are written in square brackets."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a tick in ASCII is a question mark, no crash
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPED_WIDTH
    return console


def conclude(
    form: str, holds: bool, data: Mapping[str, Any], show: Callable[[Console], None]
) -> int:
    """Print the result in the form asked for; the exit code."""
    if form == "json":
        json.dump({"holds": holds, **data}, sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        show(screen())
    return 0 if holds else 1


def table(columns: Sequence[str], *, numbers: Sequence[str] = ()) -> Table:
    """An empty table. `numbers` are set flush right; they and the first column stay whole."""
    empty = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style=HEADING)
    for place, column in enumerate(columns):
        right = column in numbers
        whole = right or place == 0
        empty.add_column(column, justify="right" if right else "left", no_wrap=whole)
    return empty


def show_table(screen: Console, table: Table) -> None:
    """A table; on a screen too narrow for it, a block for each row."""
    unbound = screen.options.update(max_width=10 * WIDE)
    if screen.width >= WIDE or screen.measure(table, options=unbound).maximum <= screen.width:
        screen.print(table)
        return
    for name, *cells in zip(*(column.cells for column in table.columns), strict=True):
        screen.print(_titled(table, name), soft_wrap=True)
        for column, cell in zip(table.columns[1:], cells, strict=True):
            if cell:
                screen.print(indented(Text(f"{column.header}: ").append(cell)))


def _titled(table: Table, name: RenderableType) -> RenderableType:
    """What a row is about; a bare number says nothing without the name of its column."""
    if str(name)[:1].isdigit():
        return Text(f"{table.columns[0].header} ").append(str(name))
    return name


def mark(holds: bool, good: str = "holds", bad: str = "VIOLATED") -> Text:
    """A verdict in a word and a colour."""
    return Text(good, GOOD) if holds else Text(bad, BAD)


def heading(text: str) -> Text:
    """A line that starts something."""
    return Text(text, HEADING)


def faint(text: str) -> Text:
    """A line that may be passed over."""
    return Text(text, FAINT)


def verdict_line(holds: bool, text: str) -> Text:
    """The last line: how it ended."""
    return Text("✓ " if holds else "✗ ", GOOD if holds else BAD).append(text)


def indented(renderable: RenderableType, by: int = 2) -> RenderableType:
    """The same, moved to the right."""
    from rich.padding import Padding

    return Padding(renderable, (0, 0, 0, by), expand=False)


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Tell]:
    """A bar on stderr while the block runs; silent where nobody watches.

    It has no thread of its own: the checker forks, and a fork must not copy a lock that
    another thread holds.
    """
    if not sys.stderr.isatty():
        yield lambda _done, _note: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(30), TextColumn("{task.fields[note]}"))
    console = Console(stderr=True, markup=False, highlight=False)
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, auto_refresh=False
    ) as bar:
        task = bar.add_task(what, total=total, note="")
        shown = 0.0

        def tell(done: float, note: str) -> None:
            nonlocal shown
            bar.update(task, completed=done, note=note)
            if time.monotonic() - shown >= REFRESH_S:
                shown = time.monotonic()
                bar.refresh()

        yield tell
