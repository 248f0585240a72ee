"""The built wheel works in an empty environment: version, stories, and a cluster."""

import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and its dependencies, away from the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "-w", str(folder)]
    subprocess.run([*build, str(ROOT)], check=True)
    (wheel,) = folder.glob("tidelog-*.whl")
    venv.create(folder / "env", with_pip=True)
    python = folder / "env" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "--quiet", "install", str(wheel)], check=True)
    return python


def output(python: Path, *words: str, folder: Path) -> str:
    command = [str(python.with_name("tidelog")), *words]
    done = subprocess.run(
        command,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin"},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


@pytest.mark.ci
def test_the_version_is_that_of_pyproject(python: Path, tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert output(python, "--version", folder=tmp_path).split()[-1] == project["version"]


@pytest.mark.ci
def test_the_stories_of_the_wheel_hold(python: Path, tmp_path: Path) -> None:
    assert "all as expected" in output(python, "story", "check", folder=tmp_path)


@pytest.mark.ci
def test_a_cluster_starts_and_keeps_a_record(python: Path, tmp_path: Path) -> None:
    tidelog = python.with_name("tidelog")
    writes = f"{tidelog} produce greetings --create --timeout 120"
    work = f"echo hello | {writes} && {tidelog} consume greetings -e --timeout 120"
    up = ("up", "--ephemeral", "--port", "0", "--", "sh", "-c", work)
    assert output(python, *up, folder=tmp_path).splitlines()[-1] == "hello"
