"""`tidelog cluster`: brokers, and partitions at risk (M16)."""

import io
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner, Result
from real_cluster import LONG_SESSIONS, eventually, make_topic
from rich.console import Console

from tidelog.apps.cli import cluster as cluster_command
from tidelog.apps.cli import connection as cli_bootstrap
from tidelog.apps.cli import output
from tidelog.apps.cli.main import cli
from tidelog.apps.views.cluster import DamagedReplica, HealthView, PartitionProblem
from tidelog.core.record.record import Record
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.producer import Producer
from tidelog.shell.supervisor.cluster import LocalCluster

PATIENCE_S = 120


def run(bootstrap: str, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["cluster", *arguments, "--bootstrap", bootstrap])


def read(bootstrap: str, *arguments: str) -> dict[str, Any]:
    found = run(bootstrap, *arguments, "--format", "json")
    assert found.stderr == ""
    document: dict[str, Any] = json.loads(found.stdout)
    assert document["holds"] is (found.exit_code == 0)
    return document


@pytest.fixture
def running() -> Iterator[LocalCluster]:
    """Three brokers, and topics with three replicas and with one."""
    with LocalCluster(brokers=3, settings=LONG_SESSIONS, racks=("a", "b", "c")) as one:
        make_topic(one.bootstrap, "orders", 3, 3, {"min.insync.replicas": "2"})
        make_topic(one.bootstrap, "strict", 1, 3, {"min.insync.replicas": "3"})
        make_topic(one.bootstrap, "alone", 3, 1)
        with Cluster(one.bootstrap, timeout_s=PATIENCE_S) as cluster:
            Producer(cluster).append("orders", 0, [Record(None, b"x" * 5000, 1)])
        yield one


def health_until(bootstrap: str, wanted: bool) -> dict[str, Any]:
    """Return the health once `holds` is as wanted: leaders and ISRs settle within moments."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = read(bootstrap, "health")
        if found["holds"] is wanted or time.monotonic() > deadline:
            assert found["holds"] is wanted, found
            return found
        time.sleep(0.1)


def log_bytes(bootstrap: str) -> int:
    return sum(broker["log_bytes"] or 0 for broker in read(bootstrap, "brokers")["brokers"])


def names(ailing: list[dict[str, Any]]) -> list[str]:
    return [f"{each['topic']}/{each['partition']}" for each in ailing]


def test_cluster_commands_before_and_after_a_broker_is_lost(running: LocalCluster) -> None:
    whole = health_until(running.bootstrap, True)
    assert whole["partitions"] == 7
    assert names(whole["at_min_isr"]) == ["alone/0", "alone/1", "alone/2", "strict/0"]
    info = read(running.bootstrap, "info")
    assert info["kind"] == "Tidelog"
    assert info["controller"] in (1, 2, 3)
    assert (info["partitions"], info["replicas"]) == (7, 15)
    assert {topic["name"]: topic["replication_factor"] for topic in info["topics"]} == {
        "alone": 1,
        "orders": 3,
        "strict": 3,
    }
    brokers = read(running.bootstrap, "brokers")["brokers"]
    assert [broker["rack"] for broker in brokers] == ["a", "b", "c"]
    assert sum(broker["leads"] for broker in brokers) == 7
    assert sum(broker["leads"] + broker["follows"] for broker in brokers) == 15
    assert all(broker["log_bytes"] is not None for broker in brokers)
    # Followers may still be writing the record.
    eventually(lambda: log_bytes(running.bootstrap) > 3 * 5000, "the record on three brokers")
    assert [broker["controller"] for broker in brokers].count(True) == 1

    with Cluster(running.bootstrap, timeout_s=PATIENCE_S) as cluster:
        alone = cluster.topic("alone").partitions
    running.kill(3)
    sick = health_until(running.bootstrap, False)
    deadline = time.monotonic() + PATIENCE_S
    lost = [f"alone/{number}" for number, each in alone.items() if each.replicas == [3]]
    while names(sick["offline"]) != lost or len(sick["under_replicated"]) != 4 + len(lost):
        assert time.monotonic() < deadline, sick
        time.sleep(0.1)
        sick = read(running.bootstrap, "health")
    assert names(sick["under_min_isr"]) == [*lost, "strict/0"]
    assert sick["brokers_away"] == [3]
    gone = read(running.bootstrap, "brokers")
    assert gone["holds"] is False
    assert [broker["fenced"] for broker in gone["brokers"]] == [False, False, True]
    assert [broker["rack"] for broker in gone["brokers"]] == ["a", "b", "c"]
    assert all(broker["registered"] for broker in gone["brokers"])
    shown = run(running.bootstrap, "health")
    assert shown.exit_code == 1
    assert "1 offline: no leader" in shown.stdout
    assert "strict/0" in shown.stdout
    brokers_shown = run(running.bootstrap, "brokers").stdout
    assert "offline (fenced)" in brokers_shown
    assert brokers_shown.splitlines()[-1] == "✗ 2 of 3 brokers respond; unavailable: 3"


def test_text_output(running: LocalCluster) -> None:
    health_until(running.bootstrap, True)
    info = run(running.bootstrap, "info")
    assert info.exit_code == 0
    assert "Tidelog cluster " in info.stdout
    assert "brokers: 3, topics: 3, partitions: 7, replicas: 15" in info.stdout
    health = run(running.bootstrap, "health")
    assert health.stdout.splitlines()[-1] == "✓ partitions: 7; every replica is in sync"
    assert run(running.bootstrap, "brokers").stdout.endswith("✓ 3 of 3 brokers respond\n")


def test_a_broker_that_hangs_is_named(running: LocalCluster) -> None:
    health_until(running.bootstrap, True)
    running.pause(1)
    try:
        words = ["cluster", "brokers", "--timeout", "3", "--format", "json"]

        def only_the_first_hangs() -> bool:
            found = CliRunner().invoke(cli, [*words, "--bootstrap", running.bootstrap])
            assert found.exit_code == 1
            brokers = json.loads(found.stdout or '{"brokers": []}')["brokers"]
            hung = {each["id"]: each["unreachable"] for each in brokers}
            return hung == {1: "no response within 3 s", 2: None, 3: None}

        eventually(only_the_first_hangs, "one broker that hangs")
    finally:
        running.resume(1)


# -- brokers of another make -----------------------------------------------------------------


def test_another_kafka_is_described() -> None:
    mock = confluent_kafka.Producer({"test.mock.num.brokers": 3, "log_level": 0})
    mock.produce("orders", b"x")
    assert mock.flush(PATIENCE_S) == 0
    brokers = mock.list_topics(timeout=PATIENCE_S).brokers.values()
    address = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    info = read(address, "info")
    assert (info["kind"], len(info["brokers"])) == ("Kafka", 3)
    assert [topic["name"] for topic in info["topics"]] == ["orders"]
    health = read(address, "health")
    assert health["min_isr_unknown"] is True, "the mock knows no DescribeConfigs"
    assert health["partitions"] == info["partitions"]


# -- which cluster ---------------------------------------------------------------------------


@pytest.fixture
def nobody() -> str:
    free = socket.create_server(("127.0.0.1", 0))
    port = free.getsockname()[1]
    free.close()
    return f"127.0.0.1:{port}"


@pytest.mark.parametrize("command", ["info", "health", "brokers"])
def test_missing_cluster_is_one_line(nobody: str, command: str) -> None:
    found = run(nobody, command)
    assert found.exit_code == 1
    assert found.stdout == ""
    assert found.stderr == (
        f"tidelog: can't connect to {nobody}: connection refused;"
        " is the cluster up? try tidelog status\n"
    )


def test_a_bad_address_is_one_line() -> None:
    found = run("localhost:x", "info")
    assert found.exit_code == 2
    assert "'localhost:x' is not an address; write host:port" in found.stderr
    assert found.stderr.count("\n") == 1


def test_source_of_the_bootstrap_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(cli_bootstrap.VARIABLE, raising=False)
    assert cli_bootstrap.find_bootstrap(None) == "localhost:9092,localhost:9093,localhost:9094"
    monkeypatch.setenv(cli_bootstrap.VARIABLE, "elsewhere:1")
    assert cli_bootstrap.find_bootstrap(None) == "elsewhere:1"
    assert cli_bootstrap.find_bootstrap("given:2") == "given:2"


def test_the_cluster_of_the_current_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tidelog up` writes its address; the address of an ended cluster is ignored."""
    import os

    from tidelog.shell.supervisor import process_identity, up_file

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(cli_bootstrap.VARIABLE, raising=False)
    (tmp_path / "tidelog-data").mkdir()
    started = process_identity.started(os.getpid())
    assert started is not None
    note = up_file.UpFile(
        pid=os.getpid(),
        started=started,
        bootstrap="localhost:7777",
        data=str(tmp_path / "tidelog-data"),
        ephemeral=False,
        one_process=False,
        supervise=False,
        brokers=[],
    )
    up_file.write(note)
    assert cli_bootstrap.find_bootstrap(None) == "localhost:7777"
    up_file.write(note._replace(started="another"))
    assert cli_bootstrap.find_bootstrap(None) == cli_bootstrap.LAST_RESORT


# -- as text ---------------------------------------------------------------------------------


def test_long_lists_are_shortened_with_a_note() -> None:
    many = [PartitionProblem("orders", number, 1, [1, 2], [1], 1) for number in range(50)]
    health = HealthView(50, [], [], many, [], [], True, [2], False)
    out = io.StringIO()
    cluster_command.show_health(Console(file=out, width=100, highlight=False), health)
    text = out.getvalue()
    assert "no controller: no leader can be elected" in text
    assert "50 under-replicated" in text
    assert "orders/19 " in text
    assert "orders/20 " not in text
    assert "and 30 more; --format json lists all" in text


def test_partition_is_listed_once_and_internal_topics_come_last() -> None:
    own = [
        PartitionProblem("__consumer_offsets", number, 2, [1, 2], [2], 1) for number in range(50)
    ]
    mine = [PartitionProblem("orders", number, 2, [1, 2], [2], 1) for number in range(2)]
    alone = PartitionProblem("alone", 0, 2, [2], [2], 1)
    health = HealthView(53, [], [], own + mine, [*own, *mine, alone], mine, False, [1], False)
    out = io.StringIO()
    cluster_command.show_health(Console(file=out, width=100, highlight=False), health)
    assert out.getvalue().splitlines() == [
        "broker 1 is offline (fenced) or does not respond",
        "52 under-replicated",
        "  orders/0  leader 2, in sync [2] of [1, 2], min ISR 1",
        "  orders/1  leader 2, in sync [2] of [1, 2], min ISR 1",
        "  __consumer_offsets: 50 partitions",
        "53 at min ISR: if one more replica fails, writes with acks=all are rejected, 52 of them"
        " listed above",
        "  alone/0  leader 2, in sync [2] of [2], min ISR 1",
        "2 not led by their preferred replica, listed above",
        "✗ partitions: 53; 0 offline, 0 under min ISR, 52 under-replicated;"
        " brokers not responding: 1",
    ]


def test_a_cluster_with_a_damaged_replica_is_not_healthy() -> None:
    damaged = DamagedReplica("orders", 0, 2, 17, "checksum differs")
    health = HealthView(1, [], [], [], [], [], False, [], False, [damaged])
    assert not health.holds
    assert health.as_data()["damaged"][0]["offset"] == 17
    out = io.StringIO()
    cluster_command.show_health(Console(file=out, width=100, highlight=False), health)
    assert out.getvalue().splitlines() == [
        "orders/0: the replica of broker 2 is damaged from offset 17 on",
        "✗ partitions: 1; 0 offline, 0 under min ISR, 0 under-replicated, 1 with a damaged replica",
    ]


def test_a_cluster_without_its_metadata_store_is_not_healthy() -> None:
    health = HealthView(1, [], [], [], [], [], False, [], False, without_store=[1, 3])
    assert not health.holds
    assert health.as_data()["without_store"] == [1, 3]
    out = io.StringIO()
    cluster_command.show_health(Console(file=out, width=100, highlight=False), health)
    assert out.getvalue().splitlines() == [
        "brokers 1, 3 can't reach the metadata store; restart no broker now",
        "✗ partitions: 1; 0 offline, 0 under min ISR, 0 under-replicated; without the metadata"
        " store: 1, 3",
    ]


def test_health_names_the_command_that_elects_preferred_leaders() -> None:
    led_by_another = PartitionProblem("orders", 0, 2, [1, 2], [1, 2], 1)
    health = HealthView(1, [], [], [], [], [led_by_another], False, [], False)
    out = io.StringIO()
    cluster_command.show_health(Console(file=out, width=100, highlight=False), health)
    assert out.getvalue().splitlines() == [
        "1 not led by its preferred replica",
        "  orders/0  leader 2, in sync [1, 2] of [1, 2], min ISR 1",
        "to elect preferred leaders now: tidelog partition elect --all",
        "✓ partitions: 1; every replica is in sync",
    ]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 * 2**40, "3.0 TiB")]
)
def test_sizes_are_formatted_with_units(count: int, text: str) -> None:
    assert output.size(count) == text
