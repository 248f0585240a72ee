"""`tidelog topic` against a real cluster: its effects, its output, and rejected requests."""

import re
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import click
import confluent_kafka
import pytest
from click.testing import CliRunner, Result
from real_cluster import PATIENCE_S, eventually

from tidelog.apps.cli import topic as topic_commands
from tidelog.apps.cli.connection import VARIABLE
from tidelog.apps.cli.main import cli
from tidelog.core.record.record import Record
from tidelog.shell.client import admin
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.coordinators import find_coordinator
from tidelog.shell.client.producer import Producer
from tidelog.shell.supervisor.cluster import LocalCluster

Run: TypeAlias = Callable[..., Result]
Read: TypeAlias = Callable[..., dict[str, Any]]


def names(read: Read, *words: str) -> list[str]:
    return [each["name"] for each in read("topic", "list", *words)["topics"]]


# -- create ----------------------------------------------------------------------------------


def test_several_topics_of_one_kind_are_created(run: Run, cluster: Cluster) -> None:
    made = run("topic", "create", "red", "blue", "-p", "3", "-r", "2", "-c", "retention.ms=60000")
    assert made.stdout.splitlines() == [
        "✓ red: created, partitions: 3, replication factor: 2",
        "✓ blue: created, partitions: 3, replication factor: 2",
    ]
    for name in ("red", "blue"):
        found = cluster.topic(name).partitions
        assert [len(each.replicas) for each in found.values()] == [2, 2, 2]
    assert admin.topic_configs(cluster, ["red"], ["retention.ms"])["red"] == {
        "retention.ms": "60000"
    }


def test_cluster_defaults_apply_without_partitions_and_replicas(read: Read, run: Run) -> None:
    run("topic", "create", "plain")
    (found,) = read("topic", "list", "plain")["topics"]
    assert (found["partitions"], found["replication_factor"]) == (1, 3)


def test_replicas_are_placed_as_assigned(run: Run, cluster: Cluster) -> None:
    run("topic", "create", "pinned", "--replica-assignment", "1:2,3:1")
    found = cluster.topic("pinned").partitions
    assert [each.replicas for each in found.values()] == [[1, 2], [3, 1]]
    both = run("topic", "create", "x", "--replica-assignment", "1:2", "-p", "2", code=2)
    assert "can't be combined with --partitions" in both.stderr


def test_existing_topic_is_refused_or_left_unchanged(read: Read, run: Run) -> None:
    run("topic", "create", "once")
    again = run("topic", "create", "once", code=1)
    assert "TOPIC_ALREADY_EXISTS" in again.stderr
    assert "--if-not-exists" in again.stderr
    kept = run("topic", "create", "once", "--if-not-exists", "-p", "9")
    assert "not changed" in kept.stdout
    document = read("topic", "create", "once", "fresh", code=1)
    assert [each["error"] for each in document["topics"]] == ["TOPIC_ALREADY_EXISTS", None]
    assert "fresh" in names(read)


def test_validate_only_creates_nothing(read: Read, run: Run) -> None:
    tried = run("topic", "create", "tried", "-p", "4", "--validate-only")
    assert tried.stdout == "✓ tried: can be created, partitions: 4, replication factor: 3\n"
    assert "tried" not in names(read)
    assert (
        "INVALID_REPLICATION_FACTOR"
        in run("topic", "create", "tried", "-r", "9", "--validate-only", code=1).stderr
    )


REFUSED = {
    "a mistyped setting": (["-c", "retention.m=5"], 1, "did you mean retention.ms"),
    "a value that can't be": (["-c", "retention.ms=soon"], 1, "must be a whole number"),
    "too many replicas": (["-r", "9"], 1, "`tidelog cluster brokers` lists the brokers"),
    "an unknown broker": (["--replica-assignment", "1:9"], 1, "INVALID_REPLICA_ASSIGNMENT"),
    "no setting": (
        ["-c", "retention.ms"],
        2,
        "is not in the form key=value, such as retention.ms=60000",
    ),
    "a setting twice": (["-c", "a=1", "-c", "a=2"], 2, "a is given twice"),
    "no assignment": (
        ["--replica-assignment", "1;2"],
        2,
        "is not a list of broker ids, such as 1:2",
    ),
    "a broker twice": (["--replica-assignment", "1:1"], 2, "lists a broker twice"),
    "no partitions": (["-p", "0"], 2, "not in the range 1<=x"),
    "a mistyped option": (["--partition", "3"], 2, "--partitions"),
}


@pytest.mark.parametrize(("words", "code", "message"), REFUSED.values(), ids=REFUSED)
def test_failed_creation_says_why(
    run: Run, read: Read, words: list[str], code: int, message: str
) -> None:
    assert message in run("topic", "create", "never", *words, code=code).stderr
    assert "never" not in names(read)


# -- list ------------------------------------------------------------------------------------


def test_topics_are_listed_by_name_and_by_expression(run: Run, read: Read) -> None:
    run("topic", "create", "list-a", "list-b", "other-list-a", "-p", "2")
    assert names(read, "-r", "list-.*") == ["list-a", "list-b"]
    assert names(read, "list-b", "list-a", "list-b") == ["list-b", "list-a"]
    shown = run("topic", "list", "-r", "list-.*").stdout
    assert shown.split() == [
        *("NAME", "PARTITIONS", "REPLICAS"),
        *("─" * len(line) for line in re.findall("─+", shown)),
        *("list-a", "2", "3", "list-b", "2", "3"),
        *("topics:", "2,", "partitions:", "4"),
    ]
    assert names(read, "-r", "nothing-.*") == []
    assert "is not a valid regular expression" in run("topic", "list", "-r", "(", code=2).stderr


def test_mistyped_topic_gets_a_suggestion(run: Run) -> None:
    run("topic", "create", "warehouse")
    for verb in ("list", "describe", "delete"):
        found = run("topic", verb, "warehous", code=2)
        assert found.stderr == (
            "tidelog: there is no topic 'warehous' in the cluster; did you mean warehouse?\n"
        )
    far = run("topic", "describe", "qqqqqq", code=2)
    assert "`tidelog topic list` shows topics" in far.stderr


# -- describe --------------------------------------------------------------------------------


def test_a_topic_is_described_in_kafkas_lines_and_as_a_table(run: Run, cluster: Cluster) -> None:
    run("topic", "create", "told", "--replica-assignment", "1:2:3,2:3:1", "-c", "retention.ms=7")
    Producer(cluster).append("told", 1, [Record(None, b"x", 1)] * 5)
    lines = run("topic", "describe", "told").stdout.splitlines()
    head = re.fullmatch(
        r"Topic: told\tTopicId: ([\w-]{22})\tPartitionCount: 2\tReplicationFactor: 3"
        r"\tConfigs: min.insync.replicas=2,retention.ms=7",
        lines[0],
    )
    assert head
    for line, (partition, replicas) in zip(lines[1:3], [(0, "1,2,3"), (1, "2,3,1")], strict=True):
        assert re.fullmatch(
            rf"\tTopic: told\tPartition: {partition}\tLeader: {replicas[0]}\tReplicas: {replicas}"
            rf"\tIsr: {replicas}\tElr: (N/A)?\tLastKnownElr: (N/A)?",
            line,
        )
    table = [line.split() for line in lines[3:] if line.strip()]
    assert table[0] == [
        *("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "LOG-START-OFFSET", "HIGH-WATERMARK")
    ]
    assert table[1:] == [
        ["0", "1", "0", "1,2,3", "1,2,3", "0", "0"],
        ["1", "2", "0", "2,3,1", "2,3,1", "0", "5"],
    ]
    assert run("topic", "describe", "told", "--format", "kafka").stdout.splitlines() == lines[:3]
    assert "Topic: " not in run("topic", "describe", "told", "--format", "table").stdout


def test_the_table_fits_a_narrow_screen(brokers: LocalCluster, run: Run) -> None:
    run("topic", "create", "slim", "-p", "12")
    narrow = CliRunner(env={VARIABLE: brokers.bootstrap, "COLUMNS": "80"})
    lines = narrow.invoke(cli, ["topic", "describe", "slim", "--format", "table"]).stdout
    assert [line.split()[0] for line in lines.splitlines()] == [
        *("slim", "PARTITION"),
        *map(str, range(12)),
    ]


def test_json_has_the_same_content_as_text(run: Run, read: Read) -> None:
    run("topic", "create", "data", "--replica-assignment", "3:1")
    (found,) = read("topic", "describe", "data")["topics"]
    (partition,) = found.pop("partitions")
    assert len(found.pop("id")) == 22
    assert found == {
        "name": "data",
        "internal": False,
        "partition_count": 1,
        "replication_factor": 2,
        "configs": {"min.insync.replicas": "2"},
        "min_isr": 2,
    }
    assert (partition["leader"], partition["replicas"], partition["isr"]) == (3, [3, 1], [3, 1])
    assert (partition["log_start_offset"], partition["high_watermark"]) == (0, 0)
    assert partition["error"] is None


def test_filters_find_partitions_of_a_dead_broker(
    run: Run, read: Read, brokers: LocalCluster
) -> None:
    run("topic", "create", "safe", "--replica-assignment", "1:3")
    run("topic", "create", "thin", "--replica-assignment", "1:2,3:1")
    run("topic", "create", "lone", "--replica-assignment", "2")
    filters = ("under-replicated", "unavailable", "under-min-isr", "at-min-isr")

    def found(name: str) -> list[tuple[str, int]]:
        runs = ("topic", "describe", "-r", "safe|thin|lone", f"--{name}-partitions")
        try:
            topics = read(*runs)["topics"]
        except AssertionError:
            topics = read(*runs, code=1)["topics"]
        return [(each["topic"], each["partition"]) for t in topics for each in t["partitions"]]

    assert [found(name) for name in filters[:3]] == [[], [], []]
    brokers.kill(2)
    try:
        away = [("lone", 0), ("thin", 0)]
        eventually(lambda: found("under-replicated") == away, "broker 2 is out of the ISRs")
        assert found("unavailable") == [("lone", 0)]
        assert found("under-min-isr") == [("lone", 0), ("thin", 0)]
        assert found("at-min-isr") == [("safe", 0), ("thin", 1)]
        shown = run(
            *("topic", "describe", "thin", "--under-replicated-partitions"), code=1, told=False
        ).stdout
        assert shown.startswith("\tTopic: thin\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1\t")
        assert "OFFLINE-REPLICAS" in shown
        lone = run("topic", "describe", "lone").stdout
        assert "\tLeader: none\t" in lone
        assert "LEADER_NOT_AVAILABLE" in lone
    finally:
        brokers.start_broker(2)
        brokers.wait_ready(started=brokers.ids)


# -- alter -----------------------------------------------------------------------------------


def test_partitions_are_added_and_settings_changed(run: Run, cluster: Cluster) -> None:
    run("topic", "create", "grown", "-c", "retention.ms=5")
    told = run(
        *("topic", "alter", "grown", "-p", "3", "-c", "segment.ms=900"),
        *("--delete-config", "retention.ms"),
    )
    assert told.stdout == (
        "✓ grown: changed, partitions: 3, segment.ms=900, retention.ms reset to its default\n"
    )
    assert len(cluster.topic("grown").partitions) == 3
    found = admin.topic_configs(cluster, ["grown"])["grown"]
    assert (found["segment.ms"], found["retention.ms"]) == ("900", "604800000")


def test_new_partitions_are_placed_as_assigned(run: Run, cluster: Cluster) -> None:
    run("topic", "create", "wide", "--replica-assignment", "1:2")
    run("topic", "alter", "wide", "-p", "3", "--replica-assignment", "2:3,3:1")
    found = cluster.topic("wide").partitions
    assert [each.replicas for each in found.values()] == [[1, 2], [2, 3], [3, 1]]


def test_refused_setting_adds_no_partitions(run: Run, cluster: Cluster) -> None:
    run("topic", "create", "whole")
    for words, message in (
        (["-c", "retention.m=1"], "did you mean retention.ms"),
        (["-c", "retention.ms=soon"], "must be a whole number"),
    ):
        assert message in run("topic", "alter", "whole", "-p", "5", *words, code=1).stderr
    run("topic", "alter", "whole", "-p", "5", "--validate-only")
    assert len(cluster.topic("whole").partitions) == 1


ALTERED_WRONGLY = {
    "fewer partitions": (["-p", "1"], 1, "INVALID_PARTITIONS"),
    "nothing to change": ([], 2, "nothing to change; use --partitions, --config"),
    "both ways": (["-c", "a=1", "--delete-config", "a"], 2, "to both --config and --delete-config"),
    "no partitions": (["--replica-assignment", "1:2"], 2, "requires --partitions"),
}


@pytest.mark.parametrize(
    ("words", "code", "message"), ALTERED_WRONGLY.values(), ids=ALTERED_WRONGLY
)
def test_failed_change_says_why(run: Run, words: list[str], code: int, message: str) -> None:
    run("topic", "create", "fixed", "-p", "2", "--if-not-exists")
    assert message in run("topic", "alter", "fixed", *words, code=code).stderr


# -- delete ----------------------------------------------------------------------------------


def test_topics_are_deleted_by_name_and_by_expression(run: Run, read: Read) -> None:
    run("topic", "create", "gone-a", "gone-b", "not-gone-c", "gone")
    assert run("topic", "delete", "gone").stdout == "✓ gone: deleted\n"
    unasked = run("topic", "delete", "-r", "gone-.*", code=2)
    assert "add --yes" in unasked.stderr
    assert names(read, "-r", ".*gone.*") == ["gone-a", "gone-b", "not-gone-c"]
    run("topic", "delete", "-r", "gone-.*", "--yes")
    assert names(read, "-r", ".*gone.*") == ["not-gone-c"]
    assert "no topic matches" in run("topic", "delete", "-r", "gone-.*", "-y", code=2).stderr


def test_internal_topics_are_deleted_only_with_yes(
    run: Run, read: Read, brokers: LocalCluster
) -> None:
    with Cluster(brokers.bootstrap, timeout_s=PATIENCE_S) as cluster:
        find_coordinator(cluster, "any-group")  # makes the topic
    unasked = run("topic", "delete", "__consumer_offsets", code=2)
    assert "__consumer_offsets is an internal topic; add --yes to delete it" in unasked.stderr
    assert "__consumer_offsets" in names(read, "--internal")


@pytest.mark.parametrize("answer", [True, False])
def test_delete_asks_for_confirmation_on_a_terminal(
    run: Run, read: Read, monkeypatch: pytest.MonkeyPatch, answer: bool
) -> None:
    run("topic", "create", "asked-of", "--if-not-exists")
    asked: list[str] = []

    def confirm(text: str, **_: object) -> bool:
        asked.append(text)
        return answer

    class Terminal:
        def __getattr__(self, name: str) -> object:
            return getattr(sys, name)

        stdin = stderr = type("Tty", (), {"isatty": staticmethod(lambda: True)})

    monkeypatch.setattr(topic_commands, "sys", Terminal())
    monkeypatch.setattr(click, "confirm", confirm)
    found = run("topic", "delete", "asked-of", code=0 if answer else 1, told=False)
    assert asked == ["Delete this topic and all records?"]
    assert "asked-of, partitions: 1" in found.stderr
    assert ("asked-of" in names(read)) is not answer
    assert ("nothing was deleted" in found.stderr) is not answer


# -- other brokers ---------------------------------------------------------------------------


@pytest.mark.usefixtures("as_kafka_2_1")
def test_brokers_as_old_as_kafka_2_1_are_enough(run: Run, read: Read) -> None:
    assert "give the number of partitions" in run("topic", "create", "aged", code=1).stderr
    run("topic", "create", "aged", "-p", "2", "-r", "3")
    lines = run("topic", "describe", "aged", "--format", "kafka").stdout.splitlines()
    assert lines[0].startswith("Topic: aged\tPartitionCount: 2\t")
    assert lines[1].endswith("\tElr: N/A\tLastKnownElr: N/A")
    run("topic", "alter", "aged", "-p", "3", "-c", "retention.ms=9")
    (found,) = read("topic", "describe", "aged")["topics"]
    assert (found["id"], found["partition_count"]) == (None, 3)
    assert found["configs"]["retention.ms"] == "9"
    run("topic", "delete", "aged")


def test_unreachable_cluster_is_one_line(run: Run) -> None:
    found = run("topic", "list", "--bootstrap-server", "localhost:1", "--timeout", "1", code=1)
    assert "can't connect to localhost:1" in found.stderr


def test_topics_of_another_kafka_are_described(run: Run, read: Read) -> None:
    """librdkafka's mock has no controller and no settings."""
    producer = confluent_kafka.Producer({"test.mock.num.brokers": 3, "log_level": 0})
    members = producer.list_topics(timeout=PATIENCE_S).brokers.values()
    producer.produce("orders", b"x", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    at = ("--bootstrap", ",".join(f"{each.host}:{each.port}" for each in members))
    (found,) = read("topic", "describe", "orders", *at)["topics"]
    assert found["configs"] == {}
    assert found["partitions"][0]["high_watermark"] == 1
    assert "did you mean orders?" in run("topic", "describe", "order", *at, code=2).stderr
    refused = run("config", "describe", "topic", "orders", *at, code=1).stderr
    assert "does not offer DescribeConfigs" in refused
    producer.flush(1)  # the mock lives as long as its producer
