"""The two parsers of the options of `tidelog up`: the fast one agrees with click."""

import json
import subprocess
import sys

import click
import pytest

from tidelog.apps.cli.local.lifecycle import up
from tidelog.apps.cli.local.up_options import OPTIONS, UpOptions, read_plain

PLAIN = [
    "",
    "--brokers 1",
    "--brokers=5 --port=0",
    "--port 9092 --data somewhere",
    "--ephemeral --one-process --supervise",
    "--detach --format json --wait 2.5",
    "--set a=1 --set b=2=3",
    "--racks a,b --wait 1",
    "--ephemeral -- pytest -x --port 3",
    "-- sh -c true",
]
WRONG = [
    "--nothing 1",
    "--brokers",
    "--brokers 0",
    "--brokers 101",
    "--brokers x",
    "--port 65536",
    "--port -1",
    "--wait 0",
    "--format yaml",
    "--ephemeral=yes",
]
ODD = ["--help", "-h", "--wait 1e3", "--data --detach", "pytest -x"]
CONFLICTS = ["--ephemeral --data x", "--detach -- true", "--format json -- true"]


def by_click(words: list[str]) -> UpOptions:
    context = up.make_context("up", list(words))
    return UpOptions(**context.params)


@pytest.mark.parametrize("line", PLAIN)
def test_quick_parser_and_click_agree(line: str) -> None:
    words = line.split()
    assert read_plain(words) == by_click(words)


@pytest.mark.parametrize("line", [*WRONG, *ODD, *CONFLICTS])
def test_other_options_are_left_to_click(line: str) -> None:
    assert read_plain(line.split()) is None


@pytest.mark.parametrize("line", WRONG)
def test_click_rejects_invalid_options(line: str) -> None:
    with pytest.raises(click.UsageError):
        by_click(line.split())


@pytest.mark.parametrize("line", CONFLICTS)
def test_conflicts_are_found_after_click_too(line: str) -> None:
    assert by_click(line.split()).conflict()


def test_defaults_are_the_same_everywhere() -> None:
    assert {o.field: o.default for o in OPTIONS} == {
        name: value for name, value in UpOptions()._asdict().items() if name != "command"
    }


def test_a_plain_start_imports_neither_click_nor_rich_nor_the_lab() -> None:
    code = (
        "import json, os, sys\n"
        "sys.argv = ['tidelog', 'up', '--set', 'node.id=1']\n"
        "from tidelog.apps.cli.launch import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 2\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = json.loads(ran.stdout)
    unwanted = ("click", "rich", "asyncio", "logging", "argparse", "pathlib", "tempfile")
    assert not [name for name in modules if name.split(".")[0] in unwanted]
    assert not [name for name in modules if name.startswith("tidelog.lab")]
