"""Whole runs on machines, which are network namespaces with etcd.

Without root, `ip`, `tc` or etcd the tests are skipped with the reason.
"""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tidelog.apps.verify.machines.etcd_member import find_etcd
from tidelog.apps.verify.machines.namespaces import (
    CannotMakeMachines,
    check_requirements,
    remove_stale,
)
from tidelog.apps.verify.nemesis.plan import DEFAULT_MACHINE_KINDS

SESSION_AND_ELECTION_S = 20.0
"""The session time-out of 9 s, a second for the election, and time for a busy machine."""


@pytest.fixture(scope="module", autouse=True)
def _machines() -> None:
    try:
        find_etcd()
        check_requirements()
    except CannotMakeMachines as error:
        pytest.skip(f"no machines here: {error}")


def run(*arguments: str) -> dict[str, Any]:
    """Run `verify` in a process of its own; it must find no anomaly and leave nothing behind."""
    entry = "from tidelog.apps.cli.main import cli; cli()"
    command = [sys.executable, "-c", entry]
    words = [*command, "verify", "--machines", "3", *arguments, "--format", "json"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    stdout, stderr = process.communicate()
    assert process.returncode == 0, stdout + stderr
    assert not [name for name in os.listdir("/run/netns") if f"-{process.pid}-" in name]
    data: dict[str, Any] = json.loads(stdout)
    assert not {kind for kind, found in data["anomalies"].items() if found["count"]}
    return data


@pytest.mark.ci
def test_nothing_is_lost_when_a_machine_or_a_link_fails() -> None:
    kinds = ("kill-machine", "etcd-leader", "pause-machine", "cut-out")
    data = run("--seconds", "50", "--faults", ",".join(kinds), "--seed", "3", "--rate", "800")
    assert data["acked"] > 800
    assert {fault["kind"].partition(",")[0] for fault in data["faults"]} >= {*kinds[:2]}
    for kind, pause_s in data["longest_pause_s"].items():
        assert pause_s < 2 * SESSION_AND_ELECTION_S, kind
    assert data["replicas_compared"] == 18


@pytest.mark.slow
@pytest.mark.parametrize("brokers", [1, 2])
def test_nothing_is_lost_under_all_faults_of_machines(brokers: int) -> None:
    kinds = ",".join(DEFAULT_MACHINE_KINDS)
    data = run(
        "--seconds", "300", "--faults", kinds, "--rate", "1000",
        "--brokers-per-machine", str(brokers),
    )  # fmt: skip
    assert len(data["faults"]) >= len(DEFAULT_MACHINE_KINDS) // 2


@pytest.mark.ci
def test_namespaces_of_a_killed_run_are_removed() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    name = f"tidelog-verify-{ended.pid}-m1"
    subprocess.run(["ip", "netns", "add", name], check=True)
    remove_stale()
    assert name not in os.listdir("/run/netns")
