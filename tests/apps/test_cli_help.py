"""The command line as a whole: help, errors, speed, the installed script."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tidelog.apps.cli.main import cli
from tidelog.apps.cli.usage import POLICY_NAMES, TRANSACTION_RULE_NAMES
from tidelog.lab.historical_truncation import POLICIES
from tidelog.lab.story.rules import RULES


def tree(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from tree(child, (*path, name))


PATHS = list(tree(cli))
GROUPS = [path for path in PATHS if (*path,) in {child[:-1] for child in PATHS if child}]


def test_every_command_exists() -> None:
    assert {" ".join(path) for path in PATHS} == {
        "",
        "demo",
        "up",
        "status",
        "down",
        "broker",
        "broker start",
        "broker kill",
        "broker pause",
        "broker resume",
        "broker drain",
        "console",
        "cluster",
        "cluster info",
        "cluster health",
        "cluster brokers",
        "cluster unregister",
        "acl",
        "acl add",
        "acl list",
        "acl remove",
        "user",
        "user create",
        "user list",
        "user delete",
        "quota",
        "quota set",
        "quota remove",
        "quota list",
        "features",
        "features describe",
        "features upgrade",
        "features downgrade",
        "features disable",
        "loss",
        "loss list",
        "transaction",
        "transaction list",
        "transaction describe",
        "transaction find-hanging",
        "transaction abort",
        "partition",
        "partition describe",
        "partition elect",
        "partition recover",
        "explain",
        "topic",
        "topic create",
        "topic list",
        "topic describe",
        "topic alter",
        "topic delete",
        "produce",
        "consume",
        "group",
        "group list",
        "group describe",
        "group reset",
        "group delete",
        "config",
        "config describe",
        "config alter",
        "reassign",
        "completion",
        "log-dir",
        "log-dir list",
        "log-dir move",
        "inspect",
        "inspect segment",
        "inspect epochs",
        "inspect checkpoints",
        "audit",
        "repair",
        "store",
        "store show",
        "store backup",
        "store copy",
        "store restore",
        "store rebuild",
        "verify",
        "pipeline",
        "pipeline run",
        "pipeline check",
        "pipeline init",
        "story",
        "story lessons",
        "story list",
        "story play",
        "story check",
        "sim",
        "sim run",
        "sim replay",
        "model",
        "model table",
        "model check",
        "model lease",
        "model transactions",
        "model mutants",
    }


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_help_has_examples_that_can_be_typed(
    path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = CliRunner().invoke(cli, [*path, "--help"])
    assert found.exit_code == 0
    _, _, shown = found.stdout.partition("Examples:\n")
    lines = [line.strip() for line in shown.splitlines() if line.strip()]
    assert lines
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-story.txt").touch()
    (tmp_path / "stories").mkdir()
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == "tidelog"
        assert tuple(arguments[: len(path)]) == path
        parse(cli, arguments)


def runs_by_itself(command: click.Group, arguments: list[str]) -> bool:
    return command.invoke_without_command and arguments[0] not in command.commands


def parse(root: click.Group, arguments: list[str]) -> None:
    """Parse the arguments as the command does, without running it."""
    command: click.Command = root
    while isinstance(command, click.Group) and not runs_by_itself(command, arguments):
        command, *arguments = command.commands[arguments[0]], *arguments[1:]
    command.make_context(command.name, arguments)


@pytest.mark.parametrize("path", [path for path in GROUPS if path != ("broker",)], ids=" ".join)
def test_a_group_alone_shows_its_help(path: tuple[str, ...]) -> None:
    alone = CliRunner().invoke(cli, list(path))
    assert alone.exit_code == 0
    assert alone.stdout == CliRunner().invoke(cli, [*path, "--help"]).stdout


@pytest.mark.parametrize("path", GROUPS, ids=" ".join)
def test_no_sentence_is_cut_on_a_narrow_screen(path: tuple[str, ...]) -> None:
    found = CliRunner(env={"COLUMNS": "60"}).invoke(cli, [*path, "--help"])
    listed = found.stdout.partition("Commands:")[2].partition("Examples:")[0]
    assert listed
    assert "..." not in listed


def test_help_lists_the_existing_policies() -> None:
    assert [word for word in POLICY_NAMES.replace(",", "").split() if word in POLICIES] == [
        *POLICIES
    ]
    names = TRANSACTION_RULE_NAMES.replace(",", "").split()
    assert {word for word in names if word in RULES} == RULES.keys() - POLICIES.keys()


WRONG = {
    "a mistyped command": (["stroy"], "unknown command 'stroy'; did you mean story or store?"),
    "a command nothing is near to": (["xyz"], "choose from: demo, up, status, down, "),
    "a mistyped subcommand": (["model", "tabel"], "did you mean table?"),
    "a mistyped option": (["sim", "run", "--sed", "3"], "--seeds"),
    "a mistyped policy": (["sim", "run", "--policy", "kip101"], "did you mean kip-101"),
    "a mistyped story": (["story", "play", "hw-loses-aked-record"], "hw-loses-acked-record?"),
    "a story nothing is near to": (
        ["story", "play", "xyz"],
        "`tidelog story list` lists the stories",
    ),
    "a mistyped mutant": (["model", "mutants", "keep-what-followers-hat"], "-followers-had?"),
    "no such path": (["story", "check", "nowhere.txt"], "no story 'nowhere.txt'"),
    "no such format": (["story", "list", "--format", "yaml"], "'text', 'json'"),
    "not a size": (["model", "table", "--size", "2,2,2"], "such as 3,2,2,2"),
    "not a small size": (["model", "table", "--size", "2,2,2,20"], "from 1 to 9"),
    "not a seed": (["sim", "replay", "first"], "'first' is not a whole number"),
    "no seed": (["sim", "replay"], "missing argument 'SEED'"),
    "too few seeds": (["sim", "run", "--seeds", "0"], "x>=1"),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG)
def test_bad_usage_is_one_line_and_exit_code_2(arguments: list[str], message: str) -> None:
    found = CliRunner().invoke(cli, arguments)
    assert found.exit_code == 2
    assert found.stdout == ""
    assert found.stderr.startswith("tidelog: ")
    assert message in found.stderr
    assert found.stderr.count("\n") == 1
    assert " See: tidelog" in found.stderr
    assert found.stderr.endswith(" --help\n")


def test_an_interrupt_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.commands["story"].commands["list"], "invoke", interrupted)  # type: ignore[attr-defined]  # a group
    found = CliRunner().invoke(cli, ["story", "list"])
    assert found.exit_code == 130
    assert found.stderr.split() == ["tidelog:", "interrupted"]


@pytest.mark.parametrize("module", ["local.bring_up", "main"])
def test_an_interrupt_while_modules_are_imported_is_one_line(module: str) -> None:
    command = "up" if module == "local.bring_up" else "story"
    code = (
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == 'tidelog.apps.cli.{module}':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "from tidelog.apps.cli.launch import main\n"
        "sys.meta_path.insert(0, Finder())\n"
        f"sys.argv = ['tidelog', '{command}']\n"
        "main()"
    )
    command_line = [sys.executable, "-c", code]
    found = subprocess.run(command_line, capture_output=True, text=True, check=False, timeout=120)
    assert found.returncode == 130
    assert found.stderr == "\ntidelog: interrupted\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full device")
def test_failed_write_of_the_result_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "tidelog", "story", "list"]
        found = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert found.returncode != 0
    assert found.stderr.startswith("tidelog: can't write the result: No space left")


def python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout


def test_help_imports_neither_the_lab_nor_rich() -> None:
    loaded = python(
        "import json, sys\n"
        "from tidelog.apps.cli.main import cli\n"
        "try:\n    cli.main(['model', 'check', '--help'])\nexcept SystemExit:\n    pass\n"
        "print('\\n' + json.dumps(sorted(sys.modules)))"
    )
    modules = json.loads(loaded.splitlines()[-1])
    assert not [name for name in modules if name.startswith(("tidelog.lab", "tidelog.core"))]
    assert not [name for name in modules if name.split(".")[0] == "rich"]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("s", ["status", "store", "story", "sim"]),
        ("up --b", ["--brokers"]),
        ("model t", ["table", "transactions"]),
        ("story play hw-lo", ["hw-loses-acked-record"]),
    ],
)
def test_the_shell_can_complete(typed: str, offered: list[str]) -> None:
    words = f"tidelog {typed}"
    environ = {
        **os.environ,
        "_TIDELOG_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    found = subprocess.run(
        [str(Path(sys.executable).with_name("tidelog"))],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line.partition(",")[2] for line in found.stdout.split()] == offered


@pytest.mark.parametrize(
    "program",
    [[str(Path(sys.executable).with_name("tidelog"))], [sys.executable, "-m", "tidelog"]],
    ids=["script", "module"],
)
def test_the_installed_program_plays_a_story(program: list[str]) -> None:
    arguments = ["story", "play", "hw-moves-one-fetch-late", "--format", "json"]
    found = subprocess.run([*program, *arguments], capture_output=True, text=True, check=False)
    assert found.returncode == 0
    assert found.stderr == ""
    assert json.loads(found.stdout)["holds"] is True
    wrong = subprocess.run([*program, "nothing"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert subprocess.run([*program, "--version"], check=False, capture_output=True).returncode == 0
