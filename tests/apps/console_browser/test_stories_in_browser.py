"""The pages of stories and lessons in a real headless browser; they need no cluster.

Needs chromium (scripts/set_up_browser.py installs it) and playwright; without them they are
skipped.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from console_browser import HOSTILE, PATIENCE_MS, ConsoleProcess, browser_path

from tidelog.apps.stories.lessons import lessons
from tidelog.apps.stories.shelf import included

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.ci

LOSS = "/stories/truncation/hw-loses-acked-record"
DECISION = "/stories/transactions/a-written-decision-outlives-its-coordinator"
STEPS = 20
PARTING = 8
"""The step of that story at which the rules part."""
WIDTHS = (420, 1280, 2560, 3840)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console of a data folder without brokers."""
    browser_path()
    console = ConsoleProcess(tmp_path_factory.mktemp("no cluster"))
    console.start()
    try:
        yield console
    finally:
        console.kill()


@pytest.fixture
def page(browser: "Browser", console: ConsoleProcess) -> Iterator["Page"]:
    """A page that must not raise an error; dialogs would be the work of a hostile text."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, base_url=console.url)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: errors.append(f"dialog {dialog.message}"))
    yield page
    context.close()
    assert errors == []


def at_step(page: "Page", number: int, of: int = STEPS) -> None:
    sync_api.expect(page.locator(".count").first).to_have_text(
        f"step {number} of {of}", timeout=PATIENCE_MS
    )


def test_a_story_is_played_by_keys_buttons_and_the_slider(page: "Page") -> None:
    page.goto(LOSS)
    at_step(page, 6)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    at_step(page, PARTING)
    assert page.url.endswith(f"?step={PARTING}"), "the address is a link to the step"
    page.keyboard.press("ArrowLeft")
    at_step(page, PARTING - 1)
    page.keyboard.press("End")
    at_step(page, STEPS)
    page.keyboard.press("Home")
    at_step(page, 1)
    page.get_by_role("button", name="Forward").click()
    at_step(page, 2)
    page.locator("input[type=range]").fill("10")
    at_step(page, 11)
    page.get_by_role("button", name="Where the rules differ").click()
    at_step(page, PARTING)


def test_a_story_plays_by_itself_until_it_is_paused(page: "Page") -> None:
    page.goto(LOSS)
    at_step(page, 6)
    page.get_by_label("Speed").select_option("2")
    page.get_by_role("button", name="Play", exact=True).click()
    sync_api.expect(page.locator(".count").first).not_to_have_text(f"step 6 of {STEPS}")
    page.get_by_role("button", name="Pause").click()
    shown = page.locator(".count").first.inner_text()
    page.wait_for_timeout(1200)
    assert page.locator(".count").first.inner_text() == shown


def test_a_coordinator_and_producers_have_lanes_of_their_own(page: "Page") -> None:
    page.goto(f"{DECISION}?step=4")
    at_step(page, 4, of=18)
    drawing = page.locator(".drawing")
    for party in ("p1", "client", "PrepareCommit(t)"):
        sync_api.expect(drawing.get_by_text(party, exact=True).first).to_be_visible()
    sync_api.expect(drawing.locator(".mark.new .inner")).to_have_text(["PrepareCommit(t)"] * 2)
    first, end = (
        drawing.get_by_text(name, exact=True).first.bounding_box() for name in ("p1", "C")
    )
    assert first is not None
    assert end is not None
    arrow = drawing.locator(".message line").first.bounding_box()
    assert arrow is not None
    assert first["y"] - 5 <= arrow["y"], "the first message begins at p1"
    assert arrow["y"] + arrow["height"] >= end["y"] - 20, "and ends at C"
    sync_api.expect(drawing.locator(".lso")).to_have_count(1)


def test_a_marker_looks_unlike_a_record(page: "Page") -> None:
    page.goto(f"{DECISION}?step=11")
    at_step(page, 11, of=18)
    sync_api.expect(page.locator(".drawing .cell.marker")).to_have_count(1)
    sync_api.expect(page.locator(".drawing .lso")).to_have_count(0)


def test_both_rules_are_side_by_side_and_show_where_they_part(page: "Page") -> None:
    page.goto(f"{LOSS}?step={PARTING}")
    at_step(page, PARTING)
    old = page.get_by_role("region", name="Rule high-watermark")
    new = page.get_by_role("region", name="Rule leader-epoch")
    sync_api.expect(old).to_contain_text("B truncates to 1 (its own HW), dropping m2")
    sync_api.expect(old.locator(".mark.lost")).to_have_count(1)
    sync_api.expect(new.locator(".mark.lost")).to_have_count(0)
    places = old.bounding_box(), new.bounding_box()
    left, right = places
    assert left is not None
    assert right is not None
    assert left["y"] == right["y"]
    assert left["x"] < right["x"]
    sync_api.expect(page.locator("aside")).to_contain_text("the rules differ here")
    sync_api.expect(page.locator("aside")).to_contain_text("B restarts inside the gap")


def test_messages_are_arrows_and_the_epoch_question_is_among_them(page: "Page") -> None:
    page.goto(f"{LOSS}?step={PARTING + 1}")
    at_step(page, PARTING + 1)
    new = page.get_by_role("region", name="Rule leader-epoch")
    sync_api.expect(new.locator("svg .message")).to_have_count(2)
    sync_api.expect(new.locator("svg .message.lost")).to_have_count(1)
    sync_api.expect(new).to_contain_text("Fetch offset=2 epoch=0 last_epoch=0")
    sync_api.expect(new).to_contain_text("no divergence")


def test_producers_are_above_the_replicas_and_coordinators_below(page: "Page") -> None:
    page.goto("/stories/transactions/one-open-transaction-holds-back-all?step=9")
    at_step(page, 9, of=16)  # commit p1
    drawing = page.locator(".drawing svg")
    sync_api.expect(drawing.locator(".outside", has_text="p1")).to_have_count(1)
    sync_api.expect(drawing.locator("path.lso")).to_have_count(2)
    line = drawing.locator(".message line").first
    rows = [line.get_attribute(end) for end in ("y1", "y2")]
    assert float(rows[0] or 0) < 60, "from p1, above the replicas"
    assert float(rows[1] or 0) > 200, "to C, below the replicas"


def test_every_story_and_lesson_is_linked(page: "Page") -> None:
    page.goto("/stories")
    sync_api.expect(page.locator("main li > a")).to_have_count(len(included()))
    page.get_by_label("Filter stories").fill("missed successor")
    sync_api.expect(page.locator("main li > a")).to_have_count(1)
    page.goto("/lessons")
    sync_api.expect(page.locator("main ol a")).to_have_count(len(lessons()))
    page.locator("main ol a").nth(5).click()
    sync_api.expect(page.locator("h1")).to_have_text(lessons()[5].title)
    page.locator(".tabs button").nth(1).click()
    sync_api.expect(page.locator(".tabs button").nth(1)).to_have_attribute("aria-pressed", "true")


def test_a_lesson_ends_with_commands_for_a_real_cluster(page: "Page") -> None:
    page.goto("/lessons/5")
    section = page.locator("section[aria-labelledby=on-cluster]")
    sync_api.expect(section.locator("li")).to_have_count(len(lessons()[4].on_cluster))
    sync_api.expect(section).to_contain_text("tidelog topic create lesson5")
    sync_api.expect(section.get_by_role("button", name="Do it")).to_have_count(0)
    sync_api.expect(section).to_contain_text("start the console with --allow-actions")
    assert page.get_by_role("button", name="Start three brokers").count() == 0


def test_an_edited_story_is_run_and_its_mistakes_are_named(page: "Page") -> None:
    page.goto(f"{LOSS}?edit=1")
    area = page.get_by_label("Text of the story")
    text = area.input_value()
    area.fill(text.replace("restart B", "fetch B\nrestart B", 1))
    page.get_by_role("button", name="Run", exact=True).click()
    sync_api.expect(page.locator(".problems")).to_contain_text("actual output:")
    at_step(page, 6, STEPS + 1)
    area.fill("cluster A B\nprodce m1\n----\n----\n")
    page.keyboard.press("Control+Enter")
    sync_api.expect(page.get_by_role("alert")).to_contain_text("line 4")
    page.get_by_role("button", name="Reset").click()
    assert area.input_value() == text


def test_a_changed_text_is_kept_until_it_is_reset(page: "Page") -> None:
    page.goto(f"{LOSS}?edit=1")
    area = page.get_by_label("Text of the story")
    original = area.input_value()
    area.fill(f"# {HOSTILE}\n\ncluster A B\nproduce mine\n")
    page.get_by_role("link", name="Lessons").first.click()
    sync_api.expect(page.locator("h1")).to_have_text("Lessons")
    page.goto("/stories")
    page.get_by_role("link", name="changed by you").click()
    sync_api.expect(area).to_have_value(re.compile("produce mine"))
    page.reload()
    sync_api.expect(area).to_have_value(re.compile("produce mine"))
    sync_api.expect(page.locator("main")).to_contain_text("your text, as you left it")
    page.get_by_role("button", name="Run", exact=True).click()
    at_step(page, 1, 2)
    assert page.evaluate("window.hacked") is None
    page.get_by_role("button", name="Reset").click()
    sync_api.expect(area).to_have_value(original)
    page.goto("/stories")
    sync_api.expect(page.locator("main li > a").first).to_be_visible()
    assert page.get_by_role("link", name="changed by you").count() == 0


def test_hostile_texts_stay_texts(page: "Page") -> None:
    page.goto(f"{LOSS}?edit=1")
    area = page.get_by_label("Text of the story")
    area.fill(f"# {HOSTILE}\n#\n# {HOSTILE}\n\ncluster A B\nproduce <b>x</b>\nnote {HOSTILE}\n")
    page.get_by_role("button", name="Run", exact=True).click()
    sync_api.expect(page.locator(".lines").first).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Last step").click()
    sync_api.expect(page.locator(".lines").first).to_contain_text("<img src=x")
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img").count() == 0


@pytest.mark.parametrize("path", [LOSS, "/stories", "/lessons", "/lessons/5", f"{LOSS}?edit=1"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_is_wider_than_the_window(
    browser: "Browser", console: ConsoleProcess, path: str, scheme: str
) -> None:
    for width in WIDTHS:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,  # type: ignore[arg-type]
            base_url=console.url,
        )
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.goto(path)
        page.locator("h1").wait_for()
        page.wait_for_load_state("networkidle")
        over = page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        context.close()
        assert over <= 0, f"{over} px too wide at {width}"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/stories/truncation/none", "there is no story"),
        ("/lessons/99", "There are lessons 1 to 10"),
        (f"{LOSS}?step=9999", f"step {STEPS} of {STEPS}"),
        (f"{LOSS}?step=x", "step 6 of"),
    ],
)
def test_a_wrong_address_says_so_or_shows_the_nearest(page: "Page", path: str, text: str) -> None:
    page.goto(path)
    sync_api.expect(page.locator("main")).to_contain_text(re.compile(re.escape(text)))


def test_a_dead_server_is_reported(page: "Page", console: ConsoleProcess, tmp_path: Path) -> None:
    page.goto(f"{LOSS}?edit=1")
    page.get_by_label("Text of the story").wait_for()
    console.kill()
    page.get_by_role("button", name="Run", exact=True).click()
    sync_api.expect(page.get_by_role("alert")).to_contain_text("does not respond")
    console.start()
    page.get_by_role("button", name="Run", exact=True).click()
    sync_api.expect(page.locator("main").get_by_role("status").first).to_contain_text(
        "as it expects"
    )
