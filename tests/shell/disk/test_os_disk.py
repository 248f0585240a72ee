"""Behaviour that only a real disk has: errors, full disks, reserved space, a real log."""

import errno
import os
import resource
from pathlib import Path

import pytest

from tidelog.core.record.encoder import encode_value
from tidelog.core.record.record_batch import parse
from tidelog.core.storage.disk import (
    DiskError,
    DiskFull,
)
from tidelog.core.storage.log_directory import LogDirectory
from tidelog.core.types import TopicPartition
from tidelog.shell.os_disk import OsDisk


@pytest.mark.parametrize("gathered", [1, 3], ids=["one buffer", "several buffers"])
def test_a_full_disk_is_distinguished_from_other_errors(
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
    """A real limit of the kernel, without a patch: the file may not grow past 10 bytes."""
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
    """Only if the file system supports it; on others nothing is reserved and nothing fails."""
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
    assert [cut.reason for cut in again.reports[orders].cuts] == [
        "4 bytes are too few for a batch header"
    ]
    again.close({orders: 900}, broker_epoch=3)
    last = LogDirectory.open(OsDisk(str(tmp_path)), 0)
    assert (last.clean, last.high_watermarks) == (True, {orders: 900})
    found = last.logs[orders].offset_for_timestamp(500)
    assert found is not None
    assert found.offset == 500
