"""A streaming query from its start to its end: the source, the wait, the stop.

Spark calls back for each micro-batch (`foreachBatch`); the main thread waits, tells progress and
hears whether it shall stop. Always true: a batch that has begun when the stop is asked for is
finished if that takes no longer than STOP_S; none is begun afterwards, and one that is abandoned
leaves nothing behind that a restart does not mend.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

from tidelog.apps.pipeline.plan import AVAILABLE_NOW, AggregatePlan, LandPlan, Origin
from tidelog.apps.pipeline.report import Progress, Report, Tell

LOOK_S = 0.2
STOP_S = 30.0
_OF_BATCHES_TOO = ("isolationlevel", "includeheaders")
QUERY_ID = "sql.streaming.queryId"


After: TypeAlias = Callable[[dict[str, Any], Progress], Progress]


class Stopping(Exception):
    """Raised in a callback: no batch is to begin any more."""


class TakesBatches(Protocol):
    """What is done with each micro-batch."""

    def take(self, frame: Any, batch: int, query: str) -> Progress:
        """Make a batch durable, once; what it was."""


def source_frame(spark: Any, bootstrap: str, origin: Origin, **options: str) -> Any:
    """The stream of records that a pipeline reads."""
    reader = _reader(spark, spark.readStream, bootstrap)
    if origin.pattern is not None:
        reader = reader.option("subscribePattern", origin.pattern)
    else:
        reader = reader.option("subscribe", ",".join(origin.topics))
    given = {name.lower() for name in origin.options}
    defaults = {"startingOffsets": "earliest", **options}
    for name, value in [*defaults.items(), *origin.options.items()]:
        if name in origin.options or name.lower() not in given:
            reader = reader.option(name, value)
    return reader.load()


def batch_frame(
    spark: Any,
    bootstrap: str,
    origin: Origin,
    starting: dict[str, dict[str, int]],
    ending: dict[str, dict[str, int]],
) -> Any:
    """The records of a stretch that the stream has read, once more."""
    reader = _reader(spark, spark.read, bootstrap)
    parts = {topic: sorted(map(int, places)) for topic, places in starting.items()}
    for name, value in origin.options.items():
        if name.lower().startswith("kafka.") or name.lower() in _OF_BATCHES_TOO:
            reader = reader.option(name, value)
    return (
        reader.option("assign", json.dumps(parts))
        .option("startingOffsets", json.dumps(starting))
        .option("endingOffsets", json.dumps(ending))
        .load()
    )


def _reader(spark: Any, door: Any, bootstrap: str) -> Any:
    from tidelog.apps.spark.data_source import TidelogDataSource

    spark.dataSource.register(TidelogDataSource)
    return door.format("tidelog").option("kafka.bootstrap.servers", bootstrap)


class Run:
    """One run of a stream."""

    def __init__(
        self, spark: Any, plan: LandPlan | AggregatePlan, stop: threading.Event, tell: Tell
    ) -> None:
        self.report = Report(plan.name, plan.kind)
        self._spark = spark
        self._plan = plan
        self._stop = stop
        self._tell = tell
        self._busy = threading.Lock()
        self._waiting: list[Progress] = []
        self._failure: BaseException | None = None
        self._seen = -1

    def go(
        self,
        frame: Any,
        work: TakesBatches,
        mode: str = "append",
        after: After = lambda _spoken, progress: progress,
    ) -> Report:
        """Run until all is done, a stop is asked for, or something fails.

        `after` hears Spark's own progress of each batch, and may add what that tells.
        """
        started = time.monotonic()
        writer = frame.writeStream.foreachBatch(lambda f, b: self._take(work, f, b))
        writer = writer.outputMode(mode).queryName(self._plan.name)
        writer = writer.option("checkpointLocation", self._plan.checkpoint)
        if self._plan.trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=self._plan.trigger)
        query = writer.start()
        try:
            while not query.awaitTermination(LOOK_S) and not self._stop.is_set():
                self._tell_news(query, after)
        except Exception as error:
            if not self._was_asked_to_stop():
                raise (self._failure or error) from error
        finally:
            self._end(query)
            self.report.seconds = time.monotonic() - started
        self._tell_news(query, after)
        self._settle()
        return self.report

    def _take(self, work: TakesBatches, frame: Any, batch: int) -> None:
        with self._busy:
            if self._stop.is_set():
                raise Stopping
            started = time.monotonic()
            query = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
            try:
                progress = work.take(frame, batch, query)
            except BaseException as error:
                self._failure = error  # Spark tells it as a trace in a trace
                raise
            took = time.monotonic() - started
            self._waiting.append(replace(progress, seconds=took))

    def _end(self, query: Any) -> None:
        self.report.stopped = self._stop.is_set() and query.isActive
        if query.isActive:
            if self._busy.acquire(timeout=STOP_S):
                self._busy.release()
            query.stop()

    def _was_asked_to_stop(self) -> bool:
        return self._stop.is_set() and (
            self._failure is None or isinstance(self._failure, Stopping)
        )

    def _tell_news(self, query: Any, after: After) -> None:
        """Join what callbacks counted with what Spark knows of the same batches."""
        for spoken in self._spoken(query):
            self._seen = spoken["batchId"]
            mine = [p for p in self._waiting if p.batch == self._seen]
            self._waiting = [p for p in self._waiting if p.batch > self._seen]
            self.report.lost = lost_offsets(spoken) or self.report.lost
            for progress in mine:
                whole = replace(after(spoken, progress), lag=lag_of(spoken))
                self.report.add(whole)
                self._tell(whole)

    def _settle(self) -> None:
        """Batches that ended so late that Spark's progress of them was not heard."""
        for progress in self._waiting:
            self.report.add(progress)
            self._tell(progress)
        self._waiting = []

    def _spoken(self, query: Any) -> Iterator[dict[str, Any]]:
        """Spark's progress of batches that were taken and not told yet.

        An idle query tells progress too, under the number of the batch that will come: that
        one has no `addBatch`.
        """
        if self._waiting:
            for each in query.recentProgress:
                if each["batchId"] > self._seen and "addBatch" in each["durationMs"]:
                    yield each


def lag_of(progress: Any) -> int | None:
    """Offsets that wait, over all partitions; None: the source did not say."""
    from tidelog.apps.spark.source.checkpoint import lag

    told = [s for s in progress["sources"] if _said(s, "endOffset") and _said(s, "latestOffset")]
    waiting = [lag(source) for source in told]
    return sum(sum(each.values()) for each in waiting) if any(waiting) else None


def lost_offsets(progress: Any) -> int:
    """Offsets that were lost up to this batch, as the source counts them."""
    ends = [_said(source, "endOffset") or {} for source in progress["sources"]]
    return sum(end.get("lostOffsets", 0) for end in ends)


def _said(source: Any, name: str) -> Any:
    """An offset as the source wrote it; a batch without data says null."""
    told = source[name]
    return json.loads(told) if isinstance(told, str) else told
