"""The pages of settings match the code."""

from pathlib import Path

import pytest

from tidelog.apps.settings_page import pages, write
from tidelog.core.settings.broker_keys import BROKER
from tidelog.core.settings.topic_keys import TOPIC

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.parametrize("name", pages())
def test_page_is_up_to_date(name: str) -> None:
    assert (REFERENCE / name).read_text() == pages()[name], (
        "run: python -m tidelog.apps.settings_page docs/reference"
    )


@pytest.mark.parametrize(
    ("of", "names"),
    [
        (("broker-settings.md", "own-settings.md", "topic-defaults.md"), BROKER),
        (("topic-settings.md",), TOPIC),
    ],
)
def test_pages_have_every_setting_once(of: tuple[str, ...], names: dict[str, object]) -> None:
    text = "".join(pages()[page] for page in of)
    assert not [name for name in names if text.count(f"\n| `{name}` |") != 1]


def test_pages_are_written(tmp_path: Path) -> None:
    write(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == pages()
