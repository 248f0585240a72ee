"""User-visible text is plain: CLI help, error messages, log events and docs avoid riddles.

The words below are wrong in nearly every use: name the broker, the request, the record instead.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tidelog.apps.cli.main import cli
from tidelog.core.node.measuring.journal import EVENTS

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src/tidelog").rglob("*.py"))
ODD_WORDS = re.compile(
    r"\b(anew|afresh|in vain|so many|whoever|whomever|nobody|somebody|anybody|once more|shall"
    r"|rouse[ds]?|bury|buries|buried|told|goes on|go on|under way|likewise|wish(?:es|ed)?"
    r"|(?<!there )(?:is|are) (?:none|no(?! longer| more than| less than))"
    r"|a word)\b",
    re.IGNORECASE,
)
NOT_PROSE = re.compile(r"```.*?```|\"[^\"\n]*\"|`[a-z/]+(?:-[a-z]+){2,}`", re.DOTALL)
"""Code blocks, quotations, and names of stories and mutants, which are morals in a few words."""


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name in command.commands:
            yield from commands(command.commands[name], f"{path} {name}")


COMMANDS = dict(commands(cli, "tidelog"))


def odd(text: str) -> list[str]:
    return [found.group() for found in ODD_WORDS.finditer(" ".join(text.split()))]


@pytest.mark.parametrize("path", COMMANDS)
def test_help_is_plain(path: str) -> None:
    command = COMMANDS[path]
    texts = [command.help or "", command.epilog or ""]
    texts += [param.help or "" for param in command.params if isinstance(param, click.Option)]
    assert not [(word, text) for text in texts for word in odd(text)]


@pytest.mark.parametrize("path", COMMANDS)
def test_options_say_what_their_value_is(path: str) -> None:
    options = [each for each in COMMANDS[path].params if isinstance(each, click.Option)]
    assert not [
        each.name for each in options if not each.help or not each.help.endswith((".", "]"))
    ]


@pytest.mark.parametrize("name", EVENTS)
def test_log_events_are_plain(name: str) -> None:
    assert not odd(EVENTS[name].text)


def raised_messages(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Raise) and node.exc is not None:
            parts = [
                each.value
                for each in ast.walk(node.exc)
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            ]
            yield node.lineno, "…".join(parts)


def test_error_messages_are_plain() -> None:
    found = [
        (f"{path.relative_to(ROOT)}:{line}", odd(text), text)
        for path in SOURCES
        for line, text in raised_messages(path)
        if odd(text)
    ]
    assert not found


def test_docs_are_plain() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    found = []
    for page in sorted(pages):
        found += [(page.name, word) for word in odd(NOT_PROSE.sub("", page.read_text()))]
    assert not found
