"""Open files are limited, and stay open while a connection sends from them."""

import os
from pathlib import Path

import pytest

from tidelog.core.storage.disk import (
    DiskError,
    MissingFile,
    Region,
    read_file,
)
from tidelog.shell.os_disk import OsDisk


def test_descriptors_are_bounded(tmp_path: Path) -> None:
    disk = OsDisk(str(tmp_path), max_open_files=5)
    before = len(os.listdir("/dev/fd"))
    for n in range(50):
        disk.append(f"f{n}", [b"x"])
    assert len(os.listdir("/dev/fd")) <= before + 5
    for n in range(50):
        disk.append(f"f{n}", [b"y"])
        assert disk.read(f"f{n}", 0, 9) == b"xy"
    disk.close()
    assert len(os.listdir("/dev/fd")) == before


def test_a_lease_outlives_deletion_and_ends(real: OsDisk) -> None:
    """M05: a fetch in progress does not fail, and does not keep the file open forever."""
    real.append("f", [b"0123456789"])
    before = len(os.listdir("/dev/fd"))
    one, other = (real.lease(Region("f", 2, 3)) for _ in range(2))
    real.rename("f", "f.deleted")
    real.delete("f.deleted")
    one.release()
    assert os.pread(other.fd, 3, 2) == b"234"
    other.release()
    assert len(os.listdir("/dev/fd")) < before
    with pytest.raises(MissingFile):
        real.lease(Region("f", 0, 1))


def test_a_lease_outlives_its_place_in_the_list_of_open_files(real: OsDisk) -> None:
    real.max_open_files = 2
    real.append("f", [b"0123456789"])
    before = len(os.listdir("/dev/fd"))
    held = real.lease(Region("f", 2, 3))
    for name in "abc":
        real.append(name, [b"x"])
    real.append("f", [b"!"])  # opened anew
    assert os.pread(held.fd, 99, 2) == b"23456789!"
    held.release()
    assert len(os.listdir("/dev/fd")) <= before + 1


def test_a_lease_leaves_descriptors_for_writing(real: OsDisk) -> None:
    real.append("f", [b"0123456789"])
    real.lease_descriptor_max = 2
    with pytest.raises(DiskError, match="too many files"):
        real.lease(Region("f", 0, 1))
    assert real.append("f", [b"!"]) == 10


def test_renaming_a_directory_forgets_its_open_files(real: OsDisk) -> None:
    real.make_dir("a")
    real.append("a/f", [b"one"])
    real.rename("a", "b")
    real.make_dir("a")
    real.append("a/f", [b"two"])
    assert read_file(real, "b/f") == b"one"
    assert read_file(real, "a/f") == b"two"
