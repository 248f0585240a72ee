"""The store of real brokers: another process that holds its lock, and a killed broker."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from worker_process import Worker

from tidelog.shell.store.store_contents import read_contents
from tidelog.shell.supervisor.cluster import LocalCluster

SETTINGS = {"broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "500"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cluster") / "data"
    with LocalCluster(3, str(folder), SETTINGS):
        yield folder


def offices(data: Path) -> dict[str, int]:
    """Return the registered brokers and the controller, each with its epoch (a revision)."""
    kvs = read_contents(str(data / "cluster.db")).kvs
    return {
        kv.key: kv.create_rev
        for kv in kvs
        if kv.key.startswith("brokers/ids/") or kv.key == "controller"
    }


def sessions_left_ms(data: Path) -> dict[int, int]:
    """The time left of each session; it grows only with a renewal."""
    contents = read_contents(str(data / "cluster.db"))
    return {session.session: session.left_ms for session in contents.sessions}


@pytest.mark.skipif(not Path("/proc/self/fdinfo").exists(), reason="only Linux names the holder")
def test_no_broker_loses_its_session_because_of_a_stuck_writer(data: Path) -> None:
    before = offices(data)
    assert set(before) == {"brokers/ids/1", "brokers/ids/2", "brokers/ids/3", "controller"}
    holder = Worker("holder", data / "cluster.db", "stopped")
    try:
        assert holder.said() == "ready"
        assert holder.process.wait(120) == -signal.SIGKILL
    finally:
        holder.end()
    last = sessions_left_ms(data)
    renewed: set[int] = set()
    give_up = time.monotonic() + 120
    while renewed != set(last):
        assert time.monotonic() < give_up, f"of the sessions {set(last)} only {renewed} are renewed"
        now = sessions_left_ms(data)
        renewed |= {session for session in now if now[session] > last[session]}
        last = now
    assert offices(data) == before


def test_the_registration_of_a_killed_broker_ends_before_its_session_times_out(data: Path) -> None:
    before = offices(data)
    os.kill(int((data / "broker-3" / ".lock").read_text()), signal.SIGKILL)
    killed = time.monotonic()
    while "brokers/ids/3" in offices(data):
        assert time.monotonic() - killed < 7
    left = offices(data)
    assert {key: left[key] for key in ("brokers/ids/1", "brokers/ids/2")} == {
        key: before[key] for key in ("brokers/ids/1", "brokers/ids/2")
    }
