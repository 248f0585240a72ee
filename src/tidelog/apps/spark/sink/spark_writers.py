"""The writers that Spark calls: tasks on executors, then `commit` on the driver.

Each method runs in another process, on another copy of the writer. Invariant: a writer holds only
values that were known when the query was planned.

Streaming: query, micro-batch and run come from the task's local properties; messages carry them to
the driver. Batch: a job gets an id when it is planned, so a retried task finds the rows it wrote. A
job with `txnAppId` and `txnVersion` has these as its id in the ledger: if the same job runs again,
also from another program, it writes no row twice. `overwrite` is rejected, because a topic can't be
overwritten.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from tidelog.apps.spark.client_options import OptionError
from tidelog.apps.spark.sink.commit_plan import Written
from tidelog.apps.spark.sink.found_rows import Ends, Starts
from tidelog.apps.spark.sink.identity import Origin
from tidelog.apps.spark.sink.sink_errors import SinkError
from tidelog.apps.spark.sink.write_options import sink_columns, write_options
from tidelog.apps.spark.sink.writing import (
    Attempt,
    abort_batch,
    commit_batch,
    ends_now,
    now_ms,
    write_alone,
    write_in_ledger,
)

QUERY = "sql.streaming.queryId"
BATCH = "streaming.sql.batchId"
RUN = "spark.jobGroup.id"
"""The job group of a streaming query is the id of its run, which is new at each start."""


class TaskMessage(WriterCommitMessage):
    """The message of a task to the driver."""

    def __init__(self, written: Written) -> None:
        self.written = written


class TidelogStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of micro-batches to topics.

    Complete mode appends the whole result each time, as Spark's Kafka sink does.
    """

    def __init__(self, options: Mapping[str, str], schema: Any, overwrite: bool = False) -> None:
        del overwrite  # set in complete mode; a topic can't be overwritten
        self.options = write_options(options)
        if self.options.named is not None:
            raise OptionError(
                "txnAppId and txnVersion are for batch writes; a streaming query has its own id"
            )
        self.columns = sink_columns(schema, self.options.topic)

    def write(self, iterator: Iterator[Any]) -> TaskMessage:
        context = TaskContext.get()
        query, batch = context.getLocalProperty(QUERY), context.getLocalProperty(BATCH)
        if query is None or batch is None:
            raise SinkError(
                "Spark did not pass query and batch ids to the task; use Spark 4.1 or newer"
            )
        # Without a run id, every batch is treated as if an earlier attempt had written rows.
        run = context.getLocalProperty(RUN) or f"attempt {context.taskAttemptId()}"
        origin = Origin(query, int(batch), context.partitionId())
        attempt = Attempt(run, context.attemptNumber())
        return TaskMessage(write_in_ledger(self.options, self.columns, origin, attempt, iterator))

    def commit(self, messages: list[Any], batchId: int) -> None:
        del batchId  # the messages contain it
        commit_batch(self.options, [message.written for message in messages])

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Abort transactions. Rows without one stay: the next run of the batch finds them."""
        del batchId
        abort_batch(self.options, [message.written for message in messages if message])


NAMED = "txn:"
"""Prefix of a txnAppId in the ledger, so that it never equals a query id."""


class TidelogWriter(DataSourceArrowWriter):
    """Writes the rows of a DataFrame to topics."""

    def __init__(self, options: Mapping[str, str], schema: Any, overwrite: bool = False) -> None:
        if overwrite:
            raise OptionError('a topic can\'t be overwritten; use mode("append")')
        self.options = write_options(options)
        self.columns = sink_columns(schema, self.options.topic)
        self.job = str(uuid4())
        self.began_ms = now_ms()
        self.ends: Ends = {}
        if self.options.named is None or self.columns.timestamp is not None:
            with self.options.client.cluster() as cluster:
                cluster.refresh([self.options.topic] if self.options.topic else [])
                self.ends = ends_now(cluster, self.options.topic)

    def write(self, iterator: Iterator[Any]) -> TaskMessage:
        context = TaskContext.get()
        attempt = Attempt(self.job, context.attemptNumber())
        named = self.options.named
        if named is None:
            origin = Origin(self.job, 0, context.partitionId())
            starts = Starts(self.ends, now_ms() - self.began_ms)
            return TaskMessage(
                write_alone(self.options, self.columns, origin, attempt, starts, iterator)
            )
        origin = Origin(NAMED + named.app, named.version, context.partitionId())
        return TaskMessage(
            write_in_ledger(self.options, self.columns, origin, attempt, iterator, self.ends)
        )

    def commit(self, messages: list[Any]) -> None:
        commit_batch(self.options, [message.written for message in messages])

    def abort(self, messages: list[Any]) -> None:
        """Abort transactions. Rows without one stay: they can't be removed from a topic."""
        abort_batch(self.options, [message.written for message in messages if message])
