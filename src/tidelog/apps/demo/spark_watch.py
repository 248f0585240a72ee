"""The demo's view of its Spark job: its progress, and the files and records it wrote.

The demo reads the results without Spark: Parquet files with pyarrow, the topic with our own client.
So the comparison does not depend on the software that it checks.
"""

import json
import os
from bisect import bisect
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from tidelog.apps.demo import orders
from tidelog.apps.demo.history import LANDED, History
from tidelog.apps.demo.job_process import Event, JobProcess
from tidelog.apps.demo.orders import AckedOrder, Sum, sums
from tidelog.apps.demo.outcome import Audited, SparkPart, compare_records, compare_sums
from tidelog.apps.demo.timeline import Batch, Mark
from tidelog.apps.pipeline.lake import layout
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.consumer import Reader

LAND, SUMS = "land", "sums"
PATIENCE_S = 300.0
"""Long, because Spark can be ten times slower on a busy machine; only a stuck job times out."""
CALM, DOWN, WHOLE = "all in sync", "one broker down", "all in sync again"

Note = Callable[[str], None]


class SparkWatch:
    """Starts the Spark job and follows its progress."""

    def __init__(self, bootstrap: str, work: str, note: Note) -> None:
        self._work = work
        self._note = note
        self.job = JobProcess(bootstrap, work)

    # -- progress --------------------------------------------------------------------------

    def await_session(self, acknowledged: Callable[[], int]) -> float:
        """Wait until the Spark session is ready; return how long that took."""
        self._wait(
            "the Spark session",
            lambda: bool(self.job.events("session")),
            PATIENCE_S,
            lambda: f"Spark starts; {acknowledged():,} orders acknowledged so far",
        )
        return self.job.events("session")[0].at_s - self.job.started_s

    def await_batches(self, acknowledged: Callable[[], int]) -> float:
        """Wait until both queries completed a batch with rows.

        Return the time from the start of the job to the first such batch.
        """
        self._wait(
            "the first micro-batches",
            lambda: bool(self._rows(LAND) and self._rows(SUMS)),
            PATIENCE_S,
            lambda: f"Spark's first micro-batches run; {acknowledged():,} orders acknowledged",
        )
        return self._job_batches()[0].at_s - self.job.started_s

    def await_landed(self, offset: int) -> int:
        """Wait until the lake has all orders before an offset; return how many it has then."""
        self._wait(
            "new orders in the lake",
            lambda: self._rows(LAND) >= offset,
            PATIENCE_S,
            lambda: f"Spark writes: {self._rows(LAND):,} of {offset:,} orders",
        )
        return self._rows(LAND)

    def finish(self, acked: Sequence[AckedOrder]) -> None:
        """Wait until all orders are landed and all windows are closed, then stop the queries."""
        windows = len(_closed(acked))
        wanted = len(acked)

        def complete() -> bool:
            landed, summed = self._rows(LAND) >= wanted, self._rows(SUMS) >= wanted
            return landed and summed and self._windows() >= windows

        self._wait(
            "all orders in the lake and in the sums",
            complete,
            PATIENCE_S,
            lambda: f"Spark writes the rest: {self._rows(LAND):,} of {wanted:,} orders",
        )
        self.job.send("stop")
        self._wait(
            "the queries to stop",
            lambda: bool(self.job.events("stopped")),
            PATIENCE_S,
            lambda: "Spark's queries stop",
        )

    def audit(self, folders: Sequence[str]) -> Audited:
        """Audit the brokers' folders in the same Spark session."""
        self.job.send("audit", folders=list(folders))
        self._wait(
            "the audit",
            lambda: bool(self.job.events("audit")),
            PATIENCE_S,
            lambda: "Spark audits the files of all replicas",
        )
        return audited(self.job.events("audit")[0].data)

    def add_landed(self, history: History) -> None:
        """Add to the history how many orders the lake had after each batch."""
        batches = self._job_batches(LAND)
        totals = accumulate(event.data["rows_in"] for event in batches)
        for event, orders_in_lake in zip(batches, totals, strict=True):
            history.add(LANDED, event.at_s, fields={"orders": orders_in_lake})

    def _wait(
        self, what: str, ready: Callable[[], bool], timeout_s: float, note: Callable[[], str]
    ) -> None:
        self.job.wait_for(what, ready, timeout_s, lambda: self._note(note()))

    def _job_batches(self, query: str | None = None) -> list[Event]:
        return [
            event
            for event in self.job.events("batch")
            if event.data["rows_in"] and query in (None, event.data["query"])
        ]

    def _rows(self, query: str) -> int:
        return sum(event.data["rows_in"] for event in self._job_batches(query))

    def _windows(self) -> int:
        batches = self.job.events("batch")
        return sum(e.data["rows_out"] for e in batches if e.data["query"] == SUMS)

    # -- results ---------------------------------------------------------------------------

    def part(
        self, client: Cluster, acked: Sequence[AckedOrder], marks: Sequence[Mark], began_s: float
    ) -> Callable[[Audited], SparkPart]:
        """Compare all results of the Spark job, except the audit.

        Return a function that adds the audit, which runs after the brokers have stopped.
        """
        session = self.job.events("session")[0]
        lake = compare_records("lake", acked, read_lake(os.path.join(self._work, "lake")))
        wanted = _closed(acked)
        table = compare_sums("table", wanted, read_table(os.path.join(self._work, "sums")))
        topic = compare_sums("topic", wanted, read_topic(client))
        batches = self._batches(acked, marks, began_s)
        return lambda audit: SparkPart(
            version=session.data["spark"],
            java=session.data["java"],
            session_s=session.at_s - self.job.started_s,
            first_batch_s=self._job_batches()[0].at_s - self.job.started_s,
            batches=batches,
            lake=lake,
            table=table,
            topic=topic,
            audit=audit,
        )

    def _batches(
        self, acked: Sequence[AckedOrder], marks: Sequence[Mark], began_s: float
    ) -> list[Batch]:
        acked_s = sorted(order.at_s for order in acked)
        far = {LAND: 0, SUMS: 0}
        found = []
        for event in self._job_batches():
            query, rows = event.data["query"], event.data["rows_in"]
            at_s = event.at_s - began_s
            found.append(
                Batch(
                    query=query,
                    number=event.data["batch"],
                    at_s=at_s,
                    rows=rows,
                    from_offset=far[query],
                    to_offset=far[query] + rows,
                    took_ms=round(event.data["seconds"] * 1000),
                    behind=max(0, bisect(acked_s, event.at_s) - far[query] - rows),
                    phase=phase(at_s, marks),
                )
            )
            far[query] += rows
        return found


def phase(at_s: float, marks: Sequence[Mark]) -> str:
    """Return the state of the cluster at a time."""
    past = {mark.kind for mark in marks if mark.at_s <= at_s}
    return WHOLE if "whole" in past else DOWN if "kill" in past else CALM


def _closed(acked: Sequence[AckedOrder]) -> list[Sum]:
    """Return the windows that must exist: all except that of the last order, which stays open."""
    last = max(acked, key=lambda order: order.number)
    return sums(order for order in acked if order != last)


def read_lake(path: str) -> list[tuple[int, int]]:
    """Return (offset, number) of every row, sorted by offset.

    The number is -1 if a row is not an order, or if its columns differ from its value.
    """
    rows = []
    for row in _rows_of(os.path.join(path, layout.DATA)):
        number = orders.number_of(row["value"])
        columns = (row["number"], row["shop"], row["cents"])
        same = columns == (number, orders.shop(number), orders.cents(number))
        rows.append((row["offset"], number if same else -1))
    return sorted(rows)


def read_table(path: str) -> list[Sum]:
    """Return the sums in the table."""
    return [
        Sum(
            int(row["window_start"].timestamp() * 1000),
            row["shop"],
            row["orders"],
            row["cents"],
        )
        for row in _rows_of(os.path.join(path, layout.DATA))
    ]


def read_topic(client: Cluster) -> list[Sum]:
    """Return the sums in the topic."""
    found = []
    for record in Reader(client).read(orders.SUMS_TOPIC, orders.PARTITION, 0):
        row = json.loads(record.value or b"{}")
        found.append(Sum(_window_ms(row["window_start"]), row["shop"], row["orders"], row["cents"]))
    return found


def _window_ms(text: str) -> int:
    from datetime import datetime

    return int(datetime.fromisoformat(text).timestamp() * 1000)


def _rows_of(folder: str) -> list[dict[str, Any]]:
    from pyarrow import parquet

    rows: list[dict[str, Any]] = []
    for path in layout.parquet_files(folder):
        # Read each file alone, so that pyarrow does not add its folder names as columns.
        rows += parquet.ParquetFile(path).read().to_pylist()
    return rows


def audited(data: dict[str, Any]) -> Audited:
    """Convert the audit's report to the form that the demo shows.

    The result has one row for each replica of each partition with records, internal topics last.
    """
    report = data["report"]
    partitions = sorted(report["partitions"], key=lambda each: each["topic"].startswith("_"))
    rows = [
        {
            "partition": f"{partition['topic']}/{partition['partition']}",
            "replica": replica["replica"],
            "log end": replica["log_end"],
            "high watermark": replica["high_watermark"],
            "epoch:start": " ".join(f"{epoch}:{start}" for epoch, start in replica["epochs"]),
            "batches": replica["batches"],
            "records": replica["records"],
            "bytes": replica["bytes"],
        }
        for partition in partitions
        for replica in partition["replicas"]
        if any(each["records"] for each in partition["replicas"])
    ]
    shown = ("severity", "kind", "replica", "file", "first_offset", "last_offset", "text")
    findings = [{name: finding[name] for name in shown} for finding in report["findings"]]
    return Audited(rows, findings, report["damage"], data["took_s"])
