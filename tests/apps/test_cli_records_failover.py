"""`tidelog produce` and `tidelog consume` while brokers die, logs are cut and topics change."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from real_cluster import LONG_SESSIONS, eventually, make_topic

from tidelog.shell.client import admin
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.coordinators import find_coordinator
from tidelog.shell.client.groups.group_admin import committed_offsets
from tidelog.shell.supervisor.cluster import LocalCluster

PATIENCE_S = 120


class Command:
    """A command in a separate process that writes its output to files."""

    def __init__(self, bootstrap: str, folder: Path, *words: str) -> None:
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tidelog", *words],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                env={**os.environ, "KAFKA_BOOTSTRAP_SERVERS": bootstrap},
            )

    @property
    def out(self) -> list[str]:
        return self._out.read_text().splitlines()

    @property
    def err(self) -> list[str]:
        return self._err.read_text().splitlines()

    def type(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def end(self, number: int | None = signal.SIGINT) -> int:
        if number is not None:
            self.process.send_signal(number)
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            return self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self.process.wait()


class Cast:
    """Three brokers, a client, and the commands that a test started."""

    def __init__(self, running: LocalCluster, cluster: Cluster, folder: Path) -> None:
        self.running = running
        self.cluster = cluster
        self._folder = folder
        self.commands: list[Command] = []

    def start(self, *words: str) -> Command:
        folder = self._folder / str(len(self.commands))
        folder.mkdir()
        command, *rest = words
        patient = [command, "--timeout", "60"]
        patient += ["--delivery-timeout", str(PATIENCE_S)] if command == "produce" else []
        self.commands.append(Command(self.running.bootstrap, folder, *patient, *rest))
        return self.commands[-1]

    def write(self, topic: str, *values: str) -> None:
        command = self.start("produce", topic)
        command.type("".join(f"{value}\n" for value in values))
        assert command.end(None) == 0, command.err


@pytest.fixture
def cast(tmp_path: Path) -> Iterator[Cast]:
    with (
        LocalCluster(brokers=3, settings=LONG_SESSIONS) as running,
        Cluster(running.bootstrap, timeout_s=PATIENCE_S) as cluster,
    ):
        one = Cast(running, cluster, tmp_path)
        try:
            yield one
        finally:
            for command in one.commands:
                command.process.kill()
                command.end(None)


def await_that(what: Callable[[], bool], told: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, told()
        time.sleep(0.05)


def test_killed_leader_loses_and_duplicates_nothing(cast: Cast) -> None:
    make_topic(cast.running.bootstrap, "orders", 3, 3)
    producer = cast.start("produce", "orders", "--format", "json")
    reader = cast.start("consume", "orders")
    member = cast.start("consume", "orders", "--group", "billing")
    producer.type("".join(f"{number}\n" for number in range(500)))
    for command in (reader, member):
        await_that(lambda: len(command.out) >= 500, lambda: command.err)  # noqa: B023
    killed = cast.cluster.leader("orders", 0).leader
    cast.running.kill(killed)
    producer.type("".join(f"{number}\n" for number in range(500, 1000)))
    assert producer.end(None) == 0, producer.err
    assert json.loads("\n".join(producer.out))["records"] == 1000
    for command in (reader, member):
        await_that(lambda: len(command.out) >= 1000, lambda: command.err)  # noqa: B023
        # Told when it is found out, which may be after the last record of another partition.
        await_that(
            lambda: any("orders-0 is now led by broker" in line for line in command.err),  # noqa: B023
            lambda: command.err,  # noqa: B023
        )
        assert command.end() == 0
        assert sorted(map(int, command.out)) == list(range(1000))
        assert any(f"can't reach broker {killed}" in line for line in command.err), command.err


def test_committed_offsets_survive_a_killed_coordinator(cast: Cast) -> None:
    make_topic(cast.running.bootstrap, "orders", 2, 3)
    cast.write("orders", *map(str, range(100)))
    member = cast.start("consume", "orders", "--group", "billing")
    await_that(lambda: len(member.out) == 100, lambda: member.err)
    cast.running.kill(find_coordinator(cast.cluster, "billing"))
    cast.write("orders", *map(str, range(100, 200)))
    await_that(lambda: len(member.out) == 200, lambda: member.err)
    assert member.end() == 0
    assert not [line for line in member.err if "can't leave group" in line], "it left, nobody waits"
    assert sorted(map(int, member.out)) == list(range(200))
    committed = eventually(lambda: committed_offsets(cast.cluster, "billing"), "the offsets")
    assert sum(each.offset for each in committed.values()) == 200, member.err
    again = cast.start("consume", "orders", "--group", "billing", "-e")
    assert again.end(None) == 0
    assert again.out == []


def test_truncation_of_records_that_were_read_is_reported(cast: Cast) -> None:
    configs = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    make_topic(cast.running.bootstrap, "orders", 1, 2, configs)
    cast.write("orders", "a", "b")
    found = cast.cluster.partition("orders", 0)
    (other,) = [broker for broker in found.replicas if broker != found.leader]
    reader = cast.start("consume", "orders", "-O")
    cast.running.kill(other)
    cast.write("orders", "lost", "lost too")
    await_that(lambda: len(reader.out) == 4, lambda: reader.err)
    cast.running.kill(found.leader)
    cast.running.start_broker(other, wait=False)
    cast.write("orders", "c")
    await_that(lambda: len(reader.out) == 5, lambda: reader.err)
    assert reader.end() == 0
    assert reader.out[-1] == "orders/0@2\tc"
    truncated = "orders-0 was truncated: offsets 2 to 3, which were read, are no longer in the log"
    assert f"tidelog: {truncated}; continuing at offset 2" in reader.err


def test_new_topics_and_partitions_are_read(cast: Cast) -> None:
    make_topic(cast.running.bootstrap, "orders-1", 1, 3)
    reader = cast.start("consume", "-r", "^orders")
    cast.write("orders-1", "old")
    await_that(lambda: reader.out == ["old"], lambda: reader.err)
    make_topic(cast.running.bootstrap, "orders-2", 1, 3)
    cast.write("orders-2", "new")
    await_that(lambda: reader.out == ["old", "new"], lambda: reader.err)
    assert "tidelog: new partition orders-2-0; reading it from the beginning" in reader.err
    admin.delete_topic(cast.cluster, "orders-2")
    await_that(
        lambda: any("it is no longer read" in line for line in reader.err), lambda: reader.err
    )
    cast.write("orders-1", "on and on")
    await_that(lambda: reader.out[-1] == "on and on", lambda: reader.err)
    assert reader.end(signal.SIGTERM) == 0
