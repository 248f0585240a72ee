"""The browser of tests of pages, and commands that wait for a busy machine."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import pytest
from console_browser import FLAGS, PATIENCE_MS, browser_path

from tidelog.apps.cli.main import cli

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PATIENCE_S = 120.0
WAITS = ("timeout_s", "delivery_s")
"""The parameters of `--timeout` and `--delivery-timeout`."""


@pytest.fixture(scope="session")
def waits() -> list[click.Parameter]:
    """The options that say how long a command waits for a response, of all commands."""
    commands: list[click.Command] = [cli]
    for command in commands:
        if isinstance(command, click.Group):
            commands += command.commands.values()
    return [each for command in commands for each in command.params if each.name in WAITS]


@pytest.fixture(scope="module", autouse=True)
def _commands_wait_long(waits: list[click.Parameter]) -> Iterator[None]:
    """Commands that run in this process wait longer by default: a busy machine may hold up a
    broker for more than the five seconds that users want to wait."""
    with pytest.MonkeyPatch.context() as patch:
        for each in waits:
            patch.setattr(each, "default", PATIENCE_S)
        yield


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    path = browser_path()
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    sync_api.expect.set_options(timeout=PATIENCE_MS)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()
