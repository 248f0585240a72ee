"""Spark's own Kafka connector, unchanged, with real brokers: one JVM for all tests.

The connector is in a separate environment (scripts/set_up_connector.py). A program there runs the
jobs; this file sends them and compares the results.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from real_cluster import QUICK_SESSIONS, Sent, await_isr, eventually, leader_of, make_topic, read

from tidelog.core.record.record import Header, Record
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.producer import Producer
from tidelog.shell.supervisor.cluster import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
JOB_S = 150
STREAM_S = 90.0

Rows = list[dict[str, Any]]


class Connector:
    """The program with the connector, and methods to send it jobs."""

    def __init__(self, python: str, log: Path) -> None:
        program = Path(__file__).parent / "rig" / "connector_driver.py"
        self._log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [python, str(program)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._answer()

    def __call__(self, job: str, **given: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"job": job, "with": given}) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        assert "error" not in answer, answer["error"]
        return answer.get("result")

    def _answer(self) -> dict[str, Any]:
        """Return the next line; end the program if no line arrives in time."""
        assert self._process.stdout is not None
        alarm = threading.Timer(JOB_S, self._process.kill)
        alarm.start()
        try:
            line = self._process.stdout.readline()
        finally:
            alarm.cancel()
            alarm.join()
        assert line, f"it ended or hung: {self._log.read_text()[-2000:]}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        try:
            self._process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


@pytest.fixture(scope="module")
def connector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connector]:
    script = [sys.executable, str(ROOT / "scripts" / "set_up_connector.py")]
    made = subprocess.run(
        [*script, str(ROOT / "build" / "spark-connector")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    connector = Connector(made.stdout.strip(), tmp_path_factory.mktemp("connector") / "log")
    yield connector
    connector.close()


@pytest.fixture(scope="module")
def brokers() -> Iterator[LocalCluster]:
    settings = {**QUICK_SESSIONS, "min.insync.replicas": "2"}
    with LocalCluster(settings=settings) as cluster:
        yield cluster


def to(cluster: LocalCluster, **options: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": cluster.bootstrap, **options}


def record(number: int) -> Record:
    """Return a record of one of all kinds: without a key, without a value, with headers."""
    headers = (Header("n", b"%d" % number), Header("n", None)) if number % 3 == 0 else ()
    key = None if number % 5 == 0 else b"key-%d" % number
    value = None if number % 7 == 0 else b"value-%d" % number
    return Record(key, value, 1_700_000_000_000 + number, headers)


def fill(cluster: LocalCluster, topic: str, numbers: range, partitions: int) -> Rows:
    """Write records in small batches to all partitions; return the expected rows."""
    rows: Rows = []
    with Cluster(cluster.bootstrap) as client:
        producer = Producer(client)
        for begin in range(numbers.start, numbers.stop, 40):
            batch = [record(n) for n in range(begin, min(begin + 40, numbers.stop))]
            partition = begin // 40 % partitions
            base = producer.append(topic, partition, batch)
            rows += [row_of(r, topic, partition, base + at) for at, r in enumerate(batch)]
    return rows


def hexed(content: bytes | None) -> str | None:
    return None if content is None else content.hex().upper()


def row_of(record: Record, topic: str, partition: int, offset: int) -> dict[str, Any]:
    headers = [{"key": h.key, "value": hexed(h.value)} for h in record.headers]
    return {
        "key": hexed(record.key),
        "value": hexed(record.value),
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestampType": 0,
        "timestamp": record.timestamp,
        "headers": headers or None,
    }


def in_order(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def test_a_batch_job_reads_every_row_with_every_column(
    connector: Connector, brokers: LocalCluster
) -> None:
    made = {}
    for topic in ("batch-one", "batch-two"):
        make_topic(brokers.bootstrap, topic, 3)
        made[topic] = fill(brokers, topic, range(1000), 3)
    one = made["batch-one"]
    whole = to(brokers, subscribe="batch-one", includeHeaders="true")
    assert in_order(connector("read", options=whole)) == in_order(one)

    both = to(brokers, subscribePattern="batch-.*", includeHeaders="true")
    assert in_order(connector("read", options=both)) == in_order(one + made["batch-two"])

    ranges = to(
        brokers,
        assign=json.dumps({"batch-one": [0, 2]}),
        startingOffsets=json.dumps({"batch-one": {"0": 17, "2": -2}}),
        endingOffsets=json.dumps({"batch-one": {"0": 31, "2": -1}}),
        includeHeaders="true",
    )
    wanted = [
        row
        for row in one
        if row["partition"] == 2 or (row["partition"] == 0 and 17 <= row["offset"] < 31)
    ]
    assert in_order(connector("read", options=ranges)) == in_order(wanted)

    since = 1_700_000_000_500
    until = 1_700_000_000_800
    times = to(
        brokers,
        subscribe="batch-one",
        startingOffsetsByTimestamp=json.dumps({"batch-one": dict.fromkeys("012", since)}),
        endingOffsetsByTimestamp=json.dumps({"batch-one": dict.fromkeys("012", until)}),
        includeHeaders="true",
    )
    wanted = [row for row in one if since <= row["timestamp"] < until]
    assert in_order(connector("read", options=times)) == in_order(wanted)

    split = to(brokers, subscribe="batch-one", includeHeaders="true", minPartitions="7")
    assert in_order(connector("read", options=split)) == in_order(one)


def test_a_stream_continues_from_its_checkpoint(
    connector: Connector, brokers: LocalCluster, tmp_path: Path
) -> None:
    make_topic(brokers.bootstrap, "restarted", 2)
    wanted = fill(brokers, "restarted", range(600), 2)
    source = to(
        brokers,
        subscribe="restarted",
        startingOffsets="earliest",
        includeHeaders="true",
        maxOffsetsPerTrigger="250",
    )
    first = connector("stream_what_is_there", options=source, folder=str(tmp_path))
    assert sum(first) == 600
    assert len([count for count in first if count]) >= 3, "250 at a time"
    assert in_order(connector("rows_of_stream", folder=str(tmp_path))) == in_order(wanted)
    wanted += fill(brokers, "restarted", range(600, 900), 2)
    second = connector("stream_what_is_there", options=source, folder=str(tmp_path))
    assert sum(second) == 300
    assert in_order(connector("rows_of_stream", folder=str(tmp_path))) == in_order(wanted)


def test_the_sink_writes_keys_values_headers_and_partitions(
    connector: Connector, brokers: LocalCluster
) -> None:
    make_topic(brokers.bootstrap, "written", 2)
    records = [record(number) for number in range(500)]
    rows = [row_of(r, "written", at % 2, 0) for at, r in enumerate(records)]
    connector("write", options=to(brokers, topic="written", includeHeaders="true"), rows=rows)
    for partition in (0, 1):
        expected = [r for at, r in enumerate(records) if at % 2 == partition]
        came = read(brokers.bootstrap, "written", len(expected), partition)
        shown = {(m.key(), m.value(), tuple(m.headers() or ())) for m in came}
        assert shown == {(r.key, r.value, tuple(tuple(h) for h in r.headers)) for r in expected}


def test_a_stream_loses_nothing_when_a_broker_is_killed(
    connector: Connector, brokers: LocalCluster, tmp_path: Path
) -> None:
    """The table is exact; the copy has each record at least once, as the connector guarantees."""
    for topic in ("lived", "copied"):
        make_topic(brokers.bootstrap, topic, 2)
    source = to(brokers, subscribe="lived", startingOffsets="earliest", includeHeaders="true")
    folder = str(tmp_path / "table")

    def in_table() -> Rows:
        rows: Rows = connector("rows_of_stream", folder=folder)
        return rows

    def wait_for_table(count: int) -> None:
        eventually(lambda: len(in_table()) >= count or None, f"{count} in the table", STREAM_S)

    connector("start_stream", options=source, folder=folder)
    wanted = produce_while_a_leader_dies(brokers, "lived", range(2000), wait_for_table)
    wait_for_table(2000)
    assert {(row["partition"], row["offset"]): row["value"] for row in in_table()} == wanted
    assert len(in_table()) == 2000
    connector("stop_stream")

    def in_copy() -> set[str]:
        rows: Rows = connector("read", options=to(brokers, subscribe="copied"))
        return {row["value"] for row in rows}

    def wait_for_copy(count: int) -> None:
        eventually(lambda: len(in_copy()) >= count or None, f"{count} in the copy", STREAM_S)

    sink = to(brokers, topic="copied", includeHeaders="true")
    connector("start_copy", source=source, sink=sink, folder=str(tmp_path / "copy"))
    wanted |= produce_while_a_leader_dies(brokers, "lived", range(2000, 4000), wait_for_copy)
    wait_for_copy(4000)
    assert in_copy() == set(wanted.values())
    connector("stop_stream")


def produce_while_a_leader_dies(
    cluster: LocalCluster, topic: str, numbers: range, wait_for: Callable[[int], None]
) -> dict[tuple[int, int], str | None]:
    """Produce half of the records, then the other half while the leader dies.

    Return the partition and offset of each record; the broker runs again at the end.
    """
    sent = {partition: Sent(cluster.bootstrap, topic) for partition in (0, 1)}
    middle = (numbers.start + numbers.stop) // 2
    victim = leader_of(cluster, topic)
    for number in numbers:
        if number == middle:
            for producer in sent.values():
                producer.settle(STREAM_S)
            wait_for(middle)
        if number == middle + 300:
            cluster.kill(victim)
        sent[number % 2].send(b"value-%d" % number, number % 2)
    for producer in sent.values():
        producer.settle(STREAM_S)
        assert not producer.failed
    cluster.start_broker(victim)
    await_isr(cluster, topic, cluster.ids)
    return {
        (partition, offset): hexed(value)
        for partition, producer in sent.items()
        for value, offset in producer.acknowledged.items()
    }
