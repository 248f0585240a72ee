"""`tidelog completion`, and the names of topics and brokers that shells complete."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from click.testing import CliRunner, Result

from tidelog.apps.cli.connection import VARIABLE
from tidelog.apps.cli.main import cli
from tidelog.shell.supervisor.cluster import LocalCluster

Run: TypeAlias = Callable[..., Result]

PROGRAM = str(Path(sys.executable).with_name("tidelog"))
PATIENCE_S = 120


def offered(typed: str, bootstrap: str) -> list[str]:
    words = f"tidelog {typed}"
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    environ = {**os.environ, "_TIDELOG_COMPLETE": "bash_complete", VARIABLE: bootstrap, **asked}
    found = subprocess.run(
        [PROGRAM], env=environ, capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    assert found.stderr == ""
    return [line.partition(",")[2] for line in found.stdout.split()]


def test_topics_and_brokers_are_completed_from_the_cluster(run: Run, brokers: LocalCluster) -> None:
    run("topic", "create", "orders", "orders-old", "payments")
    for typed, names in {
        "topic describe ": ["orders", "orders-old", "payments"],
        "topic delete or": ["orders", "orders-old"],
        "config describe topic p": ["payments"],
        "config alter broker ": ["1", "2", "3"],
        "config describe ": ["topic", "broker", "brokers"],
        "reassign --topic pay": ["payments"],
        "partition describe pay": ["payments"],
    }.items():
        deadline = time.monotonic() + PATIENCE_S  # a third of a second may not do on a busy machine
        while (found := offered(typed, brokers.bootstrap)) != names:
            assert time.monotonic() < deadline, (typed, found)


def test_completion_does_not_wait_for_an_unreachable_cluster() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert offered("topic describe ", f"127.0.0.1:{silent.getsockname()[1]}") == []
    assert offered("topic describe ", "localhost:1") == []
    assert offered("topic describe ", "no address: at all") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_can_read_the_completion_script(shell: str, tmp_path: Path) -> None:
    found = CliRunner().invoke(cli, ["completion", shell])
    assert found.exit_code == 0
    assert f"_TIDELOG_COMPLETE={shell}_complete" in found.stdout
    script = tmp_path / "script"
    script.write_text(found.stdout)
    program = shutil.which(shell)
    if program is not None:
        checked = subprocess.run([program, "-n", script], check=False, capture_output=True)
        assert checked.returncode == 0, checked.stderr


def test_unknown_shell_is_refused() -> None:
    found = CliRunner().invoke(cli, ["completion", "tcsh"])
    assert found.exit_code == 2
    assert "'bash', 'zsh', 'fish'" in found.stderr
