"""The lock of a log directory: one holder, released with its process, safe to check."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tidelog.shell.store.log_dir_lock import (
    LogDirInUse,
    LogDirLock,
    identity_of,
    is_abandoned,
    is_free,
)


def test_one_holder_at_a_time_also_within_a_process(tmp_path: Path) -> None:
    lock = LogDirLock.acquire(str(tmp_path))
    began = time.monotonic()
    with pytest.raises(LogDirInUse) as refused:
        LogDirLock.acquire(str(tmp_path))
    assert time.monotonic() - began < 60
    assert str(refused.value) == (
        f"log directory {tmp_path} is in use by process {os.getpid()};"
        " stop that broker or choose another directory"
    )
    lock.release()
    LogDirLock.acquire(str(tmp_path)).release()


def test_lock_checks_keep_no_broker_from_starting(tmp_path: Path) -> None:
    """A process that checks the lock without a pause does not keep a broker from starting."""
    path = str(tmp_path / ".lock")
    LogDirLock.acquire(str(tmp_path)).release()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            is_free(path)

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(5):
            LogDirLock.acquire(str(tmp_path)).release()
    finally:
        stop.set()
        for looker in lookers:
            looker.join()


def test_a_held_lock_is_not_free_and_a_missing_one_proves_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    assert not is_free(path)
    assert identity_of(path) == ""
    lock = LogDirLock.acquire(str(tmp_path))
    assert lock.path == path
    assert not is_free(path)
    identity = identity_of(path)
    lock.release()
    assert is_free(path)
    assert is_abandoned(path, identity)
    assert not is_abandoned(path, "")
    assert not is_abandoned(path, "1:1")


STARTED = "subprocess.Popen(['sleep', '300'], close_fds=False).pid"
FORKED = "os.fork() or time.sleep(300)"


@pytest.mark.parametrize("child", [STARTED, FORKED], ids=["started", "forked"])
def test_a_killed_process_drops_its_lock_though_its_child_lives(tmp_path: Path, child: str) -> None:
    script = (
        "import os, subprocess, sys, time\n"
        "from tidelog.shell.store.log_dir_lock import LogDirLock\n"
        "lock = LogDirLock.acquire(sys.argv[1])\n"
        f"print({child}, flush=True)\n"
        "time.sleep(300)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        pid = int(holder.stdout.readline())
        try:
            assert not is_free(str(tmp_path / ".lock"))
            holder.kill()
            holder.wait()
            give_up = time.monotonic() + 120
            while not is_free(str(tmp_path / ".lock")):  # a fork may have to get going first
                assert time.monotonic() < give_up
                time.sleep(0.01)
        finally:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="the order is the kernel's")
def test_lock_of_a_killed_process_is_free_when_its_connections_end(tmp_path: Path) -> None:
    """Clients request metadata at once. If the lock is still held then, the response names the
    dead leader, and librdkafka retries a second later."""
    script = (
        "import socket, sys, time\n"
        "from tidelog.shell.store.log_dir_lock import LogDirLock\n"
        "lock = LogDirLock.acquire(sys.argv[1])\n"
        "address = ('127.0.0.1', int(sys.argv[2]))\n"
        "links = [socket.create_connection(address) for _ in range(40)]\n"
        "time.sleep(300)\n"
    )
    held = 0
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        port = str(server.getsockname()[1])
        command = [sys.executable, "-c", script, str(tmp_path), port]
        for _ in range(5):
            with subprocess.Popen(command) as holder:
                links = [server.accept()[0] for _ in range(40)]
                holder.kill()
                assert links[-1].recv(1) == b""
                held += not is_free(str(tmp_path / ".lock"))
            for link in links:
                link.close()
    assert held == 0
