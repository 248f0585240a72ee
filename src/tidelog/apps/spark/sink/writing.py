"""Write one micro-batch: the tasks write its rows, then the driver records it in the ledger.

A task reads the ledger. If the ledger has the batch, the task writes nothing; otherwise it writes
its rows to their topics. If another run of the query wrote the ledger's last line, or the task was
tried before, the task first finds the rows that earlier attempts wrote. When all tasks are done,
the driver writes the batch to the ledger. Only then Spark writes the batch to its checkpoint.

Invariant: after a failure at any point, the next run finds the batch in the ledger, or its rows in
the topics after the offsets in the ledger's last line.

With transactions the rows are invisible until the driver commits: see committing. There is nothing
to find then, except what a run without transactions has left.
"""

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from tidelog.apps.spark.sink.commit_plan import Written, ends_after
from tidelog.apps.spark.sink.committing import (
    abort_transactions,
    commit_transactions,
    settle,
    settle_other_batch,
)
from tidelog.apps.spark.sink.delivery import Delivered, Delivery
from tidelog.apps.spark.sink.found_rows import Ends, Starts
from tidelog.apps.spark.sink.identity import Origin
from tidelog.apps.spark.sink.ledger import NOTHING_DONE, Line
from tidelog.apps.spark.sink.process_client import ProcessClient, process_client
from tidelog.apps.spark.sink.sink_errors import RowsDiffer, SinkError
from tidelog.apps.spark.sink.task_transaction import TaskTransaction
from tidelog.apps.spark.sink.transactional_delivery import TransactionalDelivery
from tidelog.apps.spark.sink.write_options import SinkColumns, WriteOptions
from tidelog.apps.spark.worker import settle_worker
from tidelog.core.types import TopicPartition
from tidelog.shell.client.client_errors import ClientError, NoSuchTopic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.offsets import LATEST, FoundOffset, list_offsets

PARTITIONS_LISTED_MAX = 1000


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
        decided = line.pending is not None and line.pending.batch == origin.batch
        if line.pending is not None and not decided:
            done = settle_other_batch(client, origin.query, line.pending)
            line = line._replace(batch=done, pending=None)
        if line.batch >= origin.batch:
            _read(batches)
            return Written(origin, attempt.run, line, None)
        held = line.pending.of_task(origin.task) if line.pending else None
        if held is not None and settle(client, origin.query, held):
            return Written(origin, attempt.run, line, None, held, _read(batches))
        options = options._replace(transactional=options.transactional or decided)
        # Rows that an earlier attempt wrote in a transaction were aborted with it, or will be.
        search = line.run != attempt.run or attempt.number > 0
        if options.transactional:
            search = line.run != attempt.run and not line.transactional
        first = attempt.number == 0
        starts = Starts(line.ends, now_ms() - line.time_ms, planned if first else None)
        delivered, transaction = _deliver(
            client, options, columns, origin, attempt, search, starts, batches
        )
        return Written(origin, attempt.run, line, delivered, transaction)


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
        search = attempt.number > 0 and not options.transactional
        delivered, transaction = _deliver(
            client, options, columns, origin, attempt, search, starts, batches
        )
        return Written(origin, attempt.run, None, delivered, transaction)


def commit_batch(options: WriteOptions, written: Sequence[Written]) -> None:
    """Record a batch in the ledger, on the driver, after all its tasks.

    Raises SinkError, ClientError.
    """
    _check_tasks(options, written)
    if options.transactional or any(each.line and each.line.pending for each in written):
        commit_transactions(options, written)
        return
    done = [(each.delivered, each.line) for each in written if each.delivered is not None]
    has_rows = any(delivered.rows or delivered.found for delivered, _ in done)
    if not has_rows and options.named is None:  # a micro-batch without rows may be run again
        return
    lines = [line for _, line in done if line is not None]
    if not lines:
        return
    last = max(lines, key=lambda line: line.number)
    origin = written[0].origin
    ends = ends_after(last.ends, [delivered for delivered, _ in done])
    line = Line(origin.batch, written[0].run, ends, last.number + 1, now_ms())
    with process_client(options) as client:
        if not client.ledger.write(origin.query, line):
            found = client.ledger.find(origin.query)
            if found is None or found.batch < origin.batch:
                raise SinkError(
                    f"query {origin.query} is also running elsewhere: another run wrote line"
                    f" {line.number} of the ledger; stop one of the two runs"
                )


def abort_batch(options: WriteOptions, written: Sequence[Written]) -> None:
    """Abort the transactions of a batch that failed, unless they may have been committed.

    Rows without transactions stay: the next run of the batch finds them.
    """
    if written and any(each.opened for each in written):
        abort_transactions(options, written)


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
        ends = ends_now(client.cluster, options.topic)
        found = Line(NOTHING_DONE, run, ends, 0, now_ms(), options.transactional)
        return _write_or_find(client, options, origin.query, found)
    if found.transactional and not options.transactional and found.pending is None:
        # From now on rows of this query may be visible without a complete micro-batch.
        visible = found._replace(transactional=False, number=found.number + 1)
        return _write_or_find(client, options, origin.query, visible)
    return found


def _write_or_find(client: ProcessClient, options: WriteOptions, query: str, line: Line) -> Line:
    """Write a line that each task of a run wants to write; return the line of the first one."""
    if client.ledger.write(query, line):
        return line
    found = client.ledger.find(query)
    if found is None:
        raise SinkError(
            f"the ledger topic {options.ledger_topic} rejects the first line of query"
            f" {query}: lines of this query were deleted; use a new checkpoint"
        )
    return found


def _read(batches: Iterable[Any]) -> int:
    """Read rows that are not written; return their number.

    Stateful operators before the sink store their state only if all rows are read.
    """
    return sum(batch.num_rows for batch in batches)


def _deliver(
    client: ProcessClient,
    options: WriteOptions,
    columns: SinkColumns,
    origin: Origin,
    attempt: Attempt,
    search: bool,
    starts: Starts,
    batches: Iterable[Any],
) -> tuple[Delivered, TaskTransaction | None]:
    if search:  # an earlier attempt may have used partitions that this process does not know yet
        client.refresh(options.topic, now=True)
    if options.transactional:
        return _deliver_in_transaction(
            client, options, columns, origin, attempt, search, starts, batches
        )
    delivery = Delivery(
        client.cluster, client.connections, options, columns, origin, search=search, starts=starts
    )
    return _send(delivery, batches), None


def _deliver_in_transaction(
    client: ProcessClient,
    options: WriteOptions,
    columns: SinkColumns,
    origin: Origin,
    attempt: Attempt,
    search: bool,
    starts: Starts,
    batches: Iterable[Any],
) -> tuple[Delivered, TaskTransaction | None]:
    delivery = TransactionalDelivery(
        client.cluster,
        client.connections,
        options,
        columns,
        origin,
        search=search,
        starts=starts,
        coordinators=client.coordinators,
        attempt=attempt.number,
    )
    try:
        delivered = _send(delivery, batches)
    except BaseException:
        # Otherwise committed readers of these partitions wait until the transaction times out.
        with suppress(ClientError):
            delivery.abort()
        raise
    return delivered, delivery.transaction(delivered)


def _send(delivery: Delivery, batches: Iterable[Any]) -> Delivered:
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
