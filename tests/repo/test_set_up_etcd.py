"""The script that finds etcd for tests, or installs it."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "set_up_etcd.py"


def run(**environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(SCRIPT)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
    )


def test_a_named_program_is_used(tmp_path: Path) -> None:
    program = tmp_path / "etcd"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    done = run(ETCD_BIN=str(program))
    assert (done.returncode, done.stdout) == (0, f"{program}\n")


def test_a_named_program_that_is_missing_is_not_replaced_by_another(tmp_path: Path) -> None:
    done = run(ETCD_BIN=str(tmp_path / "missing"))
    assert done.returncode == 1
    assert done.stderr == (
        f"no etcd: ETCD_BIN={tmp_path}/missing can't be started; its tests are skipped\n"
    )
