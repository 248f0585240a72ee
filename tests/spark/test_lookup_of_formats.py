"""Spark imports `pyspark_…` to find formats; that import must need only Spark."""

import subprocess
import sys

import pytest

LOOK = """
import sys
for missing in ("numpy", "pyarrow", "numba", "pandas"):
    sys.modules[missing] = None
import pyspark_tidelog, pyspark_tidelog_log
print(pyspark_tidelog.DefaultSource.name(), pyspark_tidelog_log.DefaultSource.name())
"""


@pytest.mark.spark
def test_formats_are_found_without_arrow() -> None:
    found = subprocess.run(
        [sys.executable, "-c", LOOK], capture_output=True, text=True, timeout=300, check=False
    )
    assert found.stdout.split() == ["tidelog", "tidelog-log"], found.stderr
