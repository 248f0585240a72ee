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
    """Set the folder that the program uses for temporary files."""
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
    subprocess.run([sys.executable, "-c", "import kept"], env=environment, timeout=300, check=True)


def kept_in(folder: Path) -> list[Path]:
    return list(folder.rglob("*.nbi"))


def test_cache_beside_the_source(temporary: Path) -> None:
    run(temporary)
    assert kept_in(temporary.parent / "__pycache__")
    assert not list(temporary.iterdir())


def test_cache_in_a_configured_folder(temporary: Path) -> None:
    run(temporary, NUMBA_CACHE_DIR=str(temporary / "named"), **NOWHERE)
    assert kept_in(temporary / "named")


def test_cache_in_a_private_temporary_folder_as_last_resort(temporary: Path) -> None:
    run(temporary, **NOWHERE)
    (private,) = temporary.iterdir()
    assert private.stat().st_mode & 0o777 == 0o700
    assert kept_in(private)


def test_no_cache_in_a_folder_that_other_users_can_write(temporary: Path) -> None:
    """Files in such a folder would be executed."""
    private = temporary / f"tidelog-numba-{os.getuid()}"
    private.mkdir()
    private.chmod(0o777)
    run(temporary, **NOWHERE)
    assert not kept_in(private)
