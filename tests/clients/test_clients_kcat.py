"""kcat on the command line, as in Debian: with an older librdkafka than the Python package."""

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TypeAlias

import pytest
from client_programs import kcat
from driver_lines import CODECS, FIRST_TIMESTAMP, LARGE, TOO_LARGE
from group_processes import GroupStage
from real_cluster import (
    PATIENCE_S,
    await_members,
    eventually,
    leader_of,
    make_topic,
    read_values,
    send_all,
)
from real_transactions import values_of

from tidelog.shell.supervisor.cluster import LocalCluster

pytestmark = pytest.mark.slow

JOB_S = 90
RECORDS = 2500
FORMAT = '{"partition":%p,"offset":%o,"key":"%k","value":"%s","headers":"%h","timestamp":%T}\n'
Ended: TypeAlias = subprocess.CompletedProcess[str]
Kcat: TypeAlias = Callable[..., Ended]


@pytest.fixture
def cat(cluster: LocalCluster) -> Kcat:
    """Run kcat until it exits."""

    def run(
        *options: str, given: str = "", fails: bool = False
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [kcat(), "-b", cluster.bootstrap, *options],
            input=given,
            capture_output=True,
            text=True,
            timeout=JOB_S,
            check=False,
        )
        assert (done.returncode != 0) == fails, done.stdout[-1000:] + done.stderr[-1000:]
        return done

    return run


def test_kcat_lists_brokers_and_topics(cat: Kcat, cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name, 2, 3)
    listed = json.loads(cat("-L", "-J", "-t", name).stdout)
    assert [broker["id"] for broker in listed["brokers"]] == cluster.ids
    [topic] = listed["topics"]
    assert [len(partition["isrs"]) for partition in topic["partitions"]] == [3, 3]


def test_no_record_is_lost_or_duplicated(cat: Kcat, cluster: LocalCluster, name: str) -> None:
    """An idempotent process for each codec writes while a leader is killed."""
    make_topic(cluster.bootstrap, name, 1, 3)
    dead = leader_of(cluster, name)
    share = RECORDS // len(CODECS)
    try:
        for at, codec in enumerate(CODECS):
            options = ["-P", "-t", name, "-p", "0", "-z", codec, "-X", "enable.idempotence=true"]
            with writing(cluster, *options, "-X", "linger.ms=5", "-K", ":") as lines:
                for number in range(at * share, (at + 1) * share):
                    lines.write(f"key-{number % 8}:{number}\n")
                    if number % 25 == 0:
                        lines.flush()
                        time.sleep(0.02)  # must stay: leaves time for the kill
                    if number == RECORDS * 3 // 10:
                        cluster.kill(dead)
                    elif number == RECORDS * 7 // 10:
                        cluster.start_broker(dead, wait=False)
    finally:
        if not cluster.is_running(dead):
            cluster.start_broker(dead)
        await_members(cluster)
    read = cat("-C", "-t", name, "-o", "beginning", "-e", "-q", "-f", "%o %k %s\n")
    wanted = [f"{number} key-{number % 8} {number}" for number in range(RECORDS)]
    assert read.stdout.splitlines() == wanted


@contextmanager
def writing(cluster: LocalCluster, *options: str) -> Iterator[IO[str]]:
    """Provide the stdin of a producer; all lines are acknowledged when the block ends."""
    with subprocess.Popen(
        [kcat(), "-b", cluster.bootstrap, *options],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as producer:
        assert producer.stdin is not None
        assert producer.stderr is not None
        try:
            yield producer.stdin
            producer.stdin.close()
            assert producer.wait(JOB_S) == 0, producer.stderr.read()
        finally:
            producer.kill()


def test_headers_keys_and_read_committed(cat: Kcat, cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name, 1, 3)
    cat("-P", "-t", name, "-K", ":", "-H", "from=kcat", "-H", "empty=", given="a:1\nb:2\n")
    read = cat(
        *("-C", "-t", name, "-o", "beginning", "-e", "-q", "-f", FORMAT),
        *("-X", "isolation.level=read_committed"),
    )
    seen = [json.loads(line) for line in read.stdout.splitlines()]
    assert [(one["offset"], one["key"], one["value"]) for one in seen] == [
        (0, "a", "1"),
        (1, "b", "2"),
    ]
    assert {one["headers"] for one in seen} == {"from=kcat,empty="}
    assert all(one["timestamp"] > FIRST_TIMESTAMP for one in seen)


def test_kcat_seeks_by_time(cat: Kcat, cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name, 1, 3, {"retention.ms": "-1"})
    for number in range(5):
        at = FIRST_TIMESTAMP + 100 * number
        send_all(cluster.bootstrap, name, [b"%d" % number], timestamp=at)
    between = ("-o", f"s@{FIRST_TIMESTAMP + 101}", "-o", f"e@{FIRST_TIMESTAMP + 400}")
    read = cat("-C", "-t", name, *between, "-e", "-q", "-f", "%s\n")
    assert read.stdout.split() == ["2", "3"]
    asked = cat("-Q", "-t", f"{name}:0:{FIRST_TIMESTAMP + 101}").stdout
    assert asked.strip() == f"{name} [0] offset 2"
    last = cat("-C", "-t", name, "-o", "-2", "-e", "-q", "-f", "%s\n")
    assert last.stdout.split() == ["3", "4"]


def test_large_records_are_accepted_and_larger_ones_refused(
    cat: Kcat, cluster: LocalCluster, name: str
) -> None:
    make_topic(cluster.bootstrap, name, 1, 3)
    limit = ("-X", "message.max.bytes=4000000")
    cat("-P", "-t", name, "-p", "0", *limit, given="x" * LARGE)
    refused = cat("-P", "-t", name, "-p", "0", *limit, given="x" * TOO_LARGE, fails=True)
    assert "too large" in refused.stderr.lower()
    assert [len(value) for value in read_values(cluster.bootstrap, name)] == [LARGE]


def test_a_group_continues_after_its_coordinator_was_killed(
    cat: Kcat, cluster: LocalCluster, name: str
) -> None:
    """Two members share the partitions; a later member reads only new records."""
    make_topic(cluster.bootstrap, name, 4, 3)
    for partition in range(4):
        send_all(cluster.bootstrap, name, [b"%d-%d" % (partition, n) for n in range(50)], partition)
    group = f"group-of-{name}"
    members = [Balanced(cluster, group, name) for _ in range(2)]
    dead = 0
    try:
        eventually(lambda: sum(len(set(one.values())) for one in members) >= 200, "the records")
        dead = GroupStage(cluster, group, name).coordinator()
        cluster.kill(dead)
        for partition in range(4):
            send_all(cluster.bootstrap, name, [b"%d-new" % partition], partition)
        new = {f"{partition}-new" for partition in range(4)}
        eventually(lambda: {v for one in members for v in one.values()} >= new, "the new ones")
        for one in members:
            one.leave()
        send_all(cluster.bootstrap, name, [b"last"], 3)
        last = Balanced(cluster, group, name)
        members.append(last)
        eventually(lambda: "last" in last.values(), "the last one")
        assert last.values() == ["last"]
    finally:
        for one in members:
            one.done()
        if dead:
            cluster.start_broker(dead)
            await_members(cluster)


class Balanced:
    """A kcat process that is a member of a group."""

    def __init__(self, cluster: LocalCluster, group: str, topic: str) -> None:
        quick = ("-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000")
        self.process = subprocess.Popen(
            [kcat(), "-b", cluster.bootstrap, "-u", "-f", "%s\n", *quick, "-G", group, topic],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        self._read: list[str] = []
        self._reader = threading.Thread(target=self._listen)
        self._reader.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._read.append(line.strip())

    def values(self) -> list[str]:
        return list(self._read)

    def leave(self) -> None:
        """Stop kcat as Ctrl-C does: it commits the read offsets and leaves the group."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(PATIENCE_S) == 0

    def done(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


def test_kcat_writes_in_a_transaction(cat: Kcat, cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name, 1, 3)
    cat("-P", "-t", name, "-p", "0", "-X", f"transactional.id={name}", given="a\nb\n")
    assert values_of(cluster.bootstrap, name) == [b"a", b"b"]
