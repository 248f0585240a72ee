"""The files in deploy/, each checked with its own tool."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tidelog.shell.settings_sources import load_settings

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_the_example_has_valid_settings() -> None:
    resolved = load_settings(str(DEPLOY / "server.properties"))
    assert resolved.warnings == []
    assert resolved.settings.internal_listener == ("BROKERS", "10.0.0.1", 9091)


def test_systemd_accepts_the_unit() -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not installed")
    command = [tool, "verify", "--man=no", str(DEPLOY / "tidelog.service")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "tidelog.service" in done.stderr) == (0, False), done.stderr
