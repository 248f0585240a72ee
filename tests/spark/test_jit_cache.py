"""Machine code is cached where possible, and compiled again where not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tidelog

PROGRAM = """
from tidelog.apps.spark.decoding import jit

@jit.compiled("int64(int64)")
def twice(number):
    return 2 * number

assert twice(21) == 42
"""
NOWHERE = {"NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}
"""Neither beside the source nor in a cache folder of the user, as where both are read-only."""


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """What the program takes for the folder of temporary files."""
    found = tmp_path / "temporary"
    found.mkdir()
    return found


def run(temporary: Path, **variables: str) -> None:
    (temporary.parent / "kept.py").write_text(PROGRAM)
    environment = {
        **{name: value for name, value in os.environ.items() if "NUMBA" not in name},
        "PYTHONPATH": f"{temporary.parent}:{Path(tidelog.__file__).parents[1]}",
        "TMPDIR": str(temporary),
        **variables,
    }
    subprocess.run([sys.executable, "-c", "import kept"], env=environment, timeout=60, check=True)


def kept_in(folder: Path) -> list[Path]:
    return list(folder.rglob("*.nbi"))


def test_beside_the_source(temporary: Path) -> None:
    run(temporary)
    assert kept_in(temporary.parent / "__pycache__")
    assert not list(temporary.iterdir())


def test_in_a_folder_that_the_user_names(temporary: Path) -> None:
    run(temporary, NUMBA_CACHE_DIR=str(temporary / "named"), **NOWHERE)
    assert kept_in(temporary / "named")


def test_in_a_folder_of_this_user_alone_as_the_last_resort(temporary: Path) -> None:
    run(temporary, **NOWHERE)
    (private,) = temporary.iterdir()
    assert private.stat().st_mode & 0o777 == 0o700
    assert kept_in(private)


def test_not_where_others_may_write(temporary: Path) -> None:
    """What lies there would be run."""
    private = temporary / f"tidelog-numba-{os.getuid()}"
    private.mkdir()
    private.chmod(0o777)
    run(temporary, **NOWHERE)
    assert not kept_in(private)
