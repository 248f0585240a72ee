"""`tidelog model`: small bounds, but real searches."""

import json
from pathlib import Path
from typing import Any

import pytest
from click import UsageError
from click.testing import CliRunner, Result
from rich.console import Console

from tidelog.apps.cli import mutant_hunt
from tidelog.apps.cli.main import cli
from tidelog.apps.cli.mutant_hunt import (
    MutantCase,
    MutantResult,
    all_cases,
    check_all,
    show_results,
)
from tidelog.apps.cli.usage import write_file
from tidelog.lab.mutants.hunt import MUTANTS

HARMLESS = ("--records", "1", "--leader-epochs", "1", "--messages", "0", "--workers", "1")
HARMFUL = (
    *("--policy", "high-watermark", "--records", "1", "--messages", "1", "--workers", "1"),
    *("--leader-epochs", "2", "--partition-epochs", "2"),
)


def run(*arguments: str, columns: str = "140") -> Result:
    return CliRunner(env={"COLUMNS": columns}).invoke(cli, ["model", *arguments])


def data(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*arguments, "--format", "json").stdout)
    return found


def test_table_reproduces_the_known_results() -> None:
    found = run("table", "--size", "2,2,2,2", "--workers", "1")
    assert found.exit_code == 0
    lines = [" ".join(line.split()) for line in found.stdout.splitlines()]
    row = "kip-101 ✗ depth 11 ✗ depth 11 holds 4,523 4,523"
    assert any(line.startswith(row) for line in lines)
    assert "✓ 6 of 6 rows are as expected" in found.stdout


def test_the_table_keeps_its_verdicts_on_a_narrow_screen() -> None:
    found = run("table", "--size", "2,2,2,2", "--workers", "1", columns="80")
    lines = [" ".join(line.split()) for line in found.stdout.splitlines()]
    assert "kip-101 ✗ depth 11 ✗ depth 11 holds 4,523 ✓" in lines


def test_differing_table_fails() -> None:
    found = run("table", "--size", "1,1,1,1", "--workers", "1", "--format", "json")
    assert found.exit_code == 1
    assert json.loads(found.stdout)["holds"] is False
    rows = json.loads(found.stdout)["rows"]
    assert len(rows) == 6
    assert rows[0]["missed_goals"]
    assert rows[-1]["reproduced"]


def test_check_passes_if_the_invariants_hold() -> None:
    found = run("check", *HARMLESS)
    assert found.exit_code == 0
    assert "reached: a record commits" in found.stdout
    narrow = run("check", *HARMLESS, columns="50").stdout
    assert narrow.count(" holds  ") == len(data("check", *HARMLESS)["verdicts"])
    assert "✓ every invariant holds in every state" in found.stdout
    as_data = data("check", *HARMLESS)
    assert as_data["holds"]
    assert as_data["bounds"]["records"] == 1
    assert not any(as_data["verdicts"].values())
    assert as_data["counterexample"] is None


def test_lease_check_passes_if_the_invariants_hold() -> None:
    found = run("lease", "--replicas", "2", "--workers", "1")
    assert found.exit_code == 0
    assert "reached: a replaced leader still serves reads" in found.stdout
    assert "✓ every invariant holds in every state" in found.stdout


def test_lease_check_that_stops_early_proves_nothing() -> None:
    found = data("lease", "--replicas", "2", "--max-states", "100", "--workers", "1")
    assert (found["holds"], found["complete"]) == (False, False)
    assert found["bounds"]["replicas"] == 2


QUIET = ("--failures", "0", "--time-outs", "0", "--workers", "1")


def test_transactions_check_passes_if_the_invariants_hold() -> None:
    found = run("transactions", *QUIET)
    assert found.exit_code == 0
    assert "reached: a reader skips an aborted record" in found.stdout
    assert "not reached: a new coordinator continues with the markers" in found.stdout
    assert "✓ every invariant holds in every state" in found.stdout


def test_transactions_check_shows_a_hanging_transaction() -> None:
    old = ("transactions", "--client-version", "1", "--no-verification", *QUIET)
    found = run(*old)
    assert found.exit_code == 1
    assert "Shortest counterexample, 5 steps: when all is delivered" in found.stdout
    assert "  5  a late Produce(P, t1, epoch 0) arrives" in found.stdout
    assert "P LSO=1 HW=2 log=[abort@0 t1@0] readers see []" in found.stdout
    as_data = data(*old)
    assert as_data["bounds"]["verification"] is False
    assert as_data["counterexample"]["depth"] == 5
    assert as_data["counterexample"]["steps"][-1]["action"].startswith("a late Produce")


def test_failed_check_shows_the_shortest_path(tmp_path: Path) -> None:
    story = tmp_path / "loss.txt"
    found = run("check", *HARMFUL, "--story", str(story))
    assert found.exit_code == 1
    assert "✗ depth 9" in found.stdout
    assert "Shortest counterexample, 9 steps" in found.stdout
    assert "A leader   epoch=0 LEO=0 HW=0 log=[]" in found.stdout
    assert f"story: tidelog story play {story}\n" in found.stdout
    assert story.read_text().startswith("# Under high-watermark these steps violate: ")
    assert CliRunner().invoke(cli, ["story", "check", str(story)]).exit_code == 0


def test_check_as_json_has_the_counterexample() -> None:
    found = data("check", *HARMFUL)
    assert found["holds"] is False
    assert found["counterexample"]["depth"] == 9
    assert len(found["counterexample"]["steps"]) == 10


def test_incomplete_search_is_reported_as_such() -> None:
    found = run("check", *HARMLESS, "--max-states", "10")
    assert found.exit_code == 1
    assert "raise --max-states" in found.stdout
    assert "not reached: a log is truncated" in found.stdout


def test_a_story_that_cant_be_written_is_bad_usage() -> None:
    found = run("check", *HARMFUL, "--story", "/dev/null/x.txt")
    assert found.exit_code == 2
    assert "folder '/dev/null' does not exist; create it first" in found.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full device")
def test_full_disk_is_one_line() -> None:
    with pytest.raises(UsageError, match="can't write /dev/full: No space left"):
        write_file("/dev/full", "x")


def test_mutants_are_listed_with_rule_and_source() -> None:
    found = run("mutants", "--list")
    assert found.exit_code == 0
    listed = data("mutants", "--list")["mutants"]
    names = [mutant["name"] for mutant in listed]
    assert names[: len(MUTANTS)] == [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names) == len(MUTANTS) + 7
    assert all(mutant["rule"] and mutant["source"] for mutant in listed)
    assert all(name in found.stdout for name in names)


def test_mutants_by_name_are_searched_and_found() -> None:
    names = ("diverging-fetch-counts", "async-isr-without-pending-isr-in-high-watermark")
    found = run("mutants", *names, "--format", "json")
    assert found.exit_code == 0
    caught = json.loads(found.stdout)["mutants"]
    assert [mutant["name"] for mutant in caught] == list(names)
    assert all(mutant["found"] and mutant["steps"] for mutant in caught)


def test_progress_advances_during_a_mutant_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutant_hunt, "REPORT_S", 0.01)  # the parent misses no report
    (case,) = [each for each in all_cases() if each.name == "join-before-the-epoch-start"]
    told: list[tuple[float, str]] = []
    (result,) = check_all([case], 1, lambda done, note: told.append((done, note)))
    assert result.found
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert any(0 < done < 1 and f"{case.name}: " in note for done, note in told)


@pytest.mark.parametrize("found", [True, False], ids=["found", "not found"])
def test_mutants_that_were_not_found_are_named(found: bool) -> None:
    case = MutantCase("keeps-all", "something is forgotten", "a bug", "checker")
    result = MutantResult(case, found, "an invariant", "4 steps", 1.5, ("one", "two"))
    console = Console(width=140, markup=False, highlight=False)
    with console.capture() as captured:
        show_results(console, [result])
    assert ("1 of 1 mutants found" in captured.get()) is found
    assert ("not found: keeps-all" in captured.get()) is not found
    assert result.as_data()["name"] == "keeps-all"


def test_no_two_mutants_share_a_name() -> None:
    names = [case.name for case in all_cases()]
    assert len(names) == len(set(names))
