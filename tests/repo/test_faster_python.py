"""The interpreter that `make` takes is one of this version, and can make environments."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "faster_python.py"


def chosen(path: str) -> str:
    done = subprocess.run(
        [sys.executable, SCRIPT],
        env={"PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_it_is_of_this_version_and_has_what_is_needed() -> None:
    said = "import sys, venv, ensurepip, sqlite3, ssl; print(*sys.version_info[:2])"
    told = subprocess.run(
        [chosen(""), "-c", said], capture_output=True, text=True, check=True
    ).stdout
    assert told.split() == [str(part) for part in sys.version_info[:2]]


@pytest.mark.parametrize(
    "script", ["exit 1", "echo 3.0 0.0 /nowhere", "echo nonsense"], ids=["fails", "older", "other"]
)
def test_what_only_bears_the_name_is_passed_over(tmp_path: Path, script: str) -> None:
    impostor = tmp_path / "python3"
    impostor.write_text(f"#!/bin/sh\n{script}\n")
    impostor.chmod(0o755)
    assert Path(chosen(str(tmp_path))).resolve() != impostor.resolve()
    assert chosen(str(tmp_path)) != "/nowhere"
