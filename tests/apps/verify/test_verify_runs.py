"""Whole runs on real brokers."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from real_cluster import eventually
from sasl_cluster import ADMIN_PASSWORD, SaslCluster

from tidelog.apps.cli.main import cli
from tidelog.apps.verify.checker.findings import Findings
from tidelog.apps.verify.checker.replicas import Served, check_replicas
from tidelog.apps.verify.nemesis.faults import AHEAD
from tidelog.apps.verify.nemesis.plan import make_plan
from tidelog.apps.verify.whole_logs import stored_batches
from tidelog.core.types import TopicPartition
from tidelog.shell.supervisor.cluster import LocalCluster

SOME = 100
"""Records that a run writes at least. A busy machine may hold up producers most of the time, and
they do not make up for it."""


def run(*arguments: str) -> dict[str, Any]:
    """Run `verify`; it must find no anomaly."""
    found = CliRunner().invoke(cli, ["verify", *arguments, "--format", "json"])
    assert found.exit_code == 0, found.output
    data: dict[str, Any] = json.loads(found.stdout)
    assert data["holds"] is True
    assert not {kind for kind, found in data["anomalies"].items() if found["count"]}
    return data


def seed_with_kill(seconds: float) -> int:
    """Return a seed whose plan kills a leader within this time."""
    plans = ((seed, make_plan(seed, seconds, ("kill",))) for seed in range(1000))
    return next(seed for seed, plan in plans if plan and plan[0].role == "leader")


def test_a_leader_is_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    seed = seed_with_kill(10)
    data = run(
        "--seconds", "10", "--faults", "kill", "--seed", str(seed), "--rate", "1500",
        "--keep", str(folder),
    )  # fmt: skip
    assert data["kills"] >= 1
    assert data["acked"] > SOME
    assert data["failover"]["kill"]["never"] == 0
    assert data["replicas_compared"] == 18
    assert data["read"]["librdkafka"] == data["read"]["own"] == data["in_log"]
    assert json.loads((folder / "report.json").read_text())["seed"] == seed
    assert tampering_is_found(folder, data["topic"]) == {"replicas differ": 1}


def tampering_is_found(folder: Path, topic: str) -> dict[str, int]:
    """Cut the last batch off one replica's log, and compare again."""
    place = TopicPartition(topic, 0)
    log_dirs = {broker: folder / "data" / f"broker-{broker}" for broker in (1, 2, 3)}
    whole = list(stored_batches(str(log_dirs[1]), place))
    segments = sorted((log_dirs[2] / f"{topic}-0").glob("*.log"))
    full = [path for path in segments if path.stat().st_size]
    os.truncate(full[-1], full[-1].stat().st_size - len(whole[-1].data))
    served = Served(0, whole[-1].batch.last_offset + 1, "")
    replicas = {b: stored_batches(str(folder), place) for b, folder in log_dirs.items()}
    found: Findings = check_replicas(0, served, dict(replicas))
    return dict(found.counts)


def test_clients_use_tls_under_faults(tmp_path: Path) -> None:
    """No broker has a plaintext listener for clients."""
    folder = tmp_path / "kept"
    seed = seed_with_kill(6)
    data = run(
        "--tls", "--seconds", "6", "--faults", "kill", "--seed", str(seed), "--rate", "1000",
        "--keep", str(folder), "--history", str(tmp_path / "run.jsonl"),
    )  # fmt: skip
    assert data["tls"] is True
    assert data["kills"] >= 1
    assert data["read"]["librdkafka"] == data["read"]["own"] == data["in_log"] > 1000
    for broker in (1, 2, 3):
        lines = (folder / "data" / f"broker-{broker}.log").read_text().splitlines()
        listening = [event for event in map(json.loads, lines) if event["event"] == "listening"]
        assert listening
        assert {each.split(":")[0] for event in listening for each in event["listeners"]} == {"SSL"}
    history = (tmp_path / "run.jsonl").read_text()
    assert '"log_end_offset"' in history, "the brokers' replicas were sampled"


def test_a_cluster_with_passwords_is_verified(tmp_path: Path) -> None:
    cluster = SaslCluster(tmp_path)
    try:
        cluster.create_users()
        file = cluster.properties(mechanism="PLAIN", protocol="SASL_SSL")
        named = ("--bootstrap", cluster.bootstrap("SASL_SSL"), "--command-config", file)
        words = ("verify", *named, "--seconds", "3", "--transactions", "--format", "json")
        done = CliRunner().invoke(cli, words)
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["acked"] > 0
        again = run(*named, "--seconds", "2", "--rate", "1000")
        assert again["read"]["librdkafka"] == again["read"]["own"] == again["in_log"] > 0
        assert ADMIN_PASSWORD not in done.output + json.dumps(again)
    finally:
        cluster.close()


def test_existing_cluster_is_verified_and_left_unchanged() -> None:
    with LocalCluster() as cluster:
        data = run(
            "--bootstrap", cluster.bootstrap, "--seconds", "5", "--rate", "1000",
            "--client", "own", "--producers", "2", "--partitions", "3",
        )  # fmt: skip
        eventually(lambda: cluster.metadata(1).topics == {}, "the topic is deleted")
    assert data["nemesis"] == []
    assert data["faults"] == []
    assert data["replicas_compared"] == 0
    assert data["acked"] == data["in_log"] > SOME
    assert data["read"] == {"librdkafka": 0, "own": data["in_log"]}


OTHERS = ("pause", "restart", "isolate", "disk-full")


@pytest.mark.slow
def test_faults_other_than_kills() -> None:
    plans = ((seed, make_plan(seed, 16, OTHERS)) for seed in range(1000))
    seed = next(s for s, plan in plans if len({fault.kind for fault in plan[:3]}) == 3)
    data = run("--seconds", "16", "--faults", ",".join(OTHERS), "--seed", str(seed))
    assert data["kills"] == 0
    assert len({fault["kind"] for fault in data["faults"]}) >= 2
    assert all(fault["healthy_s"] is not None for fault in data["faults"])


@pytest.mark.slow
def test_all_brokers_are_killed_at_once_and_nothing_is_lost() -> None:
    data = run("--seconds", "12", "--faults", "kill-all")
    assert data["kills"] >= 3
    assert data["failover"]["kill-all"]["never"] == 0


def kill_leaders_that_are_ahead(acks: str) -> dict[str, Any]:
    """Run `verify` while leaders are killed that have records which no follower received."""
    words = ["--seconds", "20", "--acks", acks, "--faults", "kill-ahead", "--format", "json"]
    data: dict[str, Any] = json.loads(CliRunner().invoke(cli, ["verify", *words]).stdout)
    assert AHEAD in [fault["note"] for fault in data["faults"]], "no leader was ever ahead"
    return data


@pytest.mark.slow
def test_checker_finds_losses_with_acks_1() -> None:
    """A record that only the killed leader had is lost; the report counts it as allowed."""
    data = kill_leaders_that_are_ahead("1")
    assert data["idempotence"] is False
    assert data["anomalies"]["lost"]["allowed"] is True
    assert data["anomalies"]["lost"]["count"] > 0


@pytest.mark.slow
def test_acks_all_loses_nothing_when_a_leader_dies_ahead_of_its_followers() -> None:
    data = kill_leaders_that_are_ahead("all")
    assert data["holds"] is True
    assert data["anomalies"]["lost"]["count"] == 0
