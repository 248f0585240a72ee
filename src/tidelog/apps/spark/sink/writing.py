"""Write one micro-batch: the tasks write its rows, then the driver records it in the ledger.

A task reads the ledger. If the ledger has the batch, the task writes nothing; otherwise it writes
its rows to their topics. If another run of the query wrote the ledger's last line, or the task was
tried before, the task first finds the rows that earlier attempts wrote. When all tasks are done,
the driver writes the batch to the ledger. Only then Spark writes the batch to its checkpoint.

Invariant: after a failure at any point, the next run finds the batch in the ledger, or its rows in
the topics after the offsets in the ledger's last line.

Spark's Python workers serve many tasks, so they keep their connections and the lines of the ledger
that they have read. After an error they close all connections, so that a late response to an
abandoned request is not mistaken for the response to another request.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from tidelog.apps.spark.client_options import ClientSettings
from tidelog.apps.spark.sink.delivery import Delivered, Delivery
from tidelog.apps.spark.sink.found_rows import Ends, Starts
from tidelog.apps.spark.sink.identity import Origin
from tidelog.apps.spark.sink.ledger import NOTHING_DONE, Ledger, Line
from tidelog.apps.spark.sink.sink_errors import RowsDiffer, SinkError
from tidelog.apps.spark.sink.write_options import SinkColumns, WriteOptions
from tidelog.apps.spark.worker import settle_worker
from tidelog.core.types import TopicPartition
from tidelog.shell.client.client_errors import NoSuchTopic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.offsets import LATEST, FoundOffset, list_offsets

METADATA_AGE_S = 60.0


class ProcessClient:
    """The connections and the ledger of one cluster, kept between tasks."""

    def __init__(self, options: WriteOptions) -> None:
        self.cluster: Cluster = options.client.cluster()
        self.ledger = Ledger(self.cluster, options.ledger_topic)
        self.connections: dict[str, KafkaConnection] = {}
        """The connections on which batches are sent, by address."""
        self._fresh_until = 0.0

    def close(self) -> None:
        for connection in self.connections.values():
            connection.close()
        self.cluster.close()

    def refresh(self, topic: str | None, *, now: bool = False) -> None:
        """Refresh the metadata if it is too old or `now` is set, to find new partitions."""
        if not now and time.monotonic() < self._fresh_until:
            return
        wanted = set(self.cluster.metadata.topics) if self._fresh_until else {self.ledger.topic}
        self.cluster.refresh(sorted(wanted | ({topic} if topic else set())))
        self._fresh_until = time.monotonic() + METADATA_AGE_S


_clients: dict[tuple[ClientSettings, str], ProcessClient] = {}


@contextmanager
def process_client(options: WriteOptions) -> Iterator[ProcessClient]:
    """Provide this process's client for these options. After an error, close all clients."""
    key = options.client, options.ledger_topic
    try:
        client = _clients.get(key)
        if client is None:
            client = _clients[key] = ProcessClient(options)
        yield client
    except BaseException:
        close_clients()
        raise


def close_clients() -> None:
    """Close all clients; the next task opens new ones."""
    for client in _clients.values():
        client.close()
    _clients.clear()


PARTITIONS_LISTED_MAX = 1000


class Written(NamedTuple):
    """A task's result for the driver."""

    origin: Origin
    run: str
    line: Line | None
    """The query's line in the ledger when the task began; None if the ledger is not used."""
    delivered: Delivered | None
    """The result of the task; None if the ledger already had the batch."""


class Attempt(NamedTuple):
    """The run of the query, and the number of the task's attempt in it."""

    run: str
    number: int


def write_in_ledger(
    options: WriteOptions,
    columns: SinkColumns,
    origin: Origin,
    attempt: Attempt,
    batches: Iterable[Any],
    planned: Ends | None = None,
) -> Written:
    """Write the rows of a task whose batch is recorded in the ledger.

    `planned` are the ends of the topics before any task of this run began.
    """
    with process_client(options) as client:
        client.refresh(options.topic)
        line = _line(client, options, origin, attempt.run)
        if line.batch >= origin.batch:
            # Stateful operators before the sink store their state only if all rows are read.
            for _ in batches:
                pass
            return Written(origin, attempt.run, line, None)
        search = line.run != attempt.run or attempt.number > 0
        first = attempt.number == 0
        starts = Starts(line.ends, now_ms() - line.time_ms, planned if first else None)
        delivered = _deliver(client, options, columns, origin, search, starts, batches)
        return Written(origin, attempt.run, line, delivered)


def write_alone(
    options: WriteOptions,
    columns: SinkColumns,
    origin: Origin,
    attempt: Attempt,
    starts: Starts,
    batches: Iterable[Any],
) -> Written:
    """Write the rows of a task of a job that is not recorded in the ledger."""
    with process_client(options) as client:
        client.refresh(options.topic)
        search = attempt.number > 0
        delivered = _deliver(client, options, columns, origin, search, starts, batches)
        return Written(origin, attempt.run, None, delivered)


def commit_batch(options: WriteOptions, written: Sequence[Written]) -> None:
    """Record a batch in the ledger, on the driver, after all its tasks.

    Raises SinkError, ClientError.
    """
    _check_tasks(options, written)
    done = [(each.delivered, each.line) for each in written if each.delivered is not None]
    has_rows = any(delivered.rows or delivered.found for delivered, _ in done)
    if not has_rows and options.named is None:  # a micro-batch without rows may be run again
        return
    lines = [line for _, line in done if line is not None]
    if not lines:
        return
    last = max(lines, key=lambda line: line.number)
    origin = written[0].origin
    ends = _ends_after(last.ends, [delivered for delivered, _ in done])
    line = Line(origin.batch, written[0].run, ends, last.number + 1, now_ms())
    with process_client(options) as client:
        if not client.ledger.write(origin.query, line):
            found = client.ledger.find(origin.query)
            if found is None or found.batch < origin.batch:
                raise SinkError(
                    f"query {origin.query} is also running elsewhere: another run wrote line"
                    f" {line.number} of the ledger; stop one of the two runs"
                )


def _ends_after(before: Ends, delivered: Sequence[Delivered]) -> Ends:
    """Return the ends of the topics after the batch."""
    reported: Ends = {}
    for each in delivered:
        for topic, partitions in each.ends.items():
            known = reported.setdefault(topic, {})
            for partition, end in partitions.items():
                known[partition] = max(known.get(partition, 0), end)
    return {
        topic: {**before.get(topic, {}), **reported.get(topic, {})}
        for topic in {**before, **reported}
    }


def ends_now(cluster: Cluster, topic: str | None) -> Ends:
    """Return the ends of the topics that rows may go to.

    With more than PARTITIONS_LISTED_MAX partitions, the result is empty: a retried task then
    searches the topics from their beginning.
    """
    if topic is not None:
        try:
            names = [cluster.topic(topic).name]
        except NoSuchTopic:
            return {}
    else:
        found = cluster.refresh().topics.values()
        names = [each.name for each in found if not each.internal and not each.error]
    wanted = {
        TopicPartition(name, partition): LATEST
        for name in names
        for partition in cluster.topic(name).partitions
    }
    if len(wanted) > PARTITIONS_LISTED_MAX:
        return {}
    ends: Ends = {}
    for key, result in list_offsets(cluster, wanted).items():
        if isinstance(result, FoundOffset):
            ends.setdefault(key.topic, {})[key.partition] = result.offset
    return ends


def _line(client: ProcessClient, options: WriteOptions, origin: Origin, run: str) -> Line:
    """Return the query's last line in the ledger; write a first line if it has none."""
    found = client.ledger.find(origin.query)
    if found is None:
        found = Line(NOTHING_DONE, run, ends_now(client.cluster, options.topic), 0, now_ms())
        if not client.ledger.write(origin.query, found):
            found = client.ledger.find(origin.query)
            if found is None:
                raise SinkError(
                    f"the ledger topic {options.ledger_topic} rejects the first line of query"
                    f" {origin.query}: lines of this query were deleted; use a new checkpoint"
                )
    return found


def _deliver(
    client: ProcessClient,
    options: WriteOptions,
    columns: SinkColumns,
    origin: Origin,
    search: bool,
    starts: Starts,
    batches: Iterable[Any],
) -> Delivered:
    if search:  # an earlier attempt may have used partitions that this process does not know yet
        client.refresh(options.topic, now=True)
    delivery = Delivery(
        client.cluster, client.connections, options, columns, origin, search=search, starts=starts
    )
    delivery.begin()
    for batch in batches:
        delivery.append(batch)
    delivered = delivery.settle()
    settle_worker()
    return delivered


def _check_tasks(options: WriteOptions, written: Sequence[Written]) -> None:
    """Raise RowsDiffer if an earlier run of the batch had more tasks than this run."""
    seen = {task for each in written if each.delivered for task in each.delivered.tasks}
    extra = sorted(task for task in seen if task >= len(written))
    if extra and not options.accept_mismatch:
        raise RowsDiffer(
            f"an earlier run of batch {written[0].origin.batch} had more than {len(written)} tasks:"
            f" the topic has rows of task {extra[0]}"
        )


def now_ms() -> int:
    """Return the current time in milliseconds since 1970."""
    return int(time.time() * 1000)
