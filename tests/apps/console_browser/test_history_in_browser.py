"""The past of a real cluster in a real headless browser: two moments compared, history played.

Needs chromium (scripts/set_up_browser.py installs it) and playwright; without them they are
skipped.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from console_browser import (
    HOSTILE,
    PATIENCE_S,
    ConsoleProcess,
    browser_path,
    cluster,
    eventually,
    tidelog,
)
from tab import Tab, sync_api

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.ci

SLOW_S = 0.3
"""Longer than the time between two moments of a played history."""


class Past(NamedTuple):
    """A console, and moments of its cluster."""

    console: ConsoleProcess
    ten_ms: int
    """`orders/0` has 10 records."""
    twenty_ms: int
    """It has 20."""
    after_ms: int
    """Its leader was killed, and `later` was created."""
    leader: int
    """Who led before."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def recorded(console: ConsoleProcess, end: int, leader: int | None = None) -> int:
    """Wait until the history has the state; return a moment at which it had."""
    moments: list[int] = []

    def look() -> bool:
        moments.append(now_ms())
        data = console.look(f"partitions/orders/0?at={moments[-1]}")
        if data is None:
            return False  # the history begins later
        found = data["partition"]
        responded = [each for each in found["replicas"] if not each["unreachable"]]
        # The page compares the leaders' high watermarks, which rise after the log ends.
        ends = [(each["log_end_offset"], each["high_watermark"]) for each in responded]
        if leader is None:
            return ends == [(end, end)] * 3
        # A killed broker may have responded just before, and be in the same sample.
        silent = {each["broker"] for each in found["replicas"]} - {e["broker"] for e in responded}
        return (
            found["leader"] not in (None, leader)
            and silent == {leader}
            and ends == [(end, end)] * 2
        )

    eventually(look, f"a history with log ends {end}")
    return moments[-1]


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    browser_path()
    folder = tmp_path_factory.mktemp("console") / "data"
    with cluster(folder):
        console = ConsoleProcess(folder, "--allow-actions")
        console.start()
        try:
            console.create_topic("orders", partitions=1, replication_factor=3)
            console.until_in_sync("orders")
            leader = console.read("partitions/orders/0")["partition"]["leader"]
            console.act("produce", topic="orders", partition=0, value="a", count=10)
            ten_ms = recorded(console, 10)
            console.act("produce", topic="orders", partition=0, value="b", count=10)
            twenty_ms = recorded(console, 20)
            console.create_topic("later", partitions=1, replication_factor=2)
            console.act("kill", broker=leader)
            after_ms = recorded(console, 20, leader)
            yield Past(console, ten_ms, twenty_ms, after_ms, leader)
        finally:
            console.kill()


@pytest.fixture
def tab(browser: "Browser", past: Past) -> Iterator[Tab]:
    tab = Tab(browser, past.console, viewport={"width": 1280, "height": 900})
    yield tab
    tab.context.close()
    assert tab.errors == []


def test_two_moments_are_compared(tab: Tab, past: Past) -> None:
    page = tab.open(f"/compare?from={past.ten_ms}&at={past.after_ms}")
    tab.expect(f"[data-broker='{past.leader}']", "up →")
    tab.expect("[data-difference]", "created")
    tab.expect("[data-difference]", "10 records written, 10 committed")
    row = page.get_by_role("table", name="Partitions").locator("tr", has_text="orders/0")
    sync_api.expect(row).to_contain_text(f"leader {past.leader} →")
    sync_api.expect(row).to_contain_text("leader epoch 0 → 1")
    row.get_by_role("link", name="before").click()
    page.wait_for_url(f"**/topics/orders/0?at={past.ten_ms}")
    tab.expect(f".lane-row.leads[data-broker='{past.leader}']", "LEO 10")
    page.go_back()
    row.get_by_role("link", name="after").click()
    page.wait_for_url(f"**/topics/orders/0?at={past.after_ms}")
    tab.expect(".lane-row.leads", "LEO 20")


def test_the_moments_are_chosen_on_the_page_and_with_the_time_bar(tab: Tab, past: Past) -> None:
    page = tab.open(f"/topics/orders/0?at={past.ten_ms}")
    page.get_by_role("button", name="Compare", exact=True).click()
    page.wait_for_url(f"**/compare?from={past.ten_ms}&at={past.ten_ms}")
    tab.expect("main", "Nothing changed between")
    page.get_by_role("slider", name="Moment").fill(str(past.twenty_ms))
    tab.expect("[data-difference]", "10 records written")
    page.get_by_role("button", name="Make it the first").click()
    tab.expect("main", "Nothing changed between")
    page.get_by_role("button", name="Now").click()
    tab.expect("[data-difference]", "leader epoch 0 → 1")
    page.get_by_label("First moment").fill("1999-12-31T23:59:59.999")
    tab.expect("[data-failure]", "history")
    page.get_by_role("button", name="Begin of the history").click()
    tab.expect("[data-difference]", "topic_created")
    tab.errors = [error for error in tab.errors if "404" not in error]  # before the history


def test_history_is_played_also_if_the_server_is_slow(tab: Tab, past: Past) -> None:
    asked = []

    def slow(route: Any) -> None:
        asked.append(route.request.url)
        time.sleep(SLOW_S)
        route.continue_()

    page = tab.open(f"/topics/orders/0?at={past.ten_ms}")
    tab.expect(".lane-row.leads", "LEO 10")
    page.route("**/api/partitions/orders/0?at=*", slow)
    page.get_by_label("Speed").select_option("1")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Play", exact=True).click()
    tab.expect(".lane-row.leads", "LEO 20")
    assert page.locator("[data-connection='past']").count() == 1, "shown before the history ends"
    assert page.get_by_role("button", name="Stop", exact=True).count() == 1
    deadline = time.monotonic() + PATIENCE_S
    while len(asked) <= 2:  # a browser that gets no CPU time leaves out moments
        assert time.monotonic() < deadline, asked
        page.wait_for_timeout(100)
    page.get_by_role("button", name="Stop", exact=True).click()


def test_every_page_keeps_the_moment(tab: Tab, past: Past) -> None:
    page = tab.open(f"/?at={past.ten_ms}")
    for name in ("Topics", "Brokers", "Events", "Losses", "Compare", "Overview"):
        page.get_by_role("navigation").get_by_role("link", name=name).click()
        page.wait_for_url(f"**at={past.ten_ms}")
        tab.expect("[data-connection='past']", "at ")
    assert page.get_by_role("link", name="later", exact=True).count() == 0, "created afterwards"


def test_hostile_comparisons_run_nothing(tab: Tab, past: Past) -> None:
    change = {"what": HOSTILE, "before": HOSTILE, "after": [HOSTILE]}
    moved = {"what": "reassignment", "before": None, "after": {"adding": [3], "removing": [1]}}
    offset = {"topic": HOSTILE, "partition": 0, "before": None, "after": 7}
    stub = {
        "from_ms": past.ten_ms,
        "to_ms": past.after_ms,
        "brokers": [
            {"broker": 1, "before": HOSTILE, "after": "up", "restarted": False, "changes": [change]}
        ],
        "controller": None,
        "topics": {
            "created": [HOSTILE],
            "deleted": [HOSTILE + "x"],
            "changed": [{"topic": HOSTILE + "y", "changes": [change]}],
            "written": [],
        },
        "groups": {
            "created": [HOSTILE],
            "deleted": [HOSTILE],
            "changed": [{"group": HOSTILE, "changes": [change], "offsets": [offset]}],
            "groups_changed": 1,
        },
        "partitions": [{"topic": HOSTILE, "partition": 0, "changes": [change, moved]}],
        "partitions_changed": 1,
        "events": {HOSTILE: 1},
        "losses": [],
    }
    tab.page.route("**/api/diff?*", lambda route: route.fulfill(json=stub))
    page = tab.open(f"/compare?from=%22%3E%3Cscript%3E&at={past.after_ms}")
    tab.expect("[data-difference]", HOSTILE)
    tab.expect("[data-groups]", HOSTILE)
    tab.expect("table[aria-label=Partitions]", "reassignment none → adds 3, removes 1")
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img").count() == 0


@pytest.mark.parametrize("width", [420, 1280, 3840])
def test_the_comparison_fits(browser: "Browser", past: Past, width: int) -> None:
    tab = Tab(browser, past.console, viewport={"width": width, "height": 900})
    page = tab.open(f"/compare?from={past.ten_ms}&at={past.after_ms}")
    tab.expect("[data-difference]", "orders/0")
    overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(overflow) <= 0
    link = page.get_by_role("navigation").get_by_role("link", name="Compare")
    box = link.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= width, "the page's own link is in view"
    tab.context.close()


# -- a file instead of a cluster -------------------------------------------------------------

STORY = "unclean-election-loses-and-says-so"


def leader_at(console: ConsoleProcess, at_ms: int) -> int | None:
    topics = console.read(f"overview?at={at_ms}")["topics"]
    if not topics:
        return None
    found: int | None = console.read(f"partitions/story/0?at={at_ms}")["partition"]["leader"]
    return found


def test_a_file_is_shown_from_its_first_to_its_last_moment(
    browser: "Browser", tmp_path: Path
) -> None:
    """Its virtual times begin at 0, far from the present."""
    path = tmp_path / "story.jsonl"
    tidelog("story", "play", STORY, "--policy", "leader-epoch", "--history", str(path))
    console = ConsoleProcess(None, "--history", str(path))
    console.start()
    try:
        tab = Tab(browser, console, viewport={"width": 1280, "height": 900})
        page = tab.open("/topics/story/0")
        tab.expect("[data-connection]", "end of the file")
        tab.expect(".cluster", "file story.jsonl")
        tab.expect("main", "this file does not have: sizes of logs")
        assert page.get_by_role("link", name="Records", exact=True).count() == 0
        moment = page.get_by_role("slider", name="Moment")
        last = int(console.read("timeline")["to_ms"])
        sync_api.expect(moment).to_have_attribute("max", str(last))
        sync_api.expect(moment).to_have_attribute("min", "0")
        tab.expect(".lane-row.leads[data-broker='2']", "LEO 2")
        first = next(at for at in range(last) if leader_at(console, at) == 1)
        page = tab.open(f"/topics/story/0?at={first}")
        tab.expect(".lane-row.leads[data-broker='1']", "leader")
        page.get_by_role("button", name="Play", exact=True).click()
        tab.expect(".lane-row.leads[data-broker='2']", "LEO 2")
        sync_api.expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
        page.get_by_role("button", name="Event before").click()
        tab.expect("[data-connection='past']", "at ")
        page = tab.open("/compare?from=0")
        tab.expect("[data-difference]", "leader 1 → 2")
        tab.context.close()
        assert tab.errors == []
    finally:
        console.kill()
