"""The demo's Spark job ends with the demo; if it fails, the reason is reported."""

import os
import time
from pathlib import Path

import pytest

from tidelog.apps.demo.job_process import JobFailed, JobProcess

JOBS = """
import json, subprocess, sys

def echo():
    child = subprocess.Popen(["sleep", "600"])
    print("no JSON", flush=True)
    print(json.dumps({"event": "batch", "child": child.pid, "where": sys.argv[1:]}), flush=True)
    for line in sys.stdin:
        print(json.dumps({"event": "received", **json.loads(line)}), flush=True)

def fail():
    print(json.dumps({"event": "failed", "why": "the lake is full"}), flush=True)
    sys.stdin.read()

def wait():
    sys.stdin.read()

def crash():
    raise ValueError("no such broker")
"""

PATIENCE_S = 120.0


def idle() -> None:
    pass


@pytest.fixture(autouse=True)
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made_up_job.py").write_text(JOBS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at /proc")
def test_job_exchanges_messages_and_leaves_no_process(tmp_path: Path) -> None:
    with JobProcess("broker:1", str(tmp_path), "made_up_job:echo") as job:
        job.wait_for("an event", lambda: bool(job.events("batch")), PATIENCE_S, idle)
        [event] = job.events("batch")
        assert event.data["where"] == ["broker:1", str(tmp_path)]
        job.send("audit", folders=["a"])
        job.wait_for("a response", lambda: bool(job.events("received")), PATIENCE_S, idle)
        assert job.events("received")[0].data == {"do": "audit", "folders": ["a"]}
        child = event.data["child"]
        assert is_alive(child)
    until = time.monotonic() + PATIENCE_S
    while is_alive(child) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_alive(child)


def test_failure_message_of_the_job_is_reported(tmp_path: Path) -> None:
    with (
        JobProcess("b", str(tmp_path), "made_up_job:fail") as job,
        pytest.raises(JobFailed, match="the Spark job failed: the lake is full"),
    ):
        job.wait_for("anything", lambda: False, PATIENCE_S, idle)


def test_crash_is_reported_with_its_last_error(tmp_path: Path) -> None:
    with JobProcess("b", str(tmp_path), "made_up_job:crash") as job:
        with pytest.raises(
            JobFailed, match="exited unexpectedly: ValueError: no such broker"
        ) as failed:
            job.wait_for("anything", lambda: False, PATIENCE_S, idle)
        assert Path(failed.value.log_path).is_file()
        with pytest.raises(JobFailed, match="no such broker"):
            job.send("stop")


def test_stuck_job_times_out(tmp_path: Path) -> None:
    with (
        JobProcess("b", str(tmp_path), "made_up_job:wait") as job,
        pytest.raises(JobFailed, match=r"timed out after 0\.2 s while waiting for audit"),
    ):
        job.wait_for("audit", lambda: False, 0.2, idle)
