"""Syncs of one file from any thread, and of many files at once."""

import os
import sys
import threading

import pytest

from tidelog.core.storage.disk import (
    Disk,
    DiskError,
)
from tidelog.shell import os_disk
from tidelog.shell.os_disk import OsDisk


def fill_directories(disk: Disk, count: int) -> tuple[list[str], list[str]]:
    directories = [f"d{n}" for n in range(count)]
    for directory in directories:
        disk.make_dir(directory)
        disk.append(f"{directory}/f", [b"abc"])
    return [f"{directory}/f" for directory in directories], directories


def test_sync_works_from_another_thread(real: OsDisk) -> None:
    real.append("f", [b"abc"])
    errors: list[BaseException] = []

    def sync() -> None:
        try:
            real.sync("f")
        except DiskError as error:
            errors.append(error)

    thread = threading.Thread(target=sync)
    thread.start()
    thread.join()
    assert errors == []


@pytest.mark.parametrize("count", [1, 40])
def test_many_files_are_synced_and_missing_ones_skipped(disk: Disk, count: int) -> None:
    files, directories = fill_directories(disk, count)
    disk.sync_many([*files, "gone"], ["gone too", *directories])
    disk.sync_many([], [])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has syncfs")
def test_many_take_one_sync_of_the_file_system(
    real: OsDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda _: calls.append("file"))
    monkeypatch.setattr(os, "fsync", lambda _: calls.append("directory"))

    def syncfs(_fd: int) -> int:
        calls.append("all")
        return 0

    monkeypatch.setattr(os_disk, "_find_syncfs", lambda: syncfs)
    files, directories = fill_directories(real, 8)
    real.sync_many(files, directories)
    assert calls == ["all"]
    calls.clear()
    real.sync_many(files, directories[:7])
    assert calls == ["file"] * 8 + ["directory"] * 7


def test_a_sync_of_the_file_system_that_fails_is_a_disk_error(
    real: OsDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os_disk, "_find_syncfs", lambda: lambda _: -1)
    files, directories = fill_directories(real, 20)
    with pytest.raises(DiskError):
        real.sync_many(files, directories)


@pytest.mark.parametrize("release", ["4.19.0-27-amd64", "5.7.1", "strange"])
def test_old_kernels_hide_errors_so_each_is_synced(
    real: OsDisk, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    monkeypatch.setattr(os_disk, "_kernel_release", lambda: release)
    os_disk._find_syncfs.cache_clear()
    try:
        assert os_disk._find_syncfs() is None
        real.sync_many(*fill_directories(real, 20))
    finally:
        os_disk._find_syncfs.cache_clear()
