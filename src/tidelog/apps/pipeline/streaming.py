"""Run a streaming query from start to stop: its source, the wait for its end, and its shutdown.

Spark calls back for each micro-batch (`foreachBatch`). The main thread waits, reports progress and
checks for a stop request.

Invariants: a batch that runs at the time of a stop request is completed if that takes at most
STOP_S. No batch starts after the request. A restart repairs what an abandoned batch left behind.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

from tidelog.apps.pipeline.plan import AVAILABLE_NOW, AggregatePlan, LandPlan, Origin
from tidelog.apps.pipeline.report import Progress, Report, Tell
from tidelog.apps.spark.client_options import BOOTSTRAP
from tidelog.apps.spark.source.checkpoint import from_json
from tidelog.apps.spark.source.data_loss import Place
from tidelog.apps.spark.source.partition_lookup import PartitionLookup
from tidelog.apps.spark.source.source_options import stream_options
from tidelog.core.types import TopicPartition
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.offsets import LATEST, FoundOffset

LOOK_S = 0.2
STOP_S = 30.0
ANSWER_S = 2.0
_OF_BATCHES_TOO = ("isolationlevel", "includeheaders")
QUERY_ID = "sql.streaming.queryId"


After: TypeAlias = Callable[[dict[str, Any], Progress], Progress]


class Stopping(Exception):
    """Raised in a callback because no new batch may start."""


class TakesBatches(Protocol):
    """The work that a pipeline does for each micro-batch."""

    def take(self, frame: Any, batch: int, query: str) -> Progress:
        """Make a batch durable exactly once, and return its counts."""


def source_frame(spark: Any, bootstrap: str, origin: Origin, **options: str) -> Any:
    """Return the streaming frame of records that a pipeline reads."""
    reader = _reader(spark, spark.readStream, bootstrap)
    for name, value in source_options(origin, **options).items():
        reader = reader.option(name, value)
    return reader.load()


def source_options(origin: Origin, **options: str) -> dict[str, str]:
    """Return the options for the source, with lower-case names; the source ignores case."""
    topics = ",".join(origin.topics)
    chosen = (
        {"subscribe": topics} if origin.pattern is None else {"subscribePattern": origin.pattern}
    )
    wanted = {"startingOffsets": "earliest", **options, **chosen, **origin.options}
    return {name.lower(): value for name, value in wanted.items()}


def batch_frame(
    spark: Any,
    bootstrap: str,
    origin: Origin,
    starting: dict[str, dict[str, int]],
    ending: dict[str, dict[str, int]],
) -> Any:
    """Return a batch frame that reads an offset range again which the stream has already read.

    It skips records that no longer exist (`onDataLoss` is skip): the stream read them in time.
    """
    reader = _reader(spark, spark.read, bootstrap)
    parts = {topic: sorted(map(int, places)) for topic, places in starting.items()}
    for name, value in origin.options.items():
        if name.lower().startswith("kafka.") or name.lower() in _OF_BATCHES_TOO:
            reader = reader.option(name, value)
    return (
        reader.option("onDataLoss", "skip")
        .option("assign", json.dumps(parts))
        .option("startingOffsets", json.dumps(starting))
        .option("endingOffsets", json.dumps(ending))
        .load()
    )


def _reader(spark: Any, door: Any, bootstrap: str) -> Any:
    from tidelog.apps.spark.data_source import TidelogDataSource

    spark.dataSource.register(TidelogDataSource)
    return door.format("tidelog").option("kafka.bootstrap.servers", bootstrap)


class Run:
    """One run of a streaming query."""

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
        """Batches not reported yet. Callbacks append; the main thread removes from the front."""
        self._failure: BaseException | None = None
        self._held_back = False
        """Whether a batch was not started because of the stop request."""
        self._abandoned = False
        self._seen = -1
        self._lag = Lag({BOOTSTRAP: plan.bootstrap, **source_options(plan.origin)})

    def go(
        self,
        frame: Any,
        work: TakesBatches,
        mode: str = "append",
        after: After = lambda _spoken, progress: progress,
    ) -> Report:
        """Run until all rows are processed, a stop is requested, or the query fails.

        `after` receives Spark's progress of each batch, and may add counts from it.
        """
        with closing(self._lag):
            return self._go(frame, work, mode, after)

    def _go(self, frame: Any, work: TakesBatches, mode: str, after: After) -> Report:
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
            if not self._held_back:
                raise (self._failure or error) from error
        finally:
            self._end(query)
            self.report.seconds = time.monotonic() - started
        if self._failure is not None:
            raise self._failure
        self._tell_news(query, after)
        self._settle()
        return self.report

    def _take(self, work: TakesBatches, frame: Any, batch: int) -> None:
        with self._busy:
            if self._stop.is_set():
                self._held_back = True
                raise Stopping
            started = time.monotonic()
            query = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
            try:
                progress = work.take(frame, batch, query)
            except BaseException as error:
                if not self._abandoned:
                    self._failure = error  # Spark wraps it in nested traces
                raise
            took = time.monotonic() - started
            self._waiting.append(replace(progress, seconds=took))

    def _end(self, query: Any) -> None:
        active = query.isActive
        self.report.stopped = self._held_back or (active and self._stop.is_set())
        if active:
            if self._busy.acquire(timeout=STOP_S):
                self._busy.release()
            else:
                self._abandoned = True
            query.stop()

    def _tell_news(self, query: Any, after: After) -> None:
        """Report batches: combine the counts of the callbacks with Spark's progress."""
        for spoken in self._spoken(query):
            self._seen = spoken["batchId"]
            self.report.lost += lost_offsets(spoken)
            self._settle(self._seen)
            if self._waiting and self._waiting[0].batch == self._seen:
                progress = after(spoken, self._waiting[0])
                self._add(replace(progress, lag=self._lag.behind(spoken)))

    def _settle(self, before: int | None = None) -> None:
        """Report batches for which no progress from Spark will arrive."""
        while self._waiting and (before is None or self._waiting[0].batch < before):
            self._add(self._waiting[0])

    def _add(self, first: Progress) -> None:
        """Report the first waiting batch; `first` holds its complete counts."""
        self._waiting.pop(0)
        self.report.add(first)
        self._tell(first)

    def _spoken(self, query: Any) -> Iterator[dict[str, Any]]:
        """Yield Spark's progress of batches that were processed and not reported yet.

        An idle query also reports progress, with the number of the next batch. That progress
        has no `addBatch`.
        """
        if self._waiting:
            for each in query.recentProgress:
                if each["batchId"] > self._seen and "addBatch" in each["durationMs"]:
                    yield each


class Lag:
    """The lag of a stream behind its topics, requested from the brokers after each batch.

    Spark's progress holds the newest offsets at the time the batch was planned. It misses records
    that arrived while the batch ran; without a limit on batch size its lag is always 0.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        found = stream_options({name.lower(): text for name, text in options.items()})
        client = found.client._replace(timeout_s=min(found.client.timeout_s, ANSWER_S))
        self._survey = PartitionLookup(client, found.subscription, found.isolation)
        self._ends: Mapping[TopicPartition, Place] = {}

    def behind(self, spoken: Any) -> int | None:
        """Return the unread offsets after a batch, over all partitions; None if unknown."""
        for source in spoken["sources"]:
            if told := _said(source, "endOffset"):  # null for a batch without data
                self._ends = from_json(told).places
        try:
            found = self._survey.ask(dict.fromkeys(self._ends, LATEST))
        except ClientError:
            self._survey.close()
            return None
        waiting = 0
        for key, place in self._ends.items():
            end = found[key]
            if not isinstance(end, FoundOffset):
                return None
            waiting += max(end.offset - place.offset, 0)
        return waiting

    def close(self) -> None:
        """Close the connections to the brokers."""
        self._survey.close()


def lost_offsets(progress: Any) -> int:
    """Return how many offsets the source counted as lost when it planned this batch."""
    lost = 0
    for source in progress["sources"]:
        if end := _said(source, "endOffset"):
            before = _said(source, "startOffset") or {}
            lost += end.get("lostOffsets", 0) - before.get("lostOffsets", 0)
    return lost


def _said(source: Any, name: str) -> Any:
    """Return an offset as the source wrote it; None if the source wrote nothing."""
    told = source[name]
    return json.loads(told) if isinstance(told, str) else told
