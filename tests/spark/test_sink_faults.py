"""Brokers die, hang and return while a task writes: each row is written once.

Each partition has its rows in order. Real brokers, without Spark.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from real_cluster import PATIENCE_S
from sink_rows import rows_of, values_of

from tidelog.apps.spark.sink.commit_plan import Written
from tidelog.apps.spark.sink.found_rows import Starts
from tidelog.apps.spark.sink.identity import Origin
from tidelog.apps.spark.sink.process_client import close_clients
from tidelog.apps.spark.sink.sink_errors import SinkError
from tidelog.apps.spark.sink.write_options import SinkColumns, WriteOptions, write_options
from tidelog.apps.spark.sink.writing import Attempt, commit_batch, write_alone, write_in_ledger
from tidelog.shell.client.admin import create_topic
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

pytestmark = pytest.mark.ci
COLUMNS = SinkColumns(value=0, key=1)
ROWS = 6000
ROWS_EACH = 200
names = (f"t{number}" for number in count())


@pytest.fixture(scope="module")
def brokers() -> Iterator[LocalCluster]:
    with LocalCluster(3) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    close_clients()


def prepared(brokers: LocalCluster, **options: str) -> tuple[str, WriteOptions, dict[int, int]]:
    """Return a new topic, options for it, and its leaders."""
    topic = next(names)
    with Cluster(brokers.bootstrap) as cluster:
        create_topic(cluster, topic, 3, 3)
        leaders = {n: each.leader for n, each in cluster.topic(topic).partitions.items()}
    found = write_options(
        {
            "kafka.bootstrap.servers": brokers.bootstrap,
            "topic": topic,
            "kafka.request.timeout.ms": "4000",
            **options,
        }
    )
    return topic, found._replace(batch_bytes=1500), leaders


def rows(between: dict[int, Callable[[], object]]) -> Iterator[Any]:
    """Yield Arrow batches; call a function before the n-th one."""
    for number, start in enumerate(range(0, ROWS, ROWS_EACH)):
        between.get(number, lambda: None)()
        some = range(start, start + ROWS_EACH)
        yield pa.record_batch(
            {
                "value": pa.array([b"%06d" % n for n in some], pa.binary()),
                "key": pa.array([b"%d" % (n % 17) for n in some], pa.binary()),
            }
        )


def write(options: WriteOptions, between: dict[int, Callable[[], object]]) -> Written:
    origin = Origin(str(options.topic), 0, 0)
    return write_alone(options, COLUMNS, origin, Attempt("job", 0), Starts({}, 0), rows(between))


def check(brokers: LocalCluster, topic: str) -> None:
    assert values_of(brokers.bootstrap, topic) == [b"%06d" % n for n in range(ROWS)]
    for records in rows_of(brokers.bootstrap, topic).values():
        values = [record.value or b"" for record in records]
        assert values == sorted(values)


def test_leaders_are_killed_and_come_back(brokers: LocalCluster) -> None:
    topic, options, leaders = prepared(brokers)
    first, second = leaders[0], leaders[1]
    write(
        options,
        {
            5: lambda: brokers.kill(first),
            12: lambda: brokers.start_broker(first, timeout_s=PATIENCE_S),
            20: lambda: brokers.kill(second),
            26: lambda: brokers.start_broker(second, timeout_s=PATIENCE_S),
        },
    )
    check(brokers, topic)


def test_a_leader_stops_cleanly_and_another_is_elected(brokers: LocalCluster) -> None:
    topic, options, leaders = prepared(brokers)
    write(options, {8: lambda: brokers.restart(leaders[2])})
    check(brokers, topic)


def test_a_leader_hangs_for_a_while(brokers: LocalCluster) -> None:
    topic, options, leaders = prepared(brokers)
    paused = leaders[0]
    resumed = {"once": False}

    def pause() -> None:
        brokers.pause(paused)

    def resume() -> None:
        brokers.resume(paused)
        resumed["once"] = True

    try:
        write(options, {6: pause, 9: resume})
        assert resumed["once"]
    finally:
        brokers.resume(paused)
    check(brokers, topic)


def test_too_few_replicas_end_the_attempt_and_the_next_one_completes(
    brokers: LocalCluster,
) -> None:
    topic, options, leaders = prepared(brokers, **{"kafka.delivery.timeout.ms": "8000"})
    origin = Origin(f"few-{topic}", 0, 0)
    others = [broker for broker in brokers.ids if broker != leaders[0]]

    def kill_the_others() -> None:
        for broker in others:
            brokers.kill(broker)
            killed.append(broker)

    killed: list[int] = []
    dying = rows({10: kill_the_others})
    with pytest.raises((SinkError, ClientError)) as refused:
        write_in_ledger(options, COLUMNS, origin, Attempt("one", 0), dying)
    assert killed == others, refused.value
    assert "\n" not in str(refused.value)
    for broker in others:
        brokers.start_broker(broker, wait=False)
    brokers.wait_ready(PATIENCE_S)
    # The ISR may still have one replica only.
    patient = options._replace(delivery_s=PATIENCE_S)
    again = write_in_ledger(patient, COLUMNS, origin, Attempt("two", 0), rows({}))
    assert again.delivered is not None
    assert again.delivered.found > 0
    assert again.delivered.rows + again.delivered.found == ROWS
    commit_batch(patient, [again])
    check(brokers, topic)
