"""The wheel is whole: in an empty environment, away from the sources, the stories play."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_environment(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "-w", str(tmp_path)]
    subprocess.run([*build, str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("tidelog-*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    python = str(tmp_path / "env" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "--quiet", "install", str(wheel)], check=True)
    command = [python, "-m", "tidelog", "story", "check"]
    told = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert "all as expected" in told.stdout
