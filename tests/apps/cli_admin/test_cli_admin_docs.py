"""The commands shown on the reference pages run in order on a real cluster."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from click.testing import Result

Run: TypeAlias = Callable[..., Result]

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
SHOWN = re.compile(r"^\$ tidelog (.+?)(?:  #.*)?$", re.MULTILINE)


@pytest.mark.parametrize("page", ["cli-topics.md", "cli-config.md"])
def test_commands_shown_in_the_reference_run(page: str, run: Run) -> None:
    run("topic", "create", "orders", "--if-not-exists")
    if page == "cli-topics.md":
        run("topic", "delete", "orders")  # the page begins by creating it
    commands = SHOWN.findall((REFERENCE / page).read_text())
    assert len(commands) >= 6
    for command in commands:
        run(*shlex.split(command))
