"""`tidelog log-dir` on a real broker with two log directories."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from real_cluster import eventually, make_topic, read_values, send_all

from tidelog.apps.cli.main import cli
from tidelog.shell.supervisor.cluster import LocalCluster

VALUES = [b"%d" % number for number in range(100)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("disks")
    with LocalCluster(
        1, str(folder / "data"), {}, fault_switches=True, disks=[str(folder / "disk")]
    ) as running:
        yield running


def run(cluster: LocalCluster, *words: str) -> Result:
    return CliRunner().invoke(cli, ["log-dir", *words, "--bootstrap", cluster.bootstrap])


def listed(cluster: LocalCluster) -> list[dict[str, Any]]:
    done = run(cluster, "list", "--format", "json")
    document = json.loads(done.stdout)
    assert document["holds"] is (done.exit_code == 0)
    found: list[dict[str, Any]] = document["log_dirs"]
    return found


def place_of(cluster: LocalCluster, topic: str, partition: int) -> str:
    [path] = [
        each["path"]
        for each in listed(cluster)
        for one in each["replicas"]
        if (one["topic"], one["partition"], one["is_copy"]) == (topic, partition, False)
    ]
    assert isinstance(path, str)
    return path


def test_replicas_are_listed_and_moved(cluster: LocalCluster) -> None:
    make_topic(cluster.bootstrap, "moving", partitions=2, replicas=1)
    send_all(cluster.bootstrap, "moving", VALUES, partition=0)
    send_all(cluster.bootstrap, "moving", VALUES, partition=1)
    first, second = (place_of(cluster, "moving", partition) for partition in range(2))
    assert first != second, "each directory got one partition"
    assert all(each["total_bytes"] > each["usable_bytes"] > 0 for each in listed(cluster))

    done = run(cluster, "move", "moving/0", "moving/1", "--broker", "1", "--to", second)
    assert done.exit_code == 0, done.output
    assert f"moving/0: broker 1 has it in {second}" in done.output
    assert [place_of(cluster, "moving", partition) for partition in range(2)] == [second] * 2
    for partition in range(2):
        assert read_values(cluster.bootstrap, "moving", partition=partition) == VALUES


def test_moves_that_are_refused_say_why(cluster: LocalCluster) -> None:
    make_topic(cluster.bootstrap, "staying", replicas=1)
    to = place_of(cluster, "staying", 0)
    for words, expected in (
        (("staying/0", "--to", "/nowhere"), "LOG_DIR_NOT_FOUND; `tidelog log-dir list` shows"),
        (("unknown/0", "--to", to), "UNKNOWN_TOPIC_OR_PARTITION"),
    ):
        done = run(cluster, "move", *words, "--broker", "1")
        assert done.exit_code == 1
        assert expected in done.output
    wrong = run(cluster, "move", "staying", "--broker", "1", "--to", to)
    assert wrong.exit_code == 2
    assert "name one partition, such as staying/0" in wrong.output


def test_a_failed_directory_is_named(cluster: LocalCluster) -> None:
    make_topic(cluster.bootstrap, "failing", partitions=2, replicas=1)
    broken = place_of(cluster, "failing", 0)
    eventually(lambda: cluster.set_faults(1, {"broken": [broken]}) or True, "the fault is set")

    def has_failed() -> bool:
        write_to_it()  # the broker notices by a write that fails
        return any(each["error"] for each in listed(cluster))

    def write_to_it() -> None:
        words = ["produce", "failing", "--partition", "0", "--timeout", "1"]
        words += ["--delivery-timeout", "1"]
        CliRunner().invoke(cli, [*words, "--bootstrap", cluster.bootstrap], input="x\n")

    eventually(has_failed, "the directory fails")
    done = run(cluster, "list")
    assert done.exit_code == 1
    [line] = [line for line in done.stdout.splitlines() if broken in line]
    assert " failed " in line
    assert "failed directories: 1; their replicas are offline" in done.stdout
