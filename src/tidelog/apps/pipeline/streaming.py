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

from tidelog.apps.pipeline.plan import AVAILABLE_NOW, AggregatePlan, BackfillPlan, LandPlan, Origin
from tidelog.apps.pipeline.report import OnProgress, Progress, Report
from tidelog.apps.spark.client_options import BOOTSTRAP
from tidelog.apps.spark.source.checkpoint import from_json
from tidelog.apps.spark.source.data_loss import Place
from tidelog.apps.spark.source.partition_lookup import PartitionLookup
from tidelog.apps.spark.source.source_options import stream_options
from tidelog.core.types import TopicPartition
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.offsets import LATEST, FoundOffset

POLL_S = 0.2
STOP_S = 30.0
LAG_TIMEOUT_S = 2.0
_BATCH_OPTIONS = ("isolationlevel", "includeheaders")
"""Options of the stream that also apply when a batch is read again."""
QUERY_ID = "sql.streaming.queryId"


AddCounts: TypeAlias = Callable[[dict[str, Any], Progress], Progress]
"""Adds counts from Spark's progress of a batch to our own progress of it."""


class Stopping(Exception):
    """Raised in a callback because no new batch may start."""


class BatchWork(Protocol):
    """The work that a pipeline does for each micro-batch."""

    def process(self, frame: Any, batch: int, query: str) -> Progress:
        """Make a batch durable exactly once, and return its counts."""


def source_frame(spark: Any, bootstrap: str, origin: Origin, **options: str) -> Any:
    """Return the streaming frame of records that a pipeline reads."""
    reader = _registered(spark, spark.readStream, bootstrap)
    return reader.options(**source_options(origin, **options)).load()


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
    """Return a batch frame that reads offsets which the stream has already read.

    Records that no longer exist are skipped (`onDataLoss` is skip): the stream has read them.
    """
    partitions = {topic: sorted(map(int, offsets)) for topic, offsets in starting.items()}
    options = {
        name: value
        for name, value in origin.options.items()
        if name.lower().startswith("kafka.") or name.lower() in _BATCH_OPTIONS
    }
    options |= {
        "onDataLoss": "skip",
        "assign": json.dumps(partitions),
        "startingOffsets": json.dumps(starting),
        "endingOffsets": json.dumps(ending),
    }
    return _registered(spark, spark.read, bootstrap).options(**options).load()


def _registered(spark: Any, reader: Any, bootstrap: str) -> Any:
    from tidelog.apps.spark.data_source import register

    register(spark)
    return reader.format("tidelog").option(BOOTSTRAP, bootstrap)


def write_topic(
    frame: Any, plan: AggregatePlan | BackfillPlan, topic: str, *, app: str, version: int
) -> None:
    """Write a frame to a topic. The sink recognises a repeated write by `app` and `version`."""
    own = {"topic": topic, "txnAppId": app, "txnVersion": str(version), BOOTSTRAP: plan.bootstrap}
    frame.write.format("tidelog").mode("append").options(**{**plan.sink, **own}).save()


class Run:
    """One run of a streaming query."""

    def __init__(
        self, plan: LandPlan | AggregatePlan, stop: threading.Event, on_progress: OnProgress
    ) -> None:
        self.report = Report(plan.name, plan.kind)
        self._plan = plan
        self._stop = stop
        self._on_progress = on_progress
        self._batch_lock = threading.Lock()
        self._waiting: list[Progress] = []
        """Batches not reported yet. Callbacks append; the main thread removes from the front."""
        self._failure: BaseException | None = None
        self._refused_batch = False
        """Whether a batch was not started because of the stop request."""
        self._abandoned = False
        """Whether a batch was still running STOP_S after the stop request."""
        self._last_reported = -1
        self._lag = Lag({BOOTSTRAP: plan.bootstrap, **source_options(plan.origin)})

    def execute(
        self,
        frame: Any,
        work: BatchWork,
        add_counts: AddCounts = lambda _spark_progress, progress: progress,
    ) -> Report:
        """Run until all rows are processed, a stop is requested, or the query fails."""
        with closing(self._lag):
            return self._execute(frame, work, add_counts)

    def _execute(self, frame: Any, work: BatchWork, add_counts: AddCounts) -> Report:
        started = time.monotonic()
        writer = frame.writeStream.foreachBatch(lambda f, b: self._process(work, f, b))
        writer = writer.outputMode("append").queryName(self._plan.name)
        writer = writer.option("checkpointLocation", self._plan.checkpoint)
        if self._plan.trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=self._plan.trigger)
        query = writer.start()
        try:
            while not query.awaitTermination(POLL_S) and not self._stop.is_set():
                self._report_batches(query, add_counts)
        except Exception as error:
            if not self._refused_batch:
                raise (self._failure or error) from error
        finally:
            self._end(query)
            self.report.seconds = time.monotonic() - started
        if self._failure is not None:
            raise self._failure
        self._report_batches(query, add_counts)
        self._report_rest()
        return self.report

    def _process(self, work: BatchWork, frame: Any, batch: int) -> None:
        with self._batch_lock:
            if self._stop.is_set():
                self._refused_batch = True
                raise Stopping
            started = time.monotonic()
            query = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
            try:
                progress = work.process(frame, batch, query)
            except BaseException as error:
                if not self._abandoned:
                    self._failure = error  # Spark raises its own exception, with nested traces
                raise
            took = time.monotonic() - started
            self._waiting.append(replace(progress, seconds=took))

    def _end(self, query: Any) -> None:
        active = query.isActive
        self.report.stopped = self._refused_batch or (active and self._stop.is_set())
        if active:
            if self._batch_lock.acquire(timeout=STOP_S):
                self._batch_lock.release()
            else:
                self._abandoned = True
            query.stop()

    def _report_batches(self, query: Any, add_counts: AddCounts) -> None:
        """Report batches: combine the counts of the callbacks with Spark's progress."""
        for spark_progress in self._new_progress(query):
            self._last_reported = spark_progress["batchId"]
            self.report.lost += lost_offsets(spark_progress)
            self._report_rest(self._last_reported)
            if self._waiting and self._waiting[0].batch == self._last_reported:
                progress = add_counts(spark_progress, self._waiting[0])
                self._add(replace(progress, lag=self._lag.after(spark_progress)))

    def _report_rest(self, before: int | None = None) -> None:
        """Report batches for which no progress from Spark will arrive."""
        while self._waiting and (before is None or self._waiting[0].batch < before):
            self._add(self._waiting[0])

    def _add(self, first: Progress) -> None:
        """Report the first waiting batch; `first` holds its complete counts."""
        self._waiting.pop(0)
        self.report.add(first)
        self._on_progress(first)

    def _new_progress(self, query: Any) -> Iterator[dict[str, Any]]:
        """Yield Spark's progress of batches that were processed and not reported yet.

        An idle query also reports progress, with the number of the next batch. That progress
        has no `addBatch`.
        """
        if self._waiting:
            for each in query.recentProgress:
                if each["batchId"] > self._last_reported and "addBatch" in each["durationMs"]:
                    yield each


class Lag:
    """Computes how many offsets a stream has not read yet, with a request after each batch.

    Spark's progress holds the newest offsets at the time the batch was planned. It misses records
    that arrived while the batch ran; without a limit on batch size its lag is always 0.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        found = stream_options({name.lower(): text for name, text in options.items()})
        client = found.client._replace(timeout_s=min(found.client.timeout_s, LAG_TIMEOUT_S))
        self._lookup = PartitionLookup(client, found.subscription, found.isolation)
        self._ends: Mapping[TopicPartition, Place] = {}

    def after(self, spark_progress: Any) -> int | None:
        """Return the number of unread offsets after a batch; None if unknown."""
        for source in spark_progress["sources"]:
            if end := _offset(source, "endOffset"):  # null for a batch without data
                self._ends = from_json(end).places
        try:
            found = self._lookup.list_offsets(dict.fromkeys(self._ends, LATEST))
        except ClientError:
            self._lookup.close()
            return None
        unread = 0
        for key, place in self._ends.items():
            latest = found[key]
            if not isinstance(latest, FoundOffset):
                return None
            unread += max(latest.offset - place.offset, 0)
        return unread

    def close(self) -> None:
        """Close the connections to the brokers."""
        self._lookup.close()


def lost_offsets(progress: Any) -> int:
    """Return how many offsets the source counted as lost when it planned this batch."""
    lost = 0
    for source in progress["sources"]:
        if end := _offset(source, "endOffset"):
            before = _offset(source, "startOffset") or {}
            lost += end.get("lostOffsets", 0) - before.get("lostOffsets", 0)
    return lost


def _offset(source: Any, name: str) -> Any:
    """Return an offset in the progress of a source, parsed; None for a batch without data."""
    found = source[name]
    return json.loads(found) if isinstance(found, str) else found
