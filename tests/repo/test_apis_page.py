"""The page of APIs is what the code says."""

from pathlib import Path

from tidelog.apps import apis_page
from tidelog.core.api.offered import OFFERED

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "apis.md"


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text() == apis_page.page(), (
        "run: python -m tidelog.apps.apis_page docs/reference/apis.md"
    )


def test_page_has_every_api_once_with_its_versions() -> None:
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    shown = {int(key.strip("| ")): more for key, *more in rows if key.strip("| ").isdigit()}
    for key, api in OFFERED.items():
        first, _, last = shown[key][1].partition("–")
        assert (shown[key][0], int(first), int(last or first)) == (api.name, api.first, api.last)
    assert all(key in OFFERED or key >= 32000 for key in shown)


def test_every_note_is_about_an_api() -> None:
    assert not [name for name in apis_page.NOTES if name not in PAGE.read_text()]
