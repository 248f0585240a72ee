"""`make setup` chooses an interpreter of this version that can create environments and names it."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "faster_python.py"


def run(path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT], env={"PATH": path}, capture_output=True, text=True, check=True
    )


def chosen(path: str) -> str:
    return run(path).stdout.strip()


def test_choice_has_this_version_and_the_needed_modules() -> None:
    code = "import sys, venv, ensurepip, sqlite3, ssl; print(*sys.version_info[:2])"
    printed = subprocess.run(
        [chosen(""), "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert printed.split() == [str(part) for part in sys.version_info[:2]]


@pytest.mark.parametrize(
    "script", ["exit 1", "echo 3.0 0.0 /nowhere", "echo nonsense"], ids=["fails", "older", "other"]
)
def test_programs_that_are_not_this_python_are_ignored(tmp_path: Path, script: str) -> None:
    impostor = tmp_path / "python3"
    impostor.write_text(f"#!/bin/sh\n{script}\n")
    impostor.chmod(0o755)
    assert Path(chosen(str(tmp_path))).resolve() != impostor.resolve()
    assert chosen(str(tmp_path)) != "/nowhere"


def test_choice_of_another_interpreter_is_printed(tmp_path: Path) -> None:
    faster = tmp_path / "python3"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    faster.write_text(f"#!/bin/sh\necho {version} 0.0000001 /opt/faster/python3\n")
    faster.chmod(0o755)
    done = run(str(tmp_path))
    assert done.stdout == "/opt/faster/python3\n"
    assert done.stderr.startswith("using /opt/faster/python3, which needs 0% of the CPU time of ")
    assert done.stderr.count("\n") == 1
