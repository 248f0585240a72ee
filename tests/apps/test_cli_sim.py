"""`tidelog sim`: commands with real seeds, and the output of failures with made-up results."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from click.testing import Result as Invocation
from rich.console import Console

from tidelog.apps.cli.main import cli
from tidelog.apps.cli.rendering.sim import Failure, Replay, Run, examine
from tidelog.lab.sim.faults import KINDS
from tidelog.lab.sim.runner import Summary
from tidelog.lab.sim.shrink import Shrunk
from tidelog.lab.sim.simulation import Result, Violation
from tidelog.lab.sim.swarm import draw_plan

BROKEN = Violation("acked-records-survive", "t-0: 7 is gone", 4_200, 1_234, ("1.0  a", "2.0  b"))


def run(*arguments: str) -> Invocation:
    return CliRunner(env={"COLUMNS": "120"}).invoke(cli, ["sim", *arguments])


def failed(seed: int, policy: str = "leader-epoch") -> Result:
    return Result(seed, policy, "3 brokers", [BROKEN], events=10, faults={"power lost": 2})


def text(shown: Run | Replay | Failure) -> str:
    console = Console(width=120, markup=False, highlight=False)
    with console.capture() as captured:
        shown.show(console)
    return captured.get()


def test_run_counts_injected_faults() -> None:
    found = run("run", "--seeds", "1", "--start", "7", "--workers", "1", "--format", "json")
    data = json.loads(found.stdout)
    assert data["holds"] is (found.exit_code == 0)
    assert (data["seeds"], data["start"], data["workers"]) == (1, 7, 1)
    assert data["events"] > 0
    assert set(KINDS) <= set(data["faults"])
    assert {kind for kind, count in data["faults"].items() if not count} == set(
        data["faults_never_seen"]
    )


def test_run_prints_fault_counts_and_a_summary() -> None:
    found = run("run", "--seeds", "1", "--workers", "1")
    assert all(kind in found.stdout for kind in KINDS)
    assert "seeds/s" in found.stdout
    assert "events/s" in found.stdout
    assert "seeds 0 to 0 under leader-epoch: " in found.stdout.splitlines()[-1]


def test_replay_is_the_same_each_time() -> None:
    first, again = (run("replay", "7", "--format", "json", "--no-shrink") for _ in range(2))
    assert json.loads(first.stdout) == json.loads(again.stdout)
    assert json.loads(first.stdout)["seed"] == 7
    words = run("replay", "7", "--events", "--no-shrink")
    assert words.exit_code == first.exit_code
    assert json.loads(first.stdout)["fingerprint"] in words.stdout


def test_a_failure_names_invariant_seed_last_events_and_replay() -> None:
    summary = Summary("leader-epoch", 0)
    summary.add(failed(3))
    shown = text(Run(summary))
    assert "✗ acked-records-survive  seed 3, at 4.2 s, event 1,234" in shown
    assert "t-0: 7 is gone" in shown
    assert "2.0  b" in shown
    assert "replay: tidelog sim replay 3\n" in shown
    assert "✗ seeds 0 to 0 under leader-epoch: 1 of 1 failed" in shown


def test_only_the_first_failures_are_printed_in_full() -> None:
    summary = Summary("high-watermark", 0)
    for seed in range(5):
        summary.add(failed(seed, "high-watermark"))
    shown = text(Run(summary))
    assert shown.count("replay: tidelog sim replay") == 3
    assert "replay: tidelog sim replay 2 --policy high-watermark" in shown
    assert "more failed seeds: 3 4" in shown
    assert "violated invariants: acked-records-survive in 5" in shown
    data: list[dict[str, Any]] = Run(summary).as_data()["failures"]
    assert [failure["seed"] for failure in data] == [0, 1, 2, 3, 4]
    assert data[0]["violations"][0]["last_events"] == ["1.0  a", "2.0  b"]


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "broken"])
def test_a_replay_says_how_it_ended(clean: bool) -> None:
    result = Result(3, "leader-epoch", "3 brokers", settled_ms=400) if clean else failed(3)
    shown = text(Replay(result, []))
    assert shown.rstrip().endswith("every invariant holds" if clean else "an invariant is violated")
    assert ("settled in 400 ms" in shown) is clean
    assert bool(Replay(result, []).as_data()["violations"]) is not clean


def test_the_shorter_schedule_of_a_failure_is_shown() -> None:
    plan, result = draw_plan(3), failed(3)
    plan.actions = plan.actions[:2]
    failure = Failure(result, plan, Shrunk(plan, result, BROKEN.invariant, 40, 88))
    assert "shrunk from 88 to 2 actions in 40 runs" in text(failure)
    data = failure.as_data()
    assert (data["invariant"], data["actions_before"], len(data["actions"])) == (
        "acked-records-survive",
        88,
        2,
    )


@pytest.mark.ci
def test_a_failure_is_written_as_a_story_that_says_whether_it_shows_it(tmp_path: Path) -> None:
    path = str(tmp_path / "failure.txt")
    never_so = BROKEN._replace(invariant="hw-below-leo")
    failure = examine(Result(3, "leader-epoch", "", [never_so]), shorten=False)
    failure.write(path)
    assert Path(path).read_text().startswith("# Seed 3 breaks hw-below-leo under")
    assert f"story: tidelog story play {path}  (it does not reproduce the violation" in text(
        failure
    )
    assert failure.as_data()["story"] == path
    assert failure.as_data()["story_shows_it"] is False
