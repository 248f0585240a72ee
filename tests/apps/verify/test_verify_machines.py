"""Whole runs on machines, which are network namespaces with etcd.

Without root, `ip`, `tc` or etcd the tests are skipped with the reason.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidelog.apps.verify.machines.etcd_member import find_etcd
from tidelog.apps.verify.machines.namespaces import (
    CannotMakeMachines,
    check_requirements,
    remove_stale,
)
from tidelog.apps.verify.nemesis.plan import DEFAULT_MACHINE_KINDS, SESSION_S

PAUSE_MAX_S = SESSION_S + 10.0
"""The session time-out, a second for the election, and time for a busy computer."""
QUORUM_PAUSE_MAX_S = 10.0
"""Leaders serve without etcd: pauses are below half a second on an idle computer. If all brokers
stopped when their sessions ended, writes would pause for more than 20 s of the 30 s."""


@pytest.fixture(scope="module", autouse=True)
def _machines() -> None:
    try:
        find_etcd()
        check_requirements()
    except CannotMakeMachines as error:
        pytest.skip(f"no machines here: {error}")


def start(*arguments: str, **environ: str) -> "subprocess.Popen[str]":
    """Start `verify` in a process of its own."""
    entry = "from tidelog.apps.cli.main import cli; cli()"
    command = [sys.executable, "-c", entry, "verify", "--machines", "3", *arguments]
    return subprocess.Popen(
        [*command, "--format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ},
    )


def end(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """Wait for the end of a run; it must find no anomaly and leave nothing behind."""
    stdout, stderr = process.communicate()
    assert process.returncode == 0, stdout + stderr
    assert not namespaces(process.pid)
    data: dict[str, Any] = json.loads(stdout)
    assert not {kind for kind, found in data["anomalies"].items() if found["count"]}
    return data


def namespaces(run: int) -> list[str]:
    """The namespaces of a run, by the pid of its process."""
    return [name for name in os.listdir("/run/netns") if f"-{run}-" in name]


def processes(namespace: str) -> set[int]:
    """The processes in a namespace; none if it does not exist."""
    command = ["ip", "netns", "pids", namespace]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return {int(pid) for pid in done.stdout.split()}


def eventually(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 120.0
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.1)


@pytest.mark.ci
def test_nothing_is_lost_when_a_machine_or_a_link_fails() -> None:
    kinds = ("kill-machine", "etcd-leader", "pause-machine", "cut-out")
    kinds_option = ("--faults", ",".join(kinds))
    data = end(start("--seconds", "50", *kinds_option, "--seed", "3", "--rate", "800"))
    assert data["acked"] > 800
    assert {fault["kind"].partition(",")[0] for fault in data["faults"]} >= {*kinds[:2]}
    for kind, pauses in data["pauses"].items():
        assert pauses["max_s"] < PAUSE_MAX_S, kind
    assert data["replicas_compared"] == 18


@pytest.mark.slow
@pytest.mark.parametrize("brokers", [1, 2])
def test_nothing_is_lost_under_all_faults_of_machines(brokers: int) -> None:
    options = ("--seconds", "300", "--rate", "1000", "--brokers-per-machine", str(brokers))
    data = end(start(*options))
    assert {*data["nemesis"]} == {*DEFAULT_MACHINE_KINDS}
    injected = {fault["kind"].partition(",")[0] for fault in data["faults"]}
    assert len(injected) >= len(DEFAULT_MACHINE_KINDS) - 2  # fewer fit on a busy computer
    if "etcd-quorum" in injected:
        assert data["pauses"]["etcd-quorum"]["max_s"] < QUORUM_PAUSE_MAX_S


@pytest.mark.slow
def test_two_runs_at_once_do_not_disturb_each_other() -> None:
    options = ("--seconds", "20", "--faults", "kill,kill-machine", "--rate", "300")
    runs = [start(*options), start(*options)]
    for process in runs:
        assert end(process)["acked"]


@pytest.mark.ci
@pytest.mark.parametrize(
    ("number", "busy"),
    [(signal.SIGINT, "m1"), (signal.SIGTERM, "clients"), (signal.SIGKILL, "clients")],
    ids=["interrupted at startup", "terminated", "killed"],
)
def test_a_run_that_is_ended_by_a_signal_leaves_nothing(
    number: int, busy: str, tmp_path: Path
) -> None:
    run = start("--seconds", "600", "--faults", "none", "--rate", "50", TMPDIR=str(tmp_path))
    name = f"tidelog-verify-{run.pid}-{busy}"
    eventually(
        lambda: run.poll() is not None or bool(processes(name) - {run.pid}), f"processes in {name}"
    )
    assert run.poll() is None, run.communicate()
    started = set[int]().union(*map(processes, namespaces(run.pid))) - {run.pid}
    run.send_signal(number)
    run.communicate()
    assert run.returncode
    eventually(lambda: not namespaces(run.pid), "all namespaces removed")
    eventually(
        lambda: not any(os.path.exists(f"/proc/{pid}") for pid in started), "all processes ended"
    )


@pytest.mark.ci
def test_a_run_whose_etcd_fails_leaves_nothing() -> None:
    run = start("--faults", "none", ETCD_BIN="/bin/false")
    _, stderr = run.communicate()
    assert run.returncode == 2
    assert "etcd of machine 1 exited: no error output" in stderr
    assert not namespaces(run.pid)


@pytest.mark.ci
def test_namespaces_of_a_killed_run_are_removed() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    name = f"tidelog-verify-{ended.pid}-m1"
    subprocess.run(["ip", "netns", "add", name], check=True)
    remove_stale()
    assert name not in os.listdir("/run/netns")
