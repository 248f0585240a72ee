"""The real disk does what the one in memory does, and what only a real one has to."""

import errno
import os
import resource
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelog.core.record.encoder import encode_value
from tidelog.core.record.record_batch import parse
from tidelog.core.storage.disk import (
    Disk,
    DiskError,
    DiskFull,
    MissingFile,
    Region,
    read_file,
    read_region,
    replace_file,
)
from tidelog.core.storage.log_directory import LogDirectory
from tidelog.core.types import TopicPartition
from tidelog.lab.memory_disk import MemoryDisk
from tidelog.shell import os_disk
from tidelog.shell.os_disk import OsDisk


@pytest.fixture(params=["memory", "os", "os with one descriptor"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    if request.param == "memory":
        return MemoryDisk()
    return OsDisk(str(tmp_path / "logs"), max_open_files=1 if "one" in request.param else 1024)


@pytest.fixture
def real(tmp_path: Path) -> OsDisk:
    return OsDisk(str(tmp_path))


# -- what every disk does


def test_append_gathers_and_tells_where(disk: Disk) -> None:
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


def test_preallocation_does_not_show(disk: Disk) -> None:
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


def test_sync_of_what_is_there(disk: Disk) -> None:
    disk.make_dir("d")
    disk.append("d/f", [b"abc"])
    disk.sync("d/f")
    disk.sync_dir("d")
    disk.sync_dir("")


def test_what_is_missing_is_said_to_be(disk: Disk) -> None:
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


# -- what only a real disk has to do


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
    """M05: a fetch in progress neither fails nor keeps the file open for ever."""
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


@pytest.mark.parametrize("gathered", [1, 3], ids=["one buffer", "several buffers"])
def test_a_full_disk_is_told_from_other_errors(
    real: OsDisk, gathered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real.append("f", [b"abc"])

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", refuse)
        patched.setattr(os, "writev", refuse)
        with pytest.raises(DiskFull, match="f: No space left on device"):
            real.append("f", [b"def"] * gathered)
    assert real.append("f", [b"ghi"]) == 3


def test_a_write_that_is_cut_short_is_continued(
    real: OsDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, writev = os.write, os.writev
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:2]))
    monkeypatch.setattr(os, "writev", lambda fd, buffers: writev(fd, [b"".join(buffers)[:5]]))
    real.append("f", [b"abcdefg"])
    real.append("f", [b"hij", b"klm", b"nop"])
    real.write("g", b"whole")
    monkeypatch.undo()
    assert real.read("f", 0, 99) == b"abcdefghijklmnop"
    assert real.read("g", 0, 99) == b"whole"


def test_half_a_write_then_an_error_leaves_the_true_size(tmp_path: Path) -> None:
    """A real limit of the kernel, not a patched one: the file may not grow past 10 bytes."""
    disk = OsDisk(str(tmp_path))
    pid = os.fork()
    if pid == 0:
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
        try:
            disk.append("f", [b"0123456", b"789abcdef"])
        except DiskError:
            os._exit(0 if disk.append("f", []) == 10 else 2)
        os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert disk.size("f") == 10


def test_errors_of_every_kind_are_disk_errors(real: OsDisk, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for attempt in (
        lambda: real.make_dir("file/x"),
        lambda: real.list_dir("file"),
        lambda: real.append("file/x", [b""]),
        lambda: real.delete("."),
    ):
        with pytest.raises(DiskError):
            attempt()


def test_reading_can_fail(real: OsDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    real.append("f", [b"abc"])

    def refuse(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", refuse)
    with pytest.raises(DiskError, match="Input/output error"):
        real.read("f", 0, 3)


def test_space_is_reserved_and_given_back(real: OsDisk, tmp_path: Path) -> None:
    """Only where the file system can: elsewhere nothing is reserved and nothing breaks."""
    real.append("f", [b"abc"])
    real.preallocate("f", 1_000_000)
    assert os.stat(tmp_path / "f").st_size == 3
    real.truncate("f", 3)
    assert os.stat(tmp_path / "f").st_blocks * 512 <= 8192


def test_a_log_on_a_real_disk(tmp_path: Path) -> None:
    orders = TopicPartition("orders", 0)
    directory = LogDirectory.open(OsDisk(str(tmp_path)), 0)
    log = directory.create(orders, bytes(16), 0)
    for n in range(1000):
        made = parse(encode_value(b"value %d" % n, timestamp=n))
        made.assign(n, 0)
        log.append([made], 0)
    with open(tmp_path / "orders-0" / f"{0:020d}.log", "ab") as file:
        file.write(b"torn")
    again = LogDirectory.open(OsDisk(str(tmp_path)), 0)
    assert again.logs[orders].log_end_offset == 1000
    assert [cut.reason for cut in again.reports[orders].cuts] == ["4 bytes are no batch header"]
    again.close({orders: 900}, broker_epoch=3)
    last = LogDirectory.open(OsDisk(str(tmp_path)), 0)
    assert (last.clean, last.high_watermarks) == (True, {orders: 900})
    found = last.logs[orders].offset_for_timestamp(500)
    assert found is not None
    assert found.offset == 500


# -- many syncs at once


def fill_directories(disk: Disk, count: int) -> tuple[list[str], list[str]]:
    directories = [f"d{n}" for n in range(count)]
    for directory in directories:
        disk.make_dir(directory)
        disk.append(f"{directory}/f", [b"abc"])
    return [f"{directory}/f" for directory in directories], directories


@pytest.mark.parametrize("count", [1, 40])
def test_many_are_synced_and_gone_ones_passed_over(disk: Disk, count: int) -> None:
    files, directories = fill_directories(disk, count)
    disk.sync_many([*files, "gone"], directories)
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


def test_renaming_a_directory_forgets_its_open_files(real: OsDisk) -> None:
    real.make_dir("a")
    real.append("a/f", [b"one"])
    real.rename("a", "b")
    real.make_dir("a")
    real.append("a/f", [b"two"])
    assert read_file(real, "b/f") == b"one"
    assert read_file(real, "a/f") == b"two"
