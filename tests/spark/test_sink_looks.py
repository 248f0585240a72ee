"""The search for rows of a dead attempt finds all rows, whatever happened to the topic.
Against a real broker, without Spark."""

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from sink_rows import rows_of, values_of
from sink_tasks import (
    COLUMNS,
    Killed,
    arrow,
    dying,
    new_topic,
    options_for,
    rows_for,
    run_task,
)
from topic_data import append

from tidelog.apps.spark.sink import found_rows, process_client
from tidelog.apps.spark.sink.found_rows import Ends
from tidelog.apps.spark.sink.identity import Origin
from tidelog.apps.spark.sink.ledger import Ledger
from tidelog.apps.spark.sink.process_client import close_clients
from tidelog.apps.spark.sink.sink_errors import Conflict, RowsCompacted, TooLate
from tidelog.apps.spark.sink.write_options import SinkColumns
from tidelog.apps.spark.sink.writing import Attempt, commit_batch, write_in_ledger
from tidelog.core.record.record import Record
from tidelog.shell.client.admin import create_topic, delete_topic
from tidelog.shell.client.administration.topics import create_partitions
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

pytestmark = pytest.mark.ci
LONG_AGO_MS = 1_500_000_000_000
SETTINGS = {
    "producer.id.expiration.check.interval.ms": "100",
    "log.cleaner.backoff.ms": "100",
}
PATIENCE_S = 120


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalCluster]:
    with LocalCluster(1, settings=SETTINGS) as cluster:
        yield cluster
    close_clients()


def timed(time_ms: int) -> Iterator[Any]:
    """Return the rows of a task, all with the same timestamp."""
    for batch in arrow(rows_for(0, 0)):
        times = pa.array([time_ms * 1000] * batch.num_rows, pa.timestamp("us", tz="UTC"))
        yield batch.append_column("timestamp", times)


def test_rows_with_old_timestamps_are_found(broker: LocalCluster) -> None:
    """A broker expires producers by the timestamps of their rows."""
    topic = new_topic(broker)
    options = options_for(broker, topic)
    columns = SinkColumns(value=0, key=1, timestamp=2)
    origin = Origin("a copy", 0, 0)
    with pytest.raises(Killed):
        write_in_ledger(options, columns, origin, Attempt("one", 0), dying(timed(LONG_AGO_MS), 3))
    assert values_of(broker.bootstrap, topic)
    time.sleep(1)
    again = write_in_ledger(options, columns, origin, Attempt("two", 0), timed(LONG_AGO_MS))
    commit_batch(options, [again])
    assert values_of(broker.bootstrap, topic) == sorted(value for _, value in rows_for(0, 0))


def test_a_first_attempt_searches_only_rows_from_before_its_plan(
    broker: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each task of a job with old timestamps would read the rows of all other tasks."""
    topic = new_topic(broker)
    options = options_for(broker, topic)
    columns = SinkColumns(value=0, key=1, timestamp=2)
    planned = {topic: {0: 0, 1: 0, 2: 0}}

    def write(task: int, run: str, ends: Ends | None) -> None:
        origin = Origin("planned", 0, task)
        write_in_ledger(options, columns, origin, Attempt(run, 0), timed(LONG_AGO_MS), ends)

    write(0, "one", planned)
    monkeypatch.setattr(found_rows, "fetch_partition", None)
    write(1, "two", planned)
    with pytest.raises(TypeError):  # here it must read
        write(2, "two", None)
    assert len(values_of(broker.bootstrap, topic)) == 2 * 160


def test_rows_in_new_partitions_are_found(broker: LocalCluster) -> None:
    """The process that searches has old metadata of the topic."""
    topic = new_topic(broker, 1)
    older = options_for(broker, topic)
    origin = Origin("grown", 1, 0)
    written = run_task(older, origin._replace(batch=0), Attempt("run", 0), rows_for(0, 0))
    commit_batch(older, [written])
    with Cluster(broker.bootstrap) as cluster:
        create_partitions(cluster, {topic: 4})
        deadline = time.monotonic() + PATIENCE_S
        while len(cluster.refresh([topic]).topics[topic].partitions) < 4:
            assert time.monotonic() < deadline
    newer = options_for(broker, topic, **{"kafka.client.id": "another process"})
    place = older.client, older.ledger_topic
    held = process_client._clients.pop(place)
    with pytest.raises(Killed):
        run_task(newer, origin, Attempt("run", 0), rows_for(1, 0), 3)
    assert sum(map(bool, rows_of(broker.bootstrap, topic).values())) > 1
    process_client._clients[place] = held
    commit_batch(older, [run_task(older, origin, Attempt("run", 1), rows_for(1, 0))])
    wanted = [value for batch in (0, 1) for _, value in rows_for(batch, 0)]
    assert values_of(broker.bootstrap, topic) == sorted(wanted)


def test_rows_in_a_recreated_topic_are_found(broker: LocalCluster) -> None:
    """The new topic is longer than the end of the old topic in the ledger."""
    topic = new_topic(broker, 1)
    options = options_for(broker, topic)
    first = rows_for(0, 0)[:40]
    commit_batch(options, [run_task(options, Origin("anew", 0, 0), Attempt("one", 0), first)])
    close_clients()
    with Cluster(broker.bootstrap) as cluster:
        delete_topic(cluster, topic)
        create_topic(cluster, topic, 1)
    with pytest.raises(Killed):
        run_task(options, Origin("anew", 1, 0), Attempt("one", 0), rows_for(1, 0), 3)
    assert len(values_of(broker.bootstrap, topic)) > 40
    again = run_task(options, Origin("anew", 1, 0), Attempt("two", 0), rows_for(1, 0))
    commit_batch(options, [again])
    assert values_of(broker.bootstrap, topic) == sorted(value for _, value in rows_for(1, 0))


def test_compacted_rows_are_detected_and_not_written_after_newer_rows(
    broker: LocalCluster,
) -> None:
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": "1024",
        "min.cleanable.dirty.ratio": "0",
    }
    topic = new_topic(broker, 1, **configs)
    options = options_for(broker, topic)
    origin = Origin("cleaned", 0, 0)
    rows = rows_for(0, 0)
    with pytest.raises(Killed):
        run_task(options, origin, Attempt("one", 0), rows, 3)
    append(broker.bootstrap, topic, [Record(b"end", b"end", int(time.time() * 1000))])
    deadline = time.monotonic() + PATIENCE_S
    while len(values_of(broker.bootstrap, topic)) > 60:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    with pytest.raises(RowsCompacted, match=r"compaction removed .* rows.*onReplayMismatch=accept"):
        run_task(options, origin, Attempt("two", 0), rows)
    accepting = options_for(broker, topic, onReplayMismatch="accept")
    commit_batch(accepting, [run_task(accepting, origin, Attempt("three", 0), rows)])
    (records,) = rows_of(broker.bootstrap, topic).values()
    newest = {record.key: record.value for record in records if record.key != b"end"}
    assert newest == dict(rows)


def test_text_with_long_offsets_is_compared_too(broker: LocalCluster) -> None:
    """Spark passes it with spark.sql.execution.arrow.useLargeVarTypes."""
    topic = new_topic(broker)
    options = options_for(broker, topic)
    rows = rows_for(0, 0)

    def large() -> Iterator[Any]:
        for batch in arrow(rows):
            yield batch.cast(pa.schema({"value": pa.large_string(), "key": pa.large_binary()}))

    origin = Origin("large", 0, 0)
    with pytest.raises(Killed):
        write_in_ledger(options, COLUMNS, origin, Attempt("one", 0), dying(large(), 3))
    commit_batch(options, [write_in_ledger(options, COLUMNS, origin, Attempt("two", 0), large())])
    assert values_of(broker.bootstrap, topic) == sorted(value for _, value in rows)


def test_an_attempt_without_a_search_is_rejected_by_sequence_numbers(broker: LocalCluster) -> None:
    """Spark numbers attempts from 0 again when it retries a whole stage."""
    topic = new_topic(broker)
    options = options_for(broker, topic)
    origin = Origin("staged", 0, 0)
    rows = rows_for(0, 0)
    with pytest.raises(Killed):
        run_task(options, origin, Attempt("run", 0), rows, 3)
    larger = options._replace(batch_bytes=300)
    with pytest.raises(Conflict, match="OUT_OF_ORDER"):
        run_task(larger, origin, Attempt("run", 0), rows)
    commit_batch(larger, [run_task(larger, origin, Attempt("run", 1), rows)])
    assert values_of(broker.bootstrap, topic) == sorted(value for _, value in rows)


def test_without_its_ledger_the_last_batch_is_found_and_earlier_ones_fail(
    broker: LocalCluster,
) -> None:
    topic = new_topic(broker)
    options = options_for(broker, topic, ledgerTopic=f"ledger-of-{topic}")
    rows = rows_for(0, 0)
    for batch in (0, 1):
        origin = Origin("bereft", batch, 0)
        commit_batch(options, [run_task(options, origin, Attempt("one", 0), rows)])
    with Cluster(broker.bootstrap) as cluster:
        line = Ledger(cluster, options.ledger_topic).find("bereft")
        found = rows_of(broker.bootstrap, topic)
        assert line is not None
        assert line.ends == {topic: {partition: len(each) for partition, each in found.items()}}
        delete_topic(cluster, options.ledger_topic)
    close_clients()
    with pytest.raises(TooLate, match="the ledger topic was lost"):
        run_task(options, Origin("bereft", 0, 0), Attempt("two", 0), rows)
    again = run_task(options, Origin("bereft", 1, 0), Attempt("two", 1), rows)
    assert again.delivered is not None
    assert (again.delivered.rows, again.delivered.found) == (0, len(rows))
    assert len(values_of(broker.bootstrap, topic)) == 2 * len(rows)
