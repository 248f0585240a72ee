"""Tasks of a sink without Spark: calls to a real broker that die at a given place."""

from collections.abc import Iterator
from itertools import count
from typing import Any, Protocol

import pyarrow as pa

from tidelog.apps.spark.sink.commit_plan import Written
from tidelog.apps.spark.sink.identity import Origin
from tidelog.apps.spark.sink.write_options import SinkColumns, WriteOptions, write_options
from tidelog.apps.spark.sink.writing import Attempt, write_in_ledger
from tidelog.shell.client.admin import create_topic
from tidelog.shell.client.cluster import Cluster

COLUMNS = SinkColumns(value=0, key=1)
PARTITIONS = 3
KeyedRows = list[tuple[bytes | None, bytes]]
names = (f"t{number}" for number in count())


class Killed(Exception):
    """The process was killed."""


def arrow(rows: KeyedRows, rows_each: int = 40) -> Iterator[Any]:
    for start in range(0, len(rows), rows_each):
        some = rows[start : start + rows_each]
        yield pa.record_batch(
            {
                "value": pa.array([value for _, value in some], pa.binary()),
                "key": pa.array([key for key, _ in some], pa.binary()),
            }
        )


def rows_for(batch: int, task: int, keyed: bool = True) -> KeyedRows:
    """Return rows; some equal others in the same task or in other tasks."""
    return [
        (b"%d" % (number % 7) if keyed else None, b"%d.%d" % (batch, number // 2 + task * 50))
        for number in range(160)
    ]


class HasBootstrap(Protocol):
    """A cluster, Tidelog's or Kafka's."""

    @property
    def bootstrap(self) -> str: ...


def new_topic(broker: HasBootstrap, partitions: int = PARTITIONS, **configs: str) -> str:
    topic = next(names)
    with Cluster(broker.bootstrap) as cluster:
        create_topic(cluster, topic, partitions, configs=configs)
    return topic


def options_for(broker: HasBootstrap, topic: str, **more: str) -> WriteOptions:
    given_options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "topic": topic,
        **more,
    }
    return write_options(given_options)._replace(batch_bytes=256)


def dying(batches: Iterator[Any], after: int | None) -> Iterator[Any]:
    for number, batch in enumerate(batches):
        if number == after:
            raise Killed
        yield batch
    if after is not None:
        raise Killed


def run_task(
    options: WriteOptions,
    origin: Origin,
    attempt: Attempt,
    rows: KeyedRows,
    after: int | None = None,
) -> Written:
    return write_in_ledger(options, COLUMNS, origin, attempt, dying(arrow(rows), after))
