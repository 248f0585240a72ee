"""The last part of a lesson in a real headless browser: brokers that the page starts.

Needs chromium (scripts/set_up_browser.py installs it) and playwright; without them they are
skipped.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from console_browser import PATIENCE_MS, PATIENCE_S, ConsoleProcess, browser_path, eventually
from tab import Tab, sync_api

from tidelog.apps.stories.lessons import lessons

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

pytestmark = pytest.mark.ci

LESSON = 6
"""It kills both brokers and elects one that lacks a record."""


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console with actions, of a data folder without brokers."""
    browser_path()
    console = ConsoleProcess(tmp_path_factory.mktemp("no cluster"), "--allow-actions")
    console.start()
    try:
        yield console
    finally:
        console.kill()


@pytest.fixture
def tab(browser: "Browser", console: ConsoleProcess) -> Iterator[Tab]:
    tab = Tab(browser, console, viewport={"width": 1280, "height": 900})
    yield tab
    tab.context.close()
    # The page asks for a lesson's topic before it exists, and while brokers start over.
    assert [error for error in tab.errors if "404" not in error] == []


def section(tab: Tab) -> "Locator":
    return tab.page.locator("section[aria-labelledby=on-cluster]")


def start(tab: Tab, lesson: int) -> None:
    tab.open(f"/lessons/{lesson}")
    section(tab).get_by_role("button", name="Start three brokers").click()
    sync_api.expect(section(tab)).to_contain_text("three brokers run", timeout=PATIENCE_MS)


def test_a_lesson_is_done_on_brokers_that_its_page_starts(
    tab: Tab, console: ConsoleProcess
) -> None:
    start(tab, LESSON)
    here = section(tab)
    sync_api.expect(here).to_contain_text("appear here when the topic exists")
    results = here.locator("p.result")
    for number, step in enumerate(
        each for each in lessons()[LESSON - 1].on_cluster if each.actions
    ):
        button = here.locator("li.next").get_by_role("button", name="Do it")
        button.click()
        sync_api.expect(results).to_have_count(number + 1, timeout=PATIENCE_MS)
        sync_api.expect(results.nth(number)).to_have_class(re.compile(r"\bok\b"))
        if "m2" in step.run:  # seen before broker 1 dies
            sync_api.expect(here.locator(".lane-row.leads")).to_contain_text("LEO 2")
    sync_api.expect(here.locator("li.next")).to_have_count(0)
    for broker in (1, 2):
        lane = here.locator(f".lane-row[data-broker='{broker}']")
        sync_api.expect(lane).to_contain_text("LEO 2", timeout=PATIENCE_MS)
    sync_api.expect(here).to_contain_text("elected uncleanly")
    sync_api.expect(here.locator(".lane-row a")).to_have_count(0)


def test_brokers_of_a_lesson_can_be_killed_from_the_drawing(
    tab: Tab, console: ConsoleProcess
) -> None:
    start(tab, 1)
    here = section(tab)
    here.get_by_role("button", name="Do it").first.click()
    lane = here.locator(".lane-row[data-broker='3']")
    lane.get_by_role("button", name="Kill").click()
    tab.page.locator("dialog").get_by_role("button", name="Kill").click()
    sync_api.expect(lane).to_contain_text("no response", timeout=PATIENCE_MS)
    lane.get_by_role("button", name="Start").click()
    tab.page.locator("dialog").get_by_role("button", name="Start").click()
    tab.expect(".drawing .badge", "all in sync")


def test_brokers_stop_when_the_lesson_is_left(tab: Tab, console: ConsoleProcess) -> None:
    start(tab, 2)
    assert console.read("lesson")["lesson"] == 2
    tab.page.get_by_role("link", name="Lesson 3 →").click()
    tab.expect("h1", lessons()[2].title)
    eventually(lambda: console.read("lesson")["state"] == "none", "stopped brokers", PATIENCE_S)
    sync_api.expect(section(tab).get_by_role("button", name="Start three brokers")).to_be_visible()


def test_a_lesson_starts_over_and_takes_the_place_of_another(
    tab: Tab, console: ConsoleProcess
) -> None:
    start(tab, 1)
    section(tab).get_by_role("button", name="Do it").first.click()
    tab.expect(".drawing h3", "lesson1/0")
    section(tab).get_by_role("button", name="Start over").click()
    sync_api.expect(section(tab)).to_contain_text("appear here when the topic exists")
    other = Tab(tab.browser, console)
    other.open("/lessons/2")
    sync_api.expect(section(other)).to_contain_text("They replace the brokers of lesson 1.")
    start(other, 2)
    sync_api.expect(section(tab).get_by_role("button", name="Start three brokers")).to_be_visible(
        timeout=PATIENCE_MS
    )
    other.context.close()
