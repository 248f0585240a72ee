"""History files of a model checker's counterexample and of a run of `tidelog verify`, as pages."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from console_client import serve

from tidelog.apps.cli.main import cli
from tidelog.apps.console.history.event_file import EventFile
from tidelog.apps.console.history.file_collector import FileTarget


def run(*arguments: str) -> tuple[int, dict[str, Any]]:
    found = CliRunner().invoke(cli, [*arguments, "--format", "json"])
    assert found.stdout, found.output
    return found.exit_code, json.loads(found.stdout)


def test_counterexample_is_shown_step_by_step(tmp_path: Path) -> None:
    path = str(tmp_path / "loss.jsonl")
    bounds = ["--records", "1", "--workers", "1"]
    code, report = run("model", "check", "--policy", "high-watermark", *bounds, "--history", path)
    assert code == 1
    steps = report["counterexample"]["steps"]
    file = EventFile.open(path)
    span = file.span()
    assert span is not None
    assert (span.from_ms, span.to_ms) == (0, 1000 * (len(steps) - 1) + 1)
    # Every moment has the log ends and high watermarks of the checker's own table.
    for number, step in enumerate(steps):
        moment = file.state_at(1000 * number)
        assert moment is not None
        states, metadata = moment
        for broker, line in enumerate(step["state"][:-1], 1):
            [replica] = states[broker]["partitions"]
            assert f"LEO={replica['log_end_offset']} HW={replica['high_watermark']} " in line
            assert f"epoch={replica['leader_epoch']} " in line
            assert replica["role"] in line
        known = metadata.topics["model"].partitions[0]
        assert f"leader={'?AB'[known.leader]} epoch={known.leader_epoch} " in step["state"][-1]
    with serve(FileTarget(), tmp_path / "static", file=file) as pages:
        page = pages.read("partitions/model/0")
        broken = page["events"][0]
        assert broken["event"] == "invariant_broken"
        assert broken["invariant"] == report["counterexample"]["invariant"]
        shown = [each for each in page["events"] if each["event"] == "model_step"]
        assert [each["action"] for each in reversed(shown)][1:] == [s["action"] for s in steps[1:]]
        kinds = [each["kind"] for each in pages.read("timeline")["marks"]]
        assert kinds.count("step") == len(steps)
        assert "broken" in kinds


def test_correct_rule_writes_no_file(tmp_path: Path) -> None:
    path = tmp_path / "none.jsonl"
    small = ["--records", "1", "--leader-epochs", "1", "--workers", "1"]
    code, _ = run("model", "check", *small, "--history", str(path))
    assert code == 0
    assert not path.exists()


def test_run_of_verify_is_shown_with_its_faults(tmp_path: Path) -> None:
    path = str(tmp_path / "run.jsonl")
    faults = ["--faults", "kill", "--seed", "3", "--seconds", "6", "--client", "own"]
    code, report = run("verify", *faults, "--rate", "200", "--history", path)
    assert code == 0
    topic, partitions = report["topic"], 6
    file = EventFile.open(path)
    with serve(FileTarget(), tmp_path / "static", file=file) as pages:
        overview = pages.read("overview")
        assert [each["topic"] for each in overview["topics"]] == [topic]
        assert overview["counts"]["partitions"] == partitions
        assert overview["counts"]["offline"] == 0
        assert [each["fenced"] for each in overview["brokers"]] == [False] * 3
        page = pages.read(f"partitions/{topic}/0")
        assert page["partition"]["replicas"][0]["log_end_offset"] > 0
        events = pages.read("events?limit=5000")["events"]
        began = [each for each in events if each["event"] == "fault_began"]
        assert began
        assert len(began) == len(report["faults"])
        for fault in began:
            [killed] = fault["brokers"]
            later = [each for each in events if each["at_ms"] >= fault["at_ms"]]
            silent = [each for each in later if each["event"] == "broker_gone"]
            assert killed in {each["other"] for each in silent}
