"""Step through a story in a terminal: one key press is one step forward or back."""

import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from tidelog.apps.cli import output
from tidelog.apps.cli.usage import usage_error

NEXT, BACK, FIRST, LAST, QUIT = "next", "back", "first", "last", "quit"
KEYS = {
    **dict.fromkeys(("\n", "\r", " ", "n", "l", "\x1b[C", "\x1bOC", "\x1b[B", "\x1bOB"), NEXT),
    **dict.fromkeys(("b", "p", "h", "\x7f", "\x1b[D", "\x1bOD", "\x1b[A", "\x1bOA"), BACK),
    **dict.fromkeys(("g", "\x1b[H", "\x1bOH", "\x1b[1~"), FIRST),
    **dict.fromkeys(("G", "\x1b[F", "\x1bOF", "\x1b[4~"), LAST),
    **dict.fromkeys(("q", "Q", "\x03", "\x04", "\x1b", ""), QUIT),
}
"""What each key does; an empty string is the end of the input."""
ESCAPE_S = 0.05
"""How long to wait for the rest of an arrow key after its first byte."""
ENTER_SCREEN, LEAVE_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
CLEAR = "\x1b[H\x1b[2J"


def require_terminal() -> None:
    """Raise a usage error if stdin or stdout is not a terminal."""
    for stream, name in ((sys.stdin, "stdin"), (sys.stdout, "stdout")):
        if not stream.isatty():
            raise usage_error(
                f"--step needs a terminal, but {name} is not one; without --step the whole story"
                " is printed"
            )


def step_through(story: Mapping[str, Any]) -> int:
    """Show the story step by step until the user quits; return the exit code."""
    from tidelog.apps.cli.rendering.story_steps import first_step

    start = first_step(story)
    with _raw_keys() as read_key:
        run(len(story["steps"]), start, read_key, lambda at: _draw(story, at))
    return 0 if story["passed"] else 1


def run(count: int, at: int, read_key: Callable[[], str], draw: Callable[[int], None]) -> None:
    """Draw a step, read a key, and repeat until the user quits."""
    while True:
        draw(at)
        while (action := KEYS.get(read_key())) is None:
            pass
        if action == QUIT:
            return
        at = {NEXT: at + 1, BACK: at - 1, FIRST: 0, LAST: count - 1}[action]
        at = min(max(at, 0), count - 1)


def _draw(story: Mapping[str, Any], at: int) -> None:
    from tidelog.apps.cli.rendering.story_steps import step_screen

    screen = output.screen()
    lines = step_screen(story, at, screen)
    with screen.capture() as capture:
        for line in lines:
            screen.print(line, soft_wrap=True)
    click.echo(CLEAR + capture.get().rstrip("\n"), nl=False, color=True)


@contextmanager
def _raw_keys() -> Iterator[Callable[[], str]]:
    """Switch the terminal to a second screen, without line buffering and echo."""
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        click.echo(ENTER_SCREEN, nl=False, color=True)
        yield lambda: _read_key(terminal)
    except KeyboardInterrupt:
        pass
    finally:
        click.echo(LEAVE_SCREEN, nl=False, color=True)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _read_key(terminal: int) -> str:
    """Return one key: a character, or the bytes of a key such as an arrow."""
    key = os.read(terminal, 1)
    if key == b"\x1b" and select.select([terminal], [], [], ESCAPE_S)[0]:
        key += os.read(terminal, 7)
    return key.decode("utf-8", "replace")
