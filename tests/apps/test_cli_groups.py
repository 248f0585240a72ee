"""`tidelog group` and `tidelog consume --group` on a real cluster, together with librdkafka."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner, Result
from real_cluster import LONG_SESSIONS, eventually, make_topic

from tidelog.apps.cli.main import cli
from tidelog.shell.supervisor.cluster import LocalCluster

PATIENCE_S = 120
NAMES = count()
BEGAN_MS = 1_700_000_000_000
SETTINGS = {**LONG_SESSIONS, "group.initial.rebalance.delay.ms": "100"}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with LocalCluster(brokers=3, settings=SETTINGS) as running:
        yield running.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A topic of three partitions, with ten records in each, one second apart."""
    name = f"topic-{next(NAMES)}"
    make_topic(bootstrap, name, 3, 3)
    lines = "".join(f"{p} {BEGAN_MS + 1000 * n} {p}.{n}\n" for n in range(10) for p in range(3))
    told = run(bootstrap, "produce", name, "-f", r"%p %T %s\n", stdin=lines.encode())
    assert told.exit_code == 0, told.output
    return name


@pytest.fixture
def group() -> str:
    return f"group-{next(NAMES)}"


def run(bootstrap: str, *words: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(cli, [*words, "--bootstrap", bootstrap], input=stdin)


def read(bootstrap: str, *words: str) -> dict[str, Any]:
    found = run(bootstrap, *words, "--format", "json")
    document: dict[str, Any] = json.loads(found.stdout)
    assert document["holds"] is (found.exit_code == 0)
    return document


def committed(bootstrap: str, group: str) -> dict[int, int]:
    (described,) = read(bootstrap, "group", "describe", group)["groups"]
    return {
        row["partition"]: row["current_offset"]
        for row in described["offsets"]
        if row["current_offset"] is not None
    }


def commit(bootstrap: str, group: str, topic: str, *offsets: int) -> None:
    """Commit offsets with librdkafka, without joining the group."""
    client = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    wanted = [confluent_kafka.TopicPartition(topic, p, o) for p, o in enumerate(offsets)]

    def commit_all() -> bool:
        done = client.commit(offsets=wanted, asynchronous=False)
        return all(each.error is None for each in done)

    try:
        # librdkafka does not retry while the coordinator is elected or loads its groups.
        eventually(commit_all, f"commit by {group}")
    finally:
        client.close()


class Member:
    """A librdkafka consumer that has joined a group."""

    def __init__(self, bootstrap: str, group: str, topic: str, **more: str) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "theirs",
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
            **more,
        }
        self.consumer = confluent_kafka.Consumer(settings)
        self.consumer.subscribe([topic])
        self.first: Any = None
        deadline = time.monotonic() + PATIENCE_S
        while not self.consumer.assignment():
            assert time.monotonic() < deadline
            self._poll()

    def _poll(self) -> None:
        """Keep the first record; librdkafka reports errors that it retries as messages too."""
        message = self.consumer.poll(0.1)
        error = None if message is None else message.error()
        assert error is None or error.retriable(), error
        if error is None:
            self.first = self.first or message

    def first_value(self) -> Any:
        """Return the value of the first record; wait for it."""
        deadline = time.monotonic() + PATIENCE_S
        while self.first is None:
            assert time.monotonic() < deadline
            self._poll()
        return self.first.value()

    def __enter__(self) -> "Member":
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.close()


def start(bootstrap: str, *words: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "tidelog", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "KAFKA_BOOTSTRAP_SERVERS": bootstrap},
    )


def end(process: "subprocess.Popen[bytes]", number: int = signal.SIGINT) -> tuple[bytes, bytes]:
    process.send_signal(number)
    try:
        return process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()


# -- consuming as a member --------------------------------------------------------------------


def test_group_continues_at_its_committed_offsets(bootstrap: str, topic: str, group: str) -> None:
    first = run(bootstrap, "consume", topic, "-g", group, "-n", "12", "-q")
    assert (first.exit_code, first.stderr) == (0, "")
    second = run(bootstrap, "consume", topic, "-g", group, "-e", "-q")
    assert second.exit_code == 0
    values = first.stdout.split() + second.stdout.split()
    assert sorted(values) == sorted(f"{p}.{n}" for p in range(3) for n in range(10))
    assert committed(bootstrap, group) == {0: 10, 1: 10, 2: 10}
    third = run(bootstrap, "consume", topic, "-g", group, "-e")
    assert third.stdout == ""
    assert f"reading {topic}-0, {topic}-1, {topic}-2" in third.stderr


def test_librdkafka_and_tidelog_continue_at_each_others_offsets(
    bootstrap: str, topic: str, group: str
) -> None:
    commit(bootstrap, group, topic, 10, 9, 10)
    ours = run(bootstrap, "consume", topic, "-g", group, "-e", "-q")
    assert ours.stdout == "1.9\n"
    run(bootstrap, "produce", topic, "-p", "2", stdin=b"late\n")
    with Member(bootstrap, group, topic) as theirs:
        assert theirs.first_value() == b"late"


def test_group_without_offsets_starts_as_requested(bootstrap: str, topic: str, group: str) -> None:
    found = run(bootstrap, "consume", topic, "-g", group, "-o", "end", "-e", "-q")
    assert (found.exit_code, found.stdout) == (0, "")


def test_two_members_share_partitions_and_the_last_one_gets_all(
    bootstrap: str, topic: str, group: str
) -> None:
    first = start(bootstrap, "consume", topic, "-g", group)
    second = start(bootstrap, "consume", topic, "-g", group)
    try:
        members = await_members(bootstrap, group, 2)
        given = sorted(len(member["partitions"]) for member in members)
        assert given == [1, 2]
        assert all(member["client_id"] == "tidelog" for member in members)
        told = end(second, signal.SIGTERM)
        assert second.returncode == 0, told
        (last,) = await_members(bootstrap, group, 1)
        assert len(last["partitions"]) == 3
        # It commits every five seconds; until then it may not have read all its partitions.
        everything = {0: 10, 1: 10, 2: 10}
        eventually(lambda: committed(bootstrap, group) == everything, "all records are read")
        out, _ = end(first)
        assert first.returncode == 0
        seen = set(out.split()) | set(told[0].split())
        assert len(seen) == 30
        assert committed(bootstrap, group) == {0: 10, 1: 10, 2: 10}
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()


def await_members(bootstrap: str, group: str, wanted: int) -> list[dict[str, Any]]:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = run(bootstrap, "group", "describe", group, "--format", "json")
        described = json.loads(found.stdout)["groups"][0] if found.exit_code == 0 else {}
        members: list[dict[str, Any]] = described.get("members", [])
        if described.get("state") == "Stable" and len(members) == wanted:
            return members
        assert time.monotonic() < deadline, found.output
        time.sleep(0.2)


def test_tidelog_and_librdkafka_share_a_group(bootstrap: str, topic: str, group: str) -> None:
    with Member(bootstrap, group, topic) as theirs:
        ours = start(bootstrap, "consume", topic, "-g", group)
        try:
            deadline = time.monotonic() + PATIENCE_S
            while len(theirs.consumer.assignment()) not in (1, 2):
                assert time.monotonic() < deadline
                theirs.consumer.poll(0.1)
            members = await_members(bootstrap, group, 2)
            assert {member["client_id"] for member in members} == {"tidelog", "theirs"}
            partitions = [tuple(key) for member in members for key in member["partitions"]]
            assert sorted(partitions) == [(topic, number) for number in range(3)]
        finally:
            end(ours)
        assert ours.returncode == 0


# -- list and describe ------------------------------------------------------------------------


def await_list(bootstrap: str) -> None:
    """Wait until every broker lists its groups; each loads them after an election."""
    eventually(lambda: read(bootstrap, "group", "list")["holds"], "all brokers list groups")


def test_list_groups_with_filters(bootstrap: str, topic: str, group: str) -> None:
    commit(bootstrap, group, topic, 1)
    with Member(bootstrap, f"{group}-busy", topic):
        await_list(bootstrap)
        found = {each["group"]: each for each in read(bootstrap, "group", "list")["groups"]}
        assert (found[group]["state"], found[f"{group}-busy"]["state"]) == ("Empty", "Stable")
        assert found[group]["coordinator"] in (1, 2, 3)
        empty = read(bootstrap, "group", "list", "--state", "empty")["groups"]
        names = [each["group"] for each in empty]
        assert group in names
        assert f"{group}-busy" not in names
    shown = run(bootstrap, "group", "list").stdout.splitlines()
    assert shown[0].split() == ["GROUP", "STATE", "TYPE", "COORDINATOR"]
    assert any(line.split()[:3] == [group, "Empty", "classic"] for line in shown)


def test_describe_in_kafkas_columns(bootstrap: str, topic: str, group: str) -> None:
    commit(bootstrap, group, topic, 4, 10)
    found = run(bootstrap, "group", "describe", group)
    assert found.exit_code == 0
    heading, *rows = (line.split() for line in found.stdout.splitlines())
    assert " ".join(heading) == (
        "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
    )
    assert rows == [
        [group, topic, "0", "4", "10", "6", "-", "-", "-"],
        [group, topic, "1", "10", "10", "0", "-", "-", "-"],
    ]
    assert found.stderr == f"tidelog: group {group} has no active members; its state is Empty\n"


def test_describe_members_and_state(bootstrap: str, topic: str, group: str) -> None:
    with Member(bootstrap, group, topic, **{"group.instance.id": "one"}):
        shown = run(bootstrap, "group", "describe", group, "--members", "--state", "--offsets")
        state, members, offsets = shown.stdout.split("\n\n")
        assert state.splitlines()[1].split()[-3:] == ["range", "Stable", "1"]
        assert state.startswith("GROUP")
        heading, row = members.splitlines()
        assert heading.split() == [
            "GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS",
            "ASSIGNMENT",
        ]  # fmt: skip
        cells = row.split()
        assert (cells[0], cells[2], cells[4]) == (group, "one", "theirs")
        assert cells[5:] == ["3", f"{topic}(0,1,2)"]
        first = offsets.splitlines()[1].split()
        assert first[:6] == [group, topic, "0", "-", "10", "-"]
        assert first[8] == "theirs"


def test_describe_all(bootstrap: str, topic: str, group: str) -> None:
    commit(bootstrap, group, topic, 1)
    await_list(bootstrap)
    found = read(bootstrap, "group", "describe", "--all")
    assert group in [each["group"] for each in found["groups"]]


def test_list_says_that_no_group_is_in_a_state(bootstrap: str) -> None:
    await_list(bootstrap)
    found = run(bootstrap, "group", "list", "--state", "Dead")
    assert found.exit_code == 0
    assert found.stdout.split() == ["GROUP", "STATE", "TYPE", "COORDINATOR"]
    assert found.stderr == "tidelog: no groups in this state\n"


def test_the_shell_completes_groups(bootstrap: str, topic: str, group: str) -> None:
    commit(bootstrap, group, topic, 1)
    asked = {
        "COMP_WORDS": f"tidelog group describe {group[:-1]}",
        "COMP_CWORD": "3",
        "_TIDELOG_COMPLETE": "bash_complete",
        "KAFKA_BOOTSTRAP_SERVERS": bootstrap,
    }
    deadline = time.monotonic() + PATIENCE_S
    found: list[str] = []
    while f"plain,{group}" not in found:  # a busy machine may take longer than one would wait
        assert time.monotonic() < deadline, found
        done = subprocess.run(
            [sys.executable, "-m", "tidelog"],
            env={**os.environ, **asked},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.stderr == ""
        found = done.stdout.splitlines()


# -- reset ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        (("--to-earliest",), {0: 0, 1: 0, 2: 0}),
        (("--to-latest",), {0: 10, 1: 10, 2: 10}),
        (("--to-offset", "3"), {0: 3, 1: 3, 2: 3}),
        (("--to-offset", "300"), {0: 10, 1: 10, 2: 10}),
        (("--shift-by", "-2"), {0: 2, 1: 3, 2: 4}),
        (("--shift-by", "2"), {0: 6, 1: 7, 2: 8}),
        (("--to-current",), {0: 4, 1: 5, 2: 6}),
        (("--to-datetime", "2023-11-14T22:13:27Z"), {0: 7, 1: 7, 2: 7}),
        (("--to-datetime", "2099-01-01"), {0: 10, 1: 10, 2: 10}),
        (("--by-duration", "P1D"), {0: 10, 1: 10, 2: 10}),
        (("--topic", "TOPIC:1", "--to-earliest"), {0: 4, 1: 0, 2: 6}),
    ],
    ids=lambda rule: " ".join(rule) if isinstance(rule, tuple) else "",
)
def test_reset_moves_committed_offsets(
    bootstrap: str, topic: str, group: str, rule: tuple[str, ...], wanted: dict[int, int]
) -> None:
    commit(bootstrap, group, topic, 4, 5, 6)
    words = [word.replace("TOPIC", topic) for word in rule]
    shown = read(bootstrap, "group", "reset", group, *words)
    assert shown["executed"] is False
    planned = {each["partition"]: each["new_offset"] for each in shown["offsets"]}
    assert {0: 4, 1: 5, 2: 6, **planned} == wanted
    assert committed(bootstrap, group) == {0: 4, 1: 5, 2: 6}, "only shown"
    done = read(bootstrap, "group", "reset", group, *words, "--execute")
    assert (done["executed"], done["offsets"]) == (True, shown["offsets"])
    assert committed(bootstrap, group) == wanted


def test_reset_outside_the_log_is_adjusted_and_reported(
    bootstrap: str, topic: str, group: str
) -> None:
    commit(bootstrap, group, topic, 4)
    found = run(bootstrap, "group", "reset", group, "--to-offset", "99")
    assert found.stdout.splitlines()[1].split() == [group, topic, "0", "10", "4"]
    assert f"99 is outside {topic}-0, whose log ends at 10; using 10" in found.stderr
    assert "add --execute" in found.stderr


def test_exported_offsets_are_read_back(
    bootstrap: str, topic: str, group: str, tmp_path: Path
) -> None:
    commit(bootstrap, group, topic, 4, 5, 6)
    exported = run(bootstrap, "group", "reset", group, "--to-current", "--export")
    assert exported.stdout == f"{topic},0,4\n{topic},1,5\n{topic},2,6\n"
    path = tmp_path / "offsets.csv"
    path.write_text(exported.stdout + f"other,{topic},0,9\n")
    read(bootstrap, "group", "reset", group, "--to-latest", "--execute")
    read(bootstrap, "group", "reset", group, "--from-file", str(path), "--execute")
    assert committed(bootstrap, group) == {0: 4, 1: 5, 2: 6}


def test_group_with_members_is_not_reset_or_deleted(bootstrap: str, topic: str, group: str) -> None:
    with Member(bootstrap, group, topic):
        for words in (("reset", group, "--to-earliest", "--execute"), ("delete", group)):
            found = run(bootstrap, "group", *words)
            assert found.exit_code == 1
            assert f"group {group} has members" in found.stderr
            assert found.stderr.count("\n") == 1


def test_reset_creates_a_group_at_given_offsets(bootstrap: str, topic: str, group: str) -> None:
    found = run(bootstrap, "group", "reset", group, "--topic", topic, "--to-offset", "8")
    assert found.exit_code == 2
    words = ("--topic", topic, "--to-offset", "8", "--new", "--execute")
    assert run(bootstrap, "group", "reset", group, *words).exit_code == 0
    printed = run(bootstrap, "consume", topic, "-g", group, "-e", "-q").stdout
    assert sorted(printed.split()) == ["0.8", "0.9", "1.8", "1.9", "2.8", "2.9"]


# -- delete -----------------------------------------------------------------------------------


def test_delete_a_group(bootstrap: str, topic: str, group: str) -> None:
    commit(bootstrap, group, topic, 1)
    assert run(bootstrap, "group", "delete", group).exit_code == 0
    await_list(bootstrap)
    assert group not in [each["group"] for each in read(bootstrap, "group", "list")["groups"]]
    again = run(bootstrap, "group", "delete", group)
    assert again.exit_code == 1
    assert f"there is no group '{group}'" in again.stderr


def test_delete_offsets_of_a_topic(bootstrap: str, topic: str, group: str) -> None:
    commit(bootstrap, group, topic, 1, 2, 3)
    found = read(bootstrap, "group", "delete", group, "--offsets", f"{topic}:0,2")
    assert [each["name"] for each in found["offsets"]] == [f"{topic}-0", f"{topic}-2"]
    assert committed(bootstrap, group) == {1: 2}
    with Member(bootstrap, group, topic):
        refused = run(bootstrap, "group", "delete", group, "--offsets", topic)
        assert refused.exit_code == 1
        assert f"group {group}: offset in {topic}-1 not deleted" in refused.stderr
    missing = run(bootstrap, "group", "delete", group, "--offsets", "other")
    assert missing.exit_code == 1
    assert f"group {group} has no committed offsets in other" in missing.stderr


# -- refusals ---------------------------------------------------------------------------------


def test_mistyped_group_gets_suggestions(bootstrap: str, topic: str, group: str) -> None:
    commit(bootstrap, group, topic, 1)
    await_list(bootstrap)
    for words in (("describe", group + "x"), ("reset", group + "x", "--to-earliest")):
        found = run(bootstrap, "group", *words)
        assert found.exit_code == 2
        assert f"there is no group '{group}x'; did you mean {group}" in found.stderr
        assert found.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("describe",), "name groups, or use --all"),
        (("describe", "g", "--all"), "name groups, or use --all"),
        (("reset", "g"), "give exactly one of --to-earliest"),
        (("reset", "g", "--to-earliest", "--to-latest"), "give exactly one of --to-earliest"),
        (("reset", "g", "--to-datetime", "soon"), "'soon' is not a time"),
        (("reset", "g", "--by-duration", "long"), "'long' is not a duration"),
        (("reset", "g", "--from-file", "nowhere.csv"), "can't read nowhere.csv"),
        (
            ("reset", "g", "--to-latest", "--topic", "t:x"),
            "'t:x' is not in the form TOPIC or TOPIC:0,1",
        ),
        (
            ("reset", "g", "--to-latest", "--export", "--execute"),
            "can't be combined with --execute",
        ),
        (("delete", "g", "--offsets", ":1"), "':1' is not in the form TOPIC or TOPIC:0,1"),
        (("list", "--state", "asleep"), "asleep"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_invalid_arguments_are_one_line(words: tuple[str, ...], message: str) -> None:
    found = CliRunner().invoke(cli, ["group", *words])
    assert found.exit_code == 2
    assert message in found.stderr
    assert found.stderr.count("\n") == 1
