"""A driver that copies a topic to another one, and kills itself at a given place.

Arguments: BOOTSTRAP SOURCE SINK CHECKPOINT KILL BATCH. KILL is one of

- task: a worker dies with -9 in the middle of a task, once; Spark retries the task
- midway: the driver and a worker die with -9 in the middle of a task
- before: the driver dies after the tasks and before the ledger
- after: the driver dies after the ledger and before Spark's own commit
- none: the driver runs to its end

BATCH is the number of the micro-batch in which that happens.
"""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from tidelog.apps.spark.data_source import TidelogDataSource
from tidelog.apps.spark.session import spark_session
from tidelog.apps.spark.sink.spark_writers import BATCH, TaskMessage, TidelogStreamWriter

ROWS_EACH = 50
"""In an Arrow batch, so that a task has a middle."""
MIDDLE = 12


def kill(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


class KillingWriter(TidelogStreamWriter):
    """A writer that is pickled to other processes, with its attributes."""

    point = "none"
    batch = -1
    driver: list[int] = []  # noqa: RUF012 - set once, before Spark pickles the class
    marker = ""

    def write(self, iterator: Iterator[Any]) -> TaskMessage:
        context = TaskContext.get()
        here = int(context.getLocalProperty(BATCH)) == self.batch and context.partitionId() == 0
        return super().write(self._dying(iterator) if here else iterator)

    def _dying(self, iterator: Iterator[Any]) -> Iterator[Any]:
        for number, batch in enumerate(iterator):
            if number == MIDDLE and self.point == "midway":
                kill([*self.driver, os.getpid()])
            if number == MIDDLE and self.point == "task" and not Path(self.marker).exists():
                Path(self.marker).touch()
                kill([os.getpid()])
            yield batch

    def commit(self, messages: list[Any], batchId: int) -> None:
        if self.point == "before" and batchId == self.batch:
            kill(self.driver)
        super().commit(messages, batchId)
        if self.point == "after" and batchId == self.batch:
            kill(self.driver)


class KillingSource(TidelogDataSource):
    """The data source `format("tidelog-killing")`."""

    @classmethod
    def name(cls) -> str:
        return "tidelog-killing"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        given = {name.lower(): str(value) for name, value in self.options.items()}
        return KillingWriter(given, schema, overwrite)


def main() -> None:
    bootstrap, source, sink, checkpoint, KillingWriter.point, batch = sys.argv[1:]
    settings = {
        "spark.driver.memory": "1g",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_EACH),
    }
    spark = spark_session("sink-driver", "local[2,4]", settings)
    spark.sparkContext.setLogLevel("OFF")
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    KillingWriter.driver = [jvm, os.getpid()]
    KillingWriter.batch = int(batch)
    KillingWriter.marker = f"{checkpoint}.killed-once"
    spark.dataSource.register(TidelogDataSource)
    spark.dataSource.register(KillingSource)
    frame = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "2000")
        .load()
    )
    query = (
        frame.select("key", "value")
        .writeStream.format("tidelog-killing")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", sink)
        .option("kafka.batch.size", "1024")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
