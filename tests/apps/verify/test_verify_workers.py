"""The worker processes with librdkafka's mock cluster."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.apps.verify.checker.findings import Findings
from tidelog.apps.verify.checker.partition_check import History, check_partition
from tidelog.apps.verify.journals import Outcome, read_acks
from tidelog.apps.verify.transactions.names import PROCESSOR, READERS, WRITER
from tidelog.apps.verify.whole_logs import read_log
from tidelog.apps.verify.workload import librdkafka_clients
from tidelog.apps.verify.workload.ledger import Ledger, Pace
from tidelog.apps.verify.workload.worker import ROLES, Task
from tidelog.apps.verify.workload.worker_processes import Worker, WorkerFailed, Workers
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.offsets import list_offset

MOCK = """
import sys
from confluent_kafka import Producer
cluster = Producer({"bootstrap.servers": "none:1", "test.mock.num.brokers": 3, "log_level": 0})
brokers = cluster.list_topics(timeout=120).brokers.values()
cluster.list_topics("verified", timeout=120)
print(",".join(f"{broker.host}:{broker.port}" for broker in brokers), flush=True)
sys.stdin.read()
"""
PARTITIONS = 4
"""The partition count of a topic in the mock cluster."""
TAG = b"run-0001"


@pytest.fixture
def mock_cluster() -> Iterator[str]:
    command = [sys.executable, "-c", MOCK]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers()
    yield made
    made.close()


def task(folder: Path, role: str, bootstrap: str, *names: int, rate: float = 0.0) -> Task:
    tag, now = TAG.hex(), time.monotonic_ns()
    return Task(role, bootstrap, "verified", PARTITIONS, tag, str(folder), now, names, rate)


def test_every_role_writes_or_reads_and_the_history_is_clean(
    tmp_path: Path, mock_cluster: str, workers: Workers
) -> None:
    for role, name in (("librdkafka producers", 1), ("own producers", 2)):
        workers.producers.append(Worker(task(tmp_path, role, mock_cluster, name, rate=1000)))
    for role, name in (("librdkafka consumer", 3), ("own reader", 4)):
        workers.readers.append(Worker(task(tmp_path, role, mock_cluster, name)))
    assert {worker.task.role for worker in workers.all} == set(ROLES) - {WRITER, PROCESSOR, READERS}
    until = time.monotonic() + 120
    while (
        min(worker.reported.get("tally", {}).get("acked", 0) for worker in workers.producers) < 500
    ):
        workers.check()
        assert time.monotonic() < until
        time.sleep(0.05)
    for worker in workers.producers:
        worker.stop()
        worker.await_end()
    found = Findings()
    sent = {int(n): counts for w in workers.producers for n, counts in w.reported["sent"].items()}
    history = History(str(tmp_path), sent, ["consumer3"], ["reader4"])
    with Cluster(mock_cluster, timeout_s=120) as cluster:
        ends = [list_offset(cluster, "verified", p).offset for p in range(PARTITIONS)]
        for worker in workers.readers:
            worker.stop(ends)
            worker.await_end()
        for partition in range(PARTITIONS):
            log = read_log(cluster, "verified", partition, TAG, found)
            found.merge(check_partition(log, history))
    assert not found.counts, found.examples
    tally = workers.tally()
    assert sum(ends) == tally["acked"] == tally["read"] == tally["read raw"] >= 1000
    assert (tally["unknown"], tally["refused"]) == (0, 0)
    assert sum(map(sum, sent.values())) == tally["acked"]


def test_dead_worker_is_reported_in_one_line(tmp_path: Path, workers: Workers) -> None:
    worker = Worker(task(tmp_path, "no such role", "localhost:1", 1))
    workers.readers.append(worker)
    with pytest.raises(WorkerFailed, match="no such role exited with code 1: KeyError"):
        worker.await_end()
    with pytest.raises(WorkerFailed):
        workers.check()


def test_a_worker_does_not_outlive_its_run(tmp_path: Path) -> None:
    worker = Worker(task(tmp_path, "own reader", "localhost:1", 1))
    worker.close()
    with pytest.raises(WorkerFailed, match="own reader exited with"):
        worker.check()


# -- the parts of a worker


def test_ledger_counts_sent_and_settled_records(tmp_path: Path) -> None:
    ledger = Ledger(task(tmp_path, "", "", 1), 1)
    ledger.next_value(2)
    first = ledger.next_value(2)
    ledger.take_back(2)
    assert ledger.next_value(2) == first
    assert (ledger.sent, ledger.open) == ([0, 0, 2, 0], 2)
    ledger.settle(2, 0, 17, 0.0)
    ledger.settle(2, 1, Outcome.UNKNOWN, 1.5)
    ledger.close()
    assert dict(ledger.tally) == {"acked": 1, "unknown": 1}
    assert ledger.open == 0
    rows = list(read_acks(str(tmp_path), "1", 2))
    assert [(row.sequence, row.offset) for row in rows] == [(0, 17), (1, Outcome.UNKNOWN)]
    assert all(0 <= row.waited <= row.at for row in rows)


def test_pace_is_even_and_limits_catching_up() -> None:
    pace = Pace(1000, 5.0)
    assert pace.due(5.0) == 0
    assert pace.due(5.125) == 125
    pace.done(60)
    assert pace.due(5.125) == 65
    assert pace.due(65.0) == 251, "a quarter of a second at most"


def test_librdkafka_gets_the_settings_of_the_run() -> None:
    asked = task(Path(), "", "localhost:1", 1)._replace(acks="1", idempotence=False)
    settings = librdkafka_clients.producer_settings(asked, "p")
    assert (settings["acks"], settings["enable.idempotence"]) == ("1", False)
    assert librdkafka_clients.consumer_settings(asked, "c")["enable.auto.commit"] is False
