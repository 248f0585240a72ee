"""The batch sink as Spark calls it: planned on the driver, written by tasks.

A job has an id of its own, made when it is planned, so a task that is tried again finds what it
wrote. A job with `txnAppId` and `txnVersion` is known by these instead, and to the ledger: the
same job again, also from another program, writes nothing twice. Always true: `overwrite` is
refused, for a topic can't be written over.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter

from tidelog.apps.spark.sink.replays.found_rows import Ends, Starts
from tidelog.apps.spark.sink.replays.identity import Origin
from tidelog.apps.spark.sink.row_columns import sink_columns
from tidelog.apps.spark.sink.stream_writer import TaskMessage
from tidelog.apps.spark.sink.write_options import write_options
from tidelog.apps.spark.sink.writing import (
    Attempt,
    conclude,
    ends_now,
    now_ms,
    write_alone,
    write_in_ledger,
)
from tidelog.apps.spark.source.options.known import OptionError

NAMED = "txn:"
"""Before a txnAppId in the ledger, so that it is never taken for a query."""


class TidelogWriter(DataSourceArrowWriter):
    """Rows of a DataFrame to topics."""

    def __init__(self, options: Mapping[str, str], schema: Any, overwrite: bool = False) -> None:
        if overwrite:
            raise OptionError('a topic can\'t be written over; use mode("append")')
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
        conclude(self.options, [message.written for message in messages])

    def abort(self, messages: list[Any]) -> None:
        """Nothing to undo: a topic keeps what it has."""
