"""The report is one self-contained file that shows the results, good or bad."""

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from demo_outcome import a_timeline, an_outcome

from tidelog.apps.demo.report import lanes, picture, plot
from tidelog.apps.demo.report.page import page
from tidelog.apps.demo.report.picture import Shape, Window
from tidelog.apps.demo.timeline import Mark

SVG = re.compile(r"<svg.*?</svg>", re.DOTALL)
VOID = {"meta", "link"}


class Outline(HTMLParser):
    """Collects elements by name, and checks that each opened element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.seen if name == tag]


def outline(text: str) -> Outline:
    parser = Outline()
    parser.feed(text)
    assert parser.open == []
    return parser


def test_report_is_complete_and_loads_no_other_file() -> None:
    text = page(an_outcome(), a_timeline(), "tidelog demo")
    found = outline(text)
    assert len(found.all("h1")) == 1
    assert text.count("<title>Tidelog demo: ") == 1
    assert [each.get("type") for each in found.all("script")] == ["application/json", None]
    assert all("src" not in attributes for _, attributes in found.seen)
    assert [link["rel"] for link in found.all("link")] == ["icon"]
    without = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)  # names of its runtime
    assert set(re.findall(r"https?://[^'\"\s<]+", without)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"url\((?!#)", text)
    assert "@import" not in text
    idents = [attributes["id"] for _, attributes in found.seen if "id" in attributes]
    assert len(idents) == len(set(idents))


def test_report_shows_the_results() -> None:
    text = page(an_outcome(), a_timeline(), "tidelog demo")
    for part in (
        "✓ 4,000 acknowledged: 0 lost, 0 duplicated, 0 out of order; lake equal, sums equal",
        "audit passes",
        "123 ms",
        "Spark 4.3.0",
        "1,500 – 2,600",
        "the leader was down",
        "3,999 orders, 200,000.00 in 3 windows: 0 missing, 0 wrong. The last order, a minute",
    ):
        assert part in text, part
    assert "✗" not in text


def test_failed_checks_are_described_in_text() -> None:
    text = page(an_outcome(lost=[7, 9], damage=1), a_timeline(), "tidelog demo")
    assert "✗ 4,000 acknowledged: 2 lost" in text
    assert "audit FAILS" in text
    assert text.count("✗ does not hold") == 2
    assert "&lt;b&gt; is not what it was" in text
    assert "<b> is" not in text


def test_report_without_spark_does_not_mention_it() -> None:
    text = page(an_outcome(spark=False), a_timeline(landed=False), "tidelog demo --no-spark")
    assert "lake" not in re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
    assert "--no-spark" in text


@pytest.mark.parametrize("width", [1120, 380])
def test_plot_stays_in_its_frame_and_has_a_description(width: int) -> None:
    seen = a_timeline()
    [(title, near)] = picture.around_the_kill(seen)
    assert title == "Around the kill: 5.4 seconds"
    for window in (near, picture.whole(seen)):
        drawn = picture.draw(seen, window, Shape(width, 300, "p"), "Title")
        root = ElementTree.fromstring(drawn)
        _, _, w, h = (float(n) for n in root.attrib["viewBox"].split())
        assert w == width
        points = [
            tuple(map(float, pair.split(",")))
            for line in root.iter("{http://www.w3.org/2000/svg}polyline")
            for pair in line.attrib["points"].split()
        ]
        assert len(points) > 10
        assert all(0 <= x <= w and 0 <= y <= h for x, y in points)
        assert root.attrib["aria-labelledby"] == "p-title p-desc"
        described = root.find("{http://www.w3.org/2000/svg}desc")
        assert described is not None
        assert "epoch 1: broker 2 leads from 2.2 s" in str(described.text)
        classes = " ".join(e.attrib.get("class", "") for e in root.iter())
        for css in ("tl-r0", "tl-r2", "tl-hw", "tl-lake", "tl-kill", "tl-start", "tl-down"):
            assert css in classes, css


def test_plot_is_a_standalone_file_with_its_colours() -> None:
    seen = a_timeline()
    text = picture.alone(seen, Window(0, 5), Shape(800, 200, "p"), "Title")
    ElementTree.fromstring(text)
    assert "prefers-color-scheme" in text
    assert "var(--r0)" in text


def test_run_without_a_kill_has_one_plot() -> None:
    calm = a_timeline()._replace(marks=[])
    assert picture.around_the_kill(calm) == []
    text = re.sub(r"<script>.*?</script>", "", page(an_outcome(), calm, "x"), flags=re.DOTALL)
    assert len(SVG.findall(text)) == 3, "in each of its sizes"


def test_report_has_the_data_of_the_replicas_drawing() -> None:
    seen = a_timeline()
    data = lanes.as_data(seen)
    assert data["brokers"] == [1, 2, 3]
    assert len(data["moments"]) == len(seen.moments)
    down = [each for each in data["moments"] if each["logs"][0] is None]
    assert {each["leader"] for each in down} == {2, None}
    assert down[-1]["isr"] == (2, 3)
    assert down[-1]["logs"][1][2] == ((0, 0), (1, 1000))
    long = seen._replace(moments=seen.moments * 40)
    few = lanes.as_data(long)["moments"]
    assert len(few) < lanes.MOMENTS_MAX * 1.3
    assert {(each["leader"], each["isr"]) for each in few} == {
        (each["leader"], each["isr"]) for each in data["moments"]
    }


def test_texts_of_a_run_cannot_end_the_data_of_the_drawing() -> None:
    marks = [Mark(1.0, "</script><script>hacked()</script>", "kill")]
    text = page(an_outcome(), a_timeline()._replace(marks=marks), "x")
    assert "</script><script>hacked" not in text
    assert len(outline(text).all("script")) == 2


def test_long_outage_gets_a_plot_of_the_return() -> None:
    marks = [Mark(10.0, "k", "kill"), Mark(60.0, "s", "start"), Mark(62.0, "w", "whole")]
    seen = a_timeline()._replace(marks=marks, seconds=100.0)
    kill, back = picture.around_the_kill(seen)
    assert kill == ("The kill: 4.5 seconds", Window(8.5, 13.0))
    assert back == ("The restart: 5.0 seconds", Window(58.5, 63.5))
    near_the_end = picture.around_the_kill(seen._replace(seconds=63.0))
    assert near_the_end[1][1] == Window(58.5, 63.0)


def test_ticks_are_round_and_within() -> None:
    assert plot.ticks(0, 5_000, 5) == [0, 1_000, 2_000, 3_000, 4_000, 5_000]
    assert plot.ticks(1.3, 2.9, 4) == [1.5, 2.0, 2.5]
    assert plot.ticks(3, 3, 4) == [3]


def test_a_line_keeps_only_points_that_can_be_seen() -> None:
    straight = [(float(n), float(n)) for n in range(1_000)]
    assert plot.simplified(straight) == [straight[0], straight[-1]]
    bent = [*straight, (1_000.0, 0.0), (1_001.0, 0.0)]
    assert plot.simplified(bent) == [straight[0], straight[-1], (1_000.0, 0.0), (1_001.0, 0.0)]


def test_a_line_is_cut_at_the_edge_of_its_panel() -> None:
    panel = plot.Panel(0, 0, 100, 100, 10.0, 20.0, 0, 100)
    drawn = panel.line([[(5.0, 0), (15.0, 100), (25.0, 100)]], "x")
    assert 'points="0.0,50.0 50.0,0.0 100.0,0.0"' in drawn


def test_lag_lanes_use_the_scale_of_in_sync_replicas() -> None:
    """A restarted replica is shown as a number: its lane would flatten all others."""
    seen = a_timeline()
    drawn = picture.draw(seen, picture.whole(seen), Shape(1120, 300, "x"), "x")
    texts = re.findall(r"<text[^>]*>([^<]+)</text>", drawn)
    assert texts.count("8") == 3
    assert texts.count("1,000") == 2, "on the axis of offsets, and at the restart of broker 1"


def test_plot_of_the_docs_is_a_separate_file(tmp_path: Path) -> None:
    path = tmp_path / "picture.svg"
    picture.write(a_timeline(), str(path))
    parts = {part.tag.rpartition("}")[2] for part in ElementTree.parse(path).iter()}
    assert {"style", "title", "desc", "polyline", "path"} <= parts
