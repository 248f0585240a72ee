"""`tidelog status` and `down` find all live brokers, however they were started."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

TIDELOG = [sys.executable, "-m", "tidelog"]
PATIENCE_S = 120.0


def tidelog(*words: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*TIDELOG, *words], capture_output=True, text=True, check=False, timeout=PATIENCE_S, cwd=cwd
    )


def eventually(what: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.05)


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A detached cluster of two brokers."""
    folder = tmp_path / "cluster"
    began = tidelog("up", "--detach", "--brokers", "2", "--port", "0", "--data", str(folder))
    assert began.returncode == 0, began.stderr
    yield folder
    tidelog("down", "--data", str(folder))


def brokers(data: Path) -> list[dict[str, Any]]:
    found = json.loads(tidelog("status", "--data", str(data), "--format", "json").stdout)
    return list(found["brokers"])


def states(data: Path) -> list[str]:
    return [broker["state"] for broker in brokers(data)]


def test_broker_started_by_hand_runs_and_is_stopped(data: Path) -> None:
    port = brokers(data)[1]["address"].rpartition(":")[2]
    assert tidelog("broker", "kill", "2", "--data", str(data)).returncode == 0
    eventually(lambda: states(data) == ["up", "dead"])
    listeners = f"listeners=PLAINTEXT://localhost:{port}"
    by_hand = subprocess.Popen(
        [*TIDELOG, "broker", "--data", str(data), "--set", "node.id=2", "--set", listeners],
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: states(data) == ["up", "up"])
        shown = brokers(data)[1]
        assert shown["pid"] == by_hand.pid
        assert shown["address"] == f"localhost:{port}"
        again = tidelog("broker", "start", "2", "--data", str(data))
        assert again.stderr == f"tidelog: broker 2 is already running (pid {by_hand.pid})\n"
        down = tidelog("down", "--data", str(data))
        assert down.returncode == 0
        assert "stopped 2 brokers" in down.stdout
        assert by_hand.poll() == 0, "it has stopped, and cleanly"
    finally:
        by_hand.kill()
        by_hand.wait()


def test_a_killed_broker_is_started_again(data: Path) -> None:
    assert tidelog("broker", "kill", "1", "--data", str(data)).returncode == 0
    status = tidelog("status", "--data", str(data))
    assert f"to restart dead brokers: tidelog broker start 1 --data {data}" in status.stdout
    again = tidelog("broker", "start", "1", "--data", str(data))
    assert again.returncode == 0, again.stderr
    eventually(lambda: states(data) == ["up", "up"])


def test_messages_in_another_folder_name_the_cluster(data: Path, tmp_path: Path) -> None:
    port = brokers(data)[1]["address"].rpartition(":")[2]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    status = tidelog("status", cwd=elsewhere)
    assert status.returncode == 1
    assert f"tidelog status --data {data}" in status.stdout
    up = tidelog("up", "--brokers", "1", "--port", port, cwd=elsewhere)
    assert up.returncode == 1
    assert f"broker 2 of the cluster in {data}" in up.stderr
    assert f"tidelog down --data {data}" in up.stderr
    assert not (elsewhere / "tidelog-data").exists()


def test_stale_pid_in_a_lock_file_is_not_a_broker(data: Path) -> None:
    """The lock file keeps the pid of an ended process; another process may get the same pid."""
    lock = data / "broker-2" / ".lock"
    assert tidelog("broker", "kill", "2", "--data", str(data)).returncode == 0
    lock.write_text(f"{os.getpid()}\n")
    refused = tidelog("broker", "kill", "2", "--data", str(data))
    assert refused.returncode == 1
    assert "broker 2 is not running" in refused.stderr
