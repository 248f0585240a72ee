"""The benchmark against Kafka: evaluation of rounds, plot, page, and a missing Java."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCHES = ROOT / "benchmarks"
PAGE = ROOT / "docs" / "explanation" / "beside-kafka.md"
IMAGES = ROOT / "docs" / "images"


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    """Import a module of the benchmarks, which are not a package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHES))
        yield import_module


def one(seconds: float, cpu_s: float, **more: float) -> dict[str, float]:
    """Return a round of one gigabyte in a thousand requests."""
    found = {"bytes": 1e9, "cpu_bytes": 1e9, "messages": 1000, "seconds": seconds}
    return {**found, "broker_cpu_s": cpu_s, "rss_mb": 50, "foreign_load": 0.1, **more}


def row(bench: Any, **given: Any) -> Any:
    return bench("beside_kafka.rows").Row("some row", lambda *_: {}, **given)


def found(bench: Any) -> dict[str, Any]:
    """Return a run of three rows: a missed CPU goal, a latency, and a failed row."""
    summary = bench("beside_kafka.figures").summary
    rate = {"tidelog": [one(2, 3)] * 3, "kafka": [one(4, 4)] * 3}
    quick = one(1, 1, p50_us=100, p99_us=200, p999_us=300)
    slow = one(1, 1, p50_us=400, p99_us=500, p999_us=600)
    latency = row(bench, unit="us", goal=2, take="p50_us")
    rows = [
        summary(row(bench, unit="MB/s", goal=2, goal_cpu=1.5), rate, "with a note"),
        summary(latency, {"tidelog": [quick], "kafka": [slow]}),
        {"row": "a row < that failed", "error": "why"},
    ]
    told = {"date": "2026-01-31", "machine": "2 cores", "ours": "Tidelog", "theirs": "Kafka"}
    return {**told, "touched": "1 GB", "warm_up": 3, "cold": {}, "quick": False, "rows": rows}


def test_ratio_is_the_median_and_spread_the_extremes_of_rounds(bench: Any) -> None:
    ours, theirs = [one(s, 1) for s in (1, 2, 4)], [one(s, 3) for s in (4, 4, 4)]
    result = bench("beside_kafka.figures").summary(
        row(bench, unit="MB/s"), {"tidelog": ours, "kafka": theirs}
    )
    assert (result["ratio"], result["spread"], result["ratio_cpu"]) == (2, [1, 4], 3)
    assert result["tidelog"]["figure"] == 500
    assert result["kafka"]["cpu"] == 3


@pytest.mark.parametrize(
    ("given", "figure", "cpu"),
    [
        ({"unit": "req/s"}, 500, 3000),
        ({"unit": "txn/s"}, 500, 3000),
        ({"unit": "s", "take": "seconds"}, 2, 3),
        ({"unit": "us", "take": "p99_us"}, 7, 3000),
    ],
)
def test_figure_is_a_rate_or_a_time(
    bench: Any, given: dict[str, Any], figure: float, cpu: float
) -> None:
    figures = bench("beside_kafka.figures")
    round_ = one(2, 3, p99_us=7)
    assert figures.figure(row(bench, **given), round_) == figure
    assert figures.cpu(row(bench, **given), round_) == cpu


@pytest.mark.parametrize("unit", ["us", "s", "MB", "cores"])
def test_some_units_are_better_if_lower(bench: Any, unit: str) -> None:
    better = bench("beside_kafka.figures").better
    assert better(row(bench, unit=unit), 2, 6) == 3
    assert better(row(bench, unit="MB/s"), 6, 2) == 3


def test_goals_are_marked_and_the_missed_ones_named(bench: Any) -> None:
    figures = bench("beside_kafka.figures")
    rows = found(bench)["rows"]
    assert "2✓" in figures.line(rows[0])
    assert "1.5✗" in figures.line(rows[0])
    assert figures.goals_met(rows) == (
        "3 of 4 goals are met; missed: some row by CPU (1.33, goal 1.5)"
    )


def test_lines_fit_and_failed_rows_are_marked(bench: Any) -> None:
    figures = bench("beside_kafka.figures")
    rows = found(bench)["rows"]
    lines = [figures.heading(), *(line for r in rows for line in figures.line(r).splitlines())]
    assert all(len(line) <= figures.WIDTH_MAX for line in lines)
    assert len(lines[0]) == len(lines[1])
    assert "    with a note" in lines
    assert "100/200/300 us" in lines[3]
    assert "failed: why" in lines[-1]


@pytest.mark.parametrize(
    ("us", "told"), [(811, "0.811"), (33_300, "33.3"), (999_700, "1000"), (3_630_000, "3630")]
)
def test_long_latencies_are_in_milliseconds(bench: Any, us: float, told: str) -> None:
    assert bench("beside_kafka.figures").milliseconds(us) == told


def test_rows_have_unique_names_and_shared_clusters_come_first(bench: Any) -> None:
    rows, where = bench("beside_kafka.rows").ROWS, bench("beside_kafka.rows").Where
    assert len({each.name for each in rows}) == len(rows)
    shared = [each.where is where.SHARED for each in rows]
    assert shared == sorted(shared, reverse=True)


def test_only_the_same_work_on_the_same_clusters_is_done_once(bench: Any) -> None:
    groups = bench("beside_kafka.turns").grouped(bench("beside_kafka.rows").ROWS)
    together = [[each.name for each in group] for group in groups if len(group) > 1]
    assert ["one in flight RF3", "one in flight RF3, p99"] in together
    assert ["idle memory", "idle CPU"] in together
    assert len(together) == 7, "six latencies and the rest"


def test_quick_run_has_the_most_important_rows(bench: Any) -> None:
    quick = {each.name for each in bench("beside_kafka.rows").ROWS if each.quick}
    told = {"produce RF3 1 KB", "one in flight RF3", "start-up to ready", "failover after kill -9"}
    assert told < quick
    assert len(quick) < 20


def test_remaining_time_is_scaled_by_the_pace_so_far(bench: Any) -> None:
    progress = bench("beside_kafka.turns")
    assert progress.left_s(0, [10, 20, 30], 0, 0, 0) == 60
    assert progress.left_s(70, [100, 100], 1, 0, 370) == 200
    assert progress.left_s(70, [100, 100], 1, 0.5, 220) == pytest.approx(50)
    assert progress.minutes(89) == "89 s"
    assert progress.minutes(600) == "10 min"


def test_the_plot_has_a_bar_for_each_ratio_and_a_tick_for_each_goal(bench: Any) -> None:
    run = found(bench)
    text = bench("beside_kafka.docs_output").plot(run)
    tree = ElementTree.fromstring(text)
    kinds = [each.get("class") for each in tree.iter()]
    assert [kinds.count(kind) for kind in ("time", "cpu", "one")] == [2 + 1, 2 + 1, 1]
    assert kinds.count("goal") == 4 + 1, "one of each stands in the legend"
    assert kinds.count("missed") == 1 + 1
    assert "failed" not in text
    assert run["machine"] in text
    assert run["date"] in text
    assert "prefers-color-scheme: dark" in text


def test_ratio_below_one_is_drawn_to_the_left(bench: Any) -> None:
    plot = bench("beside_kafka.docs_output")
    scale = plot.Scale([0.5, 2.0])
    worse, better = (ElementTree.fromstring(plot.bar("cpu", scale, r, 0, 5)) for r in (0.5, 2))
    assert worse.get("class") == "cpu below"
    assert better.get("class") == "cpu"
    one = f"{scale(1):.1f}"
    assert better.get("x") == one
    assert float(worse.get("x", 0)) + float(worse.get("width", 0)) == pytest.approx(scale(1), 0.01)


def test_only_the_figures_of_the_page_are_updated(bench: Any) -> None:
    page, marks = bench("beside_kafka.docs_output"), bench("docs_figures")
    before = f"# Title\n\nprose\n\n{marks.BEGIN}\nold\n{marks.END}\n\nmore prose\n"
    after = page.update_page(before, found(bench))
    assert after.startswith(before.partition(marks.BEGIN)[0])
    assert after.endswith(before.partition(marks.END)[2])
    assert "old" not in after
    assert "| some row: with a note | 500 MB/s | 250 MB/s | **2.00** (2.00–2.00) | 2✓ |" in after
    assert "100/200/300 µs" in after
    assert page.update_page(after, found(bench)) == after
    tables = [line.count(" |") for line in after.splitlines() if line.startswith("| ")]
    assert len(set(tables)) == 1, "each row has all columns"
    with pytest.raises(ValueError, match="the page has no"):
        page.update_page("# Title\n", found(bench))


def test_a_page_of_a_busy_machine_says_so(bench: Any) -> None:
    run = found(bench)
    section = bench("beside_kafka.docs_output").section
    assert "Other processes" not in section(run)
    run["rows"][0]["foreign_load"] = 0.9
    assert "**Other processes used up to 0.9 cores" in section(run)


def test_remark_is_in_the_page_and_under_the_plot(bench: Any) -> None:
    run = {**found(bench), "remark": "Not one run. More of it."}
    assert "**Not one run. More of it.**" in bench("beside_kafka.docs_output").section(run)
    assert "Not one run<" in bench("beside_kafka.docs_output").plot(run)


def test_committed_page_and_plot_match_the_committed_figures(bench: Any) -> None:
    run = json.loads((IMAGES / "beside-kafka.json").read_text())
    assert bench("beside_kafka.docs_output").update_page(PAGE.read_text(), run) == PAGE.read_text()
    assert bench("beside_kafka.docs_output").plot(run) == (IMAGES / "beside-kafka.svg").read_text()
    assert len(run["rows"]) > 10


def test_python_build_without_information_is_unknown(bench: Any) -> None:
    build = bench("processes").build
    assert build("'--enable-optimizations' '--with-lto'", "/opt", False) == "optimised build"
    assert build("'--enable-shared'", "/usr", True) == "Debian's optimised build"
    assert build("'--enable-shared'", "/usr", False).startswith("unknown build")
    assert build("'--enable-shared'", "/home/me/.pyenv", True).startswith("unknown build")


def test_meter_counts_only_cpu_since_its_start(bench: Any) -> None:
    meter = bench("processes").Meter(lambda: [os.getpid()])
    grown = bytearray(os.urandom(50_000_000))
    size = len(grown)
    del grown
    read = meter.read()
    assert size / 1e6 < read["rss_mb"], "the peak counts, though it is over"
    assert read["broker_cpu_s"] >= 0
    assert read["foreign_load"] >= 0


@pytest.mark.parametrize(
    ("java", "line"),
    [
        ("", "Kafka needs Java 17 or newer: install openjdk-17-jre-headless (Debian, Ubuntu)\n"),
        ("echo 'openjdk version \"11.0.2\"' >&2", '; found: openjdk version "11.0.2"\n'),
    ],
    ids=["none", "old"],
)
def test_a_machine_without_java_gets_one_line(tmp_path: Path, java: str, line: str) -> None:
    if java:
        program = tmp_path / "java"
        program.write_text(f"#!/bin/sh\n{java}\n")
        program.chmod(0o755)
    done = subprocess.run(
        [sys.executable, str(BENCHES / "how_fast_beside_kafka.py"), "--rows", "one in flight"],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.endswith(line)
    assert done.stderr.count("\n") == 1
