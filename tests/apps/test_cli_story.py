"""`tidelog story`: the list, plays under one rule and several, verdicts."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tidelog.apps.cli.main import cli

LOSS = "truncation/hw-loses-acked-record"

TRUE = """# A record is written
# and read.

cluster A B
produce m1
----
client -> A  produce m1 acks=all
A LEO 0 -> 1

check logs-agree
"""
FALSE = TRUE.replace("LEO 0 -> 1", "LEO 0 -> 7")
TORN = TRUE.replace("produce m1\n----", "prodce m1\n----")


def run(*arguments: str, columns: str = "120") -> Result:
    return CliRunner(env={"COLUMNS": columns}).invoke(cli, ["story", *arguments])


def data(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*arguments, "--format", "json").stdout)
    return found


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (("true", TRUE), ("false", FALSE), ("torn", TORN)):
        (tmp_path / f"{name}.txt").write_text(text)
    return tmp_path


def test_list_names_every_story_and_what_it_shows() -> None:
    found = run("list")
    assert found.exit_code == 0
    stories = data("list")["stories"]
    loss = next(story for story in stories if story["name"] == LOSS)
    assert loss["policies"] == ["high-watermark", "leader-epoch"]
    assert "M24" in loss["covers"]
    assert f"{len(stories)} stories" in found.stdout
    for story in stories:
        assert f"  {story['name'].rpartition('/')[2]} " in found.stdout


def test_play_shows_common_steps_once_and_where_rules_differ() -> None:
    found = run("play", "hw-loses-acked-record")
    assert found.exit_code == 0
    lines = found.stdout.splitlines()
    assert lines[0] == "The record that was acknowledged and then lost"
    assert found.stdout.count("B is up, LEO=2 HW=1") == 1
    parting = lines.index("› restart B   ◆ the rules differ here")
    heads = next(line for line in lines[parting:] if "high-watermark" in line)
    assert "leader-epoch" in heads
    assert found.stdout.count("◆ the rules differ here") == 1
    assert "✗ high-watermark breaks acked-records-survive: acked, then lost: m2 at 1" in lines
    assert "✓ leader-epoch keeps acked-records-survive, logs-agree" in lines
    assert lines[-1] == "✓ as expected: high-watermark (historical rule) fails, leader-epoch holds"
    assert "at the end" not in found.stdout, "the story's own `state` has just shown it"


@pytest.mark.parametrize(
    ("name", "ended"),
    [
        (
            "unclean-election-loses-and-says-so",
            [
                "! broken: acked-records-survive: acked, then lost: m2 at 1",
                "✓ as expected: acked-records-survive is expected to break here",
            ],
        ),
        (
            "fast-leader-changes",
            ["✓ as expected: kip-101 (historical rule) fails, kip-279 and leader-epoch hold"],
        ),
    ],
)
def test_story_with_an_expected_violation_says_so_at_the_end(name: str, ended: list[str]) -> None:
    """The output does not blame the truncation rule that brokers use."""
    found = run("play", name)
    assert found.exit_code == 0
    assert found.stdout.splitlines()[-len(ended) :] == ended
    assert "leader-epoch breaks" not in found.stdout


def test_covered_mechanisms_are_explained() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "mechanisms.md"
    explained = re.findall(r"^\| (M\d\d) \|", page.read_text(), re.MULTILINE)
    covered = {name for story in data("list")["stories"] for name in story["covers"]}
    assert covered <= set(explained)


def test_the_readme_quotes_how_the_demo_ends() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    last = run("play", "hw-loses-acked-record").stdout.splitlines()[-3:]
    assert "\n".join(last) in readme


def test_play_ends_with_the_state_of_every_replica(written: Path) -> None:
    row = run("play", "true.txt").stdout.partition("at the end")[2].splitlines()[2]
    assert row.split() == ["leader-epoch", "A", "leader", "0", "1", "0", "m1@0"]


def test_play_stacks_the_rules_on_a_narrow_screen() -> None:
    found = run("play", LOSS, columns="60")
    lines = [line.strip() for line in found.stdout.splitlines()]
    cut = lines.index("B truncates to 1 (its own HW), dropping m2")
    assert lines[cut - 1] == "under high-watermark:"
    assert lines[cut + 1 : cut + 3] == ["under leader-epoch:", "no change"]


def test_play_shows_rules_side_by_side_if_they_fit() -> None:
    lines = [line.rstrip() for line in run("play", LOSS, columns="80").stdout.splitlines()]
    assert "    │ B truncates to 1 (its own HW), dropping m2 │ no change" in lines
    assert "        B leads epoch 1 from offset 1, ISR={B}" in lines
    assert max(map(len, lines)) <= 80


def test_list_on_a_narrow_screen_breaks_no_word() -> None:
    lines = [line.rstrip() for line in run("list", columns="60").stdout.splitlines()]
    name = lines.index("  hw-loses-acked-record ◆")
    assert lines[name + 1].strip() == "The record that was acknowledged and then lost"
    assert not any("…" in line for line in lines)


def test_a_folder_is_checked_not_played(written: Path) -> None:
    found = run("play", ".")
    assert found.exit_code == 2
    assert "tidelog story check ." in found.output


def test_problem_under_every_rule_is_printed_once_on_one_line(written: Path) -> None:
    story = "policies: kip-101, leader-epoch\n\n" + FALSE
    (written / "false.txt").write_text(story)
    found = run("check", "false.txt", columns="40").stdout
    assert found.count("actual output:") == 1
    assert "  [kip-101, leader-epoch] false.txt:7: actual output:\n" in found
    assert "    client -> A  produce m1 acks=all\n" in found
    assert found.endswith("1 story, 2 runs: 1 not as expected\n")


def test_play_under_one_rule() -> None:
    found = run("play", LOSS, "--policy", "leader-epoch")
    assert found.exit_code == 0
    assert "high-watermark" not in found.stdout
    assert "rules differ" not in found.stdout


def test_play_under_a_rule_the_story_was_not_written_for() -> None:
    found = data("play", LOSS, "--policy", "kip-101")
    assert [play["policy"] for play in found["performances"]] == ["kip-101"]
    assert found["holds"] is True


def test_play_as_json() -> None:
    found = data("play", LOSS)
    assert found["parts_at"]["command"] == "restart B"
    assert [play["policy"] for play in found["performances"]] == ["high-watermark", "leader-epoch"]
    assert all(play["passed"] for play in found["performances"])
    assert data("play", LOSS, "--policy", "leader-epoch")["parts_at"] is None


def test_play_as_one_diagram_that_forks_where_rules_differ() -> None:
    found = run("play", LOSS, "--format", "mermaid")
    assert found.exit_code == 0
    lines = [line.strip() for line in found.stdout.splitlines()]
    assert lines[:3] == ["sequenceDiagram", "participant A", "participant B"]
    fork = lines.index("alt high-watermark")
    assert lines[fork + 1] == "Note over A,B: restart B"
    assert lines.count("Note over A,B: crash A") == 1
    assert lines.count("end") == sum(line.startswith("alt ") for line in lines)
    alone = run("play", LOSS, "--format", "mermaid", "--policy", "high-watermark")
    assert "alt " not in alone.stdout


def test_failing_story_is_shown_with_its_problems(written: Path) -> None:
    found = run("play", "false.txt")
    assert found.exit_code == 1
    assert "✗ [leader-epoch] line 5: actual output:" in found.stdout
    assert "✗ leader-epoch: 1 not as expected" in found.stdout
    assert data("play", "false.txt")["holds"] is False
    assert run("play", "false.txt", "--format", "mermaid").exit_code == 1


def test_diagram_of_an_aborted_story_ends_at_the_error(written: Path) -> None:
    found = run("play", "torn.txt", "--format", "mermaid")
    assert found.exit_code == 1
    assert found.stdout.splitlines()[-1].strip() == "Note over A,B: cluster A B"


def test_check_accepts_files_and_folders(written: Path) -> None:
    found = run("check", "true.txt")
    assert found.exit_code == 0
    assert "✓ true.txt" in found.stdout
    everything = run("check", ".")
    assert everything.exit_code == 1
    assert "✓ true.txt" in everything.stdout
    assert "[leader-epoch] false.txt:5: actual output:" in everything.stdout
    assert "did you mean produce?" in everything.stdout
    assert "✗ 3 stories, 3 runs: 2 not as expected" in everything.stdout


def test_check_as_json(written: Path) -> None:
    found = data("check", "true.txt", "false.txt")
    assert found["holds"] is False
    assert [(play["path"], play["passed"]) for play in found["plays"]] == [
        ("true.txt", True),
        ("false.txt", False),
    ]
    assert data("check", "true.txt")["holds"] is True
    assert len(data("check", "hw-loses-acked-record")["plays"]) == 2
    assert "no story 'nowhere'" in run("check", "nowhere").stderr
    assert run("check", "false.txt", "--format", "json").exit_code == 1


def test_check_without_paths_checks_all_shipped_stories() -> None:
    found = data("check")
    assert any(play["path"].endswith(f"{LOSS}.txt") for play in found["plays"])


@pytest.mark.parametrize(
    ("last", "ended"),
    [
        ("check logs-agree", "✓ leader-epoch keeps logs-agree"),
        ("expect violated hw-is-committed", "✗ leader-epoch: 1 not as expected"),
        ("state", "✓ leader-epoch: as expected"),
    ],
)
def test_play_ends_with_its_result(written: Path, last: str, ended: str) -> None:
    (written / "true.txt").write_text(TRUE.replace("check logs-agree", last))
    assert run("play", "true.txt").stdout.splitlines()[-1] == ended


STRANGE = {
    "an empty file": ("", ":1: a story needs at least one command"),
    "no cluster": ("produce m1", ":1: the story has no cluster yet; begin with: cluster A B"),
    "what a terminal obeys": ("cluster A B\nnote \x1b[31m", ":2: control character '\\x1b'"),
    "a negative number": ("cluster A B\ntick -5", ":2: milliseconds must be a number, not '-5'"),
    "a huge sequence": (
        "cluster A B\nproduce m1 producer=1 sequence=2147483648",
        ":2: sequence is at most 2147483647",
    ),
    "a property without a value": ("cluster A B\nexpect A LEO", "such as: expect A LEO=0"),
    "an offset nobody asked for": ("cluster A B\nexpect offset 3", "no request returned an offset"),
    "the opposite of nothing": (
        "cluster A B\nexpect not lost",
        "a name is missing, such as: expect lost m1",
    ),
}


@pytest.mark.parametrize(("text", "message"), STRANGE.values(), ids=STRANGE)
def test_error_in_a_story_is_named_with_its_line(written: Path, text: str, message: str) -> None:
    (written / "strange.txt").write_text(text)
    for command in ("check", "play"):
        found = run(command, "strange.txt")
        assert found.exit_code in (1, 2)
        assert message.removeprefix(":").partition(": ")[2] in found.output
    assert message in run("check", "strange.txt").stdout


@pytest.mark.parametrize(
    "text",
    ["\ufeff" + TRUE, "cluster A B\nproduce m1 m2 producer=7 sequence=2147483647\n"],
    ids=["an editor's mark before it", "sequences that begin anew"],
)
def test_unusual_but_valid_stories_pass(written: Path, text: str) -> None:
    (written / "odd.txt").write_text(text, encoding="utf-8")
    assert run("check", "odd.txt").exit_code == 0
