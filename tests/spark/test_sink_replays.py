"""If any process dies at any time, each row is in the topic once.

With a real broker, without Spark: tasks and drivers are calls, and die at the places of a plan.
"""

import random
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sink_rows import rows_of, values_of
from sink_tasks import (
    COLUMNS,
    PARTITIONS,
    KeyedRows,
    Killed,
    arrow,
    names,
    new_topic,
    options_for,
    rows_for,
    run_task,
)

from tidelog.apps.spark.sink import found_rows, routing
from tidelog.apps.spark.sink.commit_plan import Written
from tidelog.apps.spark.sink.identity import Origin, identity_of
from tidelog.apps.spark.sink.ledger import Ledger, Line, read_line
from tidelog.apps.spark.sink.process_client import close_clients
from tidelog.apps.spark.sink.sink_errors import Conflict, RowsDiffer, SinkError, TooLate
from tidelog.apps.spark.sink.write_options import WriteOptions
from tidelog.apps.spark.sink.writing import Attempt, commit_batch, write_in_ledger
from tidelog.core.record.encoder import Producer, encode_batch
from tidelog.core.record.record import Record
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.producer import produce
from tidelog.shell.supervisor.cluster import LocalCluster

pytestmark = pytest.mark.ci


class Life(NamedTuple):
    """One run of a query over one micro-batch, and where it ends."""

    tries: list[int | None]
    """For each try of a task: after how many Arrow batches it dies; None: it does not."""
    dies: str
    """Its driver: after the first task ("tasks"), before the ledger is written, after that
    ("commit"), or not at all."""
    seed: int | None
    """The order of rows within a task; None: as they are."""


lives = st.builds(
    Life,
    st.lists(st.one_of(st.none(), st.integers(0, 4)), max_size=3),
    st.sampled_from(["", "tasks", "ledger", "commit"]),
    st.one_of(st.none(), st.integers(0, 9)),
)


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalCluster]:
    with LocalCluster(1) as cluster:
        yield cluster
    close_clients()


def live(options: WriteOptions, query: str, batch: int, run: str, life: Life, keyed: bool) -> None:
    """Run two tasks, with as many attempts as needed; the driver dies where `life` says."""
    written = []
    for task in (0, 1):
        rows = rows_for(batch, task, keyed)
        if life.seed is not None:
            random.Random(life.seed + task).shuffle(rows)
        for number, after in enumerate([*life.tries, None]):
            try:
                written.append(
                    run_task(options, Origin(query, batch, task), Attempt(run, number), rows, after)
                )
                break
            except Killed:
                pass
        if life.dies == "tasks":
            raise Killed
    if life.dies == "ledger":
        raise Killed
    commit_batch(options, written)
    if life.dies == "commit":
        raise Killed


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(batches=st.lists(st.lists(lives, max_size=3), min_size=1, max_size=3), keyed=st.booleans())
def test_each_row_is_there_once_whatever_dies(
    broker: LocalCluster, batches: list[list[Life]], keyed: bool
) -> None:
    topic = new_topic(broker)
    options = options_for(broker, topic)
    runs = count()
    for batch, deaths in enumerate(batches):
        for life in [*deaths, Life([], "", None)]:
            try:
                live(options, f"q-{topic}", batch, f"run {next(runs)}", life, keyed)
            except Killed:
                close_clients()
                continue
            break  # Spark has it in its checkpoint now
    wanted = Counter(
        value
        for batch in range(len(batches))
        for task in (0, 1)
        for _, value in rows_for(batch, task)
    )
    assert Counter(values_of(broker.bootstrap, topic)) == wanted


def test_order_within_a_partition_is_kept_over_deaths(broker: LocalCluster) -> None:
    topic = new_topic(broker)
    options = options_for(broker, topic)
    rows: KeyedRows = [(b"%d" % (n % 5), b"%05d" % n) for n in range(1000)]
    for number, after in enumerate([3, 11, 19, None]):
        try:
            run_task(options, Origin("ordered", 0, 0), Attempt("run", number), rows, after)
        except Killed:
            close_clients()
    for records in rows_of(broker.bootstrap, topic).values():
        values = [record.value or b"" for record in records]
        assert values == sorted(values)
    assert values_of(broker.bootstrap, topic) == [value for _, value in rows]


def test_a_batch_in_the_ledger_is_read_and_not_written(broker: LocalCluster) -> None:
    topic = new_topic(broker)
    options = options_for(broker, topic)
    rows = rows_for(0, 0)
    commit_batch(options, [run_task(options, Origin("again", 0, 0), Attempt("one", 0), rows)])
    read = arrow(rows)
    again = write_in_ledger(options, COLUMNS, Origin("again", 0, 0), Attempt("two", 0), read)
    assert again.delivered is None
    assert next(read, None) is None
    commit_batch(options, [again])
    assert len(values_of(broker.bootstrap, topic)) == len(rows)


def test_different_rows_on_a_replay_are_rejected_or_accepted(broker: LocalCluster) -> None:
    topic = new_topic(broker)
    options = options_for(broker, topic)
    with pytest.raises(Killed):
        run_task(options, Origin("other", 0, 0), Attempt("one", 0), rows_for(0, 0), 3)
    before = len(values_of(broker.bootstrap, topic))
    with pytest.raises(RowsDiffer, match="onReplayMismatch=accept"):
        run_task(options, Origin("other", 0, 0), Attempt("two", 0), rows_for(1, 0))
    accepting = options_for(broker, topic, onReplayMismatch="accept")
    written = run_task(accepting, Origin("other", 0, 0), Attempt("three", 0), rows_for(1, 0))
    commit_batch(accepting, [written])
    assert len(values_of(broker.bootstrap, topic)) == before + 160


def test_a_replay_with_fewer_tasks_is_rejected(broker: LocalCluster) -> None:
    topic = new_topic(broker)
    options = options_for(broker, topic)
    run_task(options, Origin("fewer", 0, 1), Attempt("one", 0), rows_for(0, 1))
    written = run_task(options, Origin("fewer", 0, 0), Attempt("two", 0), rows_for(0, 0))
    with pytest.raises(RowsDiffer, match="more than 1 tasks"):
        commit_batch(options, [written])


def test_an_abandoned_attempt_cannot_write(broker: LocalCluster) -> None:
    """An attempt pauses while a retry writes all rows; then it continues as a zombie."""
    topic = new_topic(broker)
    options = options_for(broker, topic)
    rows = rows_for(0, 0)
    shuffled = rows.copy()
    random.Random(1).shuffle(shuffled)
    retried: list[Written] = []
    elsewhere = options_for(broker, topic, **{"kafka.client.id": "another process"})

    def zombie() -> Iterator[Any]:
        for number, batch in enumerate(arrow(rows)):
            if number == 2:
                retry = Attempt("run", 1)
                retried.append(run_task(elsewhere, Origin("zombie", 0, 0), retry, shuffled))
            yield batch

    with pytest.raises(Conflict, match="this attempt stops"):
        write_in_ledger(options, COLUMNS, Origin("zombie", 0, 0), Attempt("run", 0), zombie())
    commit_batch(options, retried)
    assert values_of(broker.bootstrap, topic) == sorted(value for _, value in rows)

    commit_batch(options, [run_task(options, Origin("zombie", 1, 0), Attempt("run", 0), rows)])
    stamp = Producer(*identity_of(Origin("zombie", 0, 0)), 0)
    late = encode_batch([Record(b"k", b"late")], producer=stamp)
    with Cluster(broker.bootstrap) as cluster:
        known = cluster.partition(topic, 0)
        answer = produce(cluster.broker(known.leader), cluster.topic(topic), 0, late)
    assert answer.error == 47  # INVALID_PRODUCER_EPOCH: the next batch fences it
    assert "later batch" in str(TooLate(("t", 0)))  # type: ignore[arg-type]


def test_the_number_of_tasks_may_change_between_batches(broker: LocalCluster) -> None:
    topic = new_topic(broker)
    options = options_for(broker, topic)
    for batch, tasks in enumerate((3, 1, 2)):
        written = []
        for task in range(tasks):
            origin = Origin("changing", batch, task)
            with pytest.raises(Killed):
                run_task(options, origin, Attempt(f"run {batch}", 0), rows_for(batch, task), 2)
            rows = rows_for(batch, task)
            written.append(run_task(options, origin, Attempt(f"run {batch}", 1), rows))
        commit_batch(options, written)
    assert len(values_of(broker.bootstrap, topic)) == 6 * 160


def test_rows_are_found_where_the_topic_stamps_its_own_time(broker: LocalCluster) -> None:
    topic = new_topic(broker, PARTITIONS, **{"message.timestamp.type": "LogAppendTime"})
    options = options_for(broker, topic)
    rows = rows_for(0, 0)
    with pytest.raises(Killed):
        run_task(options, Origin("stamped", 0, 0), Attempt("one", 0), rows, 3)
    commit_batch(options, [run_task(options, Origin("stamped", 0, 0), Attempt("two", 0), rows)])
    assert values_of(broker.bootstrap, topic) == sorted(value for _, value in rows)


def test_rows_of_two_queries_do_not_interfere(broker: LocalCluster) -> None:
    topic = new_topic(broker)
    options = options_for(broker, topic)
    for query in ("left", "right"):
        with pytest.raises(Killed):
            run_task(options, Origin(query, 0, 0), Attempt("one", 0), rows_for(0, 0), 2)
    for query in ("left", "right"):
        run_task(options, Origin(query, 0, 0), Attempt("two", 0), rows_for(0, 0))
    wanted = [value for _, value in rows_for(0, 0)]
    assert values_of(broker.bootstrap, topic) == sorted(wanted * 2)


def test_rows_are_found_when_the_broker_has_expired_their_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = rows_for(0, 0)
    soon = {
        "producer.id.expiration.ms": "1000",
        "producer.id.expiration.check.interval.ms": "100",
        "auto.create.topics.enable": "false",
    }
    with LocalCluster(1, settings=soon) as forgetful:
        topic = new_topic(forgetful)
        options = options_for(forgetful, topic)
        with pytest.raises(Killed):
            run_task(options, Origin("long ago", 0, 0), Attempt("one", 0), rows, 3)
        time.sleep(2)
        again = run_task(options, Origin("long ago", 0, 0), Attempt("two", 0), rows)
        assert again.delivered is not None
        assert again.delivered.found > 0
        assert values_of(forgetful.bootstrap, topic) == sorted(value for _, value in rows)

        monkeypatch.setattr(routing, "CREATION_S", 0.5)
        missing = options_for(forgetful, "missing")
        with pytest.raises(SinkError, match="try: tidelog topic create missing"):
            run_task(missing, Origin("nowhere", 0, 0), Attempt("one", 0), rows)
        near = options_for(forgetful, f"{topic}x")
        with pytest.raises(SinkError, match=rf"did you mean {topic}.*\? try: tidelog topic create"):
            run_task(near, Origin("nearly", 0, 0), Attempt("one", 0), rows)
        close_clients()


def test_a_restart_reads_nothing_if_the_leader_reports_no_rows(
    broker: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(broker)
    options = options_for(broker, topic)
    rows = rows_for(0, 0)
    commit_batch(options, [run_task(options, Origin("calm", 0, 0), Attempt("one", 0), rows)])
    monkeypatch.setattr(found_rows, "_search_batches", None)
    run_task(options, Origin("calm", 1, 0), Attempt("two", 0), rows)
    assert len(values_of(broker.bootstrap, topic)) == 2 * len(rows)
    with pytest.raises(TypeError):  # here it must read
        run_task(options, Origin("calm", 1, 0), Attempt("three", 0), rows)


def test_the_ledger_keeps_the_last_line_of_each_query(broker: LocalCluster) -> None:
    with Cluster(broker.bootstrap) as cluster:
        ledger = Ledger(cluster, next(names))
        assert ledger.find("a") is None
        ends = {"t": {0: 5, 11: 7}}
        for number in range(40):
            assert ledger.write("a", Line(number - 1, "run", ends, number, 1))
            assert ledger.write("b", Line(number - 1, "run", {}, number, 1))
        found = Line(38, "run", ends, 39, 1)
        assert ledger.find("a") == found == Ledger(cluster, ledger.topic).find("a")
        assert ledger.write("a", found), "the same line again does no harm"
        assert not ledger.write("a", Line(50, "other run", {}, 20, 1)), "a number that was passed"
        assert ledger.find("a") == found
    with pytest.raises(SinkError, match="version 9"):
        read_line(b'{"version":9}')
    with pytest.raises(SinkError, match="has an invalid line"):
        read_line(b"{}")


@pytest.mark.parametrize("time_ms", [-1, -86_400_000])
def test_batches_with_times_before_1970_are_compared_too(
    broker: LocalCluster, time_ms: int
) -> None:
    """Duplicates are acknowledged with a time; a time before 1970 looks like a missing time."""
    topic = new_topic(broker, 1)
    options = options_for(broker, topic)
    origin = Origin(f"as old as {time_ms}", 0, 0)

    def write(rows: KeyedRows) -> None:
        times = pa.array([time_ms * 1000] * len(rows), pa.timestamp("us", tz="UTC"))
        (batch,) = arrow(rows)
        timed = iter([batch.append_column("timestamp", times)])
        columns = COLUMNS._replace(timestamp=2)
        write_in_ledger(options, columns, origin, Attempt("run", 0), timed)

    rows = rows_for(0, 0)[20:40]  # all of one size
    write(rows)
    with pytest.raises(Conflict, match="with other rows"):
        write(rows[::-1])
    write(rows)
    assert values_of(broker.bootstrap, topic) == sorted(value for _, value in rows)


def test_the_largest_batch_number_works(broker: LocalCluster) -> None:
    topic = new_topic(broker)
    options = options_for(broker, topic)
    origin = Origin("largest", 2**63 - 1, 1)
    rows = rows_for(0, 0, keyed=False)
    commit_batch(options, [run_task(options, origin, Attempt("run", 0), rows)])
    again = run_task(options, origin, Attempt("again", 0), rows)
    assert again.delivered is None
    assert values_of(broker.bootstrap, topic) == sorted(value for _, value in rows)


def test_the_ledger_is_created_although_a_broker_has_just_died() -> None:
    with LocalCluster(3) as cluster, Cluster(cluster.bootstrap) as client:
        cluster.kill(cluster.ids[-1])
        assert Ledger(client, "ledger").find("a query") is None
        assert client.topic("ledger").partitions
