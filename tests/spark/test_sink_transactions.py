"""In transactions: committed readers see a micro-batch once and whole, whatever dies.

With a real broker, without Spark: tasks and drivers are calls, and die at the places of a plan.
`make test-all` runs the same on a real Apache Kafka.
"""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from real_kafka import ONE_COPY, running_kafka
from sink_rows import committed_values, values_of
from sink_tasks import (
    COLUMNS,
    HasBootstrap,
    Killed,
    arrow,
    new_topic,
    options_for,
    rows_for,
    run_task,
)

from tidelog.apps.spark.sink import committing, writing
from tidelog.apps.spark.sink.commit_plan import Written
from tidelog.apps.spark.sink.found_rows import Starts
from tidelog.apps.spark.sink.identity import Origin
from tidelog.apps.spark.sink.process_client import close_clients
from tidelog.apps.spark.sink.sink_errors import (
    Fenced,
    RowsDiffer,
    RunsElsewhere,
    TransactionLost,
)
from tidelog.apps.spark.sink.task_transaction import is_of_query
from tidelog.apps.spark.sink.transactional_delivery import TransactionalDelivery
from tidelog.apps.spark.sink.write_options import WriteOptions
from tidelog.apps.spark.sink.writing import Attempt, abort_batch, commit_batch
from tidelog.shell.client.administration.transactions import (
    Filters,
    fence_producer,
    list_transactions,
)
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

pytestmark = pytest.mark.ci
TASKS = (0, 1)


class Life(NamedTuple):
    """One run of a query over one micro-batch, and where it ends."""

    tries: list[int | None]
    """For each try of a task: after how many Arrow batches it dies; None: it does not."""
    dies: str
    """Its driver: after the first task, before or after the decision, after the first commit,
    before or after the batch is complete in the ledger; or not at all."""
    cleans: bool
    """Whether tasks that fail, and Spark after a commit that fails, still abort transactions."""
    times_out: bool
    """Whether the brokers abort the open transactions before the next run."""
    seed: int | None
    """The order of rows within a task; None: as they are."""
    transactional: bool = True


DEATHS = ("", "task", "check", "decision", "first", "committed", "complete")
lives = st.builds(
    Life,
    st.lists(st.one_of(st.none(), st.integers(0, 4)), max_size=2),
    st.sampled_from(DEATHS),
    st.booleans(),
    st.booleans(),
    st.one_of(st.none(), st.integers(0, 9)),
    st.sampled_from((True, True, True, False)),
)
LAST = Life([], "", True, False, None)


class Kafka(NamedTuple):
    """A broker of Apache Kafka."""

    bootstrap: str


@pytest.fixture(scope="module", params=["tidelog", pytest.param("kafka", marks=pytest.mark.slow)])
def broker(request: pytest.FixtureRequest) -> Iterator[HasBootstrap]:
    with ExitStack() as stack:
        if request.param == "tidelog":
            yield stack.enter_context(LocalCluster(1))
        else:
            port = stack.enter_context(running_kafka({**ONE_COPY, "num.partitions": "1"}))
            yield Kafka(f"127.0.0.1:{port}")
        close_clients()


def in_transactions(broker: HasBootstrap, topic: str, **more: str) -> WriteOptions:
    return options_for(broker, topic, transactional="true", **more)


def killed(*_: object) -> None:
    raise Killed


def dying_driver(life: Life) -> ExitStack:
    """Return a context in which the driver dies where `life` says."""
    stack = ExitStack()
    settle, write = committing.settle, committing._write
    calls = count()

    def first(*arguments: Any) -> bool:
        if next(calls):
            raise Killed
        return settle(*arguments)

    def decision(*arguments: Any) -> Any:
        write(*arguments)
        raise Killed

    places: dict[str, tuple[str, Any]] = {
        "check": ("_check_open", killed),
        "decision": ("_write", decision),
        "first": ("settle", first),
        "committed": ("_complete", killed),
        "complete": ("_abandon", killed),
    }
    if life.dies in places:
        stack.enter_context(patch.object(committing, *places[life.dies]))
    if not life.cleans:
        stack.enter_context(patch.object(TransactionalDelivery, "abort", lambda _: None))
    return stack


def live(options: WriteOptions, query: str, batch: int, run: str, life: Life) -> None:
    """Run two tasks, with as many attempts as needed; the driver dies where `life` says."""
    written: list[Written] = []
    options = options._replace(transactional=life.transactional)
    try:
        with dying_driver(life):
            for task in TASKS:
                written.append(attempts(options, Origin(query, batch, task), run, life))
                if life.dies == "task":
                    raise Killed
            commit_batch(options, written)
    except Killed:
        close_clients()
        if life.cleans and written:
            abort_batch(options, written)
            close_clients()
        raise


def attempts(options: WriteOptions, origin: Origin, run: str, life: Life) -> Written:
    rows = rows_for(origin.batch, origin.task)
    if life.seed is not None:
        random.Random(life.seed + origin.task).shuffle(rows)
    for number, after in enumerate(life.tries):
        try:
            return run_task(options, origin, Attempt(run, number), rows, after)
        except Killed:
            close_clients()
    return run_task(options, origin, Attempt(run, len(life.tries)), rows)


def open_transactions(broker: HasBootstrap, query: str) -> list[str]:
    with Cluster(broker.bootstrap) as cluster:
        listed, failed = list_transactions(cluster, Filters(states=["Ongoing"]))
    assert not failed
    names = [each.transactional_id for each in listed]
    return [name for name in names if is_of_query(query, name)]


def time_out(broker: HasBootstrap, query: str) -> None:
    """Abort the open transactions of a query, as their coordinator does when their time is up."""
    with Cluster(broker.bootstrap) as cluster:
        for name in open_transactions(broker, query):
            fence_producer(cluster, name, 60_000)


def all_values(batches: range) -> Counter[bytes]:
    return Counter(
        value for batch in batches for task in TASKS for _, value in rows_for(batch, task)
    )


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(batches=st.lists(st.lists(lives, max_size=3), min_size=1, max_size=3))
@example([[Life([], "task", False, False, None), Life([0], "complete", False, False, None)]])
def test_committed_readers_see_each_row_once_whatever_dies(
    broker: HasBootstrap, batches: list[list[Life]]
) -> None:
    topic = new_topic(broker)
    query = f"q-{topic}"
    options = in_transactions(broker, topic)
    runs = count()
    for batch, deaths in enumerate(batches):
        for life in [*deaths, LAST]:
            try:
                live(options, query, batch, f"run {next(runs)}", life)
            except Killed:
                if life.times_out:
                    time_out(broker, query)
                continue
            break  # Spark has it in its checkpoint now
        if all(life.transactional for life in deaths):
            seen = Counter(committed_values(broker.bootstrap, topic))
            assert seen == all_values(range(batch + 1))
    time_out(broker, query)  # a run without transactions does not look for those of an earlier one
    assert Counter(committed_values(broker.bootstrap, topic)) == all_values(range(len(batches)))


def test_rows_are_visible_to_committed_readers_when_the_commit_returns(
    broker: HasBootstrap,
) -> None:
    topic = new_topic(broker)
    options = in_transactions(broker, topic)
    for batch in range(3):
        written = [
            run_task(options, Origin("calm", batch, task), Attempt("run", 0), rows_for(batch, task))
            for task in TASKS
        ]
        assert len(values_of(broker.bootstrap, topic)) == 320 * (batch + 1)
        assert Counter(committed_values(broker.bootstrap, topic)) == all_values(range(batch))
        commit_batch(options, written)
        assert Counter(committed_values(broker.bootstrap, topic)) == all_values(range(batch + 1))
    assert not open_transactions(broker, "calm")
    again = run_task(options, Origin("calm", 2, 0), Attempt("again", 0), rows_for(2, 0))
    assert (again.delivered, again.transaction) == (None, None)


def test_an_abandoned_attempt_is_fenced(broker: HasBootstrap) -> None:
    """An attempt pauses while a retry writes all rows and the driver commits; then it continues,
    on a topic with LogAppendTime, with rows without keys in another order."""
    topic = new_topic(broker, 2, **{"message.timestamp.type": "LogAppendTime"})
    options = in_transactions(broker, topic)
    elsewhere = in_transactions(broker, topic, **{"kafka.client.id": "another process"})
    rows = rows_for(0, 0, keyed=False)
    origin = Origin("zombie", 0, 0)

    def zombie() -> Iterator[Any]:
        for number, batch in enumerate(arrow(rows[::-1])):
            if number == 2:
                retried = run_task(elsewhere, origin, Attempt("run", 1), rows)
                commit_batch(elsewhere, [retried])
            yield batch

    with pytest.raises(Fenced, match="this attempt stops"):
        writing.write_in_ledger(options, COLUMNS, origin, Attempt("run", 0), zombie())
    assert committed_values(broker.bootstrap, topic) == sorted(value for _, value in rows)
    assert not open_transactions(broker, "zombie")


def test_an_attempt_of_a_retried_stage_replaces_the_one_with_its_number(
    broker: HasBootstrap,
) -> None:
    """Spark numbers attempts from 0 again when it retries a whole stage."""
    topic = new_topic(broker)
    options = in_transactions(broker, topic)
    origin = Origin("staged", 0, 0)
    run_task(options, origin, Attempt("run", 0), rows_for(0, 0))
    commit_batch(options, [run_task(options, origin, Attempt("run", 0), rows_for(0, 0)[::-1])])
    wanted = sorted(value for _, value in rows_for(0, 0))
    assert committed_values(broker.bootstrap, topic) == wanted


def test_a_driver_that_was_replaced_commits_nothing(broker: HasBootstrap) -> None:
    topic = new_topic(broker)
    options = in_transactions(broker, topic)
    origin = Origin("replaced", 0, 0)
    old = run_task(options, origin, Attempt("old", 1), rows_for(1, 1))
    new = run_task(options, origin, Attempt("new", 0), rows_for(0, 0))
    with dying_driver(LAST._replace(dies="decision")), pytest.raises(Killed):
        commit_batch(options, [new])
    with pytest.raises(RunsElsewhere, match="stop one of the two runs"):
        commit_batch(options, [old])
    abort_batch(options, [old])
    commit_batch(options, [run_task(options, origin, Attempt("newer", 0), rows_for(0, 0))])
    wanted = sorted(value for _, value in rows_for(0, 0))
    assert committed_values(broker.bootstrap, topic) == wanted
    with pytest.raises(TransactionLost):
        commit_batch(options, [old])


def test_a_decided_batch_is_committed_although_its_rows_are_other_ones_now(
    broker: HasBootstrap,
) -> None:
    topic = new_topic(broker)
    options = in_transactions(broker, topic)
    written = [
        run_task(options, Origin("random", 0, task), Attempt("one", 0), rows_for(0, task))
        for task in TASKS
    ]
    with dying_driver(LAST._replace(dies="first")), pytest.raises(Killed):
        commit_batch(options, written)
    abort_batch(options, written)  # Spark does so if its driver lives on
    fewer = run_task(options, Origin("random", 0, 0), Attempt("two", 0), rows_for(7, 0)[:40])
    commit_batch(options, [fewer])
    assert Counter(committed_values(broker.bootstrap, topic)) == all_values(range(1))


def test_a_part_that_timed_out_is_written_again_with_the_same_rows_only(
    broker: HasBootstrap,
) -> None:
    topic = new_topic(broker)
    options = in_transactions(broker, topic)

    def write(task: int, run: str, rows: int) -> Written:
        origin = Origin("partly", 0, task)
        return run_task(options, origin, Attempt(run, 0), rows_for(0, task)[:rows])

    with dying_driver(LAST._replace(dies="first")), pytest.raises(Killed):
        commit_batch(options, [write(task, "one", 160) for task in TASKS])
    time_out(broker, "partly")
    other = [write(task, "two", 160 - task) for task in TASKS]
    with pytest.raises(RowsDiffer, match="task 1 had 160 rows, and now has 159"):
        commit_batch(options, other)
    abort_batch(options, other)
    commit_batch(options, [write(task, "three", 160) for task in TASKS])
    assert Counter(committed_values(broker.bootstrap, topic)) == all_values(range(1))


def test_a_transaction_that_timed_out_fails_the_batch_before_any_row_is_visible(
    broker: HasBootstrap,
) -> None:
    topic = new_topic(broker)
    options = in_transactions(broker, topic)
    written = [
        run_task(options, Origin("slow", 0, task), Attempt("one", 0), rows_for(0, task))
        for task in TASKS
    ]
    with Cluster(broker.bootstrap) as cluster:
        fence_producer(cluster, open_transactions(broker, "slow")[-1], 60_000)
    with pytest.raises(TransactionLost, match=r"no row of this batch is visible.*restart"):
        commit_batch(options, written)
    abort_batch(options, written)
    assert committed_values(broker.bootstrap, topic) == []
    live(options, "slow", 0, "two", LAST)
    assert Counter(committed_values(broker.bootstrap, topic)) == all_values(range(1))


def test_the_log_tells_what_the_coordinator_has_forgotten(broker: HasBootstrap) -> None:
    """Another attempt used the transactional ids after the commit, before the ledger had it."""
    topic = new_topic(broker)
    options = in_transactions(broker, topic)
    written = [
        run_task(options, Origin("forgotten", 0, task), Attempt("one", 0), rows_for(0, task))
        for task in TASKS
    ]
    with dying_driver(LAST._replace(dies="committed")), pytest.raises(Killed):
        commit_batch(options, written)
    with Cluster(broker.bootstrap) as cluster:
        for task in TASKS:
            fence_producer(cluster, f"tidelog-spark-forgotten-{task}-0", 60_000)
    live(options, "forgotten", 0, "two", LAST)
    assert Counter(committed_values(broker.bootstrap, topic)) == all_values(range(1))
    assert len(values_of(broker.bootstrap, topic)) == 320, "nothing was written again"


def test_a_job_without_a_ledger_is_committed_or_aborted(broker: HasBootstrap) -> None:
    topic = new_topic(broker)
    options = in_transactions(broker, topic)

    def write(job: str) -> list[Written]:
        return [
            writing.write_alone(
                options,
                COLUMNS,
                Origin(job, 0, task),
                Attempt(job, 0),
                Starts({}, 0),
                arrow(rows_for(0, task)),
            )
            for task in TASKS
        ]

    abort_batch(options, write("failed job"))
    assert not open_transactions(broker, "failed job")
    commit_batch(options, write("job"))
    assert Counter(committed_values(broker.bootstrap, topic)) == all_values(range(1))


def test_an_interrupted_version_is_completed_by_the_next_one(broker: HasBootstrap) -> None:
    topic = new_topic(broker)
    options = in_transactions(broker, topic, txnAppId="app", txnVersion="5")
    query = "txn:app"
    with pytest.raises(Killed):
        live(options, query, 5, "one", LAST._replace(dies="decision", cleans=False))
    live(options, query, 8, "two", LAST)
    assert all_values(range(5, 6)) + all_values(range(8, 9)) == Counter(
        committed_values(broker.bootstrap, topic)
    )
