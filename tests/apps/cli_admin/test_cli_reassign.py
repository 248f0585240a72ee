"""`tidelog reassign` against a real cluster: plans, moves, the rollback plan."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from click.testing import Result

from tidelog.apps.changes import reassignment
from tidelog.apps.cli import output
from tidelog.apps.cli import reassign as reassign_command
from tidelog.core.record.record import Record
from tidelog.core.types import TopicPartition
from tidelog.shell.client import admin
from tidelog.shell.client.administration.partitions import Reassignment
from tidelog.shell.client.administration.topics import NewTopic, create_topics
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.producer import Producer
from tidelog.shell.supervisor.cluster import LocalCluster

Run: TypeAlias = Callable[..., Result]
Read: TypeAlias = Callable[..., dict[str, Any]]

PATIENCE_S = 120


def make(cluster: Cluster, name: str, *assignment: list[int], records: int = 0) -> None:
    [made] = create_topics(cluster, [NewTopic(name, assignment=assignment)])
    assert not made.outcome.error
    admin.await_leaders(cluster, name)
    for partition in range(len(assignment) if records else 0):
        Producer(cluster, timeout_s=PATIENCE_S).append(
            name, partition, [Record(None, b"x" * 100, 1)] * records
        )


def places(cluster: Cluster, name: str) -> list[list[int]]:
    cluster.refresh([name])
    return [each.replicas for each in cluster.topic(name).partitions.values()]


def write(folder: Path, name: str, *replicas: list[int]) -> str:
    entries = [
        {"topic": name, "partition": number, "replicas": each}
        for number, each in enumerate(replicas)
    ]
    (folder / "plan.json").write_text(json.dumps({"version": 1, "partitions": entries}))
    return str(folder / "plan.json")


def test_plan_is_executed_and_cancelled(run: Run, cluster: Cluster, tmp_path: Path) -> None:
    make(cluster, "moved", [1, 2], [2, 1], records=10)
    plan = write(tmp_path, "moved", [3, 2], [1, 3])
    shown = run("reassign", plan)
    assert "replicas to copy: 2; add --execute to start" in shown.stdout
    assert places(cluster, "moved") == [[1, 2], [2, 1]]
    elsewhere = run("reassign", plan, "--verify", code=1, told=False)
    assert "0 of 2 done, 2 elsewhere" in elsewhere.stdout
    moved = run("reassign", plan, "--execute", "--wait", "120")
    assert "✓ 2 of 2 done" in moved.stdout
    assert places(cluster, "moved") == [[3, 2], [1, 3]]
    back = next(line for line in moved.stdout.splitlines() if line.startswith("{"))
    (tmp_path / "back.json").write_text(back)
    run("reassign", str(tmp_path / "back.json"), "--execute", "--wait", "120")
    assert places(cluster, "moved") == [[1, 2], [2, 1]]
    assert run("reassign", "--list").stdout == "no reassignment in progress\n"
    assert "no reassignment of these partitions" in run("reassign", plan, "--cancel").stdout


def test_json_of_a_generated_plan_is_a_valid_plan(
    read: Read, run: Run, cluster: Cluster, tmp_path: Path
) -> None:
    make(cluster, "made", [1], [1], [1])
    document = read("reassign", "--topic", "made", "--brokers", "1,2,3")
    assert sorted(each["replicas"] for each in document["partitions"]) == [[1], [2], [3]]
    assert [each["replicas"] for each in document["rollback"]["partitions"]] == [[1], [1], [1]]
    (tmp_path / "made.json").write_text(json.dumps(document))
    run("reassign", str(tmp_path / "made.json"), "--execute", "--wait", "120")
    assert sorted(places(cluster, "made")) == [[1], [2], [3]]


def test_a_topic_gets_more_replicas_at_once(
    read: Read, run: Run, cluster: Cluster, tmp_path: Path
) -> None:
    make(cluster, "single", [1], [2], records=5)
    back = tmp_path / "back.json"
    document = read(
        *("reassign", "--topic", "single", "--brokers", "1,2,3", "--replication-factor", "3"),
        *("--execute", "--wait", "120", "--rollback", str(back)),
    )
    assert [each["state"] for each in document["moves"]] == ["done", "done"]
    assert [sorted(each) for each in places(cluster, "single")] == [[1, 2, 3], [1, 2, 3]]
    assert json.loads(back.read_text()) == document["rollback"]
    run("reassign", str(back), "--execute", "--wait", "120")
    assert places(cluster, "single") == [[1], [2]]


def test_reassignment_to_a_hung_broker_is_shown_and_cancelled(
    run: Run, read: Read, brokers: LocalCluster, cluster: Cluster, tmp_path: Path
) -> None:
    controller = cluster.refresh([]).controller_id
    other, hung = (broker for broker in (3, 2, 1) if broker != controller)
    make(cluster, "stuck", [controller, other], records=5)
    plan = write(tmp_path, "stuck", [controller, hung])
    alive = cluster.metadata.brokers[controller]
    at = ("--bootstrap", f"{alive.host}:{alive.port}")
    brokers.pause(hung)
    try:
        begun = run("reassign", plan, "--execute", *at)
        assert f"✓ stuck-0: moving to {controller},{hung}" in begun.stdout
        (move,) = read("reassign", "--list", *at)["moves"]
        assert (move["adding"], move["removing"]) == ([hung], [other])
        assert "stuck-0" in run("reassign", "--list", *at).stdout
        waited = run("reassign", plan, "--verify", "--wait", "0.5", *at, code=1, told=False)
        assert "0 of 1 done, 1 moving" in waited.stdout
        described = run("topic", "describe", "stuck", "--format", "kafka", *at).stdout
        assert f"\tAdding Replicas: {hung}\tRemoving Replicas: {other}\t" in described
        assert "ReplicationFactor: 2" in described
        back = run("reassign", "--topic", "stuck", "--cancel", *at)
        assert back.stdout == f"✓ stuck-0: cancelled, back to {controller},{other}\n"
        assert "no reassignment in progress" in run("reassign", "--list", *at).stdout
    finally:
        brokers.resume(hung)
        brokers.wait_ready(started=brokers.ids)


def test_copied_bytes_are_counted(cluster: Cluster) -> None:
    make(cluster, "weighed", [1, 2], records=200)
    key = TopicPartition("weighed", 0)
    copied, total = reassignment.copied(cluster, {key: Reassignment([1, 3], [3], [])})
    assert copied == 0
    assert total > 200 * 100
    deadline = time.monotonic() + PATIENCE_S  # the follower may be a moment behind
    moves = {key: Reassignment([1, 2], [2], [])}
    while reassignment.copied(cluster, moves) != (total, total):
        assert time.monotonic() < deadline


def test_terminal_shows_progress(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    make(cluster, "watched", [1], [1], records=50)
    told: list[tuple[int, str]] = []

    @contextmanager
    def progress(_what: str, total: int) -> Iterator[Callable[[int, str], None]]:
        assert total == 2 * reassign_command.PARTS
        yield lambda done, note: told.append((done, note))

    monkeypatch.setattr(output, "progress", progress)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    plan = {TopicPartition("watched", 0): [2], TopicPartition("watched", 1): [3]}
    reassignment.begin(cluster, plan)
    states = reassign_command.wait_with_progress(cluster, plan, PATIENCE_S)
    assert [each.state for each in states] == ["done", "done"]
    assert all(0 <= done <= 2 * reassign_command.PARTS and " of " in note for done, note in told)


WRONG = {
    "nothing": ([], "give a PLAN file or --topic; --list shows"),
    "both": (["{plan}", "--topic", "t"], "not both"),
    "nowhere": (["--topic", "there"], "--topic requires --brokers"),
    "two things": (["{plan}", "--verify", "--execute"], "--verify and --execute can't be combined"),
    "nothing to wait for": (["{plan}", "--wait", "3"], "--wait requires --execute or --verify"),
    "brokers for nothing": (["{plan}", "--verify", "--brokers", "1"], "remove it"),
    "no such broker": (
        ["--topic", "there", "--brokers", "1,9"],
        "broker 9 is not registered; choose from: 1, 2",
    ),
    "too few brokers": (["--topic", "there", "--brokers", "1"], "needs 2 brokers"),
    "not brokers": (
        ["--topic", "there", "--brokers", "a"],
        "not a list of broker ids, such as 1,2,3",
    ),
    "a mistyped topic": (["--topic", "thee", "--brokers", "1,2"], "did you mean there"),
    "a mistyped topic in the plan": (["{strange}"], "did you mean there"),
    "no such file": (["nowhere.json"], "can't read nowhere.json"),
    "no plan": (["{empty}"], 'is not a valid plan: key "partitions" is missing'),
}


@pytest.mark.parametrize(("words", "message"), WRONG.values(), ids=WRONG)
def test_bad_usage_is_one_line(
    run: Run, cluster: Cluster, tmp_path: Path, words: list[str], message: str
) -> None:
    run("topic", "create", "there", "-r", "2", "--if-not-exists")
    plan = write(tmp_path, "there", [1, 2])
    strange, empty = tmp_path / "strange.json", tmp_path / "empty.json"
    strange.write_text(Path(plan).read_text().replace("there", "theer"))
    empty.write_text("{}")
    files = {"{plan}": plan, "{strange}": str(strange), "{empty}": str(empty)}
    found = run("reassign", *(files.get(word, word) for word in words), code=2)
    assert message in found.stderr


def test_refused_reassignment_says_why(run: Run, cluster: Cluster, tmp_path: Path) -> None:
    make(cluster, "kept", [1, 2])
    refused = run("reassign", write(tmp_path, "kept", [1, 77]), "--execute", code=1)
    assert "moving kept-0: INVALID_REPLICA_ASSIGNMENT" in refused.stderr
    assert places(cluster, "kept") == [[1, 2]]


@pytest.mark.usefixtures("as_kafka_2_1")
def test_kafka_without_the_api_is_reported_as_too_old(run: Run) -> None:
    assert "Kafka has it from 2.4 on" in run("reassign", "--list", code=1).stderr
