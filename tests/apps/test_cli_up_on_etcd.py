"""`tidelog up --store`: a cluster of one machine with its metadata in etcd."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_cluster import PATIENCE_S, eventually
from real_etcd import EtcdCluster, running_etcd

from tidelog.shell.store import cluster_file


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdCluster]:
    with running_etcd(1) as etcd:
        yield etcd


def up(data: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    entry = "from tidelog.apps.cli.launch import main; main()"
    command = [sys.executable, "-c", entry, "up", "--port", "0", "--data", str(data), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_the_folder_notes_its_store_for_the_next_start(tmp_path: Path, etcd: EtcdCluster) -> None:
    data, url = tmp_path / "data", etcd.url("up")
    first = up(data, "--brokers", "1", "--store", url, "--", "true")
    assert first.returncode == 0, first.stderr
    assert (data / "store-url").read_text() == f"{url}\n"
    assert not (data / "cluster.db").exists()
    again = up(data, "--", "true")
    assert again.returncode == 0, again.stderr
    assert not (data / "cluster.db").exists()


def test_a_folder_with_its_own_store_is_not_started_on_another(
    tmp_path: Path, etcd: EtcdCluster
) -> None:
    cluster_file.prepare(str(tmp_path / "cluster.db"))
    refused = up(tmp_path, "--store", etcd.url("other"), "--", "true")
    assert refused.returncode == 1
    assert f"run: tidelog store copy {tmp_path} {etcd.url('other')}" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_brokers_data_is_not_started_on_an_empty_etcd(tmp_path: Path, etcd: EtcdCluster) -> None:
    data = tmp_path / "data"
    assert up(data, "--brokers", "1", "--store", etcd.url("mine"), "--", "true").returncode == 0
    refused = up(data, "--store", etcd.url("empty"), "--", "true")
    assert refused.returncode == 1
    assert "is missing, but data of cluster" in refused.stderr
    assert (data / "store-url").read_text() == f"{etcd.url('mine')}\n"


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("etcd://h1:2379/p", "is on another machine"),
        ("zookeeper://h1", "must be sqlite:PATH or etcd://"),
        pytest.param(  # it waits ten seconds for an etcd that may be starting
            "etcd://127.0.0.1:1/p", "refused; check that etcd runs", marks=pytest.mark.ci
        ),
    ],
)
def test_a_wrong_store_is_refused_in_one_line(tmp_path: Path, url: str, text: str) -> None:
    refused = up(tmp_path / "data", "--store", url, "--", "true")
    assert refused.returncode in (1, 2)
    assert text in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_status_finds_the_address_of_a_broker_without_tidelog_up(
    tmp_path: Path, etcd: EtcdCluster
) -> None:
    data = tmp_path / "data"
    first = up(data, "--brokers", "1", "--store", etcd.url("by-hand"), "--", "true")
    assert first.returncode == 0, first.stderr
    tidelog = [sys.executable, "-c", "from tidelog.apps.cli.launch import main; main()"]
    one = ["--set", "node.id=1", "--set", "listeners=PLAINTEXT://localhost:0"]
    broker = subprocess.Popen(
        [*tidelog, "broker", *one, "--data", str(data)], stderr=subprocess.PIPE, text=True
    )
    try:
        assert broker.stderr is not None
        assert any("part of the cluster" in line for line in broker.stderr)

        def is_up() -> bool:
            seen = subprocess.run(
                [*tidelog, "status", "--data", str(data), "--format", "json"],
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            (state,) = json.loads(seen.stdout)["brokers"]
            return bool(state["state"] == "up" and seen.returncode == 0)

        eventually(is_up, "status finds the broker")
    finally:
        broker.terminate()
        broker.communicate(timeout=PATIENCE_S)
