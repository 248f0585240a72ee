"""Checks before a cluster is started: folders, ports, settings. They change nothing."""

import json
import os
import shutil
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tidelog.shell.store import cluster_file
from tidelog.shell.store.log_dir_lock import LogDirLock
from tidelog.shell.supervisor import cluster_plan, data_folder, ports, process_identity, up_file
from tidelog.shell.supervisor.cluster_plan import ClusterPlan
from tidelog.shell.supervisor.data_folder import Refusal
from tidelog.shell.supervisor.up_file import BrokerEntry, UpFile


def listing(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def refusal(data: Path) -> str:
    before = listing(data.parent)
    with pytest.raises(Refusal) as caught:
        data_folder.examine(str(data))
    assert listing(data.parent) == before, "nothing is touched"
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A folder in which brokers 1 and 2 have run."""
    data = tmp_path / "data"
    cluster_file.prepare(str(data / "cluster.db"))
    for broker in (1, 2):
        folder = data / f"broker-{broker}"
        folder.mkdir()
        (folder / "meta.properties").write_text(f"version=1\nnode.id={broker}\n")
        (data / f"broker-{broker}.log").touch()
    return data


def this_process() -> tuple[int, str]:
    started = process_identity.started(os.getpid())
    assert started
    return os.getpid(), started


def up_here(data: Path, pid: int, started: str) -> UpFile:
    entry = BrokerEntry(1, pid, started, "localhost", 9092, 4000, "x.log", "up")
    return UpFile(pid, started, "localhost:9092", str(data), False, False, False, [entry])


def test_a_folder_that_is_not_there_or_empty_is_fine(tmp_path: Path) -> None:
    assert data_folder.examine(str(tmp_path / "a" / "b")) == []
    assert data_folder.examine(str(tmp_path)) == []
    assert listing(tmp_path) == {}


def test_our_own_folder_is_fine_and_its_brokers_are_known(ours: Path) -> None:
    (ours / "up.json").write_text("{")
    assert data_folder.examine(str(ours)) == [1, 2]


def test_a_file_is_not_accepted_as_data_folder(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("mine")
    assert "is not a folder" in refusal(tmp_path / "data")


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "thesis.tex").write_text("mine")
    assert "it contains thesis.tex" in refusal(tmp_path / "data")


def test_brokers_without_their_store_are_refused(ours: Path) -> None:
    (ours / "cluster.db").unlink()
    assert "no cluster.db" in refusal(ours)


def test_a_store_of_a_newer_version_is_refused(ours: Path) -> None:
    with closing(sqlite3.connect(ours / "cluster.db")) as store:
        store.execute("PRAGMA user_version = 99")
        store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    cluster_file._known.clear()
    assert "format 99" in refusal(ours)


def test_a_store_that_is_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cluster.db").write_text("not a database")
    assert "not a Tidelog metadata store" in refusal(tmp_path / "data")


def test_a_log_directory_of_a_newer_version_is_refused(ours: Path) -> None:
    (ours / "broker-2" / "meta.properties").write_text("version=7\nnode.id=2\n")
    text = refusal(ours)
    assert "broker-2/meta.properties" in text
    assert "version 7" in text
    assert "use the Tidelog that wrote it, or choose another folder" in text


def test_a_locked_log_directory_is_refused_with_the_pid(ours: Path) -> None:
    lock = LogDirLock.acquire(str(ours / "broker-2"))
    try:
        assert f"broker-2 is locked by pid {os.getpid()}" in refusal(ours)
    finally:
        lock.release()
    assert data_folder.examine(str(ours)) == [1, 2]


def test_a_cluster_that_is_up_is_refused_with_the_pid(ours: Path) -> None:
    up_file.write(up_here(ours, *this_process()))
    assert f"a cluster is up there (pid {os.getpid()})" in refusal(ours)


def test_a_folder_in_a_command_is_quoted_for_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert up_file.option(str(tmp_path / "tidelog-data")) == ""
    assert up_file.option("/srv/data") == " --data /srv/data"
    assert up_file.option("/srv/my data") == " --data '/srv/my data'"


def test_a_full_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = os.statvfs(tmp_path)
    full = os.statvfs_result([*found[:3], 0, 0, *found[5:]])
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    assert "is full" in refusal(tmp_path / "data")


def test_a_file_system_without_blocks_is_not_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = os.statvfs(tmp_path)
    monkeypatch.setattr(
        os, "statvfs", lambda _: os.statvfs_result([*found[:2], 0, 0, 0, *found[5:]])
    )
    assert data_folder.examine(str(tmp_path / "data")) == []


def test_a_folder_that_cant_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    assert f"no permission to write in {tmp_path}" in refusal(tmp_path / "data")


def test_only_one_supervisor_has_the_folder(tmp_path: Path) -> None:
    held = data_folder.claim(str(tmp_path / "data"))
    with pytest.raises(Refusal, match="in use"):
        data_folder.claim(str(tmp_path / "data"))
    os.close(held)
    os.close(data_folder.claim(str(tmp_path / "data")))


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_port_in_use_is_refused_with_its_owner(taken: int) -> None:
    with pytest.raises(Refusal) as caught:
        ports.check_free("localhost", [taken])
    assert f"port {taken} is in use" in str(caught.value)
    if os.path.exists("/proc/net/tcp"):
        assert f"pid {os.getpid()}" in str(caught.value)


def test_free_ports_and_any_port_are_fine(taken: int) -> None:
    ports.check_free("localhost", [0, 0])
    with pytest.raises(Refusal, match="above 65535"):
        ports.check_free("localhost", [0, 65536])


def test_the_file_of_a_cluster_comes_back_as_it_was_written(tmp_path: Path) -> None:
    up = up_here(tmp_path, *this_process())
    up_file.write(up)
    assert up_file.read(str(tmp_path)) == up
    assert up.alive()
    assert json.loads((tmp_path / "up.json").read_text())["bootstrap"] == "localhost:9092"
    assert [p.name for p in tmp_path.iterdir()] == ["up.json"]
    up_file.remove(str(tmp_path))
    up_file.remove(str(tmp_path))
    assert up_file.read(str(tmp_path)) is None


def test_a_reused_pid_is_another_process(tmp_path: Path) -> None:
    pid, started = this_process()
    up = up_here(tmp_path, pid, started + "1")
    assert not up.alive()
    assert not up.brokers[0].is_running()
    assert process_identity.started(2**22 + 1) is None


@pytest.mark.skipif(shutil.which("ps") is None, reason="there is no ps")
def test_ps_is_used_on_systems_without_proc() -> None:
    child = subprocess.Popen(["sleep", "300"])
    first = process_identity._started_by_ps(child.pid)
    assert first
    assert process_identity._started_by_ps(child.pid) == first
    child.kill()
    child.wait()
    assert process_identity._started_by_ps(child.pid) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 2}', '{"version": 1, "brokers": 3}'])
def test_a_damaged_up_file_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "up.json").write_text(text)
    assert up_file.read(str(tmp_path)) is None


def test_settings_of_one_broker_cant_be_set_for_all() -> None:
    for name in cluster_plan.CHOSEN_HERE:
        with pytest.raises(Refusal, match="can't be set for all brokers"):
            cluster_plan.check_sets([f"{name}=x"])
    cluster_plan.check_sets(["num.partitions=3"])
    kept, warnings = cluster_plan.without_own(
        {"KAFKA_LOG_DIRS": "x", "KAFKA_NUM_PARTITIONS": "3", "HOME": "y"}
    )
    assert kept == {"KAFKA_NUM_PARTITIONS": "3", "HOME": "y"}
    assert warnings == ["KAFKA_LOG_DIRS is ignored: tidelog up chooses log.dirs for each broker"]


@pytest.mark.parametrize(
    ("brokers", "factor", "min_isr"), [(1, "1", "1"), (2, "2", "2"), (3, "3", "2"), (5, "3", "2")]
)
def test_defaults_fit_the_number_of_brokers(brokers: int, factor: str, min_isr: str) -> None:
    chosen = cluster_plan.defaults(brokers)
    assert chosen["default.replication.factor"] == factor
    assert chosen["min.insync.replicas"] == min_isr


def test_as_many_brokers_are_started_as_have_data() -> None:
    assert cluster_plan.broker_ids(None, []) == (1, 2, 3)
    assert cluster_plan.broker_ids(None, [1, 2, 3, 4, 5]) == (1, 2, 3, 4, 5)
    assert cluster_plan.broker_ids(1, [1, 2, 3]) == (1,)


def test_ports_and_racks_are_assigned_in_turn() -> None:
    plan = ClusterPlan("/data", (1, 2, 3), 9092, racks=("a", "b"))
    assert [plan.port_of(broker) for broker in plan.brokers] == [9092, 9093, 9094]
    assert "broker.rack=a" in plan.own_settings(3, 9094)
    assert "listeners=PLAINTEXT://localhost:9094" in plan.own_settings(3, 9094)
    assert "advertised.listeners=PLAINTEXT://localhost:9094" in plan.own_settings(3, 9094)
    assert not [own for own in plan.own_settings(3, 0) if own.startswith("advertised.")]
    assert plan._replace(port=0).port_of(3) == 0
