"""Disks: in memory, of the operating system, and the latter with a single open file."""

from pathlib import Path

import pytest

from tidelog.core.storage.disk import (
    Disk,
)
from tidelog.lab.memory_disk import MemoryDisk
from tidelog.shell.os_disk import OsDisk


@pytest.fixture(params=["memory", "os", "os with one descriptor"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    if request.param == "memory":
        return MemoryDisk()
    return OsDisk(str(tmp_path / "logs"), max_open_files=1 if "one" in request.param else 1024)


@pytest.fixture
def real(tmp_path: Path) -> OsDisk:
    return OsDisk(str(tmp_path))
