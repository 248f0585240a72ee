"""The docs are true: links and anchors hold, commands run, references are complete.

A `console` block holds commands behind `$ `. A `tidelog` command is run and must exit with 0,
unless an HTML comment, which readers do not see, stands on the line before the block:
`<!-- exits with 1 -->`, or `<!-- not run by tests: why -->` for commands that are only parsed.
A command that has not ended after `BOUND_S` is killed, and its test fails.
"""

import ast
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from tidelog.apps.cli.connection import LAST_RESORT
from tidelog.apps.cli.main import cli
from tidelog.core.errors import ErrorCode
from tidelog.core.storage import layout
from tidelog.lab.modelcheck.shipped import invariants as shipped_invariants
from tidelog.lab.modelcheck.shipped import lease_model
from tidelog.lab.modelcheck.transactions import model as transaction_model
from tidelog.lab.mutants.hunt import ESCAPED
from tidelog.lab.sim.faults import KINDS
from tidelog.lab.sim.swarm import (
    BAD_DISKS,
    BY_HAND,
    CLOCKS,
    FAIL_DIRECTORY,
    FAULTS,
    KILL_AT_OUTCOME,
    MOVE,
    STORE_AWAY,
    STORE_LEADER,
    UNREGISTER,
    UPGRADES,
)
from tidelog.lab.spec.invariants import INVARIANTS
from tidelog.lab.story.library import find

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("scenarios/*.md"), *DOCS.rglob("*.md")])
STANDS_ALONE = ("README.md", "CODE_OF_CONDUCT.md")
"""Pages that no other page has to link to: people look for them by name."""
ADRS = sorted(DOCS.glob("adr/[0-9]*.md"))
NAMED_FROM = [
    ROOT,
    ROOT / "src" / "tidelog",
    *(ROOT / "src" / "tidelog" / r for r in ("core", "lab")),
]
"""Where a path in the prose may begin."""

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"(?:^<!-- ([^\n]+) -->\n)?^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = ("tidelog", "make")
NOT_RUN = "not run by tests: "
EXITS_WITH_1 = "exits with 1"
BOUND_S = 300.0
"""Commands of the docs take a second; a busy machine may hold them up."""
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PATH = re.compile(r"`([\w./-]+/[\w.-]+\.(?:py|md|txt|toml|yaml))`")
FOLDER = re.compile(r"`((?:core|lab|shell|apps|src|tests|docs|scenarios|node|storage)/[\w/-]*)`")
PLAYED = re.compile(r"tidelog story play ([a-z0-9/-]+)(?![\w./-])")
WORD = re.compile(r"`([a-z0-9_-]+)`")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def rows(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        if line.startswith("|") and not set(line) <= set("|-: "):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def sections(page: Path) -> dict[str, str]:
    parts = re.split(r"^## (.+)$", page.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


class Command(NamedTuple):
    page: Path
    words: list[str]
    note: str

    def __str__(self) -> str:
        return f"{self.page.name}:{' '.join(self.words)}"


def commands(program: str) -> list[Command]:
    found = []
    for page in PAGES:
        for note, block in CONSOLE.findall(page.read_text()):
            assert not note or note == EXITS_WITH_1 or note.startswith(NOT_RUN), note
            for line in block.splitlines():
                assert line.startswith("$ "), f"{name(page)}: {line!r} is no command"
                words = shlex.split(line.removeprefix("$ "), comments=True)
                assert words[0] in PROGRAMS, f"{name(page)}: {line!r} belongs into a text block"
                if words[0] == program:
                    found.append(Command(page, words[1:], note))
    return found


def leaves(group: click.Group, *path: str) -> Iterator[tuple[str, click.Command]]:
    for word, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, *path, word)
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield " ".join(("tidelog", *path, word)), command


LEAVES = dict(leaves(cli))
COMMAND_SECTIONS = {
    title: text for page in REFERENCE.glob("cli*.md") for title, text in sections(page).items()
}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_and_stories_named_on_a_page_exist(page: Path) -> None:
    text, sentences = page.read_text(), prose(page)
    assert text.startswith("# ")
    assert len(re.findall(r"^# ", sentences, re.MULTILINE)) == 1, "one title"
    files = [n for n in PATH.findall(sentences) + FOLDER.findall(sentences) if "NNNN" not in n]
    assert not [n for n in files if not any((root / n).exists() for root in NAMED_FROM)]
    assert all(find(story).is_file() for story in PLAYED.findall(text))
    # One broker is not enough: the reader may have killed it two lines above.
    examples = "".join(block for _, block in FENCE.findall(text))
    for allowed in (LAST_RESORT, "PLAINTEXT://localhost:9092"):
        examples = examples.replace(allowed, "")
    assert not re.findall(r".*localhost:90\d\d.*", examples)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the docs site make them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-") for text in plain}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_link_targets_exist(page: Path) -> None:
    for target in LINK.findall(prose(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


def test_every_page_can_be_reached_from_the_index() -> None:
    linked = {
        (page.parent / target.partition("#")[0]).resolve()
        for page in PAGES
        for target in LINK.findall(prose(page))
    }
    assert not [name(p) for p in PAGES if p not in linked and p.name not in STANDS_ALONE]


@pytest.mark.parametrize(
    "page", [ROOT / "ARCHITECTURE.md", DOCS / "explanation" / "often-said.md"], ids=name
)
def test_stories_and_tests_in_tables_exist(page: Path) -> None:
    tests = {
        function
        for path in (ROOT / "tests").rglob("test_*.py")
        for function in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    shown, columns = [], -1
    for cells in rows(page.read_text()):
        if cells[-1] in ("story", "shown by"):
            columns = len(cells)
        elif len(cells) == columns:
            shown.append(WORD.findall(cells[-1]))
    assert len(shown) >= 20
    assert all(shown), "each row names one"
    for word in chain.from_iterable(shown):
        assert word in tests if word.startswith("test_") else find(word).is_file(), word


def test_functions_named_with_their_file_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = re.findall(r"(?:`(\w+)` and )?`(\w+)` in `(src/[\w/]+\.py)`", text)
    assert len(named) >= 10
    for *functions, path in named:
        source = (ROOT / path).read_text()
        assert all(function in source for function in functions), (functions, path)


def test_each_term_has_one_line_and_one_file() -> None:
    terms = list(rows((ROOT / "GLOSSARY.md").read_text()))[1:]
    assert [cells[0].lower() for cells in terms] == sorted(cells[0].lower() for cells in terms)
    assert all(len(cells) == 3 and PATH.fullmatch(cells[2].rstrip(" |")) for cells in terms)


def command_and_arguments(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that the words name, and its arguments; AssertionError if there is none."""
    if words[0].startswith("-"):
        return cli, words
    depth = 2 if " ".join(("tidelog", *words[:2])) in LEAVES else 1
    command, arguments = LEAVES[" ".join(("tidelog", *words[:depth]))], words[depth:]
    if isinstance(command, click.Group) and arguments:
        assert arguments[0].startswith("-"), f"there is no command {' '.join(words)}"
    return command, arguments


def run(words: list[str], bound_s: float = BOUND_S) -> "subprocess.CompletedProcess[str]":
    """Run a command in the root of the repository; the test fails if it does not end."""
    command = [sys.executable, "-m", "tidelog", *words]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=bound_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            pytest.fail(
                f"`tidelog {shlex.join(words)}` has not ended after {bound_s:g} s; if it runs until"
                f" it is stopped, put `<!-- {NOT_RUN}why -->` on the line before its block"
            )
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def test_a_command_that_does_not_end_is_named_and_killed(tmp_path: Path) -> None:
    words = ["up", "--port", "0", "--brokers", "1", "--data", str(tmp_path / "data")]
    with pytest.raises(pytest.fail.Exception, match=r"`tidelog up .*` has not ended after 1 s"):
        run(words, bound_s=1.0)


@pytest.mark.parametrize("command", commands("tidelog"), ids=str)
def test_command_runs(command: Command) -> None:
    leaf, arguments = command_and_arguments(command.words)
    if command.note.startswith(NOT_RUN):
        leaf.make_context("tidelog", list(arguments))
        return
    one_worker = any("--workers" in option.opts for option in leaf.params)
    words = [*command.words, *(["--workers", "1"] if one_worker else [])]
    outcome = run(words)
    assert outcome.returncode == (1 if command.note == EXITS_WITH_1 else 0), outcome
    if "json" in words:
        assert json.loads(outcome.stdout)["holds"] is True


@pytest.mark.parametrize("command", commands("make"), ids=str)
def test_make_targets_exist(command: Command) -> None:
    assert re.search(rf"^{command.words[0]}:.* ##", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_advice_to_install_works_without_a_package_on_the_index() -> None:
    texts = [*PAGES, *(ROOT / "src").rglob("*.py"), *(ROOT / "scripts").rglob("*.py")]
    assert not [name(path) for path in texts if re.search(r"install '?tidelog", path.read_text())]


def test_the_reference_has_every_command() -> None:
    assert sorted(COMMAND_SECTIONS) == sorted(["tidelog", *LEAVES])


@pytest.mark.parametrize(("title", "command"), LEAVES.items(), ids=list(LEAVES))
def test_the_reference_has_every_option(title: str, command: click.Command) -> None:
    table = {cells[0]: " | ".join(cells[1:]) for cells in rows(COMMAND_SECTIONS[title])}
    table.pop("option", None)
    options = {f"`{o.opts[0]}`": o for o in command.params if isinstance(o, click.Option)}
    assert sorted(table) == sorted(options)
    numbers = {key: o.default for key, o in options.items() if type(o.default) is int}
    assert not {key: n for key, n in numbers.items() if f"({n})" not in table[key]}


FILES = [
    layout.RECOVERY_POINTS,
    layout.HIGH_WATERMARKS,
    layout.LOG_STARTS,
    layout.CLEANER_OFFSETS,
    layout.META_PROPERTIES,
    layout.CLEAN_SHUTDOWN,
    layout.METADATA_REVISION,
    layout.LEADER_EPOCHS,
    layout.PARTITION_METADATA,
    layout.CONFIRMED_CLOCK,
    *(f"<base offset>{kind}" for kind in layout.SEGMENT_KINDS),
]


@pytest.mark.parametrize(
    ("page", "names"),
    [
        (
            "invariants.md",
            [*INVARIANTS, *shipped_invariants.NAMES, *lease_model.NAMES, *transaction_model.NAMES],
        ),
        (
            "simulator-faults.md",
            [
                *KINDS,
                *FAULTS,
                *CLOCKS,
                *BY_HAND,
                *BAD_DISKS,
                *UPGRADES,
                UNREGISTER,
                STORE_AWAY,
                KILL_AT_OUTCOME,
                MOVE,
            ],
        ),
        ("on-disk-files.md", FILES),
    ],
    ids=["invariants", "faults", "files"],
)
def test_the_reference_is_complete(page: str, names: list[str]) -> None:
    text = (REFERENCE / page).read_text()
    assert len(names) >= 5
    assert not [n for n in names if f"`{n}`" not in text and f"- {n}\n" not in text]


OF_OTHERS = ("connection refused", "java.io.OptionalDataException", "Illegal size", "of collection")
"""Messages of the operating system and of Spark."""


def texts_of_sources() -> str:
    """All string constants of the sources; a value inside an f-string is an ellipsis."""
    found = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = (getattr(part, "value", None) for part in node.values)
                found.append("".join(p if isinstance(p, str) else "…" for p in parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join([*found, *ErrorCode.__members__, *OF_OTHERS])


@pytest.mark.parametrize("page", [DOCS / "how-to" / "troubleshoot.md"], ids=name)
def test_messages_of_the_troubleshooting_page_exist(page: Path) -> None:
    """Users search the page for the message that they see."""
    texts = texts_of_sources()
    messages = [m for cells in rows(page.read_text()) for m in re.findall(r"`([^`]+)`", cells[0])]
    assert len(messages) >= 30
    parts = {part.strip() for message in messages for part in message.split("…")}
    assert not sorted(part for part in parts if part not in texts)


def test_mutants_that_the_lab_does_not_find_are_listed() -> None:
    text = (DOCS / "explanation" / "what-the-lab-proves.md").read_text()
    named = re.findall(r"^- `([a-z-]+)`: ", text, re.MULTILINE)
    assert named == [mutant.name for mutant in ESCAPED]


def test_named_faults_exist() -> None:
    table = "\n".join(chain.from_iterable(rows((REFERENCE / "simulator-faults.md").read_text())))
    known = {*KINDS, *FAULTS, *CLOCKS, *BY_HAND, *BAD_DISKS, *UPGRADES}
    known |= {UNREGISTER, STORE_AWAY, STORE_LEADER, FAIL_DIRECTORY, MOVE, KILL_AT_OUTCOME}
    assert not set(re.findall(r"`([^`]+)`", table)) - known


def test_every_make_target_is_explained() -> None:
    verbs = re.findall(r"^([a-z-]+):.* ##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert not [verb for verb in verbs if verb != "help" and f"| `{verb}` |" not in text]


def test_every_dependency_has_a_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"]
    packages = [re.match(r"[\w-]+", requirement) for requirement in wanted]
    text = (DOCS / "adr" / "0004-dependencies.md").read_text()
    assert not [p[0] for p in packages if p and f"{p[0]} |" not in text]


@pytest.mark.parametrize("page", ADRS, ids=name)
def test_adrs_have_the_four_headings(page: Path) -> None:
    assert list(sections(page)) == ["Context", "Options", "Decision", "Consequences"]
    assert page.read_text().startswith(f"# {page.name[:4]}: ")
    assert f"({page.name})" in (DOCS / "adr" / "README.md").read_text()


def test_the_python_example_reads_a_kafka_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (REFERENCE / "on-disk-files.md").read_text()
    example = next(block for language, block in FENCE.findall(text) if language == "python")
    with tarfile.open(ROOT / "tests" / "data" / "kafka-4.3.1" / "clean.tar.gz") as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # 3.11.4 and newer
        tar.extractall(tmp_path)
    (tmp_path / "clean" / "broker-1").rename(tmp_path / "kafka-logs")
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "on-disk-files.md", "exec"), {})
    assert "EpochEntry" in capsys.readouterr().out
