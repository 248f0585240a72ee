"""Output that all commands share: progress on a terminal only, tables, JSON."""

import io
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest
from rich.text import Text

from tidelog.apps.cli import output


def read_all(terminal: int) -> Iterator[bytes]:
    """Return the bytes written to a terminal that was closed; Linux reports its end as an error."""
    with os.fdopen(terminal, "rb", buffering=0) as file, suppress(OSError):
        while chunk := file.read(4096):
            yield chunk


def test_progress_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        patch.setenv("TERM", "xterm")
        with output.progress("counting sheep", 3) as tell:
            for done in (1, 2, 3):
                tell(done, f"{done} sheep")
    shown = b"".join(read_all(ours)).decode()
    assert "counting sheep" in shown
    assert "1 sheep" in shown


def test_progress_is_not_shown_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    with output.progress("counting sheep", 3) as tell:
        tell(1, "1 sheep")
    assert pipe.getvalue() == ""


@pytest.mark.parametrize(("columns", "width"), [(None, output.PIPED_WIDTH), ("77", 77)])
def test_pipe_is_wide_by_default(
    monkeypatch: pytest.MonkeyPatch, columns: str | None, width: int
) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    assert output.screen().width == width


@pytest.mark.parametrize(("holds", "status"), [(True, 0), (False, 1)])
def test_json_agrees_with_the_exit_code(
    capsys: pytest.CaptureFixture[str], holds: bool, status: int
) -> None:
    assert output.conclude("json", holds, {"n": 1}, lambda _: None) == status
    assert capsys.readouterr().out == f'{{\n  "holds": {str(holds).lower()},\n  "n": 1\n}}\n'


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        ("40", [" name   what it is ", " sheep   an animal "]),
        ("16", ["sheep", "  what it is: an", "  animal"]),
    ],
)
def test_table_that_does_not_fit_is_printed_row_by_row(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    columns: str,
    shown: list[str],
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    table = output.table(("name", "what it is"))
    table.add_row(Text("sheep"), "an animal")
    output.show_table(output.screen(), table)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line and "─" not in line] == [
        " ".join(line.split()) for line in shown
    ]


def test_row_with_a_number_as_name_shows_its_column_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "16")
    table = output.table(("broker", "address"))
    table.add_row("2 (controller)", "localhost:9092")
    output.show_table(output.screen(), table)
    assert capsys.readouterr().out.splitlines()[0] == "broker 2 (controller)"


def test_brackets_are_not_markup(capsys: pytest.CaptureFixture[str]) -> None:
    assert output.conclude("text", True, {}, lambda s: s.print("log=[m1@0] [red]x")) == 0
    assert capsys.readouterr().out == "log=[m1@0] [red]x\n"


def test_ascii_only_pipe_is_not_an_error() -> None:
    program = "from rich.text import Text; from tidelog.apps.cli.output import screen"
    printed = subprocess.run(
        [sys.executable, "-c", f"{program}; screen().print(Text('✓ holds'))"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout == "? holds\n"
