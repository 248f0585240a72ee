"""`tidelog up --host`: machines of one cluster, each with a folder and brokers of its own.

The machines are addresses of the loopback interface, which Linux has without a setup.
"""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from real_cluster import eventually, make_topic, read_values, send_all
from real_etcd import EtcdCluster, running_etcd

from tidelog.shell.store.etcd.store_admin import read_registrations
from tidelog.shell.store.store_backend import NO_ACCESS

SECRET = "0123456789abcdef" * 4
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has 127.0.0.2")


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdCluster]:
    with running_etcd(1) as etcd:
        yield etcd


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o600)
    return path


def tidelog(*words: str) -> "subprocess.CompletedProcess[str]":
    entry = "from tidelog.apps.cli.launch import main; main()"
    command = [sys.executable, "-c", entry, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def up(data: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return tidelog("up", "--port", "0", "--wait", "120", "--data", str(data), *words)


@contextmanager
def running(data: Path, *words: str) -> Iterator[dict[str, Any]]:
    done = up(data, "--detach", "--format", "json", *words)
    assert done.returncode == 0, done.stderr
    try:
        yield json.loads(done.stdout)
    finally:
        down = tidelog("down", "--data", str(data))
        assert down.returncode == 0, down.stdout


def states(data: Path) -> dict[int, str]:
    shown = json.loads(tidelog("status", "--data", str(data), "--format", "json").stdout)
    return {broker["id"]: broker["state"] for broker in shown["brokers"]}


def await_output(text: str, *words: str, code: int = 1, times: int = 1) -> None:
    """Run the command until it shows this text: a broker that is held up responds late."""

    def is_shown() -> bool:
        done = tidelog(*words)
        return done.returncode == code and (done.stdout + done.stderr).count(text) == times

    eventually(is_shown, f"{words}: {text}")


def refusal(data: Path, *words: str) -> str:
    refused = up(data, *words, "--", "true")
    assert refused.returncode in (1, 2), refused.stdout
    assert len(refused.stderr.splitlines()) == 1, refused.stderr
    return refused.stderr


def test_status_shows_brokers_that_serve_without_the_store(
    tmp_path: Path, etcd: EtcdCluster
) -> None:
    words = ("--store", etcd.url("away"), "--brokers", "2")
    summary = "0 of 2 brokers up, 2 serving without the metadata store"
    outside = "brokers 1, 2 can't reach the metadata store"
    rejected = "NOT_CONTROLLER; try again when a controller is elected"
    with running(tmp_path / "a", *words, "--set", "broker.session.timeout.ms=6000") as found:
        at = ("-b", found["bootstrap"])
        etcd.nodes[0].freeze()
        try:
            await_output(summary, "status", "--data", str(tmp_path / "a"))
            assert states(tmp_path / "a").keys() == {1, 2}
            await_output(outside, "cluster", "health", *at)
            each = "serves without the metadata store"
            await_output(each, "cluster", "brokers", *at, code=0, times=2)
            await_output(rejected, "topic", "create", "refused", *at)
            retention = ("--set", "log.retention.ms=1000")
            await_output(rejected, "config", "alter", "brokers", *retention, *at)
        finally:
            etcd.nodes[0].thaw()
        eventually(lambda: states(tmp_path / "a") == {1: "up", 2: "up"}, "up again")
        eventually(lambda: tidelog("cluster", "health", *at).returncode == 0, "healthy")
    log = (tmp_path / "a" / "broker-1.log").read_text()
    assert "broker 1: serves without the metadata store" in log


def racks_at(bootstrap: str) -> dict[int, str]:
    shown = tidelog("cluster", "brokers", "-b", bootstrap, "--format", "json")
    brokers = json.loads(shown.stdout or '{"brokers": []}')["brokers"]
    return {one["id"]: one["rack"] for one in brokers}


def test_each_machine_controls_its_own_brokers(
    tmp_path: Path, etcd: EtcdCluster, secret: Path
) -> None:
    store = ("--store", etcd.url("two"), "--secret-file", str(secret))
    a, b = tmp_path / "a", tmp_path / "b"
    with (
        running(a, *store, "--host", "127.0.0.2", "--rack", "A", "--node-ids", "11,12") as first,
        running(b, *store, "--host", "127.0.0.3", "--node-ids", "21,22") as second,
    ):
        assert [broker["id"] for broker in first["brokers"]] == [11, 12]
        assert {broker["host"] for broker in second["brokers"]} == {"127.0.0.3"}
        racks = {11: "A", 12: "A", 21: "127.0.0.3", 22: "127.0.0.3"}
        eventually(lambda: racks_at(first["bootstrap"]) == racks, "all brokers with their racks")
        assert tidelog("broker", "kill", "22", "--data", str(b)).returncode == 0
        left = ({11: "up", 12: "up"}, {21: "up", 22: "dead"})
        eventually(lambda: (states(a), states(b)) == left, "one broker dead")
        refused = tidelog("broker", "kill", "22", "--data", str(a))
        assert refused.returncode == 1
        assert "its brokers are 11, 12" in refused.stderr
        assert tidelog("broker", "start", "22", "--data", str(b)).returncode == 0
        taken = refusal(tmp_path / "c", *store, "--host", "127.0.0.4", "--node-ids", "12,31")
        assert "node id 12 is in use by a broker of another machine, 127.0.0.2:" in taken
        beside = refusal(tmp_path / "c", *store, "--host", "127.0.0.2", "--node-ids", "11")
        assert f"node id 11 is in use by a broker in {a / 'broker-11'}, 127.0.0.2:" in beside
    with running(b) as again:  # the folder notes its options
        assert [broker["id"] for broker in again["brokers"]] == [21, 22]
        assert {broker["host"] for broker in again["brokers"]} == {"127.0.0.3"}


def test_a_machine_with_an_ipv6_address(tmp_path: Path, secret: Path) -> None:
    """etcd, the listeners for clients and those for brokers: all are on IPv6 only."""
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with running_etcd(1, host="[::1]") as etcd:
        words = ("--store", etcd.url("six"), "--secret-file", str(secret))
        machine = ("--host", "[::1]", "--node-ids", "1,2")
        with running(tmp_path / "a", *words, *machine) as found:
            bootstrap = found["bootstrap"]
            assert {broker["host"] for broker in found["brokers"]} == {"::1"}
            assert all(address.startswith("[::1]:") for address in bootstrap.split(","))
            make_topic(bootstrap, "kept", partitions=2, replicas=2)
            send_all(bootstrap, "kept", [b"one", b"two"], conf={"acks": "all"})
            assert read_values(bootstrap, "kept") == [b"one", b"two"]
            health = ("cluster", "health", "-b", bootstrap)
            eventually(lambda: tidelog(*health).returncode == 0, "healthy")


def test_the_supervisor_ends_the_session_of_its_last_broker(
    tmp_path: Path, etcd: EtcdCluster, secret: Path
) -> None:
    """No other broker of the machine can prove the death, and the session would last an hour."""
    url = etcd.url("alone")
    words = ("--store", url, "--host", "127.0.0.2", "--node-ids", "1", "--secret-file", str(secret))
    session = ("--set", "broker.session.timeout.ms=3600000")
    with running(tmp_path / "a", *words, *session):
        assert [one.broker for one in read_registrations(url, NO_ACCESS)] == [1]
        assert tidelog("broker", "kill", "1", "--data", str(tmp_path / "a")).returncode == 0
        eventually(lambda: not read_registrations(url, NO_ACCESS) or None, "the session's end")


def test_the_secret_is_not_in_the_store(tmp_path: Path, etcd: EtcdCluster, secret: Path) -> None:
    words = ("--store", etcd.url("secret"), "--host", "127.0.0.2", "--node-ids", "1")
    with running(tmp_path / "a", *words, "--secret-file", str(secret)):
        pass
    backup = tmp_path / "backup.db"
    assert tidelog("store", "backup", etcd.url("secret"), str(backup)).returncode == 0
    assert SECRET.encode() not in backup.read_bytes()
    assert "copy the secret's file from another machine" in refusal(tmp_path / "b", *words)
    other = tmp_path / "other"
    other.write_text("x" * 40)
    wrong = refusal(tmp_path / "b", *words, "--secret-file", str(other))
    assert f"{other} is not the secret of cluster" in wrong
    other.write_text("short")
    assert "at least 32" in refusal(tmp_path / "b", *words, "--secret-file", str(other))


@pytest.mark.parametrize("way", ["environment", "set"])
def test_a_detached_supervisor_finds_files_of_the_current_folder(
    tmp_path: Path, etcd: EtcdCluster, secret: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """It runs in the root folder."""
    monkeypatch.chdir(secret.parent)
    words = ["--store", etcd.url(f"relative-{way}"), "--brokers", "1"]
    if way == "environment":
        monkeypatch.setenv("KAFKA_TIDELOG_CLUSTER_SECRET_FILE", secret.name)
    else:
        words += ["--set", f"tidelog.cluster.secret.file={secret.name}"]
    with running(tmp_path / "a", *words) as found:
        assert [broker["state"] for broker in found["brokers"]] == ["up"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--host", "127.0.0.2", "--node-ids", "1"], "add --store etcd://"),
        (["STORE", "--host", "127.0.0.2"], "--host needs --node-ids"),
        (["STORE", "--node-ids", "1"], "add --host with this machine's address"),
        (["STORE", "--host", "a..b", "--node-ids", "1"], "not a valid name"),
        (["STORE", "--host", "0.0.0.0", "--node-ids", "1"], "other machines can connect to"),
        (["STORE", "--host", "192.0.2.1", "--node-ids", "1"], "not an address of this machine"),
        (["STORE", "--host", "127.0.0.2", "--node-ids", "1,1"], "broker id 1 is given twice"),
        (["STORE", "--host", "127.0.0.2", "--node-ids", "1,b"], "'b' is not a broker id"),
        (
            ["STORE", "--host", "127.0.0.2", "--node-ids", "1,2", "--brokers", "3"],
            "--brokers 3 does not match --node-ids 1,2",
        ),
        (
            ["STORE", "--host", "127.0.0.2", "--node-ids", "1,2", "--racks", "a,b"],
            "--racks is for a cluster on one machine",
        ),
        (
            ["--store", "etcd://192.0.2.1:2379/p", "--host", "127.0.0.2", "--node-ids", "1",
             "--set", "tidelog.metadata.store.allow.plaintext=true"],
            "the cluster's secret must not be kept there",
        ),
        (
            ["--store", "etcd://192.0.2.1:2379/p",
             "--set", "tidelog.metadata.store.allow.plaintext=true"],
            "the cluster's secret must not be kept there",
        ),
    ],
)  # fmt: skip
def test_wrong_options_are_refused_in_one_line(tmp_path: Path, words: list[str], text: str) -> None:
    store = ["--store", "etcd://127.0.0.1:2379/p"]
    given = [*store, *words[1:]] if words[0] == "STORE" else words
    assert text in refusal(tmp_path / "data", *given)
    assert not (tmp_path / "data").exists()


@pytest.mark.ci
def test_a_new_machine_replaces_a_lost_one_under_its_ids(
    tmp_path: Path, etcd: EtcdCluster, secret: Path
) -> None:
    store = ("--store", etcd.url("replaced"), "--secret-file", str(secret))

    def machine(number: int) -> tuple[str, ...]:
        return (*store, "--host", f"127.0.0.{number}", "--node-ids", f"{number}1,{number}2")

    with (
        running(tmp_path / "2", *machine(2)) as first,
        running(tmp_path / "3", *machine(3)),
        running(tmp_path / "4", *machine(4), "--rack", "third"),
    ):
        (tmp_path / "lines").write_text("".join(f"{n}\n" for n in range(500)))
        words = ("-b", first["bootstrap"], "--timeout", "120", "--create", str(tmp_path / "lines"))
        written = tidelog("produce", "kept", *words)
        assert written.returncode == 0, written.stderr
        lost = tidelog("broker", "kill", "41", "42", "--data", str(tmp_path / "4"))
        assert lost.returncode == 0, lost.stderr
        options = (*store, "--host", "127.0.0.5", "--rack", "third", "--node-ids", "41,42")
        with running(tmp_path / "5", *options):
            health = ("cluster", "health", "-b", first["bootstrap"])
            eventually(lambda: tidelog(*health).returncode == 0 or None, "all in sync")
            copies = list((tmp_path / "5").glob("broker-4*/kept-0/*.log"))
            assert len(copies) == 1
            assert copies[0].stat().st_size > 0
            read = tidelog("consume", "kept", "-e", "-b", first["bootstrap"], "--timeout", "120")
            assert len(read.stdout.splitlines()) == 500
