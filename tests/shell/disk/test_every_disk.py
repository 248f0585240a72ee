"""Behaviour that the disk in memory and the real disk share."""

import os
import sys
from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelog.core.storage.disk import (
    Disk,
    DiskError,
    MissingFile,
    Region,
    read_file,
    read_region,
    replace_file,
)
from tidelog.lab.memory_disk import MemoryDisk
from tidelog.shell.os_disk import OsDisk


def test_append_gathers_buffers_and_returns_the_position(disk: Disk) -> None:
    assert disk.append("f", [b"abc"]) == 0
    assert disk.append("f", [b"de", bytearray(b"f"), memoryview(b"ghi")[1:]]) == 3
    assert disk.append("f", []) == 8
    assert read_file(disk, "f") == b"abcdefhi"
    assert disk.size("f") == 8


def test_append_of_more_bytes_than_one_call_takes(disk: Disk) -> None:
    some, more = bytes(range(256)) * 4000, bytes(range(255, -1, -1)) * 9000
    disk.append("f", [b"begin"])
    assert disk.append("f", [some, b"-", more, b"."]) == 5
    assert disk.append("f", [more]) == 5 + len(some) + len(more) + 2
    assert disk.read("f", 0, 1 << 24) == b"begin" + some + b"-" + more + b"." + more


def test_append_of_more_buffers_than_one_call_takes(disk: Disk) -> None:
    disk.append("f", [b"%06d" % n for n in range(3000)])
    assert read_file(disk, "f") == b"".join(b"%06d" % n for n in range(3000))


def test_reads_are_short_only_at_the_end(disk: Disk) -> None:
    disk.append("f", [b"0123456789"])
    assert disk.read("f", 3, 4) == b"3456"
    assert disk.read("f", 8, 4) == b"89"
    assert disk.read("f", 10, 4) == b""


def test_write_replaces(disk: Disk) -> None:
    disk.append("f", [b"long content"])
    disk.write("f", b"short")
    assert read_file(disk, "f") == b"short"
    assert disk.append("f", [b"!"]) == 5


def test_truncate_only_shortens(disk: Disk) -> None:
    disk.append("f", [b"0123456789"])
    disk.truncate("f", 4)
    disk.truncate("f", 100)
    assert disk.size("f") == 4
    assert disk.append("f", [b"x"]) == 4
    assert read_file(disk, "f") == b"0123x"


def test_preallocation_does_not_change_the_size(disk: Disk) -> None:
    disk.append("f", [b"abc"])
    disk.preallocate("f", 100_000)
    disk.preallocate("f", 1)
    assert disk.size("f") == 3
    assert disk.append("f", [b"d"]) == 3


def test_rename_replaces_a_file(disk: Disk) -> None:
    disk.append("old", [b"new content"])
    disk.append("new", [b"old"])
    disk.rename("old", "new")
    assert not disk.exists("old")
    assert read_file(disk, "new") == b"new content"
    assert disk.append("new", [b"!"]) == 11


def test_delete(disk: Disk) -> None:
    disk.append("f", [b"abc"])
    disk.delete("f")
    disk.delete("f")
    assert not disk.exists("f")
    assert read_file(disk, "f") is None
    assert disk.append("f", [b"z"]) == 0


def test_directories(disk: Disk) -> None:
    disk.make_dir("b-0")
    disk.make_dir("b-0")
    disk.make_dir("a-0")
    disk.append("b-0/2", [b"two"])
    disk.append("b-0/1", [b"one"])
    disk.write("file", b"")
    assert disk.list_dir("") == ["a-0", "b-0", "file"]
    assert disk.list_dir("b-0") == ["1", "2"]
    assert disk.list_dir("missing") == []
    disk.rename("b-0", "c-0")
    assert disk.list_dir("") == ["a-0", "c-0", "file"]
    assert read_file(disk, "c-0/2") == b"two"
    assert disk.append("c-0/2", [b"!"]) == 3
    disk.delete_dir("c-0")
    disk.delete_dir("c-0")
    assert disk.list_dir("") == ["a-0", "file"]
    assert not disk.exists("c-0/2")


def test_a_directory_is_not_renamed_over_a_full_one(disk: Disk) -> None:
    for name in ("a", "b"):
        disk.make_dir(name)
        disk.write(f"{name}/f", b"")
    with pytest.raises(DiskError):
        disk.rename("a", "b")


def test_sync_changes_nothing_that_can_be_read(disk: Disk) -> None:
    disk.make_dir("d")
    disk.append("d/f", [b"abc"])
    disk.sync("d/f")
    disk.sync_dir("d")
    disk.sync_dir("")
    disk.sync_many(["d/f"], ["d", ""])
    assert read_file(disk, "d/f") == b"abc"
    assert (disk.list_dir(""), disk.list_dir("d")) == (["d"], ["f"])
    assert disk.append("d/f", [b"d"]) == 3


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS syncs by fcntl")
def test_sync_flushes_the_named_file_or_directory(
    real: OsDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[tuple[str, int]] = []
    for name in ("fdatasync", "fsync"):
        monkeypatch.setattr(
            os, name, lambda fd, name=name: flushed.append((name, os.fstat(fd).st_ino))
        )
    real.make_dir("d")
    real.append("d/f", [b"abc"])
    flushed.clear()
    real.sync("d/f")
    real.sync_dir("d")
    real.sync_dir("")
    paths = [("fdatasync", "d/f"), ("fsync", "d"), ("fsync", "")]
    assert flushed == [(call, os.stat(os.path.join(real.root, at)).st_ino) for call, at in paths]


def test_operations_on_missing_files_raise_missing_file(disk: Disk) -> None:
    attempts: list[Callable[[], object]] = [
        lambda: disk.read("f", 0, 1),
        lambda: disk.size("f"),
        lambda: disk.truncate("f", 0),
        lambda: disk.rename("f", "g"),
        lambda: disk.sync("f"),
        lambda: disk.sync_dir("d"),
        lambda: disk.append("d/f", [b"x"]),
        lambda: disk.write("d/f", b"x"),
    ]
    for attempt in attempts:
        with pytest.raises(MissingFile):
            attempt()


def test_replacing_a_file(disk: Disk) -> None:
    disk.make_dir("d")
    replace_file(disk, "d/f", b"one")
    replace_file(disk, "d/f", b"two")
    assert read_file(disk, "d/f") == b"two"
    assert disk.list_dir("d") == ["f"]


def test_a_region_outlives_the_renaming_of_its_file(disk: Disk) -> None:
    disk.append("f", [b"0123456789"])
    region = Region("f", 2, 3)
    disk.rename("f", "f.deleted")
    assert read_region(disk, region) == b"234"
    disk.delete("f.deleted")
    with pytest.raises(MissingFile):
        read_region(disk, region)


paths = st.sampled_from(["a", "b", "d/c"])


deeds = st.lists(
    st.one_of(
        st.tuples(st.just("append"), paths, st.lists(st.binary(max_size=20), max_size=3)),
        st.tuples(st.just("write"), paths, st.binary(max_size=20)),
        st.tuples(st.just("truncate"), paths, st.integers(0, 30)),
        st.tuples(st.just("rename"), paths, paths),
        st.tuples(st.just("delete"), paths),
        st.tuples(st.just("read"), paths, st.integers(0, 30), st.integers(0, 30)),
    ),
    max_size=30,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(deeds, st.integers(1, 3))
def test_both_disks_always_agree(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[object, ...]], open_files: int
) -> None:
    real = OsDisk(str(tmp_path_factory.mktemp("disk")), max_open_files=open_files)
    disks: Sequence[Disk] = (MemoryDisk(), real)
    for one in disks:
        one.make_dir("d")
    for verb, *arguments in history:
        answers: list[object] = []
        for one in disks:
            try:
                answers.append(getattr(one, str(verb))(*arguments))
            except DiskError as error:
                answers.append(type(error))
        assert answers[0] == answers[1]
    for path in ("a", "b", "d/c"):
        assert read_file(disks[0], path) == read_file(real, path)
        assert disks[0].exists(path) == real.exists(path)
    real.close()
