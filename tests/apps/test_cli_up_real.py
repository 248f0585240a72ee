"""`tidelog up` and `tidelog broker` with real brokers: they start, serve, stop and restart."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from real_cluster import LONG_SESSIONS

from tidelog.core.record.record import Record
from tidelog.shell.client.admin import create_topic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.consumer import Reader
from tidelog.shell.client.producer import Producer
from tidelog.shell.supervisor import metadata_probe, process_identity, up_file
from tidelog.shell.supervisor.cluster import LocalCluster
from tidelog.shell.supervisor.metadata_probe import ProbeFailed

TIDELOG = [sys.executable, "-m", "tidelog"]
PATIENCE_S = 120.0


def eventually(what: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def tidelog(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*TIDELOG, *words], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )


ROUND_TRIP = """
import os
from tidelog.core.record.record import Record
from tidelog.shell.client.admin import create_topic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.producer import Producer
with Cluster(os.environ["KAFKA_BOOTSTRAP_SERVERS"], timeout_s=120) as cluster:
    create_topic(cluster, "orders")
    Producer(cluster).append("orders", 0, [Record(None, b"one")])
    view = cluster.refresh()
    print(sorted(view.brokers), len(view.topics["orders"].partitions[0].replicas))
"""


@pytest.mark.parametrize("extra", [[], ["--one-process"], ["--brokers", "1"]], ids=str)
def test_command_runs_against_a_ready_cluster(extra: list[str], tmp_path: Path) -> None:
    ran = tidelog(
        "up", "--ephemeral", "--port", "0", *extra, "--", sys.executable, "-c", ROUND_TRIP
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == ("[1] 1\n" if "--brokers" in extra else "[1, 2, 3] 3\n")
    assert "cleanly" not in ran.stderr
    assert list(tmp_path.iterdir()) == []


def has_one_controller() -> bool:
    """Whether `tidelog status` finds all brokers up, and one of them the controller."""
    seen = tidelog("status", "--format", "json")
    controllers = [b["controller"] for b in json.loads(seen.stdout)["brokers"]]
    return seen.returncode == 0 and sum(controllers) == 1


def values(cluster: Cluster, topic: str) -> list[bytes | None]:
    return [record.value for record in Reader(cluster).fetch(topic, 0, 0).records]


def test_detached_data_outlives_the_cluster(tmp_path: Path) -> None:
    def start() -> str:
        began = tidelog("up", "--detach", "--port", "0", "--format", "json")
        assert began.returncode == 0, began.stderr
        return str(json.loads(began.stdout)["bootstrap"])

    try:
        with Cluster(start(), timeout_s=PATIENCE_S) as cluster:
            create_topic(cluster, "orders")
            Producer(cluster).append("orders", 0, [Record(None, b"one"), Record(None, b"two")])
        eventually(has_one_controller)
        assert tidelog("down").returncode == 0
        with Cluster(start(), timeout_s=PATIENCE_S) as cluster:
            # A new leader's high watermark may be lower until its followers have fetched.
            eventually(lambda: values(cluster, "orders") == [b"one", b"two"])
    finally:
        assert tidelog("down").returncode == 0
    log = (tmp_path / "tidelog-data" / "broker-1.log").read_text()
    assert log.count("stopped cleanly") == 2
    assert "recovering" not in log, "after a clean stop there is nothing to recover"
    assert not (tmp_path / "tidelog-data" / "up.json").exists()


def test_printed_python_example_works() -> None:
    began = tidelog("up", "--detach", "--one-process", "--port", "0")
    assert began.returncode == 0, began.stderr
    try:
        lines = [line.strip() for line in began.stdout.splitlines()]
        code = "\n".join(lines[lines.index("from confluent_kafka import Producer") :])
        ran = subprocess.run([sys.executable, "-c", code], check=False, timeout=PATIENCE_S)
        assert ran.returncode == 0
        bootstrap = next(line.split()[1] for line in lines if line.startswith("bootstrap"))
        with Cluster(bootstrap, timeout_s=PATIENCE_S) as cluster:
            eventually(lambda: values(cluster, "greetings") == [b"hello"])
            assert len(cluster.leader("greetings", 0).replicas) == 3
    finally:
        assert tidelog("down").returncode == 0


def pid_of_first(data: str) -> int:
    found = up_file.read(data)
    assert found
    return found.brokers[0].pid


def test_supervised_a_killed_broker_rejoins(tmp_path: Path) -> None:
    began = tidelog("up", "--detach", "--supervise", "--port", "0")
    assert began.returncode == 0, began.stderr
    data = str(tmp_path / "tidelog-data")
    try:
        before = up_file.read(data)
        assert before
        os.kill(before.brokers[0].pid, signal.SIGKILL)
        eventually(lambda: pid_of_first(data) != before.brokers[0].pid)
        eventually(lambda: tidelog("status").returncode == 0)
        after = up_file.read(data)
        assert after
        assert after.bootstrap == before.bootstrap
        eventually(lambda: _sees(after.brokers[1].port, {1, 2, 3}))
    finally:
        assert tidelog("down").returncode == 0
    assert "died: killed by SIGKILL; restarting it" in (Path(data) / "up.log").read_text()


def _sees(port: int, brokers: set[int]) -> bool:
    try:
        view = metadata_probe.ask_metadata("localhost", port, 2.0, [])
    except ProbeFailed:
        return False
    return set(view.brokers) == brokers


@pytest.fixture
def broker(tmp_path: Path) -> "Iterator[subprocess.Popen[str]]":
    words = ["--set", "node.id=4", "--set", "listeners=PLAINTEXT://localhost:0", "--data", "d"]
    with subprocess.Popen([*TIDELOG, "broker", *words], stderr=subprocess.PIPE, text=True) as child:
        yield child
        child.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_broker_in_the_foreground(
    broker: "subprocess.Popen[str]", number: int, tmp_path: Path
) -> None:
    assert broker.stderr
    folder = tmp_path / "d"
    places = f"broker 4: data in {folder / 'broker-4'}, metadata in {folder / 'cluster.db'}\n"
    assert broker.stderr.readline().endswith(places)
    line = broker.stderr.readline()
    found = re.fullmatch(
        r"[\d-]+ [\d:.]+ INFO +broker 4: listening on localhost:(\d+), for brokers on port \d+\n",
        line,
    )
    assert found, line
    heard = [broker.stderr.readline()]
    while len(heard) < 10 and not heard[-1].endswith("part of the cluster\n"):
        heard.append(broker.stderr.readline())
    for said in ("broker 4 is the controller, epoch 1", "broker 4 is alive", "part of the cluster"):
        assert any(said in line for line in heard), heard
    eventually(lambda: _sees(int(found[1]), {4}))
    assert (tmp_path / "d" / "broker-4" / "meta.properties").exists()
    assert (tmp_path / "d" / "cluster.db").exists()
    modes = {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}
    assert modes == {0o600}
    modes = {path.stat().st_mode & 0o777 for path in [folder, *folder.rglob("*")] if path.is_dir()}
    assert modes == {0o700}
    broker.send_signal(number)
    assert "stopped cleanly" in broker.stderr.read()
    assert broker.wait() == 0


def test_a_broker_with_wrong_settings_says_which(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("node.id=1\nnum.partitions=many\n")
    ran = tidelog("broker", "--config", "server.properties")
    assert ran.returncode == 2
    assert ran.stderr.startswith("tidelog: server.properties:2: num.partitions=many: ")
    assert ran.stderr.count("\n") == 1


def test_a_strict_broker_refuses_settings_without_effect(tmp_path: Path) -> None:
    text = "node.id=1\nnum.io.threads=8\nlog.retension.ms=1\n"
    (tmp_path / "server.properties").write_text(text)
    ran = tidelog("broker", "--config", "server.properties", "--strict")
    assert ran.returncode == 2
    assert "num.io.threads" in ran.stderr
    assert "did you mean log.retention.ms?" in ran.stderr


def test_unsupported_security_setting_prevents_startup(tmp_path: Path) -> None:
    text = "node.id=1\ndelegation.token.secret.key=hush\n"
    (tmp_path / "server.properties").write_text(text)
    ran = tidelog("broker", "--config", "server.properties")
    assert ran.returncode == 2
    assert ran.stderr.startswith("tidelog: server.properties:2: delegation.token.secret.key:")
    assert "no delegation tokens" in ran.stderr
    assert "hush" not in ran.stderr


def test_two_brokers_cant_share_a_log_directory(
    broker: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    assert broker.stderr
    assert "data in" in broker.stderr.readline()
    assert "listening" in broker.stderr.readline()
    words = ["--set", "node.id=4", "--set", "listeners=PLAINTEXT://localhost:0", "--data", "d"]
    ran = tidelog("broker", *words)
    assert ran.returncode == 1
    assert f"is in use by process {broker.pid}" in ran.stderr
    broker.terminate()
    broker.stderr.read()


def test_a_cluster_from_python_survives_its_leader(tmp_path: Path) -> None:
    with (
        LocalCluster(brokers=3, settings=LONG_SESSIONS) as local,
        Cluster(local.bootstrap, timeout_s=PATIENCE_S) as cluster,
    ):
        create_topic(cluster, "orders")
        producer = Producer(cluster, timeout_s=PATIENCE_S)
        producer.append("orders", 0, [Record(None, b"before")])
        leader = cluster.leader("orders", 0).leader
        local.kill(leader)
        assert producer.append("orders", 0, [Record(None, b"after")]) == 1
        assert cluster.leader("orders", 0).leader != leader
        local.start_broker(leader)
        log = Path(local.log_path(leader)).read_text()
        assert "recovering orders-0 (1 of 1) after an unclean stop" in log
        assert local.stop(leader) == 0
        pids = [local.pid(broker) for broker in local.ids]
    assert not any(process_identity.started(pid) for pid in pids)
