"""The console's pages in a real headless browser, on a real cluster: every page, a killed leader,
deep links, hostile texts, a dead server.

Needs chromium (scripts/set_up_browser.py installs it) and playwright; without them they are
skipped.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from console_browser import (
    HOSTILE,
    PATIENCE_MS,
    PATIENCE_S,
    ConsoleProcess,
    browser_path,
    cluster,
    eventually,
    tidelog,
)
from tab import Tab

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.ci

PAGES = {
    "/": "Overview",
    "/topics": "Topics",
    "/topics/orders": "orders",
    "/topics/orders/0": "orders/0",
    "/topics/orders/0/records": "Records",
    "/brokers": "Brokers",
    "/brokers/1": "Broker 1",
    "/groups": "Consumer groups",
    "/groups/billing": "billing",
    "/transactions": "Transactions",
    "/events": "Events",
    "/losses": "Losses",
    "/compare": "Compare two moments",
}
WIDTHS = (420, 1280, 3840)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console with actions, of a cluster with the topic `orders`, a group and hostile texts."""
    browser_path()
    folder = tmp_path_factory.mktemp("console") / "data"
    with cluster(folder) as bootstrap:
        console = ConsoleProcess(folder, "--allow-actions")
        console.start()
        try:
            console.create_topic("orders", partitions=2, replication_factor=3)
            console.act("produce", topic="orders", partition=0, value="a record", count=40)
            console.act(
                "produce",
                topic="orders",
                partition=1,
                key=HOSTILE,
                value=json.dumps({"text": HOSTILE}),
                headers={"h": HOSTILE},
            )
            console.act("produce", topic="orders", partition=1, value=HOSTILE)
            for group in ("billing", HOSTILE):
                tidelog("consume", "orders", "-e", "--group", group, "-b", bootstrap)
            yield console
        finally:
            console.kill()


@pytest.fixture
def tab(browser: "Browser", console: ConsoleProcess) -> Iterator[Tab]:
    tab = Tab(browser, console, viewport={"width": 1280, "height": 900})
    yield tab
    tab.context.close()
    assert tab.errors == []


# -- every page ------------------------------------------------------------------------------


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_renders_and_fits(
    browser: "Browser", console: ConsoleProcess, width: int, theme: Any
) -> None:
    tab = Tab(browser, console, viewport={"width": width, "height": 900}, color_scheme=theme)
    for path, title in PAGES.items():
        page = tab.open(path)
        tab.expect("h1", title)
        page.wait_for_selector("[data-loading]", state="detached")
        sync_api.expect(page.locator("[data-failure]"), path).to_have_count(0)
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(overflow) <= 0, f"{path} is wider than {width} px"
        nameless = """[...document.querySelectorAll("button, a, input, select")]
            .filter(e => e.getClientRects().length && !e.textContent.trim()
              && !e.getAttribute("aria-label") && !e.labels?.length).map(e => e.outerHTML)"""
        assert page.evaluate(nameless) == [], f"{path} has controls without a name"
    tab.context.close()
    assert tab.errors == []


def test_unknown_pages_and_names_say_so(browser: "Browser", console: ConsoleProcess) -> None:
    tab = Tab(browser, console)
    tab.open("/nowhere")
    tab.expect("h1", "Page not found")
    tab.open("/topics/missing")
    tab.expect("[data-failure]", "there is no topic 'missing'")
    tab.open("/topics/orders/99")
    tab.expect("[data-failure]", "has no partition 99")
    tab.context.close()


def test_partition_page_draws_each_replica(tab: Tab) -> None:
    page = tab.open("/topics/orders/0")
    page.wait_for_selector(".lane-row.leads")
    assert page.locator(".lane-row[data-broker]").count() == 3
    assert page.locator(".lane-row.leads").count() == 1
    tab.expect(".lane-row.leads", "LEO 40")
    tab.expect(".lane-row.leads", "HW 40")


def test_produced_records_appear_without_reload(tab: Tab, console: ConsoleProcess) -> None:
    page = tab.open("/topics/orders/1")
    tab.expect(".lane-row.leads", "LEO")

    def ends(data: Any) -> set[int | None]:
        return {each["log_end_offset"] for each in data["partition"]["replicas"]}

    (before,) = ends(
        console.until_shown(
            "partitions/orders/1", lambda data: len(ends(data)) == 1 and None not in ends(data)
        )
    )
    assert before is not None
    page.get_by_role("button", name="Produce").click()
    page.get_by_label("Value").fill("from the page")
    page.get_by_label("How often").fill("5")
    page.locator("dialog").get_by_role("button", name="Produce").click()
    tab.expect("[role=status].toasts", "wrote 5 records")  # for some seconds
    tab.expect(".lane-row.leads", f"LEO {before + 5}")


# -- a killed leader -------------------------------------------------------------------------


def test_leader_killed_from_the_page_is_replaced_live(tab: Tab, console: ConsoleProcess) -> None:
    page = tab.open("/topics/orders/0")
    leads = page.locator(".lane-row.leads")
    leader = leads.get_attribute("data-broker")
    epoch = int(page.locator("[data-epoch]").inner_text())
    leads.get_by_role("button", name="Kill").click()
    page.locator("dialog").get_by_role("button", name="Kill").click()

    dead = page.locator(f".lane-row[data-broker='{leader}']")
    sync_api.expect(dead.get_by_text("no response")).to_be_visible(timeout=PATIENCE_MS)
    tab.expect(f".lane-row.leads:not([data-broker='{leader}'])", "leader")
    sync_api.expect(page.locator("[data-epoch]")).not_to_have_text(str(epoch))
    assert int(page.locator("[data-epoch]").inner_text()) > epoch
    # The dead broker's log stays on the page, as it was last seen.
    tab.expect(f".lane-row[data-broker='{leader}']", "last seen")
    tab.expect(f".lane-row[data-broker='{leader}']", "LEO 40")
    page.keyboard.press("[")  # at once: the moment of the election, from the history
    sync_api.expect(page.locator("[data-connection=past]")).to_be_visible()
    sync_api.expect(page.locator("[data-epoch]")).to_have_text(str(epoch + 1))
    tab.expect(f".lane-row[data-broker='{leader}']", "LEO 40")
    page.keyboard.press(".")
    page.wait_for_url(lambda url: "at=" not in url)
    page.reload()
    sync_api.expect(page.locator("[data-connection=live]")).to_be_visible()
    tab.expect(f".lane-row[data-broker='{leader}']", "last seen")
    tab.expect(f".lane-row[data-broker='{leader}']", "LEO 40")

    dead.get_by_role("button", name="Start").click()
    page.locator("dialog").get_by_role("button", name="Start").click()
    tab.expect(".page-head", "all in sync")
    console.until_in_sync("orders")
    console.until_in_sync("orders", 1)


# -- addresses -------------------------------------------------------------------------------


def test_links_deep_links_and_back_work(tab: Tab) -> None:
    page = tab.open("/topics")
    page.get_by_role("link", name="orders", exact=True).click()
    page.get_by_role("table", name="Partitions").get_by_role("link", name="1", exact=True).click()
    tab.expect("h1", "orders/1")
    page.get_by_role("link", name="Records", exact=True).click()
    tab.expect("h1", "Records")
    page.go_back()
    tab.expect("h1", "orders/1")
    page.reload()
    tab.expect("h1", "orders/1")
    tab.open("/topics/orders/0/records?offset=7")
    tab.expect("[role=table] .record", "7")


def test_keyboard_opens_pages_filter_and_help(tab: Tab) -> None:
    page = tab.open("/")
    page.keyboard.press("g")
    page.keyboard.press("t")
    tab.expect("h1", "Topics")
    page.keyboard.press("/")
    page.keyboard.type("no such topic")
    tab.expect("main", "No topic matches.")
    page.keyboard.press("Tab")
    page.keyboard.press("?")
    sync_api.expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    sync_api.expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("d")
    assert page.evaluate("localStorage.getItem('tidelog-theme')") in ("light", "dark")


# -- the past -------------------------------------------------------------------------------


def test_moments_of_the_history_are_shown(tab: Tab, console: ConsoleProcess) -> None:
    """Marks, steps, a permalink and the way back to live; the history itself is a stub."""
    live = console.read("partitions/orders/0")
    begin = live["at_ms"] - 60_000
    marks = [
        {"at_ms": begin + n * 10_000, "kind": kind, "text": f"mark {n}"}
        for n, kind in enumerate(("leader", "isr", "broker"), start=1)
    ]
    timeline = {"from_ms": begin, "to_ms": live["at_ms"], "marks": marks}
    asked = []

    def past(route: Any) -> None:
        at = int(re.findall(r"at=(\d+)", route.request.url)[0])
        asked.append(at)
        partition = {**live["partition"], "leader_epoch": 100 + (at - begin) // 10_000}
        route.fulfill(json={**live, "at_ms": at, "partition": partition})

    tab.page.route("**/api/timeline**", lambda route: route.fulfill(json=timeline))
    tab.page.route("**/api/partitions/orders/0?at=*", past)
    page = tab.open(f"/topics/orders/0?at={begin + 25_000}")
    tab.expect("[data-epoch]", "102")
    tab.expect("[data-connection='past']", "at ")
    assert page.get_by_role("button", name="Kill").count() == 0, "the past can't be changed"
    page.get_by_role("button", name="Event before").click()
    page.wait_for_url(f"**at={begin + 20_000}")
    page.keyboard.press("]")
    tab.expect("[data-epoch]", "103")
    page.get_by_role("slider", name="Moment").fill(str(begin + 15_000))
    tab.expect("[data-epoch]", "101")
    page.get_by_role("link", name="orders", exact=True).click()
    page.wait_for_url("**/topics/orders?at=*")
    page.go_back()
    tab.expect("[data-epoch]", "101")
    page.keyboard.press(".")
    tab.expect("[data-connection='live']", "live")
    page.wait_for_url("**/topics/orders/0")
    assert {begin + 25_000, begin + 20_000, begin + 30_000} <= set(asked)
    # The page of the topic is not a stub, and this console has no history.
    tab.errors = [error for error in tab.errors if "404" not in error]


def test_pages_do_not_shift_while_they_load(browser: "Browser", console: ConsoleProcess) -> None:
    tab = Tab(browser, console, viewport={"width": 1280, "height": 900})
    tab.context.add_init_script(
        """window.shift = 0; new PerformanceObserver(list => list.getEntries().forEach(
        entry => { if (!entry.hadRecentInput) window.shift += entry.value; }
        )).observe({ type: "layout-shift", buffered: true });"""
    )
    for path in ("/", "/topics", "/topics/orders", "/topics/orders/0"):
        page = tab.open(path)
        page.wait_for_selector("[data-loading]", state="detached")
        page.wait_for_timeout(1000)  # live updates
        assert page.evaluate("window.shift") < 0.05, path
    tab.context.close()


# -- hostile texts ---------------------------------------------------------------------------


def test_hostile_records_and_groups_are_shown_as_text(tab: Tab) -> None:
    page = tab.open("/topics/orders/1/records")
    tab.expect(".record .key", HOSTILE)
    page.locator(".record button").first.click()
    tab.expect(".detail", HOSTILE)
    page.get_by_role("link", name="Groups").click()
    page.get_by_role("link", name=HOSTILE).click()
    tab.expect("h1", HOSTILE)
    tab.expect("[role=table]", "orders/1")
    page.reload()
    tab.expect("h1", HOSTILE)
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0


def test_an_open_transaction_is_shown_where_it_holds_back_consumers(
    tab: Tab, console: ConsoleProcess
) -> None:
    console.create_topic("payments", partitions=1, replication_factor=3)
    bootstrap = console.read("session")["bootstrap"]
    # The coordinator must not abort it while the pages are read.
    settings = {"transactional.id": HOSTILE, "transaction.timeout.ms": 600_000, "log_level": 0}
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **settings})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("payments", "not decided", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    console.act("produce", topic="payments", partition=0, value="plain", count=4)

    page = tab.open("/topics/payments/0")
    tab.expect(".lane-row.leads [data-lso]", "LSO 0")
    tab.expect("[data-unstable]", "held back by producer")
    tab.expect(".lane-row:not(.leads)", "fetch from 5 waits")
    page.locator("[data-unstable] a").click()
    row = page.locator("[data-partition='payments/0']")
    sync_api.expect(row).to_contain_text(HOSTILE)
    row.get_by_role("link", name="0", exact=True).click()
    tab.expect("[data-transaction=open]", "transaction open")
    page.go_back()
    row.get_by_role("link", name=HOSTILE).click()
    tab.expect("[data-state]", "Ongoing")
    page.get_by_role("button", name="Abort").click()
    page.locator("dialog").get_by_role("button", name="Abort").click()
    tab.expect("main", "No transaction is open.")
    page.get_by_role("link", name="Transactions").first.click()
    sync_api.expect(row).to_have_count(0)
    page = tab.open("/topics/payments/0/records")
    tab.expect("[data-transaction=aborted]", "aborted")
    tab.expect("[data-control]", "abort marker of producer")
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0


def test_groups_are_listed_with_members_and_lag(tab: Tab, console: ConsoleProcess) -> None:
    page = tab.open("/groups")
    row = page.get_by_role("table", name="Groups").get_by_role("row").filter(has_text="billing")

    def billing(data: Any) -> Any:
        return next((each for each in data["groups"] if each["group"] == "billing"), None)

    known = billing(
        console.until_shown(
            "groups", lambda data: (found := billing(data)) and found["lag"] is not None
        )
    )
    sync_api.expect(row.get_by_role("cell").nth(2)).to_have_text("0")
    sync_api.expect(row.get_by_role("cell").nth(3)).to_have_text(str(known["lag"]))


def test_values_are_shown_as_they_were_written(tab: Tab, console: ConsoleProcess) -> None:
    console.create_topic("values", partitions=1, replication_factor=1)
    big = '{"id":12345678901234567890,"id":1.50}'
    console.act("produce", topic="values", partition=0, value=big)
    console.act("produce", topic="values", partition=0, value="\x00\x01\x02\x03\x04\x05\x06")
    page = tab.open("/topics/values/0/records")
    for place in range(2):
        page.locator(".record button").nth(place).click()
    tab.expect(".detail", '"id": 12345678901234567890,')
    tab.expect(".detail", '"id": 1.50')
    second = page.locator(".detail").nth(1)
    sync_api.expect(second).to_contain_text("Value (bytes, schema id 16909060)")
    sync_api.expect(second).to_contain_text("0000  00 01 02 03 04 05 06")
    sync_api.expect(second).to_contain_text("1 record")


def test_hostile_addresses_run_nothing(browser: "Browser", console: ConsoleProcess) -> None:
    tab = Tab(browser, console)
    for path in (
        "/topics/%3Cimg%20src=x%20onerror=window.hacked=1%3E",
        "/topics/javascript:window.hacked=1/0?at=javascript:1",
        "/groups/%22%3E%3Cscript%3Ewindow.hacked=1%3C%2Fscript%3E",
        "/topics/%E0%A4%A/0",
        "/topics/orders/0/records?offset=%3Cscript%3E",
    ):
        page = tab.open(path)
        page.wait_for_selector("[data-loading]", state="detached")
        assert page.evaluate("window.hacked") is None, path
    tab.context.close()


# -- servers and sizes -----------------------------------------------------------------------


def test_dead_server_is_shown_and_recovered_from(tab: Tab, console: ConsoleProcess) -> None:
    page = tab.open("/topics/orders/0")
    tab.expect("[data-connection]", "live")
    console.kill()
    try:
        tab.expect("[data-connection]", "disconnected")
        tab.expect("[data-failure]", "does not respond")
        assert page.locator(".lane-row[data-broker]").count() == 3, "the last state stays visible"
    finally:
        console.start()
    tab.expect("[data-connection='live']", "live")
    sync_api.expect(page.locator("[data-failure]")).to_have_count(0)


def test_dead_server_is_shown_on_a_page_without_a_stream(tab: Tab, console: ConsoleProcess) -> None:
    page = tab.open("/topics/orders/0/records")
    page.wait_for_selector(".record")
    console.kill()
    try:
        tab.expect("[data-connection]", "disconnected")
        tab.expect("[data-failure]", "does not respond")
        assert page.locator(".record").count() == 40, "the records stay visible"
        page.get_by_role("button", name="Newest").click()
    finally:
        console.start()
    tab.expect("[data-connection='live']", "live")
    sync_api.expect(page.locator("[data-failure]")).to_have_count(0, timeout=PATIENCE_MS)


def test_actions_are_hidden_unless_allowed(
    browser: "Browser", console: ConsoleProcess, tmp_path: Path
) -> None:
    data = Path(console.read("session")["data"])
    other = ConsoleProcess(data)
    other.start()
    tab = Tab(browser, other)
    try:
        page = tab.open("/topics/orders/0")
        page.wait_for_selector(".lane-row.leads")
        for name in ("Kill", "Produce", "Elect leader", "Move replicas"):
            assert page.get_by_role("button", name=name).count() == 0
    finally:
        tab.context.close()
        other.kill()


def test_three_thousand_partitions_scroll(tab: Tab) -> None:
    """The table draws only rows near the window; data from a stub, to test the page alone."""
    partitions = [
        {
            "partition": n,
            "leader": n % 3 + 1,
            "leader_epoch": n % 9,
            "replicas": [1, 2, 3],
            "isr": [1, 2, 3] if n % 50 else [1],
            "elr": [],
            "min_isr": 2,
            "log_start_offset": 0,
            "log_end_offset": n * 1000,
            "high_watermark": n * 1000,
            "problem": None if n % 50 else "under_min_isr",
        }
        for n in range(3000)
    ]
    big = {"at_ms": 5, "topic": "big", "topic_id": None, "configs": [], "partitions": partitions}
    tab.page.route("**/api/topics/big?at=5", lambda route: route.fulfill(json=big))
    page = tab.open("/topics/big?at=5")
    tab.expect("[aria-label=Partitions]", "HW")
    rows = page.locator("[aria-label=Partitions] .row")
    assert 10 < rows.count() < 80
    for part in (0.5, 1.0, 0.25):
        page.evaluate(f"scrollTo(0, document.body.scrollHeight * {part})")
        page.wait_for_function(
            f"""() => {{
                const rows = [...document.querySelectorAll("[aria-label=Partitions] .row")];
                const seen = rows.filter(e => {{
                  const {{ top, bottom }} = e.getBoundingClientRect();
                  return bottom > 0 && top < innerHeight;
                }});
                return rows.length < 80 && ({part} === 1.0 || seen.length > 8);
            }}"""
        )
    page.get_by_label("only with problems").check()
    tab.expect(".panel header", "60 of 3,000")


# -- losses ----------------------------------------------------------------------------------


def test_lost_records_are_listed_and_link_to_their_moment(
    tab: Tab, console: ConsoleProcess
) -> None:
    tab.open("/losses")
    tab.expect("main", "No loss is recorded. This page would show")
    configs = {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"}
    console.create_topic("lossy", assignment=[[1, 2]], configs=configs)
    console.until_in_sync("lossy")
    console.act("kill", broker=2)
    console.until("lossy", leader=1, isr=[1])
    console.act("produce", topic="lossy", partition=0, value="lost", count=3, acks="1")
    console.act("kill", broker=1)
    console.act("start", broker=2)
    console.until("lossy", leader=2, isr=[2])
    console.act("start", broker=1)
    console.until_in_sync("lossy")

    row = "tr[data-loss=loss]"
    tab.expect(row, "lossy/0")  # without a reload
    for text in ("broker 1", "truncated after an unclean election", "broker 2 led", "0 to 2"):
        tab.expect(row, text)
    tab.page.get_by_label("Filter losses").fill("another topic")

    def all_are_counted() -> bool:
        count = len(console.read("losses")["losses"])
        return f"None of {count} losses matches." in tab.page.locator("main").inner_text()

    eventually(all_are_counted, "the page counts the losses")
    tab.page.get_by_label("Filter losses").fill("")
    page = tab.open("/topics/lossy/0")
    tab.expect("[data-losses]", "truncated after an unclean election")
    page.get_by_role("link", name="all losses").click()
    page.get_by_role("link", name="lossy/0", exact=True).first.click()
    page.wait_for_url("**/topics/lossy/0?at=*")
    tab.expect("h1", "lossy/0")
    tab.expect("[data-connection='past']", "at ")
    console.until_in_sync("orders")
