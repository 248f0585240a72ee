"""A streaming query from its start to its end: the source, the wait, the stop.

Spark calls back for each micro-batch (`foreachBatch`); the main thread waits, tells progress and
hears whether it shall stop. Always true: a batch that has begun when the stop is asked for is
finished if that takes no longer than STOP_S; none is begun afterwards, and one that is abandoned
leaves nothing behind that a restart does not mend.
"""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from tidelog.apps.pipeline.plan import AVAILABLE_NOW, AggregatePlan, LandPlan, Origin
from tidelog.apps.pipeline.report import Progress, Report, Tell

LOOK_S = 0.2
STOP_S = 30.0
QUERY_ID = "sql.streaming.queryId"


class Stopping(Exception):
    """Raised in a callback: no batch is to begin any more."""


class TakesBatches(Protocol):
    """What is done with each micro-batch."""

    def take(self, frame: Any, batch: int, query: str) -> Progress:
        """Make a batch durable, once; what it was."""


def source_frame(spark: Any, bootstrap: str, origin: Origin, **options: str) -> Any:
    """The stream of records that a pipeline reads."""
    from tidelog.apps.spark.data_source import TidelogDataSource

    spark.dataSource.register(TidelogDataSource)
    reader = spark.readStream.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
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
        after: Callable[[dict[str, Any]], int] = lambda _progress: 0,
    ) -> Report:
        """Run until all is done, a stop is asked for, or something fails.

        `after` hears Spark's own progress of each batch, and says how many rows were late.
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
            self._waiting.append(Progress(**{**progress.__dict__, "batch": batch, "seconds": took}))

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

    def _tell_news(self, query: Any, after: Callable[[dict[str, Any]], int]) -> None:
        """Join what callbacks counted with what Spark knows of the same batches."""
        for spoken in self._spoken(query):
            self._seen = spoken["batchId"]
            mine = [p for p in self._waiting if p.batch == self._seen]
            self._waiting = [p for p in self._waiting if p.batch > self._seen]
            late = after(spoken)
            self.report.lost = lost_offsets(spoken) or self.report.lost
            for progress in mine:
                whole = Progress(
                    **{**progress.__dict__, "late": progress.late + late, "lag": lag_of(spoken)}
                )
                self.report.add(whole)
                self._tell(whole)

    def _settle(self) -> None:
        """Batches that ended so late that Spark's progress of them was not heard."""
        for progress in self._waiting:
            self.report.add(progress)
            self._tell(progress)
        self._waiting = []

    def _spoken(self, query: Any) -> Iterator[dict[str, Any]]:
        last = query.lastProgress
        if last is None or last["batchId"] <= self._seen:
            return
        for each in query.recentProgress:
            if each["batchId"] > self._seen:
                yield dict(each) if isinstance(each, dict) else each


def lag_of(progress: Any) -> int | None:
    """Offsets that wait, over all partitions; None: the source did not say."""
    from tidelog.apps.spark.source.checkpoint import lag

    waiting = [lag(source) for source in progress["sources"]]
    return sum(sum(each.values()) for each in waiting) if any(waiting) else None


def lost_offsets(progress: Any) -> int:
    """Offsets that were lost up to this batch, as the source counts them."""
    import json

    lost = 0
    for source in progress["sources"]:
        end = source["endOffset"]
        end = json.loads(end) if isinstance(end, str) else end
        lost += (end or {}).get("lostOffsets", 0)
    return lost
