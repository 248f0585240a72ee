"""The pages of metrics and log events, and the dashboard, match the code."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tidelog.apps.metrics_page import pages, write
from tidelog.core.metrics.families import FAMILIES

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
DASHBOARD = ROOT / "dashboards" / "tidelog.json"
PREFIXES = ("kafka_", "tidelog_", "process_")
FUNCTIONS_OF_NAMES = ("_bucket", "_count", "_sum")


@pytest.mark.parametrize("name", pages())
def test_page_is_up_to_date(name: str) -> None:
    assert (REFERENCE / name).read_text() == pages()[name], (
        "run: python -m tidelog.apps.metrics_page docs/reference"
    )


def test_pages_are_written(tmp_path: Path) -> None:
    write(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == pages()


def test_names_are_unique_and_valid_for_prometheus() -> None:
    names = [family.name for family in FAMILIES]
    assert len(set(names)) == len(names)
    for family in FAMILIES:
        assert re.fullmatch(r"[a-z_:][a-z0-9_:]*", family.name)
        assert family.name.startswith(PREFIXES)
        assert (family.kind == "counter") == family.name.endswith("_total")
        assert "|" not in family.meaning


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def test_dashboard_uses_only_existing_metrics() -> None:
    told = {family.name for family in FAMILIES}
    asked = set()
    for panel in panels():
        for target in panel["targets"]:
            asked |= set(re.findall(r"\b(?:kafka|tidelog|process)_\w+", target["expr"]))
    assert asked
    assert not {
        name
        for name in asked - told
        if not any(name.removesuffix(end) in told for end in FUNCTIONS_OF_NAMES)
    }


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        mine = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not taken & mine, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= mine
    assert len({panel["id"] for panel in panels()}) == len(panels())


def test_alerts_use_only_existing_metrics() -> None:
    told = {family.name for family in FAMILIES}
    text = (ROOT / "docs" / "how-to" / "watch-with-prometheus.md").read_text()
    expressions = "".join(re.findall(r"expr: (.*)", text))
    asked = re.findall(r"\b(?:kafka|tidelog)_\w+", expressions)
    assert len(asked) >= 6
    assert set(asked) <= told
